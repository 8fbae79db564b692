"""What is known of a relation from its plan alone: whether it lasts, how its ends are ordered, how it relates to time.

Rows equal at neighbouring instants may travel as one longer row, so these speak of instants, not of how rows are cut.
"""

from __future__ import annotations

from millstream.expressions.nodes import Column
from millstream.plan.arrangements import Arrangement
from millstream.plan.event_joins import AtWindowEnd
from millstream.plan.nodes import Distinct, Filter, JoinTable, Kind, Node, Project, Scan, Union
from millstream.plan.relations import (
    Arrange,
    Coarsen,
    Join,
    Periods,
    RangeWindow,
    RowsWindow,
    SetOperation,
    Summarize,
    Window,
)


def is_chronon(node: Node) -> bool:
    """Whether a relation has rows only at instants at which events came: nothing in it lasts.

    Then each of its rows at each instant is an event again, and there are no more of them than events that came in.
    """
    match node:
        case AtWindowEnd() | Window(window=RangeWindow(size=1, slide=1)):
            return True
        case Filter(input=below) | Project(input=below) | Distinct(input=below) | Summarize(input=below):
            return is_chronon(below)
        case Arrange(input=below):
            return is_chronon(below)
        case JoinTable(input=below):
            return is_chronon(below)
        case Coarsen(input=below, granule=granule):
            return granule == 1 and is_chronon(below)
        case Union(branches=branches):
            return all(is_chronon(branch) for branch in branches)
        case Join(left=left, right=right, how=how):
            match how:
                case "inner" | "semi":
                    return is_chronon(left) or is_chronon(right)
                case "left" | "anti":
                    return is_chronon(left)
                case "right":
                    return is_chronon(right)
                case "full":
                    return is_chronon(left) and is_chronon(right)
        case SetOperation(left=left, right=right, op=op):
            return is_chronon(left) or (op == "intersect" and is_chronon(right))
    return False


def ends_in_order(node: Node) -> bool:
    """Whether the rows of a relation, in order of their starts, are also in order of their ends.

    Then rows that wait for their end wait in a queue instead of a heap.
    """
    match node:
        case AtWindowEnd():
            return True
        case Window(window=window):
            return isinstance(window, RangeWindow) or (isinstance(window, RowsWindow) and not window.by)
        case Summarize(keys=keys):
            # without groups there is one row at a time
            return not keys
        case Filter(input=below) | Project(input=below) | Coarsen(input=below) | JoinTable(input=below):
            return node.kind is Kind.RELATION and ends_in_order(below)
    return False


def may_stay(relation: Node) -> bool:
    """Whether rows of a relation may have no end that time alone brings."""
    match relation:
        case Window(window=RowsWindow() | Periods() | RangeWindow(size=None)):
            return True
    return any(may_stay(child) for child in relation.inputs if child.kind is Kind.RELATION)


def unique_key(node: Node) -> frozenset[str] | None:
    """Columns of which a relation has at no instant two rows with equal values, if the plan says so; None if not.

    The empty set means that there is at most one row at a time. NULL equals NULL here.
    """
    match node:
        case Distinct(input=below):
            known = unique_key(below)
            return frozenset(below.schema.names) if known is None else known
        case Summarize(keys=keys):
            return frozenset(keys)
        case Window(window=RowsWindow(rows=1, by=by)):
            return frozenset(by)
        case Window(input=below):
            return unique_key(below)
        case Scan(key=key):
            return frozenset(key) if key and set(key) <= set(node.schema.names) else None
        case Arrange(keys=keys, arrangement=Arrangement(count=0 | 1)):
            return frozenset(keys)
        case Filter(input=below) | Coarsen(input=below) | Arrange(input=below):
            return unique_key(below)
        case Project(input=below, columns=columns):
            known = unique_key(below)
            kept = {expr.name: name for name, expr in columns if isinstance(expr, Column)}
            return frozenset(kept[name] for name in known) if known is not None and known <= kept.keys() else None
        case JoinTable(input=below, how="semi" | "anti" | "mark" | "single" | "gather"):
            return unique_key(below)
        case Join(left=left, right=right, how=how):
            of_left, of_right = unique_key(left), unique_key(right)
            if how in ("semi", "anti"):
                return of_left
            # rows without a match on either side may be equal in all the columns that are NULL
            return None if of_left is None or of_right is None or how == "full" else of_left | of_right
        case SetOperation(left=left, right=right, op=op, all=every):
            known = unique_key(left)
            if known is None and op == "intersect":
                known = unique_key(right)
            return frozenset(node.schema.names) if known is None and not every else known
    return None
