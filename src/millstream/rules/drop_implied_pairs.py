"""Rows that are valid for one instant only are equal in what tells that instant when they meet at all."""

from __future__ import annotations

from dataclasses import replace

from millstream.expressions.nodes import Column
from millstream.plan.event_joins import AtWindowEnd
from millstream.plan.nodes import AssignWindows, Distinct, Filter, Group, JoinTable, Node, Project
from millstream.plan.relations import Join, RangeWindow, Window
from millstream.plan.window_columns import WindowColumns, window_columns
from millstream.plan.window_tables import Hopping

Offsets = dict[str, int]
"""Columns whose value is the instant at which a row is valid, plus so much."""


def drop_implied_pairs(node: Node) -> Node:
    """Join by fewer columns: not by the bounds of windows, if rows are valid only when their windows end."""
    match node:
        case Join(left=left, right=right, pairs=pairs) if len(pairs) > 1:
            mine, theirs = _offsets(left), _offsets(right)
            kept = tuple(pair for pair in pairs if not _implied(pair, mine, theirs))
            # without any, all rows would meet in one place
            return node if len(kept) == len(pairs) else replace(node, pairs=kept or pairs[:1])
    return node


def _implied(pair: tuple[object, object], mine: Offsets, theirs: Offsets) -> bool:
    match pair:
        case (Column(name=one), Column(name=two)):
            return one in mine and mine[one] == theirs.get(two)
    return False


def _offsets(node: Node) -> Offsets:
    """What tells the instant of the rows of a relation that has no other rows."""
    match node:
        case AtWindowEnd(input=below, end=end, after=after):
            return _of_windows(below, end, 0 if after else 1)
        case Window(input=events, window=RangeWindow(size=1, slide=1)):
            return _of_groups(events)
        case Project(columns=columns):
            return _renamed(_offsets(node.input), columns)
        case Filter(input=below) | Distinct(input=below) | JoinTable(input=below):
            return _offsets(below)
        case Join(left=left, right=right, how="inner"):
            return _offsets(left) | _offsets(right)
        case Join(left=below, how="left" | "semi" | "anti") | Join(right=below, how="right"):
            return _offsets(below)
    return {}


def _of_groups(events: Node) -> Offsets:
    """Groups come at the time at which they end."""
    match events:
        case Group(input=below, keys=keys, ends=ends):
            return {name: offset for name, offset in _of_windows(below, ends, 0).items() if name in keys}
        case Project(input=below, columns=columns):
            return _renamed(_of_groups(below), columns)
        case Filter(input=below):
            return _of_groups(below)
    return {}


def _of_windows(events: Node, end: str, offset: int) -> Offsets:
    """The end of a window, and the start if all windows are of one size."""
    found = {end: offset}
    match window_columns(events):
        case WindowColumns(table=AssignWindows(windows=Hopping(size=size)), start=str(start), end=known) if (
            known == end
        ):
            found[start] = offset - size
    return found


def _renamed(known: Offsets, columns: tuple[tuple[str, object], ...]) -> Offsets:
    return {name: known[expr.name] for name, expr in columns if isinstance(expr, Column) and expr.name in known}
