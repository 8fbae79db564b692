"""Derived streams that keep the rows of their query.

Over streams without an end, the job that runs the query writes its rows to Parquet files, and whoever reads the stream
follows these files. Other rows are in the driver, like those that are pushed: what a query has given by now is
computed when somebody asks for it, and enters the stream then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from millstream.catalog import Options, SinkDef, StreamDef
from millstream.errors import EngineError, UnsupportedError
from millstream.hosts.contract import ReadyQuery
from millstream.hosts.spark.declared import DeclaredInputs
from millstream.hosts.spark.job.bounded import run_together
from millstream.hosts.spark.job.graph import JobQuery
from millstream.hosts.spark.meters import Meters
from millstream.hosts.spark.runs import Outcome, StartedQuery, counted, done
from millstream.hosts.spark.so_far import LeftOver
from millstream.hosts.spark.sources import FollowedFiles, PushedRows
from millstream.kernels.batch import BEGIN
from millstream.kernels.over.spec import OverSpec
from millstream.physical import nodes as physical
from millstream.plan.nodes import Node, Scan, walk

PLACE = "spark.millstream.history"
"""The directory of rows that derived streams keep; the default is beside the checkpoints of a session."""


class DerivedStreams(DeclaredInputs):
    """The part of the Spark host that keeps rows of derived streams."""

    _queries: dict[str, StartedQuery]
    _scratch: TemporaryDirectory[str] | None = None

    def declare(self, stream: StreamDef) -> None:
        if stream.plan is None:
            super().declare(stream)
            return
        inputs = [self.find(name) for name in _scanned(stream.plan)]
        if not any(entry.streaming for entry in inputs):
            self._inputs[stream.name.lower()] = PushedRows(stream)
            return
        options: Options = {"connector": "file", "path": str(self._home(stream)), "format": "parquet", "follow": True}
        Path(str(options["path"])).mkdir(parents=True, exist_ok=True)
        # queries without state give rows as they come
        slack = max(entry.stream.slack for entry in inputs)
        self._inputs[stream.name.lower()] = FollowedFiles(replace(stream, slack=slack, source=options), options)

    def _home(self, stream: StreamDef) -> Path:
        chosen = self.spark.conf.get(PLACE, None) or (self.checkpoint and f"{self.checkpoint}/history")
        if chosen is not None and "://" in chosen.removeprefix("file://"):
            raise UnsupportedError(
                f"{PLACE} must be in a file system of this machine", detail="its files are written by our own sinks"
            )
        if not chosen:
            self._scratch = self._scratch or TemporaryDirectory(
                prefix="millstream-history-", ignore_cleanup_errors=True
            )
            chosen = self._scratch.name
        return Path(chosen.removeprefix("file://")).absolute() / f"s-{quote(stream.name.lower(), safe='')}"

    def require_place(self) -> None:
        """Refuse to keep rows in a temporary directory for a checkpoint that others go on with."""
        if self._scratch is not None:
            raise EngineError("rows of derived streams would be lost", hint=f"set {PLACE} to a directory before them")

    def kept_by(self, program: ReadyQuery) -> ReadyQuery:
        """The query of a derived stream, with where its rows go."""
        entry = self._inputs.get(program.name.lower())
        if not isinstance(entry, FollowedFiles) or entry.stream.plan is None:
            return program
        options = {name: value for name, value in entry.options.items() if name != "follow"}
        return replace(program, sink=SinkDef(program.name, options))

    def _drawn(self, names: Iterable[str], *, ends: bool = False) -> None:
        """Let the rows that derived streams have by now enter them, before somebody reads these."""
        for name in names:
            entry, query = self._inputs.get(name.lower()), self._queries.get(name.lower())
            if not isinstance(entry, PushedRows) or entry.stream.plan is None or query is None or query.ended:
                continue
            self._drawn(physical.streams_of(query.program.plan), ends=ends)
            if ends:
                [outcome], upto = self._results_of(query), BEGIN
            else:
                left = LeftOver(self, query)
                outcome, upto = left.outcome(), left.upto if _keeps_pace(query.program.plan) else BEGIN
            for table in query.not_given(outcome.fetched):
                rows = table.rename_columns(entry.stream.schema.names).sort_by(entry.stream.time_column)
                for batch in rows.combine_chunks().to_batches():
                    first, self.arrivals = self.arrivals, self.arrivals + batch.num_rows
                    entry.take(first, batch, ())
            entry.advance(upto)
            query.given, query.ended = counted(outcome.fetched), ends

    def _is_drawn_fully(self, stream: str) -> bool:
        """Whether the rows of a derived stream need no rows that are pushed."""
        query = self._queries.get(stream.lower())
        if self.find(stream).stream.plan is None or query is None:
            return False
        return query.ended or not any(
            isinstance(self.find(name), PushedRows) and not self._is_drawn_fully(name)
            for name in physical.streams_of(query.program.plan)
        )

    def _results_of(self, query: StartedQuery) -> list[Outcome]:
        """All that comes of a query, if its inputs end now."""
        inputs = self.inputs(Meters({}), streaming=False)
        asked = [JobQuery(query.program, inputs, query.since, after=query.after)]
        return done(self.spark, lambda: run_together(self.spark, asked, {inputs.number: inputs}, self.buckets))


def _keeps_pace(plan: physical.Physical) -> bool:
    """Whether no row of a plan is still to come from before the time that its inputs have reached."""
    specs = [node.spec for node in physical.walk(plan) if isinstance(node, physical.Apply)]
    return all(isinstance(spec, OverSpec) for spec in specs)


def _scanned(plan: Node) -> list[str]:
    return list(dict.fromkeys(node.stream for node in walk(plan) if isinstance(node, Scan)))
