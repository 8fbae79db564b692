"""Values that stand in the path of a file: `…/country=de/day=2024-05-01/part.parquet`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from millstream.connectors.convert.common import Rules
from millstream.connectors.convert.text import parse_text
from millstream.connectors.files.listing import fixed_part
from millstream.records import dataclass
from millstream.schema import Schema

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class PathValues:
    """Declared columns, in lower case, that a path gives a value (arrays of one), and why others have none."""

    values: Mapping[str, pa.Array] = field(default_factory=dict)
    wrong: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> frozenset[str]:
        return frozenset((*self.values, *self.wrong))

    def only(self, columns: Iterable[str]) -> PathValues:
        """Those of the given columns."""
        kept = {column.lower() for column in columns}
        return PathValues(
            {name: value for name, value in self.values.items() if name in kept},
            {name: reason for name, reason in self.wrong.items() if name in kept},
        )

    def fill(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, str | None, int]:
        """The rows with these values where they have none; the reason why some are left out, and how many."""
        if not self.names or not rows.num_rows:
            return rows, None, 0
        columns = list(rows.columns)
        refused, reason = 0, None
        for place, name in enumerate(rows.schema.names):
            if name.lower() in self.values:
                columns[place] = pc.coalesce(columns[place], self.values[name.lower()][0])
        filled = pa.RecordBatch.from_arrays(columns, schema=rows.schema)
        for place, name in enumerate(rows.schema.names):
            if name.lower() in self.wrong:
                kept = filled.filter(filled.column(place).is_valid())
                reason = reason or (self.wrong[name.lower()] if kept.num_rows < filled.num_rows else None)
                refused, filled = refused + filled.num_rows - kept.num_rows, kept
        return filled, reason, refused


NO_VALUES = PathValues()


def path_values(root: str, file: Path, schema: Schema, rules: Rules, null_value: str = "") -> PathValues:
    """What the directories between a path and a file below it say, read like the text of a CSV file."""
    values: dict[str, pa.Array] = {}
    wrong: dict[str, str] = {}
    for part in directories(root, file):
        raw_name, equals, raw = part.partition("=")
        name = unquote(raw_name).lower()
        if not equals or name not in schema:
            continue
        declared = schema[name]
        values.pop(name, None)
        wrong.pop(name, None)
        try:
            text = unquote(raw, errors="strict")
            is_null = raw in ("", NO_VALUE) or text == null_value
            array, reasons = parse_text(pa.array([None if is_null else text], pa.string()), declared.type, rules)
        except UnicodeError:
            array, reasons = None, {0: f"{raw!r} is not valid UTF-8"}
        if reasons:
            wrong[name] = f"{declared.name}: {reasons[0]}, in the path of the file"
        else:
            values[name] = array
    return PathValues(values, wrong) if values or wrong else NO_VALUES


def directories(root: str, file: Path) -> tuple[str, ...]:
    """The names of the directories between a path and a file below it."""
    base = os.path.abspath(fixed_part(root))  # noqa: PTH100
    try:
        return Path(os.path.abspath(file)).relative_to(base).parts[:-1]  # noqa: PTH100
    except ValueError:
        return ()
