"""One run of a pipeline, from its text to the summary."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.live import Live

from millstream.cli.directory import RunDirectory
from millstream.cli.display import Display
from millstream.cli.feed import Feed, print_as_text
from millstream.cli.meter import Meter
from millstream.cli.options import EngineName
from millstream.cli.pipeline import fill_in, outlets, read_text, start
from millstream.cli.revise import revise
from millstream.cli.sessions import Opened, Wish, session
from millstream.cli.terminal import count, errors, output, rows_table, some_rows
from millstream.cli.watch import Signals, watch
from millstream.records import dataclass

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.hosts.contract import Progress
    from millstream.session.database import Database
    from millstream.session.query import Result

DRAIN_EVERY = 0.2
"""Seconds between fetches of the rows that are shown."""
LINE_EVERY = 5.0
"""Seconds between progress lines when nobody looks at a screen."""


@dataclass(frozen=True)
class Job:
    """What `millstream run` was asked to do."""

    source: str
    variables: Mapping[str, str]
    wish: Wish
    limit: int | None
    quiet: bool

    def run(self) -> int:
        """Run to the end of the sources, or to a signal; the exit code."""
        text = fill_in(read_text(self.source), self.variables)
        directory = None if self.wish.directory is None else RunDirectory(self.wish.directory, text)
        known = directory is not None and directory.prepare()
        signals = Signals()
        with ExitStack() as stack:
            opened = stack.enter_context(self._open())
            # after the session is open: Spark takes the signals for itself when it starts
            stack.enter_context(signals.caught())
            # a session on Spark remembers no statements, only how far its streaming queries came
            resumed = known and self.wish.engine is EngineName.embedded
            if not resumed:
                start(opened.database, text, _show)
            elif directory is not None and directory.is_edited:
                revise(opened.database, text, _show, directory.path)
            if directory is not None:
                self._check_resumable(opened.database)
                directory.started()
            self._follow(opened, resumed, signals)
        return signals.exit_code

    @contextmanager
    def _open(self) -> Iterator[Opened]:
        console = errors()
        waiting = ExitStack()
        if self.wish.engine is EngineName.spark and console.is_terminal and not self.quiet:
            waiting.enter_context(console.status("starting Spark"))
        with waiting, session(self.wish) as opened:
            waiting.close()
            yield opened

    def _check_resumable(self, database: Database) -> None:
        from millstream.catalog import StreamDef

        streams = [entry for entry in database.catalog.entries() if isinstance(entry, StreamDef)]
        followed = any(stream.source is not None and stream.source.get("follow") for stream in streams)
        if self.wish.engine is EngineName.spark and not self.wish.streaming and not followed:
            raise typer.BadParameter(
                "a bounded run on Spark always starts at the beginning; --streaming resumes, as does --engine embedded",
                param_hint="--checkpoint",
            )

    def _follow(self, opened: Opened, resumed: bool, signals: Signals) -> None:
        """Run the sources to their end, showing how it goes."""
        database = opened.database
        messages, on_screen = errors(), not self.quiet and sys.stdout.isatty() and sys.stderr.isatty()
        queries = outlets(database)
        feeds = [Feed(outlet.query, self.limit, keep=on_screen) for outlet in queries if outlet.sink is None]
        meter = Meter(resumed=resumed)
        display = Display(Path(self.source).name, meter, queries, feeds, opened.activity)
        drain = _drainer(feeds, None if on_screen else print_as_text(feeds, _write))

        def report(progress: Progress) -> None:
            meter.add(progress)
            drain(False)

        def work() -> None:
            database.run(report=report)
            drain(True)
            for outlet in queries:
                # a query that failed says so here, also one whose rows go to a sink
                outlet.query.fetch()

        how = "failed"
        try:
            with self._screen(messages, display, signals) as tick:
                watch(work, database.interrupt, tick, signals)
            how = "interrupted" if signals.received else "done"
        except Exception:
            # a signal to the whole process group also ends the processes of the engine: that is what was wanted
            if signals.received is None:
                raise
            how = "interrupted"
        finally:
            meter.end()
            for feed in feeds if on_screen else ():
                output().print(rows_table(feed.first, title=_title(feed)))
            if not self.quiet:
                messages.print(display.summary(how))

    @contextmanager
    def _screen(self, messages: Console, display: Display, signals: Signals) -> Iterator[Callable[[], None]]:
        """Gives a function that brings the display up to date: a live one on a terminal, lines otherwise."""
        if self.quiet:
            yield lambda: None
        elif messages.is_terminal:
            with Live(
                console=messages, auto_refresh=False, transient=True, redirect_stdout=sys.stdout.isatty()
            ) as live:

                def draw() -> None:
                    display.stopping = signals.received is not None
                    live.update(display.live(), refresh=True)

                yield draw
        else:
            yield _now_and_then(LINE_EVERY, lambda: messages.print(display.line()))


def _drainer(feeds: list[Feed], show: Callable[[Feed, pa.Table], None] | None) -> Callable[[bool], None]:
    """A function that fetches the rows to be shown, at most a few times a second unless it is told to do it now."""

    def drain() -> None:
        for feed in feeds:
            rows = feed.drain()
            if show is not None:
                show(feed, rows)

    sometimes = _now_and_then(DRAIN_EVERY, drain)
    return lambda now: drain() if now else sometimes()


def _now_and_then(seconds: float, act: Callable[[], None]) -> Callable[[], None]:
    """A function that does `act` if the last time was long enough ago."""
    last = time.monotonic()

    def maybe() -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            act()
            last = time.monotonic()

    return maybe


def _title(feed: Feed) -> str:
    more = feed.count - feed.shown
    return f"{feed.query.name}: {some_rows(feed.shown)}" + (f" of {count(feed.count)}" if more else "")


def _show(result: Result) -> None:
    output().print(rows_table(result.fetch()))


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
