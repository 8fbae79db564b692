"""Short ways to write searches for row patterns, and to ask the reference for its answer."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from typing import Any

from millstream.expressions.nodes import Column, Expr, Literal
from millstream.kernels.batch import FOREVER
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.patterns.expressions import Pattern, Repeat, Sequence, Variable, walk_pattern
from millstream.plan.patterns.search import CLASSIFIER, MATCH_NUMBER, Given, Reach, Search, Skip
from millstream.plan.programs.builder import call
from millstream.types import BIGINT, VARCHAR
from tests.support.patterns import told

A, B, C, D = map(Variable, "ABCD")
HERE = Reach("here", "x", BIGINT)
BEFORE = Reach("before", "x", BIGINT, shift=-1)
AFTER = Reach("after", "x", BIGINT, shift=1)
LABEL = Reach("label", CLASSIFIER, VARCHAR)
N = AggregateCall.matched("n", "count", (), BIGINT)


def seq(*parts: Pattern) -> Pattern:
    return Sequence(parts)


def star(part: Pattern) -> Repeat:
    return Repeat(part, 0, None)


def plus(part: Pattern) -> Repeat:
    return Repeat(part, 1, None)


def value(of: Reach | AggregateCall[Expr]) -> Expr:
    return Column(of.type, of.name)


def here(fn: str, other: Reach | AggregateCall[Expr] | int) -> Expr:
    return call(fn, value(HERE), Literal(BIGINT, other) if isinstance(other, int) else value(other))


FALLS, RISES, SAME = here("<", BEFORE), here(">", BEFORE), here("=", BEFORE)
FALLS_OR_SAME = here("<=", BEFORE)


def search(
    pattern: Pattern,
    columns: SequenceOf[Reach | AggregateCall[Expr] | str] = (MATCH_NUMBER, HERE, LABEL),
    more: SequenceOf[Reach | AggregateCall[Expr]] = (),
    *,
    rows: str | Given = "all",
    skip: Skip = Skip(),
    within: int | None = None,
    timeouts: bool = False,
    **conditions: Expr,
) -> Search:
    values = {
        one.name: one for one in (HERE, BEFORE, AFTER, LABEL, N, *columns, *more) if not isinstance(one, str)
    }.values()
    present = {part.name for part in walk_pattern(pattern) if isinstance(part, Variable)}
    wanted = tuple((name, condition) for name, condition in conditions.items() if name in present)
    return Search(
        (), pattern, wanted, tuple(one for one in values if isinstance(one, Reach)),
        tuple(one for one in values if isinstance(one, AggregateCall)),
        tuple(one if isinstance(one, str) else one.name for one in columns),
        rows if isinstance(rows, Given) else Given(rows),  # type: ignore[arg-type]
        skip, within, timeouts, BIGINT,
    )  # fmt: skip


def answer(searched: Search, *numbers: int, times: SequenceOf[int] | None = None, upto: int = FOREVER) -> list[Any]:
    """What comes out of rows with these numbers at the times 1, 2, …: the row's time if it is told, and the values."""
    stamps = list(times or range(1, len(numbers) + 1))
    rows = [{"x": number} for number in numbers]
    return [
        one.values if one.row is None else (stamps[one.row], *one.values) for one in told(searched, rows, stamps, upto)
    ]
