"""Filters that differ only in constants, evaluated together.

Queries of one shape leave filters of one shape behind the same stream. Their constants are rows of a table, and a batch
meets all of them at once through an index on that table. That pays once there are some; a few are asked one by one.
"""

from __future__ import annotations

from dataclasses import field
from itertools import pairwise
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from millstream.expressions.nodes import Call, Column, Expr, Literal, columns_of, conjunction, conjuncts
from millstream.kernels.batch import Batch
from millstream.kernels.compute import ComputeStage
from millstream.kernels.matching import MatchIndex, is_compiled, split_condition
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import BIGINT, from_kernel

_COMPARISONS = ("=", "<", "<=", ">", ">=")
_MEMBER = "$member"

Behind = TypeVar("Behind")
BY_SHAPE = "filters of one shape, through an index on their constants"
"""how they are shared"""
LEAST_MEMBERS = 4
"""fewer filters are never looked up together"""


@dataclass(frozen=True)
class FilterShape:
    """What filters have in common that differ in constants: conditions over columns of a table of constants."""

    condition: tuple[Expr, ...]
    constants: Schema
    columns: tuple[tuple[str, Expr], ...] | None
    input: Schema

    def __str__(self) -> str:
        return "Filter " + " AND ".join(map(str, self.condition))


def shape_of(stage: ComputeStage) -> tuple[FilterShape, tuple[object, ...]] | None:
    """The shape of a filter and the constants that are its own; None if it compares nothing with constants."""
    if stage.predicate is None:
        return None
    parts: list[Expr] = []
    values: list[object] = []
    fields: list[Field] = []
    for part in conjuncts(stage.predicate):
        match part:
            case Call(fn=fn, args=(mine, Literal(value=value) as literal)) if _is_open(fn, mine, value):
                column = Field(f"${len(fields)}", literal.type)
                part = Call(part.type, fn, (mine, Column(column.type, column.name)))
                fields.append(column)
                values.append(value)
        parts.append(part)
    if not values:
        return None
    constants = Schema((Field(_MEMBER, BIGINT), *fields))
    return FilterShape(tuple(parts), constants, stage.columns, stage.input), tuple(values)


def _is_open(fn: str, mine: Expr, value: object) -> bool:
    return fn in _COMPARISONS and value is not None and bool(columns_of(mine))


@dataclass
class FilterGroup(Generic[Behind]):
    """The filters of one shape over the same rows, each known by what is behind it."""

    shape: FilterShape
    members: dict[int, Behind] = field(default_factory=dict)
    _waiting: list[tuple[int, tuple[object, ...]]] = field(default_factory=list)
    _gone: list[int] = field(default_factory=list)
    _made: int = 0
    _numbers: dict[Behind, int] = field(default_factory=dict)
    _index: MatchIndex | None = None

    def __post_init__(self) -> None:
        fixed = tuple(part for part in self.shape.condition if not _asks(part))
        asked = [part for part in self.shape.condition if _asks(part)]
        pairs = [part.args for part in asked if isinstance(part, Call) and part.fn == "="]
        ranges = tuple(part for part in asked if isinstance(part, Call) and part.fn != "=")
        self._condition = split_condition(
            tuple((mine, theirs) for mine, theirs in pairs),
            conjunction(ranges) if ranges else None,
            set(self.shape.input.names),
            set(self.shape.constants.names),
        )
        # what the index cannot decide is not worth a group
        self.is_indexed = not self._condition.rest
        self._fixed = ComputeStage(self.shape.input, conjunction(fixed), None).build() if fixed else None
        self._project = ComputeStage(self.shape.input, None, self.shape.columns).build() if self.shape.columns else None

    def __len__(self) -> int:
        return len(self.members)

    def add(self, behind: Behind, values: tuple[object, ...]) -> None:
        """One more filter, with its constants."""
        self._made += 1
        self._numbers[behind] = self._made
        self.members[self._made] = behind
        self._waiting.append((self._made, values))

    def remove(self, behind: Behind) -> None:
        """A filter that nobody needs any more."""
        number = self._numbers.pop(behind)
        del self.members[number]
        self._gone.append(number)

    def pays(self, rows: int) -> bool:
        """Whether looking up is cheaper than asking every filter by itself, in µs as they were measured."""
        if not self.is_indexed or len(self) < LEAST_MEMBERS or not rows:
            return False
        alone = len(self) * (100 + 0.004 * rows)
        together = 400 + (0.3 if is_compiled() or not self._condition.ranges else 5.0) * rows
        return together < alone

    def together(self, batch: Batch) -> dict[Behind, Batch] | None:
        """The rows of each filter that lets some through; None where filters are better asked one by one."""
        if not self.pays(len(batch)):
            return None
        try:
            return self.step(batch)
        except Exception:
            # it is the trouble of those filters alone that meet it, also if it is a fault of ours
            return None

    def step(self, batch: Batch) -> dict[Behind, Batch]:
        """The rows of each filter that lets some through."""
        if self._fixed is not None:
            batch = self._fixed.step(batch)
        self._refresh()
        assert self._index is not None
        left, right = self._index.match(batch.rows)
        members = right.column(0).to_numpy()
        order = np.argsort(members, kind="stable")
        chosen = batch.take(left[order])
        if self._project is not None:
            chosen = self._project.step(chosen)
        numbers, firsts = np.unique(members[order], return_index=True)
        edges = pairwise([*firsts.tolist(), len(order)])
        return {self.members[int(n)]: chosen.slice(*edge) for n, edge in zip(numbers, edges, strict=True)}

    def _refresh(self) -> None:
        if self._index is None:
            self._index = MatchIndex(self._condition, self.shape.input, self.shape.constants)
        gone = set(self._gone)
        coming = [(number, values) for number, values in self._waiting if number not in gone]
        if coming:
            columns: list[Any] = [pa.array([number for number, _ in coming], pa.int64())]
            for place, each in enumerate(self.shape.constants.fields[1:]):
                columns.append(constant_column([values[place] for _, values in coming], each))
            rows = pa.RecordBatch.from_arrays(columns, schema=self.shape.constants.arrow)
            self._index.add(rows, columns[0].to_numpy())
        if gone:
            self._index.drop(np.array(self._gone, dtype=np.int64))
        self._waiting, self._gone = [], []


def _asks(part: Expr) -> bool:
    return any(name.startswith("$") and name[1:].isdigit() for name in columns_of(part))


def constant_column(values: list[object], each: Field) -> pa.Array:
    """Constants as a column; those of literals are as kernels have them."""
    if each.type.is_temporal or each.type.name == "INTERVAL":
        return from_kernel(np.array(values, dtype=np.int64), None, each.type)
    return pa.array(values, each.type.arrow)
