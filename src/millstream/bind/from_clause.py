"""FROM: one stream, any number of stored tables beside it."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from millstream import functions
from millstream.bind.context import Context
from millstream.bind.expressions import ExpressionBinder
from millstream.bind.scope import Item, Scope
from millstream.bind.window_tables import bind_window_table
from millstream.catalog import DerivedDef, StreamDef, TableDef
from millstream.plan import nodes as P
from millstream.plan.expr import Column, Expr, conjunction
from millstream.plan.joins import split_condition
from millstream.sql.nodes import SideStream, WindowTable


@dataclass(frozen=True)
class _Source:
    """One entry of FROM before it is joined to the others."""

    plan: P.Node
    alias: str
    name: str
    node: exp.Expr
    join: exp.Join | None


def bind_from(select: exp.Select, context: Context) -> tuple[P.Node, Scope]:
    """The plan of the FROM clause and the names it brings into scope."""
    from_ = select.args.get("from_") or select.args.get("from")
    if from_ is None:
        context.refuse("a standing query needs FROM", select, hint="SELECT … FROM a stream")
    sources = [_bind_source(from_.this, context, None)]
    sources += [_bind_source(join.this, context, join) for join in select.args.get("joins") or []]
    _check_aliases(sources, context)
    return _join(sources, context)


def _bind_source(node: exp.Expr, context: Context, join: exp.Join | None) -> _Source:
    from millstream.bind.select import bind_named

    if isinstance(node, exp.Subquery | exp.Select | exp.Union):
        plan = bind_named(node, context, node).plan
        return _Source(plan, node.alias or "", "", node, join)
    if not isinstance(node, exp.Table):
        context.refuse(f"{node.sql()[:60]} cannot stand in FROM", node)
    if isinstance(node.this, WindowTable):
        rows = _bind_source(node.this.this, context, None)
        plan = bind_window_table(node.this, rows.plan, rows.alias, context)
        return _Source(plan, node.alias or rows.alias, rows.name, node, join)
    side = _side(node, context)
    if side is not None:
        which, stream = side
        plan = P.Scan(stream.name, stream.side(which), which)  # type: ignore[arg-type]
        context.uses.add(stream.name)
        return _Source(plan, node.alias or stream.name, stream.name, node, join)
    name = node.name
    alias = node.alias or name
    if name.lower() in context.local:
        return _Source(context.local[name.lower()], alias, name, node, join)
    entry = context.catalog.find(name)
    match entry:
        case StreamDef():
            plan = P.Scan(entry.name, entry.schema)
        case DerivedDef():
            plan = entry.plan
        case TableDef():
            plan = P.TableScan(entry.name, entry.schema)
        case None:
            context.fail(f"no stream or table {name}", node, hint=context.catalog.suggest(name))
        case _:
            context.fail(f"{entry.name} cannot be read", node, hint="select from a stream or a table")
    context.uses.add(entry.name)
    return _Source(plan, alias, entry.name, node, join)


def _side(node: exp.Table, context: Context) -> tuple[str, StreamDef] | None:
    """The stream of LATE(s) or ERRORS(s), and which of the two."""
    call = node.this
    if not isinstance(call, SideStream):
        if isinstance(call, exp.Func):
            context.fail(
                "no such table function", node, hint="there are TUMBLE, HOP, CUMULATE, SESSION, LATE and ERRORS"
            )
        return None
    entry = context.catalog.find(call.name)
    if not isinstance(entry, StreamDef):
        hint = context.catalog.suggest(call.name) if entry is None else f"{call.kind} is kept where rows arrive"
        context.fail(f"{call.name} is not a declared stream", node, hint=hint)
    return call.kind.lower(), entry


def _check_aliases(sources: list[_Source], context: Context) -> None:
    seen: set[str] = set()
    for source in sources:
        if source.alias and source.alias.lower() in seen:
            context.fail(f"{source.alias} stands twice in FROM", source.node, hint="give one of them an alias with AS")
        seen.add(source.alias.lower())


def _join(sources: list[_Source], context: Context) -> tuple[P.Node, Scope]:
    if len(sources) == 1:
        only = sources[0]
        item = Item(only.alias, only.plan.schema, "", only.name)
        return only.plan, Scope(context, (item,))
    streams = [source for source in sources if source.plan.kind is not P.Kind.TABLE]
    if len(streams) > 1:
        context.refuse(
            "two streams in FROM without windows",
            streams[1].node,
            detail="each row would have to be kept for ever, in case a match arrives",
            hint="keep one stream and store the other as a table, or merge them with UNION ALL",
        )
    if not streams:
        context.refuse("tables alone are not a stream", sources[0].node)
    items = tuple(Item(source.alias, source.plan.schema, f"{source.alias}.", source.name) for source in sources)
    position = sources.index(streams[0])
    plan = _prefixed(streams[0], items[position])
    merged: set[str] = set()
    conditions: list[Expr] = []
    for i, source in enumerate(sources):
        condition = None
        if source.join is not None:
            _check_join(source.join, i == position, context)
            condition = _condition(source.join, Scope(context, items[: i + 1]), items[i], merged, context)
        if i != position:
            table = _prefixed(source, items[i])
            if source.join is not None and source.join.args.get("side"):
                pairs, residual = split_condition(condition, plan.schema, table.schema)
                plan = P.JoinTable(plan, table, pairs, residual, outer=True)
                continue
            plan = P.JoinTable(plan, table, ())
        if condition is not None:
            conditions.append(condition)
    if conditions:
        plan = P.Filter(plan, conjunction(tuple(conditions)))
    return plan, Scope(context, items, frozenset(merged))


def _prefixed(source: _Source, item: Item) -> P.Node:
    columns = tuple((item.prefix + field.name, Column(field.type, field.name)) for field in source.plan.schema)
    return P.Project(source.plan, columns)


def _check_join(join: exp.Join, is_stream: bool, context: Context) -> None:
    side = str(join.args.get("side") or "").upper()
    method = str(join.args.get("method") or join.args.get("kind") or "").upper()
    if method not in ("", "INNER", "CROSS", "OUTER"):
        context.refuse(f"{method} JOIN is not supported", join)
    if side in ("RIGHT", "FULL") or (side == "LEFT" and is_stream):
        context.refuse(
            "a table's rows without a match are never final",
            join,
            detail="a matching row of the stream may still arrive",
            hint="put the stream on the left: stream LEFT JOIN table",
        )


def _condition(join: exp.Join, scope: Scope, item: Item, merged: set[str], context: Context) -> Expr | None:
    binder = ExpressionBinder(context, scope)
    if (on := join.args.get("on")) is not None:
        return binder.condition(on)
    using = join.args.get("using")
    if not using:
        return None
    parts: list[Expr] = []
    for column in using:
        others = [other for other in scope.items if other is not item and column.name in other.schema]
        if not others or column.name not in item.schema:
            context.fail(f"USING ({column.name}): both sides need that column", join)
        merged.add(column.name.lower())
        with context.blaming(join):
            parts.append(functions.resolve("=", (others[0].column(column.name), item.column(column.name))))
    return conjunction(tuple(parts))
