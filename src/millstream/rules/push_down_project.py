"""A projection moves into the branches of a union, and below windows."""

from __future__ import annotations

from dataclasses import replace

from millstream.expressions.functions import can_fail
from millstream.expressions.nodes import Column, Expr, substitute
from millstream.plan.lengths import RowLength, own_reads
from millstream.plan.nodes import Node, Project, Union
from millstream.plan.relations import OwnRange, Periods, RangeWindow, Window, WindowKind


def push_down_project(node: Node) -> Node:
    """Compute before the merge, so that only the columns that are needed are copied into order, and before a window,
    so that what it holds is no wider than what is asked of it."""
    match node:
        case Project(input=Union(branches=branches)):
            return Union(tuple(replace(node, input=branch) for branch in branches))
        case Project(input=Window(input=events, window=window)):
            below = _over(node, window)
            return node if below is None else Window(replace(node, input=events), below)
    return node


def _over(node: Project, window: WindowKind) -> WindowKind | None:
    """The window that over the projected rows holds the same ones, at no greater width."""
    if window.slide > 1 and any(can_fail(expr) for _, expr in node.columns):
        # a row that comes and goes between two slides is never in a result
        return None
    if isinstance(window, RangeWindow):
        return window
    kept = {expr.name: name for name, expr in node.columns if isinstance(expr, Column)}
    if isinstance(window, Periods):
        if window.until not in kept or any(can_fail(expr) for _, expr in node.columns):
            # a row that is never valid is never in a result
            return None
        return Periods(kept[window.until])
    # rows bring their lengths along
    named: dict[str, Expr] = {old: Column(node.input.schema[old].type, new) for old, new in kept.items()}
    if isinstance(window, OwnRange):
        return OwnRange(_named(window.length, named)) if window.length.reads <= kept.keys() else None
    rows = window.rows
    if not kept.keys() >= {*window.by, *own_reads(rows)} or len(node.columns) > len(node.input.schema):
        return None
    rows = _named(rows, named) if isinstance(rows, RowLength) else rows
    return replace(window, rows=rows, by=tuple(kept[name] for name in window.by))


def _named(length: RowLength, named: dict[str, Expr]) -> RowLength:
    return replace(length, of=substitute(length.of, named))
