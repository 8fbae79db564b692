"""The rows in which a pattern is looked for: what may be searched, by which partitions, in which order."""

from __future__ import annotations

from sqlglot import exp

from millstream.bind.aggregates.groups import Arguments
from millstream.bind.context import Context
from millstream.bind.expressions import ExpressionBinder
from millstream.bind.queries.outputs import output_name
from millstream.bind.scope import Item, Scope
from millstream.expressions.nested_codes import order_of
from millstream.expressions.nodes import Column, Expr
from millstream.plan import nodes as P
from millstream.plan.ties import SortKey, Ties
from millstream.records import dataclass
from millstream.schema import unique_names
from millstream.sql import to_sql


@dataclass(frozen=True)
class Arranged:
    """Rows as a search goes through them.

    An expression of PARTITION BY is a column of the rows like any other; one of ORDER BY is `hidden`.
    """

    rows: P.Node
    keys: tuple[str, ...]
    computed: tuple[tuple[exp.Expr, str], ...]
    """the expressions of PARTITION BY, and the columns that hold them"""
    ordered: tuple[str, ...]
    """the columns of ORDER BY"""
    hidden: frozenset[str]


def require_events(rows: P.Node, word: str, node: exp.Expr, context: Context) -> None:
    """Refuse rows that are not events."""
    if rows.kind is P.Kind.RELATION:
        context.refuse(
            f"{word} needs events, not a relation",
            node,
            detail="its rows are valid for some time and have no order",
            hint="leave the window out, or turn the relation into events: ISTREAM(…)",
        )
    if rows.kind is P.Kind.TABLE:
        context.refuse(
            f"{word} needs a stream",
            node,
            detail="a table's rows have no time, and no order",
            hint="declare a stream with ORDER BY column",
        )


def arranged(
    rows: P.Node, partition: list[exp.Expr], order: list[exp.Expr], alias: str, context: Context,
    clause: str = "ORDER BY",
) -> Arranged:  # fmt: skip
    """Rows in the order of ORDER BY; those of equal times wait for each other if it has more than the time."""
    rows, columns = _computed(rows, partition, alias, "PARTITION BY", context)
    keys = tuple(dict.fromkeys(columns))
    computed = ((_bare(node), name) for node, name in zip(partition, columns, strict=True))
    below = rows
    rows, names = _computed(rows, [_bare(node) for node in order], alias, clause, context)
    parts = [
        SortKey(name, bool(node.args.get("desc")), bool(node.args.get("nulls_first")))
        for name, node in zip(names, order, strict=True)
    ]
    times = context.time_columns(rows)
    if parts and (parts[0].column not in times or parts[0].down):
        context.refuse(
            "a stream is ordered by its time",
            order[0],
            detail="rows are searched in time order; further columns order rows with equal times",
            hint=f"{clause} {sorted(times)[0]}" if times else f"leave {clause} out: rows are searched in arrival order",
        )
    ties = tuple(part for part in parts[1:] if part.column not in times and part.column not in keys)
    shown = tuple(name for name in names if name in below.schema)
    hidden = frozenset(name for name in names if name not in below.schema)
    return Arranged(Ties(rows, keys, ties) if ties else rows, keys, tuple(computed), shown, hidden)


def _bare(node: exp.Expr) -> exp.Expr:
    """An expression without its name, or its direction."""
    return node.this if isinstance(node, exp.Alias | exp.Ordered) else node


def _computed(
    rows: P.Node, nodes: list[exp.Expr], alias: str, clause: str, context: Context
) -> tuple[P.Node, tuple[str, ...]]:
    """The rows with what the expressions are, each in a column; and the names of these columns."""
    scope = Scope(context, (Item(alias, rows.schema),))
    expressions: ExpressionBinder = Arguments(context, scope, f"in {clause}")
    names: list[str] = []
    added: dict[str, Expr] = {}
    for node in nodes:
        expr = expressions.bind(_bare(node))
        if clause != "PARTITION BY":
            expr = order_of(expr)
        is_named = isinstance(node, exp.Alias)
        if isinstance(expr, Column) and not is_named:
            names.append(expr.name)
            continue
        wanted = output_name(node) if clause == "PARTITION BY" else to_sql(node)
        own = unique_names((*rows.schema.names, *added, wanted))[-1]
        if is_named and own != wanted:
            context.fail(f"there is a column {wanted} already", node, hint="use another name")
        added[own] = expr
        names.append(own)
    return (P.Project(rows, (*P.passthrough(rows.schema), *added.items())) if added else rows), tuple(names)
