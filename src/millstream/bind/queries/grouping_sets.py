"""GROUPING SETS, ROLLUP and CUBE: one query for each set of keys, combined by UNION ALL."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, product

from sqlglot import exp

from millstream.bind.aggregates.groups import has_aggregate, is_aggregate
from millstream.bind.aggregates.keys import key_meant
from millstream.bind.context import Context
from millstream.bind.expressions import call_of
from millstream.bind.queries.outputs import Bound
from millstream.bind.queries.set_operations import combined
from millstream.sql import to_sql

MOST_SETS = 64
_SEVERAL = (exp.Rollup, exp.Cube, exp.GroupingSets)

KeySet = tuple[exp.Expr, ...]


def has_grouping_sets(select: exp.Select) -> bool:
    """Whether a SELECT groups in several ways at once."""
    group = select.args.get("group")
    return group is not None and any(isinstance(node, _SEVERAL) for node in group.expressions)


def bind_grouping_sets(
    select: exp.Select, context: Context, is_column: Callable[[str], bool], bind: Callable[[exp.Select], Bound]
) -> Bound:
    """The groups of all sets, with NULL for keys that a set has not; `is_column` knows the columns of FROM."""

    def flat(chosen: tuple[KeySet, ...]) -> KeySet:
        keys = [key_meant(key, select.expressions, context, is_column) for part in chosen for key in part]
        return tuple({_text(key): key for key in keys}.values())

    group = select.args["group"]
    choices = [_sets(node) if isinstance(node, _SEVERAL) else [(node,)] for node in group.expressions]
    sets = [flat(chosen) for chosen in product(*choices)]
    if len(sets) > MOST_SETS:
        context.refuse(f"{len(sets)} sets of keys; at most {MOST_SETS} are possible", group, hint="list fewer sets")
    if not any(has_aggregate(item, context) for item in select.expressions) and () in sets:
        context.refuse("a set without keys needs an aggregate", group, hint="add one, such as count(*)")
    every = list({_text(key): key for keys in sets for key in keys}.values())
    branches = [bind(_of_set(select, keys, every, context)) for keys in sets]
    if len(branches) == 1:
        return branches[0]
    union = exp.Union(this=select, expression=select, distinct=False)
    union.meta.update(select.meta)
    return combined(union, branches, context)


def _sets(node: exp.Expr) -> list[KeySet]:
    """The sets of keys that one element of GROUP BY lists."""
    parts = [_keys(part) for part in node.expressions]
    match node:
        case exp.Rollup():
            chosen = [tuple(parts[:count]) for count in range(len(parts), -1, -1)]
        case exp.Cube():
            chosen = [some for count in range(len(parts), -1, -1) for some in combinations(parts, count)]
        case _:
            return [
                one
                for part in node.expressions
                for one in (_sets(part) if isinstance(part, _SEVERAL) else [_keys(part)])
            ]
    return [tuple(key for part in some for key in part) for some in chosen]


def _keys(node: exp.Expr) -> KeySet:
    """`a`, `(a)`, `(a, b)` or `()`."""
    if isinstance(node, exp.Tuple):
        return tuple(node.expressions)
    return (node.this,) if isinstance(node, exp.Paren) else (node,)


def _of_set(select: exp.Select, keys: KeySet, every: list[exp.Expr], context: Context) -> exp.Select:
    """The query that groups by some keys, and has NULL in the place of the others."""
    kept = {_text(key) for key in keys}
    absent = [key for key in every if _text(key) not in kept]

    def without(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Func) and call_of(node)[0] == "grouping":
            bits = "".join(str(int(any(_same(part, key) for key in absent))) for part in call_of(node)[1])
            return exp.Literal.number(int(bits, 2))
        if any(_same(node, key) for key in absent):
            return exp.Null()
        if is_aggregate(node, context):
            return node
        for name, value in list(node.args.items()):
            if isinstance(value, exp.Expr):
                node.set(name, without(value))
            elif isinstance(value, list):
                node.set(name, [without(part) if isinstance(part, exp.Expr) else part for part in value])
        return node

    one = select.copy()
    items = [exp.alias_(item, item.name) if isinstance(item, exp.Column) else item for item in one.expressions]
    one.set("expressions", [without(item) for item in items])
    if one.args.get("having") is not None:
        one.set("having", without(one.args["having"]))
    group = exp.Group(expressions=[key.copy() for key in keys]) if keys else None
    if group is not None:
        group.meta.update(select.args["group"].meta)
    one.set("group", group)
    return one


def _same(node: exp.Expr, key: exp.Expr) -> bool:
    if isinstance(node, exp.Column) and isinstance(key, exp.Column) and not (node.table and key.table):
        return node.name.lower() == key.name.lower()
    return type(node) is type(key) and _text(node) == _text(key)


def _text(node: exp.Expr) -> str:
    return to_sql(node).lower()
