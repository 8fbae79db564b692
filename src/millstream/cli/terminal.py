"""Rows go to standard output, everything else to standard error."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    import pyarrow as pa

UNLIMITED = 10_000
"""Columns of a line when nobody looks at a screen: nothing is cut off or wrapped."""


def output() -> Console:
    """Standard output, for rows."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=UNLIMITED)


def errors() -> Console:
    """Standard error, for messages and progress."""
    console = Console(stderr=True, highlight=False)
    return console if console.is_terminal else Console(stderr=True, highlight=False, width=UNLIMITED)


def rows_table(rows: pa.Table, title: str | None = None) -> RenderableType:
    """Rows with their column names, numbers to the right, NULL told from text."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for field in rows.schema:
        table.add_column(Text(field.name), justify="right" if _is_number(field.type) else "left", overflow="fold")
    for row in plain_rows(rows):
        table.add_row(*(Text("NULL", style="dim") if cell is None else Text(cell) for cell in row))
    # a title of the table's own would be broken to its width
    return table if title is None else Group(Text(title, style="bold"), table)


def plain_rows(rows: pa.Table) -> Iterable[Sequence[str | None]]:
    """Every row as texts; None is NULL."""
    if not rows.num_columns:
        return []
    return zip(*([_text(value) for value in column.to_pylist()] for column in rows.columns), strict=True)


def count(number: int) -> str:
    """A number with thousands separated."""
    return f"{number:,}"


def some_rows(number: int) -> str:
    """A number of rows in words.

    >>> some_rows(1), some_rows(1200)
    ('1 row', '1,200 rows')
    """
    return "1 row" if number == 1 else f"{count(number)} rows"


def duration(seconds: float) -> str:
    """A length of time for people.

    >>> duration(0.41), duration(75), duration(3700)
    ('0.4 s', '1 min 15 s', '1 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"


def _is_number(type_: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_))


def _text(value: Any) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:.12g}"
        case bytes():
            return value.hex()
        case dt.datetime():
            return value.isoformat(sep=" ")
    return str(value)
