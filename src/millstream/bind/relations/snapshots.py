"""SELECT over relations: what holds at each instant of the rows that are valid then."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from millstream.bind.aggregates.calls import IN_ORDER, WrittenCall
from millstream.bind.aggregates.groups import Arguments, GroupedExpressions, aggregates_rows, ungrouped
from millstream.bind.context import Context
from millstream.bind.expressions import ExpressionBinder
from millstream.bind.queries.outputs import Bound, deliver, outputs_of
from millstream.bind.queries.subqueries import Subqueries, asks_streams
from millstream.bind.relations.over import SnapshotWindows
from millstream.bind.relations.windows import as_relation
from millstream.bind.scope import Scope
from millstream.expressions.nodes import Column, Expr
from millstream.plan import nodes as P
from millstream.plan import relations as R
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.annotations import may_stay


def is_over_relations(select: exp.Select, plan: P.Node, context: Context) -> bool:
    """Whether a SELECT is answered instant by instant: its rows, or those of a query in it, are a relation's."""
    if plan.kind is P.Kind.TABLE:
        return False
    parts = [*select.expressions, *(select.args[key] for key in ("where", "having") if select.args.get(key))]
    return plan.kind is P.Kind.RELATION or any(asks_streams(part, context) for part in parts)


def bind_snapshots(
    select: exp.Select, plan: P.Node, scope: Scope, context: Context, beside: tuple[Column, ...] = ()
) -> Bound:
    """The plan of a SELECT over relations; for each combination of `beside`, if given, which are delivered last."""
    refuse_clauses(select, context)
    subqueries = Subqueries(context, plan, over_relations=True)
    plan = as_relation(plan)
    if (where := select.args.get("where")) is not None:
        rows = ungrouped(context, scope)
        plan = subqueries.filtered(plan, where.this, rows)
    if aggregates_rows(select, context) or select.args.get("having") is not None:
        groups = SnapshotBinder(select, plan, scope, context, subqueries, beside)
        outputs = [output for part in select.expressions for output in outputs_of(part, scope, groups)]
        bound = deliver(*groups.build([*outputs, *((column.name, column) for column in beside)]))
    else:
        windows = SnapshotWindows(context, named_windows(select))
        expressions = ExpressionBinder(context, scope, _refuse_over(context) if beside else windows.bind)
        expressions.subquery = subqueries.value
        outputs = [output for part in select.expressions for output in outputs_of(part, scope, expressions)]
        plan = windows.build(subqueries.joined(plan))
        bound = deliver(plan, [*outputs, *((column.name, column) for column in beside)])
    subqueries.check_windows()
    check_order(select, bound.plan, context)
    if select.args.get("distinct") is not None:
        return Bound(P.Distinct(bound.plan), bound.names)
    return bound


def refuse_clauses(node: exp.Expr, context: Context) -> None:
    """Refuse what has no meaning for a bag of rows at each instant."""
    for key in ("limit", "offset"):
        if (clause := node.args.get(key)) is not None:
            context.refuse(
                f"{key.upper()} is not supported in a correlated subquery",
                clause,
                hint="number the rows instead: … FROM (SELECT *, row_number() OVER (PARTITION BY … ORDER BY …) AS n …)",
            )
    distinct = node.args.get("distinct")
    if isinstance(distinct, exp.Distinct) and distinct.args.get("on") is not None:
        context.refuse("DISTINCT ON is not supported on a relation", distinct, hint="GROUP BY those columns")


def check_order(node: exp.Expr, plan: P.Node, context: Context) -> None:
    """ORDER BY may say what is so anyway."""
    order = node.args.get("order")
    if order is None:
        return
    if may_stay(plan):
        context.refuse(
            "this relation is emitted as its rows end and cannot be sorted differently",
            order,
            detail="some of its rows may stay valid forever, and other rows do not wait for them",
            hint="leave ORDER BY out",
        )
    for part in order.expressions:
        if part.args.get("desc") or not isinstance(part.this, exp.Column) or part.this.name.lower() != R.FROM:
            context.refuse(
                "a relation is emitted in order of valid_from and cannot be sorted differently",
                order,
                hint="leave ORDER BY out",
            )


class SnapshotBinder(GroupedExpressions):
    """Binds the expressions of a SELECT that aggregates the rows which are valid at the same time."""

    any_value = "min"

    def __init__(
        self, select: exp.Select, plan: P.Node, scope: Scope, context: Context, subqueries: Subqueries,
        beside: tuple[Column, ...] = (),
    ) -> None:  # fmt: skip
        super().__init__(select, plan, scope, context, subqueries)
        for column in beside:
            self._add_key(column)

    def _groups(self) -> P.Node:
        if not self.calls and not self.keys:
            self._names(AggregateCall.of_rows())
        self._check_one_row()
        plan, calls = self._prepared()
        keys = tuple(self.keys.values())
        if not self.calls:
            return P.Distinct(P.Project(plan, tuple((key, Column(plan.schema[key].type, key)) for key in keys)))
        return R.Summarize(plan, keys, calls)

    def _builtin(self, call: WrittenCall, rows: Arguments) -> AggregateCall[Expr]:
        if call.fn in IN_ORDER and not call.order:
            self.context.refuse(
                f"{call.name} of a relation",
                call.node,
                detail="the rows that are valid at the same time have no order",
                hint=f"give them one: {call.name}(… ORDER BY …), or use a window of the last rows: "
                "s WINDOW(PARTITION BY … ROWS 1)",
            )
        return super()._builtin(call, rows)


def named_windows(select: exp.Select) -> dict[str, exp.Window]:
    """The windows of a WINDOW clause."""
    return {window.name.lower(): window for window in select.args.get("windows") or []}


def _refuse_over(context: Context) -> Callable[[exp.Window, ExpressionBinder], Expr]:
    def refuse(node: exp.Window, _: ExpressionBinder) -> Expr:
        return context.refuse(
            "OVER is not supported in a correlated subquery",
            node,
            hint="compute it in a subquery in FROM: … FROM (SELECT *, row_number() OVER (…) AS n FROM …)",
        )

    return refuse
