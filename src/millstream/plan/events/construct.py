"""From expressions of the event algebra to automata.

A chain of NEXT and FOLD, with filters, projections and unions between them, becomes one automaton whose number of
states is that of its operators. What stands right of an operator is a stream of its own: if it is an expression too,
another automaton makes it, and its events come at the same instant.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from millstream.expressions.kernel.coded_text import has_kernel_form
from millstream.expressions.nodes import Column, Expr, conjuncts, may_fail, substitute
from millstream.plan import nodes as P
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.events.algebra import DUR, LAST, Fold, Next, Times
from millstream.plan.events.automata import (
    AGGREGATED,
    EVENT,
    INSTANCE,
    START,
    Automaton,
    AutomatonEdge,
    AutomatonState,
)
from millstream.records import dataclass
from millstream.schema import Field, Schema

_MOST_BRANCHES = 8
"""of a union that become edges of one automaton"""


def automaton_of(node: P.Node) -> Automaton:
    """The automaton of an operator alone: its inputs are streams, whatever makes them."""
    assert isinstance(node, Next | Fold)
    return _Construction(deep=False).build(node)


def linear_automaton(node: P.Node) -> Automaton | None:
    """The automaton of a whole expression; None if the node is none."""
    return _Construction(deep=True).build(node) if is_expression(node) else None


def is_expression(node: P.Node) -> bool:
    """Whether a node is an operator of the algebra, or done to events that one makes."""
    match node:
        case Next() | Fold():
            return True
        case P.Filter(input=below, predicate=predicate):
            return is_expression(below) and _is_simple(predicate)
        case P.Project(input=below, columns=columns):
            return is_expression(below) and all(_is_simple(expr) for _, expr in columns)
        case Times(input=below, columns=columns):
            return is_expression(below) and all(what == "duration" for _, what in columns)
        case P.Union(branches=branches):
            return len(branches) <= _MOST_BRANCHES and all(map(is_expression, branches))
    return False


def with_common_events(node: P.Node) -> P.Node:
    """A union of many branches that choose among the events of one expression: one automaton makes these events, and
    the filters of the branches, which differ only in constants, are found by an index over them. As edges of the
    automaton they would be tried one by one."""
    if not isinstance(node, P.Union) or len(node.branches) <= _MOST_BRANCHES:
        return node
    below = [_choosing(branch) for branch in node.branches]
    common = [base for base, count in Counter(below).items() if count > _MOST_BRANCHES]
    made = {base: automaton for base in common if (automaton := linear_automaton(base)) is not None}
    if not made:
        return node
    return node.with_inputs(
        tuple(
            _over(branch, made[base]) if base in made else branch
            for branch, base in zip(node.branches, below, strict=True)
        )
    )


def _choosing(node: P.Node) -> P.Node:
    """What filters and projections are over."""
    return _choosing(node.input) if isinstance(node, P.Filter | P.Project) else node


def _over(node: P.Node, base: P.Node) -> P.Node:
    """Filters and projections over something else."""
    return node.with_inputs((_over(node.input, base),)) if isinstance(node, P.Filter | P.Project) else base


def _is_simple(expr: Expr) -> bool:
    """Whether a loop can compute an expression, for whatever row; others are left to those who compute columns."""
    return has_kernel_form(expr) and not may_fail(expr)


@dataclass(frozen=True)
class _Loose:
    """An edge that leads nowhere yet."""

    source: int
    port: int
    conditions: tuple[Expr, ...]
    values: dict[str, Expr]

    def to(self, target: int) -> AutomatonEdge:
        return AutomatonEdge(self.source, target, self.port, self.conditions, tuple(self.values.items()))


class _Construction:
    def __init__(self, deep: bool) -> None:
        self._deep = deep
        self._streams: list[P.Node] = []
        self._states: list[AutomatonState] = []
        self._edges: list[AutomatonEdge] = []
        self._known: dict[P.Node, list[_Loose]] = {}

    def build(self, node: P.Node) -> Automaton:
        last = self._expression(node)
        names = node.schema.names
        edges = [replace(edge, values={name: edge.values[name] for name in names}) for edge in last]
        end = len(self._states)
        self._edges += [edge.to(end) for edge in edges]
        # Events of one instant are taken stream by stream, and those of the first do not wait for others that end then:
        # so first come the streams that lead to the end.
        order = sorted(range(len(self._streams)), key=self._last_read, reverse=True)
        place = {port: new for new, port in enumerate(order)}
        return Automaton(
            tuple(self._streams[port] for port in order),
            tuple(replace(state, port=place[state.port]) for state in self._states),
            tuple(replace(edge, port=place[edge.port]) for edge in self._edges),
        )

    def _last_read(self, port: int) -> int:
        """The last state that reads a stream; the start, if none does."""
        return max((number for number, state in enumerate(self._states) if state.port == port), default=START)

    def _expression(self, node: P.Node) -> list[_Loose]:
        """The edges that an expression ends with; branches that begin with the same one share its states."""
        if node not in self._known:
            self._known[node] = self._edges_of(node)
        return self._known[node]

    def _edges_of(self, node: P.Node) -> list[_Loose]:
        match node:
            case Next():
                return self._next(node)
            case Fold():
                return self._fold(node)
            case P.Filter(input=below, predicate=predicate):
                return [
                    replace(
                        edge,
                        conditions=edge.conditions
                        + tuple(substitute(part, edge.values) for part in conjuncts(predicate)),
                    )
                    for edge in self._expression(below)
                ]
            case P.Project(input=below, columns=columns):
                return [
                    replace(edge, values={name: substitute(expr, edge.values) for name, expr in columns})
                    for edge in self._expression(below)
                ]
            case Times(input=below, columns=columns, type=type_):
                own = {name: Column(type_, DUR) for name, _ in columns}
                return [replace(edge, values={**edge.values, **own}) for edge in self._expression(below)]
            case P.Union(branches=branches):
                return [edge for branch in branches for edge in self._expression(branch)]
        raise AssertionError(node.label())

    def _left(self, node: P.Node) -> list[_Loose]:
        """What leads to the first input of an operator."""
        if self._deep and is_expression(node):
            return self._expression(node)
        port, conditions, values = self._stream(node)
        return [_Loose(START, port, conditions, values)]

    def _stream(self, node: P.Node) -> tuple[int, tuple[Expr, ...], dict[str, Expr]]:
        """A stream that is read: its number, and which of its events are meant, with which columns."""
        base, conditions, values = _apart(node) if self._deep else (node, (), _columns(EVENT, node.schema))
        if base not in self._streams:
            self._streams.append(base)
        return self._streams.index(base), conditions, values

    def _next(self, node: Next) -> list[_Loose]:
        before = self._left(node.left)
        port, conditions, event = self._stream(node.right)
        own = _columns(INSTANCE, node.left.schema)
        asked = () if node.condition is None else conjuncts(substitute(node.condition, {**own, **event}))
        number = self._state(before, port, node.left.schema, (*conditions, *asked))
        return [_Loose(number, port, (), {**own, **event})]

    def _fold(self, node: Fold) -> list[_Loose]:
        begins = {LAST + name: expr for name, expr in node.begins}
        begins |= {LAST + name: begin for name, begin, _ in node.updates}
        columns = Schema(node.left.schema.fields + tuple(Field(name, expr.type) for name, expr in begins.items()))
        before = [
            replace(edge, values=edge.values | {name: substitute(expr, edge.values) for name, expr in begins.items()})
            for edge in self._left(node.left)
        ]
        port, conditions, event = self._stream(node.right)
        own = _columns(INSTANCE, columns)
        known = {**own, **event}

        def asked(condition: Expr | None) -> tuple[Expr, ...]:
            return () if condition is None else conjuncts(substitute(condition, known))

        aggregates = tuple(
            replace(each, args=tuple(substitute(arg, known) for arg in each.args)) for each in node.aggregates
        )
        number = self._state(before, port, columns, (*conditions, *asked(node.condition)), aggregates)
        known |= {each.name: Column(each.type, AGGREGATED + each.name) for each in aggregates}
        made = {name: substitute(becomes, known) for name, _, becomes in node.updates}
        first = _columns(INSTANCE, node.left.schema)
        last = {LAST + name: event[name] for name, _ in node.begins}
        last |= {LAST + name: value for name, value in made.items()}
        goes_on = asked(node.continues)
        self._edges.append(_Loose(number, port, goes_on, {**first, **last}).to(number))
        return [_Loose(number, port, goes_on, {**first, **event, **made})]

    def _state(
        self,
        before: list[_Loose],
        port: int,
        columns: Schema,
        conditions: tuple[Expr, ...],
        aggregates: tuple[AggregateCall[Expr], ...] = (),
    ) -> int:
        number = len(self._states)
        self._states.append(AutomatonState(port, columns, conditions, aggregates))
        for edge in before:
            values = {field.name: edge.values[field.name] for field in columns}
            self._edges.append(replace(edge, values=values).to(number))
        return number


def _columns(prefix: str, schema: Schema) -> dict[str, Expr]:
    return {field.name: Column(field.type, prefix + field.name) for field in schema}


def _apart(node: P.Node) -> tuple[P.Node, tuple[Expr, ...], dict[str, Expr]]:
    """A stream as one below it, with conditions on its events and the columns that are made of them."""
    match node:
        case P.Filter(input=below, predicate=predicate) if not may_fail(predicate):
            base, conditions, values = _apart(below)
            return base, (*conditions, *conjuncts(substitute(predicate, values))), values
        case P.Project(input=below, columns=columns) if not any(may_fail(expr) for _, expr in columns):
            base, conditions, values = _apart(below)
            return base, conditions, {name: substitute(expr, values) for name, expr in columns}
    return node, (), _columns(EVENT, node.schema)
