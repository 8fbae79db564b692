"""Windows, ways out of relations, pieces and coarser time, against the snapshot algebra."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from millstream.errors import DataError
from millstream.kernels import jit
from millstream.kernels.batch import BEGIN, FOREVER, Batch
from millstream.kernels.relations.coalesce import CoalesceSpec
from millstream.kernels.relations.events import ToEventsSpec
from millstream.kernels.relations.rows_window import RowsWindowSpec
from millstream.kernels.relations.stages import CoarsenStage, RangeStage, ValidityStage
from millstream.kernels.relations.time_changes import RangeChangesSpec
from millstream.kernels.relations.unroll import SplitSpec
from millstream.kernels.saving import states as saving
from millstream.plan.relations import RangeWindow, RowsWindow
from millstream.schema import Schema
from millstream.types import BIGINT, TIMESTAMP, VARCHAR
from tests.support import snapshot_algebra as algebra
from tests.support.relation_runs import (
    changed,
    changes,
    events,
    intervals,
    keeps_promise,
    physical,
    raw,
    run,
    run_in_order,
    stage,
)

VALUE = Schema.of(v=VARCHAR)
UNTIL = 60

many = pytest.mark.parametrize("seed", range(60))


def random_raw(chance: random.Random) -> algebra.Raw:
    time = 0
    stream = []
    for _ in range(chance.randrange(12)):
        time += chance.choice([0, 0, 1, 1, 2, 5])
        stream.append((chance.choice("abc"), time))
    return stream


def random_physical(chance: random.Random, values: str = "abc") -> algebra.Physical:
    time = 0
    stream = []
    for _ in range(chance.randrange(12)):
        time += chance.choice([0, 0, 1, 1, 2, 5])
        end = FOREVER if chance.random() < 0.1 else time + chance.choice([1, 2, 3, 8])
        stream.append((chance.choice(values), time, end))
    return stream


def as_changes(stream: algebra.Physical) -> list[tuple[str, int, int]]:
    both = [(v, s, 1) for v, s, _ in stream] + [(v, e, -1) for v, _, e in stream if e != FOREVER]
    return sorted(both, key=lambda change: change[1])


def of_changes(stream: list[tuple[str, int, int]]) -> algebra.Logical:
    """What changes say is valid at each instant."""
    result = {}
    bag: Counter[str] = Counter()
    for time in range(UNTIL):
        for value, at, sign in stream:
            if at == time:
                bag[value] += sign
        assert min(bag.values(), default=0) >= 0
        result[time] = +bag
    return {time: bag for time, bag in result.items() if bag}


@many
def test_time_windows(seed: int) -> None:
    chance = random.Random(seed)
    stream = random_raw(chance)
    window = RangeWindow(chance.choice([None, 1, 2, 5, 9]), chance.choice([1, 1, 2, 3, 7]))
    expected = algebra.time_window(algebra.logical_of_raw(stream), window.size, window.slide, UNTIL)
    out = stage(RangeStage(VALUE, window), events(stream, VALUE))
    assert algebra.is_ordered(physical(out))
    assert algebra.logical_of(physical(out), UNTIL) == expected
    outputs = run_in_order(RangeChangesSpec(VALUE, window), events(stream, VALUE))
    assert keeps_promise(outputs)
    assert of_changes(changed(outputs)) == expected


@pytest.mark.parametrize("slide", [1, 2, 3, 7])
def test_time_windows_tell_how_far_they_are(slide: int) -> None:
    work = RangeStage(VALUE, RangeWindow(5, slide))
    for time in range(-20, 20):
        upto = work.step(events([], VALUE).with_upto(time)).upto
        starts = [work.step(events([("a", t)], VALUE)).time for t in range(time, time + slide)]
        assert min(int(start[0]) for start in starts if len(start)) == upto
    assert work.step(events([], VALUE)).upto == FOREVER
    assert work.step(events([], VALUE).with_upto(BEGIN)).upto == BEGIN


def test_a_window_past_all_time_is_refused() -> None:
    with pytest.raises(DataError, match="beyond the largest possible time"):
        RangeStage(VALUE, RangeWindow(10)).step(events([("a", FOREVER - 9)], VALUE))


@many
def test_windows_of_rows(seed: int) -> None:
    chance = random.Random(seed)
    stream = random_raw(chance)
    by = chance.choice([(), ("v",)])
    window = RowsWindow(chance.choice([None, 1, 2, 3]), by, chance.choice([1, 1, 2, 3]))
    expected = algebra.partitioned_window(
        stream, lambda value: value if by else 0, window.rows, window.slide, UNTIL
    )  # fmt: skip
    outputs = run_in_order(RowsWindowSpec(VALUE, window, "intervals"), events(stream, VALUE))
    assert keeps_promise(outputs) and algebra.is_ordered(physical(outputs))
    assert algebra.logical_of(physical(outputs), UNTIL) == expected
    outputs = run_in_order(RowsWindowSpec(VALUE, window, "changes"), events(stream, VALUE))
    assert keeps_promise(outputs)
    seen = changed(outputs)
    assert of_changes(seen) == expected
    assert not any((value, time, -sign) in seen for value, time, sign in seen if window.rows is None)


def test_a_row_that_comes_and_goes_at_one_instant_is_not_told_of() -> None:
    stream = [("a", 1), ("b", 1), ("c", 2)]
    window = RowsWindow(1)
    assert physical(run(RowsWindowSpec(VALUE, window, "intervals"), events(stream, VALUE))) == [
        ("b", 1, 2), ("c", 2, FOREVER)
    ]  # fmt: skip
    told = changed(run_in_order(RowsWindowSpec(VALUE, window, "changes"), events(stream, VALUE)))
    assert sorted(told, key=lambda change: change[1:]) == [("b", 1, 1), ("b", 2, -1), ("c", 2, 1)]


def test_a_window_of_rows_holds_no_more_than_its_rows() -> None:
    spec = RowsWindowSpec(Schema.of(k=BIGINT, x=BIGINT), RowsWindow(3, ("k",)), "changes")
    kernel = spec.build()
    state = kernel.open()
    for start in range(0, 100_000, 1000):
        time = np.arange(start, start + 1000)
        rows = pa.RecordBatch.from_arrays([pa.array(time % 7), pa.array(time)], schema=spec.input.arrow)
        kernel.step(state, Batch(rows, time, time, start + 1000))
    assert len(state.rows) <= 2 * 3 * 7 + 1000
    assert len(saving.snapshot(kernel, state)) < 10_000


@many
def test_istream_and_dstream(seed: int) -> None:
    chance = random.Random(seed)
    stream = random_physical(chance, "ab")
    logical = algebra.logical_of(stream, UNTIL)
    for how, define in (("istream", algebra.istream), ("dstream", algebra.dstream)):
        expected = {t: bag for t, bag in define(logical).items() if t < UNTIL}
        for form, batch in (("intervals", intervals(stream, VALUE)), ("changes", changes(as_changes(stream), VALUE))):
            outputs = run_in_order(ToEventsSpec(VALUE, how, 1, form), batch)  # type: ignore[arg-type]
            assert keeps_promise(outputs)
            assert algebra.logical_of_raw(raw(outputs)) == expected, (how, form)


@many
def test_rstream(seed: int) -> None:
    chance = random.Random(seed)
    stream = random_physical(chance)
    granule = chance.choice([1, 2, 5])
    last = max([start for _, start, _ in stream] + [end - 1 for _, _, end in stream if end != FOREVER], default=0)
    expected = algebra.coarsen(algebra.logical_of(stream, last + 1), granule)
    outputs = run_in_order(ToEventsSpec(VALUE, "rstream", granule), intervals(stream, VALUE))
    assert keeps_promise(outputs)
    assert algebra.logical_of_raw(raw(outputs)) == expected


def test_too_many_instants_are_refused() -> None:
    with pytest.raises(DataError, match="at once"):
        run(ToEventsSpec(VALUE, "rstream"), intervals([("a", 0, 10**12)], VALUE))


@many
def test_pieces_mean_the_same(seed: int) -> None:
    chance = random.Random(seed)
    stream = random_physical(chance)
    length = chance.choice([1, 2, 5])
    outputs = run_in_order(SplitSpec(VALUE, length), intervals(stream, VALUE))
    pieces = physical(outputs)
    assert keeps_promise(outputs) and algebra.is_ordered(pieces)
    assert algebra.is_equivalent(pieces, stream)
    assert all(end - start <= length for _, start, end in pieces if end != FOREVER)


@many
def test_coalesced_rows_mean_the_same(seed: int) -> None:
    chance = random.Random(seed)
    stream = random_physical(chance, "ab")
    longest = chance.choice([1, 4, 1000])
    outputs = run_in_order(CoalesceSpec(VALUE, longest), intervals(stream, VALUE))
    merged = physical(outputs)
    assert keeps_promise(outputs) and algebra.is_ordered(merged)
    assert algebra.is_equivalent(merged, stream)
    ends = Counter((value, end) for value, start, end in merged if end - start < longest)
    starts = Counter((value, start) for value, start, _ in merged)
    assert not ends & starts


def test_coalescing_waits_no_longer_than_it_was_told() -> None:
    kernel = CoalesceSpec(VALUE, 4).build()
    state = kernel.open()
    out = kernel.step(state, intervals([("b", 3, 5), ("a", 4, 9)], VALUE).with_upto(5))
    assert physical([out]) == [] and out.upto == 3
    out = kernel.step(state, intervals([("b", 5, 15)], VALUE).with_upto(6))
    assert physical([out]) == [("b", 3, 15), ("a", 4, 9)] and out.upto == 6
    assert len(state.values) == 0


@many
def test_coarser_time(seed: int) -> None:
    chance = random.Random(seed)
    stream = random_physical(chance)
    granule = chance.choice([1, 2, 5])
    out = physical(stage(CoarsenStage(VALUE, granule), intervals(stream, VALUE)))
    assert algebra.is_ordered(out)
    expected = algebra.coarsen(algebra.logical_of(stream, UNTIL), granule)
    assert algebra.coarsen(algebra.logical_of(out, UNTIL), granule) == expected


def test_validity_as_columns() -> None:
    output = Schema.of(v=VARCHAR, valid_from=TIMESTAMP, valid_to=TIMESTAMP)
    out = ValidityStage(VALUE, output, TIMESTAMP).step(intervals([("a", 0, 1_000_000), ("b", 5, FOREVER)], VALUE))
    assert out.other is None
    assert out.rows.column(2).to_pylist()[0].isoformat() == "1970-01-01T00:00:01"
    assert out.rows.column(2).to_pylist()[1] is None
    assert out.rows.schema.equals(output.arrow)


def test_compiled_loops_equal_python() -> None:
    chance = np.random.default_rng(1)
    size = 3000
    rows = pa.RecordBatch.from_arrays(
        [pa.array(chance.choice(list("abcdef"), size).tolist())], schema=VALUE.arrow
    )  # fmt: skip
    time = np.cumsum(chance.integers(0, 3, size))
    stream = Batch(rows, time, np.arange(size), FOREVER)
    relation = Batch(rows, time, np.zeros(size, np.int64), FOREVER, time + chance.integers(1, 9, size))
    cases = [
        (RowsWindowSpec(VALUE, RowsWindow(3, ("v",), 2), "intervals"), stream),
        (RowsWindowSpec(VALUE, RowsWindow(3, ("v",), 2), "changes"), stream),
        (CoalesceSpec(VALUE, 20), relation),
        (ToEventsSpec(VALUE, "istream"), relation),
        (ToEventsSpec(VALUE, "dstream"), relation),
    ]
    for spec, batch in cases:
        results = []
        for mode in ("off", "on"):
            with jit.using(mode, threads=1):  # type: ignore[arg-type]
                kernel = spec.build()
                state = kernel.open()
                outputs = []
                for start in range(0, size, 500):
                    piece = batch.slice(start, start + 500)
                    outputs.append(kernel.step(state, piece.with_upto(int(piece.time[-1]))))
                    state = saving.restore(kernel, saving.snapshot(kernel, state))
                outputs.append(kernel.step(state, batch.slice(0, 0)))
                results.append([(b.rows.to_pylist(), b.time.tolist(), b.upto) for b in outputs])
        assert results[0] == results[1]
