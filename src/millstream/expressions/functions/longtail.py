"""Every other scalar function that DuckDB knows: DuckDB tells their types, and is started only for that."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from millstream import sealed_duckdb
from millstream.errors import BindError, UnsupportedError, nearest
from millstream.expressions.functions.allowed import ALLOWED
from millstream.expressions.functions.registry import known_names
from millstream.expressions.nodes import Call, Expr, Literal
from millstream.types import DOMAINS, DOUBLE, TIMESTAMP, SqlType, parse_type

# Types of DuckDB that results may have and we keep in a wider one of ours.
_WIDER: dict[str, SqlType] = {
    **{name: type_.base for name, type_ in DOMAINS.items()},
    "FLOAT": DOUBLE,
    "TIMESTAMP_S": TIMESTAMP,
    "TIMESTAMP_MS": TIMESTAMP,
}


GAPS = "FROM GAP_FILL(s PARTITION BY k, ts, 1 MINUTE, LOCF(v)) fills gaps"

_ELSEWHERE = {
    "to_char": "strftime(ts, '%Y-%m-%d') formats a time",
    "date_format": "strftime(ts, '%Y-%m-%d') formats a time",
    "to_timestamp_ltz": "CAST(… AS TIMESTAMPTZ), or epoch_ms(…)",
    "from_unixtime": "epoch_ms(1000 * seconds) makes a time",
    "unix_timestamp": "epoch(ts) gives seconds",
    "arbitrary": "any_value(…) is the aggregate",
    "collect_list": "array_agg(…) makes an array of the values",
    "ifnull": "coalesce(…, …)",
    "nvl": "coalesce(…, …)",
    "window": "FROM TUMBLE(s, ts, 10 SECONDS), and GROUP BY window_end",
    "time_bucket_gapfill": GAPS,
    "locf": GAPS,
    "interpolate": GAPS,
    "proctime": "ORDER BY current_time declares a stream that is stamped on arrival",
}
"""Functions of other engines, and what to write instead."""


def other_aggregate(name: str) -> str | None:
    """Of an aggregate that only DuckDB has, what to use instead, or how to define it; None if it is none."""
    if name not in ALLOWED or "aggregate" not in _kinds(name) or _kinds(name) & {"scalar", "macro"}:
        return None
    return _ELSEWHERE.get(name) or f"define it: CREATE AGGREGATE {name}(…)"


def resolve_in_duckdb(name: str, args: tuple[Expr, ...]) -> Expr:
    """The call of a function we have no entry for, typed by DuckDB; BindError if DuckDB has no such scalar function."""
    kinds = _kinds(name) if name in ALLOWED else frozenset()
    if not kinds:
        close = nearest(name, known_names(), most=3)
        hint = _ELSEWHERE.get(name) or (f"did you mean {' or '.join(close)}?" if close else None)
        raise BindError(f"no function {signature(name, args)}", hint=hint)
    if not kinds & {"scalar", "macro"}:
        kind = "an aggregate" if "aggregate" in kinds else "a table function"
        raise BindError(f"{name} is {kind} and cannot be used here as a function of one row", hint=_ELSEWHERE.get(name))
    if "volatile" in kinds:
        raise UnsupportedError(
            f"{name} is not allowed in a continuous query",
            detail="its result does not depend only on its arguments, so a restart would give other rows",
        )
    probe = tuple(
        (arg.type.duckdb, repr(arg.value) if isinstance(arg, Literal) and arg.type.is_text else None) for arg in args
    )
    found = _result_type(name, probe)
    if found is None:
        raise BindError(f"no function {signature(name, args)}", hint="cast the arguments to its parameter types")
    type_ = _WIDER.get(found) or parse_type(found)
    if type_ is None or any(part.fields for part in (type_, *(arg.type for arg in args))):
        # structs and maps would need a translation for Spark
        raise UnsupportedError(f"{signature(name, args)}, which returns {found}, is not supported")
    return Call(type_, name, args)


def signature(name: str, args: tuple[Expr, ...]) -> str:
    """A call by its types, as in `foo(VARCHAR, BIGINT)`."""
    return f"{name}({', '.join(str(arg.type) for arg in args)})"


@lru_cache(maxsize=1)
def _connection() -> Any:
    return sealed_duckdb.connect(threads=1)


@lru_cache(maxsize=1024)
def _kinds(name: str) -> frozenset[str]:
    if re.fullmatch(r"[a-z_][a-z0-9_]*", name) is None:
        return frozenset()
    rows = (
        _connection()
        .cursor()
        .execute(
            "SELECT DISTINCT function_type, coalesce(stability, 'CONSISTENT') FROM duckdb_functions() "
            "WHERE function_name = ?",
            [name],
        )
        .fetchall()
    )
    kinds = {kind for kind, _ in rows}
    if any(stability != "CONSISTENT" for _, stability in rows):
        kinds.add("volatile")
    return frozenset(kinds)


@lru_cache(maxsize=1024)
def _result_type(name: str, args: tuple[tuple[str, str | None], ...]) -> str | None:
    import duckdb

    parts = []
    for type_, text in args:
        quoted = "'" + str(text)[1:-1].replace("'", "''") + "'"
        parts.append(f"CAST(NULL AS {type_})" if text is None else quoted)
    try:
        rows = _connection().cursor().execute(f"DESCRIBE SELECT {name}({', '.join(parts)}) AS x").fetchall()
    except duckdb.Error:
        return None
    return str(rows[0][1])
