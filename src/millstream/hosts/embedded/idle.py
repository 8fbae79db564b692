"""`idle_timeout`: a stream without rows for some time does not hold back the other streams of a query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from millstream.catalog import Clock
from millstream.connectors.contract import RowSource
from millstream.hosts.embedded.streams import Stream


def idle_streams(
    queries: Iterable[list[Stream]], sources: Mapping[str, RowSource], seconds: float, now: int
) -> Iterator[tuple[Stream, int]]:
    """The streams that are idle, with the time that the others of their query have reached. Data that ends is read in
    order of time, so nobody has to wait for it."""
    patience = int(seconds * 1_000_000)
    for streams in queries:
        read = [sources.get(stream.definition.name.lower()) for stream in streams]
        if any(source is not None and source.bounded for source in read):
            continue
        timed = [stream for stream in streams if stream.definition.clock is Clock.EXTERNAL and not stream.ended]
        # the time of a stream that passes on what a query gives is that of the query
        timed = [stream for stream in timed if stream.definition.plan is None]
        for stream in timed:
            if stream.rows != stream.rows_heard:
                stream.rows_heard, stream.heard = stream.rows, now
        busy = [stream.frontier for stream in timed if now - stream.heard < patience]
        if busy and len(busy) < len(timed):
            yield from ((stream, min(busy)) for stream in timed if now - stream.heard >= patience)
