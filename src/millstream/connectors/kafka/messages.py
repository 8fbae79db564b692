"""Values of messages to rows, in one go, by the decoders that files and ports use."""

from __future__ import annotations

import json
from collections.abc import Callable

import pyarrow as pa

from millstream.connectors.contract import Rejected
from millstream.connectors.text.csv_format import CsvFormat
from millstream.connectors.text.debezium import DebeziumFormat
from millstream.connectors.text.decoder import TextFormat, show
from millstream.connectors.text.json_format import JsonFormat
from millstream.connectors.textoptions import TextOptions
from millstream.schema import Schema


class MessageDecoder:
    """Decodes values, each one row: a JSON text, a change or a CSV record."""

    def __init__(self, schema: Schema, form: str, text: TextOptions) -> None:
        self._is_json = form != "csv"
        self._is_change = form == "debezium"
        format_: TextFormat = JsonFormat(schema, text.rules)
        if self._is_change:
            format_ = DebeziumFormat(schema, text.rules)
        elif not self._is_json:
            format_ = CsvFormat(schema, text.rules, text.delimiter or ",", False, text.null_value, multiline=False)
        begun = format_.begin(b"", True)
        assert begun is not None
        self._decoder = begun[0]

    def decode(
        self, values: list[bytes | None], origin: Callable[[int], str]
    ) -> tuple[pa.RecordBatch, tuple[Rejected, ...]]:
        """The rows, and the values that are none; `origin` tells where the value of that number came from."""
        refused: dict[int, Rejected] = {}
        places: list[int] | None = None
        data = None if None in values else b"\n".join(values) + b"\n"  # type: ignore[arg-type]
        if data is None or data.count(b"\n") != len(values):
            lines, places = self._one_line_each(values, origin, refused)
            data = b"\n".join(lines) + b"\n"
        decoded = self._decoder.decode(data, True, len(values))
        for bad in decoded.bad:
            place = bad.line if places is None else places[bad.line]
            refused[place] = Rejected(bad.error, bad.text, origin(place))
        return decoded.rows, tuple(refused[place] for place in sorted(refused))

    def _one_line_each(
        self, values: list[bytes | None], origin: Callable[[int], str], refused: dict[int, Rejected]
    ) -> tuple[list[bytes], list[int]]:
        """The values as single lines with their numbers; those that cannot be one are refused."""
        lines: list[bytes] = []
        places: list[int] = []
        for place, value in enumerate(values):
            if value is None and self._is_change:
                # it lets the topic forget the key of the deletion before it
                continue
            if value is None:
                refused[place] = Rejected("a message without a value", "", origin(place))
                continue
            line = value.rstrip(b"\r\n")
            error = self._why_not_one_line(line) if b"\n" in line else None
            if error is not None:
                refused[place] = Rejected(error, show(line), origin(place))
                continue
            lines.append(line.replace(b"\n", b" "))
            places.append(place)
        return lines, places

    def _why_not_one_line(self, line: bytes) -> str | None:
        """JSON may be spread over lines, but only between its tokens."""
        if not self._is_json:
            return "a message is one record, and this one has several lines"
        try:
            json.loads(line)
        except RecursionError:
            return "malformed JSON: nested too deep"
        except ValueError as error:
            return f"malformed JSON: {error}"
        return None
