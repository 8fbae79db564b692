"""What a query writes to an upsert sink: new and changed rows, and the keys of rows that are gone."""

from __future__ import annotations

from sqlglot import exp

from millstream.bind.actions import StartQuery
from millstream.bind.context import Context
from millstream.bind.delivery import delivered
from millstream.bind.history import asked_history
from millstream.bind.queries.outputs import Bound
from millstream.bind.queries.select import bind_query
from millstream.bind.streams import require_stream
from millstream.catalog import SinkDef, TableDef
from millstream.connectors.options import OptionValue, key_text, upsert_keys
from millstream.expressions import functions
from millstream.expressions.nodes import Column, Expr, Literal
from millstream.plan import nodes as P
from millstream.plan import relations as R
from millstream.types import VARCHAR

OP = "op"
"""the last column of what is written: 'u' for a row that replaces the one of its key, 'd' for a key that is gone"""


def insert_into_sink(query: exp.Expr, sink: SinkDef, context: Context) -> StartQuery:
    """A query whose rows go to a sink, as they are or as upserts."""
    bound = bind_query(query, context)
    require_stream(bound, query, context)
    keys = upsert_keys(sink.options)
    bound = delivered(bound, context) if keys is None else upserts(bound, keys, query, context)
    return StartQuery(bound, frozenset(context.uses), sink, history=asked_history(query, bound.plan, context))


def insert_into_table(node: exp.Insert, table: TableDef, context: Context) -> StartQuery:
    """INSERT INTO a stored table from a query over streams: the table takes its rows for as long as it runs. With OR
    REPLACE a row takes the place of the one with its key, and a relation's row is there while it is valid."""
    query, replaces = node.expression, bool(node.args.get("alternative"))
    bound = bind_query(query, context)
    require_stream(bound, query, context)
    keys = table.primary_key if replaces else None
    if keys == ():
        context.fail(f"OR REPLACE needs a key, and {table.name} has no PRIMARY KEY", node.this)
    bound = _fitted(delivered(bound, context) if keys is None else bound, node, table, context)
    options: dict[str, OptionValue] = {"connector": "table"}
    if keys is not None:
        bound = upserts(bound, keys, query, context)
        options |= {"mode": "upsert", "key": key_text(keys)}
    history = asked_history(query, bound.plan, context)
    return StartQuery(bound, frozenset({*context.uses, table.name}), SinkDef(table.name, options), history=history)


def _fitted(bound: Bound, node: exp.Insert, table: TableDef, context: Context) -> Bound:
    """A query's rows in the types and under the names of a table's columns."""
    listed = node.this.expressions if isinstance(node.this, exp.Schema) else []
    for column in listed:
        if column.name not in table.schema:
            known = ", ".join(table.schema.names)
            context.fail(f"no column {column.name} in {table.name}", column, hint=f"available: {known}")
    wanted = [table.schema[column.name] for column in listed] or list(table.schema)
    fields = bound.plan.schema.fields
    if len(fields) != len(wanted):
        more = "; rows of a relation also have valid_from and valid_to" if isinstance(bound.plan, R.Validity) else ""
        context.fail(
            f"{len(wanted)} columns are expected, and the query has {len(fields)}", node.expression,
            hint=f"name the columns: INSERT INTO {table.name} (…) SELECT …{more}",
        )  # fmt: skip
    with context.blaming(node.expression):
        columns = tuple(
            (to.name, functions.cast(Column(field.type, field.name), to.type))
            for field, to in zip(fields, wanted, strict=True)
        )
    return Bound(P.Project(bound.plan, columns), tuple(to.name for to in wanted))


def upserts(bound: Bound, keys: tuple[str, ...], node: exp.Expr, context: Context) -> Bound:
    """A query's rows as changes by key. A row of a relation is an upsert when it comes to be; a key is deleted when the
    relation has no row of it any more. Events are all upserts."""
    plan, names = bound.plan, [name.lower() for name in bound.names]
    for key in keys:
        if key.lower() not in names:
            context.fail(
                f"the key {key} of the sink is not a column of the query", node,
                hint=f"its columns are {', '.join(bound.names)}",
            )  # fmt: skip
    if OP in names:
        context.fail(f"the sink adds a column {OP}, which the query has already", node, hint="give it another name")
    if plan.lasts:
        context.refuse("events with a duration cannot be upserts", node, hint="write them to a sink without mode")
    fields = plan.schema.fields
    came = plan if plan.kind is P.Kind.EVENTS else R.ToEvents(plan, "istream")
    written: P.Node = P.Project(came, (*P.passthrough(plan.schema), (OP, Literal(VARCHAR, "u"))))
    if plan.kind is P.Kind.RELATION:
        chosen = [fields[names.index(key.lower())] for key in keys]
        known = P.Distinct(P.Project(plan, tuple((field.name, Column(field.type, field.name)) for field in chosen)))
        rest: list[tuple[str, Expr]] = [
            (field.name, Column(field.type, field.name) if field in chosen else Literal(field.type, None))
            for field in fields
        ]
        gone = P.Project(R.ToEvents(known, "dstream"), (*rest, (OP, Literal(VARCHAR, "d"))))
        written = P.Union((written, gone))
    return Bound(written, (*bound.names, OP))
