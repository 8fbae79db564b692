"""The generator source: rows of a generated table by number, at full speed or at the pace of their event time."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import numpy as np
import pyarrow as pa

from millstream.connectors.contract import Chunk, Offset
from millstream.connectors.convert.common import DEFAULT_RULES, empty
from millstream.connectors.convert.text import parse_text
from millstream.connectors.generators.catalog import KINDS, choose_table
from millstream.connectors.generators.draws import Draws, Numbers
from millstream.connectors.generators.table import (
    DEFAULT_START,
    MICROS,
    GeneratedRows,
    Settings,
    as_declared,
    match_columns,
)
from millstream.connectors.options import Options
from millstream.errors import ConnectorError
from millstream.schema import Schema
from millstream.types import TIMESTAMP

_ROWS_PER_CHUNK = 65_536
_ROWS_PER_PART = 1 << 18
_ROWS_PER_LOOK = 1 << 20
_TICK_SECONDS = 0.02
_MOST_SHUFFLED = 1 << 22


class GeneratorSource:
    """Rows of a generated table; offsets are `{row}`, with `start` beside it when the clock chose the start time."""

    replayable = True

    def __init__(
        self,
        table: type[GeneratedRows],
        schema: Schema,
        settings: Settings,
        *,
        rows: int | None = None,
        realtime: bool = False,
        start_now: bool = False,
        disorder: timedelta = timedelta(),
        owner: str = "generator",
    ) -> None:
        self._table = table
        self._schema = schema
        self._settings = settings
        self._columns = match_columns(table, schema, owner)
        self._rows = rows
        self._realtime = realtime
        self._start_now = start_now
        span = table.rows_spanning(disorder // timedelta(microseconds=1), settings) if disorder else 1
        if span > _MOST_SHUFFLED:
            raise ConnectorError(
                f"{owner}: disorder spans {span} rows, more than {_MOST_SHUFFLED}", hint="lower disorder or rate"
            )
        self._shuffled = span
        self._draws = Draws(settings.seed)
        self._order: tuple[int, Numbers] | None = None
        self._asked: tuple[float, int] | None = None

    @staticmethod
    def from_options(options: Options, kind: str | None, schema: Schema, stream: str) -> GeneratorSource:
        chosen = kind or options.choice("kind", KINDS)
        if chosen is None:
            raise ConnectorError(f"{options.owner} needs the option kind", hint=f"kind is one of {', '.join(KINDS)}")
        table = choose_table(chosen, options.text("table"), stream)
        start = options.text("start")
        settings = Settings(
            seed=options.integer("seed", 0) or 0,
            rate=options.number("rate", 1000.0),
            start=DEFAULT_START if start is None or start == "now" else _instant(start, options.owner),
            symbols=options.integer("symbols", 100, low=1, high=10**6) or 1,
            sessions=options.integer("sessions", 100, low=1, high=10**6) or 1,
            users=options.integer("users", 1000, low=1) or 1,
            pages=options.integer("pages", 600, low=1) or 1,
        )
        rows = options.integer("rows")
        events = options.integer("events")
        if events is not None:
            of_events = table.rows_of_events(events)
            rows = of_events if rows is None else min(rows, of_events)
        realtime = options.flag("realtime")
        disorder = options.interval("disorder")
        options.finish()
        return GeneratorSource(
            table, schema, settings, rows=rows, realtime=realtime, start_now=start == "now", disorder=disorder,
            owner=f"{chosen} table {table.__name__.lower()}" if chosen == "nexmark" else f"generator {chosen}",
        )  # fmt: skip

    @property
    def bounded(self) -> bool:
        return self._rows is not None

    def size(self) -> int | None:
        return self._rows

    def read(self, offset: Offset, stop: Callable[[], bool], limit: int | None = None) -> Iterator[Chunk]:
        row = int(offset.get("row", 0))
        settings = self._started(offset)
        mark = {"start": settings.start} if self._start_now else {}
        most = limit or _ROWS_PER_CHUNK
        began = time.monotonic()
        past = self._events_of(row) if self._realtime else 0
        while (self._rows is None or row < self._rows) and not stop():
            end = row + most if self._rows is None else min(row + most, self._rows)
            if self._realtime:
                events = past + int((time.monotonic() - began) * settings.rate)
                end = min(end, self._table.rows_of_events(events))
                if end <= row:
                    time.sleep(_TICK_SECONDS)
                    yield Chunk(empty(self._schema), {"row": row, **mark})
                    continue
            yield Chunk(self.make(row, end, settings), {"row": end, **mark})
            row = end

    def initial(self) -> Offset:
        return {"row": 0, **({"start": self._started({}).start} if self._start_now else {})}

    def latest(self, start: Offset, rows: int | None = None) -> Offset:
        """As many rows further as are asked for; in real time no more than are due since the first question."""
        row = int(start.get("row", 0))
        end = row + (rows or _ROWS_PER_LOOK)
        if self._realtime:
            if self._asked is None:
                self._asked = time.monotonic(), self._events_of(row)
            began, past = self._asked
            due = self._table.rows_of_events(past + int((time.monotonic() - began) * self._settings.rate))
            end = min(end, max(row, due))
        return {**start, "row": end if self._rows is None else min(end, self._rows)}

    def parts(self, start: Offset, end: Offset) -> list[Offset]:
        """Stretches of rows."""
        first, last = int(start.get("row", 0)), int(end["row"])
        edges = [*range(first, last, _ROWS_PER_PART), last]
        return [{**end, "row": a, "end": b} for a, b in pairwise(edges)]

    def read_part(self, part: Offset) -> Iterator[Chunk]:
        settings = self._started(part)
        for row in range(int(part["row"]), int(part["end"]), _ROWS_PER_CHUNK):
            end = min(row + _ROWS_PER_CHUNK, int(part["end"]))
            yield Chunk(self.make(row, end, settings), {**part, "row": end})

    def make(self, start: int, end: int, settings: Settings | None = None) -> pa.RecordBatch:
        """The rows with numbers start..end, in the order they arrive."""
        arrays = self._arrays(start, end, settings or self._settings, range(len(self._schema)))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema.arrow)

    def values(self, column: str) -> Iterator[pa.Array]:
        for start in range(0, self._rows or 0, _ROWS_PER_CHUNK):
            end = min(start + _ROWS_PER_CHUNK, self._rows or 0)
            yield from self._arrays(start, end, self._settings, [self._schema.index(column)])

    def _arrays(self, start: int, end: int, settings: Settings, places: Iterable[int]) -> list[pa.Array]:
        numbers = np.arange(start, end) if self._shuffled == 1 else self._arrivals(start, end)
        rows = self._table(numbers, settings, self._draws)
        chosen = [(self._columns[place], self._schema.fields[place].type) for place in places]
        return [as_declared(rows.column(name), self._table.columns[name].type, type_) for name, type_ in chosen]

    def _events_of(self, rows: int) -> int:
        """How many events hold so many rows of the table."""
        most = 1
        while self._table.rows_of_events(most) < rows:
            most *= 2
        return bisect_left(range(most), rows, key=self._table.rows_of_events)

    def _started(self, offset: Offset) -> Settings:
        if not self._start_now:
            return self._settings
        start = int(offset.get("start", time.time() * MICROS))
        return replace(self._settings, start=start)

    def _arrivals(self, start: int, end: int) -> Numbers:
        """Row numbers in arrival order: shuffled within stretches that span no more time than the disorder allows."""
        parts = []
        while start < end:
            stretch = start // self._shuffled
            stop = min(end, (stretch + 1) * self._shuffled)
            first = stretch * self._shuffled
            parts.append(self._shuffle(stretch)[start - first : stop - first])
            start = stop
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def _shuffle(self, stretch: int) -> Numbers:
        if self._order is None or self._order[0] != stretch:
            first = stretch * self._shuffled
            last = first + self._shuffled if self._rows is None else min(first + self._shuffled, self._rows)
            numbers = np.arange(first, last)
            self._order = stretch, numbers[np.argsort(self._draws.uniform("arrival", numbers), kind="stable")]
        return self._order[1]


def _instant(text: str, owner: str) -> int:
    values, reasons = parse_text(pa.array([text]), TIMESTAMP, DEFAULT_RULES)
    if reasons:
        raise ConnectorError(
            f"{owner}: start = {text!r} is not valid", hint="start is a timestamp such as '2026-01-01 00:00:00', or now"
        )
    return int(values.view(pa.int64())[0].as_py())
