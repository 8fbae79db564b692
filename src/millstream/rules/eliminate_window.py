"""Events that become a relation only to become events again stay events."""

from __future__ import annotations

from dataclasses import replace

from millstream.plan.nodes import Filter, Node, Project, Union
from millstream.plan.relations import RangeWindow, ToEvents, Window


def eliminate_window(node: Node) -> Node:
    """RSTREAM of what is valid for one instant, and ISTREAM of what is valid for ever, are the rows as they came."""
    match node:
        case ToEvents(input=below, how="rstream", granule=1):
            return _events(below, RangeWindow(1)) or node
        case ToEvents(input=below, how="istream"):
            return _events(below, RangeWindow(None)) or node
    return node


def _events(node: Node, window: RangeWindow) -> Node | None:
    """The plan without its windows, if all of them are this one and the operators between work row by row."""
    match node:
        case Window(input=below, window=found):
            return below if found == window else None
        case Filter(input=below) | Project(input=below):
            events = _events(below, window)
            return None if events is None else replace(node, input=events)
        case Union(branches=branches):
            events_of = [_events(branch, window) for branch in branches]
            found_all = tuple(branch for branch in events_of if branch is not None)
            return Union(found_all) if len(found_all) == len(branches) else None
    return None
