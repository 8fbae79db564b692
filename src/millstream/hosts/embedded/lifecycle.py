"""Starting, stopping and changing queries and kept streams of the in-process host."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from millstream.catalog import StreamDef
from millstream.errors import DataError
from millstream.hosts.contract import Coverage, ReadyQuery, Shared
from millstream.hosts.embedded import altering, kept, starting
from millstream.hosts.embedded.graph_query import GraphQuery
from millstream.hosts.embedded.host_state import HostState
from millstream.hosts.embedded.inspection import GraphInspector
from millstream.hosts.embedded.members import constants_told
from millstream.hosts.embedded.sharing import shared_operators, shared_rows
from millstream.kernels.batch import BEGIN, FOREVER
from millstream.physical import nodes as physical


class Lifecycle(HostState):
    """The part of the host that changes what runs."""

    def keep(self, stream: StreamDef) -> None:
        """Keep as much of a stream as its definition says, from now on."""
        with self.lock:
            kept.keep(self._find(stream.name), stream, self.home)

    def history(self, stream: str) -> Any:
        """The kept rows of a stream as a data set."""
        with self.lock:
            history = self._find(stream).history
            assert history is not None, "binding has checked it"
            return history.dataset()

    def prepare(self, program: ReadyQuery) -> None:
        """Do what takes long of starting a query, or of altering the one of its name, while the others go on."""
        with self.lock.aside():
            self.graph.make_ready(program.plan)
        if program.name.lower() in self.queries:
            altering.alter_ahead(self, program)
        elif program.history is not None:
            starting.begin_ahead(self, program)

    def explain_alteration(self, program: ReadyQuery) -> list[str]:
        with self.lock:
            return altering.alteration(self, program).lines()

    def new_member(self) -> int | None:
        # what an operator costs is held against each query of such a session
        return None if self.config.limits else self.members.new_number()

    knows_what_waits = True

    def takes_in(self, name: str, inputs: Collection[physical.Physical]) -> bool:
        with self.lock:
            return not (inputs and self.queries[name.lower()].is_ahead(inputs))

    def emit_so_far(self, name: str) -> None:
        with self.lock:
            pass  # small pushes that wait are let in

    def explain(self, program: ReadyQuery) -> str:
        if program.member is None:
            return str(program.plan)
        many = self.members.count(program.member)
        shared = f"as one with {many - 1} other queries" if many > 1 else "with operators that others may share"
        return f"{program.plan}\nruns {shared}; its own constants: {constants_told(program.member.constants)}"

    def pause(self, name: str) -> None:
        with self.lock:
            altering.pause(self, self._running(name).program.name)

    def go_on(self, name: str) -> None:
        with self.lock:
            altering.go_on(self, self._running(name).program.name)

    def state(self, name: str) -> str:
        """Whether a query is running, paused, failed or has ended."""
        running = self._running(name)
        if running.error is not None:
            return "failed"
        if running.paused is not None:
            return "paused"
        return "ended" if running.results.closed else "running"

    def phase(self, name: str) -> str:
        ahead = self.ahead.get(name.lower())
        return "planning" if ahead is None else ahead.phase

    def coverage(self, name: str) -> Coverage:
        """From when on a query has seen all rows, and its answers are complete."""
        with self.lock:
            since, complete = _covered(self._running(name))
        return Coverage(_told(since), _told(complete), complete == BEGIN)

    def past(self, program: ReadyQuery, at: int) -> GraphQuery:
        """A relation as it was at an instant that its streams have passed, or as it would have been: its plan runs once
        over the kept rows that its windows have at that instant."""
        again = starting.begin_apart(self, replace(program, sink=None, history=None), None)
        again.until = at
        again.looks_from = kept.matters_from(program, at)
        if _covered(again.running)[1] > at:
            raise DataError(
                f"the content of {program.name} at that time is no longer known",
                hint="choose an instant that its streams have not passed yet, or let them keep more: KEEP",
            )
        with self.lock.aside():
            again.feed()
        return again.running

    def sharing(self) -> list[Shared]:
        with self.lock:
            sides = (side for stream in self.streams.values() for side in stream.sides.values())
            return [*shared_operators(sides), *shared_rows(self.streams.values(), self.queries)]

    def inspector(self) -> GraphInspector:
        return GraphInspector(self)

    def sources_of_history(self, program: ReadyQuery) -> list[str]:
        """Where a query that starts now would take rows of the past from, stream by stream."""
        with self.lock:
            streams = {name: self.streams[name] for name in physical.streams_of(program.plan)}
            how = kept.filling_of(program, streams.values())
            return [str(how), *(kept.told(stream, how.pulled_from.get(name)) for name, stream in streams.items())]


def _covered(running: GraphQuery) -> tuple[int, int]:
    """From when on a query has seen all rows, and its answers are complete."""
    reach = kept.reaches_of(running.program)
    seen = {stream: running.covered.get(stream, BEGIN) for stream in physical.streams_of(running.program.plan)}
    ends = [
        BEGIN if begin == BEGIN else FOREVER if reach.get(stream) is None else begin + (reach[stream] or 0)
        for stream, begin in seen.items()
    ]
    return max(seen.values(), default=BEGIN), max(ends, default=BEGIN)


def _told(instant: int) -> int | None:
    return None if instant in (BEGIN, FOREVER) else instant
