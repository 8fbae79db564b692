"""The statements of a program as kernel source: changes of cells, assignments to registers, returned rows."""

from __future__ import annotations

from contextlib import ExitStack

from millstream.expressions.kernel.coded_text import NotCompilable
from millstream.expressions.kernel.forms import not_, zero
from millstream.expressions.nodes import Expr, conjuncts
from millstream.kernels.programs.layout import Cells
from millstream.kernels.programs.source_queries import Queries
from millstream.kernels.programs.source_values import Body, plain_type
from millstream.kernels.programs.storage import Pair, append, drop, enter_order, leave_order, store, unlink
from millstream.plan.programs.facts import tables_read
from millstream.plan.programs.nodes import (
    OLDEST,
    WINDOW,
    Delete,
    Insert,
    Statement,
    Update,
    aliases_of,
    column_names,
    expressions_of,
    oldest_of,
    queries_of,
)
from millstream.types import DOUBLE


class Statements(Queries):
    """Writes statements."""

    def statements(self, statements: tuple[Statement, ...], body: Body) -> None:
        """The statements of a state, one after the other."""
        self.computed.clear()
        if body.sqlcode is not None:
            self.write(f"v_{body.sqlcode} = 0")
        for statement in statements:
            names = column_names(expressions_of(statement))
            if any(name.startswith(OLDEST) for name in names):
                self._load_oldest(names, body)
            touched = None
            if body.sqlcode is not None:
                touched = self.write.fresh("touched")
                self.write(f"{touched} = False")
            match statement:
                case Insert():
                    self._insert(statement, body, touched)
                case Update():
                    self._update(statement, body, touched)
                case Delete():
                    self._delete(statement, body, touched)
            if touched is not None:
                self.write(f"v_{body.sqlcode} = 0 if {touched} else 100")

    def _load_oldest(self, names: list[str], body: Body) -> None:
        """Variables for the oldest tuples of the windows that are asked for one."""
        longest = self._cells(WINDOW, body)
        asked = [
            cells
            for cells in self.layout.windows
            if any(f"{oldest_of(cells.table.name)}{field_.name}" in names for field_ in longest.table.schema)
        ]
        for cells in asked:
            self._load_oldest_of(cells, body)

    def _load_oldest_of(self, cells: Cells, body: Body) -> None:
        n, prefix = cells.number, oldest_of(cells.table.name)
        for field_ in cells.table.schema:
            variable = body.names.setdefault(f"{prefix}{field_.name}", self.write.fresh("oldest"))
            self.write(f"v_{variable} = {zero(plain_type(field_.type))}", f"n_{variable} = True")
        # While a tuple is worked on, a window from which nothing is deleted holds at least that.
        with self.write.when("True" if cells.is_ring else f"head{n} != 0"):
            at = self.write.fresh("at")
            if cells.is_ring:
                self.write(f"{at} = base{n} + ({cells.first} & mask{n}) * {cells.width}")
            else:
                self.write(f"{at} = head{n} * {cells.width}")
            self._load(cells, at, prefix, body, None)

    def _insert(self, statement: Insert, body: Body, touched: str | None) -> None:
        stop = "0"
        if statement.table is not None and statement.table in tables_read(statement):
            # The new rows come behind those that were there: the statement looks no further than these.
            cells = self._cells(statement.table, body)
            stop = self.write.fresh("last")
            self.write(f"{stop} = tail{cells.number}")
            self._refuse_inner_reads(statement, statement.table)

        def sink(values: list[Pair]) -> None:
            if touched is not None:
                self.write(f"{touched} = True")
            if statement.table is None:
                body.on_return(values)
            elif self.is_register(statement.table, body):
                self._assign(statement.table, list(range(len(values))), values, body)
            else:
                self._append(self._cells(statement.table, body), values)

        if stop != "0" and len(statement.sources) > 1:
            raise NotCompilable("several rows inserted by a statement that reads the same table")
        for source in statement.sources:
            self.rows(source, body, sink, stop=stop)

    def is_full(self, cells: Cells) -> bool:
        """Whether no column of a table is ever NULL."""
        return all((cells.table.name, field_.name) in self.known for field_ in cells.table.schema)

    def _append(self, cells: Cells, values: list[Pair]) -> None:
        append(self.write, cells, values, {"owner": "at"} if "owner" in cells.lanes else {}, self.is_full(cells))

    def _refuse_inner_reads(self, statement: Statement, table: str) -> None:
        """A subquery for each row of a table that the statement changes would see some of the changes."""
        for expr in expressions_of(statement):
            for query in queries_of(expr):
                if any(range_.table == table for range_ in query.ranges) and not _stands_alone(statement, expr):
                    raise NotCompilable(f"a subquery reads {table} while the statement changes it")

    def _assign(self, table: str, columns: list[int], values: list[Pair], body: Body) -> None:
        kept = []
        for value, null in values:
            name = self.write.fresh("new")
            self.write(f"n_{name} = {null}")
            kept.append((name, value, null))
        for column, (name, value, null) in zip(columns, kept, strict=True):
            type_ = body.program.table(table).schema.fields[column].type
            if null != "False":
                self.write(f"v_{name} = {zero(plain_type(type_))}")
            with self.write.when(not_(null)):
                self.write(f"v_{name} = {value}")
        for column, (name, _, _) in zip(columns, kept, strict=True):
            register = self.register(table, column, body)
            self.write(f"v_{register} = v_{name}", f"n_{register} = n_{name}")

    def _update(self, statement: Update, body: Body, touched: str | None) -> None:
        table, alias = statement.range.table, statement.range.alias
        schema = body.program.table(table).schema
        columns = [schema.index(name) for name, _ in statement.assignments]
        uses = tuple(expressions_of(statement))
        if not self.is_register(table, body):
            self._refuse_inner_reads(statement, table)
        early = {
            name: self.bound(expr, body)
            for name, expr in statement.assignments
            if alias not in aliases_of(expr) and next(queries_of(expr), None) is not None
        }
        relinked = None if self.is_register(table, body) else self._relinked(self._cells(table, body), columns)
        with self._joined((statement.range,), statement.where, uses, body, free=True):
            if touched is not None:
                self.write(f"{touched} = True")
            values = [early.get(name) or self.value(expr, body) for name, expr in statement.assignments]
            if self.is_register(table, body):
                self._assign(table, columns, values, body)
                return
            cells = self._cells(table, body)
            at, n = body.names[f"cell of {alias}"], cells.number
            nulls = f"c{n}[{at} + {cells.lanes['nulls']}]"
            fresh = []
            for (value, null), column in zip(values, columns, strict=True):
                name = self.write.fresh("new")
                self.write(f"n_{name} = {null}", f"v_{name} = {zero(plain_type(schema.fields[column].type))}")
                with self.write.when(not_(null)):
                    self.write(f"v_{name} = {value}")
                fresh.append(name)
            if relinked is not None:
                cell = self.write.fresh("cell")
                self.write(f"{cell} = {at} // {cells.width}")
                leave_order(self.write, cells, cell)
                self.write(f"c{n}[{at} + {cells.lanes['moved']}] = {relinked}", f"{relinked} = {cell}")
            for name, column in zip(fresh, columns, strict=True):
                store(
                    self.write,
                    f"c{n}",
                    f"f{n}",
                    f"{at} + {cells.lane(column)}",
                    schema.fields[column].type,
                    f"v_{name}",
                )
                if (table, schema.fields[column].name) not in self.known:
                    self.write(f"{nulls} = {nulls} & ~(1 << {column}) | int(n_{name}) << {column}")
        if relinked is not None:
            self._relink(self._cells(table, body), relinked)

    def _relinked(self, cells: Cells, columns: list[int]) -> str | None:
        """The variable of the first of the cells that an UPDATE takes out of their order, if it does: they enter it
        again when all rows have been seen, so that none is seen twice."""
        if cells.order not in columns:
            return None
        first = self.write.fresh("relinked")
        self.write(f"{first} = 0")
        return first

    def _relink(self, cells: Cells, first: str) -> None:
        n, cell, at = cells.number, self.write.fresh("cell"), self.write.fresh("at")
        array = "f" if cells.table.schema.fields[cells.order or 0].type == DOUBLE else "c"
        with self.write.block(f"while {first} != 0:"):
            self.write(f"{cell} = {first}", f"{at} = {cell} * {cells.width}")
            self.write(f"{first} = c{n}[{at} + {cells.lanes['moved']}]", f"mixed{n} = 1")
            with self.write.block(f"if (c{n}[{at} + {cells.lanes['nulls']}] >> {cells.order}) & 1 == 0:"):
                enter_order(self.write, cells, cell, f"{array}{n}[{at} + {cells.ordered_lane}]")

    def _delete(self, statement: Delete, body: Body, touched: str | None) -> None:
        table = statement.range.table
        cells = self._cells(table, body)
        self._refuse_inner_reads(statement, table)
        if cells.order is not None and statement.where is None:
            if touched is not None:
                self.write(f"{touched} = count{cells.number} != 0")
            drop(self.write, cells)
            return
        if "previous" in cells.lanes:
            uses = tuple(expressions_of(statement))
            with self._joined((statement.range,), statement.where, uses, body, free=True):
                gone = self.write.fresh("gone")
                self.write(f"{gone} = {body.names[f'cell of {statement.range.alias}']} // {cells.width}")
                unlink(self.write, cells, gone, "")
                if touched is not None:
                    self.write(f"{touched} = True")
            return
        previous, doomed = self.write.fresh("previous"), self.write.fresh("doomed")
        used = set(column_names(expressions_of(statement)))
        alias = statement.range.alias
        waiting = [] if statement.where is None else list(conjuncts(statement.where))
        with ExitStack() as stack:
            self._test(waiting, {alias}, body, stack)
            cell, following = self.write.fresh("cell"), self.write.fresh("following")
            self.write(f"{cell} = head{cells.number}", f"{previous} = 0")
            with self.write.block(f"while {cell} != 0:"):
                at = self.write.fresh("at")
                self.write(
                    f"{at} = {cell} * {cells.width}", f"{following} = c{cells.number}[{at}]", f"{doomed} = False"
                )
                self._load(cells, at, f"{alias}.", body, used)
                with ExitStack() as tests:
                    tests.enter_context(self.write.when(f"{cell} != current" if statement.others else "True"))
                    self._test(waiting, set(), body, tests)
                    self.write(f"{doomed} = True")
                with self.write.block(f"if {doomed}:"):
                    unlink(self.write, cells, cell, previous)
                    if touched is not None:
                        self.write(f"{touched} = True")
                with self.write.block("else:"):
                    self.write(f"{previous} = {cell}")
                self.write(f"{cell} = {following}")


def _stands_alone(statement: Statement, expr: Expr) -> bool:
    """Whether an expression does not depend on the row that a statement changes, so that it is evaluated before."""
    if isinstance(statement, Insert):
        return len(statement.sources) == 1 and not statement.sources[0].ranges
    alias = statement.range.alias
    return all(alias not in aliases_of(part) for part in conjuncts(expr) if next(queries_of(part), None) is not None)
