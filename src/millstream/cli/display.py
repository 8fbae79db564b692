"""What a run shows while it runs, and its summary."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from millstream.cli.feed import Feed
from millstream.cli.meter import Meter
from millstream.cli.pipeline import ShownQuery
from millstream.cli.terminal import count, duration, rows_table, some_rows


class Display:
    """Draws a run from its meter and the rows its queries delivered."""

    def __init__(
        self,
        title: str,
        meter: Meter,
        outlets: Sequence[ShownQuery],
        feeds: Sequence[Feed],
        activity: Callable[[], str] = lambda: "",
    ) -> None:
        self._title = title
        self._meter = meter
        self._outlets = outlets
        self._feeds = feeds
        self._activity = activity
        self.stopping = False

    def live(self) -> RenderableType:
        """The picture while the run goes on."""
        parts: list[RenderableType] = [self._head(), self._numbers()]
        parts += [
            rows_table(feed.latest, title=f"{feed.query.name}: latest of {some_rows(feed.count)}")
            for feed in self._feeds
            if feed.count
        ]
        return Group(*parts)

    def line(self) -> str:
        """The same in one line of text, for logs."""
        meter, latest = self._meter, self._meter.latest
        parts = [duration(meter.elapsed)]
        if meter.fraction is not None:
            parts.append(f"{meter.fraction:.0%} read")
        if latest.rows_in:
            parts.append(f"in {some_rows(sum(latest.rows_in.values()))} ({count(int(meter.rate()))}/s)")
        parts += [f"{outlet.label} {count(latest.rows_out.get(outlet.query.name, 0))}" for outlet in self._outlets]
        return ", ".join([*parts, *self._troubles(), *filter(None, [self._activity()])])

    def summary(self, how: str) -> RenderableType:
        """The numbers of the whole run; `how` says how it ended."""
        latest = self._meter.latest
        table = _table("", "rows", "rows/s", "")
        for name, rows in latest.rows_in.items():
            table.add_row(f"in   {name}", count(rows), count(int(self._meter.rate_in(name))), "")
        for outlet in self._outlets:
            rows, rate = self._delivered(outlet)
            table.add_row(f"out  {outlet.label}", count(rows), count(int(rate)), self._where(outlet))
        foot = ", ".join([f"{how} after {duration(self._meter.elapsed)}", *self._troubles(always=True)])
        return Group(table, Text(foot, style="bold"))

    def _head(self) -> RenderableType:
        meter = self._meter
        grid = Table.grid(padding=(0, 2))
        words = Text.assemble((self._title, "bold"), "  ", duration(meter.elapsed))
        if self.stopping:
            words.append("  stopping; again to stop at once", style="yellow")
        cells: list[RenderableType] = [words]
        if meter.fraction is not None:
            cells += [ProgressBar(total=1.0, completed=meter.fraction, width=30), Text(f"{meter.fraction:4.0%} read")]
        cells += [Text(", ".join(self._troubles()), style="yellow"), Text(self._activity(), style="dim")]
        grid.add_row(*cells)
        return grid

    def _numbers(self) -> Table:
        latest = self._meter.latest
        table = _table("", "rows", "rows/s")
        for name, rows in latest.rows_in.items():
            table.add_row(Text(f"in   {name}"), count(rows), count(int(self._meter.rate_in(name))))
        for outlet in self._outlets:
            rows, rate = self._delivered(outlet)
            table.add_row(Text(f"out  {outlet.label}", style="green"), count(rows), count(int(rate)))
        return table

    def _delivered(self, outlet: ShownQuery) -> tuple[int, float]:
        name = outlet.query.name
        return self._meter.latest.rows_out.get(name, 0), self._meter.rate_out(name)

    def _where(self, outlet: ShownQuery) -> str:
        if outlet.sink is not None:
            return outlet.place or ""
        feed = next((feed for feed in self._feeds if feed.query is outlet.query), None)
        if feed is None or feed.shown == feed.count:
            return "shown"
        return f"{count(feed.shown)} shown (--limit)"

    def _troubles(self, *, always: bool = False) -> list[str]:
        latest = self._meter.latest
        numbers = ((latest.late, "late"), (latest.rejected, "rejected"))
        return [f"{count(number)} {word}" for number, word in numbers if number or always]


def _table(*heads: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in heads:
        table.add_column(head, justify="right" if head.startswith("rows") else "left", no_wrap=not head)
    return table
