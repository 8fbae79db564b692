"""Sessions whose catalog, tables, queries and their state survive closing, and crashes.

A listener of the session notes what it does in a journal; checkpoints keep that short. Queries and declarations are
kept as data, so that opening neither binds nor optimises anything again.
"""

from __future__ import annotations

import logging
import time as wall
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream import plan_form
from millstream.bind import statements as act
from millstream.bind.context import Context
from millstream.catalog import (
    AggregateDef,
    DerivedDef,
    Entry,
    FunctionDef,
    StreamDef,
    TableDef,
    ViewDef,
    aggregate_use,
)
from millstream.config import Config
from millstream.errors import StateError
from millstream.hosts.contract import ReadyQuery
from millstream.hosts.embedded.checkpoint import replay, restore_query, restore_streams, save
from millstream.hosts.embedded.host import EmbeddedHost, Now
from millstream.hosts.tables import TableStore
from millstream.session.database import Database
from millstream.session.journal import Journal
from millstream.session.planned import Planned
from millstream.session.python_aggregates import definitions_of
from millstream.session.query import Query, Result

log = logging.getLogger("millstream")

JOURNAL_LIMIT = 256 << 20
"""Bytes of journal after which a checkpoint is due even if the time for it has not come."""

Record = dict[str, Any]
"""A declaration or a query as it is kept: the form of an `entry` with what it `uses`, the form of a `query`, the `text`
of a function or an aggregate, or the module of one in `python`."""


def open_persistent(directory: Path, config: Config, now: Now, aggregates: Iterable[Any] = ()) -> Database:
    """The session that is kept in a directory, as it was left; code in Python is not kept, and comes with it."""
    journal = Journal(directory, durable=config.durability == "disk")
    with ExitStack() as opened:
        # whatever fails, the directory is free again
        opened.callback(journal.close)
        tables = TableStore(journal.tables_path, config)
        opened.callback(tables.close)
        host = EmbeddedHost(tables, config, now)
        opened.callback(host.close)
        database = Database(host, tables, config)
        keeper = SessionKeeper(database, host, journal, aggregates)
        try:
            keeper.load()
        except OSError as error:
            raise StateError(f"cannot read the session in {directory}: {error.strerror or error}") from None
        opened.pop_all()
    host.journal = keeper.note_input
    database.listener = keeper
    return database


class SessionKeeper:
    """Listens to a session and its host, and keeps what they do."""

    def __init__(self, database: Database, host: EmbeddedHost, journal: Journal, aggregates: Iterable[Any]) -> None:
        self._database = database
        self._host = host
        self._journal = journal
        given = [entry for made in aggregates for entry in definitions_of(made)]
        self._given = {_key(entry): entry for entry in given}
        self._kept: dict[str, Record] = {}
        self._saved_at = wall.monotonic()
        self._known: Entry | None = None
        """what had the name of the entry that is being defined"""

    # -- what is noted ---------------------------------------------------------------------------------------------

    def note_input(self, what: dict[str, Any], rows: pa.RecordBatch | None) -> None:
        # before the note: what it announces has not happened yet, so the state is that of the notes before it
        due = wall.monotonic() - self._saved_at >= self._database.config.checkpoint_seconds
        if due or self._journal.size() > JOURNAL_LIMIT:
            self.checkpoint()
        self._journal.note(what, rows)

    def before(self, action: act.Action) -> None:
        match action:
            case act.Define(entry=entry):
                self._known = self._database.catalog.like(entry)
                if isinstance(entry, TableDef):
                    self.checkpoint()
            case act.OnTables(is_query=False) | act.ChangeRows():
                # rows that were joined before the change must not be replayed after it
                self.checkpoint()

    def after(self, action: act.Action, text: str, result: Query | Result | None) -> None:
        match action:
            case act.StartQuery(uses=uses, replace=replace) if isinstance(result, Query) and not self._is_temporary(
                uses
            ):
                key, record = f"query:{result.name.lower()}", {"query": self._planned(result.name)}
                if replace:
                    # the journal could not tell how state was handed over
                    self._kept[key] = record
                    self.checkpoint()
                else:
                    self._keep(key, record)
            case act.Define():
                self._defined(action, text)
            case act.Remove(name=name, kinds=kinds):
                kept = [self._kept.pop(key, None) for key in _keys(name, kinds)]
                if any(kept):
                    self._journal.note({"op": "drop", "name": name, "kind": kinds[0].__name__})
            case act.StopQuery(name=name):
                if self._kept.pop(f"query:{name.lower()}", None) is not None:
                    self._journal.note({"op": "stop", "name": name})
            case act.KeepSet(name=name):
                record = {"set": plan_form.dumps(self._database.query_set(name).definition)}
                if self._kept.get(f"set:{name.lower()}") != record:
                    self._keep(f"set:{name.lower()}", record)
            case act.ForgetSet(name=name):
                if self._kept.pop(f"set:{name.lower()}", None) is not None:
                    self._journal.note({"op": "forget set", "name": name})
            case act.OnTables(create=(name, _)):
                entry = self._database.catalog.get(name, TableDef)
                self._kept[_key(entry)] = _record(entry, frozenset())
                self.checkpoint()

    def _defined(self, action: act.Define, text: str) -> None:
        entry, known = action.entry, self._known
        if known is not None and self._database.catalog.like(entry) is known:
            return
        # nothing uses it yet, and what it needs may have been defined after the one it replaces
        replaced = self._kept.pop(_key(entry), None)
        if self._is_temporary(action.uses):
            if replaced is not None:
                self.checkpoint()
            return
        match entry:
            case AggregateDef(python=code) if code is not None:
                record: Record = {"python": code.made.__module__}
            case FunctionDef() | AggregateDef():
                record = {"text": text}
            case ViewDef():
                record = {**_record(entry, action.uses), "query": self._planned(entry.name)}
            case _:
                record = _record(entry, action.uses)
        self._keep(_key(entry), record)

    def _keep(self, key: str, record: Record) -> None:
        self._kept[key] = record
        self._journal.note({"op": "keep", "key": key, **record})

    def _planned(self, name: str) -> str:
        return plan_form.dumps(self._database.planned(name))

    def _is_temporary(self, uses: frozenset[str]) -> bool:
        """Streams registered from memory are gone with the process, and so is what is made of them."""
        return any(
            isinstance(self._database.catalog.find(name), StreamDef | DerivedDef | ViewDef)
            and f"entry:{name.lower()}" not in self._kept
            for name in uses
        )

    # -- what is kept ----------------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Save all state now, so that the journal starts anew."""
        with self._host.lock:
            saved, blobs = save(self._host)
            kept = list(self._kept.items())
            self._journal.checkpoint({"kept": kept, "host": saved, "numbered": self._database.numbered}, blobs)
            self._saved_at = wall.monotonic()

    def before_close(self) -> None:
        self._host.stop_readers()
        self.checkpoint()

    def after_close(self) -> None:
        self._journal.close()

    def load(self) -> None:
        self._host.paused = True
        manifest, blobs, notes = self._journal.load()
        aside = []
        with self._host.lock:
            if manifest is not None:
                self._restore(manifest, blobs)
            for note, rows in notes:
                try:
                    self._replay(note, rows)
                except StateError:
                    raise
                except Exception as error:
                    aside.append(self._journal.set_aside(note, rows, error))
                    log.warning("%s could not be replayed (%s) and is kept in %s", _told(note), error, aside[-1])
        for record in self._kept.values():
            if "set" in record:
                self._database.sets.adopt(self._read(record["set"]))
        if aside:
            # what is set aside is not tried again
            self.checkpoint()
        self._host.paused = False
        self._host.start_readers()

    def _restore(self, manifest: dict[str, Any], blobs: dict[str, bytes]) -> None:
        saved = manifest["host"]
        self._database.numbered = manifest["numbered"]
        self._kept = dict(manifest["kept"])
        for key, record in self._kept.items():
            self._define_again(key, record)
        restore_streams(self._host, saved, blobs)
        loaded: set[str] = set()

        def start(program: ReadyQuery) -> None:
            restore_query(self._host, program, saved["queries"][program.name.lower()], blobs, loaded)

        for record in self._kept.values():
            if "query" in record:
                self._go_on(record, start)

    def _go_on(self, record: Record, start: Callable[[ReadyQuery], None]) -> None:
        planned: Planned = self._read(record["query"])
        self._recall(planned.uses)
        self._database.go_on(planned, start)

    def _recall(self, uses: Iterable[str]) -> None:
        """Know the aggregates of the library that were used."""
        for use in uses:
            if use.startswith(aggregate_use("")):
                Context(self._database.catalog, "").aggregate(use.removeprefix(aggregate_use("")), window=False)

    def _define_again(self, key: str, record: Record) -> None:
        """Define what was defined before; code in Python is not kept, and comes with the session."""
        match record:
            case {"entry": entry, "uses": uses}:
                self._recall(uses)
                self._database.adopt(self._read(entry), frozenset(uses))
            case {"text": text}:
                self._database.execute(text)
            case {"python": module}:
                code = self._given.get(key)
                if code is None:
                    version, _, name = key.partition(":")
                    raise StateError(
                        f"{version} {name} is written in Python, which is not saved in {self._journal.directory}",
                        detail=f"it was in module {module}",
                        hint="open the session with it: ms.connect(directory, aggregates=[…])",
                    )
                self._database.adopt(code, frozenset())

    def _replay(self, note: dict[str, Any], rows: pa.RecordBatch | None) -> None:
        match note:
            case {"op": "keep", "key": key}:
                record = {name: part for name, part in note.items() if name not in ("op", "key")}
                self._define_again(key, record)
                if "query" in record:
                    self._go_on(record, self._host.start)
                self._kept.pop(key, None)
                self._kept[key] = record
            case {"op": "drop", "name": name, "kind": kind}:
                kinds = next(kinds for kinds in act.DROPPABLE.values() if kinds[0].__name__ == kind)
                self._database.perform(act.Remove(name, kinds))
                for key in _keys(name, kinds):
                    self._kept.pop(key, None)
            case {"op": "stop", "name": name}:
                self._database.stop(name)
                self._kept.pop(f"query:{name.lower()}", None)
            case {"op": "forget set", "name": name}:
                self._kept.pop(f"set:{name.lower()}", None)
            case {"op": "fetch", "name": name} if name.lower() not in self._host.queries:
                pass
            case {"stream": stream} if stream.lower() not in self._host.streams:
                # what was registered from memory is not kept, nor are queries that had no text
                pass
            case _:
                replay(self._host, note, rows)

    def _read(self, form: str) -> Any:
        return plan_form.loads(form, self._python)

    def _python(self, name: str, digest: str) -> Any:
        code = next((e.python for e in self._given.values() if e.python is not None and e.python.name == name), None)
        if code is None or code.digest != digest:
            raise StateError(
                f"aggregate {name} has changed since {self._journal.directory} was saved",
                detail="its source changed, so the saved state may not fit it",
                hint="open the session with the old aggregate, or start in a new directory",
            )
        return code


def _told(note: dict[str, Any]) -> str:
    of = next((f" {note[part]}" for part in ("stream", "name", "key") if part in note), "")
    return f"{note.get('op', 'a note')}{of}"


def _record(entry: Entry, uses: frozenset[str]) -> Record:
    return {"entry": plan_form.dumps(entry), "uses": sorted(uses)}


def _keys(name: str, kinds: tuple[type[Entry], ...]) -> tuple[str, ...]:
    """Under which keys a definition is kept: streams, functions and aggregates may share a name."""
    if AggregateDef in kinds:
        return f"aggregate:{name.lower()}", f"window aggregate:{name.lower()}"
    return (f"{'function' if FunctionDef in kinds else 'entry'}:{name.lower()}",)


def _key(entry: Entry) -> str:
    keys = _keys(entry.name, (type(entry),))
    return keys[1] if isinstance(entry, AggregateDef) and entry.window else keys[0]
