"""Random inputs for kernels of joins of events, for the laws of kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from kernel_scenarios import Scenario

from millstream.kernels.asof import AsofSpec
from millstream.kernels.batch import FOREVER, Batch
from millstream.kernels.relations.at_window_end import AtWindowEndSpec
from millstream.kernels.streams.hop import WindowStage
from millstream.plan.window_tables import END, Cumulating, Hopping
from millstream.schema import Schema
from millstream.types import BIGINT, VARCHAR

LEFT = Schema.of(k=BIGINT, a=BIGINT, s=VARCHAR)
RIGHT = Schema.of(b=BIGINT, k=BIGINT, u=VARCHAR)
COLUMNS = (("left", "k"), ("left", "a"), ("right", "b"), ("right", "u"), ("left", "s"))
OPS = (">=", ">", "<=", "<")
Rows = list[tuple[tuple[Any, ...], int]]


def events_of(schema: Schema, rows: Rows, port: int = 0) -> Batch:
    """Rows, in order of their times, that arrived in this order."""
    columns = [pa.array([row[0][i] for row in rows], field.type.arrow) for i, field in enumerate(schema)]
    time = np.array([row[1] for row in rows], dtype=np.int64)
    rows_ = pa.RecordBatch.from_arrays(columns, schema=schema.arrow)
    return Batch(rows_, time, np.arange(len(rows), dtype=np.int64), FOREVER, None, port)


@st.composite
def timed(draw: st.DrawFn, schema: Schema) -> Rows:
    """Rows with ties, gaps and NULL keys."""
    value = {
        "k": st.sampled_from([1, 2, 3, None]), "a": st.integers(0, 99), "b": st.integers(0, 99) | st.none(),
        "s": st.sampled_from(["p", None]), "u": st.sampled_from(["q", "r"]),
    }  # fmt: skip
    row = st.tuples(*(value[name] for name in schema.names))
    return sorted(draw(st.lists(st.tuples(row, st.integers(0, 9)), max_size=12)), key=lambda row: row[1])


@st.composite
def asof_scenarios(draw: st.DrawFn) -> Scenario:
    by = draw(st.sampled_from([("k",), ("k",), ()]))
    spec = AsofSpec(LEFT, RIGHT, by, COLUMNS, draw(st.sampled_from(OPS)), draw(st.booleans()))
    return Scenario(spec, (events_of(LEFT, draw(timed(LEFT))), events_of(RIGHT, draw(timed(RIGHT)), 1)))


@st.composite
def window_end_scenarios(draw: st.DrawFn) -> Scenario:
    windows = draw(st.sampled_from([Hopping(4, 4), Hopping(6, 2), Hopping(2, 5), Cumulating(6, 2)]))
    stage = WindowStage(LEFT, windows, BIGINT)
    rows = stage.step(events_of(LEFT, draw(timed(LEFT))))
    return Scenario(AtWindowEndSpec(stage.output, END, draw(st.booleans())), (rows,))


EVENT_JOIN_SCENARIOS: dict[str, st.SearchStrategy[Scenario]] = {
    "AsofSpec": asof_scenarios(),
    "AtWindowEndSpec": window_end_scenarios(),
}
