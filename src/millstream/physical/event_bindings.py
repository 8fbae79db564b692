"""What instances alone decide and loops have no form for is computed when they are bound, from the event that binds
them, not at every event that they meet: `lower($1.name)` becomes a column of the state, which a hash can find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from millstream.expressions.kernel.coded_text import has_kernel_form
from millstream.expressions.nodes import Column, Expr, columns_of, may_fail, substitute
from millstream.plan.events.automata import AGGREGATED, INSTANCE, Automaton, AutomatonEdge, AutomatonState
from millstream.schema import Field, Schema


def with_bound_columns(automaton: Automaton) -> Automaton:
    """The automaton with columns for such parts. Later states come first: what they want, earlier ones bring."""
    for number in reversed(range(automaton.end)):
        names: dict[Expr, str] = {}
        known = -1
        # what a column becomes when its instance is rebound may be another part
        while len(names) > known:
            known = len(names)
            automaton = _with_columns(automaton, number, names)
    return automaton


def _with_columns(automaton: Automaton, number: int, names: dict[Expr, str]) -> Automaton:
    """The automaton with columns for the parts that a state reads; `names` are those that it has got already."""
    state, before = automaton.states[number], len(names)

    def part(expr: Expr) -> Expr:
        read = columns_of(expr)
        if isinstance(expr, Column) or not read:
            return expr
        if not all(name.startswith(INSTANCE) and is_brought(automaton, number, name[2:]) for name in read):
            return expr.with_children(tuple(map(part, expr.children())))
        if has_kernel_form(expr) or may_fail(expr):
            return expr
        return Column(expr.type, INSTANCE + names.setdefault(expr, f"$bound{len(names)}"), str(expr))

    states = list(automaton.states)
    states[number] = _state(state, part)
    edges = [_edge(edge, part) if edge.source == number else edge for edge in automaton.edges]
    made = list(names.items())[before:]
    own = tuple(Field(name, expr.type) for expr, name in made)
    states[number] = replace(states[number], columns=Schema(state.columns.fields + own))
    for place, edge in enumerate(edges):
        if edge.target == number:
            brought = {INSTANCE + name: value for name, value in automaton.edges[place].values}
            values = tuple((name, substitute(expr, brought)) for expr, name in made)
            edges[place] = replace(edge, values=edge.values + values)
    return replace(automaton, states=tuple(states), edges=tuple(edges))


def _state(state: AutomatonState, part: Callable[[Expr], Expr]) -> AutomatonState:
    aggregates = tuple(replace(each, args=tuple(map(part, each.args))) for each in state.aggregates)
    return replace(state, conditions=tuple(map(part, state.conditions)), aggregates=aggregates)


def _edge(edge: AutomatonEdge, part: Callable[[Expr], Expr]) -> AutomatonEdge:
    values = tuple((name, part(value)) for name, value in edge.values)
    return replace(edge, conditions=tuple(map(part, edge.conditions)), values=values)


def is_brought(automaton: Automaton, number: int, name: str, seen: set[tuple[int, str]] | None = None) -> bool:
    """Whether a column of a state is one of an event, wherever it comes from."""
    seen = set() if seen is None else seen
    if (number, name) in seen:
        return True
    seen.add((number, name))
    for edge in automaton.entering(number):
        value = dict(edge.values)[name]
        if not isinstance(value, Column) or value.name.startswith(AGGREGATED):
            return False
        if value.name.startswith(INSTANCE) and not is_brought(automaton, edge.source, value.name[2:], seen):
            return False
    return True
