"""SELECT and UNION → logical plan."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from millstream.bind.aggregates import OwnCalls, RunningBinder, calls_own
from millstream.bind.context import Context
from millstream.bind.expressions import ExpressionBinder, call_of, coerce
from millstream.bind.from_clause import bind_from
from millstream.bind.grouping import GroupBinder, is_grouped
from millstream.bind.scope import Scope
from millstream.bind.windows import WindowBinder, WindowedExpressions
from millstream.catalog import Clock
from millstream.plan import nodes as P
from millstream.plan.expr import Column, Expr
from millstream.schema import unique_names
from millstream.types import common_type


@dataclass(frozen=True)
class Bound:
    """A bound query: its plan (unique column names) and the names its columns are delivered under (may repeat)."""

    plan: P.Node
    names: tuple[str, ...]


def bind_query(node: exp.Expr, context: Context) -> Bound:
    """The plan of a query expression."""
    if isinstance(node, exp.Subquery):
        return bind_query(node.this, context)
    with_ = node.args.get("with_") or node.args.get("with")
    if with_ is not None:
        for cte in with_.expressions:
            context = context.with_local({cte.alias.lower(): bind_named(cte.this, context, cte).plan})
    match node:
        case exp.Select():
            return _bind_select(node, context)
        case exp.Union():
            return _bind_union(node, context)
        case exp.Except() | exp.Intersect():
            word = type(node).__name__.upper()
            context.refuse(
                f"{word} does not apply to streams",
                node,
                detail="whether a row of one stream is missing from another is known only when both have ended",
                hint="compare within windows, or use stored tables",
            )
    return context.fail("a query is expected here", node)


def bind_named(node: exp.Expr, context: Context, at: exp.Expr, names: tuple[str, ...] | None = None) -> Bound:
    """A query whose columns are referred to by name, so the names must differ; `names` replaces its own."""
    bound = bind_query(node, context)
    if names is not None:
        if len(names) != len(bound.names):
            context.fail(
                f"{len(names)} names for {len(bound.names)} columns", at, hint="name every column of the query, or none"
            )
        bound = Bound(bound.plan, names)
    lower = [name.lower() for name in bound.names]
    repeated = next((name for name in bound.names if lower.count(name.lower()) > 1), None)
    if repeated is not None:
        context.fail(f"two columns are called {repeated}", at, hint="name them apart with AS")
    if bound.names != bound.plan.schema.names:
        columns = tuple(
            (name, Column(field.type, field.name)) for name, field in zip(bound.names, bound.plan.schema, strict=True)
        )
        return Bound(P.Project(bound.plan, columns), bound.names)
    return bound


def _bind_select(node: exp.Select, context: Context) -> Bound:
    plan, scope = bind_from(node, context)
    grouped = is_grouped(node, plan, context)
    named = {window.name.lower(): window for window in node.args.get("windows") or []}
    running = not grouped and any(calls_own(part, OwnCalls(context, str)) for part in node.expressions)
    _refuse_clauses(node, context, plan, grouped or running)
    if (where := node.args.get("where")) is not None:
        plan = P.Filter(plan, ExpressionBinder(context, scope).condition(where.this))
    if grouped:
        groups = GroupBinder(node, plan, scope, context)
        _check_order(node, context, groups.ordered_by)
        outputs = [output for part in node.expressions for output in _outputs(part, scope, groups)]
        return _deliver(*groups.build(outputs))
    windows = WindowBinder(context, plan, named)
    expressions: ExpressionBinder = WindowedExpressions(context, scope, windows)
    if running:
        expressions = RunningBinder(expressions, windows.own, node.args.get("group"))
    outputs = [output for part in node.expressions for output in _outputs(part, scope, expressions)]
    having = node.args.get("having")
    condition = None if having is None else expressions.condition(having.this)
    plan = windows.build()
    return _deliver(plan if condition is None else P.Filter(plan, condition), outputs)


def _deliver(plan: P.Node, outputs: list[tuple[str, Expr]]) -> Bound:
    names = tuple(name for name, _ in outputs)
    columns = zip(unique_names(names), (expr for _, expr in outputs), strict=True)
    return Bound(P.Project(plan, tuple(columns)), names)


def _outputs(node: exp.Expr, scope: Scope, expressions: ExpressionBinder) -> list[tuple[str, Expr]]:
    if isinstance(node, exp.Star):
        return [(name, column) for name, column in scope.star("", node)]
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
        return [(name, column) for name, column in scope.star(node.table, node)]
    if isinstance(node, exp.Alias):
        return [(node.alias, expressions.bind(node.this))]
    if (columns := expressions.several(node)) is not None:
        return columns
    return [(_name_of(node), expressions.bind(node))]


def _name_of(node: exp.Expr) -> str:
    if isinstance(node, exp.Column):
        return str(node.name)
    if isinstance(node, exp.Window | exp.Filter):
        return _name_of(node.this)
    if isinstance(node, exp.Anonymous):
        return str(node.this)
    if isinstance(node, exp.Func) and not isinstance(node, (exp.Cast, exp.Case)):
        return call_of(node)[0]
    if isinstance(node, exp.Cast | exp.Paren):
        return _name_of(node.this)
    return "expr"


def _refuse_clauses(node: exp.Select, context: Context, plan: P.Node, grouped: bool = False) -> None:
    if plan.kind is P.Kind.TABLE:
        for key in ("group", "distinct", "having", "qualify", "limit", "offset", "order"):
            if (clause := node.args.get(key)) is not None:
                word = key.upper() + (" BY" if key in ("group", "order") else "")
                context.refuse(
                    f"{word} in a query over tables beside a stream is not supported yet",
                    node if key == "distinct" else clause,
                    hint="keep its rows with CREATE TABLE … AS, and join that table",
                )
    if not grouped and (group := node.args.get("group")) is not None:
        context.refuse(
            "GROUP BY over a whole stream never ends",
            group,
            detail="a group is complete only when its last row has come, and a stream has no last row",
            hint="group by windows, FROM TUMBLE(…), or use aggregate OVER (PARTITION BY … ROWS|RANGE … PRECEDING)",
        )
    if (distinct := node.args.get("distinct")) is not None:
        context.refuse(
            "DISTINCT over a whole stream would remember every row for ever",
            distinct if distinct.expressions else node,
            hint="use UNION, which removes duplicates of the same time, or a window",
        )
    for key, word in (("having", "HAVING"), ("qualify", "QUALIFY"), ("limit", "LIMIT"), ("offset", "OFFSET")):
        if (clause := node.args.get(key)) is not None and not (grouped and key == "having"):
            context.refuse(f"{word} is not supported on a stream", clause)
    if not grouped:
        _check_order(node, context, {name.lower() for name in context.time_columns(plan)})


def _check_order(node: exp.Select, context: Context, columns: set[str]) -> None:
    """ORDER BY may say what is so anyway."""
    if (order := node.args.get("order")) is not None:
        times = {name.rpartition(".")[2] for name in columns}
        for part in order.expressions:
            if part.args.get("desc") or part.this.name.lower() not in times:
                context.refuse(
                    "a stream is delivered in order of its time, and cannot be sorted otherwise",
                    order,
                    hint="leave ORDER BY out",
                )


def _bind_union(node: exp.Union, context: Context) -> Bound:
    branches = [bind_query(branch, context) for branch in _flatten(node)]
    first = branches[0]
    for branch in branches[1:]:
        if len(branch.names) != len(first.names):
            context.fail(
                f"UNION of {len(first.names)} and {len(branch.names)} columns",
                node,
                hint="every branch selects the same number of columns",
            )
    kinds = {branch.plan.kind for branch in branches}
    if kinds != {P.Kind.EVENTS}:
        context.refuse(
            "UNION of a stream and a table",
            node,
            detail="a table's rows have no time, so they have no place among a stream's",
            hint="push the table's rows into a stream, or join with the table",
        )
    clocks = set().union(*(context.clocks_of(branch.plan) for branch in branches))
    if Clock.LATENT in clocks and len(clocks) > 1:
        context.refuse(
            "UNION of a stream with times and one without",
            node,
            hint="declare the other with ORDER BY column or ORDER BY current_time",
        )
    types = []
    for i, name in enumerate(first.names):
        type_ = first.plan.schema.fields[i].type
        for branch in branches[1:]:
            wider = common_type(type_, branch.plan.schema.fields[i].type)
            if wider is None:
                context.fail(
                    f"column {name}: UNION of {type_} and {branch.plan.schema.fields[i].type}", node, hint="CAST one"
                )
            type_ = wider
        types.append(type_)
    target = first.plan.schema.names
    plans = tuple(
        P.Project(
            branch.plan,
            tuple(
                (name, coerce(Column(field.type, field.name), type_))
                for name, field, type_ in zip(target, branch.plan.schema, types, strict=True)
            ),
        )
        for branch in branches
    )
    plan: P.Node = P.Union(plans)
    return Bound(P.Distinct(plan) if node.args.get("distinct") else plan, first.names)


def _flatten(node: exp.Expr) -> list[exp.Expr]:
    """The branches of nested unions of the same kind: UNION ALL is associative, and so is UNION."""
    if not isinstance(node, exp.Union):
        return [node]
    parts: list[exp.Expr] = []
    for side in (node.this, node.expression):
        inner = side.this if isinstance(side, exp.Subquery) and not side.alias else side
        same = isinstance(inner, exp.Union) and bool(inner.args.get("distinct")) == bool(node.args.get("distinct"))
        parts += _flatten(inner) if same else [side]
    return parts
