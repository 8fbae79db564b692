"""OVER inside windows that end: once all rows of a partition have come they can be sorted by anything."""

from __future__ import annotations

from millstream.expressions import functions
from millstream.expressions.nodes import Column, Expr, Literal
from millstream.plan import nodes as P
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.programs.builder import Builder
from millstream.plan.programs.nodes import Insert, Order, Program, Rows
from millstream.plan.window_columns import window_columns
from millstream.plan.window_tables import Hopping
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import BIGINT, INTERVAL, SqlType


@dataclass(frozen=True)
class Sorting:
    """Partitions that are complete when time has passed the value of their column `end`, and their order."""

    keys: tuple[str, ...]
    end: str
    order: tuple[tuple[str, bool, bool], ...]
    """columns; whether the highest comes first, and whether NULLs do"""


def end_of(plan: P.Node, keys: tuple[str, ...]) -> str | None:
    """The column that tells when the partitions by these keys are complete; None if they never are."""
    if (ends := group_end(plan)) is not None:
        return ends if ends in keys else None
    windows = window_columns(plan)
    if windows is None or windows.end is None:
        return None
    # Windows of one length that begin together end together.
    is_same = isinstance(windows.table, P.AssignWindows) and isinstance(windows.table.windows, Hopping)
    return windows.end if windows.end in keys or (is_same and windows.start in keys) else None


def group_end(plan: P.Node) -> str | None:
    """The column that holds the end of the groups which a plan's rows are."""
    match plan:
        case P.Group(ends=ends):
            return ends
        case P.Filter(input=below) | P.Over(input=below):
            return group_end(below)
        case P.Project(input=below, columns=columns):
            inner = group_end(below)
            return next((name for name, expr in columns if isinstance(expr, Column) and expr.name == inner), None)
    return None


def sort_partitions(plan: P.Node, sorting: Sorting) -> tuple[P.Node, tuple[str, ...]]:
    """The rows of each partition in its order, when it is complete; and the columns that tell partitions apart."""
    end, type_ = sorting.end, plan.schema[sorting.end].type
    added: dict[str, Expr] = {}
    if group_end(plan) is not None:
        # The time of a group's row is the group's end. Others of that time may still come; a tick later none does.
        end = "$passed"
        added[end] = functions.resolve("+", (Column(type_, sorting.end), _tick(type_)))
    keys = tuple(dict.fromkeys((*sorting.keys, end)))
    if set(plan.schema.names) <= set(keys):
        added["$row"] = Literal(BIGINT, 0)
    if added:
        plan = P.Project(plan, (*P.passthrough(plan.schema), *added.items()))
    others = tuple(name for name in plan.schema.names if name not in keys)
    program = _sorted_rows([plan.schema[name].type for name in others], _orders(sorting, others))
    types = tuple(plan.schema[name].type for name in others)
    return P.Group(plan, keys, (AggregateCall(others, program.name, others, types, program=program),), end), keys


def _tick(type_: SqlType) -> Expr:
    return Literal(BIGINT if type_.is_integer else INTERVAL, 1)


def _orders(sorting: Sorting, columns: tuple[str, ...]) -> list[tuple[int, bool, bool]]:
    """The order by the places of columns; a key is the same in the whole partition."""
    return [(columns.index(name), down, nulls) for name, down, nulls in sorting.order if name in columns]


def _sorted_rows(types: list[SqlType], orders: list[tuple[int, bool, bool]]) -> Program:
    """A program that gives back its arguments in another order."""
    schema = Schema(tuple(Field(f"c{i}", type_) for i, type_ in enumerate(types)))
    build = Builder("sorted", schema, schema, kept=schema)
    keep = build.values("kept", *(build.param(field.name) for field in schema))
    kept = build.use("kept")
    order = tuple(Order(kept[f"c{place}"], down, nulls) for place, down, nulls in orders)
    rows = Rows(tuple(kept[field.name] for field in schema), (kept.range,), order=order)
    return build.program([keep], [keep], terminate=[Insert(None, (rows,))])
