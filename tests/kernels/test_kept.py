"""State that is rows, saved in pieces: what is written, what is dropped, how it grows, and what comes back."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from millstream.errors import StateError
from millstream.kernels import jit
from millstream.kernels.batch import FOREVER, Batch
from millstream.kernels.contract import Kernel
from millstream.kernels.relations.summary import SummarySpec
from millstream.kernels.saving import states as saving
from millstream.plan.aggregate_calls import AggregateCall
from millstream.types import BIGINT
from tests.support.window_states import GROWING, LEFT, WINDOW_STATES, Store, WindowState, rows
from tiers import THOROUGH

ROWS = 100
"""of each turn"""

each = pytest.mark.parametrize("case", WINDOW_STATES, ids=lambda case: case.name)


def feed(kernel: Kernel, state: Any, turn: list[Batch]) -> None:
    """A turn whose results nobody looks at."""
    for batch in turn:
        kernel.step(state, batch)


def run(kernel: Kernel, state: Any, turn: list[Batch]) -> list[Any]:
    """What comes of a turn, row by row."""
    found: list[Any] = []
    for batch in turn:
        out = kernel.step(state, batch)
        others = out.time if out.other is None else out.other
        lines = zip(out.time.tolist(), out.seq.tolist(), others.tolist(), out.rows.to_pylist(), strict=True)
        found += [repr(line) for line in lines]
    return found


def written(case: WindowState, window: int) -> tuple[float, int]:
    """Bytes for each row that comes while the window stays full, and those of the whole state."""
    kernel = case.spec(window).build()
    state, store = kernel.open(), Store.of(kernel)
    full = 2 * window // ROWS
    for turn in case.turns(window, ROWS, full):
        feed(kernel, state, turn)
    store.save(state)
    total, turns = 0, 30
    for turn in case.turns(window, ROWS, turns, full):
        feed(kernel, state, turn)
        total += store.save(state)
    return total / (turns * ROWS), len(saving.snapshot(kernel, state))


@pytest.mark.parametrize("case", [*WINDOW_STATES, GROWING], ids=lambda case: case.name)
def test_what_is_written_does_not_grow_with_the_window(case: WindowState) -> None:
    with jit.using("off", threads=1):
        small, whole = written(case, 500)
        large, ten_times = written(case, 5_000)
    assert ten_times > 3 * whole
    assert large < 1.5 * small + 50
    assert large * ROWS < ten_times / 10


@each
def test_space_is_bounded_and_what_has_expired_is_dropped(case: WindowState) -> None:
    window = 1_000
    kernel = case.spec(window).build()
    state, store = kernel.open(), Store.of(kernel)
    most = 0
    with (
        jit.using("off", threads=1),
        patch.multiple("millstream.kernels.saving.pieces", KEYS_PER_PIECE=128, _SPARE_PIECES=2),
    ):
        for number, turn in enumerate(case.turns(window, 25, 200)):
            feed(kernel, state, turn)
            store.save(state)
            if number > 2 * window // 25:
                most = max(most, store.size)
                assert store.size < 3 * len(saving.snapshot(kernel, state)) + 60_000
        for turn in case.turns(window, 25, 1, 10_000):
            for batch in turn:
                kernel.step(state, batch.slice(0, 0).with_upto(FOREVER))
        store.save(state)
    if not case.stays:
        assert store.size < max(most / 10, 12_000)
        assert len(store.pieces) < 6


@each
@pytest.mark.parametrize("restart", [3, 7] if THOROUGH else [5])
def test_pieces_of_any_moment_are_a_snapshot(case: WindowState, restart: int) -> None:
    """A state that is saved after every few rows and put together again goes on as if nothing had happened, and is told
    from one that comes from a snapshot by nothing."""
    window = 300
    kernel = case.spec(window).build()
    alone, state = kernel.open(), kernel.open()
    store = Store.of(kernel)
    with (
        jit.using("off", threads=1),
        patch.multiple("millstream.kernels.saving.pieces", KEYS_PER_PIECE=16, _SPARE_PIECES=1),
    ):
        for number, turn in enumerate(case.turns(window, 7, 90)):
            assert run(kernel, state, turn) == run(kernel, alone, turn)
            store.save(state)
            if number % restart == 0:
                again = saving.assemble(kernel, store.pieces)
                assert saving.changes(kernel, again) == {}
                if case.name != "ahead":  # the OVER in it has its keys in another order
                    assert saving.snapshot(kernel, again) == saving.snapshot(
                        kernel, saving.restore(kernel, saving.snapshot(kernel, state))
                    )
                state = again


def test_rows_of_one_instant_are_written_once() -> None:
    kernel = GROWING.spec(0).build()
    state, store = kernel.open(), Store.of(kernel)
    sizes = []
    with jit.using("off", threads=1):
        for turn in GROWING.turns(10**6, ROWS, 60):
            feed(kernel, state, turn)
            sizes.append(store.save(state))
        # As a whole, the rows would have been written thirty times.
        assert sum(sizes) < 4 * len(saving.snapshot(kernel, state))
        again = saving.assemble(kernel, store.pieces)
        last = next(GROWING.turns(10**6, ROWS, 1, 30))
        assert run(kernel, again, last) == []
        kernel.step(state, last[0].slice(0, 0).with_upto(1))
        store.save(state)
        assert len(store.pieces) == 1


@each
def test_what_an_earlier_version_saved_is_refused(case: WindowState) -> None:
    kernel = case.spec(1_000).build()
    state = kernel.open()
    with jit.using("off", threads=1):
        for turn in case.turns(1_000, ROWS, 3):
            feed(kernel, state, turn)
        with pytest.raises(StateError, match="incomplete"):
            saving.assemble(kernel, {0: saving.snapshot(kernel, state)})
        with patch("millstream.kernels.saving.snapshots.FORMAT", "1"):
            old = saving.snapshot(kernel, state)
        for read in (partial(saving.restore, kernel), lambda saved: saving.assemble(kernel, {0: saved})):
            with pytest.raises(StateError, match="another format") as caught:
                read(old)
            assert "format 1, this version reads 3" in str(caught.value.detail)


def test_a_result_that_lasts_goes_on_after_a_restart() -> None:
    spec = SummarySpec(LEFT, (), (AggregateCall(("n",), "count", ("s",), (BIGINT,), distinct=True),))
    same = rows(0, 4, 1, lasts=1)
    texts = pa.RecordBatch.from_arrays([*same.rows.columns[:2], pa.array(["one"] * 4)], schema=LEFT.arrow)
    zeros = np.zeros(4, dtype=np.int64)
    batch = Batch(texts, np.array([0, 0, 0, 1]), zeros, 1, np.array([1, 1, 2, 2]))
    kernel = spec.build()
    with jit.using("off", threads=1):
        for again in (
            lambda state: saving.restore(kernel, saving.snapshot(kernel, state)),
            lambda state: saving.assemble(kernel, saving.changes(kernel, state)),
        ):
            state = kernel.open()
            assert run(kernel, state, [batch]) == []
            assert run(kernel, again(state), [batch.slice(0, 0).with_upto(FOREVER)]) == [repr((0, 0, 2, {"n": 1}))]
