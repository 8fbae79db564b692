"""How a query delivers its rows."""

from __future__ import annotations

from typing import Literal as OneOf

from millstream.bind.context import Context
from millstream.bind.queries.outputs import Bound
from millstream.plan.events.algebra import Times
from millstream.plan.nodes import Kind
from millstream.plan.relations import FROM, TO, Validity
from millstream.schema import Schema, unique_names

EVENT_START, EVENT_END = "event_start", "event_end"


def delivered(bound: Bound, context: Context) -> Bound:
    """A query as it gives its rows to the world: rows of a relation with the bounds of their validity, events that last
    with their start and end."""
    if bound.plan.lasts:
        times = Times(bound.plan, _bounds(bound.plan.schema), context.time_type(bound.plan))
        return Bound(times, (*bound.names, EVENT_START, EVENT_END))
    if bound.plan.kind is not Kind.RELATION:
        return bound
    return Bound(Validity(bound.plan, context.time_type(bound.plan)), (*bound.names, FROM, TO))


def _bounds(schema: Schema) -> tuple[tuple[str, OneOf["start", "end"]], ...]:
    start, end = unique_names((*schema.names, EVENT_START, EVENT_END))[len(schema) :]
    return (start, "start"), (end, "end")
