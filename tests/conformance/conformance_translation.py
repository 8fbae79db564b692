"""Another dialect's statements and declarations in ours; the meaning stays."""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import dataclass
from typing import Any

import sqlglot
from conformance_cases import Case
from sqlglot import exp

from millstream.sql import parse, to_sql
from millstream.sql.nodes import WindowTable

_TYPES = {
    "string": "VARCHAR",
    "timestamp_ltz(3)": "TIMESTAMPTZ",
    "timestamp(6)": "TIMESTAMP",
    "map<double, double>": "VARCHAR",
    "decimal": "DECIMAL(18, 4)",
}
CLOCK = "proctime()"


class NotExpressibleError(Exception):
    """A case has no meaning on an append-only stream in order of time."""


@dataclass(frozen=True)
class Input:
    """A stream or table: its columns with types, its rows, and the stream's time column and slack."""

    name: str
    columns: list[tuple[str, str]]
    rows: list[tuple[Any, ...]]
    time: str | None = None
    slack: str = ""

    def declaration(self, latent: bool = False) -> str:
        """The statement that creates it; with `latent`, what has no time is a stream in order of arrival."""
        columns = ", ".join(f'"{name}" {type_}' for name, type_ in self.columns)
        if self.time is None and latent:
            return f"CREATE STREAM {self.name} ({columns})"
        if self.time is None:
            return f"CREATE TABLE {self.name} ({columns})"
        return f'CREATE STREAM {self.name} ({columns}) ORDER BY "{self.time}"{self.slack}'


def table_of(given: dict[str, Any]) -> Input:
    """An input as a stored table."""
    columns = [(column["name"], _type(column["type"])) for column in given["columns"]]
    return Input(given["name"], columns, [tuple(map(_value, row)) for row in given["rows"]])


@dataclass(frozen=True)
class Query:
    """A standing query, the columns that it orders its inputs by, and whether of rows of equal time it takes the one
    that came last: those come in descending order of their key then."""

    text: str
    order: list[str]
    takes_last: bool = False


def stream_of(given: dict[str, Any], query: Query) -> Input:
    """An input as a stream in order of its watermark column, or else of the columns that the query orders by."""
    table = table_of(given)
    columns, rows = list(table.columns), table.rows
    for column in given.get("computed") or []:
        expression = column.get("expression", "").replace("`", "")
        if not expression or expression.lower() == CLOCK:
            continue
        at = timestamps(expression, [name for name, _ in columns])
        columns.append((column["name"], "TIMESTAMP"))
        rows = [(*row, at(row)) for row in rows]
    mark = given.get("watermark")
    keys = [mark["column"]] if mark else query.order
    if not keys:
        raise NotExpressibleError("nothing tells the order of the rows")
    names = [name.lower() for name, _ in columns]
    if not {key.lower() for key in keys} <= set(names):
        raise NotExpressibleError("ordered by what the input does not have")
    places = [names.index(key.lower()) for key in keys]
    if any(row[place] is None for row in rows for place in places):
        raise NotExpressibleError("a row has no time")
    unique = [names.index(key.lower()) for key in given.get("primary_key") or []]
    if not mark:
        if "asof" in query.text.lower():
            rows = sorted(rows, key=lambda row: tuple(row[place] for place in unique), reverse=query.takes_last)
        rows = sorted(rows, key=lambda row: tuple(row[place] for place in places))
        return Input(table.name, columns, rows, columns[places[0]][0])
    if unique:
        # Rows of equal time have no order there but that of their key; they come in that order here.
        rows = sorted(rows, key=lambda row: (row[places[0]], *(row[place] for place in unique)))
    delay = re.search(r"-\s*interval\s*'(\d+)\s*(\w*)'\s*(\w*)", mark["expression"], re.IGNORECASE)
    slack = f" SLACK {delay[1]} {delay[2] or delay[3]}" if delay else ""
    return Input(table.name, columns, rows, columns[places[0]][0], slack)


def timestamps(expression: str, names: list[str]) -> Any:
    """What computes a time from the columns of a row."""
    if found := re.fullmatch(r"TO_TIMESTAMP\(FROM_UNIXTIME\((\w+)\)\)", expression):
        place = names.index(found[1])
        return lambda row: f"{dt.datetime(1970, 1, 1) + dt.timedelta(seconds=row[place])}"
    found = re.fullmatch(r"TO_TIMESTAMP\((\w+)\)", expression)
    assert found is not None, expression
    place = names.index(found[1])
    return lambda row: row[place]


def _type(text: str) -> str:
    return _TYPES.get(text.lower(), text.upper())


def _value(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict) else value


def table_query(case: Case) -> str:
    """The statement over stored tables."""
    text = case.data.get("query_over_tables") or case.data["query"]
    tree = sqlglot.parse_one(text, read="trino" if case.dialect == "trino" else "postgres")
    for window in list(tree.find_all(exp.Window)):
        # Lists are none of our types; as JSON they come out.
        if isinstance(window.this, exp.ArrayAgg):
            window.replace(exp.cast(exp.Anonymous(this="to_json", expressions=[window.copy()]), "VARCHAR"))
    return tree.sql(dialect="duckdb")


def stream_query(case: Case) -> Query:
    """The standing query."""
    text = re.sub(r"\s+emit\s+on\s+window\s+close\s*$", "", case.view, flags=re.IGNORECASE).replace("`", '"')
    text = re.sub(r"\binterval '(\d+)'(?=\s*[,)])", r"interval '\1' second", text, flags=re.IGNORECASE)
    text = _session_frames(_grouped_windows(text))
    # Flink's last instant of a window.
    text = re.sub(r"\bwindow_time\b", "window_end - INTERVAL '1' MILLISECOND", text)
    tree = parse(text)[0].ast
    tree.set("order", None)
    for call in tree.find_all(exp.Anonymous):
        if call.name.upper() == "LTCNT":
            left, right = call.expressions
            call.replace(exp.Count(this=exp.Case().when(exp.GT(this=left, expression=right), "1")))
    for table in tree.find_all(WindowTable):
        if table.kind == "SESSION" and re.search(r"\bTABLE\s*\(\s*SESSION", case.view, re.IGNORECASE):
            # a row that is late for the stream belongs to a session that is still open (not so in GROUP BY SESSION(…))
            table.set("lateness", table.args["gap"].copy())
    if times := [table.args["time"].name for table in tree.find_all(WindowTable)]:
        return Query(to_sql(tree), times[:1])
    for join in tree.find_all(exp.Join):
        if join.method == "ASOF":
            nearness = join.args["on"].find(exp.GT, exp.GTE, exp.LT, exp.LTE)
            return Query(to_sql(tree), [nearness.this.name], isinstance(nearness, exp.GT | exp.GTE))
    ordered = [window for window in tree.find_all(exp.Window) if window.args.get("order")]
    orders = [_order_columns(window) for window in ordered]
    if any(order != orders[0] for order in orders):
        raise NotExpressibleError("windows in different orders")
    for window in ordered:
        _keep_time_only(window)
    return Query(to_sql(tree), orders[0] if orders else [])


def _order_columns(window: exp.Window) -> list[str]:
    columns = []
    for part in window.args["order"].expressions:
        is_backward = bool(part.args.get("desc")) and len(window.args["order"].expressions) > 1
        if is_backward or not isinstance(part.this, exp.Column):
            raise NotExpressibleError("ordered by something else than time")
        columns.append(part.this.name)
    return columns


def _keep_time_only(window: exp.Window) -> None:
    """Order by time and then by others is arrival order, if rows are pushed in it and peers do not matter."""
    order = window.args["order"]
    if len(order.expressions) == 1:
        return
    spec = window.args.get("spec")
    if (spec is None or spec.args.get("kind") != "ROWS") and not isinstance(
        window.this, exp.RowNumber | exp.Lag | exp.Lead
    ):
        raise NotExpressibleError("ordered by something else than time")
    order.set("expressions", order.expressions[:1])


def _grouped_windows(text: str) -> str:
    """Flink's older form, GROUP BY TUMBLE(ts, size), as a window in FROM."""
    found = re.search(r"\bGROUP BY\s+(.*),\s*(TUMBLE|SESSION)\((\w+), (INTERVAL '\d+' \w+)\)\s*$", text)
    if found is None:
        return text
    keys, kind, time, size = found.groups()
    text = re.sub(r"\bTUMBLE_(START|END)\([^)]*\) AS \w+", lambda part: f"window_{part[1].lower()}", text)
    text = re.sub(r"\bGROUP BY\s.*$", f"GROUP BY {keys}, window_start, window_end", text)
    by = f" PARTITION BY {keys}" if kind == "SESSION" else ""
    return re.sub(r"\bFROM (\w+)", rf"FROM {kind}(TABLE \1{by}, DESCRIPTOR({time}), {size})", text)


def _session_frames(text: str) -> str:
    """RisingWave's frame SESSION WITH GAP: the first and last time of a session, as a window in FROM."""
    over = r"\w+_value\((\w+)\) over \(partition by (\w+) order by \w+ session with gap '(\d+) (\w+)'\)"
    found = re.search(over, text)
    if found is None:
        return text
    time, key, length, unit = found.groups()
    gap = f"INTERVAL '{length}' {unit}"
    text = re.sub(f"first_value{over[9:]}", "window_start", text)
    text = re.sub(f"last_value{over[9:]}", f"window_end - {gap}", text)
    text = text.replace("*,", f"{time}, foo, {key},")
    return re.sub(r"\bfrom (\w+)", rf"from SESSION(TABLE \1 PARTITION BY {key}, DESCRIPTOR({time}), {gap})", text)
