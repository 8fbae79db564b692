"""An outer join under a filter that rejects its NULL rows becomes an inner join."""

from __future__ import annotations

from dataclasses import replace

from millstream.expressions.nodes import Call, Cast, Column, Expr, conjuncts
from millstream.plan.nodes import Filter, JoinTable, Node
from millstream.plan.relations import How, Join

STRICT = frozenset(
    ("=", "<>", "<", "<=", ">", ">=", "like", "ilike", "+", "-", "*", "/", "//", "%", "neg", "not", "||")
)
"""functions that are NULL if any argument is"""

WITHOUT_LEFT: dict[How, How] = {"right": "inner", "full": "left"}
"""what a join is if rows in which the left side is NULL are not wanted"""

WITHOUT_RIGHT: dict[How, How] = {"left": "inner", "full": "right"}


def outer_to_inner(node: Node) -> Node:
    """Leave out the rows without a match that the filter above would drop; other rules then reach further."""
    match node:
        case Filter(input=Join(left=left, right=right, how=how) as join, predicate=predicate):
            if _rejects(predicate, set(right.schema.names)):
                how = WITHOUT_RIGHT.get(how, how)
            if _rejects(predicate, set(left.schema.names)):
                how = WITHOUT_LEFT.get(how, how)
            return node if how == join.how else Filter(replace(join, how=how), predicate)
        case Filter(input=JoinTable(table=table, how="left") as join, predicate=predicate):
            if _rejects(predicate, set(table.schema.names)):
                return Filter(replace(join, how="inner"), predicate)
    return node


def _rejects(predicate: Expr, columns: set[str]) -> bool:
    """Whether some conjunct cannot be true when all these columns are NULL."""
    return any(_not_true(part, columns) for part in conjuncts(predicate))


def _not_true(part: Expr, columns: set[str]) -> bool:
    match part:
        case Call(fn="or", args=args):
            return all(_not_true(arg, columns) for arg in args)
        case Call(fn="and", args=args):
            return any(_not_true(arg, columns) for arg in args)
        case Call(fn="not", args=(Call(fn="is_null", args=(arg,)),)):
            return _null(arg, columns)
    return _null(part, columns)


def _null(expr: Expr, columns: set[str]) -> bool:
    """Whether an expression is certainly NULL when all these columns are."""
    match expr:
        case Column(name=name):
            return name in columns
        case Cast(arg=arg):
            return _null(arg, columns)
        case Call(fn="in", args=args):
            return _null(args[0], columns)
        case Call(fn=fn, args=args):
            return fn in STRICT and any(_null(arg, columns) for arg in args)
    return False
