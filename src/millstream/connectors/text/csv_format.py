"""CSV: the header, the boundaries of records, and blocks of records decoded by Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from millstream.connectors.convert.common import DEFAULT_RULES, Fitted, Reasons, Rules, assemble, blame, empty
from millstream.connectors.convert.fit import locate
from millstream.connectors.convert.text import FALSE_TEXTS, TRUE_TEXTS, parse_text, read_column
from millstream.connectors.text.csv_boundaries import filled_records, quotes_within_lines, record_ends
from millstream.connectors.text.csv_records import CsvRecord, Dialect, Malformed, read_record, read_records, wrong_width
from millstream.connectors.text.decoder import (
    BOM,
    MAX_ROW_BYTES,
    BadRow,
    Decoded,
    Halves,
    Lines,
    RowDecoder,
    SomeLines,
    is_utf8,
    line_ends,
    line_starts,
    merge,
    show,
)
from millstream.records import dataclass
from millstream.schema import Field, Schema


@dataclass(frozen=True)
class CsvFormat:
    """CSV with the options of one declaration; `header` None means: look whether the first line names columns."""

    schema: Schema
    rules: Rules = DEFAULT_RULES
    delimiter: str = ","
    header: bool | None = None
    null_value: str = ""
    multiline: bool = True

    @property
    def dialect(self) -> Dialect:
        return Dialect(self.delimiter, self.null_value, self.multiline)

    def begin(self, head: bytes, final: bool) -> tuple[RowDecoder, int] | None:
        start = len(BOM) if head.startswith(BOM) else 0
        if not final and len(head) < len(BOM) and BOM.startswith(head):
            return None
        if self.header is False:
            return self._positional(), start
        try:
            first = read_record(head, start, final, self.dialect)
        except Malformed:
            return self._positional(), start
        if first is None:
            return (self._positional(), start) if final or len(head) - start > MAX_ROW_BYTES else None
        names = [(field or "").strip() for field in first.fields]
        if self.header is None and not self._names_columns(names, first.raw):
            return self._positional(), start
        return CsvDecoder(self, len(names), locate(names, self.schema)), first.end

    def _positional(self) -> CsvDecoder:
        return CsvDecoder(self, len(self.schema), list(range(len(self.schema))))

    def _names_columns(self, names: list[str], line: bytes) -> bool:
        """Whether a line names all declared columns, or some of them and is no row itself; if it names fewer than half
        of them, none of its values may fit the column at its place."""
        named = sum(place is not None for place in locate(names, self.schema))
        if not 0 < named < len(self.schema):
            return named == len(self.schema)
        if self._positional().decode(line, True, 1).rows.num_rows:
            return False
        return len(self.schema) <= 2 * named or not any(map(self._fits, self.schema, names))

    def _fits(self, field: Field, value: str) -> bool:
        """Whether a text could be a value of a column; any text could be one of a column of text."""
        alone = CsvDecoder(replace(self, schema=Schema((field,))), 1, [0])
        return not field.type.is_text and alone.decode(f"{value}\n".encode(), True, 1).rows.num_rows > 0


class CsvDecoder:
    """Decodes the records of one file or connection whose columns are known.

    Blocks go to Arrow with the declared types; if it refuses, as text, so that wrong values are found by column; if
    records are malformed, the block is halved, and the part with the malformed ones is read record by record.
    """

    def __init__(self, form: CsvFormat, width: int, places: list[int | None]) -> None:
        self._schema = form.schema
        self._rules = form.rules
        self._dialect = form.dialect
        self._width = width
        self._places = places
        names = [str(place) for place in range(width)]
        self._parse = {"delimiter": form.delimiter, "ignore_empty_lines": width != 1}
        used = [str(place) for place in places if place is not None]
        common = {
            "include_columns": used,
            "null_values": ["", form.null_value],
            "strings_can_be_null": True,
            "quoted_strings_can_be_null": False,
            "true_values": list(TRUE_TEXTS),
            "false_values": list(FALSE_TEXTS),
            "check_utf8": False,
        }
        self._names = names
        texts = {name: pa.string() for name in names}
        self._as_text = arrow_csv.ConvertOptions(column_types=texts, **common)
        typed = {str(p): f.type.arrow for f, p in zip(form.schema, places, strict=True) if _is_direct(f.type.name)}
        self._as_declared = arrow_csv.ConvertOptions(column_types={**texts, **typed}, **common)
        self._any_typed = bool(typed)

    def values(self, file: pa.NativeFile, column: str) -> Iterator[pa.Array]:
        place = self._places[self._schema.index(column)]
        if place is None or self._rules != DEFAULT_RULES:
            raise ValueError(column)
        reader = arrow_csv.open_csv(
            file,
            arrow_csv.ReadOptions(column_names=self._names, block_size=1 << 22),
            arrow_csv.ParseOptions(**self._parse, newlines_in_values=True, invalid_row_handler=lambda _: "skip"),
            arrow_csv.ConvertOptions(
                include_columns=[str(place)],
                column_types={str(place): self._schema[column].type.arrow},
                null_values=["", self._dialect.null_value],
            ),
        )
        return (batch.column(0) for batch in reader)

    def missing(self) -> list[str]:
        return [field.name for field, place in zip(self._schema, self._places, strict=True) if place is None]

    def decode(self, data: bytes, final: bool, limit: int) -> Decoded:
        quoted = b'"' in data
        ends = record_ends(data, final, self._dialect) if quoted and self._dialect.multiline else None
        if ends is None:
            if quoted and self._dialect.multiline:
                return self._one_by_one(data, final, limit)
            ends = line_ends(data, final, limit)
        elif final and len(data) > (ends[-1] if len(ends) else 0):
            ends = np.append(ends, len(data))
        ends = ends[:limit]
        if len(ends) == 0:
            return Decoded(empty(self._schema), [], 0, 0)
        consumed = int(ends[-1])
        block = data[:consumed]
        if not quoted or not self._dialect.multiline:
            rows, bad = self._halving(block, ends)
            return Decoded(merge(rows, self._schema.arrow), bad, consumed, len(ends))
        fitted = self._columnar(block, ends)
        if fitted is None:
            return self._one_by_one(data, final, limit)
        starts = line_starts(ends)
        records = np.flatnonzero(filled_records(block, ends, self._width))
        bad = []
        for row, reason in fitted.bad.items():
            record = records[row]
            start, end = int(starts[record]), int(ends[record])
            bad.append(BadRow(block.count(b"\n", 0, start), reason, show(block[start:end])))
        return Decoded(fitted.rows, bad, consumed, block.count(b"\n") + (not block.endswith(b"\n")))

    def _halving(self, block: bytes, ends: Lines) -> tuple[list[pa.RecordBatch], list[BadRow]]:
        """Decode lines that are one record each, apart from those that are malformed."""
        rows: list[pa.RecordBatch] = []
        bad: list[BadRow] = []
        halves = Halves(block, ends)
        for part in halves:
            lines = np.flatnonzero(filled_records(part.data, part.ends, self._width))
            fitted = self._columnar(part.data, part.ends) if halves.worth_trying else None
            if fitted is None and b'"' not in part.data and is_utf8(part.data):
                fitted, lines = self._without_wrong_widths(part, lines, bad)
            if fitted is not None:
                rows.append(fitted.rows)
                bad += part.rejected(fitted.bad, lines)
            elif not halves.halve(part):
                decoded = self._one_by_one(part.data, True, len(part.ends))
                rows.append(decoded.rows)
                bad += [BadRow(part.first + entry.line, entry.error, entry.text) for entry in decoded.bad]
        return rows, sorted(bad, key=lambda entry: entry.line)

    def _without_wrong_widths(self, part: SomeLines, lines: Lines, bad: list[BadRow]) -> tuple[Fitted | None, Lines]:
        """Lines with too many or too few values set aside, the others through Arrow again; no quotes here."""
        ends = part.ends
        letters = np.frombuffer(part.data, dtype=np.uint8)
        delimiters = np.flatnonzero(letters == ord(self._dialect.delimiter))
        widths = np.diff(np.searchsorted(delimiters, ends), prepend=0) + 1
        starts = line_starts(ends)
        right = lines[widths[lines] == self._width]
        wrong = lines[widths[lines] != self._width]
        if len(wrong) == 0:
            return None, lines
        keep = np.zeros(len(ends), dtype=bool)
        keep[right] = True
        lengths = np.diff(ends, prepend=0)
        fitted: Fitted | None = Fitted(empty(self._schema))
        if len(right):
            kept = letters[np.repeat(keep, lengths)].tobytes()
            fitted = self._columnar(kept, np.cumsum(lengths[right]))
        if fitted is not None:
            for line in wrong.tolist():
                raw = part.data[int(starts[line]) : int(ends[line])]
                bad.append(BadRow(part.first + line, wrong_width(int(widths[line]), self._width), show(raw)))
        return fitted, right

    def _columnar(self, block: bytes, ends: Lines) -> Fitted | None:
        """The records through Arrow's reader; None if some are malformed or mean something else to it."""
        lengths = np.diff(ends, prepend=0)
        if not is_utf8(block) or block.count(b"\r") != block.count(b"\r\n") or lengths.max() > MAX_ROW_BYTES:
            return None
        if b'"' in block and not self._dialect.multiline and not quotes_within_lines(block, self._dialect):
            return None
        expected = int(np.count_nonzero(filled_records(block, ends, self._width)))
        if expected == 0:
            return Fitted(empty(self._schema))
        table = self._read(block, self._as_declared, expected)
        if table is None and self._any_typed:
            table = self._read(block, self._as_text, expected)
        return None if table is None else self._fit(table)

    def _read(self, block: bytes, convert: Any, expected: int) -> pa.Table | None:
        if not block.endswith(b"\n"):
            # Without it Arrow takes an empty last field for a quoted one if the field before it was.
            block += b"\n"
        read = arrow_csv.ReadOptions(column_names=self._names, block_size=len(block) + 1, use_threads=False)
        parse = arrow_csv.ParseOptions(newlines_in_values=self._dialect.multiline, **self._parse)
        try:
            table = arrow_csv.read_csv(pa.BufferReader(block), read, parse, convert)
        except pa.ArrowInvalid:
            return None
        return table if table.num_rows == expected else None

    def _fit(self, table: pa.Table) -> Fitted:
        columns: list[pa.Array] = []
        bad: Reasons = {}
        for field, place in zip(self._schema, self._places, strict=True):
            if place is None:
                columns.append(pa.nulls(table.num_rows, field.type.arrow))
                continue
            column = table.column(str(place)).combine_chunks()
            column, reasons = read_column(column, field.type, self._rules)
            columns.append(column)
            blame(bad, field.name, reasons)
        return assemble(columns, bad, self._schema, table.num_rows)

    def _one_by_one(self, data: bytes, final: bool, limit: int) -> Decoded:
        """The exact and slow way, which also finds its way back after a malformed record."""
        records, bad, consumed, lines = read_records(data, final, limit, self._width, self._dialect)
        fitted = self._fit_records(records)
        bad += [BadRow(records[row].line, reason, show(records[row].raw)) for row, reason in fitted.bad.items()]
        return Decoded(fitted.rows, sorted(bad, key=lambda entry: entry.line), consumed, lines)

    def _fit_records(self, records: list[CsvRecord]) -> Fitted:
        columns: list[pa.Array] = []
        bad: Reasons = {}
        for field, place in zip(self._schema, self._places, strict=True):
            if place is None:
                columns.append(pa.nulls(len(records), field.type.arrow))
                continue
            texts = pa.array([record.fields[place] for record in records], pa.string())
            column, reasons = parse_text(texts, field.type, self._rules)
            columns.append(column)
            blame(bad, field.name, reasons)
        return assemble(columns, bad, self._schema, len(records))


def _is_direct(type_name: str) -> bool:
    """Types whose text Arrow's reader converts exactly as `parse_text` does, only sooner."""
    return type_name in ("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "DOUBLE", "DECIMAL")
