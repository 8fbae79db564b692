"""What FOLD computes with each event: expressions, and aggregates over the events taken so far."""

from __future__ import annotations

from millstream.bind.aggregates.calls import WrittenCall, bind_builtin, depends_on_order, is_idempotent
from millstream.bind.context import Context
from millstream.bind.events.conditions import EventConditions, EventNames
from millstream.bind.expressions import in_words
from millstream.expressions.nodes import Column, Expr
from millstream.plan.aggregate_calls import AggregateCall


class FoldValues(EventConditions):
    """Binds the third part of FOLD. An aggregate becomes a column that the fold has beside others."""

    def __init__(self, context: Context, names: EventNames) -> None:
        super().__init__(context, names)
        self._found: dict[tuple[str, tuple[Expr, ...]], AggregateCall[Expr]] = {}

    @property
    def aggregates(self) -> tuple[AggregateCall[Expr], ...]:
        return tuple(self._found.values())

    def _aggregate(self, call: WrittenCall) -> Expr:
        if call.is_own:
            self.context.refuse(
                f"{call.name} is not supported in FOLD",
                call.node,
                hint="built-in aggregates are, and expressions with $.",
            )
        if call.distinct and not is_idempotent(call):
            self.context.refuse(
                "DISTINCT is not supported in FOLD", call.node, hint="remove duplicates from the stream first"
            )
        if call.order and depends_on_order(call):
            self.context.refuse(
                "ORDER BY is not supported in FOLD", call.node, hint="events are processed in time order"
            )
        builtin = bind_builtin(call, EventConditions(self.context, self.names))
        for arg in builtin.args if builtin.fn != "count" else ():
            is_wide = arg.type.is_nested or (arg.type.name == "DECIMAL" and arg.type.precision > 18)
            if is_wide or arg.type.name in ("BLOB", "NULL"):
                self.context.refuse(f"{call.name} of {arg.type} is not supported in FOLD", call.node)
        key = builtin.fn, builtin.args
        if key not in self._found:
            self._found[key] = AggregateCall((f"$a{len(self._found)}",), builtin.fn, builtin.args, builtin.types)
        found = self._found[key]
        return in_words(Column(found.type, found.name), call.node)
