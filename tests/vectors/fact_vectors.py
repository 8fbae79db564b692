"""Numbers and statements of the text, computed."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pyarrow as pa
from physical_vectors import checked, difference
from vector_data import VALUE, Check, Vector

from millstream.kernels.batch import FOREVER, Batch
from millstream.kernels.relations.events import ToEventsSpec
from millstream.kernels.relations.rows_window import RowsWindowSpec
from millstream.kernels.relations.stages import RangeStage
from millstream.kernels.relations.summary import SummarySpec
from millstream.kernels.relations.time_changes import RangeChangesSpec
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.costs import flows
from millstream.plan.costs.flows import RelationFlow
from millstream.plan.costs.operators import join_rows
from millstream.plan.relations import RangeWindow, RowsWindow
from millstream.schema import Schema
from millstream.types import BIGINT, DOUBLE
from tests.support import relation_runs as runs
from tests.support import snapshot_algebra as algebra

NUMBER = Schema.of(x=BIGINT)


def _average(vector: Vector) -> None:
    spec = SummarySpec(NUMBER, (), (AggregateCall(("a",), "avg", ("x",), (DOUBLE,)),))
    out = checked(runs.run_in_order(spec, runs.intervals([(4, 0, 2), (6, 1, 2)], NUMBER)))
    assert out == [(4.0, 0, 1), (vector.out["eval((10,2))"], 1, 2)]
    assert vector.out["merge((4,1),6)"] == [4 + 6, 2]


def _left_over(vector: Vector) -> None:
    whole = [("a", 2, 10)]
    for name, pieces in vector.out.items():
        if name == "disjoint":
            # what the formula says of intervals apart is never asked for: the row stays
            assert difference(whole, [("a", 12, 14)]) == whole
            continue
        start, end = (int(bound) for bound in name.split("-[")[1].rstrip(")").split(","))
        taken = [("a", start, end)]
        assert algebra.canonical(difference(whole, taken)) == [("a", *piece, 1) for piece in pieces]


def _window_state(vector: Vector) -> None:
    per_second, minutes = 100, 30
    spec = RangeChangesSpec(NUMBER, RangeWindow(minutes * 60 * 1_000_000))
    kernel = spec.build()
    state = kernel.open()
    time = np.arange(0, 2 * minutes * 60 * per_second, dtype=np.int64) * (1_000_000 // per_second)
    rows = pa.RecordBatch.from_arrays([pa.array(time)], schema=NUMBER.arrow)
    kernel.step(state, Batch(rows, time, time, int(time[-1]) + 1))
    assert len(state.waiting) == vector.out


def _no_false_alarm(vector: Vector) -> None:
    spec = SummarySpec(NUMBER, (), (AggregateCall(("s",), "sum", ("x",), (BIGINT,)),), "changes")
    stream = [(2, 0, 1), (-2, 0, 1), (7, 5, 1), (2, 5, -1)]
    told = [(value, time) for value, time, sign in runs.changed(
        runs.run_in_order(spec, runs.changes(stream, NUMBER))) if sign > 0]  # fmt: skip
    assert told == [(0, 0), (vector.out["sum_at_t"], 5)]
    assert any(value > 6 for value, _ in told) is vector.out["alarm"]


def _starts(window: RangeWindow, times: range) -> list[int]:
    stage = RangeStage(VALUE, window)
    return sorted(set(stage.step(runs.events([("a", time) for time in times], VALUE)).time.tolist()))


def _tumbling(vector: Vector) -> None:
    starts = _starts(RangeWindow(600, 600), range(1200))
    assert starts == [vector.out["first_output_instant_s"], vector.out["next_change_s"]]


def _sliding(vector: Vector) -> None:
    assert _starts(RangeWindow(50, 10), range(30)) == vector.out


def _window_sizes_change(vector: Vector) -> None:
    seen = []
    for before, after, at in ((60, 30, 80), (30, 60, 150)):
        mixed, old, new = (
            [("x", t, t + (size(t))) for t in range(300)]
            for size in (lambda t: before if t < at else after, lambda t: before, lambda t: after)  # noqa: B023
        )
        first = next(t for t in range(300) if algebra.snapshot(mixed, t) != algebra.snapshot(old, t))
        full = at + max(before, after)
        assert all(algebra.snapshot(mixed, t) == algebra.snapshot(new, t) for t in range(full, 300))
        assert algebra.snapshot(mixed, full - 2) != algebra.snapshot(new, full - 2)
        seen += [first, full]
    assert seen == vector.out


def _join_state(vector: Vector) -> None:
    held, selective, expansive = vector.out
    flow = flows.range_window(RelationFlow(10.0), 5000)
    assert flow.valid == held
    for per, results in ((1000, selective), (100, expansive)):
        assert np.isclose(flows.joined(flow, flow, 1 / per).rate / (2 * flow.rate), results)


def _first_of_a_window_of_rows(vector: Vector) -> None:
    kernel = RowsWindowSpec(VALUE, RowsWindow(100), "intervals").build()
    state = kernel.open()
    for number in range(200):
        row = runs.events([("a", number)], VALUE)
        if len(kernel.step(state, row.with_upto(number))):
            assert number / 50 == vector.out
            return
    raise AssertionError("no row came")


def _shedding(vector: Vector) -> None:
    whole = flows.range_window(RelationFlow(10.0), 5000)
    half = flows.range_window(RelationFlow(10.0), 2500)
    shed = flows.range_window(flows.filtered(RelationFlow(10.0), 0.5), 5000)

    def compared(other: RelationFlow) -> list[float]:
        pairs = flows.joined(other, other).rate / flows.joined(whole, whole).rate
        return [round(join_rows(other, other) / join_rows(whole, whole), 2), round(pairs, 3)]

    assert compared(half) == vector.out["window"]
    assert compared(shed) == vector.out["shed"][:2]
    assert vector.out["shed"][1] == vector.out["shed"][2]


def _migration_ends(vector: Vector) -> None:
    began, size = 20, 10
    stage = RangeStage(VALUE, RangeWindow(size))
    last = stage.step(runs.events([("a", began)], VALUE))
    assert last.other is not None
    # GenMig waits for the last row that came before it; the other way, for all that joined with that
    assert int(last.other[0]) == vector.out["genmig_end"]
    assert int(last.other[0]) + size == vector.out["pt_end"]


def _cql_rewriting(vector: Vector) -> None:
    chance = random.Random(7)
    time = np.cumsum([chance.choice([0, 1, 3]) for _ in range(50)]).tolist()
    stream = [(chance.choice("abc"), at) for at in time]
    kept = runs.events([row for row in stream if row[0] != "b"], VALUE)
    results = []
    for size, how in ((None, "istream"), (1, "rstream")):
        relation = RangeStage(VALUE, RangeWindow(size)).step(kept)
        results.append(Counter(runs.raw(runs.run(ToEventsSpec(VALUE, how), relation))))  # type: ignore[arg-type]
    assert (results[0] == results[1]) is vector.out
    assert relation.upto == FOREVER


CHECKS: dict[str, Check] = {
    "TV-F01": _average,
    "TV-F02": _left_over,
    "TV-F03": _window_state,
    "TV-F04": _no_false_alarm,
    "TV-F05": _tumbling,
    "TV-F06": _sliding,
    "TV-F07": _window_sizes_change,
    "TV-F08": _join_state,
    "TV-F09": _first_of_a_window_of_rows,
    "TV-F10": _shedding,
    "TV-F11": _migration_ends,
    "TV-F12": _cql_rewriting,
}
