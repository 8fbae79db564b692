"""GROUP BY over window tables whose aggregates can be put together from panes."""

from __future__ import annotations

from collections.abc import Callable

from millstream.expressions.functions import can_fail, resolve
from millstream.expressions.nodes import Column, Expr, Literal, columns_of
from millstream.kernels.window_groups.spec import WindowGroupSpec
from millstream.physical.nodes import Apply, Physical
from millstream.plan import nodes as P
from millstream.plan.window_tables import END, START, Hopping, OwnWindows
from millstream.types import BIGINT, INTERVAL


def plan_window_groups(node: P.Group, plan: Callable[[P.Node], Physical]) -> Physical | None:
    """The groups by panes; None if an aggregate, or what stands between groups and windows, needs the rows of each
    window."""
    project = node.input if isinstance(node.input, P.Project) else None
    table = node.input if project is None else project.input
    if not isinstance(table, P.AssignWindows) or not all(call.has_lanes for call in node.calls):
        return None
    if isinstance(table.windows, OwnWindows):
        # each length has panes of its own
        return None
    columns = P.passthrough(table.schema) if project is None else project.columns
    starts = tuple(name for name, expr in columns if name in node.keys and _is_start(expr))
    ends = tuple(name for name, expr in columns if name in node.keys and _is_end(expr, table))
    if node.ends not in ends:
        return None
    by = tuple(key for key in node.keys if key not in (*starts, *ends))
    kept = tuple((name, expr) for name, expr in columns if name in {*by, *node.args})
    if any(columns_of(expr) & {START, END} for _, expr in kept):
        return None
    if _has_gaps(table) and any(can_fail(expr) for _, expr in kept):
        # what fails only for rows that are in no window must not be computed for them
        return None
    if all(isinstance(expr, Column) and expr.name == name for name, expr in kept):
        rows = plan(table.input)
    else:
        rows = plan(P.Project(table.input, kept))
    spec = WindowGroupSpec(rows.schema, by, table.windows, table.type, node.keys, starts, ends, node.calls)
    return Apply(spec.output, (rows,), spec)


def _has_gaps(table: P.AssignWindows) -> bool:
    return isinstance(table.windows, Hopping) and table.windows.slide > table.windows.size


def _is_start(expr: Expr) -> bool:
    return isinstance(expr, Column) and expr.name == START


def _is_end(expr: Expr, table: P.AssignWindows) -> bool:
    if isinstance(expr, Column) or not isinstance(table.windows, Hopping):
        return isinstance(expr, Column) and expr.name == END
    length = Literal(BIGINT if table.type == BIGINT else INTERVAL, table.windows.size)
    return expr == resolve("+", (Column(table.type, START), length))
