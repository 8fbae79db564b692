"""`*` in a select list, and what EXCLUDE, REPLACE and RENAME make of it."""

from __future__ import annotations

from sqlglot import exp

from millstream.bind.expressions import ExpressionBinder
from millstream.bind.scope import Scope, did_you_mean
from millstream.expressions.nodes import Expr


def star_of(node: exp.Expr) -> exp.Star | None:
    """The star of `*` or `q.*`; None if an item of a select list is neither."""
    star = node.this if isinstance(node, exp.Column) else node
    return star if isinstance(star, exp.Star) else None


def starred(node: exp.Expr, star: exp.Star, scope: Scope, expressions: ExpressionBinder) -> list[tuple[str, Expr]]:
    """The columns that `*` or `q.*` stands for, without some, with others in their places or under other names."""
    columns: list[tuple[str, Expr]] = list(scope.star(node.table if isinstance(node, exp.Column) else "", node))
    names = [name for name, _ in columns]

    def meant(part: exp.Expr, name: str) -> str:
        if name.lower() not in map(str.lower, names):
            scope.context.fail(f"* has no column {name}", part, hint=did_you_mean(name, names))
        return name.lower()

    left_out = {meant(part, part.name) for part in star.args.get("except_") or ()}
    replaced = {meant(part, part.alias): part.this for part in star.args.get("replace") or ()}
    renamed = {meant(part, part.this.name): part.alias for part in star.args.get("rename") or ()}
    kept = [(name, expr) for name, expr in columns if name.lower() not in left_out]
    if not kept:
        scope.context.fail("EXCLUDE leaves no column", node)
    return [
        (
            renamed.get(name.lower(), name),
            expressions.bind(replaced[name.lower()]) if name.lower() in replaced else expr,
        )
        for name, expr in kept
    ]
