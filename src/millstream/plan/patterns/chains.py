"""Patterns that need no backtracking: at every moment a row can go to one place only, and is never given back.

Such a pattern is a chain of elements. An attempt stands in an element that has taken `count` rows, and does with the
next row:

- `count < most` and the condition is true: the row is taken;
- otherwise, if `count >= least`, the element is complete: its check is asked, and the same row goes on to the next
  element, which has taken none;
- otherwise the attempt fails.

An element is also complete as soon as it has taken `most` rows, and its check is asked then. The match is found when
the last element is complete. A row that comes too late, or the end of the rows, completes elements without being taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from millstream.expressions.nodes import Expr, columns_of, conjunction
from millstream.plan.patterns.expressions import (
    Check,
    Either,
    Excluded,
    Greed,
    Pattern,
    Repeat,
    Sequence,
    Variable,
    walk_pattern,
)
from millstream.plan.patterns.row_conditions import Views
from millstream.plan.patterns.search import TIMED_OUT, Reach, Search, spelled
from millstream.plan.proofs.implication import contradictory
from millstream.records import dataclass

LONGEST = 64
"""Patterns of more elements than this are no chains."""


@dataclass(frozen=True, slots=True)
class Element:
    """Between `least` (0 or 1) and `most` (None: without limit) rows labelled with one variable, as many as there are.

    Without `condition`, every row satisfies it. `check` is asked when the element is complete, with none of the rows
    behind it in view; `excluded` rows belong to the match, but not to what is told of all its rows.
    """

    variable: str
    least: int
    most: int | None
    condition: Expr | None = None
    check: Expr | None = None
    excluded: bool = False

    @property
    def is_single(self) -> bool:
        """Whether it takes one row, always."""
        return self.least == 1 == self.most

    def __str__(self) -> str:
        text = str(Variable(self.variable))
        if not self.is_single:
            text = str(Repeat(Variable(self.variable), self.least, self.most))
        return f"{{- {text} -}}" if self.excluded else text


@dataclass(frozen=True, slots=True)
class Chain:
    """Elements one after the other. A repetition of at least n rows stands there as n - 1 single elements and one."""

    elements: tuple[Element, ...]

    @property
    def is_nullable(self) -> bool:
        """Whether no row at all is a match, so that no attempt fails (checks aside)."""
        return all(element.least == 0 for element in self.elements)

    def ends_at(self, index: int) -> bool:
        """Whether the pattern may be complete without rows for the elements from this one on."""
        return all(element.least == 0 for element in self.elements[index:])

    def __str__(self) -> str:
        return " ".join(map(str, self.elements)) or "()"


@dataclass(frozen=True, slots=True)
class NoChain:
    """Why a pattern is not a chain."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True)
class _Part:
    element: Element
    greed: Greed


class _NotSo(Exception):
    pass


def chain_of(search: Search) -> Chain | NoChain:
    """The pattern of a search as a chain, or why it is none."""
    try:
        _require_backward(search)
        parts = list(_parts(search.pattern, dict(search.conditions), False))
        if len(parts) > LONGEST:
            raise _NotSo(f"it has more than {LONGEST} elements")
        return Chain(tuple(_settled(parts, Views(search))))
    except _NotSo as reason:
        return NoChain(str(reason))


def _require_backward(search: Search) -> None:
    """Conditions read nothing that is known only after the row under test."""
    for condition in conditions_of(search):
        for name in sorted(columns_of(condition)):
            value = search.named.get(name)
            if name == TIMED_OUT or (value is not None and value.final):
                told = name if value is None else spelled(value)
                raise _NotSo(f"a condition reads {told}, which is known only at the end")
            if isinstance(value, Reach) and value.shift > 0:
                raise _NotSo(f"a condition reads {value}, a row further on")


def conditions_of(search: Search) -> Iterator[Expr]:
    """The conditions of variables, and those inside the pattern."""
    yield from (condition for _, condition in search.conditions)
    yield from (part.condition for part in walk_pattern(search.pattern) if isinstance(part, Check))


def _parts(pattern: Pattern, conditions: dict[str, Expr], excluded: bool) -> Iterator[_Part]:
    match pattern:
        case Variable(name):
            yield _Part(Element(name, 1, 1, conditions.get(name), None, excluded), "possessive")
        case Sequence(items):
            yield from _of_sequence(items, conditions, excluded)
        case Either((only,)):
            yield from _parts(only, conditions, excluded)
        case Excluded(body):
            yield from _parts(body, conditions, True)
        case Repeat():
            yield from _of_repeat(pattern, conditions, excluded)
        case _:
            kind = "alternatives" if isinstance(pattern, Either) else f"{pattern}"
            raise _NotSo(f"it has {kind}")


def _of_sequence(items: tuple[Pattern, ...], conditions: dict[str, Expr], excluded: bool) -> Iterator[_Part]:
    done: list[_Part] = []
    for item in items:
        if not isinstance(item, Check):
            done.extend(_parts(item, conditions, excluded))
        elif not done:
            raise _NotSo("a check stands before the first row")
        else:
            last = done[-1].element
            check = item.condition if last.check is None else conjunction((last.check, item.condition))
            done[-1] = replace(done[-1], element=replace(last, check=check))
    yield from done


def _of_repeat(repeat: Repeat, conditions: dict[str, Expr], excluded: bool) -> Iterator[_Part]:
    body = list(_parts(repeat.body, conditions, excluded))
    if repeat.least == repeat.most:
        if len(body) * repeat.least > LONGEST:
            raise _NotSo(f"it has more than {LONGEST} elements")
        yield from body * repeat.least
        return
    if len(body) != 1 or not body[0].element.is_single or body[0].element.check is not None:
        raise _NotSo(f"({repeat}) repeats more than a variable")
    if repeat.least > LONGEST:
        raise _NotSo(f"it has more than {LONGEST} elements")
    yield from body * (repeat.least - 1)
    fewer = max(repeat.least - 1, 0)
    most = None if repeat.most is None else repeat.most - fewer
    yield _Part(replace(body[0].element, least=repeat.least - fewer, most=most), repeat.greed)


def _settled(parts: list[_Part], views: Views) -> Iterator[Element]:
    """The elements, if none of them ever has to give back a row or to leave one."""
    kept: list[Element] = []
    for part in reversed(parts):
        element = part.element
        if part.greed != "possessive" and element.least != element.most:
            if all(later.least == 0 for later in kept):
                # What follows asks for nothing: the most rows are the preferred ones, or the least.
                if element.check is not None or any(later.check is not None for later in kept):
                    raise _NotSo(f"a check may make {element} backtrack")
                if part.greed == "reluctant":
                    if element.least == 0:
                        continue
                    element = replace(element, most=element.least)
            else:
                _require_exclusive(element, kept, views)
        kept.insert(0, element)
    yield from kept


def _require_exclusive(element: Element, later: list[Element], views: Views) -> None:
    """A row that the element may take can go nowhere else."""
    before = element.variable if element.least else None
    for other in later:
        both = tuple(
            views.seen(one.condition, one.variable, before) for one in (element, other) if one.condition is not None
        )
        if not contradictory((*both, *views.givens(frozenset({0, -1})))):
            raise _NotSo(f"a row may be both {element.variable} and {other.variable}")
        if other.least:
            return
