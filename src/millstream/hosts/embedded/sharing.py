"""What runs once for several queries: operators that they have in common, and filters that are evaluated together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from millstream.hosts.contract import Shared
from millstream.hosts.embedded.graph import Vertex
from millstream.hosts.embedded.graph_query import GraphQuery
from millstream.hosts.embedded.streams import Stream
from millstream.hosts.filter_groups import BY_SHAPE
from millstream.physical.nodes import Source
from millstream.plan.templates import QUERY


def shared_operators(streams: Iterable[Vertex]) -> list[Shared]:
    """The operators behind these vertices that several queries share, those nearest to the streams first."""
    return list(_below(list(streams), {}))


KEPT_ONCE = "kept once, by the longest window: they fill new windows and answer snapshots of any shorter one"


def shared_rows(streams: Iterable[Stream], running: Mapping[str, GraphQuery]) -> list[Shared]:
    """The rows of streams that windows of several queries look at."""
    return [
        Shared(
            f"rows of {stream.definition.name}",
            tuple(running[query].program.name for query in stream.windows),
            KEPT_ONCE,
        )
        for stream in streams
        if len(stream.windows) > 1
    ]


def _below(level: list[Vertex], known: dict[Vertex, tuple[str, ...]]) -> Iterator[Shared]:
    seen: set[Vertex] = set(level)
    while level:
        for vertex in level:
            yield from _of(vertex, known)
        level = [consumer for vertex in level for consumer, _ in vertex.consumers.all if not _was_seen(consumer, seen)]


def _was_seen(vertex: Vertex, seen: set[Vertex]) -> bool:
    before = vertex in seen
    seen.add(vertex)
    return before


def _of(vertex: Vertex, known: dict[Vertex, tuple[str, ...]]) -> Iterator[Shared]:
    queries = queries_behind(vertex, known)
    if any(QUERY in each.operator.schema for each in (vertex, *vertex.inputs)):
        # it works for queries that differ in constants, of which the session tells
        return
    if vertex.key is not None and not isinstance(vertex.key[0], Source) and len(queries) > 1:
        yield Shared(vertex.key[0].label(), queries, "the same operator")
    for group in vertex.consumers.dispatch()[1]:
        members = dict.fromkeys(name for member in group.members.values() for name in queries_behind(member, known))
        yield Shared(str(group.shape), tuple(members), BY_SHAPE)


def queries_behind(vertex: Vertex, known: dict[Vertex, tuple[str, ...]]) -> tuple[str, ...]:
    """The queries that a vertex feeds."""
    if vertex not in known:
        below = (name for consumer, _ in vertex.consumers.all for name in queries_behind(consumer, known))
        known[vertex] = tuple(dict.fromkeys((*vertex.outlets, *below)))
    return known[vertex]
