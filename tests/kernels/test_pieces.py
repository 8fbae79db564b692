"""State saved in pieces: what is given, what is freed, what is refused; and stages chained into one kernel."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest

from millstream import types
from millstream.errors import StateError
from millstream.expressions.nodes import Call, Column, Literal
from millstream.kernels import jit
from millstream.kernels.batch import Batch
from millstream.kernels.compute import ComputeStage
from millstream.kernels.contract import Kernel
from millstream.kernels.over import Frame, OverSpec
from millstream.kernels.saving import snapshots
from millstream.kernels.saving import states as saving
from millstream.kernels.saving.pieces import KEYS_PER_PIECE
from millstream.kernels.streams.chain import ChainSpec, why_not_chained
from millstream.kernels.streams.distinct import DistinctSpec
from millstream.plan.aggregate_calls import AggregateCall
from millstream.schema import Schema
from millstream.types import BIGINT, DOUBLE, VARCHAR

INPUT = Schema.of(k=BIGINT, x=DOUBLE, s=VARCHAR)
WINDOW = 1_000


def spec_over(frame: Frame, keys: tuple[str, ...] = ("k",), schema: Schema = INPUT, name: str = "n") -> OverSpec:
    calls = (
        AggregateCall.over(f"{name}_sum", "sum", "x", frame, False, DOUBLE),
        AggregateCall.over(f"{name}_max", "max", "s", frame, False, VARCHAR),
        AggregateCall.over(f"{name}_kinds", "count", "s", frame, True, BIGINT),
    )
    return OverSpec(schema, keys, calls)


EXPIRING = spec_over(Frame("range", WINDOW))
LASTING = spec_over(Frame("rows", 3))


def rows(keys: np.ndarray, time: int) -> Batch:
    """One row of each key, all at one time, which has passed."""
    columns = [pa.array(keys), pa.array(keys / 2), pa.array([f"s{key % 7}" for key in keys.tolist()])]
    times = np.full(len(keys), time)
    return Batch(pa.RecordBatch.from_arrays(columns, schema=INPUT.arrow), times, np.arange(len(keys)), time + 1)


class Saved:
    """What a host keeps of a kernel's state."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.pieces: dict[int, bytes] = {}

    def save(self, state: object) -> dict[int, bytes | None]:
        changes = saving.changes(self.kernel, state)
        for number, piece in changes.items():
            if piece is None:
                del self.pieces[number]
            else:
                self.pieces[number] = piece
        return changes

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces.values()))


def keys_in(spec: OverSpec, changes: dict[int, bytes | None]) -> int:
    """How many keys were written."""
    pieces = [piece for number, piece in changes.items() if number and piece is not None]
    return sum(snapshots.load(spec, piece).rows("slots").num_rows for piece in pieces)


def test_keys_that_were_not_touched_are_not_saved_again() -> None:
    kernel = LASTING.build()
    saved = Saved(kernel)
    with jit.using("on", threads=2):
        state = kernel.open()
        kernel.step(state, rows(np.arange(20 * KEYS_PER_PIECE), 0))
        assert keys_in(LASTING, saved.save(state)) == 20 * KEYS_PER_PIECE
        assert len(saved.pieces) == 21
        scattered = np.arange(0, 20 * KEYS_PER_PIECE, 500)
        kernel.step(state, rows(scattered, 10))
        assert keys_in(LASTING, saved.save(state)) == len(scattered)
        state = saving.assemble(kernel, saved.pieces)
        kernel.step(state, rows(np.array([3, 10**6]), 20))
        assert keys_in(LASTING, saved.save(state)) == 2


def test_pieces_and_their_bytes_stay_in_proportion() -> None:
    kernel = LASTING.build()
    saved = Saved(kernel)
    chance = np.random.default_rng(1)
    touched = written = 0
    with jit.using("on", threads=1):
        state = kernel.open()
        for time in range(3):
            kernel.step(state, rows(np.arange(5_000), time))
        saved.save(state)
        alone = len(saving.snapshot(kernel, state))
        for time in range(3, 153):
            keys = chance.choice(5_000, 200, replace=False)
            kernel.step(state, rows(keys, time))
            touched += len(keys)
            written += keys_in(LASTING, saved.save(state))
            assert len(saved.pieces) <= 1 + 2 * 5 + 8
        assert written < 3 * touched
        assert saved.size < 3 * alone
        again = saving.assemble(kernel, saved.pieces)
        probe = rows(np.arange(5_000), 200)
        assert kernel.step(again, probe).rows.equals(kernel.step(state, probe).rows)


@pytest.mark.parametrize("restart", [False, True])
def test_expired_keys_are_freed(restart: bool) -> None:
    kernel = EXPIRING.build()
    saved = Saved(kernel)
    with jit.using("on", threads=1):
        state = kernel.open()
        kernel.step(state, rows(np.arange(8 * KEYS_PER_PIECE), 0))
        saved.save(state)
        full, count = saved.size, len(saved.pieces)
        for time in range(WINDOW // 2, 4 * WINDOW, WINDOW // 2):
            if restart:
                state = saving.assemble(kernel, saved.pieces)
            kernel.step(state, rows(np.arange(5), time))
            saved.save(state)
        assert len(state.keys) == 5
    assert count == 9
    assert len(saved.pieces) <= 3
    assert saved.size < full / 20


def test_a_kernel_without_keys_is_one_piece() -> None:
    kernel = spec_over(Frame("rows", 3), ()).build()
    saved = Saved(kernel)
    state = kernel.open()
    for time in range(20):
        kernel.step(state, rows(np.array([time]), time))
        saved.save(state)
        assert len(saved.pieces) == 2
    probe = rows(np.array([1]), 30)
    assert kernel.step(saving.assemble(kernel, saved.pieces), probe).rows.equals(kernel.step(state, probe).rows)


def test_nothing_new_is_nothing_to_save() -> None:
    kernel = EXPIRING.build()
    state = kernel.open()
    kernel.step(state, rows(np.arange(3), 5).with_upto(5))
    first = saving.changes(kernel, state)
    assert set(first) == {0}, "rows that wait for their peers are in the head"
    kernel.step(state, rows(np.arange(0), 5).with_upto(5))
    assert saving.changes(kernel, state) == {}
    kernel.step(state, rows(np.arange(0), 5).with_upto(6))
    assert set(saving.changes(kernel, state)) == {0, 1}
    distinct = DistinctSpec(INPUT).build()
    state = distinct.open()
    distinct.step(state, rows(np.arange(3), 5))
    assert set(saving.changes(distinct, state)) == {0}
    distinct.step(state, rows(np.arange(0), 5).with_upto(9))
    assert saving.changes(distinct, state) == {}


def test_foreign_and_mixed_pieces_are_refused() -> None:
    kernel = LASTING.build()
    state = kernel.open()
    saved = Saved(kernel)
    kernel.step(state, rows(np.arange(2 * KEYS_PER_PIECE), 0))
    saved.save(state)
    before = dict(saved.pieces)
    with pytest.raises(StateError, match="another query"):
        saving.assemble(EXPIRING.build(), before)
    for missing in before:
        with pytest.raises(StateError, match="incomplete"):
            saving.assemble(kernel, {number: piece for number, piece in before.items() if number != missing})
    with pytest.raises(StateError, match="incomplete"):
        saving.assemble(kernel, {0: saving.snapshot(kernel, state)})
    with pytest.raises(StateError, match="inconsistent"):
        saving.assemble(kernel, {0: before[0], 1: before[2], 2: before[1]})
    with pytest.raises(StateError, match="cannot be read"):
        saving.assemble(kernel, before | {1: before[1][:100]})
    kernel.step(state, rows(np.arange(2 * KEYS_PER_PIECE), 1))
    saved.save(state)
    with pytest.raises(StateError):
        saving.assemble(kernel, saved.pieces | {number: before[number] for number in saved.pieces if number in (1, 2)})
    distinct = DistinctSpec(INPUT).build()
    with pytest.raises(StateError, match="another query"):
        saving.assemble(distinct, {0: before[0]})
    with pytest.raises(StateError, match="another query"):
        saving.assemble(distinct, before)


def chain(limit: int, first: OverSpec = EXPIRING) -> ChainSpec:
    less = Call(types.BOOLEAN, "<", (Column(DOUBLE, "n_sum"), Literal(DOUBLE, float(limit))))
    columns = (("x", Column(DOUBLE, "n_sum")), ("key", Column(BIGINT, "k")), ("s", Column(VARCHAR, "s")))
    compute = ComputeStage(first.output, less, columns)
    return ChainSpec((first, compute, spec_over(Frame("rows", 1), ("key",), compute.output, "m")))


def test_a_chain_is_its_stages_in_turn() -> None:
    spec = pickle.loads(pickle.dumps(chain(3)))
    assert spec == chain(3)
    assert spec.keys == ("k",)
    assert spec.output.names == ("x", "key", "s", "m_sum", "m_max", "m_kinds")
    assert "→ compute x := n_sum, key := k, s := s where (n_sum < 3.0) → over by key" in spec.describe()
    kernel = spec.build()
    state = kernel.open()
    output = kernel.step(state, rows(np.array([2, 4, 9]), 5))
    assert output.rows.to_pydict()["key"] == [2, 4]
    output = kernel.step(state, rows(np.array([1, 2]), 6))
    assert output.rows.to_pydict()["m_sum"] == [0.5, 3.0]
    assert output.time.tolist() == [6, 6]
    assert output.upto == 7


def test_a_chain_refuses_what_another_chain_saved() -> None:
    kernel = chain(3).build()
    state = kernel.open()
    kernel.step(state, rows(np.arange(5), 5))
    pieces = {number: piece for number, piece in saving.changes(kernel, state).items() if piece is not None}
    other = chain(3, LASTING).build()
    with pytest.raises(StateError, match="another query"):
        saving.assemble(other, pieces)
    with pytest.raises(StateError, match="another query"):
        saving.restore(other, saving.snapshot(kernel, state))
    for missing in pieces:
        with pytest.raises(StateError, match="incomplete"):
            saving.assemble(kernel, {number: piece for number, piece in pieces.items() if number != missing})


def test_a_chain_goes_on_with_another_computation_between_its_kernels() -> None:
    kernel, other = chain(3).build(), chain(4).build()
    state = kernel.open()
    kernel.step(state, rows(np.array([2, 4, 9]), 5))
    pieces = {number: piece for number, piece in saving.changes(kernel, state).items() if piece is not None}
    for again in (saving.assemble(other, pieces), saving.restore(other, saving.snapshot(kernel, state))):
        assert other.step(again, rows(np.array([1, 2, 4]), 6)).rows.to_pydict()["m_sum"] == [0.5, 3.0]
        assert other.step(again, rows(np.array([1]), 7)).rows.to_pydict()["m_sum"] == [1.5]


def test_stages_that_do_not_belong_together_are_not_chained() -> None:
    keep = ComputeStage(EXPIRING.output, None, None)
    other_key = spec_over(Frame("rows", 1), ("s",), EXPIRING.output, "m")
    moved = (("k", Column(DOUBLE, "x")), ("x", Column(DOUBLE, "x")), ("s", Column(VARCHAR, "s")))
    compute = ComputeStage(INPUT, None, moved)
    computed = ComputeStage(INPUT, None, (("k", Call(DOUBLE, "+", (Column(DOUBLE, "x"),) * 2)), *moved[1:]))
    assert "no stage is a kernel" in str(why_not_chained((keep,)))
    assert "does not fit" in str(why_not_chained((EXPIRING, LASTING)))
    assert "different keys" in str(why_not_chained((EXPIRING, keep, other_key)))
    assert ChainSpec((compute, spec_over(Frame("rows", 1), ("k",), compute.output))).keys == ("x",)
    assert "computed" in str(why_not_chained((computed, spec_over(Frame("rows", 1), ("k",), computed.output))))
    with pytest.raises(ValueError, match="different keys"):
        ChainSpec((EXPIRING, keep, other_key))
