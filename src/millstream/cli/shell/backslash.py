"""The backslash commands of the shell."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from millstream.catalog import StreamDef
from millstream.cli.failures import show_error
from millstream.cli.shell.describe import describe, list_all
from millstream.cli.terminal import output, some_rows
from millstream.connectors.rows import to_batch
from millstream.errors import DataError, MillstreamError

if TYPE_CHECKING:
    from millstream.cli.shell.loop import Shell

HELP = """\
Statements end with a semicolon. A SELECT over a stream starts a continuous query; over tables it answers at once.
SHOW STREAMS, SHOW QUERIES, EXPLAIN SELECT …, STOP q1 and SET name = value work here too.

  \\d                     list streams, tables, sinks, functions and running queries
  \\d name                describe one
  \\push stream JSON …    push rows, as JSON objects or arrays:  \\push quotes {"symbol": "A", "price": 1.5}
  \\advance stream time   move the watermark: no later row is before this time:  \\advance quotes 2026-01-31 12:00:00
  \\run [name]            read the declared sources of all queries, or of one, to their end (Ctrl-C stops)
  \\finish                end of all inputs: every query emits its remaining rows
  \\fetch [name]          new rows of all queries, or of one
  \\watch [name] [secs]   fetch every 2 seconds (or every secs seconds) until Ctrl-C
  \\snapshot name [time]  the content of a query over windows, now or at a time
  \\i file                run a file
  \\timing                turn the timing of statements on or off
  \\?, \\h or help         this text
  \\q, quit or exit       leave (as does Ctrl-D)

INSERT INTO stream VALUES (…) pushes rows, too.
"""


PLAIN_WORDS = {"help": "\\?", "exit": "\\q", "quit": "\\q"}
"""Words that work without a backslash, and the commands they stand for."""

_WATCH_SECONDS = 2.0
_SHOWN_REJECTIONS = 5


class Quit(Exception):
    """The user wants to leave."""


class Backslash:
    """Does lines that begin with a backslash."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._commands: dict[str, Callable[[str], None]] = {
            "d": self._describe,
            "push": self._push,
            "advance": self._advance,
            "run": self._run,
            "finish": self._finish,
            "fetch": self._fetch,
            "watch": self._watch,
            "snapshot": self._snapshot,
            "i": self._include,
            "timing": self._timing,
            "?": self._help,
            "h": self._help,
            "help": self._help,
            "q": self._quit,
            "quit": self._quit,
        }

    def do(self, line: str) -> None:
        """Do one line."""
        word, _, rest = line[1:].partition(" ")
        command = self._commands.get(word.strip())
        if command is None:
            raise MillstreamError(f"no command \\{word}", hint="\\? lists them")
        command(rest.strip().removesuffix(";").strip())

    def _describe(self, name: str) -> None:
        output().print(describe(self._shell.database, name) if name else list_all(self._shell.database))

    def _push(self, rest: str) -> None:
        stream, _, text = rest.partition(" ")
        if not stream or not text.strip():
            raise MillstreamError("\\push takes a stream and rows", hint='\\push quotes {"symbol": "A", "price": 1.5}')
        rows = list(_rows(text))
        database = self._shell.database
        counts = database.push(stream, rows)
        if counts.lost:
            typer.echo(str(counts))
        if counts.rejected and not self._shell.is_remote:
            _, rejected = to_batch(rows, database.catalog.get(stream, StreamDef).given, stream)
            for wrong in rejected[:_SHOWN_REJECTIONS]:
                typer.echo(f"rejected: {wrong.error}")
            if len(rejected) > _SHOWN_REJECTIONS:
                typer.echo(
                    f"… and {len(rejected) - _SHOWN_REJECTIONS} more; SELECT error FROM ERRORS({stream}) lists them"
                )

    def _advance(self, rest: str) -> None:
        stream, _, text = rest.partition(" ")
        if not stream or not text.strip():
            raise MillstreamError("\\advance takes a stream and a time", hint="\\advance quotes 2026-01-31 12:00:00")
        self._shell.database.advance(stream, _time(text.strip()))

    def _run(self, name: str) -> None:
        from millstream.cli.watch import Signals, watch

        database = self._shell.database
        if self._shell.is_remote:
            raise MillstreamError("a server reads its sources by itself", hint="\\fetch shows new rows")
        names = (database.query(name).name,) if name else ()
        with Signals().caught() as signals:
            watch(lambda: database.run(*names), database.interrupt, lambda: None, signals)
        self._fetch(name)
        for query in [database.query(name)] if name else database.queries():
            if query.counts.lost:
                typer.echo(f"{query.name}: {query.counts}")

    def _finish(self, _: str) -> None:
        self._shell.database.finish()

    def _fetch(self, name: str) -> None:
        database = self._shell.database
        queries = [database.query(name)] if name else database.queries()
        if not queries:
            raise MillstreamError("no query is running", hint="SELECT … FROM a stream starts one")
        for query in queries:
            try:
                rows = query.fetch()
            except MillstreamError as error:
                # the other queries still have their rows
                self._shell.failed = True
                show_error(renamed(error, f"query {query.name} failed: {error.message}"))
                continue
            if rows.num_rows or name or len(queries) == 1:
                self._shell.show(rows, title=f"{query.name}: {some_rows(rows.num_rows)}")

    def _watch(self, rest: str) -> None:
        words = rest.split()
        seconds = _WATCH_SECONDS
        if words and (given := _number(words[-1])) is not None:
            words, seconds = words[:-1], given
        try:
            while True:
                self._fetch(" ".join(words))
                time.sleep(seconds)
        except KeyboardInterrupt:
            typer.echo("", err=True)

    def _snapshot(self, rest: str) -> None:
        name, _, at = rest.partition(" ")
        if not name:
            raise MillstreamError(
                "\\snapshot takes the name of a query or view",
                hint="\\snapshot q1, or \\snapshot q1 2026-01-31 12:00:00",
            )
        rows = self._shell.database.query(name).snapshot(_time(at.strip()) if at.strip() else None)
        self._shell.show(rows, title=f"{name}: {some_rows(rows.num_rows)}")

    def _include(self, file: str) -> None:
        try:
            text = Path(file).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise MillstreamError(f"cannot read {file or 'a file without a name'}", detail=str(error)) from None
        self._shell.script(text.splitlines())

    def _timing(self, _: str) -> None:
        self._shell.timing = not self._shell.timing
        typer.echo(f"timing is {'on' if self._shell.timing else 'off'}")

    def _help(self, _: str) -> None:
        typer.echo(HELP, nl=False)

    def _quit(self, _: str) -> None:
        raise Quit


def _rows(text: str) -> Iterator[Any]:
    """The rows in one or more JSON values: an object is a row, and so is an array of plain values."""
    decoder = json.JSONDecoder()
    position = 0
    while text[position:].strip():
        position += len(text[position:]) - len(text[position:].lstrip(" ,\t\n"))
        if position >= len(text):
            return
        try:
            value, position = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            raise DataError("this is not JSON", detail=f"{error.msg} at {text[error.pos :][:30]!r}") from None
        if isinstance(value, list) and value and all(isinstance(part, list | dict) for part in value):
            yield from (tuple(part) if isinstance(part, list) else part for part in value)
        elif isinstance(value, list | dict):
            yield tuple(value) if isinstance(value, list) else value
        else:
            raise DataError(f"{value!r} is not a row", hint="a row is a JSON object or array")


def renamed(error: MillstreamError, message: str) -> MillstreamError:
    """The same error with another message."""
    return MillstreamError(message, detail=error.detail, hint=error.hint, span=error.span, sql=error.sql)


def _number(text: str) -> float | None:
    try:
        return max(0.1, float(text))
    except ValueError:
        return None


def _time(text: str) -> dt.datetime | int:
    plain = text.strip("'\"")
    try:
        return int(plain)
    except ValueError:
        pass
    try:
        return dt.datetime.fromisoformat(plain)
    except ValueError:
        raise DataError(f"{plain!r} is not a time", hint="2026-01-31 12:00:00, or µs since the epoch") from None
