"""Rows for people and for other libraries: text, HTML, polars, and Arrow's C stream."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

SHOWN = 20
"""Rows that `show` prints and a notebook displays."""
_WIDEST = 60


class Displayed:
    """What `Query` and `Result` have in common: the rows of `arrow()` in other forms."""

    def arrow(self) -> pa.Table:
        raise NotImplementedError

    def df(self) -> Any:
        """The rows of `arrow()` as a pandas DataFrame."""
        return self.arrow().to_pandas()

    def pl(self) -> Any:
        """The rows of `arrow()` as a polars DataFrame."""
        import polars

        return polars.from_arrow(self.arrow())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows of `arrow()`, for any library that reads Arrow: polars, DuckDB, pandas, pyarrow."""
        return self.arrow().__arrow_c_stream__(requested_schema)


def as_text(rows: pa.Table, limit: int) -> str:
    """The first rows as a table of text.

    >>> print(as_text(pa.table({"k": [1, 20], "name": ["a", None]}), 10))
     k | name
    ---+-----
     1 | a
    20 | NULL
    """
    shown = rows.slice(0, limit)
    columns = [[_text(value) for value in column.to_pylist()] for column in shown.columns]
    widths = [max(map(len, [name, *column])) for name, column in zip(rows.column_names, columns, strict=True)]
    numbers = [_is_number(field.type) for field in rows.schema]

    def line(cells: list[str]) -> str:
        padded = zip(cells, widths, numbers, strict=True)
        return " | ".join(c.rjust(w) if number else c.ljust(w) for c, w, number in padded).rstrip()

    lines = [line(rows.column_names), "-+-".join("-" * width for width in widths)]
    lines += [line(list(row)) for row in zip(*columns, strict=True)]
    if rows.num_rows > limit:
        lines.append(f"… {rows.num_rows - limit:,} more rows")
    return "\n".join(lines)


def in_zone(rows: pa.Table, zone: str) -> pa.Table:
    """The rows with each TIMESTAMPTZ as clocks of a time zone show it."""
    types = [pa.timestamp("us", zone) if pa.types.is_timestamp(t) and t.tz else t for t in rows.schema.types]
    columns = [column.cast(type_) for column, type_ in zip(rows.columns, types, strict=True)]
    return pa.Table.from_arrays(columns, names=rows.column_names) if zone != "UTC" else rows


def as_html(rows: pa.Table, limit: int) -> str:
    """The first rows as a table for a notebook."""
    import html

    shown = rows.slice(0, limit)
    head = "".join(f"<th>{html.escape(name)}</th>" for name in rows.column_names)
    columns = [[html.escape(_text(value)) for value in column.to_pylist()] for column in shown.columns]
    body = "".join(f"<tr>{''.join(f'<td>{c}</td>' for c in row)}</tr>" for row in zip(*columns, strict=True))
    more = f"<p>… {rows.num_rows - limit:,} more rows</p>" if rows.num_rows > limit else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def shown_cells(rows: pa.Table) -> tuple[list[str], list[bool], list[list[str]]]:
    """The names of columns, which of them are numbers, and the rows as text."""
    columns = [[_text(value) for value in column.to_pylist()] for column in rows.columns]
    lines = [list(row) for row in zip(*columns, strict=True)]
    return rows.column_names, [_is_number(field.type) for field in rows.schema], lines


def _text(value: object) -> str:
    text = "NULL" if value is None else str(value)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_))
