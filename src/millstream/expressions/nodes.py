"""Typed scalar expressions: what the binder makes of SQL, and every evaluator starts from.

Operators are calls by their symbol (`=`, `+`, `and`, `is_null`, …); `functions.py` knows each by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import field, replace

from millstream.records import dataclass
from millstream.types import SqlType


@dataclass(frozen=True, slots=True)
class Expr:
    """A scalar expression; it knows its type and prints itself as SQL."""

    type: SqlType

    def children(self) -> tuple[Expr, ...]:
        return ()

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return self


@dataclass(frozen=True, slots=True)
class Column(Expr):
    """A column of the input, by its name there. Where that is the engine's own, `said` is what a user wrote for it."""

    name: str
    said: str | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Literal(Expr):
    """A constant: None, bool, int, float, Decimal, str, bytes, or int µs for times, µs durations and intervals.

    TIMESTAMP, TIMESTAMPTZ: µs since the epoch; DATE: days since the epoch; TIME: µs since midnight; INTERVAL: µs.
    """

    value: object

    def __str__(self) -> str:
        if self.value is None:
            return "NULL"
        if isinstance(self.value, str):
            return "'" + self.value.replace("'", "''") + "'"
        if isinstance(self.value, bool):
            return str(self.value).upper()
        if self.type.is_temporal or self.type.name == "INTERVAL":
            try:
                return f"{self.type.name} {_readable(self)}"
            except (OverflowError, ValueError):
                # outside the years that Python's calendar knows
                return f"{self.type.name} {self.value}"
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Parameter(Expr):
    """A constant that each query of a set has for itself: the value of this column of its row of constants."""

    name: str

    def __str__(self) -> str:
        return f"${self.name}"


@dataclass(frozen=True, slots=True)
class Call(Expr):
    """A function or operator applied to arguments."""

    fn: str
    args: tuple[Expr, ...]

    def children(self) -> tuple[Expr, ...]:
        return self.args

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return replace(self, args=children)

    def __str__(self) -> str:
        args = [str(arg) for arg in self.args]
        if self.fn in INFIX and len(args) == 2:
            return f"({args[0]} {INFIX[self.fn]} {args[1]})"
        if self.fn == "not":
            return f"(NOT {args[0]})"
        if self.fn == "neg":
            return f"(-{args[0]})"
        if self.fn == "is_null":
            return f"({args[0]} IS NULL)"
        if self.fn == "in":
            return f"({args[0]} IN ({', '.join(args[1:])}))"
        return f"{self.fn}({', '.join(args)})"


@dataclass(frozen=True, slots=True)
class Cast(Expr):
    """A conversion; with `safe`, a value that does not convert becomes NULL instead of an error."""

    arg: Expr
    safe: bool = False

    def children(self) -> tuple[Expr, ...]:
        return (self.arg,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return replace(self, arg=children[0])

    def __str__(self) -> str:
        return f"{'TRY_' if self.safe else ''}CAST({self.arg} AS {self.type})"


@dataclass(frozen=True, slots=True)
class Case(Expr):
    """CASE WHEN … THEN … [ELSE …] END; a missing ELSE is NULL."""

    whens: tuple[tuple[Expr, Expr], ...]
    default: Expr

    def children(self) -> tuple[Expr, ...]:
        return (*(part for when in self.whens for part in when), self.default)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        pairs = tuple(zip(children[:-1:2], children[1:-1:2], strict=True))
        return replace(self, whens=pairs, default=children[-1])

    def __str__(self) -> str:
        arms = " ".join(f"WHEN {when} THEN {then}" for when, then in self.whens)
        return f"CASE {arms} ELSE {self.default} END"


INFIX = {
    "=": "=", "<>": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "and": "AND", "or": "OR",
    "+": "+", "-": "-", "*": "*", "/": "/", "//": "//", "%": "%", "||": "||",
    "like": "LIKE", "ilike": "ILIKE", "is_distinct": "IS DISTINCT FROM",
}  # fmt: skip


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and all its parts, outermost first."""
    yield expr
    for child in expr.children():
        yield from walk(child)


def columns_of(expr: Expr) -> frozenset[str]:
    """The names of the columns an expression reads."""
    return frozenset(part.name for part in walk(expr) if isinstance(part, Column))


def transform(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Rebuild an expression bottom-up, passing every part through `change`."""
    children = expr.children()
    if children:
        changed = tuple(transform(child, change) for child in children)
        if changed != children:
            expr = expr.with_children(changed)
    return change(expr)


def substitute(expr: Expr, columns: dict[str, Expr]) -> Expr:
    """The expression with columns replaced by what `columns` says they stand for."""
    return transform(expr, lambda part: columns.get(part.name, part) if isinstance(part, Column) else part)


_IN_BODIES = re.compile(r"^:|#\d+(?=\.)")
"""what only programs have in names: the mark of a parameter, and the number of an alias"""


def told(expr: Expr) -> str:
    """The expression as errors show it: in the words of whoever wrote it.

    >>> from millstream.types import BIGINT, INTEGER
    >>> told(Cast(INTEGER, Column(BIGINT, "$s1", "sum(v)")))
    'CAST(sum(v) AS INTEGER)'
    """
    return str(transform(expr, _as_said))


def _as_said(part: Expr) -> Expr:
    match part:
        case Column(type=type_, name=name, said=said):
            return Column(type_, _IN_BODIES.sub("", name) if said is None else said)
        case Call(fn="$total" | "$sound" | "$apart", args=(first, *_)):
            return first
    return part


def conjuncts(predicate: Expr) -> tuple[Expr, ...]:
    """The parts of a predicate joined by AND."""
    if isinstance(predicate, Call) and predicate.fn == "and":
        return tuple(part for arg in predicate.args for part in conjuncts(arg))
    return (predicate,)


def conjunction(predicates: tuple[Expr, ...]) -> Expr:
    """One predicate that holds where all of `predicates` (at least one) hold."""
    result, *rest = predicates
    for part in rest:
        result = Call(result.type, "and", (result, part))
    return result


def _readable(literal: Literal) -> str:
    from datetime import UTC, date, datetime, time, timedelta

    value = literal.value
    assert isinstance(value, int)
    moment = datetime(1970, 1, 1, tzinfo=UTC)
    match literal.type.name:
        case "DATE":
            return f"'{date.fromordinal(719163 + value)}'"
        case "TIME":
            return f"'{(datetime.combine(date.min, time()) + timedelta(microseconds=value)).time()}'"
        case "INTERVAL":
            return f"'{timedelta(microseconds=value)}'"
        case "TIMESTAMP":
            return f"'{(moment + timedelta(microseconds=value)).replace(tzinfo=None)}'"
    return f"'{moment + timedelta(microseconds=value)}'"


NESTED = frozenset({"nested_code", "nested_value", "nested_order"})
"""between nested values and bytes: never an error"""
CATCHING = frozenset({"try", "$failed", "$passing"})
"""functions of expressions that may fail, which do not fail themselves"""


def may_fail(expr: Expr) -> bool:
    """Whether evaluating on a row could raise: such an expression stays behind the filters that guard it."""
    if isinstance(expr, Call) and expr.fn in CATCHING:
        return False
    if isinstance(expr, Call) and expr.fn == "$apart":
        return True
    if isinstance(expr, Cast) and not expr.safe and expr.arg.type.is_text:
        return True
    return any(map(may_fail, expr.children()))
