"""SELECT inside an aggregate's body → Rows."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.programs.body import BodyBinding
from millstream.bind.programs.expressions import BodyExpressions
from millstream.bind.scope import Item, Scope
from millstream.expressions import functions
from millstream.expressions.nodes import Column, Expr, conjunction
from millstream.plan.programs.nodes import AggregateValue, Insert, Order, Program, Range, Rows, Statement
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import SqlType

# what Rows can say; everything else in a SELECT is refused
_CLAUSES = {"expressions", "from_", "joins", "where", "group", "having", "distinct", "order", "limit"}


@dataclass(frozen=True)
class Selected:
    """A bound query, and for each of its columns the node that it comes from."""

    rows: Rows
    nodes: tuple[exp.Expr, ...]

    @property
    def program(self) -> Program | None:
        """The aggregate that is the query's only column: such a query has all rows and columns that it returns."""
        first = self.rows.columns[0]
        return first.program if len(self.rows.columns) == 1 and isinstance(first, AggregateValue) else None

    @property
    def types(self) -> tuple[SqlType, ...]:
        if self.program is not None:
            return tuple(field.type for field in self.program.result)
        return tuple(expr.type for expr in self.rows.columns)

    def converted(self, types: tuple[SqlType, ...]) -> Rows:
        """The rows with values cast to these types."""
        return _converted(self.rows, types)


def _converted(rows: Rows, types: tuple[SqlType, ...]) -> Rows:
    call = rows.columns[0]
    if len(rows.columns) == 1 and isinstance(call, AggregateValue) and call.program is not None:
        # a cast around the call would make a single value of all the rows that it returns
        program = _returning(call.program, types)
        return replace(rows, columns=(replace(call, type=types[0], program=program),))
    columns = tuple(functions.cast(expr, type_) for expr, type_ in zip(rows.columns, types, strict=True))
    return replace(rows, columns=columns)


def _returning(program: Program, types: tuple[SqlType, ...]) -> Program:
    """The program with results of these types."""
    if types == tuple(field.type for field in program.result):
        return program

    def changed(statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
        return tuple(
            replace(statement, sources=tuple(_converted(rows, types) for rows in statement.sources))
            if isinstance(statement, Insert) and statement.table is None
            else statement
            for statement in statements
        )

    return replace(
        program,
        result=Schema(tuple(Field(field.name, type_) for field, type_ in zip(program.result, types, strict=True))),
        initialize=changed(program.initialize),
        iterate=changed(program.iterate),
        expire=changed(program.expire),
        terminate=changed(program.terminate),
    )


def bind_rows(node: exp.Expr, body: BodyBinding, outer: tuple[Scope, ...] = ()) -> Selected:
    """The rows of a query whose names may also be those of the queries around it, `outer`, innermost first."""
    context = body.context
    while isinstance(node, exp.Subquery):
        node = node.this
    if not isinstance(node, exp.Select):
        context.refuse(f"{node.key.upper()} is not allowed inside an aggregate", node, hint="use a plain SELECT")
    _refuse_clauses(node, context)
    ranges, scope, conditions = _from(node, body, outer)
    levels = (scope, *outer)
    expressions = BodyExpressions(body, levels, None)
    if (where := node.args.get("where")) is not None:
        conditions.append(expressions.elsewhere("in WHERE").condition(where.this))
    outputs = [output for part in node.expressions for output in _outputs(part, scope, expressions)]
    having = node.args.get("having")
    rows = Rows(
        columns=tuple(expr for _, expr, _ in outputs),
        ranges=ranges,
        where=conjunction(tuple(conditions)) if conditions else None,
        group=_group(node, outputs, expressions),
        having=None if having is None else expressions.condition(having.this),
        distinct=node.args.get("distinct") is not None,
        order=_order(node, outputs, expressions),
        limit=_limit(node, context),
    )
    selected = Selected(rows, tuple(part for _, _, part in outputs))
    if rows.is_aggregation:
        _check_grouped(selected, context, node)
    elif having is not None:
        context.fail("HAVING needs GROUP BY or an aggregate", having, hint="use WHERE")
    if rows.distinct and any(order.key not in rows.columns for order in rows.order):
        context.fail("with DISTINCT, ORDER BY takes selected columns", node.args["order"])
    return selected


Output = tuple[str, Expr, exp.Expr]


def _outputs(node: exp.Expr, scope: Scope, expressions: BodyExpressions) -> list[Output]:
    if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
        if not scope.items:
            scope.context.fail("* needs FROM", node)
        qualifier = node.table if isinstance(node, exp.Column) else ""
        return [(name, column, node) for name, column in scope.star(qualifier, node)]
    if isinstance(node, exp.Alias):
        return [(node.alias, expressions.bind(node.this), node)]
    return [(node.name if isinstance(node, exp.Column) else "", expressions.bind(node), node)]


def _from(node: exp.Select, body: BodyBinding, outer: tuple[Scope, ...]) -> tuple[tuple[Range, ...], Scope, list[Expr]]:
    """The ranges of FROM, their names, and the conditions of its joins."""
    context = body.context
    from_ = node.args.get("from_")
    ranges: list[Range] = []
    items: list[Item] = []
    conditions: list[Expr] = []
    joins: list[exp.Join] = node.args.get("joins") or []
    sources: list[tuple[exp.Expr, exp.Join | None]] = [] if from_ is None else [(from_.this, None)]
    for source, join in [*sources, *((join.this, join) for join in joins)]:
        if not isinstance(source, exp.Table) or not source.name or not isinstance(source.this, exp.Identifier):
            context.refuse("FROM inside an aggregate takes tables of its body only", source)
        if source.args.get("joins") or source.args.get("pivots") or source.args.get("sample"):
            context.refuse("FROM inside an aggregate takes tables of its body only", source)
        range_, item = body.range_over(source)
        if any(item.alias.lower() == other.alias.lower() for other in items):
            context.fail(f"{item.alias} appears twice in FROM", source, hint="give one of them an alias with AS")
        ranges.append(range_)
        items.append(item)
        if join is not None and (on := _join_condition(join, context)) is not None:
            levels = (Scope(context, tuple(items)), *outer)
            conditions.append(BodyExpressions(body, levels, "in a join's condition").condition(on))
    return tuple(ranges), Scope(context, tuple(items)), conditions


def _join_condition(join: exp.Join, context: Context) -> exp.Expr | None:
    kind = " ".join(str(join.args.get(key) or "").upper() for key in ("method", "side", "kind")).strip()
    if kind not in ("", "INNER", "CROSS"):
        context.refuse(f"{kind} JOIN is not allowed inside an aggregate", join, hint="join with , and WHERE, or EXISTS")
    if join.args.get("using"):
        context.refuse("USING is not allowed inside an aggregate", join, hint="write the condition with ON")
    return join.args.get("on")


def _refuse_clauses(node: exp.Select, context: Context) -> None:
    for key, clause in node.args.items():
        if key in _CLAUSES or not clause:
            continue
        part = next((part for part in (clause if isinstance(clause, list) else [clause])), node)
        word = key.strip("_").upper()
        context.refuse(f"{word} is not allowed inside an aggregate", part if isinstance(part, exp.Expr) else node)
    distinct = node.args.get("distinct")
    if distinct is not None and distinct.args.get("on") is not None:
        context.refuse("DISTINCT ON is not allowed inside an aggregate", distinct, hint="use GROUP BY")


def _group(node: exp.Select, outputs: list[Output], expressions: BodyExpressions) -> tuple[Expr, ...]:
    group = node.args.get("group")
    if group is None:
        return ()
    if any(clause for key, clause in group.args.items() if key != "expressions"):
        expressions.context.refuse("GROUP BY takes a list of expressions here", node)
    inside = expressions.elsewhere("in GROUP BY")
    keys: list[Expr] = []
    for part in group.expressions:
        known = _position(part, outputs, expressions.context)
        if known is None and isinstance(part, exp.Column) and inside._scope_of(part) is None:
            known = _alias(part, outputs)
        if known is not None and any(isinstance(piece, AggregateValue) for piece in _pieces(known)):
            expressions.context.fail("GROUP BY cannot use an aggregate", part)
        keys.append(inside.bind(part) if known is None else known)
    return tuple(keys)


def _order(node: exp.Select, outputs: list[Output], expressions: BodyExpressions) -> tuple[Order, ...]:
    order = node.args.get("order")
    found: list[Order] = []
    for part in [] if order is None else order.expressions:
        key = _position(part.this, outputs, expressions.context) or _alias(part.this, outputs)
        key = expressions.bind(part.this) if key is None else key
        found.append(Order(key, bool(part.args.get("desc")), bool(part.args.get("nulls_first"))))
    return tuple(found)


def _position(node: exp.Expr, outputs: list[Output], context: Context) -> Expr | None:
    """The output that a number in GROUP BY or ORDER BY means."""
    if not isinstance(node, exp.Literal) or node.is_string:
        return None
    if not node.name.isdigit() or not 1 <= int(node.name) <= len(outputs):
        context.fail(f"there is no column {node.name} in the SELECT list", node)
    return outputs[int(node.name) - 1][1]


def _alias(node: exp.Expr, outputs: list[Output]) -> Expr | None:
    """The output that a name means."""
    if not isinstance(node, exp.Column) or node.table:
        return None
    return next((expr for name, expr, _ in outputs if name.lower() == node.name.lower()), None)


def _limit(node: exp.Select, context: Context) -> int | None:
    limit = node.args.get("limit")
    if limit is None:
        return None
    count = limit.expression if isinstance(limit, exp.Limit) else None
    if not isinstance(count, exp.Literal) or not count.name.isdigit():
        context.refuse("LIMIT takes a whole number here", limit)
    return int(count.name)


def _pieces(expr: Expr) -> list[Expr]:
    return [expr, *(piece for child in expr.children() for piece in _pieces(child))]


def _check_grouped(selected: Selected, context: Context, node: exp.Select) -> None:
    """Outside aggregates, an aggregation may only look at what its rows are grouped by."""
    rows = selected.rows
    own = tuple(f"{range_.alias}." for range_ in rows.ranges)
    checked = [*zip(rows.columns, selected.nodes, strict=True)]
    if rows.having is not None:
        checked.append((rows.having, node.args["having"]))
    checked += [(order.key, node.args["order"]) for order in rows.order]
    for expr, part in checked:
        loose = _ungrouped(expr, rows.group, own)
        if loose is not None:
            context.fail(
                f"{loose.name.partition('.')[2]} is neither in GROUP BY nor inside an aggregate",
                part,
                hint="add it to GROUP BY, or use min or max of it",
            )


def _ungrouped(expr: Expr, group: tuple[Expr, ...], own: tuple[str, ...], within: bool = False) -> Column | None:
    """A column of the query's own tables that is not grouped by; aggregates of subqueries (`within`) do not count."""
    if expr in group or (isinstance(expr, AggregateValue) and not within):
        return None
    if isinstance(expr, Column):
        return expr if expr.name.startswith(own) else None
    found = (_ungrouped(child, group, own, within) for child in expr.children())
    query = getattr(expr, "query", None)
    deeper = (_ungrouped(part, group, own, True) for part in (query.expressions() if query is not None else ()))
    return next((column for column in (*found, *deeper) if column is not None), None)
