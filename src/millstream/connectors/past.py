"""A source with a past elsewhere: files that are read first, then live rows from where the live source began."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Self, cast

import pyarrow as pa
import pyarrow.compute as pc

from millstream.connectors.contract import Acknowledged, Chunk, Divisible, Offset, RowSource
from millstream.connectors.convert.common import DEFAULT_RULES, empty
from millstream.connectors.convert.text import parse_text
from millstream.connectors.files.source import FileSource
from millstream.connectors.files.wanted import Wanted
from millstream.connectors.options import WITHIN, Options, OptionValue
from millstream.errors import ConnectorError
from millstream.schema import Schema

PAST = "history"
UNTIL = "history_until"

_MOST_PARTS = 256
"""Parts that the files are read in: more would be too many tasks, as a past may have many thousands of files."""


class PastAndLive:
    """Rows of files, then those of another source; offsets are `{"past": offset, "from": live}` while files are read,
    then `{"live": offset}`.

    With `until`, files give the rows before that instant, and the live source the others: both may have rows around it.
    """

    def __init__(self, past: FileSource, live: RowSource, schema: Schema, time: str, until: pa.Scalar | None) -> None:
        self.past = past
        self.live = live
        self._schema = schema
        self._time = time
        self._until = until

    @property
    def bounded(self) -> bool:
        return self.live.bounded

    @property
    def replayable(self) -> bool:
        return self.live.replayable

    def size(self) -> int | None:
        sizes = self.past.size(), self.live.size()
        return None if sizes[0] is None or sizes[1] is None else sizes[0] + sizes[1]

    def narrowed(self, wanted: Wanted) -> Self:
        """The same rows, of which only what is wanted need be read from files."""
        other = copy.copy(self)
        other.past = self.past.narrowed(replace(wanted, predicate=None))
        return other

    def changed(self, offset: Offset) -> str | None:
        """What was read and is no longer there."""
        if "past" in offset:
            return self.past.changed(offset["past"])
        look = getattr(self.live, "changed", None)
        return None if look is None else look(offset.get("live", {}))

    def read(self, offset: Offset, stop: Callable[[], bool], limit: int | None = None) -> Iterator[Chunk]:
        begin = offset.get("live")
        if begin is None:
            # live rows that come while files are read are not missed: where they begin is settled before
            begin = offset["from"] if "from" in offset else self._live_begin()
            for chunk in self.past.read(offset.get("past", {}), stop, limit):
                yield self._cut(chunk, {"past": chunk.offset, "from": begin}, is_past=True)
            if stop():
                return
            yield Chunk(empty(self._schema), {"live": begin})
        for chunk in self.live.read(begin, stop, limit):
            yield self._cut(chunk, {"live": chunk.offset}, is_past=False)

    def _live_begin(self) -> Offset:
        return {}

    def _cut(self, chunk: Chunk, offset: Offset, *, is_past: bool) -> Chunk:
        rows = chunk.rows
        if self._until is not None and rows.num_rows:
            compare = pc.less if is_past else pc.greater_equal
            keep = compare(rows.column(self._schema.index(self._time)), self._until)
            if keep.null_count:
                keep = pc.fill_null(keep, True)  # a row without a time is refused later, where all such rows are
            if not pc.all(keep).as_py():
                rows = rows.filter(keep)
        return Chunk(rows, offset, chunk.rejected)


class DivisiblePastAndLive(PastAndLive):
    """The same where live rows can be read in parts, which files always can.

    The first offset that is reached has the list of files, and where live rows began; so the same parts are read
    again if that is repeated, whatever has become of the directory and of the live source since.
    """

    def __init__(
        self, past: FileSource, live: RowSource, parts: Divisible, schema: Schema, time: str, until: pa.Scalar | None
    ) -> None:
        super().__init__(past, live, schema, time, until)
        self._parts = parts
        self._first: Offset | None = None

    def _live_begin(self) -> Offset:
        return self._parts.initial()

    def initial(self) -> Offset:
        return {}

    def latest(self, start: Offset, rows: int | None = None) -> Offset:
        """All files, however many rows they have, and as far as live rows reach."""
        if "live" in start:
            return {"live": self._parts.latest(start["live"], rows)}
        if self._first is None:
            self._first = {"past": [str(path) for path in self.past.files()], "from": self._parts.initial()}
        return {**self._first, "live": self._parts.latest(self._first["from"], rows)}

    def parts(self, start: Offset, end: Offset) -> list[Offset]:
        begin: Offset = start["live"] if "live" in start else end["from"]
        files = [] if "live" in start else list(end.get("past", ()))
        size = -(-len(files) // _MOST_PARTS) or 1
        pieces: list[Offset] = [{"files": files[at : at + size]} for at in range(0, len(files), size)]
        return pieces + [{"live": part} for part in self._parts.parts(begin, end["live"])]

    def read_part(self, part: Offset) -> Iterator[Chunk]:
        for path in part.get("files", ()):
            for chunk in self.past.read_file(path):
                yield self._cut(chunk, chunk.offset, is_past=True)
        if "live" in part:
            for chunk in self._parts.read_part(part["live"]):
                yield self._cut(chunk, chunk.offset, is_past=False)


def without_past(options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """The options that are the live source's."""
    return {name: value for name, value in options.items() if name.lower() not in (PAST, UNTIL)}


def with_past(
    live: RowSource | None, options: Mapping[str, OptionValue], schema: Schema, stream: str, time: str | None
) -> RowSource | None:
    """A source with the past that options name, if they name one."""
    given: dict[str, Any] = {name.lower(): value for name, value in options.items()}
    if PAST not in given:
        if UNTIL in given:
            raise ConnectorError(f"{UNTIL} needs the option {PAST}", hint=f"{PAST} = 'archive/*.parquet'")
        return live
    if live is None:
        raise ConnectorError(
            f"stream {stream} has no source that could continue its {PAST}",
            hint="give a connector, or push the rows of the files",
        )
    if time is None or time not in schema:
        raise ConnectorError(
            f"stream {stream} is not ordered by a column, so rows of its {PAST} have no times",
            hint="add ORDER BY column",
        )
    places = {"path": given[PAST], **({WITHIN: given[WITHIN]} if WITHIN in given else {})}
    past = FileSource.from_options(Options(f"option {PAST}", places), schema)
    until = None
    if UNTIL in given:
        type_ = schema[time].type
        values, wrong = parse_text(pa.array([str(given[UNTIL])], pa.string()), type_, DEFAULT_RULES)
        if wrong or values.null_count:
            raise ConnectorError(
                f"{UNTIL} = {given[UNTIL]!r} is not valid", hint=f"a value of {time}, which is {type_}, as text"
            )
        until = values[0]
    if isinstance(live, Acknowledged):
        raise ConnectorError(
            f"this source cannot have the option {PAST}", hint="it reads the rows of its table before their changes"
        )
    if hasattr(live, "read_part"):
        return DivisiblePastAndLive(past, live, cast(Divisible, live), schema, time, until)
    return PastAndLive(past, live, schema, time, until)
