"""How far back a result looks: from when on a query that missed the beginning gives complete answers."""

from __future__ import annotations

from dataclasses import fields

from millstream.plan import nodes as P
from millstream.plan import relations as R
from millstream.plan.window_tables import Cumulating, Hopping

Reach = int | None
"""units of time; None: all of the past, or as much as rows decide"""


def reaches(plan: P.Node, above: Reach = 0) -> dict[str, Reach]:
    """For each stream of a plan (in small letters), how far its rows reach into the future of results."""
    if isinstance(plan, P.Scan):
        return {plan.stream.lower(): above}
    found: dict[str, Reach] = {}
    for child in plan.inputs:
        for stream, reach in reaches(child, _further(above, _own(plan))).items():
            known = found.get(stream, 0)
            found[stream] = None if reach is None or known is None else max(reach, known)
    return found


def steps(plan: P.Node, above: Reach = None) -> dict[str, Reach]:
    """For each stream of a plan (in small letters), the shortest step of time that its windows go by; None: no window
    of time tells."""
    if isinstance(plan, P.Scan):
        return {plan.stream.lower(): above}
    found: dict[str, Reach] = {}
    for child in plan.inputs:
        for stream, step in steps(child, _shorter(above, _step(plan))).items():
            found[stream] = _shorter(found.get(stream), step)
    return found


def _step(node: P.Node) -> Reach:
    """The step of an operator's own windows."""
    shortest: Reach = None
    for each in fields(node):
        match getattr(node, each.name):
            case R.RangeWindow(size=size, slide=slide):
                shortest = _shorter(shortest, slide if slide > 1 else size)
            case Hopping(slide=step) | Cumulating(step=step):
                shortest = _shorter(shortest, step)
    for call in node.calls if isinstance(node, P.Over) else ():
        if call.frame is not None and call.frame.unit == "range" and call.frame.start:
            shortest = _shorter(shortest, abs(call.frame.start))
    return shortest


def _shorter(one: Reach, other: Reach) -> Reach:
    return other if one is None else one if other is None else min(one, other)


def _own(node: P.Node) -> Reach:
    """How long a row matters to an operator alone."""
    match node:
        case R.Window(window=R.RangeWindow(size=size, slide=slide)):
            return None if size is None else size + slide - 2
        case P.Over(calls=calls):
            return _frames(calls)
        case R.ToEvents() | R.Join() | R.Summarize() | R.Arrange() | R.SetOperation() | R.Validity() | P.Union():
            # at each instant, what is valid then alone
            return 0
        case P.JoinTable():
            # at each instant, what is valid then alone
            return 0
        case R.Coarsen(granule=granule):
            return granule
        case P.Filter() | P.Project():
            return 0
    return 0 if node.works_by_row else None


def _frames(calls: tuple[object, ...]) -> Reach:
    longest = 0
    for call in calls:
        frame = getattr(call, "frame", None)
        if frame is None or frame.unit != "range" or frame.start is None:
            return None
        longest = max(longest, abs(frame.start))
    return longest


def _further(one: Reach, other: Reach) -> Reach:
    return None if one is None or other is None else one + other
