"""GROUP BY over window tables: keys, aggregates, and the program that computes them."""

from __future__ import annotations

from typing import NoReturn

from sqlglot import exp

from millstream.bind.aggregates.groups import GroupedExpressions, aggregates_rows
from millstream.bind.context import Context
from millstream.bind.queries.subqueries import Subqueries
from millstream.bind.scope import Scope
from millstream.expressions import functions
from millstream.expressions.nodes import Column, Literal
from millstream.plan import nodes as P
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.programs.product import begins_with_sqlcode
from millstream.plan.window_columns import window_columns
from millstream.plan.window_tables import OwnWindows
from millstream.types import BIGINT, INTERVAL


def is_grouped(select: exp.Select, plan: P.Node, context: Context) -> bool:
    """Whether a SELECT aggregates rows that have windows."""
    return aggregates_rows(select, context) and window_columns(plan) is not None


class GroupBinder(GroupedExpressions):
    """Binds the expressions of a SELECT over window tables: a group is complete when its window has ended."""

    def __init__(
        self, select: exp.Select, plan: P.Node, scope: Scope, context: Context, subqueries: Subqueries
    ) -> None:
        super().__init__(select, plan, scope, context, subqueries)
        found = window_columns(plan)
        assert found is not None
        self.windows = found
        self.ends = self._add_end()

    def _groups(self) -> P.Node:
        if not self.calls:
            # what a group is needs a row of it only
            self._names(AggregateCall.of_rows())
        self._check_one_row()
        self._check_sqlcode()
        plan, calls = self._prepared()
        return P.Group(plan, tuple(self.keys.values()), calls, self.ends)

    @property
    def ordered_by(self) -> set[str]:
        """The columns by which groups come in order anyway."""
        same = {self.windows.start} if self.windows.end_together else set()
        return {name.lower() for name in (self.ends, *same) if name is not None}

    def _check_sqlcode(self) -> None:
        for call in list(self.calls)[1:]:
            if call.program is not None and begins_with_sqlcode(call.program):
                self.context.refuse(
                    f"{call.fn} reads sqlcode first, which another aggregate has set",
                    self.select,
                    hint="put it first in the select list",
                )

    def _add_end(self) -> str:
        """The key that tells when a group ends."""
        start, end, table = self.windows.start, self.windows.end, self.windows.table
        if end is not None and self._has_key(end):
            return end
        if start is not None and self._has_key(start):
            depends = (
                self.windows.end_together
                if isinstance(table, P.AssignWindows)
                else all(map(self._has_key, self.windows.partition))
            )
            if end is not None and depends:
                return self._add_key(Column(table.type, end))
            if isinstance(table, P.AssignWindows) and not isinstance(table.windows, OwnWindows):
                length = Literal(BIGINT if table.type == BIGINT else INTERVAL, table.windows.size)
                return self._add_key(functions.resolve("+", (Column(table.type, start), length)))
            self._refuse_keys("sessions that begin together may end at different times", "window_end")
        missing = "window_start, window_end" if start is not None and end is not None else "the window's bounds"
        return self._refuse_keys("a group is complete when its window has ended", missing)

    def _refuse_keys(self, detail: str, missing: str) -> NoReturn:
        group = self.select.args.get("group")
        self.context.refuse(
            "this GROUP BY never ends" if group is not None else "this aggregate never ends",
            group if group is not None else self.select,
            detail=detail,
            hint=f"{'add' if group is not None else 'GROUP BY'} {missing}",
        )
