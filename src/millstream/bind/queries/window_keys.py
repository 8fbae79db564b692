"""Windows in GROUP BY: Spark's `window(ts, '10 minutes')` and `session_window`, `TUMBLE(ts, …)` as Flink had it first,
`date_trunc` and `time_bucket` of a stream's time. Each means a window table, and is rewritten to one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from sqlglot import exp

from millstream.bind.aggregates.groups import has_aggregate
from millstream.bind.aggregates.keys import key_meant
from millstream.bind.context import Context
from millstream.bind.expressions import call_of
from millstream.bind.queries.grouped_windows import each_part
from millstream.bind.queries.outputs import output_name
from millstream.bind.scope import Scope
from millstream.plan import nodes as P
from millstream.plan.window_columns import window_columns
from millstream.plan.window_tables import END, START
from millstream.records import dataclass
from millstream.sql import duration_us, to_sql
from millstream.sql.durations import MICROSECONDS
from millstream.sql.nodes import WindowTable
from millstream.types import TIMESTAMP

_STRUCTS = {"window": ("HOP", ("size", "slide", "offset")), "session_window": ("SESSION", ("gap",))}
"""Spark's functions: their value is a struct with the fields start and end."""
_CALLS = {"tumble": ("TUMBLE", ("size",)), "hop": ("HOP", ("slide", "size")), "session": ("SESSION", ("gap",))}
"""Functions without a value of their own; TUMBLE_START(…) and TUMBLE_END(…) with the same arguments are the bounds."""
_BUCKETS = ("date_trunc", "time_bucket", "date_bin")
"""Functions whose value is the start of the window."""
_ALL = frozenset((*_STRUCTS, *_CALLS, *_BUCKETS))
_BOUNDS = {"start": START, "end": END, "rowtime": "window_time"}
_FIRST_BUCKET = 946_857_600_000_000
"""2000-01-03, a Monday: DuckDB, Timescale and PostgreSQL's date_bin count buckets from there."""
_CLAUSES = ("expressions", "having", "order", "qualify", "windows")


@dataclass(frozen=True)
class _WindowKey:
    """A key of GROUP BY that stands for a window."""

    node: exp.Func
    """the key as it is written"""
    table: WindowTable
    """the window table that it means, without rows"""
    is_struct: bool = False
    """whether its value is the window, with its start and its end"""
    bounds: dict[str, str] = field(default_factory=dict)
    """functions that tell a bound of the window, and the column that holds it"""


def has_window_key(select: exp.Select, context: Context) -> bool:
    """Whether a SELECT groups by what may be a window."""
    return any(isinstance(node, exp.Func) and call_of(node)[0] in _ALL for node in _keys(select, context))


def with_window_table(select: exp.Select, plan: P.Node, scope: Scope, context: Context) -> exp.Select:
    """The SELECT with the window of its GROUP BY in FROM, if it has one; `plan` and `scope` are those of its FROM."""
    if plan.kind is not P.Kind.EVENTS or window_columns(plan) is not None:
        return select
    nodes = [node for node in _keys(select, context, scope.knows) if not has_aggregate(node, context)]
    found = [key for node in nodes if (key := _window_key(node, plan, context)) is not None]
    if not found:
        return select
    if any(other.node != found[0].node for other in found):
        context.fail("GROUP BY has two windows", found[-1].node, hint="group by one of them, and aggregate twice")
    key = found[0]
    names = {item.alias.lower() for item in select.expressions if item.unalias() == key.node} - {""}
    names |= {call_of(key.node)[0]} if key.is_struct else set()
    groups = _Groups(key, frozenset(names), context)
    others = [node for node in nodes if node != key.node]
    whole = select.copy()
    _put_into_from(whole, key, others, context)
    for clause in _CLAUSES:
        whole.set(clause, each_part(whole.args.get(clause), groups.reading))
    for item, read in zip(select.expressions, list(whole.expressions), strict=True):
        if item != read and not isinstance(item, exp.Alias):
            read.replace(exp.alias_(read.copy(), output_name(item), quoted=True))
    keys = [groups.reading(node.copy()) for node in others]
    whole.set("group", _placed(exp.Group(expressions=[*keys, *_both(key.node)]), select.args["group"]))
    return whole


def _keys(
    select: exp.Select, context: Context, is_column: Callable[[str], bool] = lambda name: False
) -> list[exp.Expr]:
    """What a SELECT groups by; with GROUP BY ALL, what it may group by."""
    group = select.args.get("group")
    if group is None:
        return []
    every = select.expressions if group.args.get("all") else []
    keys = [key_meant(node, select.expressions, context, is_column) for node in group.expressions]
    return [*keys, *(item.unalias() for item in every)]


def _window_key(node: exp.Expr, plan: P.Node, context: Context) -> _WindowKey | None:
    if not isinstance(node, exp.Func):
        return None
    name, arguments = call_of(node)
    if name in _BUCKETS:
        return _bucket(node, plan, context)
    if name not in _ALL:
        return None
    kind, spans = (_STRUCTS | _CALLS)[name]
    least = len(spans) if name in _CALLS else 1
    if not least < len(arguments) <= len(spans) + 1 or not isinstance(arguments[0], exp.Column):
        context.fail(
            f"{name} in GROUP BY takes the time column and {' and '.join(spans[:least])}",
            node,
            hint=f"GROUP BY {name}(ts, {', '.join(['INTERVAL 1 MINUTE'] * least)})",
        )
    given = dict(zip(spans, map(_span, arguments[1:]), strict=False))
    if kind == "HOP" and "slide" not in given:
        kind = "TUMBLE"
    bounds = {} if name in _STRUCTS else {f"{name}_{bound}": column for bound, column in _BOUNDS.items()}
    return _WindowKey(node, WindowTable(kind=kind, time=arguments[0].copy(), **given), name in _STRUCTS, bounds)


def _bucket(node: exp.Func, plan: P.Node, context: Context) -> _WindowKey | None:
    """A function of the time that is the same for all rows of a window; None if it is of something else."""
    name, arguments = call_of(node)
    time = arguments[-1]
    if len(arguments) != 2 or not isinstance(time, exp.Column) or not _is_time(time, plan, context):
        return None
    if name == "date_trunc":
        length = MICROSECONDS.get(arguments[0].name.upper())
        # weeks begin on Mondays
        first = _FIRST_BUCKET if length == MICROSECONDS["WEEK"] else 0
    else:
        length, first = duration_us(arguments[0]), _FIRST_BUCKET
    if length is None or length <= 0:
        return None
    table = WindowTable(kind="TUMBLE", time=time.copy(), size=_micros(length))
    if first % length:
        table.set("offset", _micros(first % length))
    return _WindowKey(node, table)


def _is_time(column: exp.Column, plan: P.Node, context: Context) -> bool:
    """Whether a column holds the time of the rows, as a TIMESTAMP: in other types a day depends on a zone."""
    return any(
        name.rpartition(".")[2].lower() == column.name.lower() and plan.schema[name].type == TIMESTAMP
        for name in context.time_columns(plan)
    )


def _span(node: exp.Expr) -> exp.Expr:
    """A length of time, which Spark's functions take as text."""
    if isinstance(node, exp.Literal) and node.is_string:
        return _placed(exp.Interval(this=exp.Literal.string(node.name)), node)
    return node.copy()


def _micros(length: int) -> exp.Interval:
    return exp.Interval(this=exp.Literal.string(str(length)), unit=exp.Var(this="MICROSECOND"))


def _put_into_from(select: exp.Select, key: _WindowKey, others: list[exp.Expr], context: Context) -> None:
    """Put the window table into FROM, over the entry that has its time."""
    table, from_, joins = key.table, select.args["from_"], select.args.get("joins") or []
    entries = [from_, *joins]
    named = [entry for entry in entries if entry.this.alias_or_name.lower() == table.time.table.lower()]
    holder = (named or entries)[0]
    rows = holder.this
    if table.kind == "SESSION":
        # sessions are of the rows that WHERE leaves, and of each of the other keys
        if joins:
            context.refuse(
                "sessions in GROUP BY over a join",
                key.node,
                hint="join in a subquery, and GROUP BY over it",
            )
        if (other := next((node for node in others if not isinstance(node, exp.Column)), None)) is not None:
            context.refuse(
                "sessions in GROUP BY need columns as other keys", other, hint="compute this key in a subquery"
            )
        table.set("partition", [node.copy() for node in others])
        if (where := select.args.get("where")) is not None:
            inner = exp.Select(expressions=[exp.Star()], from_=exp.From(this=rows.copy()), where=where.copy())
            rows = exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier(rows.alias_or_name)))
            select.set("where", None)
    table.set("this", rows.copy())
    holder.set("this", exp.Table(this=_placed(table, key.node)))


@dataclass(frozen=True)
class _Groups:
    """The groups of a SELECT, one of whose keys is a window; `names` are those that the window has."""

    key: _WindowKey
    names: frozenset[str]
    context: Context

    def reading(self, node: exp.Expr) -> exp.Expr:
        """An expression over the groups that reads the window from the columns of its table."""
        if isinstance(node, exp.Query):
            return node
        if self._is_window(node):
            return self._value(node)
        if self._is_bound(node):
            return _column(_BOUNDS[node.name.lower()], node)
        if isinstance(node, exp.Func) and (column := self.key.bounds.get(call_of(node)[0])) is not None:
            self._check_same(node)
            return _column(column, node)
        if isinstance(node, exp.Window) and node.args.get("partition_by"):
            node.set("partition_by", [part for given in node.args["partition_by"] for part in self._partition(given)])
        for argument, value in list(node.args.items()):
            node.set(argument, each_part(value, self.reading))
        return node

    def _is_window(self, node: exp.Expr) -> bool:
        is_named = isinstance(node, exp.Column) and not node.table and node.name.lower() in self.names
        return node == self.key.node or (is_named and self.key.is_struct)

    def _is_bound(self, node: exp.Expr) -> bool:
        """Whether this is the start or the end of the window, as a field of it."""
        is_field = isinstance(node, exp.Column) and node.table.lower() in self.names and self.key.is_struct
        return is_field and node.name.lower() in ("start", "end")

    def _partition(self, node: exp.Expr) -> list[exp.Expr]:
        """A key of PARTITION BY; rows are complete when their window has ended, so both bounds are keys."""
        if self._is_window(node) or (self._is_bound(node) and self.key.table.kind != "SESSION"):
            return _both(node)
        return [node]

    def _value(self, at: exp.Expr) -> exp.Expr:
        """The value of the key itself."""
        if self.key.bounds:
            self.context.fail("a window is not a value here", at, hint=f"select {', '.join(self.key.bounds)}".lower())
        if not self.key.is_struct:
            return _column(START, at)
        bounds = zip(("start", "end"), _both(at), strict=True)
        fields = [exp.Kwarg(this=exp.to_identifier(name), expression=column) for name, column in bounds]
        return _placed(exp.Anonymous(this="struct_pack", expressions=fields), at)

    def _check_same(self, node: exp.Func) -> None:
        given, meant = (list(map(to_sql, call_of(each)[1])) for each in (node, self.key.node))
        if given != meant:
            self.context.fail(
                f"{call_of(node)[0]} does not match the window in GROUP BY",
                node,
                hint=f"GROUP BY has {to_sql(self.key.node)}",
            )


def _both(at: exp.Expr) -> list[exp.Expr]:
    return [_column(START, at), _column(END, at)]


def _column(name: str, at: exp.Expr) -> exp.Expr:
    return _placed(exp.column(name), at)


def _placed(made: exp.Expr, at: exp.Expr) -> exp.Expr:
    """What stands in the place of another node is underlined there."""
    made.meta.update((key, at.meta[key]) for key in ("start", "end") if key in at.meta)
    return made
