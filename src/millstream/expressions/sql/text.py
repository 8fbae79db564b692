"""Expressions as SQL text for DuckDB and for Spark, with the same meaning in both."""

from __future__ import annotations

from collections.abc import Callable

from millstream.errors import UnsupportedError
from millstream.expressions.functions import can_fail, lookup
from millstream.expressions.nodes import CATCHING, Call, Case, Cast, Column, Expr, Literal, walk
from millstream.expressions.python_calls import ColumnCall, calls_python
from millstream.expressions.sql import casts as sql_casts
from millstream.expressions.sql import literals as sql_literals
from millstream.records import dataclass
from millstream.types import SqlType


@dataclass(frozen=True, slots=True)
class _Engine:
    name: str
    quote: Callable[[str], str]
    literal: Callable[[Literal], str]
    cast: Callable[[str, SqlType, SqlType, bool], str]
    keeps_order: bool
    """Whether the engine evaluates AND and OR from left to right and stops when they are decided."""


def to_duckdb_sql(expr: Expr) -> str:
    """The expression in DuckDB's SQL; columns are quoted names.

    The session must have TimeZone 'UTC'.
    """
    return _emit(expr, _DUCKDB)


def to_spark_sql(expr: Expr) -> str:
    """The expression in Spark's SQL; columns are quoted names.

    The session must have the time zone UTC and ANSI mode on, which is Spark's default.
    """
    return _emit(expr, _SPARK)


def in_spark_sql(expr: Expr) -> bool:
    """Whether Spark SQL can say it; what it cannot is computed by Python workers."""
    return not calls_python(expr) and not any(isinstance(part, Call) and part.fn in CATCHING for part in walk(expr))


def quote_duckdb(name: str) -> str:
    """A name as a DuckDB identifier."""
    return '"' + name.replace('"', '""') + '"'


def quote_spark(name: str) -> str:
    """A name as a Spark identifier; dots in it do not separate."""
    return "`" + name.replace("`", "``") + "`"


def _emit(expr: Expr, engine: _Engine) -> str:
    match expr:
        case Column():
            return engine.quote(expr.name)
        case Literal():
            return engine.literal(expr)
        case Cast():
            return engine.cast(_emit(expr.arg, engine), expr.arg.type, expr.type, expr.safe)
        case Case():
            return _case(expr, engine)
        case ColumnCall():
            raise UnsupportedError(
                f"{expr} is computed in Python, and cannot be used here",
                detail="Spark computes the conditions of such joins, and DuckDB queries stored tables",
                hint="compute it in a query in FROM",
            )
        case Call():
            if expr.fn in ("and", "or") and not engine.keeps_order and can_fail(expr.args[1]):
                return _in_order(expr, engine)
            args = tuple(_emit(arg, engine) for arg in expr.args)
            function = lookup(expr.fn)
            if function is None:
                return _long_tail(expr, args, engine)
            return (function.duckdb if engine is _DUCKDB else function.spark)(expr, args)
    raise TypeError(f"{type(expr).__name__} is not a scalar expression")


def _case(expr: Case, engine: _Engine) -> str:
    arms = " ".join(f"WHEN {_emit(when, engine)} THEN {_emit(then, engine)}" for when, then in expr.whens)
    return f"CASE {arms} ELSE {_emit(expr.default, engine)} END"


def _in_order(expr: Call, engine: _Engine) -> str:
    """AND or OR whose later parts must not be evaluated where earlier ones have decided."""
    decided = "FALSE" if expr.fn == "and" else "TRUE"
    parts = [_emit(part, engine) for part in _flatten(expr, expr.fn)]
    whens = " ".join(f"WHEN ({part}) IS {decided} THEN {decided}" for part in parts[:-1])
    return f"CASE {whens} ELSE ({f' {expr.fn.upper()} '.join(parts)}) END"


def _flatten(expr: Expr, fn: str) -> tuple[Expr, ...]:
    if isinstance(expr, Call) and expr.fn == fn:
        return tuple(part for arg in expr.args for part in _flatten(arg, fn))
    return (expr,)


def _long_tail(expr: Call, args: tuple[str, ...], engine: _Engine) -> str:
    """A function known only to DuckDB, and to Spark by sqlglot's translation; the declared type decides."""
    if engine is _DUCKDB:
        return f"CAST({expr.fn}({', '.join(args)}) AS {expr.type.duckdb})"
    import sqlglot
    from sqlglot import exp

    holders = [f"millstream_argument_{i}" for i in range(len(args))]
    # Constants stay visible to the translation, which may depend on them.
    constants = [to_duckdb_sql(a) if isinstance(a, Literal) else h for a, h in zip(expr.args, holders, strict=True)]
    tree = sqlglot.parse_one(f"{expr.fn}({', '.join(constants)})", read="duckdb")
    texts = dict(zip(holders, args, strict=True))
    tree = tree.transform(
        lambda node: exp.var(texts[node.name]) if isinstance(node, exp.Column) and node.name in texts else node
    )
    return f"CAST({tree.sql(dialect='spark')} AS {expr.type.spark})"


_DUCKDB = _Engine("duckdb", quote_duckdb, sql_literals.duckdb, sql_casts.duckdb, keeps_order=False)
_SPARK = _Engine("spark", quote_spark, sql_literals.spark, sql_casts.spark, keeps_order=True)
