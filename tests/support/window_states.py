"""Kernels that hold a window of rows, each with a stream that keeps the window full: what saving them costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from millstream.kernels.asof.spec import AsofSpec
from millstream.kernels.batch import BEGIN, Batch
from millstream.kernels.contract import Kernel, KernelSpec, State
from millstream.kernels.over import AheadSpec, Frame
from millstream.kernels.relations.bags import BagSpec
from millstream.kernels.relations.coalesce import CoalesceSpec
from millstream.kernels.relations.convert import ToChangesSpec
from millstream.kernels.relations.join import JoinSpec
from millstream.kernels.relations.rows_window import RowsWindowSpec
from millstream.kernels.relations.signs import with_signs
from millstream.kernels.relations.summary import SummarySpec
from millstream.kernels.relations.unroll import SplitSpec
from millstream.kernels.saving import states as saving
from millstream.kernels.streams.distinct import DistinctSpec
from millstream.kernels.streams.merge import MergeSpec
from millstream.kernels.streams.reorder import ReorderSpec
from millstream.kernels.streams.session import SessionSpec
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.relations import RowsWindow
from millstream.plan.windows import Between
from millstream.schema import Schema
from millstream.types import BIGINT, DOUBLE, VARCHAR

LEFT = Schema.of(k=BIGINT, x=DOUBLE, s=VARCHAR)
RIGHT = Schema.of(k=BIGINT, y=DOUBLE, t=VARCHAR)
_BOTH: tuple[tuple[Literal["left", "right"], str], ...] = (("left", "x"), ("left", "s"), ("right", "y"), ("right", "t"))
_PARTITIONS = 50

Turn = Callable[[int, int, int], list[Batch]]
"""The batches of one turn: which rows, by number from one to another, and how many the window holds."""


@dataclass(frozen=True)
class WindowState:
    """A kernel by the number of rows that its state is to hold, and its input, `turn` by turn. Row i is at time i."""

    name: str
    spec: Callable[[int], KernelSpec]
    turn: Turn
    stays: bool = False
    """whether something is left of the state when all input has ended"""

    def turns(self, window: int, rows: int, count: int, first: int = 0) -> Iterator[list[Batch]]:
        """Turns of so many rows each."""
        for turn in range(first, first + count):
            yield self.turn(turn * rows, (turn + 1) * rows, window)


@dataclass
class Store:
    """What a host keeps of a kernel's state."""

    kernel: Kernel
    pieces: dict[int, bytes]

    @staticmethod
    def of(kernel: Kernel) -> Store:
        return Store(kernel, {})

    def save(self, state: State) -> int:
        """Take changes in; how many bytes they have."""
        changes = saving.changes(self.kernel, state)
        for number, piece in changes.items():
            if piece is None:
                del self.pieces[number]
            else:
                self.pieces[number] = piece
        return sum(len(piece) for piece in changes.values() if piece is not None)

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces.values()))


def rows(first: int, stop: int, keys: int, port: int = 0, lasts: int | None = None, at: int | None = None) -> Batch:
    """Rows by number, valid for a while if that is given, or all at one time."""
    number = np.arange(first, stop)
    columns = [
        pa.array(number % keys),
        pa.array(number / 4),
        pa.array([f"text {each % 97}" for each in number.tolist()]),
    ]
    time = number if at is None else np.full(len(number), at)
    data = pa.RecordBatch.from_arrays(columns, schema=(LEFT, RIGHT)[port].arrow)
    upto = stop if at is None else at
    return Batch(data, time, number, upto, None if lasts is None else time + lasts, port)


def _sides(first: int, stop: int, window: int) -> list[Batch]:
    return [_events(rows(first, stop, window, port, window)) for port in (0, 1)]


def _valid(first: int, stop: int, window: int) -> list[Batch]:
    return [_events(rows(first, stop, 2 * window, 0, window))]


def _both_valid(first: int, stop: int, window: int) -> list[Batch]:
    """Every third row is in both inputs."""
    left = _valid(first, stop, window)[0]
    return [left, left.take(np.flatnonzero(left.time % 3 == 0)).on_port(1)]


def _events(batch: Batch) -> Batch:
    """A relation's rows, which have no numbers."""
    return Batch(batch.rows, batch.time, np.zeros(len(batch), dtype=np.int64), batch.upto, batch.other, batch.port)


def _changes(first: int, stop: int, window: int) -> list[Batch]:
    """The rows come, and those go that came a window before."""
    parts = []
    for port in (0, 1):
        came, went = rows(first, stop, window, port), rows(max(first - window, 0), max(stop - window, 0), window, port)
        data = pa.Table.from_batches([came.rows, went.rows]).combine_chunks().to_batches()[0]
        time = np.concatenate([came.time, went.time + window])
        signs = np.concatenate([np.ones(len(came)), -np.ones(len(went))]).astype(np.int64)
        fields = JoinSpec(LEFT, RIGHT, ("k",), _BOTH, form="changes").inputs[port]
        batch = Batch(with_signs(data, signs, fields), time, np.zeros(len(time), dtype=np.int64), stop, None, port)
        parts.append(batch.take(np.argsort(time, kind="stable")))
    return parts


def _latest(first: int, stop: int, window: int) -> list[Batch]:
    """Right rows of random keys, and no left ones."""
    chosen = np.random.default_rng(first).integers(0, window, stop - first)
    right = rows(first, stop, window, 1)
    keyed = pa.RecordBatch.from_arrays([pa.array(chosen), *right.rows.columns[1:]], schema=RIGHT.arrow)
    return [right.with_rows(keyed), Batch.empty(LEFT.arrow, stop)]


def _answered_late(first: int, stop: int, window: int) -> list[Batch]:
    """Left rows whose right rows come a window later."""
    late = rows(max(first - window, 0), max(stop - window, 0), 2 * window, 1)
    right = Batch(late.rows, late.time + window, late.seq, stop, None, 1)
    return [rows(first, stop, 2 * window), right]


def _one_lags(first: int, stop: int, window: int) -> list[Batch]:
    return [rows(first, stop, window), Batch.empty(LEFT.arrow, stop - window, 1)]


def _plain(first: int, stop: int, window: int) -> list[Batch]:
    return [rows(first, stop, 2 * window)]


def _arrivals(first: int, stop: int, window: int) -> list[Batch]:
    return [rows(first, stop, window).with_upto(BEGIN)]


def _partitioned(first: int, stop: int, window: int) -> list[Batch]:
    return [rows(first, stop, _PARTITIONS)]


def _one_instant(first: int, stop: int, window: int) -> list[Batch]:
    return [rows(first, stop, window, at=0)]


def _reaching(window: int) -> AheadSpec:
    return AheadSpec(
        LEFT, ("k",), (AggregateCall.over("m", "max", "x", Frame("range", Between(0, -window)), False, DOUBLE),)
    )


_CALLS: tuple[AggregateCall[str], ...] = (
    AggregateCall(("n",), "count", (), (BIGINT,)),
    AggregateCall(("total",), "sum", ("x",), (DOUBLE,)),
    AggregateCall(("most",), "max", ("x",), (DOUBLE,)),
    AggregateCall(("least",), "min", ("s",), (VARCHAR,)),
)

WINDOW_STATES = (
    WindowState("join", lambda _: JoinSpec(LEFT, RIGHT, ("k",), _BOTH), _sides),
    WindowState("outer join", lambda _: JoinSpec(LEFT, RIGHT, ("k",), _BOTH, "full"), _sides),
    WindowState(
        "join of changes", lambda _: JoinSpec(LEFT, RIGHT, ("k",), _BOTH, "left", form="changes"), _changes, True
    ),
    WindowState("session", lambda window: SessionSpec(LEFT, ("k",), window, BIGINT), _plain),
    WindowState(
        "rows window",
        lambda window: RowsWindowSpec(LEFT, RowsWindow(window // _PARTITIONS, ("k",)), "intervals"),
        _partitioned,
    ),
    WindowState(
        "rows window, changes",
        lambda window: RowsWindowSpec(LEFT, RowsWindow(window // _PARTITIONS, ("k",)), "changes"),
        _partitioned,
    ),
    WindowState("asof before", lambda _: AsofSpec(LEFT, RIGHT, ("k",), _BOTH, ">="), _latest, True),
    WindowState("asof after", lambda _: AsofSpec(LEFT, RIGHT, ("k",), _BOTH, "<="), _answered_late, True),
    WindowState("to changes", lambda _: ToChangesSpec(LEFT, ("k",)), _valid),
    WindowState("split", lambda window: SplitSpec(LEFT, window // 4), _valid),
    WindowState("coalesce", lambda window: CoalesceSpec(LEFT, 4 * window), _valid),
    WindowState("groups", lambda _: SummarySpec(LEFT, ("k",), _CALLS), _valid),
    WindowState("distinct rows", lambda _: BagSpec(LEFT, 1, "distinct"), _valid),
    WindowState("except all", lambda _: BagSpec(LEFT, 2, "except", all=True), _both_valid),
    WindowState("ahead", _reaching, _plain),
    WindowState("merge", lambda _: MergeSpec(LEFT, 2), _one_lags),
    WindowState("reorder", lambda window: ReorderSpec(LEFT, window), _arrivals),
)
"""Those whose windows slide on."""

GROWING = WindowState("distinct", lambda _: DistinctSpec(LEFT), _one_instant)
"""Holds the rows of one instant, however many there are."""
