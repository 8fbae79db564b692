"""CSV record by record: the exact grammar, for what Arrow's reader refuses, and recovery after malformed records."""

from __future__ import annotations

import re
from functools import cached_property

from millstream.connectors.text.decoder import MAX_ROW_BYTES, BadRow, overlong, show
from millstream.records import dataclass

# A doubled quote belongs to the field for good: without the possessive forms an unclosed field would match a part.
_QUOTED = re.compile(rb'"((?:[^"]++|"")*+)"')


@dataclass(frozen=True)
class Dialect:
    """How fields are written: what separates them, what stands for NULL, and whether quoted ones may hold line ends."""

    delimiter: str
    null_value: str
    multiline: bool

    @cached_property
    def plain(self) -> re.Pattern[bytes]:
        return re.compile(rb"[^" + re.escape(self.delimiter.encode()) + rb"\n]*")


@dataclass(frozen=True, slots=True)
class CsvRecord:
    """One record: its fields (None is NULL), its text, where it ends and on which line it starts."""

    fields: list[str | None]
    raw: bytes
    end: int
    line: int = 0


class Malformed(ValueError):
    """Bytes that are no record."""


def read_records(
    data: bytes, final: bool, limit: int, width: int, dialect: Dialect
) -> tuple[list[CsvRecord], list[BadRow], int, int]:
    """The records of `data`, the malformed lines, and how many bytes and lines both take.

    Of a malformed record only the first line is given up: a stray quote must not swallow the lines after it.
    """
    records: list[CsvRecord] = []
    bad: list[BadRow] = []
    position = line = 0
    while position < len(data) and len(records) + len(bad) < limit:
        if width > 1 and (blank := _blank_line(data, position)):
            position += blank
            line += 1
            continue
        try:
            record = read_record(data, position, final, dialect)
            if record is None:
                break
            if len(record.fields) != width:
                raise Malformed(wrong_width(len(record.fields), width))
        except Malformed as error:
            end = data.find(b"\n", position) + 1 or len(data)
            raw = data[position:end]
            bad.append(overlong(raw, line) if len(raw) > MAX_ROW_BYTES else BadRow(line, str(error), show(raw)))
            position, line = end, line + 1
            continue
        records.append(CsvRecord(record.fields, record.raw, record.end, line))
        line += record.raw.count(b"\n") + (not record.raw.endswith(b"\n"))
        position = record.end
    return records, bad, position, line


def wrong_width(found: int, width: int) -> str:
    return f"{found} value{'s' * (found != 1)} for {width} columns"


def read_record(data: bytes, start: int, final: bool, dialect: Dialect) -> CsvRecord | None:
    """The record at `start`; None if its end is not in `data` yet.

    Raises Malformed if it can never be one.
    """
    line_end = data.find(b"\n", start) + 1
    if line_end == 0 and not final:
        return None
    line_end = line_end or len(data)
    if line_end - start > MAX_ROW_BYTES:
        raise Malformed("too long")
    quote = data.find(b'"', start, line_end)
    if quote < 0:
        raw = data[start:line_end]
        parts = raw.rstrip(b"\n").removesuffix(b"\r").split(dialect.delimiter.encode())
        return CsvRecord([_value(part, False, dialect) for part in parts], raw, line_end)
    return _quoted_record(data, start, line_end, final, dialect)


def _quoted_record(data: bytes, start: int, line_end: int, final: bool, dialect: Dialect) -> CsvRecord | None:
    reach = min(len(data), start + MAX_ROW_BYTES) if dialect.multiline else line_end
    parts: list[tuple[bytes, bool]] = []
    delimiter = dialect.delimiter.encode()
    position = start
    while True:
        quoted = data[position : position + 1] == b'"'
        value = b""
        if quoted:
            match = _QUOTED.match(data, position, reach)
            # A closing quote at the very end of the data may turn out to be the first half of a doubled one.
            if match is None or (match.end() == len(data) and not final):
                if dialect.multiline and not final and reach == len(data):
                    return None
                raise Malformed("a quoted value is not closed")
            value, position = match[1].replace(b'""', b'"'), match.end()
        rest = dialect.plain.match(data, position, reach)
        assert rest is not None
        position = rest.end()
        if position < reach and data.startswith(delimiter, position):
            parts.append((value + rest[0], quoted))
            position += len(delimiter)
            continue
        parts.append((value + rest[0].removesuffix(b"\r"), quoted))
        if position == reach < len(data):
            raise Malformed("too long")
        if position == len(data) and not final:
            return None
        end = min(position + 1, len(data))
        return CsvRecord([_value(*part, dialect) for part in parts], data[start:end], end)


def _value(raw: bytes, quoted: bool, dialect: Dialect) -> str | None:
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise Malformed("not valid UTF-8") from error
    return None if not quoted and text in ("", dialect.null_value) else text


def _blank_line(data: bytes, position: int) -> int:
    if data.startswith(b"\n", position):
        return 1
    return 2 if data.startswith(b"\r\n", position) else 0
