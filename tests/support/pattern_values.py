"""The values of a match, each computed from its definition by walking the labels of its rows."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from millstream.expressions.nodes import Expr
from millstream.kernels.batch import FOREVER
from millstream.kernels.programs.engine import Running
from millstream.kernels.source.objects import compile_objects
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.patterns.search import CLASSIFIER, MATCH_NUMBER, TIMED_OUT, Reach, Search
from tests.support.program_reference import run_reference

Row = Mapping[str, Any]
"""The values of a row by column, as `expressions.nodes.Literal` holds them."""

Labels = tuple[tuple[str, bool], ...]
"""The variable of each row of a match, and whether the row is excluded."""


class OpenError(Exception):
    """What was asked depends on rows that have not come."""


@dataclass(frozen=True)
class Attempt:
    """A search that begins at a row: the rows from `low` to before `high` are all that it sees; its match would have
    this number."""

    start: int
    low: int
    high: int
    number: int | None


class MatchValues:
    """What conditions and measures read, of the rows that have come and none more before `upto`."""

    def __init__(self, search: Search, rows: Sequence[Row], upto: int) -> None:
        self._search, self._rows, self._upto = search, rows, upto

    def holds(self, condition: Expr, attempt: Attempt, labels: Labels) -> bool:
        """Whether a condition is true where the match has come to."""
        value = _compiled(condition)([lambda name: self.value(name, attempt, labels, len(labels) - 1)])
        return value is True

    def value(self, name: str, attempt: Attempt, labels: Labels, at: int, timed_out: bool = False) -> Any:
        """A reach, a summary, or what has a fixed name, as the row at `at` of the match sees it."""
        if name == MATCH_NUMBER:
            return attempt.number
        if name == TIMED_OUT:
            return timed_out
        wanted = self._search.named[name]
        seen = labels if wanted.final else labels[: at + 1]
        places = [
            attempt.start + i
            for i, (variable, _) in enumerate(seen)
            if wanted.variables is None or variable in wanted.variables
        ]
        if isinstance(wanted, Reach):
            return self._reached(wanted, places, attempt, labels)
        return self._summed(wanted, places, attempt, labels)

    def _reached(self, reach: Reach, places: list[int], attempt: Attempt, labels: Labels) -> Any:
        if reach.offset >= len(places):
            return None
        place = places[reach.offset if reach.first else -1 - reach.offset] + reach.shift
        if reach.column == CLASSIFIER:
            own = place - attempt.start
            return labels[own][0] if 0 <= own < len(labels) else None
        if not attempt.low <= place < attempt.high:
            return None
        if place >= len(self._rows):
            if self._upto < FOREVER:
                raise OpenError
            return None
        return self._rows[place][reach.column]

    def _summed(self, summary: AggregateCall[Expr], places: list[int], attempt: Attempt, labels: Labels) -> Any:
        args = [_compiled(arg) for arg in summary.args]

        def values(place: int) -> tuple[Any, ...]:
            own = {CLASSIFIER: labels[place - attempt.start][0], MATCH_NUMBER: attempt.number}
            return tuple(arg([lambda name: own[name] if name in own else self._rows[place][name]]) for arg in args)

        tuples = [values(place) for place in places]
        if summary.distinct:
            tuples = list(dict.fromkeys(tuples))
        if summary.program is not None:
            mode = Running(bool(summary.program.terminate))
            given = run_reference(summary.program, mode, [(0, 0, one) for one in tuples])
            return given[-1][2][0] if given else None
        return _AGGREGATES[summary.fn](tuples)


@lru_cache(1024)
def _compiled(expr: Expr) -> Callable[[list[Callable[[str], Any]]], Any]:
    """An expression whose columns are looked up by the function in the list."""
    return compile_objects(expr, lambda module, part: f"row[0]({module.constant(part.name)})")


def _of_known(compute: Callable[[list[Any]], Any]) -> Callable[[list[tuple[Any, ...]]], Any]:
    """An aggregate over the values that are not NULL, NULL if there is none."""

    def run(tuples: list[tuple[Any, ...]]) -> Any:
        known = [one[0] for one in tuples if one[0] is not None]
        return compute(known) if known else None

    return run


def _spread(compute: Callable[[list[Any]], float], least: int) -> Callable[[list[tuple[Any, ...]]], Any]:
    return _of_known(lambda known: compute(list(map(float, known))) if len(known) >= least else None)


_AGGREGATES: dict[str, Callable[[list[tuple[Any, ...]]], Any]] = {
    "count": lambda tuples: sum(None not in one for one in tuples),
    "sum": _of_known(sum),
    "avg": _of_known(lambda known: float(sum(known)) / len(known)),
    "min": _of_known(min),
    "max": _of_known(max),
    "first_value": lambda tuples: tuples[0][0] if tuples else None,
    "last_value": lambda tuples: tuples[-1][0] if tuples else None,
    "stddev_samp": _spread(statistics.stdev, 2),
    "stddev_pop": _spread(statistics.pstdev, 1),
    "var_samp": _spread(statistics.variance, 2),
    "var_pop": _spread(statistics.pvariance, 1),
}
