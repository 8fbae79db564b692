"""Calls of aggregates written in SQL: which version runs, in which window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sqlglot import exp

from millstream import functions
from millstream.bind.context import Context
from millstream.bind.expressions import ExpressionBinder, call_of
from millstream.bind.programs import bind_program, describe_blocking
from millstream.errors import BindError
from millstream.kernels.programs.layout import returns_one_row
from millstream.plan import nodes as P
from millstream.plan.expr import Column, Expr, Literal
from millstream.plan.modes import Mode, Running, Sliding
from millstream.plan.program_product import leaves_window
from millstream.plan.programs import WINDOW, Insert, LocalTable, Program, Range, Rows, Summary
from millstream.schema import Field, Schema
from millstream.types import SqlType

ENDLESS = 2**62
"""The size of a window that nothing ever leaves."""


@dataclass(frozen=True)
class Slide:
    """SLIDE `every` rows, or µs."""

    unit: str
    every: int


@dataclass(frozen=True)
class Reach:
    """How far back a window reaches: a number of rows before the current one, or µs; None is all that came."""

    unit: str
    preceding: int | None


@dataclass(frozen=True)
class OwnCall:
    """A call of an aggregate written in SQL, by the columns of its arguments."""

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
    calls: dict[OwnCall, tuple[str, ...]] = field(default_factory=dict)
    places: dict[OwnCall, exp.Expr] = field(default_factory=dict)

    def is_own(self, node: exp.Expr) -> bool:
        """Whether a node calls an aggregate written in SQL."""
        if not isinstance(node, exp.Func):
            return False
        name = call_of(node)[0]
        return any(self.context.catalog.aggregate(name, window) is not None for window in (True, False))

    def over(
        self, node: exp.Func, scalar: ExpressionBinder, keys: tuple[str, ...], reach: Reach, slide: Slide | None,
        active: bool,
    ) -> list[tuple[str, Column]]:  # fmt: skip
        """The columns of `node` OVER a window."""
        name, args = self._arguments(node, scalar)
        base, window = self._version(name, False, args, node), self._version(name, True, args, node)
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
        call = OwnCall(keys, program, self._columns(program, args, node), mode, known_base)
        if slide is not None and not call.is_exact:
            call = self._suppressed(call, slide, node)
        return self._named(call, node)

    def running(self, node: exp.Func, scalar: ExpressionBinder, keys: tuple[str, ...]) -> list[tuple[str, Column]]:
        """The columns of `node` without a window."""
        name, args = self._arguments(node, scalar)
        program = self._version(name, False, args, node)
        if program is None:
            self.context.refuse(f"{name} needs a window", node, hint=f"{name}(…) OVER (ROWS 99 PRECEDING)")
        if program.is_blocking:
            self.context.refuse(
                f"{name} over a whole stream never ends",
                node,
                detail=describe_blocking(program),
                hint=f"give it a window: {name}(…) OVER (ROWS UNBOUNDED PRECEDING), or return rows in ITERATE",
            )
        return self._named(OwnCall(keys, program, self._columns(program, args, node), Running()), node)

    def build(self, plan: P.Node) -> P.Node:
        """The plan that computes the calls: those that give one row for each come first, since only the last may give
        more or fewer."""
        last = [call for call in self.calls if not call.is_exact]
        if len(last) > 1:
            names = " and ".join(call.program.name for call in last[:2])
            self.context.refuse(
                f"{names} in one SELECT",
                self.places[last[1]],
                detail="each may return no row or several, and then their rows do not belong together",
                hint="use a query for each",
            )
        exact = [call for call in self.calls if call.is_exact]
        for call in sorted(exact, key=_Neighbours(exact).place) + last:
            plan = P.Aggregate(plan, call.keys, call.program, call.args, call.mode, self.calls[call], call.base)
        return plan

    # -- parts -----------------------------------------------------------------------------------------------------

    def _arguments(self, node: exp.Func, scalar: ExpressionBinder) -> tuple[str, tuple[Expr, ...]]:
        name, arguments = call_of(node)
        for argument in arguments:
            if isinstance(argument, exp.Star | exp.Distinct):
                self.context.fail(f"{name} takes values", argument)
        return name, tuple(scalar.bind(argument) for argument in arguments)

    def _version(self, name: str, window: bool, args: tuple[Expr, ...], node: exp.Func) -> Program | None:
        definition = self.context.catalog.aggregate(name, window)
        if definition is None:
            return None
        with self.context.blaming(node):
            return bind_program(definition, tuple(arg.type for arg in args), self.context)

    def _columns(self, program: Program, args: tuple[Expr, ...], node: exp.Func) -> tuple[str, ...]:
        with self.context.blaming(node):
            given = zip(args, program.parameters, strict=True)
            return tuple(self.column(as_argument(arg, field)) for arg, field in given)

    def _named(self, call: OwnCall, node: exp.Func) -> list[tuple[str, Column]]:
        self.places.setdefault(call, node)
        fields = call.program.result.fields
        number = len(self.calls) + 1
        names = self.calls.setdefault(call, tuple(f"$a{number}.{field.name}" for field in fields))
        return [(field.name, Column(field.type, name)) for field, name in zip(fields, names, strict=True)]

    def _suppressed(self, call: OwnCall, slide: Slide, node: exp.Func) -> OwnCall:
        """A call whose own rows are kept only at tuples that yield."""
        if isinstance(call.mode, Sliding) and call.mode.unit == slide.unit and not call.mode.active:
            return replace(call, mode=replace(call.mode, every=slide.every))
        return self.context.refuse(
            f"SLIDE with {call.program.name}, which may return no row or several",
            node,
            detail="over all rows that came, it is given only if each row returns exactly one",
            hint="give it a window: ROWS n PRECEDING or RANGE n unit PRECEDING",
        )


class _Neighbours:
    """An order of calls in which those that can become one stand side by side: over windows of the same rows, above all
    over the same window, apart from those that delete from it."""

    def __init__(self, calls: list[OwnCall]) -> None:
        self._rows = list(dict.fromkeys(map(self._same_rows, calls)))
        self._modes = list(dict.fromkeys(call.mode for call in calls))

    def place(self, call: OwnCall) -> tuple[int, bool, int]:
        return self._rows.index(self._same_rows(call)), not leaves_window(call.program), self._modes.index(call.mode)

    def _same_rows(self, call: OwnCall) -> tuple[tuple[str, ...], object]:
        return call.keys, call.mode.unit if isinstance(call.mode, Sliding) else call.mode


def _types(program: Program) -> tuple[list[SqlType], list[SqlType]]:
    """What a program takes and gives: one version of an aggregate stands for another only if these are the same."""
    return [field.type for field in program.parameters], [field.type for field in program.result]


def as_argument(arg: Expr, parameter: Field) -> Expr:
    """An argument as a value of its parameter's type: numbers become other numbers, text does not become one."""
    if arg.type.is_text and not parameter.type.is_text and not isinstance(arg, Literal):
        raise BindError(
            f"{parameter.name} is {parameter.type}, and this is {arg.type}", hint=f"CAST(… AS {parameter.type})"
        )
    return functions.cast(arg, parameter.type)


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
        if not self._own.is_own(node):
            return super().bind(node)
        columns = self.several(node)
        assert columns is not None
        if len(columns) != 1:
            self.context.fail("this aggregate has several results", node, hint="select it by itself")
        return columns[0][1]

    def several(self, node: exp.Expr) -> list[tuple[str, Expr]] | None:
        if not isinstance(node, exp.Func) or not self._own.is_own(node):
            return self._plain.several(node)
        return [*self._own.running(node, self._scalar, self._keys)]


def calls_own(node: exp.Expr, own: OwnCalls) -> bool:
    """Whether an expression calls an aggregate written in SQL without a window."""
    if isinstance(node, exp.Window | exp.Query):
        return False
    return own.is_own(node) or any(calls_own(child, own) for child in node.iter_expressions())


def naive_window(base: Program) -> Program:
    """The window version of an aggregate that has none: it is computed anew over `inwindow` for each tuple."""
    fields = tuple(Field(f"w{i}", parameter.type) for i, parameter in enumerate(base.parameters))
    table = LocalTable(WINDOW, Schema(fields))
    args = tuple(Column(field.type, f"{WINDOW}.{field.name}") for field in fields)
    whole = Summary(base.result.fields[0].type, base.name, args, program=base)
    returned = (Insert(None, (Rows((whole,), (Range(WINDOW, WINDOW),)),)),)
    return Program(base.name, base.parameters, base.result, (), table, returned, returned, algebraic=base.algebraic)
