"""Vectors of the physical algebra, run by the kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from vector_data import VALUE, Check, Vector, physical, raw

from millstream.expressions.nodes import Call, Case, Column, Literal
from millstream.kernels.batch import Batch
from millstream.kernels.compute import ComputeStage
from millstream.kernels.contract import KernelSpec
from millstream.kernels.relations.bags import BagSpec
from millstream.kernels.relations.coalesce import CoalesceSpec
from millstream.kernels.relations.convert import ToChangesSpec
from millstream.kernels.relations.events import ToEventsSpec
from millstream.kernels.relations.join import JoinSpec
from millstream.kernels.relations.rows_window import RowsWindowSpec
from millstream.kernels.relations.stages import CoarsenStage, RangeStage
from millstream.kernels.relations.summary import SummarySpec
from millstream.kernels.relations.unroll import SplitSpec
from millstream.kernels.streams.merge import MergeSpec
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.relations import RangeWindow, RowsWindow
from millstream.schema import Schema
from millstream.types import BIGINT, BOOLEAN, VARCHAR
from tests.support import relation_runs as runs
from tests.support import snapshot_algebra as algebra

_E = Column(VARCHAR, "e")
COUNT = AggregateCall(("n",), "count", (), (BIGINT,))


def is_value(text: str) -> Call:
    return Call(BOOLEAN, "=", (_E, Literal(VARCHAR, text)))


def dual(spec: KernelSpec, one: algebra.Physical, other: algebra.Physical) -> algebra.Physical:
    """What a kernel of two inputs gives, fed in order of start."""
    return checked(runs.run_in_order(spec, runs.intervals(one, VALUE), runs.intervals(other, VALUE, 1)))


def single(spec: KernelSpec, stream: algebra.Physical) -> algebra.Physical:
    return checked(runs.run_in_order(spec, runs.intervals(stream, VALUE)))


def checked(outputs: Sequence[Batch]) -> algebra.Physical:
    """The rows of the outputs, which must be in order."""
    out = runs.physical(outputs)
    assert runs.keeps_promise(outputs)
    assert algebra.is_ordered(out)
    return out


def same_rows(out: algebra.Physical, expected: algebra.Physical) -> None:
    assert Counter(out) == Counter(expected)


def same_meaning(out: algebra.Physical, expected: algebra.Physical) -> None:
    assert algebra.canonical(out) == algebra.canonical(expected)


def equi_join(one: algebra.Physical, other: algebra.Physical) -> algebra.Physical:
    return dual(JoinSpec(VALUE, VALUE, ("e",), (("left", "e"),)), one, other)


def distinct(stream: algebra.Physical) -> algebra.Physical:
    return single(BagSpec(VALUE, 1, "distinct"), stream)


def difference(one: algebra.Physical, other: algebra.Physical) -> algebra.Physical:
    return dual(BagSpec(VALUE, 2, "except", True), one, other)


def count(stream: algebra.Physical) -> algebra.Physical:
    return single(SummarySpec(VALUE, (), (COUNT,)), stream)


def _compute(predicate: Any, columns: Any) -> Check:
    def check(vector: Vector) -> None:
        stage = ComputeStage(VALUE, predicate, columns).build()
        same_rows(checked([stage.step(runs.intervals(physical("P1"), VALUE))]), physical(vector.out))

    return check


def _replaced() -> Case:
    whens = ((is_value("a"), Literal(VARCHAR, "x")), (is_value("b"), Literal(VARCHAR, "y")))
    return Case(VARCHAR, whens, _E)


def _union(vector: Vector) -> None:
    same_rows(dual(MergeSpec(VALUE, 2), physical("P1"), physical("P2")), physical(vector.out))


def _sum(vector: Vector) -> None:
    # a sum of powers of ten tells how often each value is in it
    worth = {"a": 1, "b": 10, "c": 100, "d": 1000}
    schema = Schema.of(x=BIGINT)
    stream = [(worth[value], start, end) for value, start, end in physical("P1")]
    spec = SummarySpec(schema, (), (AggregateCall(("s",), "sum", ("x",), (BIGINT,)),))
    expected = [(sum(worth[v] for v in text.split("+")), start, end) for text, start, end in physical(vector.out)]
    same_meaning(checked(runs.run_in_order(spec, runs.intervals(stream, schema))), expected)


def _group_count(vector: Vector) -> None:
    same_meaning(single(SummarySpec(VALUE, ("e",), (COUNT,)), physical("P1")), physical(vector.out))


def _time_window(vector: Vector) -> None:
    stage = RangeStage(VALUE, RangeWindow(vector.params["w"], vector.params.get("slide", 1)))
    same_rows(checked([stage.step(runs.events(raw("P3"), VALUE))]), physical(vector.out))


def _rows_window(vector: Vector) -> None:
    stream = raw(vector.given[0] if isinstance(vector.given[0], str) else vector.given)
    window = RowsWindow(vector.params["N"], ("e",) if "key" in vector.params else (), vector.params.get("slide", 1))
    out = checked(runs.run_in_order(RowsWindowSpec(VALUE, window, "intervals"), runs.events(stream, VALUE)))
    same_rows(out, physical(vector.out)) if "delta" not in vector.params else same_meaning(out, physical(vector.out))


def _split_to_chronons(vector: Vector) -> None:
    out = single(SplitSpec(VALUE, vector.params["l_out"]), physical("P1"))
    first = physical(vector.out["first9"])
    assert len(out) == vector.out["count"]
    same_rows(out[: len(first)], first)
    assert out[-1:] == physical(vector.out["last"])


def _split(vector: Vector) -> None:
    out = single(SplitSpec(VALUE, vector.params["l_out"]), physical(vector.given))
    same_rows(out, physical(vector.out))
    assert [end for _, _, end in out] != sorted(end for _, _, end in out)


def _coalesce(vector: Vector) -> None:
    stream = vector.given[0] if isinstance(vector.given[0], str) else vector.given
    same_rows(single(CoalesceSpec(VALUE, vector.params["l_max"]), physical(stream)), physical(vector.out))


def _istream(vector: Vector) -> None:
    out = runs.raw(runs.run_in_order(ToEventsSpec(VALUE, "istream"), runs.intervals(physical("P2"), VALUE)))
    same_rows(algebra.physical_of_raw(out), physical(vector.out))


def dstream(name: str) -> algebra.Raw:
    return runs.raw(runs.run_in_order(ToEventsSpec(VALUE, "dstream"), runs.intervals(physical(name), VALUE)))


def _dstream_of_the_thesis(vector: Vector) -> None:
    # the thesis tells of a deletion one unit of time before it is one
    same_rows([(value, time - 1, time) for value, time in dstream("P2")], physical(vector.out))


def _dstream(vector: Vector) -> None:
    assert Counter(dstream("P2")) == Counter(map(tuple, vector.out))


def _coarsen(vector: Vector) -> None:
    out = checked([CoarsenStage(VALUE, vector.params["g"]).step(runs.intervals(physical("P1"), VALUE))])
    same_rows(out, physical(vector.out))


def _distinct_of_any_ends(vector: Vector) -> None:
    same_meaning(distinct(physical(vector.given)), physical(vector.out["correct"]))
    printed = physical(vector.out["as printed (WRONG)"])
    assert not algebra.is_equivalent(printed, physical(vector.out["correct"]))


def _smaller_window(vector: Vector) -> None:
    before, after = (RangeStage(VALUE, RangeWindow(size)) for size in (60, 30))
    rows = [(value, time) for value, time in vector.given]
    out = runs.physical([before.step(runs.events(rows[:1], VALUE)), after.step(runs.events(rows[1:], VALUE))])
    assert out == physical(vector.out)
    # operators may not take ends to come in order, then
    assert distinct(out) == distinct(sorted(out, key=lambda row: row[1]))
    same_meaning(count(out), [(1, 79, 80), (2, 80, 110), (1, 110, 139)])


def _to_changes(vector: Vector) -> None:
    out = runs.changed(runs.run_in_order(ToChangesSpec(VALUE), runs.intervals(physical("P1"), VALUE)))
    assert Counter(out) == Counter((value, time, 1 if sign == "+" else -1) for value, time, sign in vector.out)
    assert [time for _, time, _ in out] == sorted(time for _, time, _ in out)


CHECKS: dict[str, Check] = {
    "TV-P02": _compute(is_value("a"), None),
    "TV-P03": _compute(None, (("e", _replaced()),)),
    "TV-P04": _union,
    "TV-P05": lambda v: same_rows(equi_join(physical("P1"), physical("P2")), physical(v.out)),
    "TV-P06": lambda v: same_meaning(distinct(physical("P1")), physical(v.out)),
    "TV-P07": lambda v: same_meaning(difference(physical("P1"), physical("P2")), physical(v.out)),
    "TV-P08": _sum,
    "TV-P09": _group_count,
    "TV-P11": _time_window,
    "TV-P12": _rows_window,
    "TV-P13": _rows_window,
    "TV-P14": _split_to_chronons,
    "TV-P15": _coalesce,
    "TV-P16": _time_window,
    "TV-P17": _rows_window,
    "TV-P18": _istream,
    "TV-P19": _dstream_of_the_thesis,
    "TV-P20": _coarsen,
    "TV-D06": _dstream,
    "TV-D07": _distinct_of_any_ends,
    "TV-D08": _coalesce,
    "TV-D09": lambda v: same_meaning(count(physical("P1")), physical(v.out)),
    "TV-D10": _rows_window,
    "TV-D11": _time_window,
    "TV-D12": _rows_window,
    "TV-D13": _smaller_window,
    "TV-D14": _split,
    "TV-D16": _to_changes,
}
