"""The streams and tables of the session that the queries of a job belong to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.catalog import Clock
from millstream.hosts.spark.branches import Branch, Clockwork
from millstream.hosts.spark.job.control import PLACE, Steering
from millstream.hosts.spark.job.graph import JobSource
from millstream.hosts.spark.meters import Meters
from millstream.hosts.spark.sources import DriverSource, Input, PushedRows, PushedUntil, Reading, partition_read
from millstream.hosts.spark.spool import Spooled
from millstream.kernels.batch import Batch
from millstream.limits import Limits
from millstream.physical.nodes import Source, StoredTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NUMBERS = count()


class SessionInputs:
    """The inputs and tables of one session, as a job reads them."""

    def __init__(
        self,
        spark: SparkSession,
        find: Callable[[str], Input],
        table: Callable[[StoredTable], pa.Table],
        meters: Meters,
        *,
        allowed: Limits,
        streaming: bool,
        dry: bool = False,
        version: Callable[[str], int] | None = None,
        row_number: Callable[[str], str | None] = lambda _: None,
        until: Mapping[str, PushedUntil] | None = None,
    ) -> None:
        self.number = next(_NUMBERS)
        self.allowed = allowed
        self._version = version
        self._row_number = row_number
        self._find = find
        self._until = until
        self.table = table
        self._reading = Reading(spark, Clockwork(streaming=streaming), meters, dry=dry)
        self._held: dict[Source, list[Batch]] = {}
        self._branches: dict[Source, Branch] = {}
        self._counted: dict[str, str] = {}

    def steering(self, checkpoint: str) -> Steering | None:
        """How stored tables reach a running job; None if it cannot be told that they changed."""
        known = self._version
        local = checkpoint.removeprefix("file://")
        if known is None or "://" in local:
            return None
        return Steering(Path(local) / PLACE, lambda node: tuple(map(known, node.tables)), self.table, self._row_number)

    def is_pushed(self, node: Source) -> bool:
        return isinstance(self._find(node.stream), PushedRows)

    def bits(self, node: Source) -> int:
        batches = self._batches(node)
        if batches is None:
            return self._branch(node).bits
        last = max((int(batch.seq[-1]) for batch in batches if len(batch)), default=0)
        return max(1, last.bit_length())

    def partitioned_by(self, node: Source) -> str | None:
        """The column by which a source is divided, if workers read it."""
        return partition_read(self._find(node.stream), node) if self._until is None else None

    def reached(self, source: JobSource) -> int | None:
        return None if self._until is None else self._until[source.node.stream.lower()].upto

    def held(self, source: JobSource) -> list[Batch] | None:
        return self._batches(source.node)

    def branch(self, source: JobSource) -> Branch:
        return self._branch(source.node)

    def by_clock(self, source: JobSource) -> bool:
        entry = self._find(source.node.stream)
        # what is spooled is stamped on its way into the spool, which tells the time itself
        return entry.stream.clock is Clock.INTERNAL and not isinstance(entry, Spooled)

    def _batches(self, node: Source) -> list[Batch] | None:
        entry = self._find(node.stream) if self._until is None else self._until[node.stream.lower()]
        if not isinstance(entry, PushedRows | PushedUntil | DriverSource):
            return None
        if node not in self._held:
            self._held[node] = entry.batches(node, self._counting(self._reading, node))
        return self._held[node]

    def _counting(self, reading: Reading, node: Source) -> Reading:
        """Rows of a stream are counted on one side of it, though its errors are read on their own."""
        if self._counted.setdefault(node.stream.lower(), node.side) == node.side:
            return reading
        return replace(reading, meters=Meters({}))

    def _branch(self, node: Source) -> Branch:
        if node not in self._branches:
            entry = self._find(node.stream)
            latent = entry.stream.clock is Clock.LATENT
            reading = replace(self._reading, clockwork=replace(self._reading.clockwork, latent=latent))
            self._branches[node] = entry.branch(node, self._counting(reading, node))
        return self._branches[node]
