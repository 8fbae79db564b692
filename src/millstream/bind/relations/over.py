"""OVER, QUALIFY and ORDER BY … LIMIT on relations: at each instant, what SQL says of the rows that are valid then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.expressions import ExpressionBinder
from millstream.bind.queries.outputs import Bound
from millstream.bind.queries.window_limit import row_count, with_order_columns
from millstream.bind.windows.arranged import ArrangedBinder
from millstream.expressions.nested_codes import order_of
from millstream.expressions.nodes import Column, Expr
from millstream.plan import nodes as P
from millstream.plan import relations as R
from millstream.plan.arrangements import OF_EDGES, OF_PLACE, ArrangedCall, Arrangement
from millstream.plan.ties import SortKey
from millstream.records import dataclass


@dataclass
class SnapshotWindows:
    """Collects the window calls of one SELECT over relations while it is bound, then builds their plan."""

    context: Context
    named: dict[str, exp.Window]
    added: dict[str, Expr] = field(default_factory=dict)
    groups: dict[tuple[tuple[str, ...], tuple[SortKey, ...]], dict[ArrangedCall, str]] = field(default_factory=dict)

    def bind(self, node: exp.Window, expressions: ExpressionBinder) -> Expr:
        """The column that will hold the value of `node`."""
        window = node
        if (name := node.args.get("alias")) is not None:
            if name.name.lower() not in self.named:
                self.context.fail(f"no window {name.name}", node, hint="define it: WINDOW w AS (…)")
            window = self.named[name.name.lower()]
        scalar = ExpressionBinder(self.context, expressions.scope, None)
        binder = ArrangedBinder(self.context, self._column)
        keys = tuple(self._column(scalar.bind(part)) for part in window.args.get("partition_by") or [])
        call = binder.call(node, window, scalar)
        order = binder.order(window, scalar)
        if not order and (call.fn in OF_PLACE | OF_EDGES or (call.frame or "").startswith("ROWS")):
            self.context.refuse(
                "OVER needs an order here",
                node,
                detail="the rows that are valid at an instant have no order",
                hint="OVER (… ORDER BY …)",
            )
        group = self.groups.setdefault((keys, order), {})
        return Column(call.type, group.setdefault(call, f"$w{sum(map(len, self.groups.values())) + 1}.{call.fn}"))

    def _column(self, expr: Expr) -> str:
        if isinstance(expr, Column):
            return expr.name
        found = next((name for name, known in self.added.items() if known == expr), None)
        if found is None:
            found = f"$w.e{len(self.added) + 1}"
            self.added[found] = expr
        return found

    def build(self, plan: P.Node) -> P.Node:
        """The plan with the calls as columns."""
        if not self.groups:
            return plan
        ties = plan.schema.names
        if self.added:
            plan = P.Project(plan, (*P.passthrough(plan.schema), *self.added.items()))
        for (keys, order), calls in self.groups.items():
            named = tuple(replace(call, name=name) for call, name in calls.items())
            plan = R.Arrange(plan, keys, Arrangement(order, named, ties))
        return plan


def limits_rows(select: exp.Expr) -> bool:
    """Whether a query asks for some of the rows of each instant."""
    return any(select.args.get(key) is not None for key in ("limit", "offset"))


def bind_first_rows(node: exp.Expr, context: Context, bind: Callable[[exp.Expr], Bound]) -> Bound:
    """A query over relations with ORDER BY … LIMIT: at each instant the first rows then."""
    if node.args.get("order") is None:
        context.refuse(
            "LIMIT on a relation needs an order",
            node.args.get("limit") or node.args["offset"],
            detail="the rows that are valid at an instant have no order",
            hint="ORDER BY … LIMIT n",
        )
    skip = row_count(node.args.get("offset"), context)
    count = None if node.args.get("limit") is None else row_count(node.args["limit"], context)
    if isinstance(node, exp.SetOperation):
        # what UNION and the like give is ordered by its columns
        inner = node.copy()
        order = inner.args["order"]
        for clause in ("order", "limit", "offset", "with_", "stream_of", "publish"):
            inner.set(clause, None)
        outer = exp.Select(expressions=[exp.Star()], order=order)
        outer.set(
            "from_", exp.From(this=exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier("$all"))))
        )
        outer.meta.update(node.meta)
        node = outer
    assert isinstance(node, exp.Select)
    inner_select, order, hidden = with_order_columns(node, "$first")
    if hidden and node.args.get("distinct") is not None:
        context.fail(
            "with DISTINCT, ORDER BY needs selected columns", node.args["order"], hint="select the columns of ORDER BY"
        )
    bound = bind(inner_select)
    plan, columns = bound.plan, bound.plan.schema.names
    places = dict(zip((name.lower() for name in bound.names), columns, strict=True))
    keys: list[SortKey] = []
    by: dict[str, Expr] = {}
    for part in order:
        found = places.get(part.this.name.lower())
        if found is None:
            context.fail(f"no column {part.this.name}", part)
        if plan.schema[found].type.is_nested:
            by[f"$order{len(by)}"] = order_of(Column(plan.schema[found].type, found))
            found = list(by)[-1]
        keys.append(SortKey(found, bool(part.args.get("desc")), bool(part.args.get("nulls_first"))))
    kept = columns[: len(columns) - len(hidden)]
    rows = P.Project(plan, (*P.passthrough(plan.schema), *by.items())) if by else plan
    first = R.Arrange(rows, (), Arrangement(tuple(keys), (), kept, skip, count))
    if not hidden and not by:
        return Bound(first, bound.names)
    shown = tuple((name, Column(plan.schema[name].type, name)) for name in kept)
    return Bound(P.Project(first, shown), bound.names[: len(kept)])
