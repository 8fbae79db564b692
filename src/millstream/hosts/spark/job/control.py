"""Stored tables of a running job: data that workers read at each micro-batch, not part of its plan.

The driver writes what a table holds into a file beside the checkpoint, named by its content, and notes before a
micro-batch runs which files belong to it. A repeated micro-batch finds that note and reads the same rows again. So
tables change under a running job, queries that are rows of a table come and go, and the checkpoint stays valid.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.durable import sync_directory, write_durably
from millstream.errors import EngineError
from millstream.hosts.table_join import Added, Removed
from millstream.kernels.batch import Ints
from millstream.physical.nodes import StoredTable
from millstream.records import dataclass

PLACE = "millstream/tables"
RETAINED = 200
"""micro-batches whose notes are kept; Spark repeats none that is so old"""

BATCH_ID = "streaming.sql.batchId"
"""where Spark tells tasks the number of their micro-batch"""


@dataclass(frozen=True)
class SteeredTable:
    """A table as workers of a job read it: what it holds in the micro-batch at hand."""

    directory: str
    name: str
    number: str | None
    """the column that tells rows apart, if their changes are followed"""
    _seen: dict[str, Any] = field(default_factory=dict, compare=False)

    def version(self, name: str) -> int:
        batch = batch_at_hand()
        if self._seen.get("batch") != batch:
            notes = json.loads((Path(self.directory) / note_name(batch)).read_text())
            self._seen["batch"] = batch
            if self._seen.get("digest") != notes[self.name]:
                self._seen["digest"] = notes[self.name]
                self._seen["version"] = self._seen.get("version", 0) + 1
        return int(self._seen["version"])

    def read(self, table: StoredTable) -> pa.Table:
        path = Path(self.directory) / f"{self.name}-{self._seen['digest']}.arrow"
        with pa.OSFile(str(path)) as source:
            rows = pa.ipc.open_file(source).read_all()
        if self.number is not None:
            place = self._place(table)
            self._seen["numbers"] = None if place is None else rows.column(place).to_numpy()
        return rows

    def number_of(self, name: str) -> str | None:
        return self.number

    def changes(self, name: str, since: int) -> list[Added | Removed] | None:
        """What is new and what is gone, by the numbers of rows."""
        numbers, table = self._seen.get("numbers"), self._seen.get("table")
        if numbers is None or table is None:
            return None
        rows = self.read(table)
        now = self._seen["numbers"]
        came = np.flatnonzero(~np.isin(now, numbers))
        gone = numbers[~np.isin(numbers, now)]
        found: list[Added | Removed] = []
        if len(gone):
            found.append(Removed(pa.RecordBatch.from_arrays([pa.array(gone)], names=["number"])))
        found += [Added(batch) for batch in rows.take(pa.array(came)).combine_chunks().to_batches()]
        return found

    def met(self, name: str, numbers: Ints) -> None: ...

    def of(self, table: StoredTable) -> SteeredTable:
        """For the one table that is read in this way."""
        self._seen["table"] = table
        return self

    def _place(self, table: StoredTable) -> str | None:
        return next((name for name, expr in table.columns if getattr(expr, "name", None) == self.number), None)


def batch_at_hand() -> int:
    """In a task: the number of its micro-batch."""
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    told = None if context is None else context.getLocalProperty(BATCH_ID)
    if told is None:
        raise EngineError(
            "Spark does not report the number of a micro-batch, so tables and queries cannot change under a job"
        )
    return int(told)


def note_name(batch: int) -> str:
    return f"batch-{batch:010d}.json"


@dataclass
class Steering:
    """The driver's side: it writes tables down as they change, and which content a micro-batch has."""

    directory: Path
    version: Callable[[StoredTable], tuple[int, ...]]
    read: Callable[[StoredTable], pa.Table]
    number: Callable[[str], str | None]
    _tables: dict[StoredTable, str] = field(default_factory=dict)
    _known: dict[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)

    def table(self, node: StoredTable) -> SteeredTable:
        """A table that workers read at each micro-batch."""
        name = self._tables.setdefault(node, f"t{sha256(repr(node).encode()).hexdigest()[:16]}")
        number = None if node.table is None or node.predicate is not None else self.number(node.table)
        return SteeredTable(str(self.directory), name, number)

    def only(self, nodes: Iterable[StoredTable]) -> None:
        """Queries came or went: these are the tables that workers read."""
        self._tables = {}
        for node in nodes:
            self.table(node)

    def note(self, batch: int) -> None:
        """Before a micro-batch runs: what its tables hold, unless it ran before."""
        if not self._tables:
            return
        place = self.directory / note_name(batch)
        notes = dict(_read(place)) if place.exists() else {}
        new = {node: name for node, name in self._tables.items() if name not in notes}
        if not new:
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        notes |= {name: self._content(node, name) for node, name in new.items()}
        put_whole(place, json.dumps(notes).encode())
        sync_directory(self.directory)
        if batch % 50 == 0:
            self._forget(batch - RETAINED)

    def _content(self, node: StoredTable, name: str) -> str:
        """The name of what a table holds now, which is in a file."""
        version = self.version(node)
        known = self._known.get(name)
        if known is not None and known[0] == version:
            return known[1]
        rows = self.read(node).combine_chunks()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)
        content = sink.getvalue()
        digest = sha256(content).hexdigest()[:20]
        place = self.directory / f"{name}-{digest}.arrow"
        if not place.exists():
            put_whole(place, content.to_pybytes())
        self._known[name] = (version, digest)
        return digest

    def _forget(self, before: int) -> None:
        """Notes and contents that no micro-batch can ask for any more."""
        for note in self.directory.glob("batch-*.json"):
            if int(note.stem.removeprefix("batch-")) < before:
                note.unlink()
        used = {
            f"{name}-{digest}.arrow" for note in self.directory.glob("batch-*.json") for name, digest in _read(note)
        }
        for content in self.directory.glob("t*.arrow"):
            if content.name not in used:
                content.unlink()


def _read(note: Path) -> Sequence[tuple[str, str]]:
    return tuple(json.loads(note.read_text()).items())


def put_whole(place: Path, content: bytes) -> None:
    """A whole file, or none."""
    hidden = place.with_name(f".{place.name}")
    write_durably(hidden, content)
    hidden.replace(place)
