"""What a search has told at the end of its input is not told again by a state that was saved right after it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pattern_searches import FALLS, HERE, RISES, A, B, plus, search, seq

from millstream.kernels.batch import FOREVER, Batch
from millstream.kernels.patterns.kernel import MatchKernel, MatchState
from millstream.kernels.patterns.spec import MatchSpec
from millstream.kernels.saving import states as saving
from millstream.plan.patterns.search import MATCH_NUMBER, Given, Reach, Search, Skip
from millstream.schema import Schema
from millstream.types import BIGINT

INPUT = Schema.of(k=BIGINT, x=BIGINT)
SINCE = Reach("since", "x", BIGINT, first=True)
ALL = {MATCH_NUMBER, SINCE.name, HERE.name}
# Partition 1 is told at once and then under way again, 2 waits for a lower number or the end, 3 will never match.
ROWS = [(1, 9), (2, 8), (1, 7), (3, 1), (2, 6), (1, 8), (2, 4), (1, 5), (3, 2)]
FALLING = search(seq(A, plus(B)), (MATCH_NUMBER, SINCE, HERE), rows="one", B=FALLS).telling(ALL)
SEARCHES = {
    "one row": FALLING,
    "all rows": replace(FALLING, given=Given("all")),
    "unmatched rows": replace(FALLING, given=Given("all", unmatched=True)),
    "to next row": replace(FALLING, skip=Skip("next")),
    "each row": replace(FALLING, given=Given("each", most=3)),
    "within": replace(FALLING, within=100),
    "timeouts": search(seq(A, B), (SINCE, HERE), rows="one", within=100, timeouts=True, B=RISES).telling(ALL),
}


def batch_of(rows: list[tuple[int, int]], upto: int) -> Batch:
    keys, numbers = (pa.array(values, pa.int64()) for values in zip(*rows, strict=True))
    times = np.arange(1, len(rows) + 1)
    return Batch(pa.RecordBatch.from_arrays([keys, numbers], schema=INPUT.arrow), times, times.copy(), upto)


def told(kernel: MatchKernel, state: MatchState) -> list[dict[str, Any]]:
    """What the end of the input makes certain."""
    rows: list[dict[str, Any]] = kernel.step(state, Batch.empty(INPUT.arrow, FOREVER)).rows.to_pylist()
    return rows


def _kept(pieces: dict[int, bytes | None]) -> dict[int, bytes]:
    return {number: piece for number, piece in pieces.items() if piece is not None}


@pytest.mark.parametrize("general", [False, True], ids=["chosen", "threads"])
@pytest.mark.parametrize("keys", [("k",), ()], ids=["by key", "as one"])
@pytest.mark.parametrize("searched", SEARCHES.values(), ids=SEARCHES.keys())
def test_saved_right_after_the_end(searched: Search, keys: tuple[str, ...], general: bool) -> None:
    kernel = MatchKernel(MatchSpec(INPUT, replace(searched, keys=keys)), general)
    state = kernel.open()
    kernel.step(state, batch_of(ROWS, len(ROWS)))
    before = _kept(saving.changes(kernel, state))

    at_the_end = told(kernel, state)
    assert at_the_end
    after = _kept(before | saving.changes(kernel, state))

    assert told(kernel, saving.assemble(kernel, before)) == at_the_end
    assert told(kernel, state) == []
    assert told(kernel, saving.assemble(kernel, after)) == []
    assert told(kernel, saving.restore(kernel, saving.snapshot(kernel, state))) == []
    assert saving.changes(kernel, saving.assemble(kernel, after)) == {}
