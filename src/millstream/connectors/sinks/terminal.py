"""The terminal sink: rows as an aligned table or as JSON lines, up to a limit, the rest counted."""

from __future__ import annotations

import io
import sys
import unicodedata
from typing import TextIO

import pyarrow as pa

from millstream.connectors.contract import Offset, SeenAtOnce
from millstream.connectors.options import Options
from millstream.connectors.sinks.render import as_text
from millstream.connectors.sinks.writers import BatchWriter, open_writer
from millstream.schema import Schema, unique_names

_WIDEST = 40


class TerminalSink(SeenAtOnce):
    """Prints rows as they come; offsets are `{rows}`. What is printed cannot be taken back."""

    def __init__(self, name: str, *, limit: int | None = None, form: str = "table", out: TextIO | None = None) -> None:
        self._name = name
        self._limit = limit
        self._form = form
        self._out = out
        self._rows = 0
        self._shown = 0
        self._schema: Schema | None = None
        self._widths: list[int] = []
        self._json: tuple[io.BytesIO, BatchWriter] | None = None

    @staticmethod
    def from_options(options: Options, name: str) -> TerminalSink:
        limit = options.integer("limit")
        form = options.choice("format", ("table", "json", "jsonl"), "table")
        options.finish()
        return TerminalSink(name, limit=limit, form="table" if form == "table" else "json")

    def open(self, schema: Schema, committed: Offset) -> None:
        self._schema = schema
        self._rows = int(committed.get("rows", 0))
        self._shown = 0
        self._widths = []
        buffer = io.BytesIO()
        self._json = (buffer, open_writer("jsonl", buffer, schema))

    def write(self, rows: pa.RecordBatch) -> None:
        self._rows += rows.num_rows
        room = rows.num_rows if self._limit is None else max(0, self._limit - self._shown)
        shown = rows.slice(0, room)
        self._shown += shown.num_rows
        if shown.num_rows:
            self._print(self._table(shown) if self._form == "table" else self._lines(shown))

    def commit(self) -> Offset:
        return {"rows": self._rows}

    def close(self) -> None:
        hidden = 0 if self._limit is None else self._rows - self._shown
        if hidden > 0 and self._shown == self._limit and self._form == "table":
            self._print(f"... and {hidden} more row{'s' * (hidden != 1)} of {self._name}\n")

    @property
    def rows(self) -> int:
        return self._rows

    def _print(self, text: str) -> None:
        out = self._out or sys.stdout
        out.write(text)
        out.flush()

    def _lines(self, rows: pa.RecordBatch) -> str:
        assert self._json is not None
        buffer, writer = self._json
        writer.write(rows)
        text = buffer.getvalue().decode()
        buffer.seek(0)
        buffer.truncate()
        return text

    def _table(self, rows: pa.RecordBatch) -> str:
        assert self._schema is not None
        cells = [[_cell(text) for text in as_text(column).to_pylist()] for column in rows.columns]
        right = [field.type.is_numeric for field in self._schema.fields]
        out = []
        if not self._widths:
            names = unique_names(field.name for field in self._schema.fields)
            self._widths = [max(_width(name), *map(_width, column)) for name, column in zip(names, cells, strict=True)]
            out.append(self._line(names, right))
            out.append("-+-".join("-" * width for width in self._widths))
        out += [self._line(row, right) for row in zip(*cells, strict=True)]
        return "\n".join(out) + "\n"

    def _line(self, values: tuple[str, ...] | list[str], right: list[bool]) -> str:
        padded = []
        for value, width, to_right in zip(values, self._widths, right, strict=True):
            blank = " " * (width - _width(value))
            padded.append(blank + value if to_right else value + blank)
        return " | ".join(padded).rstrip()


def _cell(text: str | None) -> str:
    if text is None:
        return "NULL"
    plain = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    return plain if len(plain) <= _WIDEST else plain[: _WIDEST - 3] + "..."


def _width(text: str) -> int:
    """Columns the text takes: East Asian wide letters take two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )
