"""Where rows that come from a window table have the bounds of their windows."""

from __future__ import annotations

from dataclasses import replace

from millstream.expressions.nodes import Column
from millstream.plan import event_joins as E
from millstream.plan import nodes as P
from millstream.plan import relations as R
from millstream.plan.unnest import Unnest
from millstream.plan.window_tables import END, START
from millstream.records import dataclass


@dataclass(frozen=True)
class WindowColumns:
    """The window table that a plan's rows come from, and under which names the plan has its bounds and partition
    columns; None for those that it does not have."""

    table: P.AssignWindows | P.Sessions
    start: str | None
    end: str | None
    partition: tuple[str | None, ...] = ()

    @property
    def end_together(self) -> bool:
        """Whether windows that begin together end together: they are of one length."""
        return isinstance(self.table, P.AssignWindows) and not self.table.windows.grows


def window_columns(plan: P.Node) -> WindowColumns | None:
    """Where a plan's rows have their windows; None if they have none."""
    match plan:
        case P.AssignWindows():
            return WindowColumns(plan, START, END)
        case P.Sessions(keys=keys):
            return WindowColumns(plan, START, END, keys)
        case P.Filter(input=below) | P.Over(input=below) | P.Distinct(input=below) | P.JoinTable(input=below):
            return window_columns(below)
        case Unnest(input=below):
            return window_columns(below)
        case E.Starts(input=below) | E.AtWindowEnd(input=below, after=False):
            return window_columns(below)
        case R.Join(left=below, how="inner" | "left" | "semi" | "anti") | R.Join(right=below, how="right"):
            # the windows of rows without a match, too
            return window_columns(below)
        case P.Project(input=below, columns=columns):
            inner = window_columns(below)
            if inner is None:
                return None
            names = {expr.name: name for name, expr in reversed(columns) if isinstance(expr, Column)}
            return replace(
                inner,
                start=names.get(inner.start or ""),
                end=names.get(inner.end or ""),
                partition=tuple(names.get(key or "") for key in inner.partition),
            )
    return None
