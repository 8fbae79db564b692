"""The in-process host: all running queries in one graph, fed by pushes and by declared sources."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from threading import Event
from typing import Any

import pyarrow as pa

from millstream.catalog import Clock, StreamDef
from millstream.config import Config
from millstream.connectors.contract import Acknowledged, MissingSource, Offset, Rejected, RowSource
from millstream.connectors.convert.common import DEFAULT_RULES
from millstream.connectors.convert.records import rows_to_batch
from millstream.connectors.past import PAST
from millstream.connectors.registry import source_of
from millstream.errors import ConnectorError, DataError, MillstreamError, ours
from millstream.hosts.contract import Counts, Left, Once, Progress, ReadyQuery, Report
from millstream.hosts.embedded import altering, kept, starting
from millstream.hosts.embedded.content import still_to_come
from millstream.hosts.embedded.graph import as_table
from millstream.hosts.embedded.graph_query import GraphQuery, log
from millstream.hosts.embedded.idle import idle_streams
from millstream.hosts.embedded.lifecycle import Lifecycle
from millstream.hosts.embedded.ordering import InOrder
from millstream.hosts.embedded.producers import Producers
from millstream.hosts.embedded.progress import progress_of
from millstream.hosts.embedded.readers import LiveReader, Take, acknowledge, read_in_order
from millstream.hosts.embedded.streams import Stream
from millstream.hosts.embedded.turns import MOST_WAITING, SmallPushes
from millstream.hosts.results import Admit, ResultLog
from millstream.hosts.tables import TableStore
from millstream.hosts.validity import valid_at
from millstream.kernels.batch import FOREVER
from millstream.limits import cancelled
from millstream.physical import nodes as physical
from millstream.plan.costs.statistics import Statistics

Now = Callable[[], int]
"""The clock that stamps internal times: µs since the epoch."""

Journal = Callable[[dict[str, Any], pa.RecordBatch | None], None]
"""Where inputs are noted before they take effect, so that they can be replayed after a crash."""


class EmbeddedHost(Lifecycle):
    """Runs queries in this process. Calls from several threads take turns."""

    def __init__(self, tables: TableStore, config: Config, now: Now) -> None:
        super().__init__(tables, config, self._let_in)
        self.journal: Journal | None = None
        self.save: Callable[[], None] | None = None  # a checkpoint, of a session in a directory
        self.paused = False
        self._now = now
        self._waiting = SmallPushes()
        self._readers: dict[str, LiveReader] = {}
        self.producers = Producers()
        self.stamp = 0
        self._stop = Event()

    # -- streams and queries ---------------------------------------------------------------------------------------

    def declare(self, stream: StreamDef) -> None:
        with self.lock:
            self.streams[stream.name.lower()] = kept.declared(stream, self.home)
            if stream.source is not None and not stream.source.keys().isdisjoint(("connector", PAST)):
                try:
                    source: RowSource | None = source_of(stream)
                except ConnectorError as error:
                    if not self.paused:
                        raise
                    # it was there when the session was saved, and may have been read to its end since
                    source = MissingSource(error)
                if source is not None:
                    self.bind_source(stream.name, source)

    def bind_source(self, stream: str, source: RowSource) -> None:
        definition = self._find(stream).definition
        if source.bounded and definition.clock is Clock.EXTERNAL:
            source = InOrder(source, definition)
        self.sources[stream.lower()] = source
        self.offsets[stream.lower()] = {}

    def forget(self, stream: str) -> None:
        with self.lock:
            reader = self._readers.pop(stream.lower(), None)
            if reader is not None:
                # it may be waiting for this very lock with rows that nobody wants any more
                reader.ask_to_stop()
            for table in (self.streams, self.sources, self.offsets):
                table.pop(stream.lower(), None)

    def start(self, program: ReadyQuery) -> None:
        self.resume(program, None, {})

    def resume(self, program: ReadyQuery, ids: list[str] | None, committed: Offset) -> None:
        """Start a query, on saved vertices if `ids` are given; its sink goes on after `committed`."""
        with self.lock:
            starting.start(self, program, ids, committed)
            self._start_readers(program)
            log.info("query %s started", program.name)

    def replace(self, program: ReadyQuery) -> None:
        """Let a program take the place of the running query of its name, and go on with its state."""
        from millstream.hosts.embedded.checkpoint import replace_query

        with self.lock:
            replace_query(self, program)

    def alter(self, program: ReadyQuery) -> None:
        """Let a program take the place of the running query of its name, with its sink and its readers."""
        with self.lock:
            altering.alter(self, program)
            self._start_readers(program)

    def new_vertex_id(self) -> str:
        return self.graph.new_id()

    def stop(self, name: str) -> Left:
        with self.lock:
            running = self.queries.pop(name.lower())
            running.leave()
            self.graph.detach(running.program.name, running.top)
            running.close_sink(self.save is not None)
            running.results.close()
            for stream in running.streams:
                kept.release(stream, name)
            log.info("query %s stopped", running.program.name)
        schema, columns = running.program.plan.schema.arrow, running.program.columns
        return lambda: as_table(running.results.fetch(), schema, columns)

    # -- input -----------------------------------------------------------------------------------------------------

    def hold(self, stream: str, rows: Any) -> Counts | None:
        """Take a few rows that surely fit and are on time, to enter the graph with the next ones or when somebody
        looks; None if these must be pushed."""
        if self.is_watched or self.journal is not None or self.config.limits:
            return None
        with self.lock.bare:
            entry = self.streams.get(stream.lower())
            if entry is None or not self._waiting.add(entry, rows):
                return None
            full = self._waiting.count >= MOST_WAITING
        if full:
            self.settle()
        return Counts(accepted=len(rows))

    def settle(self) -> None:
        """Let in what waits."""
        if self._waiting.count:
            with self.lock:
                pass

    def _let_in(self) -> None:
        for entry, rows in self._waiting.take() if self._waiting.count else ():
            batch = rows_to_batch(rows, entry.definition.given, DEFAULT_RULES)
            assert not batch.bad
            self.arrive(entry.definition.name, batch.rows, ())

    def push(
        self, stream: str, rows: pa.RecordBatch, rejected: tuple[Rejected, ...] = (), once: Once | None = None
    ) -> Counts:
        self.gate.pass_(stream)
        with self.lock:
            entry = self._find(stream)
            if (done := self.producers.done(once)) is not None:
                return done
            if entry.ended:
                raise DataError(f"stream {entry.definition.name} has ended", hint="push rows before finish()")
            if rows.schema.types != entry.definition.given.arrow.types:
                raise DataError(f"stream {entry.definition.name} was declared again in the meantime", hint="push again")
            rows = self._stamped(entry.definition, rows)
            if self.journal is not None:
                note = {"op": "push", "stream": stream, "rejected": _plain(rejected)}
                self.journal(note if once is None else {**note, "once": [once.producer, once.number]}, rows)
            counts = self.producers.remember(once, self.arrive(stream, rows, rejected))
            self._pass_idle()
            return counts

    def arrive(self, stream: str, rows: pa.RecordBatch, rejected: tuple[Rejected, ...]) -> Counts:
        """Rows with all their columns enter the graph."""
        entry = self._find(stream)
        first, self.arrivals = self.arrivals, self.arrivals + rows.num_rows
        counts = entry.arrive(rows, rejected, first, self.config.batch_rows)
        self._advance_clock(entry)
        return counts

    def counts(self, name: str) -> Counts:
        with self.lock:
            return sum((stream.counts for stream in self._running(name).streams), Counts())

    def advance(self, stream: str, upto: int) -> None:
        self.gate.pass_(stream)
        with self.lock:
            entry = self._find(stream)
            if self.journal is not None:
                self.journal({"op": "advance", "stream": stream, "upto": upto}, None)
            entry.advance(upto)
            if entry.definition.clock is Clock.INTERNAL:
                self.stamp = max(self.stamp, upto)
                self._advance_clock(entry)

    def _stamped(self, stream: StreamDef, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of a stream with internal times get the clock's; time never goes back."""
        if stream.clock is not Clock.INTERNAL:
            return rows
        assert stream.time_column is not None
        self.stamp = max(self.stamp, self._now())
        field = stream.schema[stream.time_column]
        stamp = pa.array([self.stamp] * rows.num_rows, pa.int64()).view(field.type.arrow)
        index = stream.schema.index(stream.time_column)
        columns = [*rows.columns[:index], stamp, *rows.columns[index:]]
        return pa.RecordBatch.from_arrays(columns, schema=stream.schema.arrow)

    def _advance_clock(self, pushed: Stream) -> None:
        """Streams that share a clock move on together: a later arrival anywhere is later than this one."""
        clock = pushed.definition.clock
        if clock is Clock.EXTERNAL:
            return
        upto = self.arrivals if clock is Clock.LATENT else self.stamp
        for stream in self.streams.values():
            if stream.definition.clock is clock:
                stream.advance(upto)

    # -- declared sources ------------------------------------------------------------------------------------------

    def start_readers(self) -> None:
        """Live sources are read from the moment a query wants them; bounded ones wait for `run`."""
        for running in self.queries.values():
            self._start_readers(running.program)

    def _start_readers(self, program: ReadyQuery) -> None:
        for stream in () if self.paused else physical.streams_of(program.plan):
            source = self.sources.get(stream)
            if source is not None and not source.bounded and stream not in self._readers:
                self._readers[stream] = LiveReader(source, self.offsets[stream], self._taker(stream, source), stream)

    def stop_readers(self) -> None:
        with self.gate.lifted():
            for reader in self._readers.values():
                reader.stop()

    def _taker(self, stream: str, source: RowSource) -> Take:
        def take(rows: pa.RecordBatch, rejected: tuple[Rejected, ...], offset: Offset) -> None:
            self.gate.pass_(stream)
            with self.lock:
                if self.sources.get(stream) is not source:
                    return  # the stream was dropped
                moved = isinstance(source, Acknowledged) and offset != self.offsets[stream]
                if rows.num_rows or rejected or moved:
                    self.take(stream, rows, rejected, offset)
                    if self.save is None and isinstance(source, Acknowledged):
                        source.kept(offset)
                elif self._find(stream).definition.clock is Clock.INTERNAL:
                    self._tick()
                self._pass_idle()

        return take

    def acknowledge_sources(self) -> None:
        acknowledge(self.sources, self.offsets)

    def _tick(self) -> None:
        """An idle moment: streams stamped by the clock advance with it."""
        self.tick(max(self.stamp, self._now()))

    def _pass_idle(self) -> None:
        """Streams that bring nothing for too long come as far as the others of their queries."""
        if self.config.idle_timeout:
            read = [query.streams for query in self.queries.values()]
            for stream, upto in idle_streams(read, self.sources, self.config.idle_timeout, self._now()):
                if upto > stream.progress:
                    if self.journal is not None:
                        self.journal({"op": "advance", "stream": stream.definition.name, "upto": upto}, None)
                    stream.advance(upto)

    def tick(self, stamp: int) -> None:
        if self.journal is not None:
            self.journal({"op": "tick", "stamp": stamp}, None)
        self.stamp = stamp
        for stream in self.streams.values():
            if stream.definition.clock is Clock.INTERNAL:
                stream.advance(self.stamp)

    def take(self, stream: str, rows: pa.RecordBatch, rejected: tuple[Rejected, ...], offset: Offset) -> None:
        """Rows read from a declared source enter the graph."""
        entry = self._find(stream)
        rows = self._stamped(entry.definition, rows)
        if self.journal is not None:
            if self.sources[stream].replayable and entry.definition.clock is not Clock.INTERNAL:
                count = rows.num_rows + sum(row.count for row in rejected)
                self.journal({"op": "read", "stream": stream, "offset": offset, "count": count}, None)
            else:
                note = {"op": "push", "stream": stream, "rejected": _plain(rejected), "offset": offset}
                self.journal(note, rows)
        self.offsets[stream] = offset
        self.arrive(stream, rows, rejected)

    def run(self, names: tuple[str, ...], report: Report | None = None) -> None:
        """Read the bounded sources behind these queries to their end; live ones until `interrupt`."""
        self.settle()
        self._stop.clear()
        with self.lock:
            streams = {s for name in names for s in self.behind(self._running(name).program.plan)}
            bounded = {s: self.sources[s] for s in streams if s in self.sources and self.sources[s].bounded}
            bounded = {s: source for s, source in bounded.items() if not self.streams[s].ended}
        for stream, chunk in read_in_order(
            bounded, self.offsets, self._frontier, self._stop.is_set, self.config.batch_rows
        ):
            self.gate.pass_(stream, self._stop.is_set)
            with self.lock:
                if self.sources.get(stream) is not bounded[stream]:
                    continue  # the stream was dropped
                if chunk is None:
                    self.end(stream)
                    if self.save is not None:
                        self.save()  # so what was read to its end is not needed any more
                else:
                    self.take(stream, chunk.rows, chunk.rejected, chunk.offset)
            self._tell(report)
            self._raise_if_all_failed(names)
        while any(s in self._readers and self._readers[s].running for s in streams) and not self._stop.wait(0.1):
            self._tell(report)
            self._raise_if_all_failed(names)
        self._raise_reader_errors(streams)
        self._tell(report)

    def _raise_if_all_failed(self, names: tuple[str, ...]) -> None:
        """Reading on is of no use to anyone."""
        found = [self.queries[name.lower()].error for name in names if name.lower() in self.queries]
        if found and found[0] is not None and all(found):
            raise found[0]

    def end(self, stream: str) -> None:
        """A source has no more rows."""
        if self.journal is not None:
            self.journal({"op": "end", "stream": stream}, None)
        self._find(stream).advance(FOREVER)

    def _frontier(self, stream: str) -> int:
        return self.streams[stream].frontier

    def _raise_reader_errors(self, streams: set[str]) -> None:
        for stream in streams & self._readers.keys():
            error = self._readers[stream].error
            if error is not None:
                raise ours(error)

    def _tell(self, report: Report | None) -> None:
        if report is not None:
            report(self.progress())

    def interrupt(self) -> None:
        self._stop.set()

    def cancel(self, name: str, error: MillstreamError | None = None) -> None:
        """Without waiting for a turn: the query may be what takes so long."""
        self._running(name).cancel(self.graph, error or cancelled())

    def progress(self) -> Progress:
        with self.lock:
            return progress_of(
                self.streams.values(), self.queries.values(), self.sources.values(), list(self.ahead.values())
            )

    # -- output ----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        self.stop_readers()
        self.run(tuple(self.queries))
        with self.lock:
            if self.journal is not None:
                self.journal({"op": "finish"}, None)
            self.finish_streams()
            if self.save is not None:
                self.save()
            else:
                for running in self.queries.values():
                    running.prepare()
                self.publish()

    def finish_streams(self) -> None:
        for stream in self.streams.values():
            if stream.definition.plan is None:
                stream.advance(FOREVER)
        for running in self.queries.values():
            running.results.close()

    def publish(self) -> None:
        """Let others see what sinks have made safe."""
        for running in self.queries.values():
            running.publish()

    def _look(self, name: str) -> GraphQuery:
        """A query as somebody is about to see it: rows that wait are let in, and its clock is that of the session."""
        self.settle()
        running = self._running(name)
        stamped = any(s.definition.clock is Clock.INTERNAL and not s.ended for s in running.streams)
        with self.lock if stamped or self.config.idle_timeout else nullcontext():
            if stamped and self._now() > self.stamp:
                self._tick()
            self._pass_idle()
        return running

    def fetch(self, name: str) -> pa.Table:
        running = self._look(name)
        if running.error is not None and not running.results.unfetched():
            raise running.error
        if self.journal is None:
            batches = running.results.fetch()
        else:
            with self.lock:
                running = self._running(name)
                if running.results.unfetched():
                    self.journal({"op": "fetch", "name": name, "upto": running.results.end}, None)
                batches = running.results.fetch()
        if not batches:
            self._raise_reader_errors(self.behind(running.program.plan))
        return as_table(batches, running.program.plan.schema.arrow, running.program.columns)

    def acknowledge(self, name: str, reader: str, upto: int | None) -> None:
        with self.lock:
            running = self._running(name)
            if self.journal is not None:
                self.journal({"op": "ack", "name": name, "reader": reader, "upto": upto}, None)
            running.results.acknowledge(reader, upto)

    def trouble(self) -> dict[str, str]:
        """What is wrong, by the names of queries and of streams whose sources are no longer read."""
        with self.lock:
            errors = [(n, r.error) for n, r in self._readers.items()] + [(n, q.error) for n, q in self.queries.items()]
            return {name: error.message for name, error in errors if error is not None}

    def admit(self, name: str, admit: Admit) -> None:
        self._running(name).results.admit = admit

    def unfetched(self, name: str) -> tuple[int, int]:
        log = self._look(name).results
        return log.fetched_to, log.end

    def results(self, name: str) -> ResultLog:
        self.is_watched = True
        self.settle()
        return self._running(name).results

    def waits(self, name: str) -> bool:
        return not all(
            stream in self.sources or self.streams[stream].definition.plan is not None
            for stream in self.behind(self._running(name).program.plan)
        )

    def content(self, name: str, at: int | None) -> pa.Table:
        """The content of a relation: without `at` at the latest time that any of its streams has come to."""
        running = self._look(name)
        if at is not None and at < running.held.since and running.error is None:
            running = self.past(running.program, at)
        return self._content(running, at)

    def content_of(self, program: ReadyQuery, at: int | None) -> pa.Table:
        running = self._look(program.name)
        with self.lock:
            at = max(running.now, running.held.since) if at is None else at
        return self._content(self.past(program, at), at)

    def _content(self, running: GraphQuery, at: int | None) -> pa.Table:
        with self.lock:
            if running.error is not None:
                raise running.error
            if at is None:
                at = max(running.now, running.held.since)
            schema = running.program.plan.schema.arrow
            over = not running.is_muted and all(stream.ended for stream in running.streams)
            coming = [] if over else still_to_come(running.top, at)
            rows = valid_at([*running.held.batches, *coming], schema, at)
            return rows.rename_columns(list(running.program.columns[:-2]))

    def statistics(self) -> Statistics:
        with self.lock:
            known = {name: stream.observer.statistics() for name, stream in self.streams.items()}
            return Statistics({name: measured for name, measured in known.items() if measured is not None})

    def close(self) -> None:
        self.stop_readers()
        with self.lock:
            for running in self.queries.values():
                running.results.close()
                running.close_sink(self.save is not None)


def _plain(rejected: tuple[Rejected, ...]) -> list[list[str | int]]:
    return [[row.error, row.row, row.origin, row.count] for row in rejected]
