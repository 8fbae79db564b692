"""Intervals on Spark: the end of a relation's row, or the start of an event that lasts, travels as one more column,
which only kernels know about.

A window with SLIDE, and coarser time, move rows to a later start. On the way to a kernel rows keep the times that they
came with, by which they are late or not, and the kernel sees them at their starts.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from millstream.expressions.nodes import Column
from millstream.kernels.batch import Batch
from millstream.kernels.contract import Kernel, KernelSpec, Partials, RowStage, State, partials_of
from millstream.kernels.relations.stages import CoarsenStage, RangeStage
from millstream.kernels.saving.content import Content
from millstream.kernels.saving.snapshots import Saved
from millstream.kernels.streams.merge import MergeSpec
from millstream.physical.nodes import Apply, Compute, Physical, Staged, TableJoin
from millstream.plan.nodes import passthrough, table_join_schema
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import BIGINT

UNTIL = Field("$until", BIGINT)


Moving = RangeStage | CoarsenStage
"""Stages after which rows start later than they came."""


def with_ends(node: Physical, keeps: bool = False) -> Physical:
    """The plan with the other time of rows that have two as a last column; whether they keep their times for a kernel
    above, which moves them."""
    if isinstance(node, Apply) and not isinstance(node.spec, MergeSpec):
        below = tuple(with_ends(child, bool(_moves(child))) for child in node.inputs)
    else:
        keep = keeps and not (isinstance(node, Staged) and not isinstance(node.stage, CoarsenStage))
        below = tuple(with_ends(child, keep) for child in node.inputs)
    two = _has_two(node)
    schema = _ended(node.schema) if two else node.schema
    match node:
        case Compute(columns=columns):
            if two and columns is not None:
                columns = (*columns, (UNTIL.name, Column(UNTIL.type, UNTIL.name)))
            return replace(node, schema=schema, input=below[0], columns=columns)
        case TableJoin():
            own = table_join_schema(below[0].schema, node.table.schema, node.how, node.mark)
            joined = replace(node, input=below[0], schema=own, kept=None)
            joined = joined if node.kept is None else joined.keeping(frozenset(node.kept))
            if not two:
                return joined
            return Compute(schema, joined, None, passthrough(schema), spans=node.spans, lasts=node.lasts)
        case Staged(input=inner, stage=stage):
            moves = _moves(inner) if keeps and _moves(node) else None
            return replace(node, schema=schema, input=below[0], stage=_stage(stage, _has_two(inner), two, moves))
        case Apply(over=over, spec=spec):
            if isinstance(spec, MergeSpec):
                return replace(node, schema=schema, over=below, spec=replace(spec, input=schema))
            takes = tuple(map(_has_two, over))
            return replace(node, schema=schema, over=below, spec=_spec(spec, takes, two, tuple(map(_moves, over))))
    return node


def _moves(node: Physical) -> tuple[Moving, ...]:
    """What moves the rows of a relation on their way to a kernel; nothing if branches of a union differ."""
    match node:
        case Staged(input=below, stage=CoarsenStage() as stage):
            return (*_moves(below), stage)
        case Staged(stage=RangeStage(window=window) as stage) if window.slide > 1:
            return (stage,)
        case Compute(input=below) | TableJoin(input=below):
            return _moves(below)
        case Apply(over=over, spec=MergeSpec()):
            first, *others = map(_moves, over)
            return first if all(other == first for other in others) else ()
    return ()


def _moved(batch: Batch, moves: tuple[Moving, ...]) -> Batch:
    for stage in moves:
        batch = stage.moved(batch)
    return batch


def _has_two(node: Physical) -> bool:
    """Whether rows have a second time: an interval of validity, or a start of their own."""
    return node.spans or node.lasts


@dataclass(frozen=True)
class EndedStage:
    """A stage whose rows bring or take along the ends of their validity."""

    stage: RowStage
    takes: bool
    gives: bool
    moves: tuple[Moving, ...] | None = None
    """what the kernel above will do to times, before this stage's part in it; None if rows do not keep their times"""

    @property
    def output(self) -> Schema:
        return _ended(self.stage.output) if self.gives else self.stage.output

    @property
    def most(self) -> int:
        return self.stage.most

    def numbered(self, spread: int) -> RowStage:
        return replace(self, stage=self.stage.numbered(spread))

    def step(self, batch: Batch) -> Batch:
        given = _taken(batch) if self.takes else batch
        out = self.stage.step(given) if self.moves is None else self._keeping(given, self.moves)
        return _given(out, self.output) if self.gives else out

    def _keeping(self, batch: Batch, moves: tuple[Moving, ...]) -> Batch:
        """Rows with the ends of their validity, at the times that they came with."""
        if not len(batch):
            return self.stage.step(batch).with_upto(batch.upto)
        names = [*batch.rows.schema.names, "$came"]
        rows = pa.RecordBatch.from_arrays([*batch.rows.columns, pa.array(batch.time)], names=names)
        out = self.stage.step(_moved(batch.with_rows(rows), moves))
        *columns, came = out.rows.columns
        kept = pa.RecordBatch.from_arrays(columns, schema=self.stage.output.arrow)
        return replace(out, rows=kept, time=came.to_numpy(), upto=batch.upto)

    def describe(self) -> str:
        return self.stage.describe()


@dataclass(frozen=True)
class EndedSpec:
    """A kernel some of whose inputs, or whose output, are relations; `takes` tells of each input."""

    spec: KernelSpec
    takes: tuple[bool, ...]
    gives: bool
    moves: tuple[tuple[Moving, ...], ...]
    """of each input, how rows come to their starts"""

    @property
    def inputs(self) -> tuple[Schema, ...]:
        return tuple(
            _ended(schema) if takes else schema for schema, takes in zip(self.spec.inputs, self.takes, strict=True)
        )

    @property
    def output(self) -> Schema:
        return _ended(self.spec.output) if self.gives else self.spec.output

    @property
    def keys(self) -> tuple[str, ...] | None:
        return self.spec.keys

    @property
    def partials(self) -> tuple[Partials | None, ...]:
        each = zip(partials_of(self.spec), self.takes, self.moves, strict=True)
        return tuple(EndedPartials(own, moves) if own is not None and takes else own for own, takes, moves in each)

    def state_signature(self) -> object:
        return self.spec

    def build(self) -> EndedKernel:
        return EndedKernel(self)

    def describe(self) -> str:
        return self.spec.describe()


class EndedKernel:
    """Runs an EndedSpec: the kernel inside sees ends where it looks for them."""

    def __init__(self, spec: EndedSpec) -> None:
        self.spec = spec
        self._kernel: Kernel = spec.spec.build()

    def open(self) -> State:
        return self._kernel.open()

    def step(self, state: State, batch: Batch) -> Batch:
        place = batch.port % len(self.spec.takes)
        given = _taken(batch) if self.spec.takes[place] else batch
        moved = _moved(given, self.spec.moves[place])
        if batch.port != place:
            # partials are of rows at their starts
            moved = given.with_upto(moved.upto)
        out = self._kernel.step(state, moved)
        return _given(out, self.spec.output) if self.spec.gives else out

    def export(self, state: State) -> Content:
        return self._kernel.export(state)

    def load(self, parts: Saved) -> State:
        return self._kernel.load(parts)


@dataclass(frozen=True)
class EndedPartials:
    """Partials of rows that bring the ends of their validity, and so do partials."""

    inner: Partials
    moves: tuple[Moving, ...]

    @property
    def output(self) -> Schema:
        return _ended(self.inner.output)

    def step(self, batch: Batch) -> Batch:
        return _given(self.inner.step(_moved(_taken(batch), self.moves)), self.output)

    def each(self, batch: Batch) -> Batch:
        return _given(self.inner.each(_moved(_taken(batch), self.moves)), self.output)

    def counted(self, partials: pa.RecordBatch) -> int:
        return self.inner.counted(partials)

    def describe(self) -> str:
        return self.inner.describe()


def _stage(stage: RowStage, takes: bool, gives: bool, moves: tuple[Moving, ...] | None) -> RowStage:
    return EndedStage(stage, takes, gives, moves) if takes or gives else stage


def _spec(spec: KernelSpec, takes: tuple[bool, ...], gives: bool, moves: tuple[tuple[Moving, ...], ...]) -> KernelSpec:
    return EndedSpec(spec, takes, gives, moves) if gives or any(takes) else spec


def _ended(schema: Schema) -> Schema:
    return Schema((*schema.fields, UNTIL))


def _taken(batch: Batch) -> Batch:
    """The batch with its last column as the ends."""
    last = batch.rows.num_columns - 1
    ends = np.asarray(batch.rows.column(last).to_numpy(zero_copy_only=False), dtype=np.int64)
    return replace(batch, rows=batch.rows.select(list(range(last))), other=ends)


def _given(batch: Batch, schema: Schema) -> Batch:
    """The batch with its ends as the last column."""
    ends = batch.time if batch.other is None else batch.other
    rows = pa.RecordBatch.from_arrays([*batch.rows.columns, pa.array(ends, pa.int64())], schema=schema.arrow)
    return replace(batch, rows=rows, other=None)
