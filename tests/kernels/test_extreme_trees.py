"""The trees in which changes keep the values of extremes: what they hold, and how deep they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from relation_scenarios import as_changes

from millstream.kernels import jit
from millstream.kernels.batch import FOREVER, Batch
from millstream.kernels.relations.summary import SummarySpec
from millstream.kernels.relations.tree_loops import LEFT, NODE, RIGHT, VALUE
from millstream.plan.aggregate_calls import AggregateCall
from millstream.schema import Schema
from millstream.types import DOUBLE

NUMBERS = Schema.of(x=DOUBLE)


def extremes(form: Any = "changes") -> SummarySpec:
    calls = tuple(AggregateCall((fn,), fn, ("x",), (DOUBLE,)) for fn in ("min", "max"))
    return SummarySpec(NUMBERS, (), calls, form)


def changes(values: Any, size: int) -> Batch:
    """One value at each instant, in a window of so many."""
    time = np.arange(len(values))
    rows = pa.RecordBatch.from_arrays([pa.array(values, pa.float64())], schema=NUMBERS.arrow)
    return as_changes(Batch(rows, time, np.zeros(len(time), dtype=np.int64), FOREVER, time + size), NUMBERS)


def depth(nodes: Any, node: int) -> int:
    waiting, deepest = [(node, 1)], 0
    while waiting:
        node, level = waiting.pop()
        if node:
            deepest = max(deepest, level)
            waiting += [(int(nodes[NODE * node + side]), level + 1) for side in (LEFT, RIGHT)]
    return deepest


def in_order(nodes: Any, node: int) -> list[float]:
    if node == 0:
        return []
    below = (in_order(nodes, int(nodes[NODE * node + side])) for side in (LEFT, RIGHT))
    left, right = below
    return [*left, float(nodes.view(np.float64)[NODE * node + VALUE]), *right]


ORDERS = {
    "rising": lambda size: np.arange(size) / 2,
    "falling": lambda size: -np.arange(size) / 2,
    "to and fro": lambda size: np.where(np.arange(size) % 2, 1, -1) * np.arange(size),
    "any": lambda size: np.random.default_rng(1).normal(size=size),
}


@pytest.mark.parametrize("order", ORDERS)
def test_paths_are_short_whatever_comes(order: str) -> None:
    kernel = extremes().build()
    depths = {}
    for size in (400, 4_000):
        state = kernel.open()
        # twice what the window holds, so that nodes are used again; and not yet the end, at which all goes
        batch = changes(ORDERS[order](2 * size), size)
        came = int(np.searchsorted(batch.time, 2 * size))
        with jit.using("on"):
            kernel.step(state, batch.slice(0, came).with_upto(2 * size - 1))
        root = int(state.groups.lanes[0, kernel.layout.stairs[0]])
        held = in_order(state.extras.steps, root)
        assert held == sorted(held) and len(held) == size
        depths[size] = depth(state.extras.steps, root)
    # A balanced tree of 4,000 has 12 levels; a random one about three times as many.
    assert depths[4_000] < 48
    assert depths[4_000] < 2.5 * depths[400]


def test_values_that_compare_oddly() -> None:
    odd = [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 5e-324, -1.5, None]
    chance = np.random.default_rng(2)
    values = [odd[i] for i in chance.integers(0, len(odd), 300)]
    kernel = extremes().build()
    state = kernel.open()
    with jit.using("off"):
        out = kernel.step(state, changes(values, 4))
    told = {
        time: (row["min"], row["max"])
        for row, time in zip(out.rows.to_pylist(), out.time.tolist(), strict=True)
        if row["$sign"] > 0
    }

    def key(value: float) -> tuple[bool, float]:
        return value != value, value

    def same(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
        return all(a == b or (a != a and b != b) for a, b in zip(one, other, strict=True))

    shown: tuple[Any, Any] = ("nothing", "yet")
    for time in range(len(values)):
        known = [value for value in values[max(0, time - 3) : time + 1] if value is not None]
        wanted = (min(known, key=key), max(known, key=key)) if known else (None, None)
        # what does not change is not told again
        assert same(shown, wanted) == (time not in told)
        shown = told.get(time, shown)
        assert same(shown, wanted)
    assert not np.any(state.groups.lanes[:, kernel.layout.stairs])


def test_least_and_greatest_share_a_tree() -> None:
    assert len(extremes().build().layout.stairs) == 1
    assert len(extremes("intervals").build().layout.stairs) == 2
