"""What SHOW and DESCRIBE answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import wraps
from pathlib import PurePath
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import pyarrow as pa

from millstream.bind import statements as act
from millstream.catalog import AggregateDef, Catalog, DerivedDef, FunctionDef, SinkDef, StreamDef, TableDef, ViewDef
from millstream.connectors.options import WITHIN
from millstream.errors import BindError, CatalogError
from millstream.hosts.contract import Host, Shared
from millstream.session.query import Query, Result
from millstream.sql import to_sql

if TYPE_CHECKING:
    from millstream.session.database import Database
    from millstream.session.query_sets import QuerySet
    from millstream.session.templates import Templates

_SECRET = re.compile(r"password|\.pem$|secret|token|^header\.")
_PASSWORD = re.compile(r"(?<=://)([^/@]*):[^@]*@")
"""options whose values are not shown"""
LOOK_SECONDS = 0.02
"""after which SHOW QUERIES, which waits for another statement, looks at what that is doing"""
_SHOW_QUERIES = re.compile(r"\s*SHOW\s+QUERIES\s*;?\s*", re.IGNORECASE)
_Given = ParamSpec("_Given")
_Value = TypeVar("_Value")


def listed(database: Database, host: Host, action: act.ShowList | act.DescribeEntry) -> Result:
    """The answer of SHOW or DESCRIBE."""
    match action:
        case act.DescribeEntry(name=name):
            return description(name, database.catalog)
        case act.ShowList(kind="SHARING"):
            return sharing(host.sharing(), database.query_sets(), database.templates)
    return listing(action.kind, database.catalog, database.queries(), host.trouble())


def showing_at_once(
    method: Callable[Concatenate[Database, str, _Given], _Value],
) -> Callable[Concatenate[Database, str, _Given], _Value | Result]:
    """A method for statements: while one starts or changes a query, SHOW QUERIES of another thread does not wait."""

    @wraps(method)
    def performed(self: Database, text: str, /, *args: _Given.args, **named: _Given.kwargs) -> _Value | Result:
        if _SHOW_QUERIES.fullmatch(text) is None:
            return method(self, text, *args, **named)
        while not self.turn.take_within(LOOK_SECONDS):
            if (coming := self.coming) is not None:
                self.guard.admit(act.ShowList("QUERIES"), self.catalog)
                return queries_now(self.queries(), coming, self._host.phase(coming[0]))
        with ExitStack() as turn:
            turn.push(self.turn)
            return method(self, text, *args, **named)

    return performed


def queries_now(queries: Sequence[Query], coming: tuple[str, str], phase: str) -> Result:
    """SHOW QUERIES while a query is about to start, or to change: how far it has come."""
    name, text = coming
    shown = []
    for query in queries:
        with suppress(CatalogError):  # it has just been stopped
            changes = query.name.lower() == name.lower()
            shown.append((query.name, query.sql, f"{query.state}, change: {phase}" if changes else query.state))
    if name.lower() not in {query.name.lower() for query in queries}:
        shown.append((name, text, phase))
    return _rows(("name", "sql", "status"), shown)


def listing(kind: str, catalog: Catalog, queries: Sequence[Query], trouble: Mapping[str, str]) -> Result:
    """Everything of a kind that is known; `trouble` says what is wrong with queries, and with sources of streams."""
    entries = catalog.entries()
    match kind:
        case "QUERIES":
            return _rows(
                ("name", "sql", "status"), [(q.name, q.sql, trouble.get(q.name.lower(), q.state)) for q in queries]
            )
        case "STREAMS":
            streams = [
                (s.name, str(s.schema), _time_of(s), trouble.get(s.name.lower(), "ready"))
                for s in entries
                if isinstance(s, StreamDef | DerivedDef)
            ]
            return _rows(("name", "columns", "time", "status"), streams)
        case "TABLES":
            return _rows(("name", "columns"), [(t.name, str(t.schema)) for t in entries if isinstance(t, TableDef)])
        case "VIEWS":
            views = [(v.name, str(v.schema), v.sql) for v in entries if isinstance(v, ViewDef)]
            return _rows(("name", "columns", "sql"), views)
        case "SINKS":
            return _rows(("name", "options"), [(s.name, _options_of(s)) for s in entries if isinstance(s, SinkDef)])
        case "FUNCTIONS":
            return _rows(
                ("name", "body"),
                [
                    (f.name, str(f.python) if f.body is None else to_sql(f.body))
                    for f in entries
                    if isinstance(f, FunctionDef)
                ],
            )
        case "AGGREGATES":
            aggregates = [(a.name, a.signature, a.version) for a in entries if isinstance(a, AggregateDef)]
            return _rows(("name", "signature", "version"), aggregates)
    raise BindError(
        f"no list {kind}", hint="SHOW STREAMS, TABLES, VIEWS, QUERIES, SINKS, FUNCTIONS, AGGREGATES or SHARING"
    )


def sharing(shared: Sequence[Shared], sets: Sequence[QuerySet], templates: Templates) -> Result:
    """Which queries run as one: operators that several share, those that differ in constants, and the programs of
    sets; and what keeps others apart."""
    found = [(each.operator, len(each.queries), _some(each.queries), each.how) for each in shared]
    found += [(told, len(names), _some(tuple(names)), how) for told, names, how in templates.sharing()]
    for queries in sets:
        found += [(queries.sql, size, name, why) for name, size, why in queries.sharing()]
    columns = list(zip(*found, strict=True)) if found else [(), (), (), ()]
    types = (pa.string(), pa.int64(), pa.string(), pa.string())
    arrays = [pa.array(list(column), type_) for column, type_ in zip(columns, types, strict=True)]
    return Result(pa.Table.from_arrays(arrays, names=["operator", "queries", "names", "how"]))


def _some(names: tuple[str, ...], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def description(name: str, catalog: Catalog) -> Result:
    """The columns of a stream or table."""
    entry = catalog.find(name)
    if not isinstance(entry, StreamDef | DerivedDef | ViewDef | TableDef):
        raise CatalogError(f"no stream or table {name}", hint=catalog.suggest(name))
    return _rows(("column", "type"), [(field.name, str(field.type)) for field in entry.schema])


def _time_of(stream: StreamDef | DerivedDef) -> str:
    if isinstance(stream, StreamDef) and stream.time_column is not None:
        slack = f", slack {stream.slack_text}" if stream.slack else ""
        return f"{stream.clock.value}: {stream.time_column}{slack}"
    return "derived" if isinstance(stream, DerivedDef) else stream.clock.value


def _options_of(sink: SinkDef) -> str:
    """The options as they were written, without what nobody should see."""
    shown = dict(sink.options)
    within = shown.pop(WITHIN, None)
    if within is not None:
        shown["path"] = str(PurePath(str(shown["path"])).relative_to(str(within)))
    hidden = {key: "…" if _SECRET.search(key) else _PASSWORD.sub(r"\1:…@", str(value)) for key, value in shown.items()}
    return ", ".join(f"{key} = {value}" for key, value in hidden.items())


def _rows(names: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Result:
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in names]
    arrays = [pa.array(list(column), pa.string()) for column in columns]
    return Result(pa.Table.from_arrays(arrays, names=list(names)))
