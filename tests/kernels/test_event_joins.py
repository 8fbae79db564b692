"""Kernels of joins of events, beside what they mean said row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from event_join_scenarios import COLUMNS, LEFT, OPS, RIGHT, Rows, events_of, timed
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_scenarios import Scenario, batches

from millstream.kernels import jit
from millstream.kernels.asof import AsofSpec
from millstream.kernels.asof.spec import UNMATCHED
from millstream.kernels.batch import FOREVER, Batch
from millstream.kernels.relations.starts import StartsStage
from millstream.plan.event_joins import Lasting
from millstream.schema import Schema
from millstream.types import BIGINT
from tiers import examples

COMPARE = {
    ">=": lambda left, right: left >= right,
    ">": lambda left, right: left > right,
    "<=": lambda left, right: left <= right,
    "<": lambda left, right: left < right,
}


def nearest(left: Rows, right: Rows, op: str, by: tuple[str, ...], outer: bool) -> list[tuple[Any, ...]]:
    """Each left row with the nearest right row, with the time at which that happened."""
    found = []
    for (k, a, s), time in left:
        fits = [
            (b, u, at)
            for (b, other, u), at in right
            if COMPARE[op](time, at) and (not by or (k is not None and k == other))
        ]
        if fits:
            b, u, at = fits[-1] if op in (">=", ">") else min(fits, key=lambda fit: fit[2])
            found.append((max(time, at), k, a, b, u, s))
        elif outer:
            found.append((time if op in (">=", ">") else UNMATCHED, k, a, None, None, s))
    return sorted(found, key=repr)


def rows_of(outputs: list[Batch]) -> list[tuple[Any, ...]]:
    return sorted(
        (
            (int(time), *row.values())
            for out in outputs
            for time, row in zip(out.time, out.rows.to_pylist(), strict=True)
        ),
        key=repr,
    )


@settings(deadline=None, max_examples=examples(300))
@given(data=st.data())
def test_asof_is_the_nearest_row(data: st.DataObject) -> None:
    op, outer = data.draw(st.sampled_from(OPS)), data.draw(st.booleans())
    by = data.draw(st.sampled_from([("k",), ()]))
    left, right = data.draw(timed(LEFT)), data.draw(timed(RIGHT))
    spec = AsofSpec(LEFT, RIGHT, by, COLUMNS, op, outer)
    inputs = data.draw(batches(Scenario(spec, (events_of(LEFT, left), events_of(RIGHT, right, 1)))))
    with jit.using("off", threads=1):
        kernel = spec.build()
        state = kernel.open()
        outputs = [kernel.step(state, batch) for batch in inputs]
    assert rows_of(outputs) == nearest(left, right, op, by, outer)


def random_rows(schema: Schema, size: int, seed: int, key: int) -> Rows:
    chance = np.random.default_rng(seed)
    times = np.sort(chance.integers(0, 3 * size, size))
    keys = chance.integers(0, 50, size)
    rows = []
    for i in range(size):
        values: list[Any] = [i, i, "x"]
        values[key] = int(keys[i])
        rows.append((tuple(values), int(times[i])))
    return rows


@pytest.mark.parametrize("op", OPS)
def test_compiled_equals_python_and_state_stays_small(op: str) -> None:
    left, right = random_rows(LEFT, 6_000, 1, 0), random_rows(RIGHT, 6_000, 2, 1)
    spec = AsofSpec(LEFT, RIGHT, ("k",), COLUMNS, op, True)
    sides = events_of(LEFT, left), events_of(RIGHT, right, 1)
    outcomes = []
    for mode in ("off", "on"):
        with jit.using(mode, threads=1):
            kernel = spec.build()
            state = kernel.open()
            outputs = []
            for start in range(0, 6_000, 400):
                for side in sides:
                    part = side.slice(start, start + 400)
                    outputs.append(kernel.step(state, part.with_upto(int(part.time[-1]))))
            # what is kept: a row for each key, and what the two sides are apart
            assert len(state.held) < 3_000
            outputs += [kernel.step(state, side.slice(0, 0).with_upto(FOREVER)) for side in sides]
        outcomes.append(rows_of(outputs))
    assert outcomes[0] == outcomes[1]
    assert len(outcomes[0]) == 6_000


def test_starts_leave_out_rows_that_had_a_match_at_another_time() -> None:
    schema = Schema.of(a=BIGINT, b=BIGINT)
    rows = events_of(schema, [((1, None), 0), ((2, None), 0), ((2, 7), 3), ((3, 8), 5)])
    relation = Batch(rows.rows, rows.time, rows.seq, 9, rows.time + np.array([5, 3, 2, 5]))
    out = StartsStage(schema, (Lasting("b", 5),)).step(relation)
    assert rows_of([out]) == [(0, 1, None), (3, 2, 7), (5, 3, 8)]
    assert (out.other, out.upto) == (None, 9)
    alone = StartsStage(schema, (Lasting(None, 5),)).step(relation)
    assert rows_of([alone]) == [(0, 1, None), (5, 3, 8)]
