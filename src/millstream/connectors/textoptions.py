"""The options that say how rows are written in text."""

from __future__ import annotations

from typing import Literal, cast

from millstream.connectors.convert.common import DEFAULT_RULES, Rules
from millstream.connectors.options import Options
from millstream.errors import ConnectorError
from millstream.records import dataclass


@dataclass(frozen=True, slots=True)
class TextOptions:
    """Options of CSV and of time columns; a delimiter of None is the one the format suggests."""

    delimiter: str | None = None
    header: bool | None = None
    null_value: str = ""
    rules: Rules = DEFAULT_RULES

    @staticmethod
    def from_options(options: Options) -> TextOptions:
        delimiter = options.text("delimiter")
        if delimiter is not None:
            delimiter = "\t" if delimiter in ("\\t", "tab") else delimiter
            if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
                raise ConnectorError(
                    f"{options.owner}: delimiter = {delimiter!r} is not valid",
                    hint="delimiter is one ASCII character, such as ',' ';' '|' or tab",
                )
        header = None if options.text("header", "auto") == "auto" else options.flag("header")
        unit = options.choice("timestamp_unit", ("s", "ms", "us"))
        rules = Rules(cast(Literal["s", "ms", "us"] | None, unit), options.text("timestamp_format"))
        return TextOptions(delimiter, header, options.text("null_value", "") or "", rules)
