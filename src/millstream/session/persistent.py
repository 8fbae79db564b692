"""Sessions whose catalog, tables, queries and their state survive closing, and crashes.

A listener of the session notes what it does in a journal; checkpoints keep that short. Queries and declarations are
kept as data, so that opening neither binds nor optimises anything again.
"""

from __future__ import annotations

import logging
import time as wall
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa

from millstream import plan_form, spans
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
from millstream.hosts.embedded.checkpoint import SavedStates, replay, restore_query, restore_streams, save
from millstream.hosts.embedded.host import EmbeddedHost, Now
from millstream.hosts.embedded.kept import sweep
from millstream.hosts.tables import TableStore
from millstream.session import backup
from millstream.session.database import Database
from millstream.session.definitions import adopt, remove
from millstream.session.journal import Journal
from millstream.session.kept_records import Record, key_of, keys_of, record_of
from millstream.session.planned import Planned
from millstream.session.python_aggregates import definitions_of
from millstream.session.query import Query, Result

log = logging.getLogger("millstream")

JOURNAL_LIMIT = 256 << 20
"""Bytes of journal after which a checkpoint is due even if the time for it has not come."""


def open_persistent(
    directory: Path, config: Config, now: Now, aggregates: Iterable[Any] = (), given: Iterable[str] = ()
) -> Database:
    """The session that is kept in a directory, as it was left, with the settings that it had but for those that are
    `given`; code in Python is not kept, and comes with it."""
    journal = Journal(directory, durable=config.durability == "disk")
    with ExitStack() as opened:
        # whatever fails, the directory is free again
        opened.callback(journal.close)
        tables = TableStore(journal.tables_path, config)
        opened.callback(tables.close)
        host = EmbeddedHost(tables, config, now)
        host.home = directory / "history"
        opened.callback(host.close)
        database = Database(host, tables, config)
        keeper = SessionKeeper(database, host, journal, aggregates, given)
        try:
            keeper.load()
        except OSError as error:
            raise StateError(f"cannot read the session in {directory}: {error.strerror or error}") from None
        opened.pop_all()
    host.journal, host.save = keeper.note_input, keeper.checkpoint
    database.listener = keeper
    database.table_changes.tell()
    return database


class SessionKeeper:
    """Listens to a session and its host, and keeps what they do."""

    def __init__(
        self, database: Database, host: EmbeddedHost, journal: Journal, aggregates: Iterable[Any], given: Iterable[str]
    ) -> None:
        self._database = database
        self._host = host
        self._journal = journal
        code = [entry for made in aggregates for entry in definitions_of(made)]
        self._given = {key_of(entry): entry for entry in code}
        self._given_settings = frozenset(given)
        self._settings: dict[str, Any] = {}
        self._kept: dict[str, Record] = {}
        self._states = SavedStates()
        self._saved_at = wall.monotonic()
        self._owed = False
        """whether rows that come now could not be replayed before there is a checkpoint"""
        self._closed = False
        self._backing_up = Lock()
        self._is_noted = False
        """whether the statement at work has a note that must go if it fails"""
        self._defined: Record | None = None
        """what is kept of the entry that is being defined"""
        self._seen_from: dict[str, int] = {}
        """what the query that is being resumed has seen of its streams"""

    # -- what is noted ---------------------------------------------------------------------------------------------

    def effect(self) -> AbstractContextManager[Any]:
        return self._host.lock

    def note_input(self, what: dict[str, Any], rows: pa.RecordBatch | None) -> None:
        if self._closed:
            raise StateError(
                "this session is closed", hint=f"open it again: ms.connect({str(self._journal.directory)!r})"
            )
        # before the note: what it announces has not happened yet, so the state is that of the notes before it
        if self._owed:
            self.checkpoint()
        due = wall.monotonic() - self._saved_at >= self._database.config.checkpoint_seconds
        if due or self._journal.size() > JOURNAL_LIMIT:
            try:
                self.checkpoint()
            except StateError as error:
                # the journal goes on from the last one
                self._saved_at = wall.monotonic()
                log.warning("%s; trying again in %g s", error, self._database.config.checkpoint_seconds)
        self._journal.note(what, rows)

    def before(self, action: act.Action, text: str, planned: Planned | None) -> None:
        self._is_noted = False
        match action:
            case act.Define(entry=entry):
                self._defined = None
                if action.if_not_exists and self._database.catalog.like(entry) is not None:
                    return
                if isinstance(entry, TableDef):
                    self.checkpoint()
                if not self._is_temporary(action.uses):
                    self._defined = self._definition(action, text, planned)
                    # a definition that others follow is saved with them, at once
                    if not isinstance(entry, TableDef) and not action.followers:
                        self._note({"op": "keep", "key": key_of(entry), **self._defined})
            case act.OnTables() | act.ChangeRows():
                # rows that were joined before the change must not be replayed after it
                self.checkpoint()
            case act.Remove(name=name, kinds=kinds):
                if any(key in self._kept for key in keys_of(name, kinds)):
                    self._note({"op": "drop", "name": name, "kind": kinds[0].__name__})
            case act.StopQuery(name=name):
                if f"query:{name.lower()}" in self._kept:
                    if self._host.queries[name.lower()].sink is not None:
                        # so that all it has written is known to be there before anybody sees the end of it
                        self.checkpoint()
                    self._note({"op": "stop", "name": name})
            case act.PauseQuery(name=name, resume=resume):
                if f"query:{name.lower()}" in self._kept:
                    self._seen_from = dict(self._host.queries[name.lower()].covered)
                    self._note({"op": "resume" if resume else "pause", "name": name})
            case act.ChangeSetting(name=name, value=value):
                self._note({"op": "set", "name": name, "value": value})

    def failed(self, action: act.Action) -> None:
        if self._is_noted:
            self._is_noted = False
            self._journal.retract()

    def after(self, action: act.Action, result: Query | Result | None) -> None:
        self._is_noted = False
        match action:
            case act.StartQuery(uses=uses, kept=True) if isinstance(result, Query) and not self._is_temporary(uses):
                if action.history is not None and not action.replace:
                    self._started_with_history(result.name)
                else:
                    self._started(result.name, action.replace)
            case act.AlterQuery(query=query) if isinstance(result, Query):
                self._kept.pop(f"query:{result.name.lower()}", None)
                if not self._is_temporary(query.uses):
                    self._started(result.name, replaced=True)
            case act.PauseQuery(name=name):
                if (
                    f"query:{name.lower()}" in self._kept
                    and self._seen_from != self._host.queries[name.lower()].covered
                ):
                    # rows were missing, and in a replay others might be
                    self._save_before_rows()
            case act.AlterStream(name=name):
                if f"entry:{name.lower()}" in self._kept:
                    altered = plan_form.dumps(self._database.catalog.get(name, StreamDef))
                    self._kept[f"entry:{name.lower()}"] |= {"entry": altered}
                    self._save_before_rows()
            case act.Define(entry=entry):
                self._was_defined(entry)
                self._have_followed(action.followers)
                if action.history is not None or action.followers:
                    self._save_before_rows()
            case act.Remove(name=name, kinds=kinds):
                for key in keys_of(name, kinds):
                    self._kept.pop(key, None)
            case act.StopQuery(name=name):
                self._kept.pop(f"query:{name.lower()}", None)
            case act.KeepSet(name=name):
                record: Record = {"set": plan_form.dumps(self._database.query_set(name).definition)}
                if self._kept.get(f"set:{name.lower()}") != record:
                    self._journal.note({"op": "keep", "key": f"set:{name.lower()}", **record})
                    self._kept[f"set:{name.lower()}"] = record
            case act.ForgetSet(name=name):
                if f"set:{name.lower()}" in self._kept:
                    self._journal.note({"op": "forget set", "name": name})
                    del self._kept[f"set:{name.lower()}"]
            case act.OnTables(create=(name, _)):
                entry = self._database.catalog.get(name, TableDef)
                self._kept[key_of(entry)] = record_of(entry, frozenset())
                self._save_before_rows()
            case act.ChangeSetting(name=name, value=value):
                self._settings.pop(name, None)
                self._settings |= {} if value is None else {name: value}
                self._journal.durable = self._database.config.durability == "disk"

    def _started(self, name: str, replaced: bool) -> None:
        key = f"query:{name.lower()}"
        record: Record = {"query": plan_form.dumps(self._database.planned(name))}
        if replaced:
            # the journal could not tell how state was handed over
            self._kept[key] = record
            self._save_before_rows()
            return
        if began := self._host.queries[name.lower()].committed:
            record["sink"] = began
        try:
            self._journal.note({"op": "keep", "key": key, **record})
        except StateError:
            self._database.withdraw(name)
            raise
        self._kept[key] = record

    def _started_with_history(self, name: str) -> None:
        """The journal could not tell which rows were kept, so all is saved at once."""
        key = f"query:{name.lower()}"
        self._kept[key] = {"query": plan_form.dumps(self._database.planned(name))}
        try:
            self.checkpoint()
        except StateError:
            del self._kept[key]
            self._database.withdraw(name)
            raise

    def _definition(self, action: act.Define, text: str, planned: Planned | None) -> Record:
        match action.entry:
            case AggregateDef(python=code) | FunctionDef(python=code) if code is not None:
                return {"python": code.made.__module__}
            case FunctionDef() | AggregateDef():
                return {"text": text}
            case entry:
                started = {} if planned is None else {"query": plan_form.dumps(planned)}
                return {**record_of(entry, action.uses), **started}

    def _was_defined(self, entry: Entry) -> None:
        if entry is not self._database.catalog.like(entry):
            return  # there was one already
        # nothing uses it yet, and what it needs may have been defined after the one it replaces
        replaced, record = self._kept.pop(key_of(entry), None), self._defined
        if record is None:
            if replaced is not None:
                # what is made of streams in memory is not kept
                self._save_before_rows()
            return
        if isinstance(entry, TableDef):
            try:
                self._journal.note({"op": "keep", "key": key_of(entry), **record})
            except StateError:
                remove(self._database, act.Remove(entry.name, (TableDef,)))
                raise
        self._kept[key_of(entry)] = record

    def _have_followed(self, followers: tuple[act.Define | act.AlterQuery, ...]) -> None:
        """Keep what uses a definition that was replaced, as it is now, behind that."""
        for follower in followers:
            match follower:
                case act.Define(entry=entry, uses=uses):
                    key, name, record = key_of(entry), entry.name, record_of(entry, uses)
                case act.AlterQuery(name=name, query=query):
                    key, uses, record = f"query:{name.lower()}", query.uses, {}
            if name.lower() in {query.name.lower() for query in self._database.queries()}:
                record["query"] = plan_form.dumps(self._database.planned(name))
            if self._kept.pop(key, None) is not None and not self._is_temporary(uses):
                self._kept[key] = record

    def _save_before_rows(self) -> None:
        """Save what the journal cannot tell; if that fails, no rows are taken until it has succeeded."""
        self._owed = True
        self.checkpoint()

    def _note(self, what: dict[str, Any]) -> None:
        """Note what is about to be done; the note is taken back if that fails."""
        self._journal.note(what)
        self._is_noted = True

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
        with self._host.lock, spans.span("checkpoint"):
            if self._closed:
                return
            saved = save(self._host, self._states)
            kept = list(self._kept.items())
            manifest = {"kept": kept, "settings": self._settings, "numbered": self._database.numbered, "host": saved}
            self._journal.checkpoint(manifest, self._states.names, self._states.unsaved)
            self._states.unsaved.clear()
            self._saved_at = wall.monotonic()
            self._owed = False
            # what sinks have written is seen once it is known that it was: it is never taken back
            self._host.publish()
            self._host.acknowledge_sources()
            sweep(self._host)

    def backup(self, target: Path) -> None:
        """Copy the session as it is now to a new directory; rows wait while the files are linked."""
        whole = self._database.turn, self._host.lock, self._database.tables.still()
        with self._backing_up, backup.delivered(self._journal.directory, target) as hold, whole[0], whole[1], whole[2]:
            self.checkpoint()
            hold()

    def before_close(self) -> None:
        self._host.stop_readers()
        with self._host.lock:
            try:
                self.checkpoint()
            finally:
                self._closed = True

    def after_close(self) -> None:
        self._closed = True
        self._journal.close()

    def load(self) -> None:
        self._host.paused = True
        manifest, blobs, notes = self._journal.load()
        aside = []
        with self._host.lock:
            if manifest is not None:
                self._restore(manifest, blobs)
                self._host.acknowledge_sources()
            sweep(self._host)
            self._states = SavedStates(blobs)
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
        if aside or self._journal.is_older:
            # what is set aside is not tried again, and notes of this version are not for older ones
            self.checkpoint()
        if "sets" in self._database.__dict__:
            self._database.sets.catch_up()
        self._host.paused = False
        self._host.start_readers()

    def _restore(self, manifest: dict[str, Any], blobs: dict[str, bytes]) -> None:
        saved = manifest["host"]
        self._database.numbered = manifest["numbered"]
        for name, value in manifest.get("settings", {}).items():
            self._set(name, value)
        self._kept = dict(manifest["kept"])
        self._miss_tables()
        for key, record in self._kept.items():
            self._define_again(key, record)
        self._database.table_changes.declare(saved["streams"])
        restore_streams(self._host, saved, blobs)
        loaded: set[str] = set()

        def start(program: ReadyQuery) -> None:
            restore_query(self._host, program, saved["queries"][program.name.lower()], blobs, loaded)

        for record in self._kept.values():
            if "query" in record:
                self._go_on(record, start)

    def _miss_tables(self) -> None:
        """Tables are not made anew, empty, where their file is gone."""
        if self._journal.tables_path.exists():
            return
        for record in self._kept.values():
            entry = self._read(record["entry"]) if "entry" in record else None
            if isinstance(entry, TableDef):
                raise StateError(
                    f"{self._journal.tables_path} is gone, with the rows of table {entry.name}",
                    hint="restore it from a copy of the directory",
                )

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
                adopt(self._database, self._read(entry), frozenset(uses))
            case {"text": text}:
                self._database.execute(text)
            case {"python": module}:
                code = self._given.get(key)
                if code is None:
                    version, _, name = key.partition(":")
                    raise StateError(
                        f"{version} {name} is written in Python, which is not saved in {self._journal.directory}",
                        detail=f"it was in module {module}",
                        hint=f"open the session with it: ms.connect(directory, {version.split()[-1]}s=[…])",
                    )
                adopt(self._database, code, frozenset())

    def _replay(self, note: dict[str, Any], rows: pa.RecordBatch | None) -> None:
        match note:
            case {"op": "keep", "key": key}:
                record = {name: part for name, part in note.items() if name not in ("op", "key")}
                self._define_again(key, record)
                if "query" in record:
                    began = record.get("sink", {})
                    self._go_on(record, lambda program: self._host.resume(program, None, began))
                self._kept.pop(key, None)
                self._kept[key] = record
            case {"op": "drop", "name": name, "kind": kind}:
                kinds = next(kinds for kinds in act.DROPPABLE.values() if kinds[0].__name__ == kind)
                self._database.perform(act.Remove(name, kinds))
                for key in keys_of(name, kinds):
                    self._kept.pop(key, None)
            case {"op": "stop", "name": name}:
                self._database.stop(name)
                self._kept.pop(f"query:{name.lower()}", None)
            case {"op": "pause" | "resume" as op, "name": name}:
                (self._host.pause if op == "pause" else self._host.go_on)(name)
            case {"op": "forget set", "name": name}:
                self._kept.pop(f"set:{name.lower()}", None)
            case {"op": "set", "name": name, "value": value}:
                self._set(name, value)
            case {"op": "fetch" | "ack", "name": name} if name.lower() not in self._host.queries:
                pass
            case {"stream": stream} if stream.lower() not in self._host.streams:
                # what was registered from memory is not kept, nor are queries that had no text
                pass
            case _:
                replay(self._host, note, rows)

    def _set(self, name: str, value: Any) -> None:
        """A setting as it was left, unless this opening gives another."""
        self._settings.pop(name, None)
        self._settings |= {} if value is None else {name: value}
        if name not in self._given_settings:
            self._database.configure(self._database.config.with_setting(name, value))
            self._journal.durable = self._database.config.durability == "disk"

    def _read(self, form: str) -> Any:
        return plan_form.loads(form, self._python)

    def _python(self, name: str, digest: str) -> Any:
        code = next((e.python for e in self._given.values() if e.python is not None and e.python.name == name), None)
        if code is None or code.digest != digest:
            raise StateError(
                f"{name} has changed since {self._journal.directory} was saved",
                detail="its source changed, so the saved state may not fit it",
                hint="open the session with the old code, or start in a new directory",
            )
        return code


def _told(note: dict[str, Any]) -> str:
    of = next((f" {note[part]}" for part in ("stream", "name", "key") if part in note), "")
    return f"{note.get('op', 'a note')}{of}"
