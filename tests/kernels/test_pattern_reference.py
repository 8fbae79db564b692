"""Row patterns: the kernel against the backtracking reference."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import replace
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from pattern_searches import AFTER, HERE, LABEL, A, B, C, D, search, seq, star, value

from millstream.errors import DataError
from millstream.expressions.nodes import Column
from millstream.kernels import jit
from millstream.kernels.batch import FOREVER, Batch
from millstream.kernels.patterns import chain, chain_plan, registers
from millstream.kernels.patterns.spec import MatchSpec
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.patterns.chains import NoChain, chain_of
from millstream.plan.patterns.expressions import Edge, Either
from millstream.plan.patterns.search import Given, Reach, Search, Skip
from millstream.plan.patterns.times import length, timely_reaches
from millstream.plan.programs.builder import call
from millstream.types import BIGINT
from tests.support.pattern_strategies import COLUMNS, Arrival, arrivals, searches
from tests.support.patterns import Told, told, told_when
from tiers import examples

random_searches = settings(
    deadline=None, max_examples=examples(200), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def test_kernel_follows_many_ways_at_once() -> None:
    """Numbers in two parts of equal sums: all ways to divide them are open until the last row."""
    first, second = (AggregateCall.matched(name, "sum", (Column(BIGINT, "x"),), BIGINT, (name,)) for name in "AB")
    equal = call("=", call("+", value(first), value(HERE)), value(second))
    ways = seq(Edge(end=False), star(Either((A, B))), C, Edge(end=True))
    divided = replace(search(ways, (LABEL,), (first, second), C=equal), keys=("k",))
    rows: list[Arrival] = [(i, {"k": 0, "x": i, "y": 0, "s": ""}) for i in range(1, 8)]
    with jit.using("off", threads=1):
        kernel = MatchSpec(COLUMNS, divided).build()
        state = kernel.open()
        found = [row for batch in batches(rows, range(7)) for row in kernel.step(state, batch).rows.to_pylist()]
    assert "".join(row["label"] for row in found) == "AABABBC" == labels_of(divided, rows)


def test_one_row_may_need_more_room_than_all_before_it() -> None:
    """Thousands of ways end at the last row: room for them is made again and again, of each kind in turn."""
    sums = [AggregateCall.matched(name, "sum", (Column(BIGINT, "x"),), BIGINT, (name,)) for name in "ABC"]
    first, second, third = map(value, sums)
    equal = call("and", call("=", call("+", first, value(HERE)), second), call("=", second, third))
    ways = seq(star(Either((A, B, C))), D, Edge(end=True))
    divided = replace(search(ways, (LABEL,), tuple(sums), D=equal), keys=("k",))
    rows: list[Arrival] = [(i, {"k": 0, "x": i, "y": 0, "s": ""}) for i in range(1, 8)]
    with jit.using("off", threads=1):
        kernel = MatchSpec(COLUMNS, divided).build()
        state = kernel.open()
        found = [row for batch in batches(rows, range(1, 7)) for row in kernel.step(state, batch).rows.to_pylist()]
    assert "".join(row["label"] for row in found) == "ABCCBD" == labels_of(divided, rows)


def test_kernel_tells_timeouts_of_rows_that_waited_for_others() -> None:
    """The row is tried when the partition ends, and then no end of the match was found in time."""
    begun = search(seq(A, B), (HERE,), rows="one", within=3, timeouts=True, A=call("is_null", value(AFTER)))
    rows: list[Arrival] = [(0, {"k": 0, "x": 5, "y": 0, "s": ""})]
    assert [one.values for one in told(begun, [row for _, row in rows], [0])] == [(5,)]
    with jit.using("off", threads=1):
        kernel = MatchSpec(COLUMNS, replace(begun, keys=("k",))).build()
        state = kernel.open()
        found = [row for batch in batches(rows, ()) for row in kernel.step(state, batch).rows.to_pylist()]
    assert found == [{"k": 0, "here": 5}]


def labels_of(searched: Search, rows: list[Arrival]) -> str:
    return "".join(one.values[0] for one in told(searched, [row for _, row in rows], [time for time, _ in rows]))


def rows_of(key: int, rows: list[Arrival]) -> tuple[list[Any], list[int], list[int]]:
    """A partition's rows, their times, and their arrival numbers."""
    own = [i for i, (_, row) in enumerate(rows) if row["k"] == key]
    return [rows[i][1] for i in own], [rows[i][0] for i in own], own


def outcome(work: Any) -> Any:
    try:
        return work()
    except DataError as error:
        return error.message.partition(" goes ")[2] or error.message


def told_row(searched: Search, key: int, one: Told, rows: list[Any]) -> tuple[Any, ...]:
    kept = (key,) if one.row is None else tuple(rows[one.row].values())
    return (*kept, *one.values)


def batches(rows: list[Arrival], cuts: SequenceOf[int], beats: SequenceOf[int] = ()) -> list[Batch]:
    """The rows in batches that begin at the places `cuts`, some followed by a heartbeat, and the end."""
    inputs = []
    for start, stop in pairwise(sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})):
        part = rows[start:stop]
        table = pa.RecordBatch.from_pylist([dict(row) for _, row in part], schema=COLUMNS.arrow)
        times = np.array([time for time, _ in part], np.int64)
        inputs.append(Batch(table, times, np.arange(start, stop, dtype=np.int64), part[-1][0]))
        if stop in beats and stop < len(rows):
            inputs.append(Batch.empty(COLUMNS.arrow, rows[stop][0]))
    return [*inputs, Batch.empty(COLUMNS.arrow, FOREVER)]


def given_by(batch: Batch) -> dict[int, list[Any]]:
    """By key, what comes out with its time and number."""
    found: dict[int, list[Any]] = {}
    for time, number, row in zip(batch.time.tolist(), batch.seq.tolist(), batch.rows.to_pylist(), strict=True):
        found.setdefault(row["k"], []).append((time, number, tuple(row.values())))
    return found


@random_searches
@given(searches() | searches(chains=True), arrivals(), st.lists(st.integers(1, 14)), st.lists(st.integers(1, 14)))
def test_kernel_gives_what_backtracking_gives(
    searched: Search, rows: list[Arrival], cuts: list[int], beats: list[int]
) -> None:
    require_what_backtracking_gives(searched, rows, cuts, beats)


@random_searches
@given(searches() | searches(chains=True), arrivals(), st.lists(st.integers(1, 14)), st.lists(st.integers(1, 14)))
def test_rows_far_back_are_found_in_the_same_way(
    searched: Search, rows: list[Arrival], cuts: list[int], beats: list[int]
) -> None:
    """As if every offset were a large one."""
    with (
        patch.object(registers, "MARKED_BACK", -1),
        patch.object(chain, "LANES_BACK", 0),
        patch.object(chain_plan, "LANES_BACK", 0),
    ):
        forget_plans()
        require_what_backtracking_gives(searched, rows, cuts, beats)
    forget_plans()


def forget_plans() -> None:
    chain.why_not.cache_clear()
    chain.plan_of.cache_clear()


def require_what_backtracking_gives(searched: Search, rows: list[Arrival], cuts: list[int], beats: list[int]) -> None:
    def by_backtracking() -> dict[int, list[Any]]:
        found = {}
        for key in range(3):
            own, times, _ = rows_of(key, rows)
            if lines := [told_row(searched, key, one, own) for one in told(searched, own, times)]:
                found[key] = lines
        return found

    def by_kernel() -> dict[int, list[Any]]:
        kernel = MatchSpec(COLUMNS, searched).build()
        state, found = kernel.open(), {}
        for batch in batches(rows, cuts, beats):
            for key, lines in given_by(kernel.step(state, batch)).items():
                found[key] = [*found.get(key, []), *(values for _, _, values in lines)]
        return found

    with jit.using("off", threads=1):
        expected = outcome(by_backtracking)
        event(f"{searched.given.rows}: {'error' if isinstance(expected, str) else 'matches' if expected else 'none'}")
        assert outcome(by_kernel) == expected


@random_searches
@given(searches(ahead=False) | searches(ahead=False, chains=True), arrivals())
def test_kernel_is_neither_early_nor_late(searched: Search, rows: list[Arrival]) -> None:
    """Row by row; times and numbers are those of what made a match certain."""

    def by_backtracking() -> dict[int, list[Any]]:
        found: dict[int, list[Any]] = {}
        for key in range(3):
            own, times, numbers = rows_of(key, rows)
            for time, place, one in told_when(searched, own, times) if own else ():
                found.setdefault(key, []).append((time, numbers[place], told_row(searched, key, one, own)))
        return found

    def by_kernel() -> dict[int, list[Any]]:
        kernel = MatchSpec(COLUMNS, searched).build()
        state, found = kernel.open(), {}
        for batch in batches(rows, range(1, len(rows))):
            for key, lines in given_by(kernel.step(state, batch)).items():
                assert all(time <= batch.upto for time, _, _ in lines)
                found[key] = [*found.get(key, []), *lines]
        return found

    with jit.using("off", threads=1):
        assert outcome(by_kernel) == outcome(by_backtracking)


@random_searches
@given(searches(ahead=False) | searches(ahead=False, chains=True), arrivals(keys=1))
def test_matches_come_as_their_last_row_does_where_that_is_said(searched: Search, rows: list[Arrival]) -> None:
    """Then a column with that row's time is the time of the match."""
    last = Reach("at", "y", BIGINT)
    told_of = (*searched.columns, "at")
    timed = replace(searched, reaches=(*searched.reaches, last), columns=told_of, given=Given(), timeouts=False)
    if not isinstance(chain_of(timed), NoChain):
        timed = replace(timed, within=None, skip=Skip())
    if "at" not in timely_reaches(timed, frozenset({"y"})):
        return
    event("certain at its last row" if length(timed.pattern) is None else "of one length")
    times = [time for time, _ in rows]
    try:
        found = told_when(timed, [{**row, "y": time} for time, row in rows], times)
    except DataError:
        return
    assert all(time == one.values[-1] for time, _, one in found)
