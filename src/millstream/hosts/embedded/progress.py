"""How far a session has come, in rows."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.connectors.contract import RowSource
from millstream.hosts.contract import Progress
from millstream.hosts.embedded.graph_query import GraphQuery
from millstream.hosts.embedded.starting import CatchUp
from millstream.hosts.embedded.streams import Stream


def progress_of(
    streams: Iterable[Stream],
    queries: Iterable[GraphQuery],
    sources: Iterable[RowSource],
    ahead: Iterable[CatchUp],
) -> Progress:
    """Rows of all streams and queries; the total is known if all bounded sources know theirs."""
    streams = list(streams)
    sizes = [source.size() for source in sources if source.bounded]
    return Progress(
        {stream.definition.name: stream.rows for stream in streams},
        {running.program.name: running.rows for running in queries},
        sum(stream.rejected for stream in streams),
        sum(stream.late for stream in streams),
        sum(size for size in sizes if size is not None) if sizes and None not in sizes else None,
        {catch_up.running.program.name: catch_up.share for catch_up in ahead},
    )
