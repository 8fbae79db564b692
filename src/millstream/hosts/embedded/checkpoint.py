"""Saving and restoring the in-process host: a checkpoint of all state, then what the journal noted since.

States have names, which are made here alone: `owner`, or `owner/piece` for what is saved in pieces. Of kernels these
are the pieces that `kernels/saving` divides states into, of results the rows between two positions. A checkpoint has
all pieces, and writes those that the one before has not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.connectors.contract import Offset, Rejected, Watched
from millstream.durable import from_ipc, to_ipc
from millstream.errors import ConnectorError, DataError, StateError
from millstream.hosts.contract import Once, ReadyQuery
from millstream.hosts.embedded.content import ValidRows
from millstream.hosts.embedded.graph import nodes, sources_of, unplug, vertices
from millstream.hosts.embedded.graph_query import GraphQuery
from millstream.hosts.embedded.members import alone
from millstream.hosts.embedded.operators import Operator, RunKernel
from millstream.hosts.embedded.starting import joined
from millstream.hosts.embedded.streams import Stream
from millstream.hosts.results import ResultLog
from millstream.kernels.batch import FOREVER
from millstream.kernels.saving.signatures import signature_of
from millstream.physical import nodes as physical
from millstream.plan.costs.statistics import StreamObserver

if TYPE_CHECKING:
    from millstream.hosts.embedded.host import EmbeddedHost

Saved = dict[str, Any]
Blobs = Mapping[str, bytes]

_PRODUCED = "produced-"


class SavedStates:
    """The states that a checkpoint must have, by name, and those of them that no checkpoint has yet."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names = set(names)
        self.unsaved: dict[str, bytes] = {}
        self._owners: set[str] = set()
        self._rows: dict[str, list[str]] = {}
        """the pieces of unread rows that were there when it began, by owner"""

    def begin(self) -> None:
        """From now on it is told what is there."""
        self._owners, self._rows = set(), {}
        for name in self.names:
            if name.startswith(_PRODUCED) and (owner := _owner(name)) != name:
                self._rows.setdefault(owner, []).append(name)

    def put(self, name: str, state: bytes | None) -> None:
        """A state that is written whenever it is saved; None if there is none."""
        self._owners.add(_owner(name))
        if state is None:
            self._drop(name)
        else:
            self.names.add(name)
            self.unsaved[name] = state

    def change(self, owner: str, operator: Operator) -> None:
        """The state of an operator, once for all queries that share it; of a kernel, the pieces that changed."""
        if owner in self._owners:
            return
        if not isinstance(operator, RunKernel):
            self.put(owner, operator.snapshot())
            return
        self.put(owner, None)  # so it was saved by earlier versions
        for number, piece in operator.changes().items():
            self.put(f"{owner}/{number}", piece)

    def results(self, owner: str, log: ResultLog) -> None:
        """Rows that somebody has yet to read, without those that were saved before."""
        self.put(owner, None)
        known = log.kept_from
        for name in sorted(self._rows.get(owner, ()), key=_bounds):
            start, end = _bounds(name)
            if start <= known < end <= log.end:
                known = end
            else:
                self._drop(name)
        if rows := log.rows_from(known):
            self.put(f"{owner}/{known}-{log.end}", to_ipc(rows))

    def settle(self) -> None:
        """All that is there has been told: the rest is gone."""
        for name in [name for name in self.names if _owner(name) not in self._owners]:
            self._drop(name)

    def _drop(self, name: str) -> None:
        self.names.discard(name)
        self.unsaved.pop(name, None)


def _owner(name: str) -> str:
    return name.rpartition("/")[0] or name


def _bounds(name: str) -> tuple[int, int]:
    start, _, end = name.rpartition("/")[2].partition("-")
    return int(start), int(end)


def _vertex(vertex: str) -> str:
    return f"vertex-{vertex}"


def _produced(query: str) -> str:
    return f"{_PRODUCED}{query.lower()}"


def _held(query: str) -> str:
    return f"held-{query.lower()}"


def _side(side: str, stream: str) -> str:
    return f"stream-{side}-{stream}"


def lost_queries(queries: Mapping[str, Saved], lost: Iterable[str]) -> list[str]:
    """The saved queries that cannot go on without states that are lost."""
    owners = {_owner(name) for name in lost}
    return [
        query
        for query, saved in queries.items()
        if not owners.isdisjoint({*map(_vertex, saved["vertices"]), _produced(query), _held(query)})
    ]


def lost_streams(lost: Iterable[str]) -> list[str]:
    """The streams of which rows that waited to be put in order are lost."""
    return sorted({_owner(name).split("-", 2)[2] for name in lost if name.startswith("stream-")})


def without_states(names: Iterable[str], queries: Iterable[Saved], lost: Iterable[str]) -> set[str]:
    """The names of states that are still of use: all pieces of an owner or none, and no vertex without a query."""
    gone = {_owner(name) for name in lost}
    used = {_vertex(vertex) for saved in queries for vertex in saved["vertices"]}
    kept = {name for name in names if _owner(name) not in gone}
    return {name for name in kept if not name.startswith("vertex-") or _owner(name) in used}


def save(host: EmbeddedHost, states: SavedStates) -> Saved:
    """A description in plain values; `states` gets what changed. Sinks make safe what they have written so far."""
    states.begin()
    streams: Saved = {}
    for key, stream in host.streams.items():
        streams[key] = {
            "progress": stream.progress,
            "frontier": stream.frontier,
            "latest": stream.latest,
            "rows": stream.rows,
            "rejected": stream.rejected,
            "offset": host.offsets.get(key, {}),
            "emitted": stream.emitted,
        }
        if stream.definition.keep is not None and stream.history is not None:
            streams[key]["history"] = stream.history.save()
        states.put(f"measured-{key}", to_ipc([stream.observer.saved()]))
        states.change(_side("main", key), stream.sides["main"].operator)
        # how far the late side is follows from the other, with every batch
        states.put(_side("late", key), stream.sides["late"].operator.snapshot())
    queries = {}
    for key, running in host.queries.items():
        queries[key] = _description(host, running)
        for vertex in vertices(running.top, running.program.plan):
            states.change(_vertex(vertex.id), vertex.operator)
        states.results(_produced(key), running.results)
        states.put(_held(key), to_ipc(running.held.batches) if running.held.batches else None)
    states.settle()
    return {
        "arrivals": host.arrivals,
        "stamp": host.stamp,
        "streams": streams,
        "queries": queries,
        "producers": host.producers.saved(),
        "members": host.members.numbered,
    }


def _description(host: EmbeddedHost, running: GraphQuery) -> Saved:
    placed = vertices(running.top, running.program.plan)
    entries = {vertex for stream in host.streams.values() for vertex in stream.sides.values()}
    return {
        "vertices": [vertex.id for vertex in placed],
        "sink": running.prepare(),
        "rows": running.rows,
        "fetched": running.results.fetched_to,
        "dropped": running.results.unfetched_lost,
        "readers": running.results.acknowledged(),
        "held": running.held.since,
        "error": None if running.error is None else running.error.message,
        "covered": running.covered,
        "paused": running.paused,
        "cut": running.cut,
        "last": running.last,
        "member": _membership(host, running),
        # the query ran on an earlier reading of a bounded source, which has ended
        "ended": not any(source in entries for vertex in placed for source in vertex.inputs),
    }


def _membership(host: EmbeddedHost, running: GraphQuery) -> Saved | None:
    """How a query shares its operators, if it does."""
    member = running.program.member
    return None if member is None else {"alone": member.is_alone, "since": dict(host.members.since(member))}


def replace_query(host: EmbeddedHost, program: ReadyQuery) -> None:
    """Let a program go on with the state of the running query of its name, kernel by kernel; refused if it cannot."""
    key = program.name.lower()
    running = host.queries[key]
    before, after = nodes(running.program.plan), nodes(program.plan)
    old = [(place, node) for place, node in enumerate(before) if isinstance(node, physical.Source | physical.Apply)]
    new = [(place, node) for place, node in enumerate(after) if isinstance(node, physical.Source | physical.Apply)]
    for mine, theirs in zip_longest((node for _, node in old), (node for _, node in new)):
        if mine is None or theirs is None or _state_of(mine) != _state_of(theirs):
            raise StateError(
                f"query {program.name} cannot continue with its state",
                detail=f"the state was saved by {_told(mine)}, but the query now has {_told(theirs)}",
                hint="stop the query and start it again, or give the new one another name",
            )
    blobs: dict[str, bytes] = {}
    saved = _description(host, running)
    for vertex in vertices(running.top, running.program.plan):
        _keep(blobs, _vertex(vertex.id), vertex.operator.snapshot())
    if rows := running.results.rows_from(running.results.kept_from):
        blobs[_produced(key)] = to_ipc(rows)
    if running.held.batches:
        blobs[_held(key)] = to_ipc(running.held.batches)
    if running.program.plan.schema.arrow.types != program.plan.schema.arrow.types:
        _forget_held(running, saved, blobs)
    for name in (_produced(key), _held(key)):
        if rows := _saved_rows(blobs, name):
            blobs[name] = to_ipc([aligned(batch, running.program, program) for batch in rows])
    ids = [host.new_vertex_id() for _ in after]
    for (mine_at, _), (theirs_at, _) in zip(old, new, strict=True):
        _keep(blobs, _vertex(ids[theirs_at]), blobs.get(_vertex(saved["vertices"][mine_at])))
    host.stop(program.name)
    restore_query(host, program, {**saved, "vertices": ids}, blobs, set())


def _state_of(node: physical.Physical) -> str:
    """What an operator keeps: of a stream, from where on it is read."""
    if isinstance(node, physical.Apply):
        return signature_of(node.spec).digest
    assert isinstance(node, physical.Source)
    return f"{node.side} of {node.stream.lower()}"


def _told(node: physical.Physical | None) -> str:
    return "nothing" if node is None else f"[{node.label()}]"


def _forget_held(running: GraphQuery, saved: Saved, blobs: dict[str, bytes]) -> None:
    """Leave out what a relation holds under other columns: what it holds is known again when all of that has ended."""
    if running.held.until == FOREVER:
        raise StateError(
            f"query {running.program.name} cannot change its columns",
            detail="some of the rows in its state never end",
            hint="give the new query another name",
        )
    saved["held"] = max(saved["held"], running.held.until)
    blobs.pop(_held(running.program.name), None)


def aligned(rows: pa.RecordBatch, before: ReadyQuery, after: ReadyQuery) -> pa.RecordBatch:
    """Rows that were delivered, under the columns of another program; those that they had not are NULL."""
    schema = after.plan.schema.arrow
    if rows.schema.types == schema.types:
        return pa.RecordBatch.from_arrays(rows.columns, schema=schema)
    known = {(name, column.type): column for name, column in zip(before.columns, rows.columns, strict=True)}
    columns = [
        known.get((name, field.type), pa.nulls(rows.num_rows, field.type))
        for name, field in zip(after.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def restore_streams(host: EmbeddedHost, saved: Saved, blobs: Blobs) -> None:
    """Put declared streams back to where they were; their queries follow with `restore_query`."""
    host.arrivals, host.stamp = saved["arrivals"], saved["stamp"]
    host.producers.load(saved.get("producers", []))
    host.members.numbered = saved.get("members", 0)
    for key, state in saved["streams"].items():
        stream = host.streams.get(key)
        if stream is None:
            continue
        stream.progress, stream.frontier = state["progress"], state["frontier"]
        stream.latest = state["latest"]
        stream.rows, stream.rejected = state["rows"], state["rejected"]
        stream.emitted = state.get("emitted", 0)
        if stream.history is not None and state.get("history") is not None:
            stream.history.restore(state["history"])
        if f"measured-{key}" in blobs:
            stream.observer = StreamObserver.restored(from_ipc(blobs[f"measured-{key}"])[0])
        if key in host.offsets:
            host.offsets[key] = state["offset"]
        for side, vertex in stream.sides.items():
            _load(vertex.operator, _side(side, key), blobs)


def restore_query(host: EmbeddedHost, program: ReadyQuery, saved: Saved, blobs: Blobs, loaded: set[str]) -> None:
    """Start a saved query on its saved state; `loaded` collects the vertices already restored."""
    current = dict(host.streams)
    if saved["ended"]:
        for name in physical.streams_of(program.plan):
            host.streams[name] = Stream(host.streams[name].definition)
    membership = saved.get("member")
    if membership is not None and membership["alone"]:
        program = alone(program)
    host.resume(program, saved["vertices"], saved["sink"])
    host.streams.update(current)
    running = host.queries[program.name.lower()]
    if membership is not None:
        joined(host, running, membership["since"])
    running.rows = saved["rows"]
    running.covered = saved.get("covered", {})
    if saved["error"] is not None:
        running.error = DataError(saved["error"])
    for vertex in vertices(running.top, program.plan):
        if vertex.id not in loaded:
            loaded.add(vertex.id)
            _load(vertex.operator, _vertex(vertex.id), blobs)
    rows = _saved_rows(blobs, _produced(program.name))
    running.results.restore(
        rows, saved["rows"], saved.get("fetched"), saved.get("readers", {}), saved.get("dropped", 0)
    )
    if running.error is not None:
        running.leave()
    if saved["ended"] or running.error is not None or all(stream.ended for stream in running.streams):
        running.results.close(running.error)
    running.held = ValidRows(_saved_rows(blobs, _held(program.name)), saved["held"])
    running.cut, running.last = (None if found is None else tuple(found) for found in map(saved.get, ("cut", "last")))
    if saved.get("paused") is not None:
        running.paused = saved["paused"]
        host.graph.keep_apart(running.top)
        for source in sources_of(running.top):
            unplug(source)


def replay(host: EmbeddedHost, note: dict[str, Any], rows: pa.RecordBatch | None) -> None:
    """Do again what the journal says was done."""
    match note["op"]:
        case "push":
            assert rows is not None
            counts = host.arrive(note["stream"], rows, tuple(Rejected(*row) for row in note["rejected"]))
            host.producers.remember(Once(*note["once"]) if "once" in note else None, counts)
            if "offset" in note:
                host.offsets[note["stream"]] = note["offset"]
        case "read":
            _read_again(host, note["stream"], note["offset"], note["count"])
        case "advance":
            host.advance(note["stream"], note["upto"])
        case "tick":
            host.tick(note["stamp"])
        case "end":
            host.end(note["stream"])
        case "fetch":
            results = host.queries[note["name"].lower()].results
            results.skip_to(note.get("upto", results.end))
        case "ack":
            host.queries[note["name"].lower()].results.acknowledge(note["reader"], note["upto"])
        case "finish":
            host.finish_streams()


def _read_again(host: EmbeddedHost, stream: str, offset: Offset, count: int) -> None:
    """Read from a source the rows (good and refused) that were read before."""
    source = host.sources[stream]
    changed = source.changed(offset) if isinstance(source, Watched) else None
    while changed is None and count > 0:
        try:
            chunk = next(iter(source.read(host.offsets[stream], lambda: False, count)), None)
        except ConnectorError as error:
            changed = error.message
            break
        if chunk is None:
            changed = "it has ended"
            break
        host.offsets[stream] = chunk.offset
        host.arrive(stream, chunk.rows, chunk.rejected)
        count -= chunk.rows.num_rows + sum(row.count for row in chunk.rejected)
    if changed is not None:
        raise StateError(
            f"the source of {stream} no longer has the rows it had",
            detail=f"rows that were read after the last checkpoint are read again: {changed}",
            hint="restore it as it was, then open the session again",
        )
    host.offsets[stream] = offset


def _load(operator: Operator, owner: str, blobs: Blobs) -> None:
    """Give an operator the state that was saved, as a whole or in pieces; without one it is as it was made."""
    pieces = {int(name.rpartition("/")[2]): blob for name, blob in blobs.items() if name.startswith(f"{owner}/")}
    if pieces:
        assert isinstance(operator, RunKernel)
        operator.assemble(pieces)
    elif owner in blobs:
        operator.restore(blobs[owner])


def _keep(blobs: dict[str, bytes], name: str, state: bytes | None) -> None:
    if state is not None:
        blobs[name] = state


def _saved_rows(blobs: Blobs, owner: str) -> list[pa.RecordBatch]:
    """Rows that were saved, as a whole or in pieces."""
    pieces = sorted((name for name in blobs if name.startswith(f"{owner}/")), key=_bounds)
    return [batch for name in pieces or [owner] if name in blobs for batch in from_ipc(blobs[name])]
