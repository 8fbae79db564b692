"""Queries → logical plan."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from sqlglot import exp

from millstream.bind.aggregates.groups import ungrouped
from millstream.bind.aggregates.keys import key_meant
from millstream.bind.aggregates.versions import OwnCalls, RunningBinder, calls_own
from millstream.bind.aggregates.window_groups import GroupBinder, is_grouped
from millstream.bind.context import Context
from millstream.bind.expressions import ExpressionBinder
from millstream.bind.patterns.outside import sequence_of
from millstream.bind.queries.exists import with_semi_joins
from millstream.bind.queries.from_clause import bind_entry, bind_from, with_joined_conditions
from millstream.bind.queries.grouped_windows import bind_windows_over_groups, windows_over_groups
from millstream.bind.queries.grouping_sets import bind_grouping_sets, has_grouping_sets
from millstream.bind.queries.outputs import Bound, alias_columns, deliver, outputs_of
from millstream.bind.queries.parenthesised import without_parentheses
from millstream.bind.queries.qualify import bind_qualified
from millstream.bind.queries.set_operations import bind_set_operation
from millstream.bind.queries.subqueries import Subqueries, asks_streams
from millstream.bind.queries.window_keys import has_window_key, with_window_table
from millstream.bind.queries.window_limit import bind_window_limit, limits_windows
from millstream.bind.relations.over import bind_first_rows, limits_rows
from millstream.bind.relations.snapshots import bind_snapshots, is_over_relations, named_windows
from millstream.bind.relations.windows import to_events
from millstream.bind.scope import Scope
from millstream.bind.tables.queries import bind_table_query, is_table_query
from millstream.bind.windows.over import WindowBinder, WindowedExpressions
from millstream.expressions.nodes import Column
from millstream.plan import nodes as P

__all__ = ["Bound", "bind_named", "bind_query", "with_queries"]


def bind_query(node: exp.Expr, context: Context) -> Bound:
    """The plan of a query expression."""
    bound = _bind_plain(node, with_queries(node, context))
    how = node.args.get("stream_of")
    if how:
        plan = to_events(str(how), bound.plan, node, context)
        bound = Bound(plan, plan.schema.names if bound.plan.kind is P.Kind.TABLE else bound.names)
    if (name := node.args.get("publish")) is not None:
        bound = _distinctly_named(bound, name, context)
        context.publish(name, bound.plan)
    return bound


def with_queries(node: exp.Expr, context: Context) -> Context:
    """The context in which the queries of a WITH clause are known."""
    with_ = node.args.get("with_") or node.args.get("with")
    if with_ is not None and with_.args.get("recursive"):
        _refuse_recursion(with_, context)
    for cte in with_.expressions if with_ is not None else ():
        context = context.with_local(cte.alias, bind_named(cte.this, context.within(None), cte).plan, cte)
    return context


def _refuse_recursion(with_: exp.Expr, context: Context) -> None:
    for cte in with_.expressions:
        for table in cte.this.find_all(exp.Table):
            if table.name.lower() == cte.alias.lower():
                context.refuse(
                    f"{cte.alias} refers to itself",
                    table,
                    detail="recursion over a stream never ends",
                    hint="WITH RECURSIVE works on stored tables only",
                )


def _bind_plain(node: exp.Expr, context: Context) -> Bound:
    if is_table_query(node, context):
        return bind_table_query(node, context)
    match node:
        case exp.Subquery():
            return bind_query(node.this, context)
        case exp.Select():
            return _bind_select(node, context)
        case exp.SetOperation():
            return bind_set_operation(node, context)
    return context.fail("a query is expected here", node)


def bind_named(node: exp.Expr, context: Context, at: exp.Expr, names: tuple[str, ...] | None = None) -> Bound:
    """A query whose columns are referred to by name, so the names must differ; `names`, or those that the alias of `at`
    gives, replace its own."""
    bound = bind_query(node, context)
    names = names or alias_columns(at)
    if names is not None:
        if len(names) != len(bound.names):
            context.fail(
                f"{len(names)} names for {len(bound.names)} columns", at, hint="name every column of the query, or none"
            )
        bound = Bound(bound.plan, names)
    return _distinctly_named(bound, at, context)


def _distinctly_named(bound: Bound, at: exp.Expr, context: Context) -> Bound:
    """The query with its columns under the names that it gives them."""
    lower = [name.lower() for name in bound.names]
    repeated = next((name for name in bound.names if lower.count(name.lower()) > 1), None)
    if repeated is not None:
        context.fail(f"two columns are named {repeated}", at, hint="rename one with AS")
    if bound.names != bound.plan.schema.names:
        columns = tuple(
            (name, Column(field.type, field.name)) for name, field in zip(bound.names, bound.plan.schema, strict=True)
        )
        return Bound(P.Project(bound.plan, columns), bound.names)
    return bound


def _bind_select(node: exp.Select, context: Context) -> Bound:
    if (sequence := sequence_of(node)) is not None:
        from millstream.bind.patterns.sequences import SequenceBinder

        return SequenceBinder(node, sequence, context, lambda entry: bind_entry(entry, context)).build()
    if has_window_key(node, context) and context.domain is None:
        node = with_window_table(node, *bind_from(node, context), context)
    if windows_over_groups(node) and context.domain is None:
        columns = _columns_of_from(node, context)
        return bind_windows_over_groups(node, context, columns, lambda whole: _bind_select(whole, context))
    if node.args.get("qualify") is not None and context.domain is None:
        return bind_qualified(node, context, lambda plain: _bind_select(plain, context))
    if has_grouping_sets(node) and context.domain is None:
        columns = _columns_of_from(node, context)
        return bind_grouping_sets(node, context, columns, lambda plain: _bind_select(plain, context))
    domain, context = context.domain, context.within(None)
    node = with_joined_conditions(without_parentheses(node, context))
    plan, scope = bind_from(node, context)
    if plan.kind is P.Kind.EVENTS and (joined := with_semi_joins(node, context)) is not node:
        node = joined
        plan, scope = bind_from(node, context)
    if domain is not None:
        plan, scope = domain.beside(plan, scope, node, context)
        return bind_snapshots(node, plan, scope, context, domain.columns)
    if plan.kind is P.Kind.TABLE and (where := node.args.get("where")) is not None and asks_streams(where, context):
        context.refuse(
            "a query over streams filters the rows of a stored table here",
            where,
            detail="rows of a table have no time at which they could be emitted",
            hint="add a stream or a window to FROM",
        )
    if is_over_relations(node, plan, context):
        if limits_rows(node):
            return bind_first_rows(node, context, lambda whole: bind_query(whole, context))
        return bind_snapshots(node, plan, scope, context)
    if limits_windows(node, plan):
        return bind_window_limit(node, context, lambda whole: _bind_select(whole, context))
    grouped = is_grouped(node, plan, context)
    running = not grouped and any(calls_own(part, OwnCalls(context, str)) for part in node.expressions)
    _refuse_clauses(node, context, plan, grouped or running)
    subqueries = Subqueries(context, plan)
    if (where := node.args.get("where")) is not None:
        rows = ungrouped(context, scope) if grouped else ExpressionBinder(context, scope)
        plan = subqueries.filtered(plan, where.this, rows)
    if grouped:
        groups = GroupBinder(node, plan, scope, context, subqueries)
        check_order(node, context, groups.ordered_by)
        outputs = [output for part in node.expressions for output in outputs_of(part, scope, groups)]
        return deliver(*groups.build(outputs))
    windows = WindowBinder(context, plan, named_windows(node))
    expressions: ExpressionBinder = WindowedExpressions(context, scope, windows)
    if running:
        expressions = RunningBinder(expressions, windows.own, node.args.get("group"))
    expressions.subquery = subqueries.value
    outputs = [output for part in node.expressions for output in outputs_of(part, scope, expressions)]
    having = node.args.get("having")
    steps = [] if having is None else subqueries.steps(having.this, expressions)
    plan = windows.build()
    for step in steps:
        plan = step.above(plan)
    return deliver(subqueries.joined(plan), outputs)


def _columns_of_from(node: exp.Select, context: Context) -> Callable[[str], bool]:
    """Whether FROM has a column; it is bound when that is asked first."""

    @cache
    def scope() -> Scope:
        return bind_from(with_joined_conditions(without_parentheses(node, context)), context)[1]

    return lambda name: scope().knows(name)


def _refuse_clauses(node: exp.Select, context: Context, plan: P.Node, grouped: bool = False) -> None:
    if plan.kind is P.Kind.TABLE:
        for key in ("group", "distinct", "having", "qualify", "limit", "offset", "order"):
            if (clause := node.args.get(key)) is not None:
                word = key.upper() + (" BY" if key in ("group", "order") else "")
                context.refuse(
                    f"{word} in a query over tables next to a stream is not supported yet",
                    node if key == "distinct" else clause,
                    hint="store its rows with CREATE TABLE … AS, and join that table",
                )
    if not grouped and (group := node.args.get("group")) is not None:
        context.refuse(
            "GROUP BY over a whole stream never ends",
            group,
            detail="a group is complete only after its last row, and a query over a stream does not wait for that",
            hint="group by windows, GROUP BY window(ts, '1 minute'); or FROM s [UNBOUNDED] keeps the groups of all rows"
            " so far; data that ends can also be a table: register it without time=",
        )
    if (distinct := node.args.get("distinct")) is not None:
        context.refuse(
            "DISTINCT over a whole stream would keep every row forever",
            distinct if distinct.expressions else node,
            hint="FROM s [RANGE 1 HOUR] keeps rows for an hour; in FROM TUMBLE(…), GROUP BY the columns and window_end",
        )
    for key, word in (("having", "HAVING"), ("qualify", "QUALIFY"), ("limit", "LIMIT"), ("offset", "OFFSET")):
        if (clause := node.args.get(key)) is not None and not (grouped and key == "having"):
            why = "a continuous query runs until it is stopped, not for a number of rows" if key in _INSTEAD else None
            context.refuse(f"{word} is not supported on a stream", clause, detail=why, hint=_INSTEAD.get(key))
    if not grouped:
        check_order(node, context, {name.lower() for name in context.time_columns(plan)})


_INSTEAD = {
    "limit": "for the first rows of each window, FROM TUMBLE(…) ORDER BY … LIMIT n; "
    "to end the query, STOP name or q.stop()",
    "offset": "skip rows when you read them, or filter them in WHERE",
}


def check_order(node: exp.Expr, context: Context, columns: set[str]) -> None:
    """ORDER BY may say what is so anyway."""
    if (order := node.args.get("order")) is not None:
        times = {name.rpartition(".")[2] for name in columns}
        for part in order.expressions:
            if part.args.get("desc") or key_meant(part.this, node.expressions, context).name.lower() not in times:
                context.refuse(
                    "a stream is emitted in time order and cannot be sorted differently",
                    order,
                    hint="leave ORDER BY out",
                )
