"""Groups of window tables as Spark's own GROUP BY: first by panes, then each pane once for each of its windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.hosts.spark.blobs import SEQ, TIME
from millstream.hosts.spark.branches import Branch
from millstream.kernels.window_groups.kernel import Shape
from millstream.kernels.window_groups.spec import WindowGroupSpec
from millstream.plan.aggregate_calls import AggregateCall
from millstream.types import BIGINT, TIMESTAMPTZ, SqlType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DAY = 86_400_000_000

Lanes = dict[str, str]
"""What is kept of a group, by name: the aggregates that make it of rows, or of other groups."""


def grouped_natively(branch: Branch, spec: WindowGroupSpec) -> Branch:
    """The groups of a bounded run. Their order is not that of their first rows: nobody asks for it."""
    shape = Shape.of(spec.windows)
    keys = [f"c{spec.input.index(name)}" for name in spec.by]
    lanes = _lanes(spec)
    moment = f"({TIME} - {shape.offset}L)"
    columns = [f"c{i}" for i in range(len(spec.input))]
    rows = branch.settled().df.selectExpr(*columns, f"{_floored(moment, shape.length)} AS p")
    groups = _grouped(rows, [*keys, "p"], lanes)
    if shape.grows or shape.size > 1 or shape.slide > 1:
        low, high = _windows_of("p", shape)
        panes = groups.selectExpr(*keys, *lanes, f"{low} AS low", f"{high} AS high").where("low <= high")
        spread = panes.selectExpr(*keys, *lanes, "explode(sequence(low, high, 1L)) AS p")
        merged = {name: f"{name[:3] if name[:3] in ('min', 'max') else 'sum'}({name})" for name in lanes}
        groups = _grouped(spread, [*keys, "p"], merged)
    start, end = _bounds("p", shape)
    shown = dict(zip(spec.by, keys, strict=True))
    shown |= dict.fromkeys(spec.starts, _instant(start, spec.type))
    shown |= dict.fromkeys(spec.ends, _instant(end, spec.type))
    made = [*(shown[name] for name in spec.keys_out), *(_result(call, spec) for call in spec.calls)]
    typed = zip(made, spec.output, strict=True)
    results = [f"CAST({sql} AS {field.type.spark}) AS c{i}" for i, (sql, field) in enumerate(typed)]
    return Branch(
        groups.selectExpr(f"{end} AS {TIME}", f"0L AS {SEQ}", *results), spec.output, branch.clockwork, bits=1
    )


def _grouped(rows: DataFrame, by: list[str], lanes: Lanes) -> DataFrame:
    from pyspark.sql import functions as F

    return rows.groupBy(*by).agg(*[F.expr(sql).alias(name) for name, sql in lanes.items()])


def _lanes(spec: WindowGroupSpec) -> Lanes:
    """What calls need, each once. Sums of 64-bit numbers are kept in two halves, which cannot overflow."""
    lanes = {"rows": "count(1)"}
    for call in spec.calls:
        if call.arg is None:
            continue
        column, place = f"c{spec.input.index(call.arg)}", spec.input.index(call.arg)
        if call.fn in ("min", "max"):
            lanes[f"{call.fn}{place}"] = f"{call.fn}({column})"
            continue
        lanes[f"count{place}"] = f"count({column})"
        if call.fn != "count" and spec.input[call.arg].type == BIGINT:
            lanes[f"upper{place}"] = f"sum(shiftright({column}, 32))"
            lanes[f"under{place}"] = f"sum({column} & 4294967295L)"
        elif call.fn != "count":
            lanes[f"sum{place}"] = f"sum(CAST({column} AS BIGINT))"
    return lanes


def _result(call: AggregateCall[str], spec: WindowGroupSpec) -> str:
    """What a call comes to."""
    if call.arg is None:
        return "rows"
    place = spec.input.index(call.arg)
    if call.fn in ("min", "max", "count"):
        return f"{call.fn}{place}"
    total, whole = f"sum{place}", f"CAST(sum{place} AS DOUBLE)"
    if spec.input[call.arg].type == BIGINT:
        upper, under = f"(upper{place} + shiftright(under{place}, 32))", f"(under{place} & 4294967295L)"
        error = f"raise_error('sum overflows {call.type}: {call.told}')"
        total = f"IF({upper} BETWEEN -2147483648L AND 2147483647L, shiftleft({upper}, 32) + {under}, {error})"
        whole = f"(CAST({upper} AS DOUBLE) * 4294967296D + CAST({under} AS DOUBLE))"
    value = total if call.fn == "sum" else f"{whole} / CAST(count{place} AS DOUBLE)"
    return f"CASE WHEN count{place} > 0 THEN {value} END"


def _windows_of(pane: str, shape: Shape) -> tuple[str, str]:
    """The first and the last window that has a pane; as with the kernel, there may be none."""
    if shape.grows:
        return pane, f"({_floored(pane, shape.size)} + 1L) * {shape.size}L - 1L"
    return f"{_floored(f'({pane} - {shape.size}L)', shape.slide)} + 1L", _floored(pane, shape.slide)


def _bounds(window: str, shape: Shape) -> tuple[str, str]:
    """The start and the end of a window, as times inside."""
    first = f"({_floored(window, shape.size)} * {shape.size}L)" if shape.grows else f"({window} * {shape.slide}L)"
    after = f"({window} + 1L)" if shape.grows else f"({first} + {shape.size}L)"
    return f"({first} * {shape.length}L + {shape.offset}L)", f"({after} * {shape.length}L + {shape.offset}L)"


def _floored(sql: str, by: int) -> str:
    """Division of integers that rounds down."""
    return sql if by == 1 else f"(({sql} - pmod({sql}, {by}L)) div {by}L)"


def _instant(sql: str, type_: SqlType) -> str:
    """A time inside as a value of a type, whatever the session's zone is."""
    if type_ == TIMESTAMPTZ:
        return f"timestamp_micros({sql})"
    seconds = f"CAST(pmod({sql}, {_DAY}L) / 1000000BD AS DECIMAL(18, 6))"
    return (
        f"(TIMESTAMP_NTZ '1970-01-01 00:00:00' + make_dt_interval(CAST({_floored(sql, _DAY)} AS INT), 0, 0, {seconds}))"
    )
