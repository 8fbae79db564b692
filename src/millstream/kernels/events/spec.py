"""The spec of a kernel that runs an automaton."""

from __future__ import annotations

from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING

from millstream.expressions.nodes import Call, Cast, Column, Expr, Literal, transform
from millstream.kernels.registry import register
from millstream.plan.events.algebra import DUR
from millstream.plan.events.automata import (
    EVENT,
    INSTANCE,
    START,
    Automaton,
    AutomatonEdge,
    AutomatonState,
    Equality,
    told,
)
from millstream.records import dataclass
from millstream.schema import Schema

if TYPE_CHECKING:
    from millstream.kernels.events.kernel import AutomatonKernel


@register
@dataclass(frozen=True)
class AutomatonSpec:
    """Instances of an automaton over streams of events.

    `by` is a column of all streams that keeps instances apart; without it the state is one. `indexes` is for each state
    the equality by which its instances are found; None: all are looked at.
    """

    inputs: tuple[Schema, ...]
    states: tuple[AutomatonState, ...]
    edges: tuple[AutomatonEdge, ...]
    output: Schema
    by: tuple[str, ...] = ()
    indexes: tuple[Equality | None, ...] = ()
    why: str = field(default="", compare=False)
    """why instances cannot be kept apart"""

    @property
    def keys(self) -> tuple[str, ...] | None:
        return self.by or None

    @property
    def end(self) -> int:
        return len(self.states)

    def state_signature(self) -> object:
        """All by places: of columns in streams and states, of aggregates in states."""
        states = tuple(
            (
                state.port,
                state.columns,
                tuple(self._placed(condition, state.port, number) for condition in state.conditions),
                tuple(
                    (
                        each.fn,
                        *(tuple(self._placed(arg, state.port, number) for arg in each.args) or (None,)),
                        each.type,
                    )
                    for each in state.aggregates
                ),
            )
            for number, state in enumerate(self.states)
        )
        edges = tuple(
            (
                edge.source,
                edge.target,
                edge.port,
                tuple(self._placed(condition, edge.port, edge.source) for condition in edge.conditions),
                tuple(self._placed(value, edge.port, edge.source) for _, value in edge.values),
            )
            for edge in self.edges
        )
        indexes = tuple(
            None if pair is None else (self.inputs[state.port].index(pair[0]), state.columns.index(pair[1]))
            for state, pair in zip(self.states, self.indexes, strict=True)
        )
        by = tuple(schema.index(name) for name in self.by for schema in self.inputs)
        return self.inputs, states, edges, by, indexes

    def _placed(self, expr: Expr, port: int, state: int) -> Expr:
        """An expression with places for names."""

        def placed(part: Expr) -> Expr:
            if not isinstance(part, Column) or part.name == DUR:
                return part
            prefix, name = part.name[:2], part.name[2:]
            if prefix == EVENT:
                return Column(part.type, f"{prefix}{self.inputs[port].index(name)}")
            own = self.states[state]
            names = own.columns.names if prefix == INSTANCE else tuple(each.name for each in own.aggregates)
            return Column(part.type, f"{prefix}{names.index(name)}")

        return transform(expr, placed)

    def build(self) -> AutomatonKernel:
        # what compiles expressions is needed where kernels run, not where plans are made
        from millstream.kernels.events.kernel import AutomatonKernel

        return AutomatonKernel(self)

    @property
    def first_ports(self) -> frozenset[int]:
        """The inputs whose events begin instances."""
        return frozenset(edge.port for edge in self.edges if edge.source == START)

    def leaving(self, state: int) -> list[AutomatonEdge]:
        return [edge for edge in self.edges if edge.source == state]

    @cached_property
    def bounds(self) -> tuple[int | None, ...]:
        """For each state, how long an instance may last and still lead to the end; None: for ever."""
        bounds: dict[int, int | None] = {self.end: None}
        for number in reversed(range(self.end)):
            own = [_longest(condition) for condition in self.states[number].conditions]
            ways = []
            for edge in self.leaving(number):
                if edge.target != number:
                    on_edge = [_longest(condition) for condition in edge.conditions]
                    ways.append(_least([*on_edge, bounds[edge.target]]))
            furthest = None if None in ways or not ways else max(way for way in ways if way is not None)
            bounds[number] = _least([*own, furthest])
        return tuple(bounds[number] for number in range(self.end))

    def describe(self) -> str:
        lines = told(_Shape(self.states, self.edges))
        found = [f"{pair[0]} = {pair[1]}" if pair else "all instances" for pair in self.indexes]
        whole = f"; in one place: {self.why}" if self.why else ""
        return f"automaton {'; '.join(lines)} [found by {', '.join(found)}{whole}]"


@dataclass(frozen=True)
class _Shape(Automaton):
    """An automaton without its streams, to be told of."""

    def __init__(self, states: tuple[AutomatonState, ...], edges: tuple[AutomatonEdge, ...]) -> None:
        object.__setattr__(self, "streams", ())
        object.__setattr__(self, "states", states)
        object.__setattr__(self, "edges", edges)


def _least(bounds: list[int | None]) -> int | None:
    return min((bound for bound in bounds if bound is not None), default=None)


def _longest(condition: Expr) -> int | None:
    """The longest time that a condition allows."""
    match condition:
        case Call(fn=("<=" | "<" | "=") as fn, args=(left, right)) if _is_duration(left):
            value = _constant(right)
        case Call(fn=(">=" | ">" | "=") as fn, args=(left, right)) if _is_duration(right):
            value = _constant(left)
        case _:
            return None
    return None if value is None else value - 1 if fn in ("<", ">") else value


def _is_duration(expr: Expr) -> bool:
    return isinstance(expr, Column) and expr.name == DUR


def _constant(expr: Expr) -> int | None:
    while isinstance(expr, Cast) and expr.type.name in ("BIGINT", "INTERVAL"):
        expr = expr.arg
    return expr.value if isinstance(expr, Literal) and type(expr.value) is int else None
