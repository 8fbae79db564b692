"""Calls of aggregates written in SQL: which version runs, in which window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace

from sqlglot import exp

from millstream.bind.aggregates.calls import WrittenCall, aggregate_call, as_arguments
from millstream.bind.aggregates.chosen_rows import bind_own
from millstream.bind.context import Context
from millstream.bind.expressions import ExpressionBinder
from millstream.bind.programs import describe_blocking
from millstream.catalog import AggregateDef
from millstream.expressions.nodes import Column, Expr
from millstream.plan import nodes as P
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.programs.facts import returns_one_row
from millstream.plan.programs.modes import Mode, Running, Sliding
from millstream.plan.programs.nodes import WINDOW, Insert, LocalTable, Program, Range, Rows
from millstream.plan.programs.product import leaves_window
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import SqlType

ENDLESS = 2**62
"""The size of a window that nothing ever leaves."""


@dataclass(frozen=True)
class WindowSlide:
    """SLIDE `every` rows, or µs."""

    unit: str
    every: int


@dataclass(frozen=True)
class WindowReach:
    """How far back a window reaches: a number of rows before the current one, or µs; None is all that came."""

    unit: str
    preceding: int | None


@dataclass(frozen=True)
class PendingAggregate:
    """An `Aggregate` node before the rows below it are known: other calls may come between."""

    keys: tuple[str, ...]
    program: Program
    args: tuple[str, ...]
    mode: Mode
    base: Program | None = None

    @property
    def is_exact(self) -> bool:
        """Whether each row gives exactly one."""
        return returns_one_row(self.program, self.mode)


@dataclass
class OwnCalls:
    """The calls of one SELECT; `column` gives the name of a column that holds an expression."""

    context: Context
    column: Callable[[Expr], str]
    calls: dict[PendingAggregate, tuple[str, ...]] = field(default_factory=dict)
    places: dict[PendingAggregate, exp.Expr] = field(default_factory=dict)

    def own(self, node: exp.Expr) -> WrittenCall | None:
        """The call of an aggregate written in SQL; None if a node is none."""
        call = aggregate_call(node, self.context, over=True)
        return call if call is not None and call.is_own else None

    def over(
        self, call: WrittenCall, scalar: ExpressionBinder, keys: tuple[str, ...], reach: WindowReach,
        slide: WindowSlide | None, active: bool,
    ) -> list[tuple[str, Column]]:  # fmt: skip
        """The columns of a call OVER a window."""
        node = call.node
        own = bind_own(call, scalar, window=True)
        base, window = own.base, own.window
        known = base or window
        assert known is not None
        if active and (window is None or not window.expire or reach.unit != "range" or reach.preceding is None):
            expires = window is not None and bool(window.expire)
            self.context.refuse(
                "ACTIVE EXPIRATION needs a RANGE window and an aggregate with EXPIRE",
                node,
                hint="write RANGE … PRECEDING" if expires else "without EXPIRE nothing happens when a row expires",
            )
        program, mode = known, Running(total=known.is_blocking)
        if reach.preceding is None and base is None:
            program, mode = known, Sliding("rows", ENDLESS)  # type: ignore[assignment]
        elif reach.preceding is not None:
            size = reach.preceding + (1 if reach.unit == "rows" else 0)
            program = window or naive_window(known)
            mode = Sliding("rows" if reach.unit == "rows" else "range", size, None, active)  # type: ignore[assignment]
        known_base = base if base is not None and _types(base) == _types(program) else None
        bound = PendingAggregate(keys, program, self._columns(program, own.args, node), mode, known_base)
        if slide is not None and not bound.is_exact:
            bound = self._suppressed(bound, slide, node)
        return self._named(bound, call)

    def running(self, call: WrittenCall, scalar: ExpressionBinder, keys: tuple[str, ...]) -> list[tuple[str, Column]]:
        """The columns of a call without a window."""
        node, name = call.node, call.name
        own = bind_own(call, scalar)
        program = own.base
        if program is None:
            self.context.refuse(f"{name} needs a window", node, hint=f"{name}(…) OVER (ROWS 99 PRECEDING)")
        if program.is_blocking:
            is_own = self.context.catalog.has(call.fn, (AggregateDef,))
            self.context.refuse(
                f"{name} over a whole stream never ends",
                node,
                detail=describe_blocking(program) if is_own else "its result comes after the last row",
                hint=f"give it a window: {name}(…) OVER (ROWS UNBOUNDED PRECEDING), or "
                + ("return rows in ITERATE" if is_own else "FROM TUMBLE(…) GROUP BY window_end"),
            )
        return self._named(PendingAggregate(keys, program, self._columns(program, own.args, node), Running()), call)

    def build(self, plan: P.Node) -> P.Node:
        """The plan that computes the calls: those that give one row for each come first, since only the last may give
        more or fewer."""
        last = [call for call in self.calls if not call.is_exact]
        if len(last) > 1:
            names = " and ".join(call.program.name for call in last[:2])
            self.context.refuse(
                f"{names} in one SELECT",
                self.places[last[1]],
                detail="each may return no row or several, so their rows cannot be paired",
                hint="use one query for each",
            )
        exact = [call for call in self.calls if call.is_exact]
        for call in sorted(exact, key=_Neighbours(exact).place) + last:
            plan = P.Aggregate(plan, call.keys, call.program, call.args, call.mode, self.calls[call], call.base)
        return plan

    # -- parts -----------------------------------------------------------------------------------------------------

    def _columns(self, program: Program, args: tuple[Expr, ...], node: exp.Expr) -> tuple[str, ...]:
        return tuple(map(self.column, as_arguments(args, program.parameters, node, self.context)))

    def _named(self, call: PendingAggregate, written: WrittenCall) -> list[tuple[str, Column]]:
        self.places.setdefault(call, written.node)
        fields = call.program.result.fields
        number = len(self.calls) + 1
        names = self.calls.setdefault(call, tuple(f"$a{number}.{field.name}" for field in fields))
        columns = [(field.name, Column(field.type, name)) for field, name in zip(fields, names, strict=True)]
        is_spelled_otherwise = written.name != written.fn and len(columns) == 1
        return [(written.name, columns[0][1])] if is_spelled_otherwise else columns

    def _suppressed(self, call: PendingAggregate, slide: WindowSlide, node: exp.Expr) -> PendingAggregate:
        """A call whose own rows are kept only at tuples that yield."""
        if isinstance(call.mode, Sliding) and call.mode.unit == slide.unit and not call.mode.active:
            return replace(call, mode=replace(call.mode, every=slide.every))
        return self.context.refuse(
            f"SLIDE with {call.program.name}, which may return no row or several",
            node,
            detail="over all rows so far, SLIDE needs exactly one result per row",
            hint="give it a window: ROWS n PRECEDING or RANGE n unit PRECEDING",
        )


class _Neighbours:
    """An order of calls in which those that can become one stand side by side: over windows of the same rows, above all
    over the same window, apart from those that delete from it."""

    def __init__(self, calls: list[PendingAggregate]) -> None:
        self._rows = list(dict.fromkeys(map(self._same_rows, calls)))
        self._modes = list(dict.fromkeys(call.mode for call in calls))

    def place(self, call: PendingAggregate) -> tuple[int, bool, int]:
        return self._rows.index(self._same_rows(call)), not leaves_window(call.program), self._modes.index(call.mode)

    def _same_rows(self, call: PendingAggregate) -> tuple[tuple[str, ...], object]:
        return call.keys, call.mode.unit if isinstance(call.mode, Sliding) else call.mode


def _types(program: Program) -> tuple[list[SqlType], list[SqlType]]:
    """What a program takes and gives: one version of an aggregate stands for another only if these are the same."""
    return [field.type for field in program.parameters], [field.type for field in program.result]


class RunningBinder(ExpressionBinder):
    """Expressions of a SELECT that calls aggregates written in SQL without a window, one group for each key."""

    def __init__(self, plain: ExpressionBinder, own: OwnCalls, group: exp.Group | None) -> None:
        super().__init__(plain.context, plain.scope, plain.window)
        self._plain = plain
        self._own = own
        self._scalar = ExpressionBinder(plain.context, plain.scope)
        keys = [] if group is None else group.expressions
        self._keys = tuple(own.column(self._scalar.bind(key)) for key in keys)

    def bind(self, node: exp.Expr) -> Expr:
        if self._own.own(node) is None:
            return super().bind(node)
        columns = self.several(node)
        assert columns is not None
        if len(columns) != 1:
            self.context.fail("this aggregate has several results", node, hint="select it by itself")
        return columns[0][1]

    def several(self, node: exp.Expr) -> list[tuple[str, Expr]] | None:
        call = self._own.own(node)
        return self._plain.several(node) if call is None else [*self._own.running(call, self._scalar, self._keys)]


def calls_own(node: exp.Expr, own: OwnCalls) -> bool:
    """Whether an expression calls an aggregate written in SQL without a window."""
    if isinstance(node, exp.Window | exp.Query):
        return False
    return own.own(node) is not None or any(calls_own(child, own) for child in node.iter_expressions())


def naive_window(base: Program) -> Program:
    """The window version of an aggregate that has none: it is computed anew over `inwindow` for each tuple."""
    fields = tuple(Field(f"w{i}", parameter.type) for i, parameter in enumerate(base.parameters))
    table = LocalTable(WINDOW, Schema(fields))
    args = tuple(Column(field.type, f"{WINDOW}.{field.name}") for field in fields)
    whole = AggregateCall.of_program(base, args).value
    returned = (Insert(None, (Rows((whole,), (Range(WINDOW, WINDOW),)),)),)
    return Program(base.name, base.parameters, base.result, (), table, returned, returned, algebraic=base.algebraic)
