"""Rows of a stream with their matches in a stored table, by batch: how both hosts join where the rows are."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from millstream import limits
from millstream.arrays import one_batch, release_unused
from millstream.errors import DataError
from millstream.expressions.evaluator import compile_filter
from millstream.expressions.nodes import Column, columns_of, conjunction
from millstream.kernels.batch import Batch, Ints
from millstream.kernels.keys.words import Bools
from millstream.kernels.matching import index_of, split_condition
from millstream.physical.nodes import SEVERAL_ROWS, StoredTable, TableJoin
from millstream.records import dataclass
from millstream.schema import Schema


@dataclass(frozen=True)
class Added:
    """Rows that came into a table."""

    rows: pa.RecordBatch


@dataclass(frozen=True)
class Removed:
    """Rows that left a table: a batch of their numbers."""

    rows: pa.RecordBatch


class ReadTables(Protocol):
    """Where tables are read from."""

    def read(self, table: StoredTable) -> pa.Table: ...

    def version(self, name: str) -> int:
        """A number that grows with every change of the table."""
        ...

    def number_of(self, name: str) -> str | None:
        """The column with the number of each row of a table, if its changes are remembered."""
        ...

    def changes(self, name: str, since: int) -> list[Added | Removed] | None:
        """What happened to a table after a version, in order; None if that is not known."""
        ...

    def met(self, name: str, numbers: Ints) -> None:
        """Rows of a stream met rows of a table, by their numbers."""
        ...


@dataclass(frozen=True)
class FixedTable:
    """A table that does not change."""

    rows: pa.Table

    def read(self, table: StoredTable) -> pa.Table:
        return self.rows

    def version(self, name: str) -> int:
        return 0

    def number_of(self, name: str) -> str | None:
        return None

    def changes(self, name: str, since: int) -> None:
        return None

    def met(self, name: str, numbers: Ints) -> None: ...


class TableMatches:
    """Each row with its matches in a stored table, found through an index that follows the table's changes."""

    def __init__(self, node: TableJoin, tables: ReadTables) -> None:
        self.schema = node.schema
        self._node = node
        self._tables = tables
        self._seen: list[int] | None = None
        self._only: pa.RecordBatch | None = None
        """the one row of a query over tables, if every row of the stream matches it"""
        self._condition = split_condition(
            node.pairs, node.residual, set(node.input.schema.names), set(node.table.schema.names)
        )
        rest = self._condition.rest
        wanted = {*(node.table.schema.names if node.kept is None else node.kept)}
        wanted |= columns_of(conjunction(rest)) if rest else frozenset()
        # what conditions read is in the index; its rows have what is left to test, and what leaves the join
        self._columns = Schema(tuple(field for field in node.table.schema if field.name in wanted))
        self._both = Schema((*node.input.schema.fields, *self._columns.fields))
        self._rest = compile_filter(conjunction(rest), self._both) if rest else None
        reads = frozenset() if node.residual is None else columns_of(node.residual)
        # whether all that matters is that the table has a row
        self._asks_rows = node.how in ("semi", "anti", "mark") and reads.isdisjoint(node.table.schema.names)

    def step(self, batch: Batch) -> Batch:
        if not len(batch):
            return Batch.empty(self.schema.arrow, batch.upto, batch.port)
        self._refresh()
        if self._node.how in ("semi", "anti", "mark"):
            return self._told(batch, self._have_matches(batch.rows))
        if self._node.how == "gather":
            return self._gathered(batch)
        if self._only is not None:
            right = self._only.select(self._leaving).take(pa.array(np.zeros(len(batch), dtype=np.int64)))
            return batch.with_rows(_side_by_side(batch.rows, right, self.schema))
        left, right = self._matches(batch.rows)
        match self._node.how:
            case "inner":
                self._tell_met(right)
            case "left" | "single" as how:
                if how == "single" and len(np.unique(left)) < len(left):
                    raise DataError(SEVERAL_ROWS, hint="aggregate it: (SELECT max(…) …), or use IN")
                missing = _missing(left, len(batch))
                order = np.argsort(np.concatenate([left, missing]), kind="stable")
                left = np.concatenate([left, missing])[order]
                right = right.take(pa.array(order, mask=order >= right.num_rows))
        matched = batch.take(left)
        return matched.with_rows(_side_by_side(matched.rows, right.select(self._leaving), self.schema))

    @property
    def _leaving(self) -> list[str]:
        """The columns of the table that leave the join."""
        return list(self.schema.names[len(self._node.input.schema) :])

    def _tell_met(self, right: pa.RecordBatch) -> None:
        if (number := self._number) is not None and number in self._columns.names:
            self._tables.met(str(self._node.table.table), right.column(number).to_numpy())

    def _gathered(self, batch: Batch) -> Batch:
        """Each row that has matches once, with these as arrays."""
        if self._rest is None and self._condition.finds:
            sizes, right = self._index.lists(batch.rows)
        else:
            left, right = self._matches(batch.rows)
            sizes = np.bincount(left, minlength=len(batch))
        self._tell_met(right)
        matched = batch
        if not sizes.all():
            matched, sizes = batch.take(np.flatnonzero(sizes)), sizes[sizes > 0]
        offsets = pa.array(np.append(0, np.cumsum(sizes)), pa.int32())
        names = self._leaving
        lists = [
            pa.ListArray.from_arrays(offsets, right.column(name)).cast(self.schema[name].type.arrow) for name in names
        ]
        return matched.with_rows(_side_by_side(matched.rows, pa.RecordBatch.from_arrays(lists, names), self.schema))

    def _told(self, batch: Batch, found: Bools) -> Batch:
        """Rows by whether they have matches."""
        match self._node.how:
            case "mark":
                columns = [*batch.rows.columns, pa.array(found)]
                return batch.with_rows(pa.RecordBatch.from_arrays(columns, schema=self.schema.arrow))
            case "anti":
                found = ~found
        return batch if found.all() else batch.take(np.flatnonzero(found))

    def _have_matches(self, rows: pa.RecordBatch) -> Bools:
        if self._rest is None and self._condition.finds:
            return self._index.matched(rows)
        found = np.zeros(rows.num_rows, dtype=np.bool_)
        found[self._matches(rows)[0]] = True
        return found

    def _refresh(self) -> None:
        """Bring the index up to date: by the rows that came and went if they are known, otherwise by reading all."""
        versions = [self._tables.version(table) for table in self._node.table.tables]
        if versions == self._seen:
            return
        changes = None if self._seen is None else self._changes(self._seen[0])
        self._seen = versions
        if changes is None:
            self._read_all()
            return
        for change in changes:
            self._apply(change)

    def _read_all(self) -> None:
        self._given = 0
        self._index = index_of(self._condition, self._node.input.schema, self._node.table.schema, self._columns)
        self._take_all()
        # rows were held twice for a moment
        if len(self._index) > _MANY:
            release_unused()

    def _take_all(self) -> None:
        rows = self._tables.read(self._node.table)
        # a table as it is may have its changes followed later
        is_all = self._node.table.table is None and not self._node.pairs and self._node.residual is None
        self._only = rows.combine_chunks().to_batches()[0] if is_all and rows.num_rows == 1 else None
        if self._asks_rows and not self._node.pairs:
            rows = rows.slice(0, 1)
        for batch in rows.combine_chunks().to_batches():
            self._apply(Added(batch))

    def _changes(self, seen: int) -> list[Added | Removed] | None:
        table = self._node.table.table
        return None if table is None or self._number is None else self._tables.changes(table, seen)

    @property
    def _number(self) -> str | None:
        """The column with the number of each row of the table; None if changes are not followed."""
        table = self._node.table
        if table.table is None or table.predicate is not None:
            return None
        if not all(isinstance(expr, Column) for _, expr in table.columns):
            return None
        number = self._tables.number_of(table.table)
        return next((name for name, expr in table.columns if isinstance(expr, Column) and expr.name == number), None)

    def _apply(self, change: Added | Removed) -> None:
        if isinstance(change, Removed):
            self._index.drop(change.rows.column(0).to_numpy())
            return
        table, rows = self._node.table, change.rows
        if rows.schema != table.schema.arrow:
            columns = [rows.column(expr.name) for _, expr in table.columns if isinstance(expr, Column)]
            rows = pa.RecordBatch.from_arrays(columns, schema=table.schema.arrow)
        number, first = self._number, self._given
        self._given += rows.num_rows
        numbers = np.arange(first, self._given) if number is None else rows.column(number).to_numpy()
        self._index.add(rows, numbers)

    def _matches(self, rows: pa.RecordBatch) -> tuple[Any, pa.RecordBatch]:
        """The numbers of the rows that have matches, in order, and the rows of the table that they match."""
        if self._condition.finds:
            return self._tested(rows, *self._index.match(rows, in_order=self._node.how == "left"))
        # not all pairs at once: they may be many, and few of them match
        many = max(_MOST_PAIRS // max(len(self._index), 1), 1)
        parts, made = [], 0
        for start in range(0, rows.num_rows, many):
            left, right = self._index.match(rows.slice(start, many))
            parts.append(self._tested(rows, left + start, right))
            made += len(parts[-1][0])
            limits.check_made(made)
        return np.concatenate([left for left, _ in parts]), one_batch([right for _, right in parts])

    def _tested(self, rows: pa.RecordBatch, left: Any, right: pa.RecordBatch) -> tuple[Any, pa.RecordBatch]:
        if self._rest is None or not len(left):
            return left, right
        both = _side_by_side(rows.take(pa.array(left, pa.int64())), right, self._both)
        kept = np.flatnonzero(np.asarray(self._rest(both)))
        return left[kept], right.take(pa.array(kept))


_MOST_PAIRS = 1 << 20
_MANY = 1 << 16


def _side_by_side(rows: pa.RecordBatch, matches: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(rows.columns + matches.columns, schema=schema.arrow)


def _missing(left: Any, count: int) -> Any:
    return np.setdiff1d(np.arange(count), left)
