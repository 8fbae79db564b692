"""FILTER, NEXT, FOLD and AGGREGATE in FROM → logical plan."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.events.conditions import EventConditions, EventNames
from millstream.bind.events.folded import FoldValues
from millstream.bind.expressions import coerce
from millstream.bind.relations.windows import check_clocks
from millstream.expressions.nodes import Column, Expr, Literal, columns_of, substitute
from millstream.plan import nodes as P
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.events.algebra import DUR, LAST, Fold, Next, Times
from millstream.sql.event_nodes import EventAggregate, EventExpression, EventFilter, EventFold, EventNext, second_input
from millstream.types import BIGINT, INTERVAL, NULL, SqlType, common_type

_MOST_ROUNDS = 8

Entry = Callable[[exp.Expr], P.Node]
"""binds an input: an entry of FROM"""


def bind_events(node: EventExpression, context: Context, entry: Entry) -> P.Node:
    """The plan of an expression of the event algebra."""
    match node:
        case EventFilter():
            return _filter(node, _input(node.this, context, entry), context)
        case EventNext():
            return _next(node, *_inputs(node, context, entry), context)
        case EventFold():
            return _FoldBinder(node, *_inputs(node, context, entry), context).bind()
        case EventAggregate():
            from millstream.bind.events.instants import bind_instants

            return bind_instants(node, context)
    raise AssertionError(node)


def _input(node: exp.Expr, context: Context, entry: Entry) -> P.Node:
    plan = bind_events(node, context, entry) if isinstance(node, EventExpression) else entry(node)
    if plan.kind is P.Kind.EVENTS:
        return plan
    if plan.kind is P.Kind.TABLE:
        context.refuse("a stored table has no events", node, hint="name a stream")
    return context.refuse(
        "a relation has no events",
        node,
        detail="its rows are valid for some time, not at a single instant",
        hint="turn its rows into events: (SELECT ISTREAM(…) FROM …)",
    )


def _inputs(node: EventExpression, context: Context, entry: Entry) -> tuple[P.Node, P.Node]:
    first, second = _input(node.this, context, entry), _input(second_input(node), context, entry)
    word = "NEXT" if isinstance(node, EventNext) else "FOLD"
    check_clocks((first, second), word, node, context)
    if duration_type(context, first) != duration_type(context, second):
        context.refuse(
            f"{word} of a stream ordered by a number and one ordered by time",
            node,
            hint="declare both with ORDER BY a column of the same kind",
        )
    return first, second


def duration_type(context: Context, plan: P.Node) -> SqlType:
    """The type of DUR: a number where streams are ordered by one."""
    return BIGINT if context.time_type(plan) == BIGINT else INTERVAL


def _named(plan: P.Node, name: Callable[[str], str] = str) -> dict[str, Column]:
    """Columns by what they are called in conditions; `name` tells what they are called in the plan."""
    return {field.name.lower(): Column(field.type, name(field.name), field.name) for field in plan.schema}


# -- FILTER ----------------------------------------------------------------------------------------------------------


def _filter(node: EventFilter, plan: P.Node, context: Context) -> P.Node:
    type_ = duration_type(context, plan)
    conditions = EventConditions(context, EventNames("FILTER", {"$1": _named(plan)}, type_))
    assert node.condition is not None
    predicate = conditions.condition(node.condition)
    if not conditions.asks_duration:
        return P.Filter(plan, predicate)
    timed = Times(plan, ((DUR, "duration"),), type_)
    return P.Project(P.Filter(timed, predicate), P.passthrough(plan.schema))


# -- NEXT ------------------------------------------------------------------------------------------------------------


def _next(node: EventNext, left: P.Node, right: P.Node, context: Context) -> P.Node:
    collides = any(field.name in right.schema for field in left.schema)
    names = {field.name: f"{field.name}_1" if collides else field.name for field in left.schema}
    _refuse_repeated([*names.values(), *right.schema.names], node, context)
    renamed = _renamed(left, names)
    condition: Expr | None = None
    if node.condition is not None:
        inputs = {"$1": _named(left, names.__getitem__), "$2": _named(right)}
        binder = EventConditions(context, EventNames("NEXT", inputs, duration_type(context, left)))
        condition = binder.condition(node.condition)
    return Next(renamed, right, condition)


def _renamed(plan: P.Node, names: dict[str, str]) -> P.Node:
    if all(old == new for old, new in names.items()):
        return plan
    return P.Project(plan, tuple((names[field.name], Column(field.type, field.name)) for field in plan.schema))


def _refuse_repeated(names: list[str], node: exp.Expr, context: Context) -> None:
    lower = [name.lower() for name in names]
    repeated = next((name for name in names if lower.count(name.lower()) > 1), None)
    if repeated is not None:
        context.fail(
            f"two columns would be called {repeated}",
            node,
            detail="columns of the first input whose names also occur in the second get the suffix _1",
            hint="rename one of them in a query: (SELECT a AS b FROM …)",
        )


# -- FOLD ------------------------------------------------------------------------------------------------------------


class _FoldBinder:
    """`a FOLD{…, …, …} b`: the second stream has no columns that the first does not have."""

    def __init__(self, node: EventFold, left: P.Node, right: P.Node, context: Context) -> None:
        self.node, self.left, self.right, self.context = node, left, right, context
        missing = [field.name for field in right.schema if field.name not in left.schema]
        if missing:
            context.fail(
                f"the first input of FOLD has no column {missing[0]}",
                node,
                detail="columns of the second input start with the values from the first",
                hint=f"leave it out on the right, (SELECT {_listed(left, right)} FROM …), or add it on the left",
            )
        self.right = self._widened()
        self.updated = self._updated()
        again = {field.name.lower() for field in right.schema} | set(self.updated)
        self.names = {
            field.name: f"{field.name}_1" if field.name.lower() in again else field.name for field in left.schema
        }
        made = [name for name, _ in self.updated.values()]
        _refuse_repeated([*self.names.values(), *right.schema.names, *made], node, context)

    def _widened(self) -> P.Node:
        """The second input with columns of types that hold the first input's values, too."""
        columns: list[tuple[str, Expr]] = []
        for field in self.right.schema:
            first = self.left.schema[field.name].type
            type_ = common_type(first, field.type)
            if type_ is None:
                self.context.fail(
                    f"{field.name} is {first} in the first input and {field.type} in the second", self.node
                )
            columns.append((field.name, coerce(Column(field.type, field.name), type_)))
        return (
            self.right if tuple(columns) == P.passthrough(self.right.schema) else P.Project(self.right, tuple(columns))
        )

    def _updated(self) -> dict[str, tuple[str, exp.Expr]]:
        """What is computed with each event: by lower-case name, the name and the expression."""
        found: dict[str, tuple[str, exp.Expr]] = {}
        for part in self.node.expressions:
            if not isinstance(part, exp.Alias):
                self.context.fail("a value that FOLD computes needs a name", part, hint="add AS …")
            if part.alias in self.right.schema:
                self.context.fail(
                    f"{part.alias} is a column of the second input",
                    part,
                    hint="compute it under another name, or in a query over the second input",
                )
            if part.alias.lower() in found:
                self.context.fail(f"{part.alias} is computed twice", part)
            name = self.left.schema[part.alias].name if part.alias in self.left.schema else part.alias
            found[part.alias.lower()] = name, part.this
        return found

    def bind(self) -> P.Node:
        renamed = _renamed(self.left, self.names)
        begins = tuple((field.name, self._begin(field.name, field.type)) for field in self.right.schema)
        types = {
            key: self.left.schema[name].type if name in self.left.schema else NULL
            for key, (name, _) in self.updated.items()
        }
        updates, aggregates = self._updates(types)
        conditions = self._conditions({key: becomes.type for key, (_, becomes) in updates.items()})
        condition, continues = (
            None if part is None else conditions.condition(part) for part in (self.node.condition, self.node.continues)
        )
        made = tuple((name, self._begin_of(name, becomes, aggregates), becomes) for name, becomes in updates.values())
        return Fold(renamed, self.right, begins, made, condition, continues, aggregates)

    def _begin_of(self, name: str, becomes: Expr, aggregates: tuple[AggregateCall[Expr], ...]) -> Expr:
        """What a computed column is before the first event; one of aggregates alone has their values over nothing."""
        empty: dict[str, Expr] = {each.name: each.of_nothing for each in aggregates}
        read = columns_of(becomes)
        return substitute(becomes, empty) if read and read <= empty.keys() else self._begin(name, becomes.type)

    def _begin(self, name: str, type_: SqlType) -> Expr:
        if name not in self.left.schema:
            return Literal(type_, None)
        own = self.left.schema[name]
        return coerce(Column(own.type, self.names[own.name]), type_)

    def _updates(
        self, types: dict[str, SqlType]
    ) -> tuple[dict[str, tuple[str, Expr]], tuple[AggregateCall[Expr], ...]]:
        """What is computed, and the aggregates in it; a value is of the type that it begins with and of that it
        becomes."""
        for _ in range(_MOST_ROUNDS):
            computed = FoldValues(self.context, self._names(types))
            bound = {key: computed.bind(expr) for key, (_, expr) in self.updated.items()}
            self._refuse_beginnings(bound, computed.aggregates)
            wider: dict[str, SqlType] = {}
            for key, expr in bound.items():
                type_ = common_type(types[key], expr.type)
                if type_ is None:
                    self.context.fail(
                        f"{self.updated[key][0]} begins as {types[key]} and becomes {expr.type}", self.updated[key][1]
                    )
                wider[key] = type_
            if wider == types:
                made = {key: (self.updated[key][0], coerce(expr, types[key])) for key, expr in bound.items()}
                return made, computed.aggregates
            types = wider
        return self.context.fail("a value that FOLD computes has no type", self.node, hint="CAST it")

    def _refuse_beginnings(self, bound: dict[str, Expr], aggregates: tuple[AggregateCall[Expr], ...]) -> None:
        names = {each.name for each in aggregates}
        for key, expr in bound.items():
            name, node = self.updated[key]
            if name in self.left.schema and names & columns_of(expr):
                self.context.fail(
                    f"{name} is a column of the first input",
                    node,
                    detail="an aggregate covers only events of the second input, and starts without any",
                    hint="use another name, or an expression such as $.n + 1 AS n",
                )

    def _conditions(self, types: dict[str, SqlType]) -> EventConditions:
        return EventConditions(self.context, self._names(types))

    def _names(self, types: dict[str, SqlType]) -> EventNames:
        last = {field.name.lower(): Column(field.type, LAST + field.name, field.name) for field in self.right.schema}
        last |= {key: Column(type_, LAST + self.updated[key][0], self.updated[key][0]) for key, type_ in types.items()}
        first = _named(self.left, self.names.__getitem__)
        last = {**{key: column for key, column in first.items() if key not in last}, **last}
        inputs = {"$1": first, "$2": _named(self.right), "$": last}
        return EventNames("FOLD", inputs, duration_type(self.context, self.left))


def _listed(left: P.Node, right: P.Node) -> str:
    return ", ".join(name for name in right.schema.names if name in left.schema) or "…"
