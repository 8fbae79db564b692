"""What `\\d` shows: everything that was declared, or one thing in detail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from millstream.errors import CatalogError

if TYPE_CHECKING:
    from millstream.catalog import Entry
    from millstream.session.database import Database


Columns = list[tuple[str, str]]


def declared(database: Any) -> list[tuple[str, str, Columns]]:
    """Kind, name and columns of what is declared, in this process or in a server."""
    from millstream.catalog import word_for

    if not hasattr(database, "catalog"):
        told = database.json("GET", "/v1/catalog")
        return [(e["kind"], e["name"], [(c["name"], c["type"]) for c in e["columns"]]) for e in told]
    return [
        (
            word_for(type(entry)),
            entry.name,
            [(field.name, str(field.type)) for field in getattr(entry, "schema", None) or ()],
        )
        for entry in database.catalog.entries()
    ]


def list_all(database: Database) -> RenderableType:
    """Streams, tables, sinks, functions, aggregates and running queries."""
    from millstream.catalog import word_for

    table = _table("kind", "name", "what")
    if hasattr(database, "catalog"):
        for entry in database.catalog.entries():
            table.add_row(word_for(type(entry)), entry.name, Text(_what(entry)))
    else:
        for kind, name, columns in declared(database):
            table.add_row(kind, name, Text(", ".join(f"{column} {type_}" for column, type_ in columns)))
    for query in database.queries():
        table.add_row("query", query.name, Text(" ".join(query.sql.split())))
    return table if table.row_count else Text("nothing is declared yet; declare a stream with CREATE STREAM …")


def describe(database: Database, name: str) -> RenderableType:
    """The columns of a stream, table or query, and what else is known of it."""
    from millstream.catalog import DerivedDef, StreamDef, TableDef, word_for

    if not hasattr(database, "catalog"):
        return _describe_remote(database, name)
    entry = database.catalog.find(name) or database.catalog.function(name)
    if entry is None:
        return _describe_query(database, name)
    head = f"{word_for(type(entry))} {entry.name}"
    if not isinstance(entry, StreamDef | DerivedDef | TableDef):
        return Text(f"{head}: {_what(entry)}")
    table = _table("column", "type")
    for field in entry.schema:
        table.add_row(field.name, str(field.type))
    parts: list[RenderableType] = [Text(head, style="bold"), table]
    if isinstance(entry, StreamDef):
        parts.append(Text(_time(entry)))
        parts.append(Text("source: " + (_options(entry.source) if entry.source else "pushed rows")))
    elif isinstance(entry, DerivedDef):
        parts.append(Text(f"plan:\n{entry.plan}"))
    users = database.catalog.users_of(entry.name)
    if users:
        parts.append(Text("used by: " + ", ".join(users)))
    return Group(*parts)


def _describe_remote(database: Database, name: str) -> RenderableType:
    for kind, known, columns in declared(database):
        if known.lower() == name.lower():
            table = _table("column", "type")
            for row in columns:
                table.add_row(*row)
            return Group(Text(f"{kind} {known}", style="bold"), table)
    return _describe_query(database, name)


def _describe_query(database: Database, name: str) -> RenderableType:
    query = next((query for query in database.queries() if query.name.lower() == name.lower()), None)
    if query is None:
        hint = database.catalog.suggest(name) if hasattr(database, "catalog") else "\\d lists all names"
        raise CatalogError(f"nothing is named {name}", hint=hint)
    table = _table("column", "type")
    for field in query.schema:
        table.add_row(field.name, str(field.type))
    return Group(Text(f"query {query.name}", style="bold"), table, Text(query.sql), Text(f"input: {query.counts}"))


def _what(entry: Entry) -> str:
    from millstream.catalog import AggregateDef, DerivedDef, FunctionDef, SinkDef, StreamDef

    match entry:
        case StreamDef():
            source = f", from {_options(entry.source)}" if entry.source else ""
            return f"{entry.schema} {_time(entry)}{source}"
        case DerivedDef():
            return f"{entry.schema} derived"
        case SinkDef():
            return _options(entry.options)
        case FunctionDef():
            from millstream.sql import to_sql

            parameters = ", ".join(f"{name} {type_}" for name, type_ in entry.parameters)
            return f"({parameters}) {entry.python if entry.body is None else to_sql(entry.body)}"
        case AggregateDef():
            return f"{entry.signature} ({entry.version})"
    return str(entry.schema)


def _time(stream: object) -> str:
    from millstream.catalog import Clock, StreamDef

    assert isinstance(stream, StreamDef)
    slack = f", slack {stream.slack_text}" if stream.slack else ""
    match stream.clock:
        case Clock.EXTERNAL:
            return f"ordered by {stream.time_column}{slack}"
        case Clock.INTERNAL:
            return "ordered by arrival, stamped into current_time"
    return "ordered by arrival"


def _options(options: object) -> str:
    assert hasattr(options, "items")
    return ", ".join(f"{name} = {value}" for name, value in options.items())


def _table(*heads: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold")
    return table
