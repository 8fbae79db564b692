"""A projection moves into the branches of a union, and below windows."""

from __future__ import annotations

from dataclasses import replace

from millstream.expressions.functions import can_fail
from millstream.expressions.nodes import Column, Expr, substitute
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
    if isinstance(window, OwnRange):
        # rows bring their lengths along
        if not window.length.reads <= kept.keys():
            return None
        types = {name: node.input.schema[name].type for name in window.length.reads}
        named: dict[str, Expr] = {name: Column(type_, kept[name]) for name, type_ in types.items()}
        return OwnRange(replace(window.length, of=substitute(window.length.of, named)))
    if not kept.keys() >= set(window.by) or len(node.columns) > len(node.input.schema):
        return None
    return replace(window, by=tuple(kept[name] for name in window.by))
