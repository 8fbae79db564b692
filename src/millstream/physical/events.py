"""Physical plans of the event algebra: automata as kernels; what one event alone decides is a column of its stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from millstream.expressions.nodes import Column, Expr, Literal, columns_of
from millstream.kernels.events.spec import AutomatonSpec
from millstream.kernels.events.stages import InstantsStage, PointsStage, SinceStage, TimesStage
from millstream.physical.event_bindings import is_brought, with_bound_columns
from millstream.physical.nodes import Apply, Physical, Staged
from millstream.physical.scalars import projected
from millstream.plan import nodes as P
from millstream.plan.events.algebra import Since, Times
from millstream.plan.events.automata import (
    EVENT,
    Automaton,
    AutomatonEdge,
    AutomatonState,
    Equality,
    division,
    equalities,
)
from millstream.schema import Field, Schema

KEY = "$key"


def plan_times(node: Times, child: Physical) -> Physical:
    return Staged(node.schema, child, TimesStage(child.schema, node.columns, node.type), lasts=child.lasts)


def plan_since(node: Since, child: Physical) -> Physical:
    return Staged(node.schema, child, SinceStage(child.schema, node.start), lasts=True)


def points(child: Physical) -> Physical:
    """Events as points in time, for operators that know no others."""
    match child:
        case Staged(stage=TimesStage() as stage, lasts=True):
            return replace(child, stage=replace(stage, keeps=False), lasts=False)
    return Staged(child.schema, child, PointsStage(child.schema)) if child.lasts else child


def instants(child: Physical) -> Physical:
    """Events that go with others that last."""
    return child if child.lasts else Staged(child.schema, child, InstantsStage(child.schema), lasts=True)


def plan_automaton(automaton: Automaton, plan: Callable[[P.Node], Physical]) -> Physical:
    """A kernel for the automaton, each of its streams with the columns that it reads."""
    automaton = with_bound_columns(automaton)
    hoist = _Hoist(automaton)
    states = tuple(
        AutomatonState(
            state.port,
            state.columns,
            tuple(hoist.changed(condition, state.port) for condition in state.conditions),
            tuple(
                replace(each, args=tuple(hoist.changed(arg, state.port) for arg in each.args))
                for each in state.aggregates
            ),
        )
        for state in automaton.states
    )
    edges = tuple(
        AutomatonEdge(
            edge.source,
            edge.target,
            edge.port,
            tuple(hoist.changed(condition, edge.port) for condition in edge.conditions),
            tuple((name, hoist.changed(value, edge.port)) for name, value in edge.values),
        )
        for edge in automaton.edges
    )
    streams = tuple(P.Scan("", hoist.schema(port)) for port in range(len(automaton.streams)))
    changed = Automaton(streams, states, edges)
    divided = division(changed)
    by: tuple[str, ...] = ()
    if divided.keys:
        same = len(set(divided.keys)) == 1
        by = (divided.keys[0] if same else KEY,)
        if not same:
            for port, name in enumerate(divided.keys):
                hoist.give(port, name)
    inputs = tuple(hoist.stream(port, plan(stream), by) for port, stream in enumerate(automaton.streams))
    indexes: tuple[Equality | None, ...] = divided.pairs
    if not divided.keys:
        indexes = tuple(_index(changed, number) for number in range(len(states)))
    spec = AutomatonSpec(
        tuple(child.schema for child in inputs), states, edges, automaton.schema, by, indexes, divided.why
    )
    return Apply(automaton.schema, inputs, spec, lasts=True)


class _Hoist:
    """What an event alone decides, as columns of its stream."""

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self._made: list[dict[Expr, str]] = [{} for _ in automaton.streams]
        self._keys: dict[int, Expr] = {}
        self._read: list[set[str]] = [set() for _ in automaton.streams]

    def changed(self, expr: Expr, port: int) -> Expr:
        """The expression with what it computes from the event alone replaced by columns."""
        read = columns_of(expr)
        if isinstance(expr, Column) and expr.name.startswith(EVENT):
            self._read[port].add(expr.name[2:])
        if isinstance(expr, Column | Literal) or not read:
            return expr
        if all(name.startswith(EVENT) for name in read):
            own = self._made[port]
            name = own.setdefault(expr, f"${len(own)}")
            return Column(expr.type, EVENT + name, str(expr))
        return expr.with_children(tuple(self.changed(child, port) for child in expr.children()))

    def schema(self, port: int) -> Schema:
        """The columns of a stream, and those that were made."""
        made = tuple(Field(name, expr.type) for expr, name in self._made[port].items())
        return Schema(self._automaton.streams[port].schema.fields + made)

    def give(self, port: int, name: str) -> None:
        """Let a column be known by the name that the key has in all streams."""
        made = {own: _of_stream(expr) for expr, own in self._made[port].items()}
        self._keys[port] = made[name] if name in made else Column(self.schema(port)[name].type, name)

    def stream(self, port: int, child: Physical, by: tuple[str, ...]) -> Physical:
        wanted = self._read[port] | {name for name in by if name in child.schema}
        columns: list[tuple[str, Expr]] = [
            (field.name, Column(field.type, field.name)) for field in child.schema if field.name in wanted
        ]
        columns += [(name, _of_stream(expr)) for expr, name in self._made[port].items()]
        columns += [(KEY, self._keys[port])] if port in self._keys else []
        if not columns:
            first = child.schema.fields[0]
            columns = [(first.name, Column(first.type, first.name))]
        schema = Schema(tuple(Field(name, expr.type) for name, expr in columns))
        return child if schema == child.schema else projected(child, schema, tuple(columns))


def _of_stream(expr: Expr) -> Expr:
    if isinstance(expr, Column):
        return Column(expr.type, expr.name[2:], expr.said)
    return expr.with_children(tuple(map(_of_stream, expr.children())))


def _index(automaton: Automaton, number: int) -> Equality | None:
    """An equality of a state by which its instances can be found: one of what events brought."""
    for pair in equalities(automaton.states[number]):
        if is_brought(automaton, number, pair[1]):
            return pair
    return None
