"""What a statement of a PostgreSQL client means here.

Most are statements of the engine. Some are the client's own affair (transactions, its settings, cursors), some look at
the system catalog, and some stream: SUBSCRIBE and COPY.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from millstream import sql
from millstream.bind import actions as act
from millstream.bind.statements import bind
from millstream.catalog import StreamDef
from millstream.errors import CatalogError, MillstreamError, ParseError, UnsupportedError
from millstream.limits import Work
from millstream.records import dataclass
from millstream.server.access import Caller, names_of
from millstream.server.postgres.catalog import SystemCatalog, is_about_catalog
from millstream.server.postgres.settings import SETTINGS, value_text
from millstream.server.postgres.spelling import bare, unqualified
from millstream.server.postgres.values import oid_of
from millstream.session.database import Database
from millstream.session.query import Query, Result
from millstream.session.subscriptions import Reader

_LOOK = 0.2
"""Seconds after which somebody who waits for rows looks whether the statement was cancelled."""

FORMS = ("text", "csv", "binary")
_BUFFER = 100_000
"""rows that wait for a client before the oldest are dropped"""


@dataclass(frozen=True)
class Done:
    """A statement that gives no rows."""

    tag: str
    notice: str | None = None


@dataclass(frozen=True)
class Answered:
    """A statement that gives rows which are there."""

    tag: str
    table: pa.Table

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema


@dataclass(frozen=True)
class Live:
    """Rows as they are emitted, until the query or the client ends it; `close` ends what was started for it."""

    reader: Reader
    schema: pa.Schema
    close: Callable[[], None]


@dataclass(frozen=True)
class CopyOut:
    rows: Answered | Live
    form: str
    header: bool = False
    delimiter: str = ","


@dataclass(frozen=True)
class CopyIn:
    """Rows that the client sends, into a stream or table."""

    target: str
    columns: tuple[str, ...]
    types: tuple[int, ...]
    form: str
    header: bool = False
    delimiter: str = ","
    null: str | None = None


@dataclass(frozen=True)
class Transaction:
    """BEGIN, COMMIT or ROLLBACK: accepted for clients that send them. Each statement takes effect by itself."""

    tag: str
    state: bytes


Answer = Done | Answered | Live | CopyOut | CopyIn | Transaction

_WORD = r'(?:"(?:[^"]|"")++"|[A-Za-z_][\w$]*+)'
_NAME = rf"(?:{_WORD}\.)?(?P<name>{_WORD})"
# Quantifiers that could share characters are possessive: matching takes time in proportion to the text, whatever it is.
_SUBSCRIBE = re.compile(rf"SUBSCRIBE\s++(?:TO\s++)?(?:\((?P<query>.*)\)|{_NAME})\s*+$", re.I | re.S)
_COPY = re.compile(
    rf"COPY\s++(?:\((?P<query>.*)\)|{_NAME}(?:\s*+\((?P<columns>[^)]*+)\))?)\s++"
    r"(?P<way>TO\s++STDOUT|FROM\s++STDIN)(?P<options>.*)$",
    re.I | re.S,
)
_DECLARE = re.compile(
    rf"DECLARE\s++(?P<cursor>{_WORD})\s++(?:(?:BINARY|INSENSITIVE|ASENSITIVE|NO|SCROLL)\s++)*+CURSOR\s++"
    r"(?:WITH(?:OUT)?\s++HOLD\s++)?FOR\s++(?P<query>.*)$",
    re.I | re.S,
)
_FETCH = re.compile(
    rf"(?:FETCH|MOVE)\s++(?:(?:FORWARD|NEXT)\s++)?(?:(?P<count>ALL|\d++)\s++)?(?:(?:FROM|IN)\s++)?(?P<cursor>{_WORD})"
    r"(?:\s++WITH\s*+\(\s*+timeout\s*+=?\s*+'?(?P<timeout>\d++(?:\.\d*+)?)\s*+(?P<unit>ms|s|seconds?)?'?\s*+\))?\s*+$",
    re.I,
)
_SET = re.compile(
    r"SET\s++(?:SESSION\s++|LOCAL\s++)?(?P<name>TIME\s++ZONE|[\w.]++)(?:\s*+=|\s++TO\b|\s)\s*+(?P<value>.+)$",
    re.I | re.S,
)
_TRANSACTIONS = {
    "BEGIN": (b"T", "BEGIN"), "START": (b"T", "START TRANSACTION"), "COMMIT": (b"I", "COMMIT"), "END": (b"I", "COMMIT"),
    "ROLLBACK": (b"I", "ROLLBACK"), "ABORT": (b"I", "ROLLBACK"),
}  # fmt: skip
_IGNORED = (
    "SAVEPOINT",
    "RELEASE",
    "DISCARD",
    "LISTEN",
    "UNLISTEN",
    "NOTIFY",
    "DEALLOCATE",
    "LOCK",
    "ANALYZE",
    "VACUUM",
)


class ClientStatements:
    """The statements of one client."""

    def __init__(self, database: Database, client: Caller, catalog: SystemCatalog, name: str) -> None:
        self._database = database
        self._client = client
        self._catalog = catalog
        self._name = name
        self._started = 0
        self.settings: dict[str, str] = dict(SETTINGS)
        self._cursors: dict[str, ClientCursor] = {}
        self.work: Work | None = None
        """what is being worked on, for who wants to cancel it"""

    def close(self) -> None:
        """End what was started for this client."""
        for cursor in self._cursors.values():
            cursor.close()
        self._cursors = {}

    def perform(self, text: str, params: Sequence[Any] = ()) -> Answer:
        """Run one statement."""
        with (
            self._client.at_work(self._database, text),
            self._database.guard.working(self._database.config.limits) as work,
        ):
            self.work = work
            try:
                return self._answer(unqualified(text), params)
            finally:
                self.work = None

    def _answer(self, whole: str, params: Sequence[Any]) -> Answer:
        text = bare(whole)
        word = first_word(text)
        if word in _TRANSACTIONS and not re.match(r"ROLLBACK\s+TO\b", text, re.I):
            state, tag = _TRANSACTIONS[word]
            return Transaction(tag, state)
        if word in _IGNORED or word == "ROLLBACK":
            return Done(word)
        match word:
            case "SUBSCRIBE":
                return self._subscribe(text, params)
            case "COPY":
                return self._copy(text, params)
            case "DECLARE" | "FETCH" | "MOVE" | "CLOSE":
                return self._cursor(word, text, params)
            case "SET" | "RESET" | "SHOW":
                if (own := self._own_setting(word, text)) is not None:
                    return own
        if is_about_catalog(text):
            return Answered(f"SELECT {(found := self._catalog.query(text, params, self._client)).num_rows}", found)
        return self._engine(whole, text, params)

    # -- the engine ------------------------------------------------------------------------------------------------

    def _engine(self, whole: str, text: str, params: Sequence[Any]) -> Answer:
        """`whole` is the text in which errors have their places."""
        with self._database.turn:
            action, parsed = self._bound(whole, params)
            if isinstance(action, act.StartQuery) and action.sink is None:
                raise UnsupportedError(
                    "a query over streams never ends",
                    hint="SUBSCRIBE TO (SELECT …) streams its rows; CREATE VIEW v AS SELECT … FROM s [RANGE "
                    "…] makes a table to query: SELECT * FROM v",
                )
            made = self._database.perform(action, parsed)
        match made:
            case Result() if isinstance(action, act.PushRows):
                accepted, late, rejected = (column[0].as_py() for column in made.arrow().columns)
                return Done(f"INSERT 0 {accepted}", push_notice(action.stream, late, rejected))
            case Result():
                return Answered(f"SELECT {made.arrow().num_rows}", made.arrow())
        return Done(tag_of(text))

    def _bound(self, text: str, params: Sequence[Any]) -> tuple[act.Action, str]:
        """One statement, and its text with the values of its parameters."""
        parsed = sql.parse(text, list(params) or None)
        if len(parsed) != 1:
            raise ParseError(f"one statement is expected, got {len(parsed)}")
        return bind(parsed[0].ast, self._database.catalog, text), parsed[0].text

    # -- streaming -------------------------------------------------------------------------------------------------

    def _subscribe(self, text: str, params: Sequence[Any]) -> Live:
        asked = _SUBSCRIBE.match(text)
        if asked is None:
            raise ParseError("this is not SUBSCRIBE TO query", hint="SUBSCRIBE TO q, or SUBSCRIBE TO (SELECT … FROM s)")
        database = self._database
        if asked["query"] is None:
            query = database.query(unquoted(asked["name"]))
            self._client.require("reader", *names_of(query, database))
            stop: Callable[[], None] = _nothing
        else:
            self._started += 1
            with database.turn:
                action, parsed = self._bound(asked["query"], params)
                if not isinstance(action, act.StartQuery) or action.sink is not None:
                    raise UnsupportedError("only rows of a query over streams come live", hint="run the query itself")
                name = f"{self._name}_{self._started}"
                made = database.perform(replace(action, kept=False), parsed, name)
            assert isinstance(made, Query)
            query, stop = made, partial(_stop, database, made.name)
        reader = query.subscribe(buffer=_BUFFER, when_full="drop")

        def close() -> None:
            reader.close()
            stop()

        return Live(reader, query.schema, close)

    def _copy(self, text: str, params: Sequence[Any]) -> CopyOut | CopyIn:
        asked = _COPY.match(text)
        if asked is None:
            raise UnsupportedError(
                "COPY reads from STDIN and writes to STDOUT",
                hint="COPY s FROM STDIN WITH (FORMAT csv), COPY (SELECT …) TO STDOUT, COPY (SUBSCRIBE TO q) TO STDOUT",
            )
        options = copy_options(asked["options"])
        form = options.pop("format", "text").lower()
        if form not in FORMS:
            raise UnsupportedError(f"no format {form}", hint=f"one of {', '.join(FORMS)}")
        header = options.pop("header", "false").lower() not in ("false", "off", "0")
        delimiter = options.pop("delimiter", "," if form == "csv" else "\t")
        null = options.pop("null", None)
        options.pop("encoding", None)
        if options:
            raise UnsupportedError(f"COPY has no option {next(iter(options))}", hint="FORMAT, HEADER, DELIMITER, NULL")
        if asked["way"].upper().startswith("FROM"):
            if asked["name"] is None:
                raise ParseError("COPY writes rows into a stream or table, not into a query")
            target = unquoted(asked["name"])
            self._client.require("writer", target)
            names = tuple(unquoted(each.strip()) for each in (asked["columns"] or "").split(",") if each.strip())
            names, types = self._columns(target, names)
            return CopyIn(target, names, types, form, header, delimiter, null)
        query = asked["query"] or f"SELECT {asked['columns'] or '*'} FROM {asked['name']}"
        rows = self._answer(query, params)
        if not isinstance(rows, Answered | Live):
            raise UnsupportedError("COPY … TO STDOUT takes a query")
        return CopyOut(rows, form, header, delimiter)

    def _columns(self, target: str, named: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """The columns that rows bring, and PostgreSQL's numbers of their types."""
        entry = self._database.catalog.find(target)
        if not isinstance(entry, StreamDef):
            known = "a stream that rows can be pushed into is expected"
            raise CatalogError(f"no stream {target}", detail=known, hint=self._database.catalog.suggest(target))
        given = entry.given
        if unknown := next((name for name in named if name not in given), None):
            raise CatalogError(f"no column {unknown} in {target}", hint=f"columns: {', '.join(given.names)}")
        fields = [given[name] for name in named] if named else list(given)
        return tuple(field.name for field in fields), tuple(oid_of(field.type.arrow) for field in fields)

    # -- cursors ---------------------------------------------------------------------------------------------------

    def _cursor(self, word: str, text: str, params: Sequence[Any]) -> Answer:
        if word == "DECLARE":
            asked = _DECLARE.match(text)
            if asked is None:
                raise ParseError("this is not DECLARE c CURSOR FOR …")
            rows = self._answer(asked["query"], params)
            if not isinstance(rows, Answered | Live):
                raise UnsupportedError("a cursor needs a query")
            self._close_cursor(unquoted(asked["cursor"]))
            self._cursors[unquoted(asked["cursor"])] = ClientCursor(rows)
            return Done("DECLARE CURSOR")
        if word == "CLOSE":
            named = text.split(None, 1)[1].strip() if " " in text else ""
            for name in list(self._cursors) if named.upper() == "ALL" else [unquoted(named)]:
                self._close_cursor(name)
            return Done("CLOSE CURSOR")
        asked = _FETCH.match(text)
        if asked is None:
            raise ParseError(f"this is not {word} n FROM cursor", hint="FETCH 100 FROM c WITH (timeout = '1s')")
        cursor = self._cursors.get(unquoted(asked["cursor"]))
        if cursor is None:
            raise CatalogError(f"no cursor {asked['cursor']}", hint="DECLARE c CURSOR FOR SUBSCRIBE TO q")
        count = None if (asked["count"] or "1").upper() == "ALL" else int(asked["count"] or 1)
        timeout = float(asked["timeout"] or 0) / (1000 if asked["unit"] == "ms" else 1)
        assert self.work is not None
        table = cursor.take(count, timeout, self.work.check)
        return Done(f"MOVE {table.num_rows}") if word == "MOVE" else Answered(f"FETCH {table.num_rows}", table)

    def cursor_schema(self, name: str) -> pa.Schema | None:
        """The columns of a cursor that DECLARE made; None if there is none."""
        cursor = self._cursors.get(name)
        return None if cursor is None else cursor.schema

    def _close_cursor(self, name: str) -> None:
        cursor = self._cursors.pop(name, None)
        if cursor is not None:
            cursor.close()

    # -- the client's own settings ---------------------------------------------------------------------------------

    def _own_setting(self, word: str, text: str) -> Answer | None:
        """What concerns a setting that PostgreSQL has and the engine has not; None for others."""
        if word == "SET":
            asked = _SET.match(text)
            name = "" if asked is None else setting_name(asked["name"])
            if name in ("session", "transaction", "constraints", "role", "characteristics"):
                return Done("SET")
            if asked is None or name not in self.settings:
                return None
            self.settings[name] = value_text(name, asked["value"])
            return Done("SET")
        name = setting_name(text.split(None, 1)[1] if len(text.split(None, 1)) > 1 else "")
        if word == "RESET":
            if name == "all":
                self.settings = dict(SETTINGS)
            elif name in self.settings:
                self.settings[name] = SETTINGS[name]
            else:
                return None
            return Done("RESET")
        if name == "all":
            return Answered("SHOW", pa.table({"name": list(self.settings), "setting": list(self.settings.values())}))
        if name not in self.settings:
            return None
        return Answered("SHOW", pa.table({name: [self.settings[name]]}))


class ClientCursor:
    """Rows that a client takes bit by bit."""

    def __init__(self, rows: Answered | Live) -> None:
        self._rows = rows
        self.schema = rows.schema
        self._waiting: pa.Table = rows.table if isinstance(rows, Answered) else rows.schema.empty_table()

    def take(self, count: int | None, timeout: float, check: Callable[[], None]) -> pa.Table:
        """The next rows, at most `count`; those of a subscription are waited for, for so many seconds. `check` raises
        once the statement must not go on: it was cancelled, or its time is up."""
        if isinstance(self._rows, Live):
            until = time.monotonic() + timeout
            while count is None or self._waiting.num_rows < count:
                left = 0.0 if self._waiting.num_rows else max(0.0, until - time.monotonic())
                batch = self._rows.reader.next(min(left, _LOOK))
                if batch is not None:
                    self._waiting = pa.concat_tables([self._waiting, pa.Table.from_batches([batch])])
                elif left <= _LOOK or self._rows.reader.ended:
                    break
                check()
        count = self._waiting.num_rows if count is None else count
        taken, self._waiting = self._waiting.slice(0, count), self._waiting.slice(count)
        return taken

    def close(self) -> None:
        if isinstance(self._rows, Live):
            self._rows.close()


def first_word(text: str) -> str:
    found = re.match(r"(?:\s|--[^\n]*+\n|/\*(?>.*?\*/)|\()*+([A-Za-z]+)", text, re.S)
    return found[1].upper() if found else ""


def tag_of(text: str) -> str:
    """What a statement is called when it is done: its first words."""
    words = re.sub(r"\bOR\s+REPLACE\s+", "", text, flags=re.I).upper().split()
    word = words[0] if words else ""
    if word in ("CREATE", "DROP", "ALTER") and len(words) > 1:
        return " ".join(words[:2])
    return {"INSERT": "INSERT 0 0", "UPDATE": "UPDATE 0", "DELETE": "DELETE 0"}.get(word, word)


def push_notice(stream: str, late: int, rejected: int) -> str | None:
    """What to tell of rows that were not accepted."""
    told = [f"{count} {what}" for count, what in ((late, "late"), (rejected, "rejected")) if count]
    return f"{stream}: {', '.join(told)}" if told else None


def setting_name(text: str) -> str:
    words = re.sub(r"\s+", " ", text.strip().lower())
    return (
        words.replace("time zone", "timezone")
        .replace("transaction isolation level", "transaction_isolation")
        .split(" ")[0]
    )


def unquoted(name: str) -> str:
    name = name.strip()
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def copy_options(text: str) -> dict[str, str]:
    """The options of COPY: `WITH (FORMAT csv, HEADER)` and the older `CSV HEADER`."""
    inner = re.sub(r"^\s*(?:WITH\b)?\s*", "", text.strip(), flags=re.I)
    if inner.startswith("("):
        parts = [part.strip() for part in re.findall(r"(?:[^,']|'[^']*+')++", inner.strip("()"))]
        found = [re.match(r"(\w+)\s*(.*)$", part, re.S) for part in parts if part]
        return {each[1].lower(): _option(each[2]) for each in found if each}
    words, options = inner.split(), dict[str, str]()
    for at, word in enumerate(words):
        match word.lower():
            case "csv" | "binary" | "text":
                options["format"] = word.lower()
            case "header":
                options["header"] = "true"
            case "delimiter" | "null":
                rest = [each for each in words[at + 1 :] if each.upper() != "AS"]
                options[word.lower()] = _option(rest[0] if rest else "")
    return options


def _option(text: str) -> str:
    text = text.strip()
    if re.match(r"[Ee]'", text):
        return text[2:-1].encode().decode("unicode_escape")
    return text.strip("'\"") or "true"


def _nothing() -> None:
    return None


def _stop(database: Database, name: str) -> None:
    with suppress(MillstreamError):  # it has ended already, or the session has
        database.stop(name)
