"""What a generated table is: columns as functions of row numbers, under the names that declarations use for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from millstream.connectors.generators.draws import Draws, Numbers
from millstream.errors import ConnectorError
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import BIGINT, DOUBLE, TIMESTAMP, VARCHAR, SqlType

DEFAULT_START = 1_767_225_600_000_000  # 2026-01-01 UTC
MICROS = 1_000_000


@dataclass(frozen=True, slots=True)
class Settings:
    """What the rows depend on besides their number."""

    seed: int = 0
    rate: float = 1000.0
    start: int = DEFAULT_START
    symbols: int = 100
    sessions: int = 100
    users: int = 1000
    pages: int = 600


@dataclass(frozen=True, slots=True)
class GeneratedColumn:
    """A generated column: its type, and the other names it answers to (underscores and case do not count)."""

    type: SqlType
    aliases: tuple[str, ...] = ()


NUMBER, REAL, TEXT, TIME = BIGINT, DOUBLE, VARCHAR, TIMESTAMP
TIME_NAMES = ("datetime", "ts", "timestamp", "time", "currenttime", "eventtime")


class GeneratedRows:
    """The rows with given numbers; a subclass has one cached property per column, so that columns share their work."""

    columns: ClassVar[Mapping[str, GeneratedColumn]]

    def __init__(self, rows: Numbers, settings: Settings, draws: Draws) -> None:
        self.rows = rows
        self.settings = settings
        self.draws = draws

    def column(self, name: str) -> Any:
        """The values of a column: a NumPy or Arrow array."""
        return getattr(self, name)

    @classmethod
    def rows_spanning(cls, micros: int, settings: Settings) -> int:
        """A number of successive rows that never spans more than this much event time."""
        return max(1, int(micros * settings.rate / MICROS))

    @classmethod
    def rows_of_events(cls, events: int) -> int:
        """How many rows of this table the first `events` events of all tables hold."""
        return events


def instants(numbers: Numbers, settings: Settings) -> Numbers:
    """The event times of events with these numbers."""
    times: Numbers
    if settings.rate.is_integer():
        rate = int(settings.rate)
        whole, part = np.divmod(numbers, rate)
        times = settings.start + whole * MICROS + part * MICROS // rate
    else:
        times = settings.start + np.floor(numbers * (MICROS / settings.rate)).astype(np.int64)
    return times


def schema_of(table: type[GeneratedRows]) -> Schema:
    """The table's own columns."""
    return Schema(tuple(Field(name, column.type) for name, column in table.columns.items()))


def match_columns(table: type[GeneratedRows], schema: Schema, owner: str) -> list[str]:
    """The generated column for each declared one; ConnectorError if one has none or cannot take its type."""
    known: dict[str, str] = {_plain(name): name for name in table.columns}
    for name, column in table.columns.items():
        for alias in column.aliases:
            known.setdefault(_plain(alias), name)
    chosen = []
    for field in schema:
        name = known.get(_plain(field.name), "")
        if not name:
            raise ConnectorError(
                f"{owner} has no column {field.name}", hint=f"its columns are {', '.join(map(str, schema_of(table)))}"
            )
        if not _converts(table.columns[name].type, field.type):
            raise ConnectorError(
                f"{owner}: {field.name} is generated as {table.columns[name].type}, not {field.type}",
                hint=f"declare {field.name} as {table.columns[name].type}",
            )
        chosen.append(name)
    return chosen


def as_declared(values: Any, generated: SqlType, declared: SqlType) -> pa.Array:
    """Generated values in the declared type; prices round to whole numbers where integers are declared."""
    if generated == TIMESTAMP:
        array = pa.array(values)
        if declared.name == "DATE":
            return array.view(pa.timestamp("us")).cast(pa.date32(), safe=False)
        return array.view(declared.arrow if declared.is_temporal else pa.timestamp("us"))
    if generated == DOUBLE and declared.is_integer:
        values = np.rint(values).astype(np.int64)
    array = values if isinstance(values, pa.Array) else pa.array(values)
    if array.type == declared.arrow:
        return array
    if declared.name == "DECIMAL" and not pa.types.is_floating(array.type):
        array = array.cast(pa.string())
    return array.cast(declared.arrow)


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


def _converts(generated: SqlType, declared: SqlType) -> bool:
    if generated == declared:
        return True
    if generated == TIMESTAMP:
        return declared.name in ("TIMESTAMPTZ", "DATE")
    return generated.is_numeric and (declared.is_numeric or declared == VARCHAR)
