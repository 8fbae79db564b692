"""Row patterns: regular expressions over the variables that rows may have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal as OneOf

from millstream.expressions.nodes import Expr
from millstream.records import dataclass

Greed = OneOf["greedy", "reluctant", "possessive"]


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression over variables."""

    def parts(self) -> tuple[Pattern, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Variable(Pattern):
    """One row that satisfies the variable's condition."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Sequence(Pattern):
    """One after the other; without parts, no row at all."""

    items: tuple[Pattern, ...] = ()

    def parts(self) -> tuple[Pattern, ...]:
        return self.items

    def __str__(self) -> str:
        return " ".join(f"({part})" if isinstance(part, Either) else str(part) for part in self.items) or "()"


@dataclass(frozen=True, slots=True)
class Either(Pattern):
    """One of these, the first that leads to a match."""

    options: tuple[Pattern, ...]

    def parts(self) -> tuple[Pattern, ...]:
        return self.options

    def __str__(self) -> str:
        return " | ".join(map(str, self.options))


@dataclass(frozen=True, slots=True)
class Permute(Pattern):
    """All of these in any order: the alternatives of all orders, those that are closer to the written one first."""

    items: tuple[Pattern, ...]

    def parts(self) -> tuple[Pattern, ...]:
        return self.items

    def __str__(self) -> str:
        return f"PERMUTE({', '.join(map(str, self.items))})"


@dataclass(frozen=True, slots=True)
class Repeat(Pattern):
    """As often as between `least` and `most` (None: without limit). Behind `least`, one without a row is the last."""

    body: Pattern
    least: int
    most: int | None
    greed: Greed = "greedy"

    def __post_init__(self) -> None:
        if self.least < 0 or (self.most is not None and (self.most < self.least or self.most == 0)):
            raise ValueError(f"a repetition of {self.least} to {self.most}")

    def parts(self) -> tuple[Pattern, ...]:
        return (self.body,)

    def __str__(self) -> str:
        short = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((self.least, self.most))
        if short is None:
            most = "" if self.most is None else self.most
            short = f"{{{self.least}}}" if self.least == self.most else f"{{{self.least},{most}}}"
        inner = str(self.body) if isinstance(self.body, Variable | Permute) else f"({self.body})"
        return inner + short + {"greedy": "", "reluctant": "?", "possessive": "+"}[self.greed]


@dataclass(frozen=True, slots=True)
class Excluded(Pattern):
    """Rows that belong to the match, but not to what ALL ROWS PER MATCH gives."""

    body: Pattern

    def parts(self) -> tuple[Pattern, ...]:
        return (self.body,)

    def __str__(self) -> str:
        return f"{{- {self.body} -}}"


@dataclass(frozen=True, slots=True)
class Edge(Pattern):
    """No row, but a place: before the first row of the partition, or behind its last."""

    end: bool

    def __str__(self) -> str:
        return "$" if self.end else "^"


@dataclass(frozen=True, slots=True)
class Check(Pattern):
    """No row, but a condition on what has been matched so far, asked when the pattern gets here."""

    condition: Expr

    def __str__(self) -> str:
        return f"[{self.condition}]"


def walk_pattern(pattern: Pattern) -> Iterator[Pattern]:
    """The pattern and all its parts, outermost first."""
    yield pattern
    for part in pattern.parts():
        yield from walk_pattern(part)


def changed_checks(pattern: Pattern, change: Callable[[Expr], Expr]) -> Pattern:
    """The pattern with other conditions in its checks."""
    match pattern:
        case Check(condition=condition):
            return Check(change(condition))
        case Sequence(items=items):
            return Sequence(tuple(changed_checks(item, change) for item in items))
        case Either(options=options):
            return Either(tuple(changed_checks(option, change) for option in options))
        case Permute(items=items):
            return Permute(tuple(changed_checks(item, change) for item in items))
        case Repeat(body=body) | Excluded(body=body):
            return replace(pattern, body=changed_checks(body, change))
    return pattern


def least_rows(pattern: Pattern) -> int:
    """How many rows a match has at least."""
    match pattern:
        case Variable():
            return 1
        case Either(options=options):
            return min(map(least_rows, options))
        case Repeat(body=body, least=least):
            return least * least_rows(body)
    return sum(map(least_rows, pattern.parts()))


def rows_before(pattern: Pattern, before: int = 0) -> Iterator[tuple[Variable | Check, int]]:
    """The variables and checks of a pattern, each with how many rows come before it at least."""
    if isinstance(pattern, Variable | Check):
        yield pattern, before
    for part in pattern.parts():
        yield from rows_before(part, before)
        if isinstance(pattern, Sequence):
            before += least_rows(part)
