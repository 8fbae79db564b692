"""Pictures of row patterns: a state for each place where the pattern has a variable, an arrow wherever one row may
follow another.

These are the positions of the regular expression (Glushkov's automaton). A repetition is an arrow back, with its
quantifier, however often it repeats; PERMUTE is arrows in both directions.
"""

from __future__ import annotations

from dataclasses import field
from html import escape
from itertools import product
from typing import Any

from millstream.expressions.nodes import Column, Expr, conjuncts, transform
from millstream.plan.patterns.expressions import Check, Edge, Either, Excluded, Pattern, Permute, Repeat, Variable
from millstream.plan.patterns.search import Reach, Search, spelled
from millstream.records import dataclass

START = -1
_RADIUS, _LINE, _LETTER, _ARC = 26, 15, 6.2, 26


@dataclass(frozen=True, slots=True)
class PatternState:
    """A variable where it stands in a pattern, or a place that takes no row."""

    name: str
    conditions: tuple[str, ...] = ()
    takes_row: bool = True
    is_excluded: bool = False


@dataclass(frozen=True, slots=True)
class _Ends:
    """Which states a part of a pattern may begin and end with, and whether it may be left out."""

    first: tuple[int, ...]
    last: tuple[int, ...]
    optional: bool


@dataclass
class PatternGraph:
    """States in the order of the pattern, and what may follow what, perhaps with a quantifier; the end is the number
    of states."""

    search: Search
    states: list[PatternState] = field(default_factory=list)
    arrows: dict[tuple[int, int], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._defined = {name: self._spelled(condition) for name, condition in self.search.conditions}
        whole = self._add(self.search.pattern, False)
        self._follow((START,), whole.first)
        self._follow(whole.last, (len(self.states),))
        if whole.optional:
            self._follow((START,), (len(self.states),))

    def name(self, state: int) -> str:
        return "start" if state == START else "end" if state == len(self.states) else self.states[state].name

    def _follow(self, before: tuple[int, ...], after: tuple[int, ...], quantifier: str = "") -> None:
        for pair in product(before, after):
            self.arrows[pair] = " ".join(filter(None, (self.arrows.get(pair), quantifier)))

    def _add(self, part: Pattern, excluded: bool) -> _Ends:
        match part:
            case Variable(name=name):
                return self._one(PatternState(name, self._defined.get(name, ()), True, excluded))
            case Edge():
                return self._one(PatternState(str(part), takes_row=False))
            case Check(condition=condition):
                return self._one(PatternState("check", self._spelled(condition), takes_row=False))
            case Excluded(body=body):
                return self._add(body, True)
            case Repeat(body=body, least=least, most=most):
                ends = self._add(body, excluded)
                if most != 1:
                    quantifier = str(Repeat(Variable(""), least, most, part.greed))
                    self._follow(ends.last, ends.first, quantifier)
                return _Ends(ends.first, ends.last, ends.optional or least == 0)
            case Either(options=options):
                found = [self._add(option, excluded) for option in options]
                return _Ends(_all(e.first for e in found), _all(e.last for e in found), any(e.optional for e in found))
            case Permute(items=items):
                found = [self._add(item, excluded) for item in items]
                for one, other in product(found, found):
                    if one is not other:
                        self._follow(one.last, other.first, "PERMUTE")
                return _Ends(_all(e.first for e in found), _all(e.last for e in found), all(e.optional for e in found))
        ends = _Ends((), (), True)
        for item in part.parts():
            after = self._add(item, excluded)
            self._follow(ends.last, after.first)
            ends = _Ends(
                (*ends.first, *(after.first if ends.optional else ())),
                (*after.last, *(ends.last if after.optional else ())),
                ends.optional and after.optional,
            )
        return ends

    def _one(self, state: PatternState) -> _Ends:
        self.states.append(state)
        place = (len(self.states) - 1,)
        return _Ends(place, place, False)

    def _spelled(self, condition: Expr) -> tuple[str, ...]:
        """A condition part by part, with columns written as what they stand for."""
        made = dict(self.search.made)

        def spell(part: Expr) -> Expr:
            value = self.search.named.get(part.name) if isinstance(part, Column) else None
            if value is None:
                return part
            if isinstance(value, Reach) and value.column in made and str(value) == value.column:
                return made[value.column]
            return Column(part.type, spelled(value))

        return tuple(map(str, conjuncts(transform(condition, spell))))


def _all(parts: Any) -> tuple[int, ...]:
    return tuple(state for part in parts for state in part)


def pattern_dot(search: Search, at: int) -> list[str]:
    """Statements of Graphviz's language; `at` tells pictures apart."""
    graph = PatternGraph(search)
    lines = [f'  "{at}.{START}" [label="start"];', f'  "{at}.{len(graph.states)}" [label="end", shape=doublecircle];']
    for number, state in enumerate(graph.states):
        shape = f"shape={'circle' if state.takes_row else 'box'}{', style=dashed' * state.is_excluded}"
        lines.append(f'  "{at}.{number}" [label={dot_text([state.name, *state.conditions])}, {shape}];')
    for (begin, end), quantifier in graph.arrows.items():
        label = f" [label={dot_text([quantifier])}]" if quantifier else ""
        lines.append(f'  "{at}.{begin}" -> "{at}.{end}"{label};')
    return lines


def dot_text(lines: list[str]) -> str:
    text = "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return f'"{text}"'


def pattern_svg(search: Search, top: int) -> tuple[list[str], int, int]:
    """A row of a picture that begins at `top`, with its width and height: what may be left out is passed above, what is
    repeated goes back below, and conditions are under that."""
    graph = PatternGraph(search)
    longest = max((len(line) for state in graph.states for line in state.conditions), default=0)
    step = max(130, round(_LETTER * longest) + 24)
    above = max((end - begin for begin, end in graph.arrows if end > begin), default=1) - 1
    below = max((begin - end + 1 for begin, end in graph.arrows if end <= begin), default=0)
    lines = max((len(state.conditions) for state in graph.states), default=0)
    middle = top + 30 + _ARC * above + _RADIUS
    parts = [line for pair, quantifier in graph.arrows.items() for line in _arrow(*pair, quantifier, step, middle)]
    under = middle + _RADIUS + _ARC * below + _LINE * (1 + bool(below))
    for number in range(START, len(graph.states) + 1):
        x = _x(number, step)
        state = graph.states[number] if 0 <= number < len(graph.states) else None
        parts.append(_outline(x, middle, state))
        if number == len(graph.states):
            parts.append(f'<circle cx="{x}" cy="{middle}" r="{_RADIUS - 4}"/>')
        parts += svg_text(x, middle + 4, [graph.name(number)])
        parts += svg_text(x, under, list(state.conditions) if state is not None else [])
    return parts, (len(graph.states) + 2) * step, under + _LINE * lines + 20 - top


def _x(number: int, step: int) -> int:
    return step // 2 + (number + 1) * step


def _outline(x: int, y: int, state: PatternState | None) -> str:
    if state is not None and not state.takes_row:
        return (
            f'<rect x="{x - _RADIUS}" y="{y - _RADIUS}" width="{2 * _RADIUS}" height="{2 * _RADIUS}" fill="#eef3fb"/>'
        )
    dashes = ' stroke-dasharray="4 3"' if state is not None and state.is_excluded else ""
    return f'<circle cx="{x}" cy="{y}" r="{_RADIUS}" fill="#eef3fb"{dashes}/>'


def _arrow(begin: int, end: int, quantifier: str, step: int, middle: int) -> list[str]:
    left, right = _x(begin, step), _x(end, step)
    tip = 'marker-end="url(#tip)"'
    if end == begin + 1:
        path = f'<path d="M{left + _RADIUS},{middle} L{right - _RADIUS},{middle}" {tip}/>'
        return [path, *svg_text((left + right) // 2, middle - 6, [quantifier])]
    if end > begin:
        edge, bend = middle - _RADIUS, middle - _RADIUS - 2 * _ARC * (end - begin - 1)
        path = f'<path d="M{left + 8},{edge + 2} Q{(left + right) // 2},{bend} {right - 8},{edge + 2}" {tip}/>'
        return [path, *svg_text((left + right) // 2, (edge + bend) // 2 - 4, [quantifier])]
    edge, bend = middle + _RADIUS, middle + _RADIUS + 2 * _ARC * (begin - end + 1) - 12
    if begin == end:
        curve = f"C{left + 26},{edge + 28} {left - 26},{edge + 28} {left - 10},{edge - 2}"
        path = f'<path d="M{left + 10},{edge - 2} {curve}" {tip}/>'
        return [path, *svg_text(left, edge + 32, [quantifier])]
    path = f'<path d="M{left - 8},{edge - 2} Q{(left + right) // 2},{bend} {right + 8},{edge - 2}" {tip}/>'
    return [path, *svg_text((left + right) // 2, (edge + bend) // 2 + 12, [quantifier])]


def svg_text(x: int, y: int, lines: list[str]) -> list[str]:
    return [
        f'<text x="{x}" y="{y + _LINE * place}" text-anchor="middle" fill="#222" stroke="none">{escape(line)}</text>'
        for place, line in enumerate(lines)
        if line
    ]
