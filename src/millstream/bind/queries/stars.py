"""`*` in a select list, and what EXCLUDE, REPLACE and RENAME make of it."""

from __future__ import annotations

from sqlglot import exp

from millstream.bind.expressions import ExpressionBinder
from millstream.bind.scope import Scope, did_you_mean
from millstream.expressions import functions
from millstream.expressions.nodes import Expr


def star_of(node: exp.Expr) -> exp.Star | None:
    """The star of `*` or `q.*`; None if an item of a select list is neither."""
    star = node.this if isinstance(node, exp.Column) else node
    return star if isinstance(star, exp.Star) else None


def starred(node: exp.Expr, star: exp.Star, scope: Scope, expressions: ExpressionBinder) -> list[tuple[str, Expr]]:
    """The columns that `*` or `q.*` stands for, without some, with others in their places or under other names."""
    columns = _columns(node, scope, expressions)
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


def _columns(node: exp.Expr, scope: Scope, expressions: ExpressionBinder) -> list[tuple[str, Expr]]:
    """The columns of `*` or `q.*`, or the fields of a struct `s.*`."""
    path = list(node.parts)[:-1] if isinstance(node, exp.Column) else []
    qualifier = path[-1].name if path else ""
    if path and (len(path) > 1 or (not scope.has(qualifier) and scope.knows(qualifier))):
        table = path[-2].copy() if len(path) > 1 else None
        struct = exp.Column(this=path[-1].copy(), table=table)
        value = expressions.bind(struct)
        with scope.context.blaming(node):
            return [(name, functions.field(value, name)) for name in functions.field_names(value)]
    return list(scope.star(qualifier, node))
