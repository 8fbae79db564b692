"""The statements of a program as kernel source: loops over lists of cells, assignments to registers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace

from millstream.kernels.programs.layout import Cells, Layout, equality, holds_one_row, tables_read
from millstream.kernels.programs.storage import Pair, append, load_cell, store, unlink
from millstream.kernels.programs.writer import Writer
from millstream.physical.expressions.kernel import to_kernel_source
from millstream.physical.expressions.kernel_forms import and_, not_, zero
from millstream.plan.expr import Call, Case, Cast, Column, Expr, Literal, conjunction, conjuncts, transform, walk
from millstream.plan.programs import (
    OLDEST,
    SQLCODE,
    WINDOW,
    Delete,
    Exists,
    InQuery,
    Insert,
    Program,
    Range,
    Rows,
    ScalarQuery,
    Statement,
    Summary,
    Update,
    expressions_of,
    queries_of,
)
from millstream.types import BIGINT, BOOLEAN, DOUBLE, SqlType

Sink = Callable[[list[Pair]], None]

_ON_CODES = frozenset({"=", "<>", "in", "is_distinct", "is_null", "coalesce"})
"""What can be asked of text that is known by its dictionary code alone."""


class NotCompilable(Exception):
    """Why a program runs on the general engine."""


@dataclass
class Body:
    """What one program's statements refer to: a program inside another has its own."""

    program: Program
    names: dict[str, str]
    prefix: str
    on_return: Sink
    sqlcode: str | None = None


@dataclass
class Statements:
    """Writes statements; `layout` says where the outermost program's tables lie."""

    layout: Layout
    write: Writer
    helpers: set[str] = field(default_factory=set)
    present: set[str] = field(default_factory=set)
    """variables that are never NULL"""
    known: frozenset[tuple[str, str]] = frozenset()
    """tables and columns that are never NULL"""
    texts: dict[str, str] = field(default_factory=dict)
    """text constants, and the variable that holds the code of each"""

    # -- values ----------------------------------------------------------------------------------------------------

    def value(self, expr: Expr, body: Body) -> Pair:
        """The source of an expression; what its subqueries need is written first."""
        lowered = transform(expr, lambda part: self._query_value(part, body))
        compiled = to_kernel_source(self._coded(lowered, body), body.names, self.present)
        if compiled is None:
            raise NotCompilable(f"{expr} has no compiled form")
        self.helpers |= compiled.helpers
        return compiled.value, compiled.null

    def condition(self, expr: Expr, body: Body) -> str:
        value, null = self.value(expr, body)
        return and_(not_(null), value)

    def bound(self, expr: Expr, body: Body, stem: str = "e") -> Pair:
        """Like `value`, kept in variables."""
        value, null = self.value(expr, body)
        name = self.write.fresh(stem)
        self.write(f"n_{name} = {null}")
        if null == "False":
            self.write(f"v_{name} = {value}")
        else:
            self.write(f"v_{name} = {zero(_plain(expr.type))}")
            with self.write.when(not_(null)):
                self.write(f"v_{name} = {value}")
        return f"v_{name}", f"n_{name}"

    def _coded(self, expr: Expr, body: Body) -> Expr:
        """The expression with text replaced by its codes, where only codes are needed."""
        for part in walk(expr):
            coded = any(child.type.is_coded for child in part.children())
            if coded and (isinstance(part, Cast) or (isinstance(part, Call) and part.fn not in _ON_CODES)):
                raise NotCompilable(f"{part} needs the text itself, and kernels have only its code")
            if part.type.is_coded and isinstance(part, Call) and part.fn != "coalesce":
                raise NotCompilable(f"{part} makes new text")
            if part.type.name in ("BLOB", "DECIMAL", "NULL") and not (isinstance(part, Literal) and part.value is None):
                raise NotCompilable(f"{part} is {part.type}")

        def change(part: Expr) -> Expr:
            if not part.type.is_coded:
                return part
            match part:
                case Literal(value=str(text)):
                    name = f"text {text}"
                    body.names[name] = self.texts.setdefault(text, f"text{len(self.texts)}")
                    return Column(BIGINT, name)
                case Literal():
                    return Literal(BIGINT, part.value)
                case Column():
                    return Column(BIGINT, part.name)
                case Call():
                    return Call(BIGINT, part.fn, part.args)
                case Case():
                    return Case(BIGINT, part.whens, part.default)
            raise NotCompilable(f"{part} is text")

        return transform(expr, change)

    def _query_value(self, part: Expr, body: Body) -> Expr:
        match part:
            case Exists():
                name = self._exists(part.query, body)
            case InQuery():
                name = self._among(part, body)
            case ScalarQuery():
                name = self._scalar(part, body)
            case Summary() if str(part) not in body.names:
                raise NotCompilable(f"{part} is nested")
            case Summary():
                return Column(part.type, str(part))
            case _:
                return part
        body.names[f"query {name}"] = name
        return Column(part.type, f"query {name}")

    def _exists(self, query: Rows, body: Body) -> str:
        name = self.write.fresh("q")
        self.write(f"v_{name} = False", f"n_{name} = False")
        if query.is_aggregation and not query.group and query.having is None:
            self.write(f"v_{name} = True")
        else:
            self.rows(query, body, lambda _: self.write(f"v_{name} = True"), until=f"v_{name}", valued=False)
        return name

    def _among(self, part: InQuery, body: Body) -> str:
        name, mine = self.write.fresh("q"), self.write.fresh("e")
        value, null = self.value(part.arg, body)
        self.write(f"v_{mine} = {value} if {not_(null)} else {zero(_plain(part.arg.type))}", f"n_{mine} = {null}")
        self.write(f"v_{name} = False", f"n_{name} = False")

        def sink(values: list[Pair]) -> None:
            other = self.write.fresh("e")
            (theirs, absent), type_ = values[0], part.arg.type
            body.names |= {f"mine {mine}": mine, f"other {other}": other}
            with self.write.block(f"if {absent} or n_{mine}:"):
                self.write(f"n_{name} = True")
            with self.write.block("else:"):
                self.write(f"v_{other} = {theirs}", f"n_{other} = False")
                same = Call(
                    BOOLEAN, "=", (Column(_plain(type_), f"mine {mine}"), Column(_plain(type_), f"other {other}"))
                )
                with self.write.when(self.condition(same, body)):
                    self.write(f"v_{name} = True")

        column, ranges = part.query.columns[0], part.query.ranges
        cells = None
        if len(ranges) == 1 and isinstance(column, Column) and not self.is_register(ranges[0].table, body):
            cells = self._cells(ranges[0].table, body)
        if cells is None or cells.index is None or column != _indexed(cells, ranges[0]):
            self.rows(part.query, body, sink, until=f"v_{name}")
        else:
            # As long as no row has NULL there, an index tells all.
            body.names[f"mine {mine}"] = mine
            same = Call(BOOLEAN, "=", (column, Column(column.type, f"mine {mine}")))
            where = same if part.query.where is None else conjunction((part.query.where, same))
            probe = replace(part.query, where=where)
            with self.write.block(f"if not n_{mine} and meta[{3 * cells.number + 2}] == 0:"):
                self.rows(probe, body, lambda _: self.write(f"v_{name} = True"), until=f"v_{name}", valued=False)
            with self.write.block("else:"):
                self.rows(part.query, body, sink, until=f"v_{name}")
        with self.write.block(f"if v_{name}:"):
            self.write(f"n_{name} = False")
        return name

    def _scalar(self, part: ScalarQuery, body: Body) -> str:
        name = self.write.fresh("q")
        several = self.write.fresh("several")
        self.write(f"v_{name} = {zero(_plain(part.type))}", f"n_{name} = True", f"{several} = False")

        def sink(values: list[Pair]) -> None:
            ((value, null),) = values
            with self.write.block(f"if {several}:"):
                self.write("trouble[0] = SEVERAL_ROWS")
            self.write(f"{several} = True", f"n_{name} = {null}")
            with self.write.when(not_(null)):
                self.write(f"v_{name} = {value}")

        self.rows(part.query, body, sink)
        return name

    # -- queries ---------------------------------------------------------------------------------------------------

    def rows(
        self, query: Rows, body: Body, sink: Sink, until: str | None = None, valued: bool = True, stop: str = "0"
    ) -> None:
        """What `sink` writes, run for each row of a query, or until the variable `until` is true. Loops over a list
        that grows meanwhile end at the cell `stop`."""
        if query.group or query.distinct or query.order or query.limit is not None:
            raise NotCompilable("GROUP BY, DISTINCT, ORDER BY and LIMIT in a query")
        if query.is_aggregation:
            self._summarised(query, body, sink)
            return
        with self._joined(query.ranges, query.where, tuple(query.expressions()), body, until, stop):
            sink([self.value(column, body) for column in query.columns] if valued else [])

    def _joined(
        self, ranges: tuple[Range, ...], where: Expr | None, uses: Iterable[Expr], body: Body, until: str | None = None,
        stop: str = "0",
    ) -> ExitStack:  # fmt: skip
        """A block that runs for each combination of rows; conditions are tested as soon as they can be."""
        stack = ExitStack()
        waiting = [] if where is None else list(conjuncts(where))
        used = set(_column_names(uses))
        unbound = {range_.alias for range_ in ranges}
        self._test(waiting, unbound, body, stack)
        for range_ in ranges:
            lookup = self._lookup(range_, waiting, unbound, body) if stop == "0" else None
            stack.enter_context(self._each(range_, body, used, until, stop, lookup))
            unbound.discard(range_.alias)
            self._test(waiting, unbound, body, stack)
        return stack

    def _test(self, waiting: list[Expr], unbound: set[str], body: Body, stack: ExitStack) -> None:
        ready = [part for part in waiting if not aliases_of(part) & unbound]
        waiting[:] = [part for part in waiting if part not in ready]
        for part in sorted(ready, key=lambda part: next(queries_of(part), None) is not None):
            stack.enter_context(self.write.when(self.condition(part, body)))

    def _each(
        self, range_: Range, body: Body, used: set[str], until: str | None, stop: str, lookup: Expr | None
    ) -> AbstractContextManager[object]:
        """A block that runs for each row of a table, or for those that an index gives for the value `lookup`, with its
        columns under their names."""
        schema = body.program.table(range_.table).schema
        if self.is_register(range_.table, body):
            for i, field_ in enumerate(schema):
                body.names[f"{range_.alias}.{field_.name}"] = self.register(range_.table, i, body)
            return self.write.when("True")
        cells = self._cells(range_.table, body)
        n, width, going = cells.number, cells.width, f" and not {until}" if until else ""
        at = self.write.fresh("at")
        body.names[f"cell of {range_.alias}"] = at
        stack = ExitStack()
        if cells.is_ring:
            place = self.write.fresh("i")
            if until:
                self.write(f"{place} = first{n}")
                stack.enter_context(self.write.block(f"while {place} < end{n}{going}:"))
            else:
                stack.enter_context(self.write.block(f"for {place} in range(first{n}, end{n}):"))
            self.write(f"{at} = base{n} + ({place} & mask{n}) * {width}", *([f"{place} += 1"] if until else []))
        else:
            cell = self.write.fresh("cell")
            lane = 0
            if lookup is None:
                self.write(f"{cell} = head{n}")
            else:
                value, null = self.value(lookup, body)
                lane = cells.lanes["chained"]
                self.write(f"{cell} = 0")
                with self.write.when(not_(null)):
                    self.write(f"{cell} = heads{n}[bucket(at, {value}, len(heads{n}) - 1)]")
            stack.enter_context(self.write.block(f"while {cell} != 0{going}:"))
            # The loop steps on at once, so that what stands below may be under any conditions.
            following = f"c{n}[{at} + {lane}]"
            self.write(f"{at} = {cell} * {width}")
            self.write(f"{cell} = {following if stop == '0' else f'0 if {cell} == {stop} else {following}'}")
            if lookup is not None:
                # Other groups, and other values, may share the chain.
                stack.enter_context(self.write.block(f"if c{n}[{at} + {cells.lanes['owner']}] == at:"))
        self._load(cells, at, f"{range_.alias}.", body, used)
        return stack

    def _load(self, cells: Cells, at: str, prefix: str, body: Body, used: set[str] | None) -> None:
        variables = {}
        for i, field_ in enumerate(cells.table.schema):
            name = f"{prefix}{field_.name}"
            if used is None or name in used:
                variables[i] = body.names.setdefault(name, self.write.fresh("x"))
                if (cells.table.name, field_.name) in self.known and (prefix != OLDEST or cells.is_ring):
                    self.present.add(variables[i])
        load_cell(self.write, cells, at, variables)

    def _lookup(self, range_: Range, waiting: list[Expr], unbound: set[str], body: Body) -> Expr | None:
        """The value by which an index finds the rows of a table that can satisfy the conditions, if there is one."""
        if self.is_register(range_.table, body):
            return None
        cells = self._cells(range_.table, body)
        if cells.index is None:
            return None
        name = cells.table.schema.fields[cells.index].name
        for part in waiting:
            found = equality(range_.alias, part)
            if found is not None and found[0] == name and not aliases_of(found[1]) & unbound:
                return found[1]
        return None

    def _summarised(self, query: Rows, body: Body, sink: Sink) -> None:
        outputs = [*query.columns, *([] if query.having is None else [query.having])]
        summaries = {str(part): part for expr in outputs for part in walk(expr) if isinstance(part, Summary)}
        sole = query.columns[0] if len(query.columns) == 1 else None
        if isinstance(sole, Summary) and sole.program is not None and query.having is None:
            self._program_rows(sole, query, body, sink)
            return
        accumulators = [_Accumulator(self, summary, body) for summary in summaries.values()]
        for accumulator in accumulators:
            accumulator.begin()
        with self._joined(query.ranges, query.where, tuple(query.expressions()), body):
            for accumulator in accumulators:
                accumulator.add()
        for text, accumulator in zip(summaries, accumulators, strict=True):
            body.names[text] = accumulator.finish()
        with self.write.when("True" if query.having is None else self.condition(query.having, body)):
            sink([self.value(column, body) for column in query.columns])

    def _program_rows(self, summary: Summary, query: Rows, body: Body, sink: Sink) -> None:
        """Another program over the rows of a query: all that it returns."""
        program = summary.program
        assert program is not None
        if program.window is not None or not all(holds_one_row(program, table.name) for table in program.tables):
            raise NotCompilable(f"{summary.fn} keeps more than one row per group")
        prefix = self.write.fresh("p")
        inner = Body(program, {}, prefix, sink)
        if any(part == SQLCODE for s in program.statements for part in _column_names(expressions_of(s))):
            inner.sqlcode = f"{prefix}_code"
            inner.names[SQLCODE] = inner.sqlcode
            self.write(f"n_{inner.sqlcode} = False", f"v_{inner.sqlcode} = 0")
        for table in program.tables:
            for i, field_ in enumerate(table.schema):
                name = self.register(table.name, i, inner)
                self.write(f"v_{name} = {zero(_plain(field_.type))}", f"n_{name} = True")
        for i, field_ in enumerate(program.parameters):
            inner.names[f":{field_.name}"] = f"{prefix}_a{i}"
            self.write(f"v_{prefix}_a{i} = {zero(_plain(field_.type))}", f"n_{prefix}_a{i} = True")
        self.write(f"{prefix}_begun = False")
        with self._joined(query.ranges, query.where, tuple(query.expressions()), body):
            for i, arg in enumerate(summary.args):
                value, null = self.value(arg, body)
                self.write(f"n_{prefix}_a{i} = {null}")
                with self.write.when(not_(null)):
                    self.write(f"v_{prefix}_a{i} = {value}")
            if program.initialize == program.iterate:
                self.write(f"{prefix}_begun = True")
                self.statements(program.iterate, inner)
            else:
                with self.write.block(f"if {prefix}_begun:"):
                    self.statements(program.iterate, inner)
                with self.write.block("else:"):
                    self.write(f"{prefix}_begun = True")
                    self.statements(program.initialize, inner)
        if program.terminate:
            with self.write.block(f"if {prefix}_begun:"):
                self.statements(program.terminate, inner)

    # -- tables ----------------------------------------------------------------------------------------------------

    def is_register(self, table: str, body: Body) -> bool:
        return bool(body.prefix) or self.layout.registers_of(table) is not None

    def register(self, table: str, column: int, body: Body) -> str:
        """The variable of a column of a table that holds one row."""
        names = [local.name for local in body.program.tables]
        return f"{body.prefix}r{names.index(table)}_{column}"

    def _cells(self, table: str, body: Body) -> Cells:
        if body.prefix:
            raise NotCompilable(f"{body.program.name} keeps more than one row per group")
        return self.layout.cells_of(table)

    # -- statements ------------------------------------------------------------------------------------------------

    def statements(self, statements: tuple[Statement, ...], body: Body) -> None:
        """The statements of a state, one after the other."""
        if body.sqlcode is not None:
            self.write(f"v_{body.sqlcode} = 0")
        for statement in statements:
            self.write(f"# {' '.join(str(statement).split())}")
            if any(name.startswith(OLDEST) for name in _column_names(expressions_of(statement))):
                self._load_oldest(body)
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

    def _load_oldest(self, body: Body) -> None:
        cells = self._cells(WINDOW, body)
        n = cells.number
        for field_ in cells.table.schema:
            variable = body.names.setdefault(f"{OLDEST}{field_.name}", self.write.fresh("oldest"))
            self.write(f"v_{variable} = {zero(_plain(field_.type))}", f"n_{variable} = True")
        # While a tuple is worked on, a window from which nothing is deleted holds at least that.
        with self.write.when("True" if cells.is_ring else f"head{n} != 0"):
            at = self.write.fresh("at")
            if cells.is_ring:
                self.write(f"{at} = base{n} + (first{n} & mask{n}) * {cells.width}")
            else:
                self.write(f"{at} = head{n} * {cells.width}")
            self._load(cells, at, OLDEST, body, None)

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
        append(self.write, cells, values, {"owner": "at"} if cells.index is not None else {}, self.is_full(cells))

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
                self.write(f"v_{name} = {zero(_plain(type_))}")
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
        with self._joined((statement.range,), statement.where, uses, body):
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
                self.write(f"n_{name} = {null}", f"v_{name} = {zero(_plain(schema.fields[column].type))}")
                with self.write.when(not_(null)):
                    self.write(f"v_{name} = {value}")
                fresh.append(name)
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

    def _delete(self, statement: Delete, body: Body, touched: str | None) -> None:
        table = statement.range.table
        cells = self._cells(table, body)
        self._refuse_inner_reads(statement, table)
        previous, doomed = self.write.fresh("previous"), self.write.fresh("doomed")
        used = set(_column_names(expressions_of(statement)))
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


class _Accumulator:
    """A built-in aggregate over the rows of a query."""

    def __init__(self, statements: Statements, summary: Summary, body: Body) -> None:
        if summary.distinct or summary.program is not None or summary.fn not in ("count", "sum", "avg", "min", "max"):
            raise NotCompilable(f"{summary} inside a statement")
        self._s, self._summary, self._body = statements, summary, body
        self._name = statements.write.fresh("sum")
        self._type = summary.args[0].type if summary.args else BIGINT
        if self._type.is_coded and summary.fn != "count":
            raise NotCompilable(f"{summary} compares text")

    def begin(self) -> None:
        kind = DOUBLE if self._summary.fn == "avg" else self._type
        self._s.write(f"v_{self._name} = {zero(_plain(kind))}", f"count_{self._name} = 0")

    def add(self) -> None:
        write, name, fn = self._s.write, self._name, self._summary.fn
        if not self._summary.args:
            write(f"count_{name} += 1")
            return
        value, null = self._s.value(self._summary.args[0], self._body)
        with write.when(not_(null)):
            if fn in ("sum", "avg"):
                if self._type.is_integer and fn == "sum":
                    self._s.helpers.add("k_add")
                    write(f"v_{name} = k_add(v_{name}, {value})")
                else:
                    write(f"v_{name} = v_{name} + {value}")
            elif fn in ("min", "max"):
                fresh = write.fresh("e")
                write(f"v_{fresh} = {value}", f"n_{fresh} = False", f"n_{name} = False")
                self._body.names |= {f"best {name}": name, f"new {fresh}": fresh}
                pair = (Column(self._type, f"new {fresh}"), Column(self._type, f"best {name}"))
                better = self._s.condition(Call(BOOLEAN, "<" if fn == "min" else ">", pair), self._body)
                with write.block(f"if count_{name} == 0 or {better}:"):
                    write(f"v_{name} = v_{fresh}")
            write(f"count_{name} += 1")

    def finish(self) -> str:
        write, name = self._s.write, self._name
        if self._summary.fn == "count":
            write(f"v_{name} = count_{name}", f"n_{name} = False")
            return name
        write(f"n_{name} = count_{name} == 0")
        if self._summary.fn == "avg":
            with write.block(f"if count_{name} != 0:"):
                write(f"v_{name} = v_{name} / count_{name}")
        return name


def aliases_of(expr: Expr) -> set[str]:
    """The tables, by alias, whose rows an expression depends on, those around it for a subquery."""
    found = {name.partition(".")[0] for name in _column_names([expr]) if "." in name and name[0] != ":"}
    for query in queries_of(expr):
        inner = {alias for part in query.expressions() for alias in aliases_of(part)}
        found |= inner - {range_.alias for range_ in query.ranges}
    return found - {OLDEST.rstrip(".")}


def _column_names(expressions: Iterable[Expr]) -> list[str]:
    """The columns that expressions name, those in their subqueries included."""
    names = []
    for expr in expressions:
        names += [part.name for part in walk(expr) if isinstance(part, Column)]
        for query in queries_of(expr):
            names += _column_names(query.expressions())
    return names


def _stands_alone(statement: Statement, expr: Expr) -> bool:
    """Whether an expression does not depend on the row that a statement changes, so that it is evaluated before."""
    if isinstance(statement, Insert):
        return len(statement.sources) == 1 and not statement.sources[0].ranges
    alias = statement.range.alias
    return all(alias not in aliases_of(part) for part in conjuncts(expr) if next(queries_of(part), None) is not None)


def _indexed(cells: Cells, range_: Range) -> Column:
    assert cells.index is not None
    field_ = cells.table.schema.fields[cells.index]
    return Column(field_.type, f"{range_.alias}.{field_.name}")


def _plain(type_: SqlType) -> SqlType:
    return BIGINT if type_.is_coded else type_
