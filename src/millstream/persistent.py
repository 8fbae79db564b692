"""A session whose catalog, tables, queries and their state survive closing, and crashes."""

from __future__ import annotations

import time as wall
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream import sql
from millstream.bind import statements as act
from millstream.bind.select import Bound
from millstream.bind.statements import bind
from millstream.catalog import AggregateDef, DerivedDef, Entry, FunctionDef, SinkDef, StreamDef, TableDef, ViewDef
from millstream.config import Config
from millstream.errors import StateError
from millstream.hosts.embedded.checkpoint import replay, restore_query, restore_streams, save
from millstream.hosts.embedded.host import EmbeddedHost, Now
from millstream.hosts.tables import TableStore
from millstream.journal import Journal
from millstream.python_aggregates import definitions_of
from millstream.query import Query, Result
from millstream.session import Database
from millstream.statistics import UNKNOWN, Statistics

JOURNAL_LIMIT = 256 << 20
"""Bytes of journal after which a checkpoint is due even if the time for it has not come."""

_PYTHON = "written in Python in "
"""What stands in the place of the text of an aggregate in Python, before the name of its module."""


class PersistentDatabase(Database):
    """Every call that changes something is noted in a journal before it takes effect; checkpoints keep it short."""

    _host: EmbeddedHost

    def __init__(self, directory: Path, config: Config, now: Now, aggregates: Iterable[Any] = ()) -> None:
        given = [entry for made in aggregates for entry in definitions_of(made)]
        self._given = {_key(entry): entry for entry in given}
        self._journal = Journal(directory)
        tables = TableStore(self._journal.tables_path)
        super().__init__(EmbeddedHost(tables, config, now), tables, config)
        self._texts: dict[str, tuple[str, str]] = {}
        self._saved_at = wall.monotonic()
        self._replaying = True
        self._restoring: list[tuple[ViewDef, frozenset[str]]] | None = None
        """views whose queries go on where they were once the streams do"""
        try:
            self._load()
        except BaseException:
            self._host.close()
            self.tables.close()
            self._journal.close()
            raise
        self._host.journal = self._note

    # -- what is noted ---------------------------------------------------------------------------------------------

    def _note(self, what: dict[str, Any], rows: pa.RecordBatch | None) -> None:
        # before the note: what it announces has not happened yet, so the state is that of the notes before it
        due = wall.monotonic() - self._saved_at >= self.config.checkpoint_seconds
        if due or self._journal.size() > JOURNAL_LIMIT:
            self.checkpoint()
        self._journal.note(what, rows)

    def _start(self, bound: Bound, uses: frozenset[str], sink: SinkDef | None, text: str, name: str | None) -> Query:
        query = super()._start(bound, uses, sink, text, name)
        if not self._is_temporary(uses):
            self._texts[f"query:{query.name.lower()}"] = (query.name, text)
            self._remember_call({"op": "sql", "name": query.name, "text": text})
        return query

    def _define(self, action: act.Define, text: str) -> None:
        if isinstance(action.entry, TableDef) and not self._replaying:
            self.checkpoint()
        known = self.catalog.like(action.entry)
        super()._define(action, text)
        entry = action.entry
        if known is not None and self.catalog.like(entry) is known:
            return
        # nothing uses it yet, and what it needs may have been defined after the one it replaces
        replaced = self._texts.pop(_key(entry), None)
        if self._is_temporary(action.uses):
            if replaced is not None:
                self.checkpoint()
            return
        if isinstance(entry, TableDef):
            text = _table_text(entry)
        if isinstance(entry, AggregateDef) and entry.python is not None:
            text = f"{_PYTHON}{entry.python.made.__module__}"
        self._texts[_key(entry)] = (entry.name, text)
        self._remember_call({"op": "execute", "text": text, "key": _key(entry)})

    def _keep_view(self, entry: ViewDef, uses: frozenset[str]) -> None:
        if self._restoring is None:
            super()._keep_view(entry, uses)
        else:
            self._restoring.append((entry, uses))

    def _define_again(self, key: str, text: str) -> None:
        """Define what was defined before; code in Python is not kept, and comes with the session."""
        if not text.startswith(_PYTHON):
            self.execute(text)
            return
        entry = self._given.get(key)
        if entry is None:
            version, _, name = key.partition(":")
            raise StateError(
                f"{version} {name} is written in Python, which is not kept in {self._journal.directory}",
                detail=f"it stood in module {text.removeprefix(_PYTHON)}",
                hint="open the session with it: ms.connect(directory, aggregates=[…])",
            )
        self._define(act.Define(entry), "")

    def _create_table(self, entry: TableDef) -> None:
        self.tables.create(entry.name, entry.schema, keep=self._replaying)

    def _remove(self, action: act.Remove) -> None:
        super()._remove(action)
        kept = [self._texts.pop(key, None) for key in _keys(action.name, action.kinds)]
        if any(kept):
            self._remember_call({"op": "drop", "name": action.name, "kind": action.kinds[0].__name__})

    def stop(self, name: str) -> None:
        super().stop(name)
        if self._texts.pop(f"query:{name.lower()}", None) is not None:
            self._remember_call({"op": "stop", "name": name})

    def _on_tables(self, action: act.OnTables, text: str) -> Result | None:
        if action.is_query:
            return super()._on_tables(action, text)
        # rows that were joined before the change must not be replayed after it
        self.checkpoint()
        result = super()._on_tables(action, text)
        if action.create is not None:
            entry = self.catalog.get(action.create[0], TableDef)
            self._texts[f"entry:{entry.name.lower()}"] = (entry.name, _table_text(entry))
            self.checkpoint()
        return result

    def _remember_call(self, note: dict[str, Any]) -> None:
        if not self._replaying:
            self._journal.note(note)

    def _is_temporary(self, uses: frozenset[str]) -> bool:
        """Streams registered from memory are gone with the process, and so is what is made of them."""
        return any(
            isinstance(self.catalog.find(name), StreamDef | DerivedDef | ViewDef)
            and f"entry:{name.lower()}" not in self._texts
            for name in uses
        )

    def _statistics(self) -> Statistics:
        """Nothing: a query that goes on with saved state must get the plan that it had."""
        return UNKNOWN

    # -- what is kept ----------------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Save all state now, so that the journal starts anew."""
        with self._host.lock:
            saved, blobs = save(self._host)
            statements = [[key, name, text] for key, (name, text) in self._texts.items()]
            self._journal.checkpoint({"statements": statements, "host": saved, "numbered": self._numbered}, blobs)
            self._saved_at = wall.monotonic()

    def close(self) -> None:
        self._host.stop_readers()
        self.checkpoint()
        super().close()
        self._journal.close()

    def _load(self) -> None:
        self._host.paused = True
        manifest, blobs, notes = self._journal.load()
        if manifest is not None:
            self._restore(manifest, blobs)
        for note, rows in notes:
            self._replay(note, rows)
        self._replaying = False
        self._host.paused = False
        self._host.start_readers()

    def _restore(self, manifest: dict[str, Any], blobs: dict[str, bytes]) -> None:
        saved = manifest["host"]
        self._numbered = manifest["numbered"]
        queries = []
        views: list[tuple[ViewDef, frozenset[str]]] = []
        self._restoring = views
        for key, name, text in manifest["statements"]:
            if key.startswith("query:"):
                queries.append((key.removeprefix("query:"), name, text))
            else:
                self._define_again(key, text)
        restore_streams(self._host, saved, blobs)
        loaded: set[str] = set()
        self._restoring = None
        for view, uses in views:
            self._views.add(view.name.lower())
            bound = self._delivered(view)
            program, trace = self._program(view.name, bound, None)
            restore_query(self._host, program, saved["queries"][view.name.lower()], blobs, loaded)
            self._remember(program, bound, trace, uses, view.sql)
        for key, name, text in queries:
            action = bind(sql.parse(text)[0].ast, self.catalog, text)
            assert isinstance(action, act.Query)
            program, trace = self._program(name, action.bound, action.sink)
            restore_query(self._host, program, saved["queries"][key], blobs, loaded)
            self._remember(program, action.bound, trace, action.uses, text)
            self._texts[f"query:{key}"] = (name, text)

    def _replay(self, note: dict[str, Any], rows: pa.RecordBatch | None) -> None:
        match note["op"]:
            case "execute":
                self._define_again(note.get("key", ""), note["text"])
            case "sql":
                self.sql(note["text"], name=note["name"])
            case "drop":
                kinds = next(kinds for kinds in act.DROPPABLE.values() if kinds[0].__name__ == note["kind"])
                self._remove(act.Remove(note["name"], kinds))
            case "stop":
                self.stop(note["name"])
            case "fetch" if note["name"].lower() not in self._queries:
                pass
            case _ if "stream" in note and note["stream"].lower() not in self._host.streams:
                # what was registered from memory is not kept, nor are queries that had no text
                pass
            case _:
                replay(self._host, note, rows)


def _keys(name: str, kinds: tuple[type[Entry], ...]) -> tuple[str, ...]:
    """Under which keys the text of a definition is kept: streams, functions and aggregates may share a name."""
    if AggregateDef in kinds:
        return f"aggregate:{name.lower()}", f"window aggregate:{name.lower()}"
    return (f"{'function' if FunctionDef in kinds else 'entry'}:{name.lower()}",)


def _key(entry: Entry) -> str:
    keys = _keys(entry.name, (type(entry),))
    return keys[1] if isinstance(entry, AggregateDef) and entry.window else keys[0]


def _table_text(entry: TableDef) -> str:
    columns = ", ".join(f'"{field.name}" {field.type}' for field in entry.schema)
    return f'CREATE TABLE "{entry.name}" ({columns})'
