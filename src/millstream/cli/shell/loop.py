"""The shell's loop: it reads lines, runs statements and backslash commands, and prints results."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING

import typer

from millstream.cli.failures import show_error, unforeseen
from millstream.cli.shell.backslash import PLAIN_WORDS, Backslash, Quit
from millstream.cli.shell.reader import MORE, PROMPT, Ask
from millstream.cli.terminal import output, rows_table
from millstream.errors import MillstreamError
from millstream.session.display import in_zone
from millstream.sql.complete import is_blank, split_complete

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.session.database import Database
    from millstream.session.query import Query, Result


class Shell:
    """One session of the shell. `failed` says whether anything has failed so far."""

    def __init__(self, database: Database, *, stop_on_error: bool = False, debug: bool = False) -> None:
        self.database = database
        self.failed = False
        self.timing = False
        self._stop_on_error = stop_on_error
        self._debug = debug
        self._paging = False
        self._interactive = False
        self._backslash = Backslash(self)

    @property
    def is_remote(self) -> bool:
        """Whether a server has the session: it has no declarations and settings to look at here."""
        return not hasattr(self.database, "catalog")

    def show(self, rows: pa.Table, title: str | None = None) -> None:
        """Print rows; on a terminal, what does not fit the screen goes through the pager ($PAGER)."""
        console = output()
        pager = self._paging and rows.num_rows + 5 > console.height
        with console.pager(styles=True) if pager else nullcontext():
            zoned = rows if self.is_remote else in_zone(rows, self.database.config.timezone)
            console.print(rows_table(zoned, title))

    def interactive(self, ask: Ask) -> None:
        """Ask for lines until the user leaves. Ctrl-C drops what was typed, Ctrl-D leaves."""
        self._paging = self._interactive = output().is_terminal
        waiting = ""
        while True:
            try:
                line = ask(PROMPT if is_blank(waiting) else MORE)
            except KeyboardInterrupt:
                waiting = ""
                continue
            except EOFError:
                return
            try:
                waiting = self.take(waiting, line)
            except Quit:
                return
            except KeyboardInterrupt:
                waiting = ""
                typer.echo("interrupted", err=True)

    def script(self, lines: Iterable[str]) -> bool:
        """Run all lines, or with `stop_on_error` all up to the first error. False if anything failed."""
        waiting = ""
        try:
            for line in lines:
                waiting = self.take(waiting, line)
                if self.failed and self._stop_on_error:
                    return False
            if not is_blank(waiting):
                # the last statement of a file needs no semicolon; an unclosed quote or brace is an error
                self.attempt(lambda: self.execute(waiting))
        except Quit:
            pass
        return not self.failed

    def take(self, waiting: str, line: str) -> str:
        """Run what is complete with one more line, and return what waits for the next."""
        if is_blank(waiting):
            command = PLAIN_WORDS.get(line.strip().removesuffix(";").strip().lower(), line.strip())
            if command.startswith("\\"):
                self.attempt(lambda: self._backslash.do(command))
                return ""
        statements, rest = split_complete(f"{waiting}\n{line}" if waiting else line)
        for statement in statements:
            if not self.attempt(lambda text=statement: self.execute(text)) and self._stop_on_error:  # type: ignore[misc]
                return ""
        return "" if is_blank(rest) else rest

    def attempt(self, act: Callable[[], None]) -> bool:
        """Run something; an error is printed, and sets the exit code."""
        begin = time.perf_counter()
        try:
            act()
        except Quit:
            raise
        except Exception as error:
            # one failing statement must not end a session with all its state
            if self._debug:
                traceback.print_exc()
            show_error(error if isinstance(error, MillstreamError) else unforeseen(error, self._debug))
            self.failed = True
            return False
        if self.timing:
            typer.echo(f"time: {time.perf_counter() - begin:.3f} s")
        return True

    def _executed(self, text: str) -> Query | Result | None:
        """What a statement gives; where somebody types, Ctrl-C cancels it, whatever it is at."""
        if not self._interactive or self.is_remote:
            return self.database.execute(text)
        from millstream.cli.watch import Signals, watch

        given: list[Query | Result | None] = []
        with Signals().caught() as signals:
            watch(lambda: given.append(self.database.execute(text)), self.database.cancel, lambda: None, signals)
        return given[0]

    def execute(self, text: str) -> None:
        """Run a statement and show its result."""
        from millstream.session.query import Result

        if is_blank(text):
            return
        result = self._executed(text)
        if isinstance(result, Result):
            rows = result.fetch()
            if rows.schema.names == ["plan"]:
                typer.echo("\n".join(rows["plan"].to_pylist()))
            else:
                self.show(rows)
        elif result is not None:
            typer.echo(f"query {result.name} is running; \\fetch {result.name} shows its new rows")
