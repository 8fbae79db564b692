"""Where the rows of a plan are, in the words of STREAM: what EXPLAIN VERBOSE prints of each operator.

A Stream has rows that never change any more, the Store rows that are valid now and will end, Scratch what an operator
keeps to go on, and what is thrown away nobody can ask for.
"""

from __future__ import annotations

from millstream.plan.event_joins import AsofJoin
from millstream.plan.events.algebra import Fold, Next
from millstream.plan.events.automata import Automaton
from millstream.plan.keyed_nodes import Aggregate, Group, Over, RowSlots, Sessions, Yield
from millstream.plan.lateness import AdmitLate
from millstream.plan.node import Kind, Node, walk
from millstream.plan.nodes import Distinct, Filter, JoinTable, Union
from millstream.plan.patterns.search import Match
from millstream.plan.relations import (
    Arrange,
    Coarsen,
    Join,
    RowsWindow,
    SetOperation,
    Summarize,
    ToEvents,
    Validity,
    Window,
)
from millstream.plan.ties import Ties

_OUTPUT = {Kind.EVENTS: "Stream", Kind.RELATION: "Store", Kind.TABLE: "Store"}

_INSTANCES = ("open instances, with their values", "instances that no event can follow any more")
_INSTANT = ("the rows of the current instant", "")
_VALID = ("the valid rows", "rows that have ended")

_KEPT: dict[type[Node], tuple[str, str]] = {
    AdmitLate: ("the rows that a late row may still precede", "rows that are later than LATENESS allows"),
    Aggregate: ("the tables of the program, of each key", "rows that left the window"),
    Arrange: _VALID,
    AsofJoin: ("the rows that may be nearest to a later one", "rows that a nearer row replaced"),
    Automaton: _INSTANCES,
    Coarsen: ("the rows that begin or end before the next instant", "rows that end before it"),
    Distinct: _INSTANT,
    Filter: ("", "rows for which it is not true"),
    Fold: _INSTANCES,
    Group: ("aggregates of the groups of open windows", "groups of windows that have ended"),
    Join: ("the valid rows of both sides", "rows that have ended"),
    JoinTable: ("", "rows without a partner, unless the join emits them"),
    Match: ("attempts that may become matches, with the rows they need", "rows that no attempt needs"),
    Next: _INSTANCES,
    Over: ("the rows of the frame, of each key", "rows that left the frame"),
    RowSlots: ("aggregates of the slot, of each key", "all rows but the last of a slot"),
    Sessions: ("the rows of open sessions", ""),
    SetOperation: ("how many copies of each row are valid on each side", "rows that have ended"),
    Summarize: ("aggregates of each group that has valid rows", "groups without rows"),
    Ties: _INSTANT,
    ToEvents: ("the rows that may still change", ""),
    Union: ("the rows that wait for other inputs", ""),
    Validity: ("the rows that are valid now: q.snapshot()", ""),
    Yield: ("where each key is in its slot", "all rows but the last of a slot"),
}


def whereabouts(plan: Node) -> str:
    """The plan, and beside each operator where its output goes, what it keeps, and what it throws away."""
    tree = str(plan).splitlines()
    width = max(map(len, tree))
    lines = []
    for line, node in zip(tree, walk(plan), strict=True):
        kept, thrown = _window(node) if isinstance(node, Window) else _KEPT.get(type(node), ("", ""))
        parts = [f"to {_OUTPUT[node.kind]}", f"Scratch: {kept}" if kept else "", f"Throw: {thrown}" if thrown else ""]
        lines.append(f"{line:{width}}  {'; '.join(part for part in parts if part)}")
    return "\n".join(lines)


def _window(node: Window) -> tuple[str, str]:
    if isinstance(node.window, RowsWindow):
        return f"the rows of the window{', of each key' if node.window.by else ''}", "rows that others replaced"
    return "rows until they end, where the physical plan has changes", "rows that have ended"
