"""AGGREGATE{…}: one event for all that end at the same time.

It is a GROUP BY of the events that happen at an instant: an event of its own at that instant.
"""

from __future__ import annotations

from sqlglot import exp

from millstream.bind.context import Context
from millstream.plan import nodes as P
from millstream.sql.event_nodes import EventAggregate, EventExpression
from millstream.sql.relations import StreamWindow, Windowed
from millstream.sql.spans import span_of


def bind_instants(node: EventAggregate, context: Context) -> P.Node:
    """The plan of `SELECT RSTREAM(keys, aggregates) FROM input [NOW] GROUP BY keys`."""
    from millstream.bind.queries.select import bind_named

    keys = [key.copy() for key in node.keys]
    for part in node.expressions:
        if not isinstance(part, exp.Alias):
            context.fail("an aggregate in braces needs a name", part, hint="add AS …")
    items = [*keys, *(part.copy() for part in node.expressions)]
    inner = node.this.copy()
    if isinstance(inner, EventExpression):
        inner = exp.Subquery(this=exp.Select(expressions=[exp.Star()], from_=exp.From(this=inner)))
    window = Windowed(this=inner, window=StreamWindow(kind="RANGE", now=True))
    query = exp.Select(expressions=items, from_=exp.From(this=window))
    if keys:
        query.set("group", exp.Group(expressions=[key.copy() for key in keys]))
    query.set("stream_of", "RSTREAM")
    if (span := span_of(node)) is not None:
        query.meta["start"], query.meta["end"] = span.start, span.end - 1
    return bind_named(query, context, query).plan
