"""The first rows of large groups: what is sorted at all includes them, whatever the order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millstream.kernels.programs.arranged import FirstRows

RANDOM = np.random.default_rng(7)


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("nulls", [0.0, 0.3, 0.999])
@pytest.mark.parametrize("kind", ["int64", "float64", "string", "timestamp"])
def test_the_first_rows_are_candidates(kind: str, nulls: float, down: bool) -> None:
    owner = RANDOM.integers(0, 2, 4_000) * RANDOM.integers(0, 2, 4_000)
    numbers = RANDOM.integers(0, 900, 4_000)
    missing = RANDOM.random(4_000) < nulls
    values = pa.array(numbers, mask=missing)
    if kind != "int64":
        values = values.cast(pa.timestamp("us") if kind == "timestamp" else pa.type_for_alias(kind))
    found = FirstRows("v", down, 20).candidates(owner, pa.record_batch([values], names=["v"]))
    for group in (0, 1):
        known = [(value, i) for i, value in enumerate(values.to_pylist()) if owner[i] == group and value is not None]
        first = sorted(known, key=lambda pair: pair[0], reverse=down)[:20]
        wanted = {i for value, i in known if (value >= first[-1][0] if down else value <= first[-1][0])}
        unknown = set(np.flatnonzero(missing & (owner == group)).tolist())
        mine = {i for i in found.tolist() if owner[i] == group}
        assert wanted | unknown <= mine
        if len(known) > 20:
            assert mine == wanted | unknown


def test_nan_leaves_all_rows() -> None:
    values = pa.array([float("nan"), *range(2_000)])
    found = FirstRows("v", True, 3).candidates(np.zeros(2_001, dtype=np.int64), pa.record_batch([values], names=["v"]))
    assert len(found) == 2_001
