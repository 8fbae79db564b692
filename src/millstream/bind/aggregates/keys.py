"""What a key of GROUP BY stands for: a column of FROM, a place in the select list, an alias of it, or an expression."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlglot import exp

from millstream.bind.context import Context


def key_meant(
    key: exp.Expr, items: list[exp.Expr], context: Context, is_column: Callable[[str], bool] = lambda name: False
) -> exp.Expr:
    """The expression that `key` stands for in a query with these items in its select list. A column of FROM goes before
    an alias; `is_column` is asked only where there is such an alias."""
    if is_place(key):
        if (item := item_at(key, items)) is None:
            context.fail(f"the select list has no column {key.name}", key, hint=f"the select list has {len(items)}")
        return item.unalias()
    if isinstance(key, exp.Column) and not key.table:
        for item in items:
            if isinstance(item, exp.Alias) and item.alias.lower() == key.name.lower():
                return key if is_column(key.name) else item.unalias()
    return key


def each_key(node: exp.Expr) -> Iterator[exp.Expr]:
    """The keys of GROUP BY, also those inside sets of keys."""
    if isinstance(node, exp.Group | exp.Rollup | exp.Cube | exp.GroupingSets | exp.Tuple):
        for part in node.expressions:
            yield from each_key(part)
    else:
        yield from each_key(node.this) if isinstance(node, exp.Paren) else (node,)


def item_at(node: exp.Expr, items: list[exp.Expr]) -> exp.Expr | None:
    """The item of a select list for which a number, its place there, stands; None for anything else."""
    return items[int(node.name) - 1] if is_place(node) and 1 <= int(node.name) <= len(items) else None


def is_place(node: exp.Expr) -> bool:
    """Whether a key is a number, which stands for a place in the select list."""
    return isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit()
