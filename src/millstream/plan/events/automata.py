"""Automata: the states in which instances wait for their next event, and the edges that events let them take.

An instance is what was found so far: values of columns, and the time from its start to its end. It meets an event of
the stream that its state reads if that starts after the instance has ended. An event that does not meet all conditions
of the state leaves the instance as it is, as long as that holds for all events that end at the same time (∀).
Otherwise the instance is gone, and there is a new one for each edge whose conditions an event meets (∃): an edge to the
state itself rebinds it, others go forward, and those to the end give an event out.

Conditions and values read columns of the instance as `q.x`, those of the event as `e.x`, and `$dur`, the time from the
start of the instance to the end of the event. A state may have aggregates over the events that its instances took;
edges that leave it read them as `a.x`, with the event that takes the edge.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import field, replace
from functools import cached_property

from millstream.expressions.nodes import Call, Column, Expr, columns_of
from millstream.expressions.nodes import told as in_words
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.events.algebra import DUR, Assignments
from millstream.plan.node import Kind, Node
from millstream.records import dataclass
from millstream.schema import Field, Schema

START = -1
INSTANCE = "q."
EVENT = "e."
AGGREGATED = "a."


@dataclass(frozen=True)
class AutomatonState:
    """Where instances with these columns wait for events of a stream that meet the conditions."""

    port: int
    columns: Schema
    conditions: tuple[Expr, ...] = ()
    aggregates: tuple[AggregateCall[Expr], ...] = field(default=(), metadata={"later": True})


@dataclass(frozen=True)
class AutomatonEdge:
    """From a state, or the start, to a state, or the end: taken with events of a stream that meet the conditions,
    besides those of the state; `values` are the columns of what it leads to."""

    source: int
    target: int
    port: int
    conditions: tuple[Expr, ...]
    values: Assignments


@dataclass(frozen=True)
class Automaton(Node):
    """What an automaton finds in its streams. Its states are numbered from 0 on; the end is one more."""

    kind = Kind.EVENTS

    streams: tuple[Node, ...]
    states: tuple[AutomatonState, ...]
    edges: tuple[AutomatonEdge, ...]
    passes_columns = False
    lasts = True

    def __post_init__(self) -> None:
        for stream in self.streams:
            if stream.kind is not Kind.EVENTS:
                raise ValueError("an automaton reads events")
        if any(not -1 <= edge.source < edge.target <= self.end for edge in self.edges if edge.source != edge.target):
            raise ValueError("edges go forward, or back to the state that they leave")
        if not any(edge.target == self.end for edge in self.edges):
            raise ValueError("an automaton without an end")
        for state in self.states:
            for condition in state.conditions:
                self._require(condition, state.port, state.columns)
            for aggregate in state.aggregates:
                for arg in aggregate.args:
                    self._require(arg, state.port, state.columns)
        for edge in self.edges:
            self._require_edge(edge)

    def _require_edge(self, edge: AutomatonEdge) -> None:
        state = None if edge.source == START else self.states[edge.source]
        if state is not None and state.port != edge.port:
            raise ValueError("a state reads one stream")
        for expr in (*edge.conditions, *(value for _, value in edge.values)):
            own = frozenset(() if state is None else (AGGREGATED + each.name for each in state.aggregates))
            self._require(expr, edge.port, Schema(()) if state is None else state.columns, own)
        wanted = self.schema if edge.target == self.end else self.states[edge.target].columns
        made = tuple(Field(name, value.type) for name, value in edge.values)
        if made != wanted.fields:
            raise ValueError(f"an edge gives {Schema(made)} where {wanted} is needed")

    def _require(self, expr: Expr, port: int, columns: Schema, also: frozenset[str] = frozenset()) -> None:
        for name in columns_of(expr) - {DUR} - also:
            known = self.streams[port].schema if name.startswith(EVENT) else columns
            if name[2:] not in known or not name.startswith((EVENT, INSTANCE)):
                raise ValueError(f"{expr} reads {name}, which is not there")

    @property
    def end(self) -> int:
        return len(self.states)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.streams

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return replace(self, streams=inputs)

    @cached_property
    def schema(self) -> Schema:
        last = next(edge for edge in self.edges if edge.target == self.end)
        return Schema(tuple(Field(name, value.type) for name, value in last.values))

    @property
    def reads(self) -> frozenset[str]:
        read = (columns_of(expr) for expr in self.expressions())
        return frozenset(name[2:] for names in read for name in names if name.startswith(EVENT))

    def expressions(self) -> list[Expr]:
        """All conditions and values."""
        conditions = [condition for state in self.states for condition in state.conditions]
        on_edges = [expr for edge in self.edges for expr in (*edge.conditions, *(value for _, value in edge.values))]
        aggregated = [arg for state in self.states for each in state.aggregates for arg in each.args]
        return conditions + aggregated + on_edges

    def leaving(self, state: int) -> list[AutomatonEdge]:
        return [edge for edge in self.edges if edge.source == state]

    def entering(self, state: int) -> list[AutomatonEdge]:
        return [edge for edge in self.edges if edge.target == state]

    def narrowed(self, wanted: Set[str]) -> Node:
        """The automaton that gives out only these columns, without values that nobody reads."""
        kept = {self.end: set(wanted) & set(self.schema.names) or {self.schema.names[0]}}
        aggregated: dict[int, tuple[AggregateCall[Expr], ...]] = {}
        for number in reversed(range(self.end)):
            needed = {name for condition in self.states[number].conditions for name in columns_of(condition)}
            kept[number] = set()
            while True:
                for edge in self.leaving(number):
                    needed |= {name for condition in edge.conditions for name in columns_of(condition)}
                    for name, value in edge.values:
                        if name in kept[edge.target]:
                            needed |= columns_of(value)
                for each in self.states[number].aggregates:
                    if AGGREGATED + each.name in needed:
                        needed |= {name for arg in each.args for name in columns_of(arg)}
                own = {name[2:] for name in needed if name.startswith(INSTANCE)}
                if own == kept[number]:
                    break
                kept[number] = own
            aggregated[number] = tuple(
                each for each in self.states[number].aggregates if AGGREGATED + each.name in needed
            )
        states = tuple(
            replace(
                state,
                columns=Schema(tuple(column for column in state.columns if column.name in kept[number])),
                aggregates=aggregated[number],
            )
            for number, state in enumerate(self.states)
        )
        edges = tuple(
            replace(edge, values=tuple(value for value in edge.values if value[0] in kept[edge.target]))
            for edge in self.edges
        )
        return self if (states, edges) == (self.states, self.edges) else replace(self, states=states, edges=edges)

    def label(self) -> str:
        return "Automaton " + "; ".join(told(self))


def told(automaton: Automaton) -> list[str]:
    """Each state and each edge in words."""
    lines = []
    for edge in automaton.edges:
        lines.append(f"{_name(automaton, edge.source)} → {_name(automaton, edge.target)}{_when(edge.conditions)}")
        if edge.target < automaton.end and edge.source != edge.target and automaton.states[edge.target].conditions:
            state = automaton.states[edge.target]
            lines.append(f"{_name(automaton, edge.target)} waits for{_when(state.conditions).removeprefix(' if')}")
        if edge.source == edge.target:
            own = automaton.states[edge.source].aggregates
            lines += [f"{_name(automaton, edge.source)} takes a.{each}" for each in own]
    return list(dict.fromkeys(lines))


def _name(automaton: Automaton, number: int) -> str:
    return "start" if number == START else "end" if number == automaton.end else f"q{number + 1}"


def _when(conditions: tuple[Expr, ...]) -> str:
    return f" if {' AND '.join(map(in_words, conditions))}" if conditions else ""


# -- by which values instances are found -----------------------------------------------------------------------------

Equality = tuple[str, str]
"""a column of the event, and one of the instance"""


def equalities(state: AutomatonState) -> list[Equality]:
    """The equalities of an event's column with one of the instance that a state asks for."""
    found = []
    for condition in state.conditions:
        match condition:
            case Call(fn="=", args=(Column(name=one), Column(name=other))):
                pair = sorted((one, other))
                if pair[0].startswith(EVENT) and pair[1].startswith(INSTANCE):
                    found.append((pair[0][2:], pair[1][2:]))
    return found


@dataclass(frozen=True)
class AutomatonKeys:
    """Whether instances with other values of a column never meet the same events; `keys` is that column of each stream,
    and `pairs` the equality of each state; otherwise `why` not."""

    keys: tuple[str, ...] = ()
    pairs: tuple[Equality, ...] = ()
    why: str = ""


_MOST_WAYS = 256


def division(automaton: Automaton) -> AutomatonKeys:
    """By which columns of its streams an automaton may be divided."""
    found: list[AutomatonKeys] = []
    ways: list[tuple[Equality, ...]] = [()]
    for number, state in enumerate(automaton.states):
        pairs = equalities(state)
        if not pairs:
            return AutomatonKeys(
                why=f"{_name(automaton, number)} has no equality between a column of the event and one of the instance"
            )
        ways = [(*way, pair) for way in ways for pair in pairs][:_MOST_WAYS]
    for way in ways:
        keys = _keys(automaton, way)
        if keys is not None:
            found.append(AutomatonKeys(keys, way))
    return found[0] if found else AutomatonKeys(why="its states compare different columns")


def _keys(automaton: Automaton, pairs: tuple[Equality, ...]) -> tuple[str, ...] | None:
    keys: dict[int, str] = {}
    for state, (column, _) in zip(automaton.states, pairs, strict=True):
        if keys.setdefault(state.port, column) != column:
            return None
    for number, (_, own) in enumerate(pairs):
        for edge in automaton.entering(number):
            value = dict(edge.values)[own]
            if not isinstance(value, Column):
                return None
            name = value.name[2:]
            if value.name.startswith(EVENT):
                if keys.setdefault(edge.port, name) != name:
                    return None
            elif name != pairs[edge.source][1]:
                return None
    for edge in automaton.edges:
        if edge.port not in keys:
            return None
    types = {automaton.streams[port].schema[name].type for port, name in keys.items()}
    return tuple(keys[port] for port in range(len(automaton.streams))) if len(types) == 1 else None
