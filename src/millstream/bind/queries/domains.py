"""Subqueries that depend on the outer query without an equality: one result for each value they depend on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.relations.windows import check_clocks
from millstream.bind.scope import Beyond, Scope, is_of_outer
from millstream.expressions import functions
from millstream.expressions.nodes import Column, Expr, Literal
from millstream.plan import nodes as P
from millstream.plan import relations as R
from millstream.records import dataclass
from millstream.types import BOOLEAN, DOUBLE


@dataclass(frozen=True)
class Domain:
    """The values of the outer query's columns that an inner query names, each combination once."""

    plan: P.Node
    beyond: Beyond

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(Column(each.type, each.name) for each in self.plan.schema)

    def beside(self, plan: P.Node, scope: Scope, node: exp.Expr, context: Context) -> tuple[P.Node, Scope]:
        """Rows of the inner query with each of the values; conditions between them find their way into the join."""
        if plan.kind is P.Kind.TABLE:
            joined: P.Node = P.JoinTable(self.plan, plan, ())
        else:
            check_clocks((self.plan, plan), "a comparison", node, context)
            joined = R.Join(self.plan, plan, ())
        return joined, replace(scope, beyond=self.beyond)


def domain_of(free: list[exp.Column], scope: Scope, rows: P.Node) -> Domain:
    """The values that columns of the outer query, which is over `rows`, have at each instant."""
    named = {column.name: column for column in map(scope.resolve, free)}
    columns = {name: Column(column.type, f"$d{place}") for place, (name, column) in enumerate(named.items())}
    project: list[tuple[str, Expr]] = [(columns[name].name, column) for name, column in named.items()]
    # without any, what counts is that there are rows
    return Domain(
        P.Distinct(P.Project(rows, tuple(project) or (("$d", Literal(BOOLEAN, True)),))), Beyond(scope, columns)
    )


def free_columns(query: exp.Expr, outer: Scope, context: Context) -> Iterator[exp.Column]:
    """The columns in a query, and in queries inside it, that are those of the query around it."""
    from millstream.bind.queries.from_clause import bind_from
    from millstream.bind.queries.select import with_queries

    inside = with_queries(query, context).within(None)
    match query:
        case exp.Subquery():
            yield from free_columns(query.this, outer, inside)
        case exp.SetOperation():
            yield from free_columns(query.this, outer, inside)
            yield from free_columns(query.expression, outer, inside)
        case exp.Select():
            scope = Scope(context, ()) if query.args.get("from_") is None else bind_from(query, inside)[1]
            listed = {part.alias.lower() for part in query.expressions if isinstance(part, exp.Alias)}
            for key in ("expressions", "where", "group", "having", "qualify", "order"):
                value = query.args.get(key)
                for part in value if isinstance(value, list) else [value] if value is not None else []:
                    for column in free_in(part, scope, outer, inside):
                        # keys and what comes after them may name what is selected
                        if column.table or key in ("expressions", "where") or column.name.lower() not in listed:
                            yield column


def free_in(node: exp.Expr, scope: Scope, outer: Scope, context: Context) -> Iterator[exp.Column]:
    """The columns in an expression over `scope` that are those of the query around it."""
    for part in node.walk(prune=lambda each: isinstance(each, exp.Query)):
        match part:
            case exp.Query():
                found = free_columns(part, outer, context)
            case exp.Column() if not isinstance(part.this, exp.Star):
                found = iter([part])
            case _:
                continue
        yield from (column for column in found if is_of_outer(column, scope, outer))


def same(one: Expr, two: Expr) -> tuple[Expr, ...]:
    """Conditions under which two values are the same, NULL and NULL included; as equalities, which can be hashed."""
    nothing = _some_value(one)
    if nothing is None:
        distinct = functions.resolve("is_distinct", (one, two))
        return (functions.resolve("not", (distinct,)),)
    is_null = tuple(functions.resolve("is_null", (each,)) for each in (one, two))
    known = tuple(functions.resolve("coalesce", (each, nothing)) for each in (one, two))
    return functions.resolve("=", is_null), functions.resolve("=", known)


def _some_value(expr: Expr) -> Literal | None:
    type_ = expr.type
    if type_ == BOOLEAN:
        return Literal(type_, False)
    if type_ == DOUBLE:
        return Literal(type_, 0.0)
    if type_.is_text:
        return Literal(type_, "")
    return Literal(type_, 0) if type_.is_integer or type_.is_temporal else None
