"""Rows that are pushed as text: decoded by columns, like those of files."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from millstream.connectors.contract import Rejected
from millstream.connectors.text.csv_format import CsvFormat
from millstream.connectors.text.decoder import TextFormat, merge
from millstream.connectors.text.json_format import JsonFormat
from millstream.records import dataclass
from millstream.schema import Schema

_AT_ONCE = 65_536


@dataclass(frozen=True)
class TextRows:
    """JSON lines, or CSV; `header` says whether its first line names the columns, None: look."""

    data: bytes
    form: Literal["json", "csv"] = "json"
    delimiter: str = ","
    header: bool | None = None
    null_value: str = ""

    def fitted(self, schema: Schema, origin: str) -> tuple[pa.RecordBatch, tuple[Rejected, ...]]:
        """The rows in the stream's schema, and those that do not fit it."""
        kind: TextFormat = JsonFormat(schema)
        if self.form == "csv":
            kind = CsvFormat(schema, delimiter=self.delimiter, header=self.header, null_value=self.null_value)
        begun = kind.begin(self.data, True)
        assert begun is not None
        decoder, at = begun
        batches, rejected, line = [], list[Rejected](), 1
        while at < len(self.data):
            decoded = decoder.decode(self.data[at:] if at else self.data, True, _AT_ONCE)
            if not decoded.consumed:
                break
            batches.append(decoded.rows)
            rejected += [Rejected(bad.error, bad.text, f"{origin}:{line + bad.line}") for bad in decoded.bad]
            at, line = at + decoded.consumed, line + decoded.lines
        return merge(batches, schema.arrow), tuple(rejected)
