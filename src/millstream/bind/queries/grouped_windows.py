"""OVER in a SELECT with GROUP BY: the groups are made first, and OVER looks at their rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from millstream.bind.aggregates.calls import aggregate_call
from millstream.bind.aggregates.keys import each_key, key_meant
from millstream.bind.context import Context
from millstream.bind.queries.outputs import Bound, output_name
from millstream.bind.queries.stars import star_of

_OUTSIDE = ("qualify", "order", "limit", "offset", "windows", "distinct", "with_", "stream_of", "publish")
"""clauses that are about the rows of the groups"""


def windows_over_groups(select: exp.Select) -> bool:
    """Whether a SELECT has OVER beside GROUP BY."""
    if select.args.get("group") is None:
        return False
    parts = [*select.expressions, *filter(None, (select.args.get(key) for key in ("qualify", "order")))]
    return any(found.parent_select is select for part in parts for found in part.find_all(exp.Window))


def bind_windows_over_groups(
    select: exp.Select, context: Context, is_column: Callable[[str], bool], bind: Callable[[exp.Select], Bound]
) -> Bound:
    """The SELECT over a subquery of its groups; `is_column` knows the columns of FROM."""
    if any(star_of(item) is not None for item in select.expressions):
        context.refuse("* cannot be used with GROUP BY", select, hint="name the columns")
    items = [item.copy() for item in select.expressions]
    named = {item.alias.lower(): item.this for item in items if isinstance(item, exp.Alias)}
    inner = select.copy()
    for key in list(each_key(inner.args["group"])):
        if (meant := key_meant(key, items, context, is_column)) is not key:
            key.replace(meant.copy())
    groups = {part for part in each_key(inner.args["group"]) if not isinstance(part, exp.Literal)}
    chosen: dict[exp.Expr, str] = {}

    def outside(node: exp.Expr) -> exp.Expr:
        """The same of the rows of groups."""
        if isinstance(node, exp.Window):
            call = node.this
            while isinstance(call, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup):
                call = call.this
            for key, value in list(call.args.items()):
                call.set(key, each_part(value, outside))
            for key in ("partition_by", "order"):
                node.set(key, each_part(node.args.get(key), outside))
            return node
        is_grouping = isinstance(node, exp.Func) and node.sql_name().upper().startswith("GROUPING")
        if node in groups or isinstance(node, exp.Column) or is_grouping or aggregate_call(node, context) is not None:
            name = chosen.setdefault(node.copy(), f"$g{len(chosen) + 1}")
            column = exp.column(exp.to_identifier(name, quoted=True))
            column.meta.update(node.meta)
            return column
        for key, value in list(node.args.items()):
            node.set(key, each_part(value, outside))
        return node

    outer = exp.Select(
        expressions=[exp.alias_(outside(item.unalias()), output_name(item), quoted=True) for item in items]
    )
    shown = {item.alias_or_name.lower() for item in items if item.alias_or_name}
    for clause in _OUTSIDE:
        value = inner.args.get(clause)
        inner.set(clause, None)
        if clause in ("with_", "stream_of", "publish") or value is None:
            continue
        if clause in ("qualify", "order", "windows"):
            value = each_part(value, lambda part: _named(part, shown, named, outside))
        outer.set(clause, value)
    inner.set("expressions", [exp.alias_(expr, name, quoted=True) for expr, name in chosen.items()])
    outer.set("from_", exp.From(this=exp.Subquery(this=inner)))
    outer.meta.update(select.meta)
    return bind(outer)


def _named(
    part: exp.Expr, shown: set[str], named: dict[str, exp.Expr], outside: Callable[[exp.Expr], exp.Expr]
) -> exp.Expr:
    """A part of a clause that may name what is selected; in windows such a name stands for what is selected there."""
    if isinstance(part, exp.Column) and not part.table and part.name.lower() in shown:
        if part.find_ancestor(exp.Window) is None:
            return part
        return outside(named.get(part.name.lower(), part).copy())
    if isinstance(part, exp.Window):
        for column in [each for each in part.find_all(exp.Column) if not each.table and each.name.lower() in named]:
            column.replace(named[column.name.lower()].copy())
        return outside(part)
    if isinstance(part, exp.Ordered | exp.Order | exp.Qualify | exp.Binary | exp.Not | exp.Paren | exp.Between):
        for key, value in list(part.args.items()):
            part.set(key, each_part(value, lambda each: _named(each, shown, named, outside)))
        return part
    return outside(part)


def each_part(value: Any, change: Callable[[exp.Expr], exp.Expr]) -> Any:
    """An argument of a node, whatever it holds, with its expressions changed."""
    if isinstance(value, list):
        return [each_part(each, change) for each in value]
    return change(value) if isinstance(value, exp.Expr) else value
