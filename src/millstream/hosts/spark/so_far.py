"""Results of queries over pushed rows before their inputs end: batch jobs over the rows so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.catalog import Clock
from millstream.errors import UnsupportedError
from millstream.hosts.spark.job.bounded import run_together
from millstream.hosts.spark.job.graph import JobQuery
from millstream.hosts.spark.meters import Meters
from millstream.hosts.spark.runs import Outcome, StartedQuery, done
from millstream.hosts.spark.sources import PushedRows, PushedUntil
from millstream.hosts.validity import starts_of, valid_at
from millstream.kernels.batch import BEGIN
from millstream.physical.nodes import Physical, StoredTable, streams_of, walk

if TYPE_CHECKING:
    from millstream.hosts.spark.declared import DeclaredInputs


def content_of(host: DeclaredInputs, running: StartedQuery, at: int | None) -> pa.Table:
    """The content of a relation, of the rows so far: what would be delivered if all input ended now, at an instant."""
    if host.is_streaming(running.program.plan):
        raise UnsupportedError(
            "the content of a relation is only available while its inputs are pushed or bounded",
            hint="maintain a view of a streaming query: start(views={name: query}, …), and query it with spark.sql",
        )
    inputs = host.inputs(Meters({}), streaming=False)
    asked = JobQuery(replace(running.program, sink=None), inputs, running.since, after=running.after)
    readers = {inputs.number: inputs}
    [outcome] = done(host.spark, lambda: run_together(host.spark, [asked], readers, host.buckets))
    batches = outcome.fetched[0].to_batches()
    at = _reached(host, running.program.plan, batches) if at is None else at
    schema = running.program.plan.schema.arrow
    plain = [pa.RecordBatch.from_arrays(rows.columns, schema=schema) for rows in batches]
    return valid_at(plain, schema, at).rename_columns(list(running.program.columns[:-2]))


def _reached(host: DeclaredInputs, plan: Physical, batches: list[pa.RecordBatch]) -> int:
    """The latest time that a row or a heartbeat of pushed streams has had; without any, that a row begins at."""
    pushed = [entry for entry in map(host.find, streams_of(plan)) if isinstance(entry, PushedRows)]
    if pushed:
        return max(host.stamp if own.stream.clock is Clock.INTERNAL else own.reached for own in pushed)
    return max((int(starts_of(rows).max(initial=BEGIN)) for rows in batches), default=BEGIN)


class LeftOver:
    """What a query over pushed rows has produced when it is stopped: as in-process, all that is final by then.

    Rows that come later do not count, so it can be computed when somebody asks. Sources that are not pushed have not
    been read by then.
    """

    def __init__(self, host: DeclaredInputs, query: StartedQuery) -> None:
        self._host, self._query = host, query
        self._until: Mapping[str, PushedUntil] = {
            name: entry.until_now(host.stamp, host.arrivals)
            if isinstance(entry, PushedRows)
            else PushedUntil.nothing(entry.stream)
            for name in map(str.lower, streams_of(query.program.plan))
            for entry in (host.find(name),)
        }

    @property
    def is_awaited(self) -> bool:
        """Whether it cannot wait: somebody else takes the rows, or tables that they meet may change."""
        program = self._query.program
        reads_tables = any(isinstance(node, StoredTable) for node in walk(program.plan))
        return program.sink is not None or self._query.results.has_readers or reads_tables

    @property
    def upto(self) -> int:
        """How far time has come."""
        return min(until.upto for until in self._until.values())

    def deliver(self) -> None:
        """Give it to whom the query gives its rows."""
        self._query.end(self.outcome())

    def outcome(self) -> Outcome:
        if not any(until.has_rows(0 if self._query.after else self._query.since) for until in self._until.values()):
            return Outcome()
        inputs = self._host.inputs(Meters({}), streaming=False, until=self._until)
        asked = JobQuery(self._query.program, inputs, self._query.since, after=self._query.after)
        readers, spark = {inputs.number: inputs}, self._host.spark
        # Outer joins give rows in the order of their starts, so a row that is final waits for others that began before
        # it. In one bucket it waits for the same rows as in-process.
        [outcome] = done(spark, lambda: run_together(spark, [asked], readers, 1, ends=False))
        return outcome
