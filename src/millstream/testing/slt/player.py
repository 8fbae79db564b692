"""Playing the records of a golden file against a session, one after the other."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa

import millstream as ms
from millstream.records import dataclass
from millstream.session.times import to_micros
from millstream.testing.slt.configs import SltConfig
from millstream.testing.slt.micro_batches import MicroBatches
from millstream.testing.slt.records import Record, Script, SltError
from millstream.testing.slt.values import DAY, format_rows, parse_row, parse_time
from millstream.types import from_arrow

FAILURE = "! "
"""How a line begins that tells of an error instead of a row."""


@dataclass(frozen=True)
class PlayedStep:
    """What a record gave, as lines of a file; if it was a step of data, of the queries that were `running`."""

    lines: tuple[str, ...]
    running: tuple[str, ...] | None = None


class Player:
    """A session that is driven by records; what must survive a `restart` is kept in `directory`."""

    def __init__(self, script: Script, config: SltConfig, directory: Path) -> None:
        self._script, self._config = script, config
        self._streaming = config.host == "spark-streaming"
        self._directory = directory
        self._keeps = config.restarts or script.uses("restart")
        self._time = to_micros(dt.datetime.combine(DAY, dt.time()))
        self._started: list[str] = []
        self._stopped: list[tuple[str, Any]] = []
        self._failed: set[str] = set()
        self._database = self._open()

    def play(self, record: Record) -> PlayedStep:
        """Do what a record says."""
        match record.verb:
            case "statement":
                return PlayedStep(self._statement(record))
            case "stream":
                return PlayedStep(self._start(record))
            case "query":
                return PlayedStep(tuple(format_rows(self._database.sql(record.text).fetch())))
            case "explain":
                text = self._database.explain(record.text, record.args)
                return PlayedStep(tuple(line.rstrip() for line in text.splitlines() if line.strip()))
            case "clock":
                self._time = to_micros(self._moment(record, record.args))
                return PlayedStep(())
            case "restart":
                self._restart()
                return PlayedStep(())
        return self._data(record)

    def rest(self) -> dict[str, list[str]]:
        """What queries have produced and nobody has fetched; those that were stopped, before they were."""
        if self._config.engine != "spark":
            return {}
        rows: dict[str, list[str]] = {}
        for name, query in self._stopped:
            rows.setdefault(name, []).extend(format_rows(query._last_rows() or query.schema.empty_table()))
        for name, lines in self._fetch().items():
            rows.setdefault(name, []).extend(lines)
        return rows

    @property
    def surplus(self) -> int:
        """How many rows at the end of a query's result may be there for technical reasons."""
        return self._database.surplus if self._streaming else 0

    @property
    def host(self) -> Any:
        """Where the session runs."""
        return self._database._host

    def close(self) -> None:
        self._database.close()

    def _open(self) -> Any:
        settings = dict(self._config.settings)
        if self._config.engine == "spark":
            database = ms.connect(engine="spark", clock=lambda: self._time, **settings)
            return MicroBatches(database, self._directory) if self._streaming else database
        return ms.connect(self._directory if self._keeps else None, clock=lambda: self._time, **settings)

    def _restart(self) -> None:
        if self._streaming:
            self._database.restart()
        elif self._config.engine == "embedded":
            self._database.close()
            self._database = self._open()

    def _statement(self, record: Record) -> tuple[str, ...]:
        outcome, _, message = record.args.partition(" ")
        before = {name: self._database.query(name) for name in self._running()}
        try:
            self._database.execute(record.text)
            self._stopped += [(name, query) for name, query in before.items() if name not in self._running()]
        except ms.MillstreamError as error:
            if outcome != "error":
                raise AssertionError(f"{self._place(record)}: {error}") from error
            if message.strip() not in str(error):
                raise AssertionError(
                    f"{self._place(record)}: the error does not say {message!r}, but:\n{error}"
                ) from error
            return tuple(line.rstrip() for line in str(error).splitlines() if line.strip())
        if outcome != "ok":
            raise AssertionError(f"{self._place(record)}: an error is expected, the statement was accepted")
        return ()

    def _start(self, record: Record) -> tuple[str, ...]:
        try:
            query = self._database.sql(record.text, name=record.args)
        except ms.MillstreamError as error:
            raise AssertionError(f"{self._place(record)}: {error}") from error
        self._started = [name for name in self._started if name != record.args] + [record.args]
        self._failed.discard(record.args)
        return (format_schema(query.schema),)

    def _data(self, record: Record) -> PlayedStep:
        running = self._running()
        rows: dict[str, list[str]] = {}
        try:
            self._feed(record)
        except ms.MillstreamError as error:
            rows[""] = [FAILURE + error.message]
        if self._config.engine == "embedded":
            rows |= self._fetch()
        if self._config.restarts and record.verb != "finish":
            self._restart()
        lines: list[str] = []
        for query, found in rows.items():
            prefix = f"{query}: " if query and len(running) > 1 else ""
            lines += [prefix + line for line in found]
        return PlayedStep(tuple(lines), running)

    def _feed(self, record: Record) -> None:
        match record.verb:
            case "push":
                stream, _ = _name_first(record.args)
                self._database.push(stream, [self._row(record, line) for line in record.body])
            case "advance":
                stream, time = _name_first(record.args)
                self._database.advance(stream, self._moment(record, time))
            case "finish":
                self._database.finish()

    def _running(self) -> tuple[str, ...]:
        alive = {query.name for query in self._database.queries()}
        return tuple(name for name in self._started if name in alive)

    def _fetch(self) -> dict[str, list[str]]:
        rows: dict[str, list[str]] = {}
        for name in self._running():
            if name in self._failed:
                continue
            rows[name] = []
            try:
                while found := format_rows(self._database.query(name).fetch()):
                    rows[name] += found
            except ms.MillstreamError as error:
                self._failed.add(name)
                rows[name].append(FAILURE + error.message)
        return rows

    def _row(self, record: Record, line: str) -> Any:
        try:
            return parse_row(line)
        except ValueError as error:
            raise SltError(f"{self._place(record)}: {error}") from None

    def _moment(self, record: Record, text: str) -> dt.datetime | int:
        try:
            return parse_time(text.strip())
        except ValueError as error:
            raise SltError(f"{self._place(record)}: {error}") from None

    def _place(self, record: Record) -> str:
        return f"{self._script.path}:{record.line}"


def _name_first(args: str) -> tuple[str, str]:
    """A stream's name, in quotes if it has spaces, and what follows it."""
    if args.startswith('"'):
        name, _, rest = args[1:].partition('"')
        return name, rest.strip()
    name, _, rest = args.partition(" ")
    return name, rest.strip()


def format_schema(schema: pa.Schema) -> str:
    """The columns of a result on one line."""
    return ", ".join(f"{field.name} {from_arrow(field.type)}" for field in schema)
