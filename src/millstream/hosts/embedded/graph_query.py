"""A running query as the graph knows it: where its rows go, what it holds, and why it failed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import nullcontext, suppress
from dataclasses import field

import numpy as np

from millstream.connectors.contract import Offset, Sink
from millstream.errors import LimitError, MillstreamError, ours
from millstream.hosts.contract import ReadyQuery
from millstream.hosts.embedded.content import ValidRows
from millstream.hosts.embedded.graph import Graph, Vertex, cut_behind, nodes, vertices
from millstream.hosts.embedded.operators import RunKernel
from millstream.hosts.embedded.streams import Stream
from millstream.hosts.results import ResultLog
from millstream.kernels.batch import FOREVER, Batch
from millstream.physical.nodes import Apply, Physical
from millstream.records import dataclass

log = logging.getLogger("millstream")


@dataclass(eq=False)
class GraphQuery:
    """A query in the graph: its rows go to a sink, or wait in the log of its results until they are fetched."""

    program: ReadyQuery
    streams: list[Stream]
    results: ResultLog
    top: Vertex = field(init=False)
    sink: Sink | None = None
    committed: Offset = field(default_factory=dict)
    """how far the sink's rows are safe"""
    held: ValidRows = field(default_factory=ValidRows)
    rows: int = 0
    error: MillstreamError | None = None
    covered: dict[str, int] = field(default_factory=dict)
    """of each stream, the instant from which on it has seen all rows; BEGIN: from the first one"""
    paused: dict[str, int] | None = None
    """while it rests: how many rows of each stream it has seen"""
    gives_to: Stream | None = None
    """the stream that passes its rows on"""
    is_muted: bool = False
    """while what it gives was given before, by the query whose place it takes"""
    muted_from: int | None = None
    """while it is muted: from when on that may not have been given"""
    kept_back: list[Batch] = field(default_factory=list)
    """what it made meanwhile of those instants"""
    cut: tuple[int, int] | None = None
    """the instant, and the arrival number within it, before which the query whose place it took has given all"""
    last: tuple[int, int] | None = None
    """instant and arrival number of the last row that it gave"""
    leave: Callable[[], None] = field(default=lambda: None)
    """called when no more rows are for it"""

    @property
    def now(self) -> int:
        """The latest time that any of its streams has come to."""
        return max((stream.latest for stream in self.streams), default=self.held.since)

    def is_ahead(self, inputs: Collection[Physical]) -> bool:
        """Whether events of these inputs of automata wait for first events that are still to come."""
        plan = self.program.plan
        for node, vertex in zip(nodes(plan), vertices(self.top, plan), strict=True):
            if isinstance(node, Apply) and isinstance(vertex.operator, RunKernel):
                ports = [port for port, child in enumerate(node.over) if child in inputs]
                if ports and vertex.operator.is_ahead(ports):
                    return True
        return False

    def deliver(self, batch: Batch) -> None:
        if self.error is not None:
            return
        if self.is_muted and self.muted_from is not None and len(batch):
            self.kept_back.append(batch.slice(int(np.searchsorted(batch.time, self.muted_from)), len(batch)))
        if self.cut is not None:
            batch = self._after_cut(batch)
        if len(batch):
            self.last = int(batch.time[-1]), int(batch.seq[-1])
        if self.gives_to is not None:
            self.gives_to.take(batch)
        if self.program.relation:
            # a window that slides, or coarse time, is further than the streams it is of
            self.held.add(batch.rows, min(batch.upto, self.now))
        if self.is_muted:
            return
        self.rows += len(batch)
        if self.sink is not None and len(batch):
            try:
                self.sink.write(batch.rows)
            except Exception as error:
                # it is this query's trouble alone: others have their rows, and a push that went through is not repeated
                self.fail(ours(error))
                return
        lost = self.results.unfetched_lost
        try:
            self.results.append(batch.rows)
        except LimitError as error:
            self.fail(error)
            return
        if not lost and self.results.unfetched_lost:
            log.warning("query %s: dropping the oldest rows that were not fetched", self.program.name)
        if batch.upto == FOREVER:
            self.results.close()
            self.leave()

    def take_over(self, cut: tuple[int, int] | None) -> None:
        """From now on it gives what comes; before that, what the query before it has not given."""
        waiting, self.kept_back, self.cut = self.kept_back, [], cut
        for batch in waiting if cut is not None else ():
            self.deliver(batch)

    def _after_cut(self, batch: Batch) -> Batch:
        assert self.cut is not None
        time, number = self.cut
        if batch.upto > time:
            self.cut = None
        if not len(batch) or batch.time[0] > time:
            return batch
        return batch.take(np.flatnonzero((batch.time > time) | ((batch.time == time) & (batch.seq >= number))))

    def prepare(self) -> Offset:
        """Make safe what the sink has; one that failed stays where it was."""
        if self.sink is not None and self.error is None:
            try:
                self.committed = self.sink.prepare()
            except Exception as error:
                self.fail(ours(error))
        return self.committed

    def publish(self) -> None:
        """Let others see what is safe."""
        if self.sink is not None and self.error is None:
            try:
                self.sink.publish()
            except Exception as error:
                self.fail(ours(error))

    def close_sink(self, saved: bool) -> None:
        """Let go of the sink; one that failed has said so already. In a session that is saved nothing is seen of a sink
        that is not in a checkpoint."""
        if self.sink is None:
            return
        if saved:
            self.sink.release()
            return
        with suppress(MillstreamError, OSError) if self.error is not None else nullcontext():
            self.sink.close()

    def cancel(self, graph: Graph, error: MillstreamError) -> None:
        """From any thread."""
        self.fail(error)
        graph.give_up(self.program.name, self.top, error)

    def fail(self, error: MillstreamError) -> None:
        if self.error is None:
            log.warning("query %s failed: %s", self.program.name, error.message)
        self.error = self.error or error
        self.results.close(self.error)
        self.leave()
        if self.gives_to is not None:
            cut_behind(self.gives_to.sides["main"], self.error)
