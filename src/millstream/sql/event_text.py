"""The event algebra as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp
from sqlglot.generator import Generator

from millstream.sql.event_nodes import EventAggregate, EventExpression, EventFilter, EventFold, EventNext, second_input


def _input(self: Generator, node: exp.Expr) -> str:
    text = self.sql(node)
    return text if isinstance(node, exp.Subquery) and not node.args.get("alias") else f"({text})"


def _item(text: str, self: Generator, node: EventExpression) -> str:
    alias = self.sql(node, "alias")
    return text + (f" AS {alias}" if alias else "") + self.expressions(node, key="joins", sep="", flat=True)


def _filter(self: Generator, node: EventFilter) -> str:
    return _item(f"FILTER{{{self.sql(node, 'condition')}}} {_input(self, node.this)}", self, node)


def _next(self: Generator, node: EventNext) -> str:
    condition = f"{{{self.sql(node, 'condition')}}}" if node.condition is not None else ""
    return _item(f"{_input(self, node.this)} NEXT{condition} {_input(self, second_input(node))}", self, node)


def _fold(self: Generator, node: EventFold) -> str:
    parts = (self.sql(node, "condition"), self.sql(node, "continues"), self.expressions(node, flat=True))
    braces = "FOLD{" + ", ".join(parts) + "}"
    return _item(f"{_input(self, node.this)} {braces} {_input(self, second_input(node))}", self, node)


def _aggregate(self: Generator, node: EventAggregate) -> str:
    keys = ", ".join(map(self.sql, node.keys))
    inside = self.expressions(node, flat=True) + (f" BY {keys}" if keys else "")
    return _item(f"AGGREGATE{{{inside}}} {_input(self, node.this)}", self, node)


EVENT_PRINTERS: dict[type[exp.Expr], Callable[[Any, Any], str]] = {
    EventFilter: _filter,
    EventNext: _next,
    EventFold: _fold,
    EventAggregate: _aggregate,
}
