"""Changes of a database's table as Debezium writes them: a JSON object a line, with the row before and after.

A row of the stream is the row after the change, or of a deletion (`op` is 'd') the row before it. Declared columns `op`
and `ts_ms` are those of the change. Messages may have `schema` and `payload` around them. Those without a value, which
follow a deletion for the sake of compacted topics, say nothing new.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.arrays import from_numpy, to_numpy
from millstream.connectors.convert.common import DEFAULT_RULES, Rules
from millstream.connectors.text.decoder import BadRow, Decoded, RowDecoder, line_ends, line_starts, show
from millstream.connectors.text.json_format import JsonFormat, filled
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import BIGINT, STRUCT, VARCHAR

_OF_CHANGE = {"op": VARCHAR, "ts_ms": BIGINT}


@dataclass(frozen=True)
class DebeziumFormat:
    """Changes of rows with the options of one declaration."""

    schema: Schema
    rules: Rules = DEFAULT_RULES

    def begin(self, head: bytes, final: bool) -> tuple[RowDecoder, int] | None:
        begun = JsonFormat(_messages(self.schema), self.rules).begin(head, final)
        return None if begun is None else (DebeziumDecoder(self.schema, begun[0]), begun[1])


class DebeziumDecoder:
    """Decodes the changes of one file or topic."""

    def __init__(self, schema: Schema, messages: RowDecoder) -> None:
        self._schema = schema
        self._messages = messages

    def values(self, file: pa.NativeFile, column: str) -> Iterator[pa.Array]:
        raise ValueError(column)

    def missing(self) -> list[str]:
        return []

    def decode(self, data: bytes, final: bool, limit: int) -> Decoded:
        decoded = self._messages.decode(data, final, limit)
        bad = [row for row in decoded.bad if row.text.strip() != "null"]
        images, change = _images(decoded.rows)
        rows = pa.RecordBatch.from_arrays(
            [self._column(field, images, change) for field in self._schema], schema=self._schema.arrow
        )
        there = images.is_valid()
        if images.null_count:
            starts, ends = self._lines(data, final, decoded)
            for place in np.flatnonzero(~to_numpy(there)):
                line = int(starts[place])
                begin = int(line_starts(ends)[line])
                error = "neither a row before nor after the change"
                bad.append(BadRow(line, error, show(data[begin : int(ends[line])])))
            rows = rows.filter(there)
        return Decoded(rows, sorted(bad, key=lambda row: row.line), decoded.consumed, decoded.lines)

    def _lines(self, data: bytes, final: bool, decoded: Decoded) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of the lines that the decoded messages stood in, and where each line ends."""
        ends = line_ends(data, final, decoded.lines)
        whole = filled(data[: decoded.consumed], ends)
        return np.setdiff1d(whole, [row.line for row in decoded.bad]), ends

    def _column(self, field: Field, images: pa.Array, change: dict[str, pa.Array]) -> pa.Array:
        name = field.name.lower()
        if name == "ts_ms" and field.type.is_temporal:
            return pc.multiply(change[name], 1000).view(field.type.arrow)
        if name in change:
            return change[name]
        return pc.struct_field(images, [[known.name for known in images.type].index(field.name)])


def _images(rows: pa.RecordBatch) -> tuple[pa.Array, dict[str, pa.Array]]:
    """The row that each change is about, and what is said of the changes themselves."""
    payload = rows.column("payload")
    inner = {field.name: pc.struct_field(payload, [i]) for i, field in enumerate(payload.type)}
    given = {name: pc.coalesce(rows.column(name), inner[name]) for name in inner}
    deleted = pc.fill_null(pc.equal(given["op"], "d"), False)
    if not len(rows):
        deleted = from_numpy(np.zeros(0, bool))
    return pc.if_else(deleted, given["before"], given["after"]), {name: given[name] for name in _OF_CHANGE}


def _messages(schema: Schema) -> Schema:
    """The columns of messages about rows of a schema."""
    fields = [(field.name, field.type) for field in schema if not _is_of_change(field)]
    image = STRUCT(*fields) if fields else STRUCT(("op", VARCHAR))
    parts = [("before", image), ("after", image), *_OF_CHANGE.items()]
    return Schema(tuple(Field(name, type_) for name, type_ in [*parts, ("payload", STRUCT(*parts))]))


def _is_of_change(field: Field) -> bool:
    return field.name.lower() in _OF_CHANGE
