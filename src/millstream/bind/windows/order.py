"""OVER inside windows that end: complete partitions can be sorted by anything."""

from __future__ import annotations

from millstream.expressions import functions
from millstream.expressions.nodes import Column, Expr, Literal
from millstream.plan import nodes as P
from millstream.plan.arrangements import ArrangedCall, Arrangement
from millstream.plan.relations import arranged_call
from millstream.plan.ties import SortKey
from millstream.plan.window_columns import window_columns
from millstream.records import dataclass
from millstream.schema import unique_names
from millstream.types import BIGINT, INTERVAL, SqlType

_ARRIVED = "$arrived"


@dataclass(frozen=True)
class Sorting:
    """Partitions that are complete when time has passed the value of their column `end`, and their order."""

    keys: tuple[str, ...]
    end: str
    order: tuple[SortKey, ...]


def end_of(plan: P.Node, keys: tuple[str, ...]) -> str | None:
    """The column that tells when the partitions by these keys are complete; None if they never are."""
    if (ends := group_end(plan)) is not None:
        return ends if ends in keys else None
    windows = window_columns(plan)
    if windows is None or windows.end is None:
        return None
    is_same = windows.end_together and windows.start in keys
    return windows.end if windows.end in keys or is_same else None


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


def sort_partitions(
    plan: P.Node, sorting: Sorting, calls: tuple[ArrangedCall, ...], again: bool
) -> tuple[P.Node, tuple[str, ...]]:
    """The rows of each partition in its order, when it is complete, with calls over all of them; and the columns that
    tell partitions apart. Rows of equal order are as they came, also if they are sorted `again`."""
    end, type_ = sorting.end, plan.schema[sorting.end].type
    added: dict[str, Expr] = {}
    if group_end(plan) is not None:
        # The time of a group's row is the group's end. Others of that time may still come; a tick later none does.
        end = unique_names((*plan.schema.names, "$passed"))[-1]
        added[end] = functions.resolve("+", (Column(type_, sorting.end), _tick(type_)))
    keys = tuple(dict.fromkeys((*sorting.keys, end)))
    if set(plan.schema.names) <= set(keys):
        added["$row"] = Literal(BIGINT, 0)
    if added:
        plan = P.Project(plan, (*P.passthrough(plan.schema), *added.items()))
    ties = (_ARRIVED,) if _ARRIVED in plan.schema else ()
    if again and not ties:
        calls = (*calls, ArrangedCall(_ARRIVED, "arrived", (), BIGINT))
    call = arranged_call(plan.schema, keys, Arrangement(sorting.order, calls, ties))
    return P.Group(plan, keys, (call,), end), keys


def _tick(type_: SqlType) -> Expr:
    return Literal(BIGINT if type_.is_integer else INTERVAL, 1)
