"""The content of a relation at an instant: delivered rows that are still valid, and those that are about to be."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millstream.hosts.embedded.graph import Vertex
from millstream.hosts.embedded.operators import Operator, RunKernel
from millstream.hosts.validity import ends_of
from millstream.kernels.batch import BEGIN, FOREVER, Batch, concat
from millstream.kernels.relations.signs import SIGN
from millstream.physical.nodes import Apply, Compute, Staged, TableJoin


class ValidRows:
    """Delivered rows whose last two columns bound their validity, kept until time has passed it."""

    def __init__(self, batches: list[pa.RecordBatch] | None = None, since: int = BEGIN) -> None:
        self._batches = [(int(ends_of(rows).max(initial=BEGIN)), rows) for rows in batches or []]
        self.since = since
        """the earliest instant whose content is still known"""

    def add(self, rows: pa.RecordBatch, upto: int) -> None:
        """Take rows in; those that have ended by `upto` may go."""
        if rows.num_rows:
            self._batches.append((int(ends_of(rows).max()), rows))
        if self.since < upto:
            self.since = upto
            self._batches = [(end, rows) for end, rows in self._batches if end > upto]

    @property
    def until(self) -> int:
        """When the last of the rows ends."""
        return max((end for end, _ in self._batches), default=BEGIN)

    @property
    def batches(self) -> list[pa.RecordBatch]:
        return [rows for _, rows in self._batches]


def still_to_come(top: Vertex, at: int) -> list[pa.RecordBatch]:
    """What a query would still deliver if all its inputs ended now, as far as it is valid at an instant; what runs is
    not changed by it."""
    seen: set[tuple[Vertex, bool]] = set()
    done: dict[Vertex, Batch] = {}

    def need(vertex: Vertex, whole: bool) -> None:
        if (vertex, whole) not in seen:
            seen.add((vertex, whole))
            for source in vertex.inputs:
                need(source, whole or not _is_by_instant(vertex))

    def output(vertex: Vertex) -> Batch:
        if vertex not in done:
            copy = _copied(vertex.operator)
            arriving = [output(source).on_port(port) for port, source in enumerate(vertex.inputs)]
            made = [copy.step(batch) for batch in arriving or [Batch.empty(vertex.operator.schema.arrow, FOREVER)]]
            if (vertex, True) not in seen:
                made = [_cut(batch, at) for batch in made]
            done[vertex] = concat([batch for batch in made if len(batch)] or made[-1:], FOREVER)
        return done[vertex]

    need(top, False)
    made = output(top)
    return [made.rows] if len(made) else []


def _is_by_instant(vertex: Vertex) -> bool:
    """Whether what an operator gives at an instant depends on what it gets at that instant alone: then other rows need
    not pass through copies, and work does not grow from join to join. Kernels and stages say so of themselves."""
    match vertex.key:
        case (Apply(spec=spec), *_):
            return getattr(spec, "by_instant", False)
        case (Staged(stage=stage), *_):
            return getattr(stage, "by_instant", False)
        case (Compute() | TableJoin(), *_):
            return True
    return False


def _cut(batch: Batch, at: int) -> Batch:
    """The rows of a relation that are valid at an instant, or the changes up to it."""
    if batch.other is not None:
        return batch.take(np.flatnonzero((batch.time <= at) & (batch.other > at)))
    if SIGN.name in batch.rows.schema.names:
        return batch.slice(0, int(np.searchsorted(batch.time, at, side="right")))
    return batch


def _copied(operator: Operator) -> Operator:
    if not isinstance(operator, RunKernel):
        return operator
    copy = RunKernel(operator.spec)
    saved = operator.snapshot()
    assert saved is not None
    copy.restore(saved)
    return copy
