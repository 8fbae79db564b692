"""The system catalog that clients look at: what there is, in the tables of pg_catalog and information_schema.

It is a small DuckDB of its own with tables of the same names, filled from the session's catalog when that has changed.
It holds no rows of users and reaches nothing outside, so whatever a client asks of it does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from threading import Lock
from typing import Any

import duckdb
import pyarrow as pa

from millstream import sealed_duckdb
from millstream.catalog import Catalog, DerivedDef, Entry, StreamDef, TableDef, ViewDef
from millstream.errors import UnsupportedError
from millstream.limits import current
from millstream.server.access import Caller
from millstream.server.postgres import values as V
from millstream.server.postgres.settings import SETTINGS
from millstream.types import SqlType

DATABASE, SCHEMA = "millstream", "public"
_FIRST = 16_384
"""object numbers below are PostgreSQL's own"""

_PG_CATALOG, _PUBLIC, _INFORMATION, _BTREE = 11, 2200, 13_000, 403
_INDEXES = 1 << 24
"""how far the number of a primary key is from that of its table"""

_ABOUT = re.compile(
    r"\bpg_catalog\b|\binformation_schema\b|\bpg_[a-z_]+\b|\b(?:version|current_schemas?|current_database|current_catalog|"
    r"current_user|session_user|current_setting|set_config|has_(?:any_)?[a-z]++(?:_data_wrapper)?_privilege|format_type|obj_description|"
    r"col_description|shobj_description|to_regclass|to_regtype|txid_current\w*|quote_ident|inet_server_\w+)\s*\(|"
    r"^\s*SELECT\s+(?:current_schema|current_user|session_user|user|current_catalog)\s*;?\s*$",
    re.I,
)

_FUNCTION = re.compile(r'^(?:pgc\.)?"?(\w+)"?\(.*\)$', re.S)
"""a column without a name is called like the function in it"""

_TYPES = (
    (V.BOOL, "bool", "B", 1), (V.BYTEA, "bytea", "U", -1), (V.CHAR, "char", "S", 1), (V.NAME, "name", "S", 64),
    (V.INT8, "int8", "N", 8), (V.INT2, "int2", "N", 2), (V.INT4, "int4", "N", 4), (V.TEXT, "text", "S", -1),
    (V.OID, "oid", "N", 4), (V.JSON, "json", "U", -1), (V.FLOAT4, "float4", "N", 4), (V.FLOAT8, "float8", "N", 8),
    (V.UNKNOWN, "unknown", "X", -2), (1042, "bpchar", "S", -1), (V.VARCHAR, "varchar", "S", -1),
    (V.DATE, "date", "D", 4), (V.TIME, "time", "D", 8), (V.TIMESTAMP, "timestamp", "D", 8),
    (V.TIMESTAMPTZ, "timestamptz", "D", 8), (V.INTERVAL, "interval", "T", 16), (V.NUMERIC, "numeric", "N", -1),
    (V.UUID, "uuid", "U", 16), (3802, "jsonb", "U", -1),
)  # fmt: skip
_SPELLED = {
    "bool": "boolean", "int8": "bigint", "int2": "smallint", "int4": "integer", "float4": "real", "varchar":
    "character varying", "float8": "double precision", "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone", "time": "time without time zone", "char": '"char"',
}  # fmt: skip


class SystemCatalog:
    """The system catalog of one server, for all its clients."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lock = Lock()
        self._seen: tuple[Any, ...] | None = None
        self._store = sealed_duckdb.connect(threads=1, memory=256 << 20)
        self._define()

    def close(self) -> None:
        self._store.close()

    def query(self, text: str, params: Sequence[Any], client: Caller) -> pa.Table:
        """Answer a query about the catalog, as this client may see it."""
        with self._lock:
            self._fill(client)
            cursor, work = self._store.cursor(), current()
            given = {str(at): value for at, value in enumerate(params, 1)}
            try:
                asked = self._in_duckdb(text)
                if [each.type for each in cursor.extract_statements(asked)] != [duckdb.StatementType.SELECT]:
                    raise UnsupportedError("the system catalog can only be read", hint="one SELECT at a time")
                with work.interruptible(cursor.interrupt) if work is not None else nullcontext():
                    found = cursor.execute(asked, given or None).to_arrow_table()
                return found.rename_columns([_FUNCTION.sub(r"\1", name) for name in found.column_names])
            except duckdb.Error as error:
                raise UnsupportedError(
                    "this query about the system catalog is not supported", detail=str(error).splitlines()[0][:300]
                ) from None
            finally:
                cursor.close()

    def _define(self) -> None:
        """All tables, views and functions, and what never changes in them."""
        self._store.execute((Path(__file__).parent / "catalog.sql").read_text(encoding="utf-8"))
        found = self._store.execute(
            "SELECT table_name, NULL FROM duckdb_tables() WHERE schema_name = 'pgc' UNION ALL "
            "SELECT view_name, NULL FROM duckdb_views() WHERE schema_name = 'pgc' UNION ALL "
            "SELECT function_name, NULL FROM duckdb_functions() WHERE schema_name = 'pgc'"
        )
        self._ours = frozenset(name for name, _ in found.fetchall())
        self._insert(
            "pg_namespace", [(_PG_CATALOG, "pg_catalog"), (_PUBLIC, SCHEMA), (_INFORMATION, "information_schema")]
        )
        self._insert("pg_database", [(1, DATABASE, 10, 6, "C", "C", "c", None, None, None, False, True, -1, 1663)])
        self._insert("pg_am", [(2, "heap", None, "t"), (_BTREE, "btree", None, "i")])
        self._insert("pg_settings", list(SETTINGS.items()))
        self._insert("pg_collation", [(100, "default", _PG_CATALOG, "d")])
        types, spellings = [], []
        for oid, name, category, size in _TYPES:
            array, spelled = V.ARRAYS.get(oid, 0), _SPELLED.get(name, name)
            types.append(_type(oid, name, category, size, 0, array))
            spellings.append((oid, spelled))
            if array:
                types.append(_type(array, f"_{name}", "A", -1, oid, 0))
                spellings.append((array, f"{spelled}[]"))
        self._insert("pg_type", types)
        self._insert("type_spelling", spellings)

    def _fill(self, client: Caller) -> None:
        """Let the tables say what this client may see now."""
        kinds = (StreamDef, DerivedDef, TableDef, ViewDef)
        entries = [e for e in self._catalog.entries() if isinstance(e, kinds) and client.account.may_use(e.name)]
        seen = (client.account.name, *((e.name, type(e).__name__, str(e.schema), _text(e)) for e in entries))
        if seen == self._seen:
            return
        run = self._store.execute
        run("BEGIN")
        filled = ("pg_class", "pg_attribute", "pg_index", "pg_constraint", "texts")
        for table in (*filled, "pg_roles"):
            run(f"DELETE FROM pgc.{table}")
        rows: dict[str, list[tuple[Any, ...]]] = {table: [] for table in filled}
        for number, entry in enumerate(entries, _FIRST):
            never_null = _never_null(entry)
            rows["pg_class"].append(_class(number, entry))
            for at, each in enumerate(entry.schema, 1):
                rows["pg_attribute"].append(_attribute(number, at, each.name, each.type, each.name in never_null))
            if isinstance(entry, ViewDef):
                rows["texts"].append((number, 0, entry.sql))
            elif isinstance(entry, TableDef) and entry.primary_key:
                for table, row in _primary_key(number, entry):
                    rows[table].append(row)
        for table in filled:
            self._insert(table, rows[table])
        self._insert(
            "pg_roles", [(10, client.account.name, client.account.role == "admin", True, False, False, True, False, -1)]
        )
        run("COMMIT")
        self._seen = seen

    def _insert(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Rows of a table, which may have fewer values than it has columns."""
        if not rows:
            return
        names = [name for name, *_ in self._store.execute(f"DESCRIBE pgc.{table}").fetchall()][: len(rows[0])]
        wanted = ", ".join("?" * len(names))
        self._store.executemany(f"INSERT INTO pgc.{table} ({', '.join(names)}) VALUES ({wanted})", rows)

    def _in_duckdb(self, text: str) -> str:
        """A query of PostgreSQL's on its catalog as DuckDB reads it: other schemas, names instead of `reg…` types."""
        pieces = re.split(r"('(?:[^']|'')*')", text)
        text = "".join(piece if at % 2 else self._rewritten(piece) for at, piece in enumerate(pieces))
        text = re.sub(r"'\{([^'{}]*)\}'\s*::\s*(?:pg_catalog\.)?(\w+)\[\]", _list, text)
        # 'name'::regclass is the number of that relation, and number::regclass its name
        text = re.sub(r"('(?:[^']|'')*')::reg(class|type)\b", r"pgc.to_reg\2(\1)", text)
        text = re.sub(r"(\$\d+)::reg(class|type)\b", r"pgc.to_reg\2(\1)", text)
        text = re.sub(r"(?<![\w.])([\w.]++)::regclass(::text)?\b", r"pgc.name_of_class(\1)", text)
        text = re.sub(r"(?<![\w.])([\w.]++)::regtype(::text)?\b", r"pgc.format_type(\1, NULL)", text)
        return re.sub(r"::reg\w+\b", "::VARCHAR", text)

    def _rewritten(self, piece: str) -> str:
        for pattern, instead in _REWRITES:
            piece = re.sub(pattern, instead, piece, flags=re.I)
        piece = re.sub(r"\bpg_catalog\.(\w+)", lambda found: self._located(found[1]), piece, flags=re.I)
        return re.sub(r"(?<![\w.])(pg_\w+\b|\w+(?=\s*\())", lambda found: self._located(found[1]), piece)

    def _located(self, name: str) -> str:
        """A table or function of PostgreSQL's catalog, which is ours if we have it and DuckDB's otherwise."""
        return f"pgc.{name}" if name.lower() in self._ours else name


_UNDERSCORED = ("date", "time", "timestamp", "timestamptz", "interval", "numeric", "uuid", "json", "jsonb")
"""types whose functions PostgreSQL spells with an underscore; drivers know types by these names"""

_REWRITES = (
    (r"OPERATOR\s*\(\s*pg_catalog\.([^)\s]+)\s*\)", r" \1 "),
    (r'COLLATE\s+(?:pg_catalog\.)?"?(?:default|C)"?', ""),
    (r"::\s*(?:pg_catalog\.)?(reg\w+)", r"::\1"),
    (r'::\s*(?:pg_catalog\.)?(?:"char"|name|cstring)(\[\])?', r"::VARCHAR\1"),
    (r"::\s*(?:pg_catalog\.)?oid(\[\])?\b", r"::BIGINT\1"),
    (r"::\s*pg_catalog\.(\w+)", r"::\1"),
    (r"\bAS\s+(?:pg_catalog\.)?(?:reg\w+|oid)\s*\)", "AS BIGINT)"),
    (r"\binformation_schema\.", "infs."),
    (r"\bjson_build_object\b", "json_object"),
    (r"\b(typ(?:receive|send|input|output))\s*!=\s*0\b", r"\1 IS NOT NULL"),
    (r"(?<![\w.])(current_user|session_user|current_schema|current_catalog)\b(?!\s*\()", r"\1()"),
)


def is_about_catalog(text: str) -> bool:
    """Whether a query looks at the system catalog. Quoted text does not count."""
    return _ABOUT.search(re.sub(r"'(?:[^']|'')*'", "''", text)) is not None


def _type(oid: int, name: str, category: str, size: int, element: int, array: int) -> tuple[Any, ...]:
    stem = "array_" if element else f"{name}_" if name in _UNDERSCORED else name
    io = [f"{stem}{end}" for end in ("in", "out", "recv", "send")]
    return (
        oid, name, _PG_CATALOG, 10, size, size in (1, 2, 4, 8), "b", category, False, True, ",", 0, element, array, *io,
        False, 0, -1, 0,
    )  # fmt: skip


def _class(oid: int, entry: StreamDef | DerivedDef | TableDef | ViewDef) -> tuple[Any, ...]:
    kind = "v" if isinstance(entry, ViewDef) else "r"
    has_index = isinstance(entry, TableDef) and bool(entry.primary_key)
    return (
        oid, entry.name, _PUBLIC, 0, 0, 10, 2, oid, 0, 0, -1.0, 0, has_index, False, "p", kind, len(list(entry.schema)),
        0, False, False, False, False, False, True, "n", False,
    )  # fmt: skip


def _attribute(relation: int, at: int, name: str, type_: SqlType, never_null: bool) -> tuple[Any, ...]:
    column = V.columns_of(pa.schema([(name, type_.arrow)]))[0]
    return (
        relation, name, column.oid, -1, column.size, at, int(column.oid in V.ARRAYS.values()), column.modifier,
        never_null, False, "", "", False, True, 0,
    )  # fmt: skip


def _never_null(entry: Entry) -> frozenset[str]:
    """The columns of a table that are declared so, or in its key."""
    if not isinstance(entry, TableDef):
        return frozenset()
    declared = (column for column, clause in entry.constraints if column and re.search(r"\bNOT NULL\b", clause, re.I))
    return frozenset((*entry.primary_key, *declared))


def _primary_key(table: int, entry: TableDef) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The rows that tell of a primary key: an index with its columns, and a constraint."""
    key, index, name = entry.primary_key, table + _INDEXES, f"{entry.name}_pkey"
    columns = {each.name: (at, each.type) for at, each in enumerate(entry.schema, 1)}
    places, told, none = [columns[each][0] for each in key], ", ".join(map(_quoted, key)), [0] * len(key)
    yield "pg_class", (
        index, name, _PUBLIC, 0, 0, 10, _BTREE, index, 0, 0, -1.0, 0, False, False, "p", "i", len(key), 0, False, False,
        False, False, False, True, "n", False,
    )  # fmt: skip
    yield "pg_index", (
        index, table, len(key), len(key), True, True, False, True, False, True, True, True, False, places, none, none,
        none, None, None, False,
    )  # fmt: skip
    yield "pg_constraint", (
        index, name, _PUBLIC, "p", False, False, True, table, 0, index, 0, 0, " ", " ", " ", True, True, places, None,
        f"PRIMARY KEY ({told})",
    )  # fmt: skip
    yield (
        "texts",
        (index, 0, f"CREATE UNIQUE INDEX {_quoted(name)} ON {SCHEMA}.{_quoted(entry.name)} USING btree ({told})"),
    )
    for at, column in enumerate(key, 1):
        yield "pg_attribute", _attribute(index, at, column, columns[column][1], True)
        yield "texts", (index, at, _quoted(column))


def _text(entry: Entry) -> str:
    return entry.sql if isinstance(entry, ViewDef) else str(entry.constraints) if isinstance(entry, TableDef) else ""


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[a-z_][a-z0-9_$]*", name) else '"' + name.replace('"', '""') + '"'


def _list(literal: re.Match[str]) -> str:
    """An array as PostgreSQL writes it."""
    parts = re.findall(r'"([^"]*)"|([^,"]+)', literal[1])
    return "[" + ", ".join(f"'{quoted or plain}'" for quoted, plain in parts) + f"]::{literal[2]}[]"
