"""Random inputs for operators that sweep over the rows of relations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st
from kernel_scenarios import COLUMNS, SMALL, Scenario, aggregate_calls, ordered
from relation_scenarios import as_changes

from millstream.kernels.batch import FOREVER, Batch
from millstream.kernels.relations.bags import BagSpec, ToIntervalsSpec
from millstream.kernels.relations.convert import ToChangesSpec
from millstream.kernels.relations.deliver import DeliverSpec
from millstream.kernels.relations.summary import SummarySpec
from millstream.plan.aggregates import NAMES, ORDERLESS
from millstream.plan.arrangements import ArrangedCall, Arrangement
from millstream.plan.relations import arranged_call
from millstream.plan.ties import SortKey
from millstream.schema import Field, Schema
from millstream.types import BIGINT

FEW = Schema.of(k=BIGINT)


@st.composite
def relations(draw: st.DrawFn, schema: Schema, max_size: int = 16, wild: bool = True) -> Batch:
    """Rows with validity: many ties; ends in any order, some open, or those that a time window makes."""
    batch = draw(ordered(schema, max_size, wild))
    size = len(batch)
    lengths = draw(st.lists(st.sampled_from([1, 1, 2, 3, 5, 20, None]), min_size=size, max_size=size))
    if draw(st.booleans()):
        lengths = [4] * size
    other = [FOREVER if n is None else t + n for t, n in zip(batch.time.tolist(), lengths, strict=True)]
    return replace(batch, seq=np.zeros(size, dtype=np.int64), other=np.array(other, dtype=np.int64))


@st.composite
def bag_scenarios(draw: st.DrawFn) -> Scenario:
    schema = draw(st.sampled_from([FEW, FEW, Schema((COLUMNS["k"], COLUMNS["s"])), SMALL]))
    op = draw(st.sampled_from(["distinct", "except", "intersect"]))
    form = draw(st.sampled_from(["intervals", "changes"]))
    spec = BagSpec(schema, 1 if op == "distinct" else 2, op, op != "distinct" and draw(st.booleans()), form)
    ports = [draw(relations(schema)) for _ in range(spec.ports)]
    if all(map(len, ports)):
        ports = [ports[0], *(_beginning(batch, int(ports[0].time[0])) for batch in ports[1:])]
    ports = [as_changes(batch, schema) if form == "changes" else batch for batch in ports]
    return Scenario(spec, tuple(batch.on_port(i) for i, batch in enumerate(ports)))


def _beginning(batch: Batch, start: int) -> Batch:
    """The same rows, the first of which begins then."""
    assert batch.other is not None
    shift = start - int(batch.time[0])
    time = [t + shift for t in batch.time.tolist()]
    ends = [end if end == FOREVER else end + shift for end in batch.other.tolist()]
    return replace(batch, time=np.array(time, dtype=np.int64), other=np.array(ends, dtype=np.int64))


@st.composite
def to_changes_scenarios(draw: st.DrawFn) -> Scenario:
    by = draw(st.sampled_from([(), ("k",), ("k", "s")]))
    return Scenario(ToChangesSpec(SMALL, by), (draw(relations(SMALL)),))


@st.composite
def to_intervals_scenarios(draw: st.DrawFn) -> Scenario:
    schema = draw(st.sampled_from([FEW, SMALL]))
    return Scenario(ToIntervalsSpec(schema), (as_changes(draw(relations(schema)), schema),))


@st.composite
def deliver_scenarios(draw: st.DrawFn) -> Scenario:
    schema = draw(st.sampled_from([FEW, SMALL]))
    bounds = (Field("valid_from", BIGINT), Field("valid_to", BIGINT))
    spec = DeliverSpec(schema, Schema((*schema.fields, *bounds)), BIGINT)
    return Scenario(spec, (as_changes(draw(relations(schema)), schema),))


@st.composite
def arrangements(draw: st.DrawFn, schema: Schema) -> Arrangement:
    order = (SortKey(draw(st.sampled_from(schema.names)), draw(st.booleans()), draw(st.booleans())),)
    frame = "GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES"
    calls = (
        ArrangedCall("n", "row_number", (), BIGINT),
        ArrangedCall("r", "rank", (), BIGINT),
        ArrangedCall("c", "count", (), BIGINT, frame),
        ArrangedCall("h", "ntile", (), BIGINT, number=2),
    )
    chosen = tuple(draw(st.lists(st.sampled_from(calls), max_size=2, unique=True)))
    return Arrangement(order, chosen, schema.names, draw(st.integers(0, 1)), draw(st.none() | st.integers(0, 3)))


@st.composite
def summary_scenarios(draw: st.DrawFn, merges: bool = False) -> Scenario:
    """With `merges`, those whose rows may be put together before they come."""
    others = draw(st.lists(st.sampled_from(COLUMNS.fields[2:-1]), min_size=1, max_size=3, unique=True))
    schema = Schema((*COLUMNS.fields[:2], *others))
    by = draw(st.sampled_from([(), ("k",), ("name",), ("k", "name")]))
    made = []
    for i in range(draw(st.integers(1, 4))):
        fields = [field for field in schema if field.name != "k"]
        calls = aggregate_calls(f"c{i}", fields, NAMES, not merges)
        made.append(draw(calls.filter(lambda call: call.fn in ORDERLESS) if merges else calls))
    if not merges and draw(st.integers(0, 4)) == 0:
        made = [arranged_call(schema, by, draw(arrangements(schema)))]
    form = "intervals" if merges else draw(st.sampled_from(["intervals", "changes"]))
    batch = draw(relations(schema, wild=False))
    spec = SummarySpec(schema, by, tuple(made), form)
    if spec.merges and draw(st.booleans()):
        spec = replace(spec, put_together=True)
    return Scenario(spec, (as_changes(batch, schema) if form == "changes" else batch,))


SWEEP_SCENARIOS: dict[str, st.SearchStrategy[Scenario]] = {
    "BagSpec": bag_scenarios(),
    "SummarySpec": summary_scenarios(),
    "ToChangesSpec": to_changes_scenarios(),
    "ToIntervalsSpec": to_intervals_scenarios(),
    "DeliverSpec": deliver_scenarios(),
}
