"""JSON lines: one object (or array in declared order) a line, decoded in blocks by Arrow."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from functools import cached_property
from json.scanner import make_scanner
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.json as arrow_json

from millstream.connectors.convert.common import DEFAULT_RULES, Fitted, Reasons, Rules, assemble, blame, empty
from millstream.connectors.convert.records import rows_to_batch
from millstream.connectors.convert.text import read_column
from millstream.connectors.text.decoder import (
    BOM,
    MAX_ROW_BYTES,
    BadRow,
    Decoded,
    Halves,
    Lines,
    RowDecoder,
    is_utf8,
    line_ends,
    line_starts,
    merge,
)
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import JSON, SqlType


@dataclass(frozen=True)
class JsonFormat:
    """JSON lines with the options of one declaration."""

    schema: Schema
    rules: Rules = DEFAULT_RULES

    def begin(self, head: bytes, final: bool) -> tuple[RowDecoder, int] | None:
        if not final and len(head) < len(BOM) and BOM.startswith(head):
            return None
        return JsonDecoder(self.schema, self.rules), len(BOM) if head.startswith(BOM) else 0


class JsonDecoder:
    """Decodes the lines of one file or connection.

    Blocks of objects go to Arrow with the declared columns; if it refuses, the block is halved, and the part with the
    lines it refuses is read by Python. Arrays are read by Python.
    """

    def __init__(self, schema: Schema, rules: Rules) -> None:
        self._schema = schema
        self._rules = replace(rules, json=True)
        self._spelling = {field.name.lower(): field.name for field in schema}
        self._seen: set[str] = set()
        self._read_any = False
        self._other_keys = False
        decimals = any(field.type.name == "DECIMAL" for field in schema)
        self._scan: Any = make_scanner(cast(Any, json.JSONDecoder(parse_float=Decimal if decimals else None)))

    def values(self, file: pa.NativeFile, column: str) -> Iterator[pa.Array]:
        if self._rules != replace(DEFAULT_RULES, json=True):
            raise ValueError(column)
        wanted = pa.schema([(self._spelling.get(column.lower(), column), self._schema[column].type.arrow)])
        parse = arrow_json.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="ignore")
        for batch in arrow_json.open_json(file, arrow_json.ReadOptions(block_size=1 << 22), parse):
            if batch.column(0).null_count:
                # a row may spell the name in another way
                raise ValueError(column)
            yield batch.column(0)

    def missing(self) -> list[str]:
        return [f.name for f in self._schema if self._read_any and f.name.lower() not in self._seen]

    def decode(self, data: bytes, final: bool, limit: int) -> Decoded:
        ends = line_ends(data, final, limit)
        rows: list[pa.RecordBatch] = []
        bad: list[BadRow] = []
        if len(ends) and not self._read_any:
            self._learn_spelling(data[: int(ends[0])])
        halves = Halves(data, ends)
        for part in halves:
            lines = filled(part.data, part.ends)
            fitted = self._columnar(part.data, part.ends, lines) if halves.worth_trying else None
            if fitted is None and not part.data.startswith(b"[") and halves.halve(part):
                continue
            if fitted is None:
                starts = line_starts(part.ends)
                texts = [part.data[s:e] for s, e in zip(starts[lines], part.ends[lines], strict=True)]
                fitted = self._by_python(texts)
            rows.append(fitted.rows)
            bad += part.rejected(fitted.bad, lines)
        consumed = int(ends[-1]) if len(ends) else 0
        batch = merge(rows, self._schema.arrow) if rows else empty(self._schema)
        self._read_any = self._read_any or batch.num_rows > 0
        return Decoded(batch, bad, consumed, len(ends))

    def _learn_spelling(self, line: bytes) -> None:
        """Arrow matches keys exactly, so take their spelling from the data."""
        try:
            row = json.loads(line)
        except ValueError:
            return
        for key in row if isinstance(row, dict) else ():
            if key in self._schema:
                self._spelling[key.lower()] = key

    def _columnar(self, block: bytes, ends: Lines, lines: Lines) -> Fitted | None:
        """The objects through Arrow's reader; None if a line is no object or a value is not of its column's type."""
        if not _all_objects(block, ends, lines) or not is_utf8(block) or self._has_read_elements:
            return None
        if len(block) > MAX_ROW_BYTES and np.diff(ends, prepend=0).max() > MAX_ROW_BYTES:
            return None
        if len(lines) == 0:
            return Fitted(empty(self._schema))
        table = self._read(block, len(lines))
        if table is None:
            return None
        columns: list[pa.Array] = []
        bad: Reasons = {}
        for field, name in zip(self._schema, table.column_names, strict=True):
            column = table.column(name).combine_chunks()
            if pa.types.is_int64(column.type) and field.type.is_temporal:
                column = column.cast(pa.string())
            column, reasons = read_column(column, field.type, self._rules)
            columns.append(column)
            blame(bad, field.name, reasons)
            if column.null_count < len(column) or f'"{name}"'.encode() in block:
                self._seen.add(field.name.lower())
        return assemble(columns, bad, self._schema, table.num_rows)

    def _read(self, block: bytes, expected: int) -> pa.Table | None:
        """The block through Arrow's reader, first with no other keys allowed, as then none is a misspelled one."""
        fields = [pa.field(self._spelling[f.name.lower()], self._json_type(f)) for f in self._schema]
        read = arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
        for other_keys in ("error", "ignore") if not self._other_keys else ("ignore",):
            if other_keys == "ignore" and not self._in_one_spelling(block):
                return None
            parse = arrow_json.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior=other_keys)
            try:
                table = arrow_json.read_json(pa.BufferReader(block), read, parse)
            except pa.ArrowInvalid:
                continue
            self._other_keys = other_keys == "ignore"
            return table if table.num_rows == expected else None
        return None

    @cached_property
    def _has_read_elements(self) -> bool:
        """Whether there is JSON inside JSON, or nested values with what Arrow's reader converts in another way."""
        return any(
            field.type == JSON or (field.type.is_nested and not self._reads_parts(field.type)) for field in self._schema
        )

    @cached_property
    def _inner(self) -> frozenset[str]:
        """The names of fields of structs, which Arrow's reader finds by their exact spelling."""
        waiting = [field.type for field in self._schema]
        names: set[str] = set()
        while waiting:
            type_ = waiting.pop()
            waiting += type_.parts
            names.update(name for name, _ in type_.fields)
        return frozenset(names)

    def _reads_parts(self, type_: SqlType) -> bool:
        # Arrow's reader knows no maps
        return not type_.is_map and all(
            not part.domain and self._reads_parts(part)
            if part.is_nested
            else self._json_type(Field("", part)) == part.arrow
            for part in type_.parts
        )

    def _json_type(self, field: Field) -> pa.DataType:
        if field.type.name in ("TIMESTAMP", "TIMESTAMPTZ"):
            return pa.int64() if self._rules.timestamp_unit else pa.string()
        return pa.string() if field.type.is_temporal or field.type.name in ("INTERVAL", "BLOB") else field.type.arrow

    def _in_one_spelling(self, block: bytes) -> bool:
        """Whether declared columns are spelled as expected: Arrow takes keys in other spellings for unknown ones."""
        lower = block.lower()
        if any(lower.count(f'"{name.lower()}"'.encode()) != block.count(f'"{name}"'.encode()) for name in self._inner):
            return False
        for name, spelling in self._spelling.items():
            if lower.count(f'"{name}"'.encode()) == block.count(f'"{spelling}"'.encode()):
                continue
            key = re.escape(spelling.encode())
            other = re.search(rb'"(?!%b")((?i:%b))"\s*:' % (key, key), block)
            if other is not None:
                self._spelling[name] = other[1].decode()
                return False
        return True

    def _by_python(self, lines: list[bytes]) -> Fitted:
        rows: list[Any] = []
        places: list[int] = []
        bad: Reasons = {}
        for number, line in enumerate(lines):
            try:
                if len(line) > MAX_ROW_BYTES:
                    raise ValueError("too long")
                text = line.decode().strip()
                row, end = self._scan(text, 0)
                if end < len(text):
                    raise ValueError(f"more text after column {end}")
                rows.append(row)
                places.append(number)
            except UnicodeDecodeError:
                bad[number] = "not valid UTF-8"
            except RecursionError:
                bad[number] = "malformed JSON: nested too deep"
            except StopIteration as error:
                bad[number] = f"malformed JSON: no value at column {int(error.value) + 1}"
            except ValueError as error:
                bad[number] = f"malformed JSON: {error}"
        for row in rows:
            if isinstance(row, dict):
                self._seen.update(map(str.lower, row))
            elif isinstance(row, list):
                self._seen.update(self._spelling)
        fitted = rows_to_batch(rows, self._schema, self._rules)
        bad.update({places[row]: reason for row, reason in fitted.bad.items()})
        return Fitted(fitted.rows, dict(sorted(bad.items())))


def filled(block: bytes, ends: Lines) -> Lines:
    """Numbers of the lines that are not blank."""
    starts = line_starts(ends)
    letters = np.frombuffer(block, dtype=np.uint8)
    unsure = np.flatnonzero(letters[starts] <= 32)
    blank = [line for line in unsure if not block[int(starts[line]) : int(ends[line])].strip()]
    return np.delete(np.arange(len(ends)), blank)


def _all_objects(block: bytes, ends: Lines, lines: Lines) -> bool:
    """Whether each line by itself begins and ends like an object: Arrow would also read objects across line ends."""
    letters = np.frombuffer(block, dtype=np.uint8)
    lasts = ends[lines] - 1
    lasts = lasts - (letters[lasts] == 10)
    lasts = lasts - (letters[np.maximum(lasts, 0)] == 13)
    return bool((letters[line_starts(ends)[lines]] == ord("{")).all() and (letters[lasts] == ord("}")).all())
