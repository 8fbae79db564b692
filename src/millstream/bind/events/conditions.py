"""Conditions inside braces: columns of the inputs by `$1`, `$2` and `$`, and DUR."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from millstream.bind.aggregates.calls import WrittenCall, aggregate_call
from millstream.bind.context import Context
from millstream.bind.expressions import ExpressionBinder
from millstream.bind.scope import did_you_mean
from millstream.expressions.nodes import Column, Expr
from millstream.plan.events.algebra import DUR
from millstream.records import dataclass
from millstream.sql.event_nodes import DECORATORS
from millstream.types import SqlType

_TIMES = frozenset(("start", "end", "t0", "t1"))
_NAMES = {"$1": "the first input", "$2": "the second input", "$": "the last iteration"}


@dataclass(frozen=True)
class EventNames:
    """What names mean in the braces of an operator: for each decorator the columns by lower-case name. `duration` is
    the type of DUR."""

    operator: str
    inputs: Mapping[str, Mapping[str, Column]]
    duration: SqlType | None


class EventConditions(ExpressionBinder):
    """Binds what stands in the braces of an operator."""

    def __init__(self, context: Context, names: EventNames) -> None:
        super().__init__(context, None)
        self.names = names
        self.asks_duration = False

    def bind(self, node: exp.Expr) -> Expr:
        call = aggregate_call(node, self.context)
        return super().bind(node) if call is None else self._aggregate(call)

    def _aggregate(self, call: WrittenCall) -> Expr:
        return self.context.fail(
            f"{call.name} is not allowed here",
            call.node,
            detail="aggregates are only allowed in the third part of FOLD, and not inside each other",
            hint="FOLD{…, …, count(*) AS n} computes one; $.n is its previous value",
        )

    def _column(self, node: exp.Column) -> Expr:
        if node.args.get("db") is not None or node.args.get("catalog") is not None:
            self.context.fail(
                "decorators do not nest",
                node,
                detail="an input is one stream with one list of columns",
                hint="use the column name of that stream, such as $1.price_1",
            )
        qualifier, name = node.table, node.name
        if not qualifier and name.startswith("$") and name[1:] in self.context.parameters:
            return super()._column(node)
        if qualifier in DECORATORS:
            return self._decorated(node, qualifier, name)
        if qualifier:
            self.context.fail(
                f"no {qualifier} inside braces",
                node,
                hint="$1 is the first input, $2 the second, $ the last iteration",
            )
        return self._plain(node, name)

    def _decorated(self, node: exp.Column, decorator: str, name: str) -> Expr:
        if decorator not in self.names.inputs:
            hint = "$. is for FOLD, where there are iterations" if decorator == "$" else "FILTER has one input, $1"
            self.context.fail(f"{decorator}.{name} has no meaning in {self.names.operator}", node, hint=hint)
        found = self.names.inputs[decorator].get(name.lower())
        if found is None:
            self._refuse_times(node, name)
            known = [column.said or column.name for column in self.names.inputs[decorator].values()]
            self.context.fail(f"no column {name} in {_NAMES[decorator]}", node, hint=did_you_mean(name, known))
        return found

    def _plain(self, node: exp.Column, name: str) -> Expr:
        key = name.lower()
        found = {decorator: columns[key] for decorator, columns in self.names.inputs.items() if key in columns}
        if len({column.name for column in found.values()}) > 1:
            self.context.fail(
                f"column {name} is ambiguous",
                node,
                hint="write " + " or ".join(f"{decorator}.{name}" for decorator in found),
            )
        if found:
            return next(iter(found.values()))
        if key == "dur" and self.names.duration is not None:
            self.asks_duration = True
            return Column(self.names.duration, DUR, "DUR")
        self._refuse_times(node, name)
        known = [column.said or column.name for columns in self.names.inputs.values() for column in columns.values()]
        return self.context.fail(f"no column {name}", node, hint=did_you_mean(name, list(dict.fromkeys(known))))

    def _refuse_times(self, node: exp.Column, name: str) -> None:
        if name.lower() in _TIMES:
            self.context.fail(
                f"the {name} of an event cannot be read",
                node,
                detail="conditions can use the duration of events, not their times",
                hint="DUR is the duration from the first event to the last, as in DUR >= 10 MINUTES",
            )
