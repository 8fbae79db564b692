"""What queries over objects need besides loops: order, DISTINCT, LIMIT, and what subqueries give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.errors import DataError
from millstream.expressions.object_values import equality_key, float_key, order_key
from millstream.plan.programs.nodes import Order, Rows, ScalarQuery

Found = list[tuple[list[Any], list[Any]]]
"""The rows of a query, each beside what they are ordered by."""


def once(memory: list[Any], ask: Callable[[], Any]) -> Any:
    """What is asked, remembered."""
    if not memory:
        memory.append(ask())
    return memory[0]


def is_in(value: Any, values: set[Any], is_float: bool) -> bool | None:
    """Whether a value is among others, with SQL's NULLs."""
    if not values:
        return False
    if value is None:
        return None
    return True if (float_key(value) if is_float else value) in values else (None if None in values else False)


def only_value(expr: ScalarQuery) -> Callable[[list[list[Any]]], Any]:
    """What takes the value out of the only row."""

    def take(found: list[list[Any]]) -> Any:
        if len(found) > 1:
            raise DataError(
                f"a subquery used as a value returned {len(found)} rows: {expr}",
                hint="return at most one row, with an aggregate or LIMIT 1",
            )
        return found[0][0] if found else None

    return take


def finished(query: Rows) -> Callable[[Found], list[list[Any]]]:
    """ORDER BY, DISTINCT and LIMIT of a query."""
    keys = [equality_key(column.type) for column in query.columns]

    def finish(found: Found) -> list[list[Any]]:
        for place in reversed(range(len(query.order))):
            found = _sorted(found, place, query.order[place])
        rows = [row for _, row in found]
        if query.distinct:
            first: dict[Any, list[Any]] = {}
            for row in rows:
                first.setdefault(tuple(v if k is None else k(v) for k, v in zip(keys, row, strict=True)), row)
            rows = list(first.values())
        return rows if query.limit is None else rows[: query.limit]

    return finish


def _sorted(found: Found, place: int, order: Order) -> Found:
    """A stable sort by one of the keys."""
    key = order_key(order.key.type)
    nulls = [entry for entry in found if entry[0][place] is None]
    others = [entry for entry in found if entry[0][place] is not None]
    others.sort(key=lambda entry: entry[0][place] if key is None else key(entry[0][place]), reverse=order.descending)
    return [*nulls, *others] if order.nulls_first else [*others, *nulls]
