"""A chain of NEXT and FOLD becomes one automaton."""

from millstream.plan.events.construct import linear_automaton, with_common_events
from millstream.plan.nodes import Node


def fuse_events(node: Node) -> Node:
    """Put operators of the event algebra that read each other's events, and the filters, projections and unions between
    them, into one automaton. What stands right of an operator stays a stream of its own,
    and so do events that many branches choose from."""
    return linear_automaton(node) or with_common_events(node)
