"""ORDER BY … LIMIT over window tables: the first rows of each window, once it has ended."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from millstream.bind.aggregates.keys import item_at
from millstream.bind.context import Context
from millstream.bind.queries.outputs import Bound
from millstream.plan import nodes as P
from millstream.plan.window_columns import window_columns
from millstream.sql import parse

_END = "$limit.end"


def limits_windows(select: exp.Select, plan: P.Node) -> bool:
    """Whether a SELECT asks for the first rows of each window."""
    asks = select.args.get("limit") is not None and select.args.get("order") is not None
    return asks and plan.kind is P.Kind.EVENTS and window_columns(plan) is not None


def bind_window_limit(select: exp.Select, context: Context, bind: Callable[[exp.Select], Bound]) -> Bound:
    """The same rows, numbered in each window in the order that is asked for, and the first of them."""
    first = row_count(select.args.get("offset"), context)
    last = first + row_count(select.args["limit"], context)
    inner, order, hidden = with_order_columns(select, "$limit")
    end = exp.column("window_end")
    if (group := inner.args.get("group")) is not None:
        group.append("expressions", end.copy())
    # before the others, so that the window's end is known by this name
    inner.set("expressions", [exp.alias_(end, _END, quoted=True), *inner.expressions])
    left_out = ", ".join(f'"{name}"' for name in (_END, *hidden))
    numbering = f'row_number() OVER (PARTITION BY "{_END}" ORDER BY 1)'
    outer = parse(f'SELECT * EXCLUDE ({left_out}) FROM "t" QUALIFY {numbering} BETWEEN {first + 1} AND {last}')[0].ast
    assert isinstance(outer, exp.Select)
    outer.args["from_"].set("this", exp.Subquery(this=inner))
    numbered = outer.find(exp.Window)
    assert numbered is not None
    numbered.args["order"].set("expressions", order)
    for node in outer.walk():
        node.meta.update({key: select.meta[key] for key in ("start", "end") if key in select.meta and not node.meta})
    return bind(outer)


def with_order_columns(select: exp.Select, prefix: str) -> tuple[exp.Select, list[exp.Ordered], list[str]]:
    """A SELECT without ORDER BY and LIMIT, whose columns have all that it is ordered by: the order by their names, and
    the names of those that were added behind the others."""
    inner = select.copy()
    for clause in ("order", "limit", "offset", "with_", "stream_of", "publish"):
        inner.set(clause, None)
    items = select.expressions
    named = {item.alias_or_name.lower() for item in items if not isinstance(item, exp.Star)}
    hidden: list[str] = []
    order = []
    for number, part in enumerate(select.args["order"].expressions):
        wanted = part.this
        if (item := item_at(wanted, items)) is not None:
            wanted = exp.column(item.alias_or_name) if item.alias_or_name else item
        if not (isinstance(wanted, exp.Column) and not wanted.table and wanted.name.lower() in named):
            hidden.append(f"{prefix}.{number}")
            inner.append("expressions", exp.alias_(wanted.copy(), hidden[-1], quoted=True))
            wanted = exp.column(exp.to_identifier(hidden[-1], quoted=True))
        sorting = part.copy()
        sorting.set("this", wanted.copy())
        order.append(sorting)
    return inner, order, hidden


def row_count(clause: exp.Expr | None, context: Context) -> int:
    """How many rows LIMIT or OFFSET says."""
    if clause is None:
        return 0
    number = clause.expression
    if not isinstance(number, exp.Literal) or number.is_string or not number.name.isdigit():
        context.fail(f"{type(clause).__name__.upper()} takes a whole number", clause)
    return int(number.name)
