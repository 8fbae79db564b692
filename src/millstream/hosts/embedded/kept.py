"""What the in-process host keeps of its streams' past: stores of those with KEEP, and what live windows hold."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from millstream.catalog import Retention, StreamDef
from millstream.hosts.contract import ReadyQuery
from millstream.hosts.embedded.streams import Stream
from millstream.hosts.history import StreamHistory
from millstream.kernels.batch import BEGIN
from millstream.physical import nodes as physical
from millstream.plan.costs.backfill import RowsToRead, filling
from millstream.plan.costs.backfill import told as told_time
from millstream.plan.costs.statistics import Statistics
from millstream.plan.reach import Reach, reaches
from millstream.records import dataclass

if TYPE_CHECKING:
    from millstream.hosts.embedded.host import EmbeddedHost

WINDOW_ROWS = 65_536
"""rows that are kept of a stream without KEEP while windows are open over it, at most: no more than a push is worth"""


def declared(definition: StreamDef, home: Path | None) -> Stream:
    """A stream as it begins, with its store if it keeps its rows; `home` is where stores of a session are."""
    stream = Stream(definition)
    if definition.keep is not None:
        stream.history = StreamHistory(definition, definition.keep, _place(definition, home))
    return stream


def keep(stream: Stream, definition: StreamDef, home: Path | None) -> None:
    """Keep more or less of a stream from now on."""
    before, stream.definition = stream.history, definition
    if definition.keep is None:
        stream.history = None
        _follow_windows(stream)
    elif before is not None and before.directory == _place(definition, home):
        before.keep, before.stream, before.most = definition.keep, definition, 0
        before.expire()
    else:
        stream.history = _begun(stream, definition.keep, _place(definition, home))
        if before is not None:
            stream.history.take_over(before)


def _place(definition: StreamDef, home: Path | None) -> Path | None:
    return None if home is None else home / f"s-{quote(definition.name.lower(), safe='')}"


def _begun(stream: Stream, retention: Retention, directory: Path | None = None, most: int = 0) -> StreamHistory:
    """A store that begins now: what came before is missing."""
    made = StreamHistory(stream.definition, retention, directory, start=stream.emitted, most=most)
    made.lost = stream.latest if stream.rows else BEGIN
    return made


def reaches_of(program: ReadyQuery) -> dict[str, Reach]:
    """How far back a query looks at each of its streams."""
    if program.bound is None:
        return dict.fromkeys(physical.streams_of(program.plan))
    return reaches(program.bound)


def matters_from(program: ReadyQuery, at: int) -> dict[str, int]:
    """The streams of a query whose rows matter for so long only, and from when on they do at an instant and after it;
    one unit of time more, as changes of an instant depend on the one before it."""
    known = {stream: reach for stream, reach in reaches_of(program).items() if reach is not None}
    return {stream: max(at - reach - 1, BEGIN) for stream, reach in known.items()}


@dataclass(frozen=True)
class Filling:
    """How a query that starts now is filled: the estimates of both ways, and from when on rows are read if they are
    pulled, by stream; otherwise all that are kept are pushed through it."""

    push: tuple[int, float]
    """how many rows, and nanoseconds"""
    pull: tuple[int, float] | None
    """None if it is no way: results for the past are emitted, too"""
    pulled_from: Mapping[str, int]

    def __str__(self) -> str:
        push, pull = (
            None if way is None else f"{way[0]} rows, about {told_time(way[1])}" for way in (self.push, self.pull)
        )
        chosen = "pull" if self.pulled_from else "push"
        return f"push: {push}; " + (f"pull: {pull}; {chosen}" if pull else "no pull, past results are emitted, too")


def filling_of(program: ReadyQuery, streams: Collection[Stream]) -> Filling:
    """Rows of the past are pushed through a query that starts now. But of a view nobody sees past results, so what its
    windows hold now is enough: these rows are pulled if that costs less."""
    plan = program.bound
    measured = {each.definition.name.lower(): each.observer.statistics() for each in streams}
    known = Statistics({name: found for name, found in measured.items() if found is not None})

    def way(since: Mapping[str, int]) -> tuple[int, float]:
        read = [_read(each, since.get(each.definition.name.lower())) for each in streams]
        return sum(rows.rows for rows in read), 0.0 if plan is None else filling(plan, known, read)

    push = way({})
    if not (program.view and program.relation):
        return Filling(push, None, {})
    since = matters_from(program, min((stream.frontier for stream in streams), default=BEGIN))
    pull = way(since)
    return Filling(push, pull, since if pull[1] < push[1] or plan is None else {})


def _read(stream: Stream, since: int | None) -> RowsToRead:
    history = stream.history
    if history is None:
        return RowsToRead(0)
    return RowsToRead(history.pinned(since=since).rows, history.directory is not None, bool(history.keep.key))


def hold_for(stream: Stream, query: str, reach: Reach) -> None:
    """A query with a window looks at a stream: what that holds may fill the windows of others."""
    if reach:
        stream.windows[query.lower()] = reach
        _follow_windows(stream)


def release(stream: Stream, query: str) -> None:
    if stream.windows.pop(query.lower(), None) is not None:
        _follow_windows(stream)


def _follow_windows(stream: Stream) -> None:
    """Keep as much of a stream without KEEP as its longest window needs."""
    if stream.definition.keep is not None:
        return
    longest = max(stream.windows.values(), default=0)
    if not longest:
        stream.history = None
    elif stream.history is None:
        stream.history = _begun(stream, Retention("time", longest), most=WINDOW_ROWS)
    elif stream.history.keep.amount != longest:
        stream.history.keep = Retention("time", longest)


def sweep(host: EmbeddedHost) -> None:
    """After a checkpoint: remove files of history that it does not name."""
    if host.home is None or not host.home.exists():
        return
    used = {stream.history.directory: stream.history for stream in host.streams.values() if stream.history is not None}
    for directory in host.home.iterdir():
        history = used.get(directory)
        if history is not None:
            history.sweep()
        else:
            shutil.rmtree(directory, ignore_errors=True)


def told(stream: Stream, since: int | None) -> str:
    """What is kept of a stream, where, and how much of that a query reads."""
    name, history = stream.definition.name, stream.history
    if history is None:
        return f"{name}: no rows are kept; KEEP, or a running RANGE window, would keep some"
    kind = "its store" if stream.definition.keep is not None else "what live windows hold"
    by = f" by {history.keep.key}" if history.keep.key else ""
    where = "in memory" if history.directory is None else f"in Parquet files{by}"
    whole = "all rows since the stream began" if history.lost == BEGIN else "not since the stream began"
    how = "pushed through the query"
    if since is not None:
        how = f"of which {history.pinned(since=since).rows} are read: those in its windows now"
    return f"{name}: {history.rows} rows from {kind}, {where}, {whole}; {how}"
