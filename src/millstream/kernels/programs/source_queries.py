"""Queries of a program as kernel source: loops over cells, accumulators, other programs inside."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack

from millstream.expressions.kernel.coded_text import NotCompilable
from millstream.expressions.kernel.forms import and_, not_, zero
from millstream.expressions.nodes import Call, Column, Expr, conjuncts, walk
from millstream.kernels.accumulators import Accumulator, Argument, Given, Place, entered
from millstream.kernels.accumulators.places import is_code
from millstream.kernels.programs.access import bound_of, equality
from millstream.kernels.programs.layout import Cells
from millstream.kernels.programs.order import bound_on, extreme_column, is_order_free
from millstream.kernels.programs.source_values import (
    Body,
    Sink,
    Values,
    plain_type,
)
from millstream.kernels.programs.storage import load_cell, ring_of, values_of
from millstream.plan.aggregates import BESIDE, HALVES, KNOWN, NAMES
from millstream.plan.programs.facts import holds_one_row, uses_sqlcode
from millstream.plan.programs.nodes import (
    OLDEST,
    SQLCODE,
    AggregateValue,
    Range,
    Rows,
    aliases_of,
    column_names,
    queries_of,
)
from millstream.types import BOOLEAN, DOUBLE

Lookup = tuple[Expr, int | None]
"""A value that an index is asked for, and its bound if it has one."""


Span = tuple[Cells, str, str]
"""A table, and the variables of two places of its order."""


class Queries(Values):
    """Writes queries."""

    def rows(
        self, query: Rows, body: Body, sink: Sink, until: str | None = None, valued: bool = True, stop: str = "0",
        free: bool = False,
    ) -> None:  # fmt: skip
        """What `sink` writes, run for each row of a query, or until the variable `until` is true. Loops over a list
        that grows meanwhile end at the cell `stop`. With `free`, the order of the rows does not matter."""
        if query.group or query.distinct or query.order or query.limit is not None:
            raise NotCompilable("GROUP BY, DISTINCT, ORDER BY and LIMIT in a query")
        if query.is_aggregation:
            self._summarised(query, body, sink)
            return
        free = free or until is not None
        with self._joined(query.ranges, query.where, tuple(query.expressions()), body, until, stop, free):
            sink([self.value(column, body) for column in query.columns] if valued else [])

    def _joined(
        self, ranges: tuple[Range, ...], where: Expr | None, uses: Iterable[Expr], body: Body, until: str | None = None,
        stop: str = "0", free: bool = False,
    ) -> ExitStack:  # fmt: skip
        """A block that runs for each combination of rows, in any order if `free`; conditions are tested as soon as they
        can be."""
        stack = ExitStack()
        waiting = [] if where is None else list(conjuncts(where))
        used = set(column_names(uses))
        unbound = {range_.alias for range_ in ranges}
        self._test(waiting, unbound, body, stack)
        for range_ in ranges:
            lookup = self._lookup(range_, waiting, unbound, body) if stop == "0" else None
            span = None
            if lookup is None and stop == "0" and not self.is_register(range_.table, body):
                span = self._span(self._cells(range_.table, body), range_, waiting, unbound, body, stack)
            if span is None:
                stack.enter_context(self._each(range_, body, used, until, stop, lookup))
            else:
                self._each_of(span, range_, body, used, until, free, stack)
            unbound.discard(range_.alias)
            self._test(waiting, unbound, body, stack)
        return stack

    def _test(self, waiting: list[Expr], unbound: set[str], body: Body, stack: ExitStack) -> None:
        ready = [part for part in waiting if not aliases_of(part) & unbound]
        waiting[:] = [part for part in waiting if part not in ready]
        for part in sorted(ready, key=lambda part: next(queries_of(part), None) is not None):
            stack.enter_context(self.write.when(self.condition(part, body)))

    def _each(
        self, range_: Range, body: Body, used: set[str], until: str | None, stop: str, lookup: Lookup | None
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
                self.write(f"{place} = {cells.first}")
                stack.enter_context(self.write.block(f"while {place} < end{n}{going}:"))
            else:
                stack.enter_context(self.write.block(f"for {place} in range({cells.first}, end{n}):"))
            self.write(f"{at} = base{n} + ({place} & mask{n}) * {width}", *([f"{place} += 1"] if until else []))
        else:
            cell = self.write.fresh("cell")
            lane = 0
            if lookup is None:
                self.write(f"{cell} = head{n}")
            else:
                wanted, bound = lookup
                value, null = self.value(wanted, body)
                if cells.bound is not None:
                    there = "True" if bound is not None and bound <= cells.bound else f"abs({value}) < {cells.bound}"
                    stack.enter_context(self.write.when(and_(not_(null), there)))
                    self.write(f"{at} = ({value} + {cells.bound}) * {width}")
                    self._load(cells, at, f"{range_.alias}.", body, used)
                    return stack
                lane = cells.lanes["chained"]
                self.write(f"{cell} = 0")
                with self.write.when(not_(null)):
                    self.write(f"{cell} = heads{n}[bucket(at, {value}, len(heads{n}) - 1)]")
            stack.enter_context(self.write.block(f"while {cell} != 0{going}:"))
            # The loop steps on at once, so that what stands below may be under any conditions.
            following = f"c{n}[{at} + {lane}]"
            self.write(f"{at} = {cell} * {width}")
            self.write(f"{cell} = {following if stop == '0' else f'0 if {cell} == {stop} else {following}'}")
            if lookup is not None and "owner" in cells.lanes:
                # Other groups, and other values, may share the chain.
                stack.enter_context(self.write.block(f"if c{n}[{at} + {cells.lanes['owner']}] == at:"))
        self._load(cells, at, f"{range_.alias}.", body, used)
        return stack

    def _span(
        self, cells: Cells, range_: Range, waiting: list[Expr], unbound: set[str], body: Body, stack: ExitStack,
        always: bool = False,
    ) -> Span | None:  # fmt: skip
        """The places of the order between which the rows lie that can satisfy the conditions, if some of these tell, or
        `always`; what is written from here on runs only if there are rows."""
        if cells.order is None:
            return None
        name, n = cells.table.schema.fields[cells.order].name, cells.number
        found = [(part, bound_on(range_.alias, name, part)) for part in waiting if isinstance(part, Call)]
        bounds = [(part, bound) for part, bound in found if bound and not aliases_of(bound[1]) & unbound]
        if not bounds and not always:
            return None
        low, high = self.write.fresh("low"), self.write.fresh("high")
        # Where there is no row, nothing may go wrong with a value either.
        stack.enter_context(self.write.block(f"if first{n} != end{n}:"))
        self.write(f"{low} = first{n}", f"{high} = end{n}")
        for part, (fn, wanted) in bounds:
            kept = self.kept(wanted, body)
            mine = Column(cells.table.schema.fields[cells.order].type, f"{range_.alias}.{name}")
            waiting[waiting.index(part)] = Call(BOOLEAN, fn, (mine, kept))
            value, null = self.value(kept, body)
            place = f"position({ring_of(cells)}, {values_of(cells)}, {value}, {fn in ('>', '<=')})"
            with self.write.when(not_(null)):
                self.write(f"{low} = max({low}, {place})" if fn in (">", ">=") else f"{high} = min({high}, {place})")
            with self.write.when(null):
                self.write(f"{high} = first{n}")
        return cells, low, high

    def _each_of(
        self, span: Span, range_: Range, body: Body, used: set[str], until: str | None, free: bool, stack: ExitStack
    ) -> None:
        """Like `_each`, for the rows between two places of the order: in that order if `free`, and a row may be taken
        out of it; otherwise as they were inserted, which means all rows unless that is the same order."""
        cells, low, high = span
        n, going = cells.number, f" and not {until}" if until else ""
        at = self.write.fresh("at")
        body.names[f"cell of {range_.alias}"] = at
        ring = f"order{n}[base{n} + (%s & (room{n} - 1))]"
        if free:
            # Counted from the end: whichever side closes up, that tells the same rows.
            left, rest = self.write.fresh("left"), self.write.fresh("rest")
            self.write(f"{left} = end{n} - {low}", f"{rest} = end{n} - {high}")
            stack.enter_context(self.write.block(f"while {left} > {rest}{going}:"))
            self.write(f"{at} = {ring % f'(end{n} - {left})'} * {cells.width}", f"{left} -= 1")
        else:
            cell, last = self.write.fresh("cell"), self.write.fresh("last")
            self.write(f"{cell} = head{n}", f"{last} = 0")
            with self.write.block(f"if mixed{n} == 0:"):
                self.write(f"{cell} = {ring % low} if {low} < {high} else 0")
                self.write(f"{last} = {ring % high} if {low} < {high} and {high} < end{n} else 0")
            stack.enter_context(self.write.block(f"while {cell} != {last}{going}:"))
            self.write(f"{at} = {cell} * {cells.width}", f"{cell} = c{n}[{at}]")
        self._load(cells, at, f"{range_.alias}.", body, used)

    def _load(self, cells: Cells, at: str, prefix: str, body: Body, used: set[str] | None) -> None:
        variables = {}
        for i, field_ in enumerate(cells.table.schema):
            name = f"{prefix}{field_.name}"
            if used is None or name in used:
                variables[i] = body.names.setdefault(name, self.write.fresh("x"))
                if (cells.table.name, field_.name) in self.known and (prefix != OLDEST or cells.is_ring):
                    self.present.add(variables[i])
        load_cell(self.write, cells, at, variables)

    def _lookup(self, range_: Range, waiting: list[Expr], unbound: set[str], body: Body) -> Lookup | None:
        """The value by which an index finds the rows of a table that can satisfy the conditions, if there is one: it is
        computed once, and stands as a column in the condition that is still to be tested."""
        if self.is_register(range_.table, body):
            return None
        cells = self._cells(range_.table, body)
        if cells.index is None:
            return None
        name = cells.table.schema.fields[cells.index].name
        for place, part in enumerate(waiting):
            found = equality(range_.alias, part)
            if found is not None and found[0] == name and not aliases_of(found[1]) & unbound:
                value = self.kept(found[1], body)
                mine = Column(cells.table.schema.fields[cells.index].type, f"{range_.alias}.{name}")
                waiting[place] = Call(BOOLEAN, "=", (mine, value))
                return value, bound_of(found[1])
        return None

    def _summarised(self, query: Rows, body: Body, sink: Sink) -> None:
        outputs = [*query.columns, *([] if query.having is None else [query.having])]
        summaries = {str(part): part for expr in outputs for part in walk(expr) if isinstance(part, AggregateValue)}
        sole = query.columns[0] if len(query.columns) == 1 else None
        if isinstance(sole, AggregateValue) and sole.program is not None and query.having is None:
            self._program_rows(sole, query, body, sink)
            return
        accumulators = [_Accumulator(self, summary, body) for summary in summaries.values()]
        for accumulator in accumulators:
            accumulator.begin()
        if self._is_extreme(query, body):
            self._extremes(query, accumulators, body)
        else:
            uses, free = tuple(query.expressions()), is_order_free(query)
            with self._joined(query.ranges, query.where, uses, body, free=free):
                for accumulator in accumulators:
                    accumulator.add()
        for text, accumulator in zip(summaries, accumulators, strict=True):
            body.names[text] = accumulator.finish()
        with self.write.when("True" if query.having is None else self.condition(query.having, body)):
            sink([self.value(column, body) for column in query.columns])

    def _is_extreme(self, query: Rows, body: Body) -> bool:
        """Whether a query wants the least or greatest values of a column that the rows of its table are ordered by."""
        column = extreme_column(query)
        if column is None or self.is_register(query.ranges[0].table, body):
            return False
        cells = self._cells(query.ranges[0].table, body)
        if cells.order is None or cells.table.schema.fields[cells.order].name != column:
            return False
        # Rows that changed lie in any order among their equals, and the first one tells whether 0.0 or -0.0 is least.
        return cells.table.schema.fields[cells.order].type != DOUBLE or "moved" not in cells.lanes

    def _extremes(self, query: Rows, accumulators: list[_Accumulator], body: Body) -> None:
        (range_,), waiting = query.ranges, [] if query.where is None else list(conjuncts(query.where))
        cells = self._cells(range_.table, body)
        with ExitStack() as stack:
            self._test(waiting, {range_.alias}, body, stack)
            span = self._span(cells, range_, waiting, {range_.alias}, body, stack, always=True)
            assert span is not None
            _, low, high = span
            with self.write.block(f"if {low} < {high}:"):
                for accumulator in accumulators:
                    accumulator.take(cells, low, high)

    def _program_rows(self, summary: AggregateValue, query: Rows, body: Body, sink: Sink) -> None:
        """Another program over the rows of a query: all that it returns."""
        program = summary.program
        assert program is not None
        if program.is_itself:
            raise NotCompilable(f"{summary.fn} calls itself")
        if summary.distinct:
            raise NotCompilable(f"{summary} inside a statement")
        if program.window is not None or not all(holds_one_row(program, table.name) for table in program.tables):
            raise NotCompilable(f"{summary.fn} keeps more than one row per group")
        prefix = self.write.fresh("p")
        inner = Body(program, {}, prefix, sink)
        if uses_sqlcode(program):
            inner.sqlcode = f"{prefix}_code"
            inner.names[SQLCODE] = inner.sqlcode
            self.write(f"n_{inner.sqlcode} = False", f"v_{inner.sqlcode} = 0")
        for table in program.tables:
            for i, field_ in enumerate(table.schema):
                name = self.register(table.name, i, inner)
                self.write(f"v_{name} = {zero(plain_type(field_.type))}", f"n_{name} = True")
        for i, field_ in enumerate(program.parameters):
            inner.names[f":{field_.name}"] = f"{prefix}_a{i}"
            self.write(f"v_{prefix}_a{i} = {zero(plain_type(field_.type))}", f"n_{prefix}_a{i} = True")
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


class _Accumulator:
    """A built-in aggregate over the rows of a query, in variables."""

    def __init__(self, statements: Queries, summary: AggregateValue, body: Body) -> None:
        if summary.distinct or summary.program is not None or summary.fn not in (NAMES | HALVES | KNOWN):
            raise NotCompilable(f"{summary} inside a statement")
        self._s, self._summary, self._body = statements, summary, body
        self._name = statements.write.fresh("sum")
        names = (self._name, f"{self._name}_by")
        args = tuple(Argument(name, arg.type) for name, arg in zip(names, summary.args, strict=False))
        if any(is_code(arg.type) and not arg.type.is_coded for arg in args):
            raise NotCompilable(f"{summary} holds values of more than 64 bits")
        if args and args[-1].kind == "text" and summary.fn in ("min", "max", *BESIDE):
            raise NotCompilable(f"{summary} compares text")
        self._accumulator = Accumulator(summary.fn, args, summary.type)
        self._at = Place.local(f"{self._name}_")

    def begin(self) -> None:
        self._s.write(*self._accumulator.state.begin(self._at))

    def add(self) -> None:
        values: list[Given] = []
        for arg in self._summary.args:
            value, null = self._s.bound(arg, self._body)
            values.append((value, "True" if value.removeprefix("v_") in self._s.present else not_(null)))
        self._s.write(*entered(self._accumulator.state, self._at, *values))

    def take(self, cells: Cells, low: str, high: str) -> None:
        """The least or greatest value of the cells between two places of their order."""
        write, n, is_float = self._s.write, cells.number, self._summary.type == DOUBLE
        best, place = self._at.float("best") if is_float else self._at["best"], low
        array, cell = "f" if is_float else "c", f"order{n}[base{n} + (%s & (room{n} - 1))]"
        value = f"{array}{n}[{cell} * {cells.width} + {cells.ordered_lane}]"
        if self._summary.fn == "max":
            write(f"{best} = {value % f'({high} - 1)'}")
            place = f"position({ring_of(cells)}, {values_of(cells)}, {best}, False)"
        if self._summary.fn == "min" or is_float:
            # Of equal values the first that was inserted: 0.0 and -0.0 differ.
            write(f"{best} = {value % place}")
        write(f"{self._at['any']} = 1")

    def finish(self) -> str:
        write, name = self._s.write, self._name
        write(*self._accumulator.result(self._at, f"v_{name}", f"ok_{name}", "trouble[0] = OVERFLOW"))
        write(f"n_{name} = {'False' if self._summary.fn == 'count' else f'not ok_{name}'}")
        return name
