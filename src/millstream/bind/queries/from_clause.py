"""FROM: the streams, relations and tables that a SELECT reads."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.events.algebra import bind_events
from millstream.bind.queries.joins import FromEntry, join_sources
from millstream.bind.queries.outputs import alias_columns
from millstream.bind.queries.unnest import is_unnest, split_unnests, unnest
from millstream.bind.reads import conjuncts_of
from millstream.bind.relations.asof import check_moment, is_asof, join_asof
from millstream.bind.relations.event_joins import is_event_join, join_events
from millstream.bind.relations.windows import bind_windowed
from millstream.bind.scope import Scope
from millstream.bind.undeclared import read_as_used
from millstream.bind.windows.gaps import bind_gaps
from millstream.bind.windows.tables import bind_window_table
from millstream.catalog import DerivedDef, StreamDef, TableDef, ViewDef
from millstream.expressions.nodes import Column, Literal
from millstream.plan import nodes as P
from millstream.plan.events.algebra import Since
from millstream.plan.failed import FailedRows
from millstream.plan.relations import Periods, Window
from millstream.sql import to_sql
from millstream.sql.event_nodes import EventExpression
from millstream.sql.nodes import SideStream, WindowTable
from millstream.sql.patterns import MatchRecognize, SequenceMatch
from millstream.sql.relations import Windowed
from millstream.types import VARCHAR


def bind_from(select: exp.Select, context: Context) -> tuple[P.Node, Scope]:
    """The plan of the FROM clause and the names it brings into scope."""
    from_ = select.args.get("from_") or select.args.get("from")
    if from_ is None:
        context.refuse("a continuous query needs FROM", select, hint="SELECT … FROM a stream")
    if is_unnest(from_.this):
        context.refuse("UNNEST needs a stream before it", from_.this, hint="FROM s, UNNEST(tags) AS u(tag)")
    joins, unnests = split_unnests(select.args.get("joins") or [], context)
    sources = [_bind_source(from_.this, context, None)]
    sources += [_bind_source(join.this, context, join) for join in joins]
    plan, scope = _joined(sources, select, context)
    return unnest(plan, scope, unnests, context)


def _joined(sources: list[FromEntry], select: exp.Select, context: Context) -> tuple[P.Node, Scope]:
    from millstream.bind.tables.queries import join_tables

    _check_aliases(sources, context)
    if len(sources) > 1 and all(source.plan.kind is P.Kind.TABLE for source in sources):
        return join_tables(select, sources, context)
    if is_asof(sources):
        return join_asof(sources, context)
    if is_event_join(sources):
        return join_events(sources, select, context)
    return join_sources(sources, context)


def with_joined_conditions(select: exp.Select) -> exp.Select:
    """The SELECT with those conditions of inner joins in WHERE that hold a query, or name what is not in FROM."""
    joins = select.args.get("joins") or []
    sides = {str(join.args.get("side") or "").upper() for join in joins}
    known = _aliases(select)
    moved: list[exp.Expr] = []
    left: dict[int, list[exp.Expr]] = {}
    for place, join in enumerate(joins if sides <= {"", "LEFT"} else []):
        on, kind = join.args.get("on"), str(join.args.get("kind") or "").upper()
        if on is None or join.args.get("side") or join.args.get("method") or kind not in ("", "INNER"):
            continue
        parts = list(conjuncts_of(on))
        away = [part for part in parts if _reads_beyond(part, known)]
        if away:
            moved += away
            left[place] = [part for part in parts if part not in away]
    if not moved:
        return select
    whole = select.copy()
    for place, parts in left.items():
        join = whole.args["joins"][place]
        join.set("on", exp.and_(*parts) if parts else None)
        join.set("kind", join.args.get("kind") if parts else "CROSS")
    where = whole.args.get("where")
    whole.set("where", exp.Where(this=exp.and_(*([where.this] if where is not None else []), *moved)))
    return whole


def _reads_beyond(node: exp.Expr, known: frozenset[str]) -> bool:
    return node.find(exp.Query) is not None or any(
        column.table and column.table.lower() not in known for column in node.find_all(exp.Column)
    )


def bind_entry(node: exp.Expr, context: Context) -> FromEntry:
    """One entry of FROM."""
    return _bind_source(node, context, None)


def _bind_source(node: exp.Expr, context: Context, join: exp.Join | None) -> FromEntry:
    source = _bind_item(node, context, join)
    return replace(source, plan=_renamed(source.plan, node, context))


def _bind_item(node: exp.Expr, context: Context, join: exp.Join | None) -> FromEntry:
    from millstream.bind.queries.select import bind_named

    if isinstance(node, Windowed):
        rows = _bind_source(node.this, context, None)
        alias = node.alias or rows.alias
        return FromEntry(bind_windowed(node, rows.plan, alias, context), alias, rows.name, node, join)
    if isinstance(node, MatchRecognize):
        from millstream.bind.patterns.match_recognize import bind_match_recognize

        rows = _bind_source(node.this, context, None)
        return FromEntry(bind_match_recognize(node, rows.plan, rows.alias, context), node.alias, "", node, join)
    if isinstance(node, EventExpression):
        plan = bind_events(node, context, lambda entry: _bind_source(entry, context, None).plan)
        return FromEntry(plan, node.alias, "", node, join)
    if isinstance(node, exp.Query) and not isinstance(node, exp.Table):
        plan = bind_named(node, context, node).plan
        return FromEntry(plan, node.alias or "", "", node, join, frozenset() if node.alias else _aliases(node))
    if isinstance(node, SequenceMatch):
        context.refuse(
            "a sequence must be in its own SELECT",
            node,
            detail="its conditions are in WHERE",
            hint="put it into a subquery, (SELECT … FROM s AS (X, *Y) WHERE …)",
        )
    if not isinstance(node, exp.Table):
        hint = "store the rows in a table: CREATE TABLE, INSERT INTO" if isinstance(node, exp.Values) else None
        context.refuse(f"{to_sql(node)[:60]} is not allowed in FROM", node, hint=hint)
    if isinstance(node.this, WindowTable):
        rows = _bind_source(node.this.this, context, None)
        bind = bind_gaps if node.this.kind == "GAP_FILL" else bind_window_table
        plan = bind(node.this, rows.plan, rows.alias, context)
        return FromEntry(plan, node.alias or rows.alias, rows.name, node, join)
    if isinstance(node.this, SideStream) and (failed := _failed_rows(node, context)) is not None:
        return FromEntry(failed, node.alias or node.this.name, "", node, join)
    side = _side(node, context)
    if side is not None:
        which, stream = side
        plan = P.Scan(stream.name, stream.side(which), which)  # type: ignore[arg-type]
        context.uses.add(stream.name)
        return FromEntry(plan, node.alias or stream.name, stream.name, node, join)
    name = node.name
    alias = node.alias or name
    if name.lower() in context.local:
        check_moment(node, context.local[name.lower()], context)
        return FromEntry(context.local[name.lower()], alias, name, node, join)
    entry = context.catalog.find(name)
    match entry:
        case StreamDef():
            scan = P.Scan(entry.name, entry.schema, key=entry.key)
            typed = read_as_used(scan, entry, node.root())
            plan = typed if entry.since is None else Since(typed, entry.since)
            if entry.until is not None:
                plan = Window(typed, Periods(entry.until))
        case DerivedDef() | ViewDef():
            plan = entry.plan
        case TableDef():
            plan = P.TableScan(entry.name, entry.schema)
        case None:
            context.fail(f"no stream or table {name}", node, hint=context.catalog.suggest(name))
        case _:
            context.fail(f"{entry.name} cannot be read", node, hint="select from a stream or a table")
    context.uses.add(entry.name)
    check_moment(node, plan, context)
    return FromEntry(plan, alias, entry.name, node, join)


def _renamed(plan: P.Node, node: exp.Expr, context: Context) -> P.Node:
    """The rows with the names that an alias gives to their columns, if it does."""
    names = alias_columns(node)
    if names is None or names == plan.schema.names:
        return plan
    alias = node.args["alias"]
    if len(names) != len(plan.schema):
        context.fail(f"{len(names)} names for {len(plan.schema)} columns", alias, hint="name all of them, or none")
    if len({name.lower() for name in names}) < len(names):
        context.fail("two columns have the same name", alias)
    columns = zip(names, (Column(field.type, field.name) for field in plan.schema), strict=True)
    return P.Project(plan, tuple(columns))


def _aliases(node: exp.Expr) -> frozenset[str]:
    """The lower-case names that the FROM clause of a SELECT gives to its entries."""
    while isinstance(node, exp.Subquery):
        node = node.this
    from_ = node.args.get("from_")
    entries = [] if from_ is None else [from_, *(node.args.get("joins") or [])]
    return frozenset(entry.this.alias_or_name.lower() for entry in entries) - {""}


def _side(node: exp.Table, context: Context) -> tuple[str, StreamDef] | None:
    """The stream of LATE(s) or ERRORS(s), and which of the two."""
    call = node.this
    if not isinstance(call, SideStream):
        if isinstance(call, exp.Func):
            context.fail(
                "no such table function",
                node,
                hint="there are TUMBLE, HOP, CUMULATE, SESSION, GAP_FILL, LATE, ERRORS, UNNEST and JSON_TABLE",
            )
        return None
    if call.kind == "HISTORY":
        context.refuse(
            f"HISTORY({call.name}) is a stored table, and other inputs of this query are streams",
            node,
            hint=f"FROM {call.name} WITH HISTORY, or query HISTORY({call.name}) without streams",
        )
    entry = context.catalog.find(call.name)
    if not isinstance(entry, StreamDef) or entry.plan is not None:
        hint = context.catalog.suggest(call.name) if entry is None else f"{call.kind} exists for declared streams only"
        context.fail(f"{call.name} is not a declared stream", node, hint=hint)
    return call.kind.lower(), entry


def _failed_rows(node: exp.Table, context: Context) -> P.Node | None:
    """What ERRORS(q) reads, if q is a running query."""
    name = str(node.this.name)
    if node.this.kind != "ERRORS" or context.catalog.find(name) is not None or not context.catalog.is_query(name):
        return None
    rows = context.catalog.errors_of(name)
    if not isinstance(rows, FailedRows):
        context.fail(
            f"query {name} has no rejected rows",
            node,
            detail="it stops at an error, or computes nothing that could fail",
            hint="SET on_error = 'row' before it starts",
        )
    context.uses.update(rows.streams)
    columns = (
        *((field.name, Column(field.type, field.name)) for field in rows.schema),
        ("origin", Literal(VARCHAR, name)),
    )
    return P.Project(rows, columns)


def _check_aliases(sources: list[FromEntry], context: Context) -> None:
    seen: set[str] = set()
    for source in sources:
        if source.alias and source.alias.lower() in seen:
            context.fail(f"{source.alias} appears twice in FROM", source.node, hint="give one of them an alias with AS")
        seen.add(source.alias.lower())
