"""Joins in parentheses, as FROM lists have them: `(a JOIN b ON …) JOIN c ON …`."""

from __future__ import annotations

from sqlglot import exp

from millstream.bind.context import Context

_INNER = ("", "INNER", "CROSS")


def without_parentheses(select: exp.Select, context: Context) -> exp.Select:
    """The same query whose FROM clause has no joins in parentheses."""
    from_ = select.args.get("from_")
    entries = [] if from_ is None else [from_.this, *(join.this for join in select.args.get("joins") or [])]
    if not any(map(_is_join, entries)):
        return select
    whole = select.copy()
    first, joins = _leftmost(whole.args["from_"].this)
    for join in whole.args.get("joins") or []:
        joins += _unwrapped(join, context)
    whole.args["from_"].set("this", first)
    whole.set("joins", joins)
    return whole


def _is_join(node: exp.Expr) -> bool:
    if not isinstance(node, exp.Subquery) or isinstance(node.this, exp.Values):
        return False
    if isinstance(node.this, exp.Subquery):
        return bool(node.this.args.get("joins")) or _is_join(node.this)
    return not isinstance(node.this, exp.Query)


def _leftmost(node: exp.Expr) -> tuple[exp.Expr, list[exp.Join]]:
    """The first entry of a FROM clause, and what is joined to it: joins go from left to right anyway."""
    joins: list[exp.Join] = []
    while _is_join(node):
        if node.args.get("alias") is not None:
            node = _as_query(node)
            break
        inner = node.this
        joins = [*(inner.args.get("joins") or []), *joins]
        inner.set("joins", None)
        node = inner
    return node, joins


def _as_query(node: exp.Expr) -> exp.Subquery:
    """`(a JOIN b) AS z` as the query of all columns."""
    alias = node.args["alias"]
    node.set("alias", None)
    whole = exp.Subquery(this=exp.Select(expressions=[exp.Star()], from_=exp.From(this=node)), alias=alias)
    whole.meta.update(node.meta)
    return whole


def _unwrapped(join: exp.Join, context: Context) -> list[exp.Join]:
    """A join with one in parentheses, as joins one after another."""
    node = join.this
    if not _is_join(node):
        return [join]
    if node.args.get("alias") is not None:
        join.set("this", _as_query(node))
        return [join]
    first, inside = _leftmost(node)
    if inside and not (_is_inner(join) and all(map(_is_inner, inside))):
        context.refuse(
            "joins in parentheses together with an outer join are not supported",
            node,
            detail="which rows are left without a match depends on the parentheses",
            hint="write them as a query: … JOIN (SELECT … FROM a JOIN b ON …) AS x ON …",
        )
    if not inside:
        join.set("this", first)
        return [join]
    conditions = [on for on in (join.args.get("on"), inside[-1].args.get("on")) if on is not None]
    last = inside[-1]
    if conditions:
        last.set("on", exp.and_(*conditions))
        last.set("kind", None)
    head = exp.Join(this=first, kind="CROSS")
    head.meta.update(join.meta)
    return [head, *(part for each in inside for part in _unwrapped(each, context))]


def _is_inner(join: exp.Join) -> bool:
    special = any(join.args.get(key) for key in ("side", "method", "using"))
    return not special and str(join.args.get("kind") or "").upper() in _INNER
