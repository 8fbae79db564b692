"""Saving and restoring the in-process host: a checkpoint of all state, then what the journal noted since."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import pyarrow as pa

from millstream.connectors.contract import Offset, Rejected
from millstream.durable import from_ipc, to_ipc
from millstream.errors import ConnectorError, DataError, StateError
from millstream.hosts.contract import ReadyQuery
from millstream.hosts.embedded.content import ValidRows
from millstream.hosts.embedded.graph import nodes, vertices
from millstream.hosts.embedded.graph_query import GraphQuery
from millstream.hosts.embedded.host import EmbeddedHost
from millstream.hosts.embedded.streams import Stream
from millstream.kernels.batch import FOREVER
from millstream.kernels.saving.signatures import signature_of
from millstream.physical import nodes as physical
from millstream.plan.costs.statistics import StreamObserver

Saved = dict[str, Any]
Blobs = dict[str, bytes]


def save(host: EmbeddedHost) -> tuple[Saved, Blobs]:
    """A description in plain values, and states by name. Sinks commit what they have written so far."""
    blobs: Blobs = {}
    streams: Saved = {}
    for key, stream in host.streams.items():
        streams[key] = {
            "progress": stream.progress,
            "frontier": stream.frontier,
            "latest": stream.latest,
            "rows": stream.rows,
            "rejected": stream.rejected,
            "offset": host.offsets.get(key, {}),
        }
        blobs[f"measured-{key}"] = to_ipc([stream.observer.saved()])
        for side, vertex in stream.sides.items():
            _keep(blobs, f"stream-{side}-{key}", vertex.operator.snapshot())
    queries = {key: _save_query(host, running, blobs) for key, running in host.queries.items()}
    return {"arrivals": host.arrivals, "stamp": host.stamp, "streams": streams, "queries": queries}, blobs


def _save_query(host: EmbeddedHost, running: GraphQuery, blobs: Blobs) -> Saved:
    key = running.program.name.lower()
    placed = vertices(running.top, running.program.plan)
    entries = {vertex for stream in host.streams.values() for vertex in stream.sides.values()}
    for vertex in placed:
        _keep(blobs, f"vertex-{vertex.id}", vertex.operator.snapshot())
    if unfetched := running.results.unfetched():
        blobs[f"produced-{key}"] = to_ipc(unfetched)
    if running.held.batches:
        blobs[f"held-{key}"] = to_ipc(running.held.batches)
    return {
        "vertices": [vertex.id for vertex in placed],
        "sink": running.commit(),
        "rows": running.rows,
        "held": running.held.since,
        "error": None if running.error is None else running.error.message,
        # the query ran on an earlier reading of a bounded source, which has ended
        "ended": not any(source in entries for vertex in placed for source in vertex.inputs),
    }


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
    blobs: Blobs = {}
    saved = _save_query(host, running, blobs)
    if running.program.plan.schema.arrow.types != program.plan.schema.arrow.types:
        _forget_held(running, saved, blobs)
    for kind in ("produced", "held"):
        if rows := _saved_rows(blobs, f"{kind}-{key}"):
            blobs[f"{kind}-{key}"] = to_ipc([_aligned(batch, running.program, program) for batch in rows])
    ids = [host.new_vertex_id() for _ in after]
    for (mine_at, _), (theirs_at, _) in zip(old, new, strict=True):
        _keep(blobs, f"vertex-{ids[theirs_at]}", blobs.get(f"vertex-{saved['vertices'][mine_at]}"))
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


def _forget_held(running: GraphQuery, saved: Saved, blobs: Blobs) -> None:
    """Leave out what a relation holds under other columns: what it holds is known again when all of that has ended."""
    if running.held.until == FOREVER:
        raise StateError(
            f"query {running.program.name} cannot change its columns",
            detail="some of the rows in its state never end",
            hint="give the new query another name",
        )
    saved["held"] = max(saved["held"], running.held.until)
    blobs.pop(f"held-{running.program.name.lower()}", None)


def _aligned(rows: pa.RecordBatch, before: ReadyQuery, after: ReadyQuery) -> pa.RecordBatch:
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
    for key, state in saved["streams"].items():
        stream = host.streams.get(key)
        if stream is None:
            continue
        stream.progress, stream.frontier = state["progress"], state["frontier"]
        stream.latest = state["latest"]
        stream.rows, stream.rejected = state["rows"], state["rejected"]
        if f"measured-{key}" in blobs:
            stream.observer = StreamObserver.restored(from_ipc(blobs[f"measured-{key}"])[0])
        if key in host.offsets:
            host.offsets[key] = state["offset"]
        for side, vertex in stream.sides.items():
            if (blob := blobs.get(f"stream-{side}-{key}")) is not None:
                vertex.operator.restore(blob)


def restore_query(host: EmbeddedHost, program: ReadyQuery, saved: Saved, blobs: Blobs, loaded: set[str]) -> None:
    """Start a saved query on its saved state; `loaded` collects the vertices already restored."""
    current = dict(host.streams)
    if saved["ended"]:
        for name in physical.streams_of(program.plan):
            host.streams[name] = Stream(host.streams[name].definition)
    host.resume(program, saved["vertices"], saved["sink"])
    host.streams.update(current)
    running = host.queries[program.name.lower()]
    running.rows = saved["rows"]
    if saved["error"] is not None:
        running.error = DataError(saved["error"])
    for vertex in vertices(running.top, program.plan):
        blob = blobs.get(f"vertex-{vertex.id}")
        if blob is not None and vertex.id not in loaded:
            vertex.operator.restore(blob)
            loaded.add(vertex.id)
    running.results.restore(_saved_rows(blobs, f"produced-{program.name.lower()}"), saved["rows"])
    if saved["ended"] or running.error is not None or all(stream.ended for stream in running.streams):
        running.results.close(running.error)
    running.held = ValidRows(_saved_rows(blobs, f"held-{program.name.lower()}"), saved["held"])


def replay(host: EmbeddedHost, note: dict[str, Any], rows: pa.RecordBatch | None) -> None:
    """Do again what the journal says was done."""
    match note["op"]:
        case "push":
            assert rows is not None
            host.arrive(note["stream"], rows, tuple(Rejected(*row) for row in note["rejected"]))
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
        case "finish":
            host.finish_streams()


def _read_again(host: EmbeddedHost, stream: str, offset: Offset, count: int) -> None:
    """Read from a source the rows (good and refused) that were read before."""
    while count > 0:
        chunk = next(iter(host.sources[stream].read(host.offsets[stream], lambda: False, count)), None)
        if chunk is None:
            raise ConnectorError(
                f"the source of {stream} has changed: rows that were read before are missing",
                hint="start with a new directory",
            )
        host.offsets[stream] = chunk.offset
        host.arrive(stream, chunk.rows, chunk.rejected)
        count -= chunk.rows.num_rows + sum(row.count for row in chunk.rejected)
    host.offsets[stream] = offset


def _keep(blobs: Blobs, name: str, state: bytes | None) -> None:
    if state is not None:
        blobs[name] = state


def _saved_rows(blobs: Blobs, name: str) -> list[pa.RecordBatch]:
    return from_ipc(blobs[name]) if name in blobs else []
