"""Random joins of relations, for the laws of kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from kernel_scenarios import Scenario

from millstream.expressions.nodes import Call, Column
from millstream.kernels.batch import FOREVER, Batch
from millstream.kernels.relations.join import JoinSpec
from millstream.schema import Schema
from millstream.types import BIGINT, BOOLEAN, VARCHAR

LEFT = Schema.of(k=BIGINT, a=BIGINT, s=VARCHAR)
RIGHT = Schema.of(b=BIGINT, k=BIGINT, u=VARCHAR)
BOTH = (("left", "k"), ("left", "a"), ("right", "b"), ("right", "u"), ("left", "s"))
OWN = (("left", "s"), ("left", "a"))
LESS = Call(BOOLEAN, "<=", (Column(BIGINT, "a"), Column(BIGINT, "b")))
HOWS = ("inner", "left", "right", "full", "semi", "anti")
Rows = list[tuple[tuple[Any, ...], int, int]]


def spec_of(how: str, by: tuple[str, ...] = ("k",), residual: Any = None, form: str = "intervals") -> JoinSpec:
    return JoinSpec(LEFT, RIGHT, by, OWN if how in ("semi", "anti") else BOTH, how, residual, form)


def relation(schema: Schema, rows: Rows, port: int) -> Batch:
    """Rows with their validity."""
    rows = sorted(rows, key=lambda row: row[1])
    time, other = (np.array([row[i] for row in rows], dtype=np.int64) for i in (1, 2))
    return Batch(_columns(schema, [row[0] for row in rows]), time, _zeros(rows), FOREVER, other, port)


def changes(schema: Schema, rows: Rows, port: int, back: bool = False) -> Batch:
    """The same, as changes; of those of an instant the last ones first if `back`."""
    signed = [(start, values, 1) for values, start, _ in rows]
    signed += [(end, values, -1) for values, _, end in rows if end != FOREVER]
    signed = sorted(signed[::-1] if back else signed, key=lambda change: change[0])
    time = np.array([change[0] for change in signed], dtype=np.int64)
    return Batch(
        _columns(schema, [(*values, sign) for _, values, sign in signed]), time, _zeros(signed), FOREVER, None, port
    )


def _columns(schema: Schema, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = [pa.array([row[i] for row in rows], field.type.arrow) for i, field in enumerate(schema)]
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow)


def _zeros(rows: list[Any]) -> Any:
    return np.zeros(len(rows), dtype=np.int64)


@st.composite
def relations(draw: st.DrawFn, schema: Schema) -> Rows:
    """Rows with ties, NULL keys, open ends, and ends in any order."""
    value = {
        "k": st.sampled_from([1, 2, 3, None]), "a": st.integers(0, 2), "b": st.integers(0, 2) | st.none(),
        "s": st.sampled_from(["p", None]), "u": st.sampled_from(["q", "r"]),
    }  # fmt: skip
    row = st.tuples(*(value[name] for name in schema.names))
    drawn = st.tuples(row, st.integers(0, 8), st.integers(1, 6) | st.none())
    rows = []
    for values, start, length in draw(st.lists(drawn, max_size=8)):
        rows.append((values, start, FOREVER if length is None else start + length))
    return sorted(rows, key=lambda row: row[1])


@st.composite
def specs(draw: st.DrawFn, how: str, form: str) -> JoinSpec:
    return spec_of(how, draw(st.sampled_from([("k",), ("k",), ()])), draw(st.sampled_from([None, LESS])), form)


def inputs_of(spec: JoinSpec, left: Rows, right: Rows, back: bool = False) -> tuple[Batch, Batch]:
    if spec.form == "intervals":
        return relation(LEFT, left, 0), relation(RIGHT, right, 1)
    return changes(spec.inputs[0], left, 0, back), changes(spec.inputs[1], right, 1, back)


@st.composite
def join_scenarios(draw: st.DrawFn) -> Scenario:
    spec = draw(specs(draw(st.sampled_from(HOWS)), draw(st.sampled_from(["intervals", "changes"]))))
    left, right = draw(relations(LEFT)), draw(relations(RIGHT))
    return Scenario(spec, inputs_of(spec, left, right, draw(st.booleans())))


JOIN_SCENARIOS: dict[str, st.SearchStrategy[Scenario]] = {"JoinSpec": join_scenarios()}
