"""Saved kernel state: named arrays and rows as Arrow IPC bytes, labelled with what they belong to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.errors import StateError
from millstream.kernels.batch import Batch
from millstream.kernels.saving.signatures import Signature, signature_of
from millstream.records import dataclass

FORMAT = "3"


Part: TypeAlias = npt.NDArray[Any] | pa.Array | pa.RecordBatch | Batch


@dataclass(frozen=True)
class Saved:
    """What a snapshot holds, by name. `anew` tells that it is of a state that was divided or put together, so that rows
    are to be numbered anew."""

    columns: dict[str, pa.Array]
    signature: Signature
    """tells the names of columns that were saved under their places"""
    anew: bool = False

    def array(self, name: str) -> npt.NDArray[Any]:
        """A numeric array; may be read-only."""
        values: npt.NDArray[Any] = self._column(name).to_numpy(zero_copy_only=False)
        return values

    def column(self, name: str) -> pa.Array:
        return self._column(name)

    def rows(self, name: str) -> pa.RecordBatch:
        return self.named(self._column(name))

    def named(self, rows: pa.StructArray) -> pa.RecordBatch:
        """Rows under the names that the spec has for their columns."""
        return self.signature.named(pa.RecordBatch.from_struct_array(rows))

    def batch(self, name: str, upto: int, port: int = 0) -> Batch:
        """Rows with their times."""
        other = self.array(f"{name}.other") if f"{name}.other" in self else None
        return Batch(self.rows(name), self.array(f"{name}.time"), self.array(f"{name}.seq"), upto, other, port)

    def numbers(self, name: str) -> npt.NDArray[np.int64] | None:
        """The numbers that rows are to have, if they were saved in pieces; see `KeptRows`."""
        return self.array(f"{name}.number") if f"{name}.number" in self and not self.anew else None

    def within(self, name: str, spec: object) -> Saved:
        """What the snapshot holds of the state in another that belongs to a kernel of this spec."""
        own = {of.removeprefix(f"{name}."): column for of, column in self.columns.items() if of.startswith(f"{name}.")}
        return Saved(own, signature_of(spec), self.anew)

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def _column(self, name: str) -> pa.Array:
        if name not in self.columns:
            raise StateError("saved state is incomplete", detail=f"it has no {name}")
        return self.columns[name]


def save(spec: object, parts: Mapping[str, Part]) -> bytes:
    """Snapshot bytes: one row whose columns are lists, one for each named part."""
    signature = signature_of(spec)
    columns = columns_of(parts)
    lists = [
        pa.LargeListArray.from_arrays(pa.array([0, len(column)], pa.int64()), column) for column in columns.values()
    ]
    label = {
        "millstream.kernel": signature.kind,
        "millstream.format": FORMAT,
        "millstream.state": signature.digest,
    }
    schema = pa.schema([pa.field(name, array.type) for name, array in zip(columns, lists, strict=True)], label)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(lists, schema=schema))
    return bytes(sink.getvalue())


def columns_of(parts: Mapping[str, Part]) -> dict[str, pa.Array]:
    """Named parts as Arrow columns."""
    return {name: column for given, part in parts.items() for name, column in _columns(given, part)}


def load(spec: object, saved: bytes) -> Saved:
    """The inverse of `save`; refuses what another spec or another format saved."""
    try:
        with pa.ipc.open_stream(saved) as reader:
            label = {key.decode(): value.decode() for key, value in (reader.schema.metadata or {}).items()}
            batch = reader.read_next_batch()
            columns = {name: batch.column(i)[0].values for i, name in enumerate(batch.schema.names)}
    except (pa.ArrowInvalid, StopIteration, UnicodeDecodeError, OSError) as error:
        raise StateError("saved state cannot be read", detail=str(error)) from error
    if label.get("millstream.format") != FORMAT:
        raise StateError(
            "saved state has another format",
            detail=f"it is of format {label.get('millstream.format', 'unknown')}, this version reads {FORMAT}",
        )
    signature = signature_of(spec)
    if (label.get("millstream.kernel"), label.get("millstream.state")) != (signature.kind, signature.digest):
        raise StateError(
            "saved state belongs to another query",
            detail=f"it was saved by a {label.get('millstream.kernel', 'unknown')} with other columns or constants",
            hint="restore it with the query that saved it, or start without saved state",
        )
    return Saved(columns, signature)


def _columns(name: str, part: Part) -> Iterator[tuple[str, pa.Array]]:
    if isinstance(part, Batch):
        yield from _columns(name, part.rows)
        times = {"time": part.time, "seq": part.seq, "other": part.other}
        for suffix, values in times.items():
            if values is not None:
                yield f"{name}.{suffix}", pa.array(values)
    elif isinstance(part, pa.RecordBatch):
        yield name, part.to_struct_array()
    else:
        yield name, pa.array(part.reshape(-1)) if isinstance(part, np.ndarray) else part
