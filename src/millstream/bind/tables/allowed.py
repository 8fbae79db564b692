"""Which calls a statement for the table store may have."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlglot import exp

from millstream.bind.context import Context
from millstream.catalog import TableDef, ViewDef
from millstream.expressions.functions.allowed import ALLOWED
from millstream.expressions.functions.registry import known_names
from millstream.plan import aggregates

GIVE_TABLES = frozenset(("generate_series", "range", "unnest", "explode", "values"))
"""functions that may stand in FROM"""


_CALLED_BARE = frozenset(
    ("current_catalog", "current_role", "current_schema", "current_user", "session_user", "user", "system_user")
)
"""names that DuckDB takes for calls where no column has them"""


def check_calls(node: exp.Expr, context: Context) -> None:
    """Refuse calls of functions that do more than to compute."""
    for column in node.find_all(exp.Column):
        if column.name.lower() in _CALLED_BARE and not _is_column(column.name.lower(), node, context):
            context.fail(f"no column {column.name}", column)
    for call in node.find_all(exp.Func):
        definition = context.catalog.function(function_name(call))
        if definition is not None and definition.python is not None:
            context.refuse(
                f"{definition.name} is written in Python, and a query over stored tables cannot call it",
                call,
                hint="push the rows into a stream: INSERT INTO s SELECT … FROM t",
            )
        if not _is_allowed(call, context):
            context.refuse(f"{function_name(call)} is not allowed in a statement over stored tables", call)


def _is_column(name: str, node: exp.Expr, context: Context) -> bool:
    """Whether something in a statement has a column of that name."""
    if any(made.alias_or_name.lower() == name for made in node.find_all(exp.Alias, exp.Identifier) if _names(made)):
        return True
    entries = (context.catalog.find(table.name) for table in node.find_all(exp.Table))
    return any(name in entry.schema for entry in entries if isinstance(entry, TableDef | ViewDef))


def _names(node: exp.Expr) -> bool:
    return isinstance(node, exp.Alias) or isinstance(node.parent, exp.TableAlias)


def _is_allowed(call: exp.Func, context: Context) -> bool:
    name = function_name(call)
    if name in ALLOWED or name in GIVE_TABLES or name in _known() or context.catalog.is_callable(name):
        return True
    if any(context.aggregate(name, window=window) is not None for window in (False, True)):
        return True
    return not isinstance(call, exp.Anonymous) and _computes(type(call))


@cache
def _known() -> frozenset[str]:
    """What the language has by itself: functions, and aggregates, which may be spelled otherwise in the table store."""
    return frozenset((*known_names(), *aggregates.NAMES, *aggregates.ALIASES, *aggregates.SAID_OTHERWISE))


def _computes(kind: Any) -> bool:
    """Whether what sqlglot knows under some name is a function that only computes, or no call at all."""
    return bool({name.lower() for name in kind.sql_names()} & ALLOWED) or issubclass(kind, _SYNTAX)


_SYNTAX = (
    exp.Cast, exp.Case, exp.Connector, exp.Not, exp.Exists, exp.Extract, exp.TimestampTrunc, exp.TimeToUnix, exp.Pad,
    exp.StrPosition, exp.DateFromParts, exp.RegexpLike, exp.TimeToStr, exp.StrToTime, exp.DateBin, exp.UnixToTime,
    exp.PercentileCont, exp.PercentileDisc, exp.Grouping,
)  # fmt: skip
"""what is no call, or is called otherwise in sqlglot than in DuckDB"""


def function_name(call: exp.Func) -> str:
    """What a function is called in the statement."""
    return (call.name if isinstance(call, exp.Anonymous) else call.sql_name()).lower()
