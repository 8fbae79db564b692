"""Pictures of automata and row patterns: Graphviz's language, or SVG."""

from __future__ import annotations

from typing import Literal as OneOf

from millstream.errors import BindError
from millstream.expressions.nodes import Expr, told
from millstream.kernels.events.spec import AutomatonSpec
from millstream.kernels.patterns.spec import MatchSpec
from millstream.physical.nodes import Apply, Physical, walk
from millstream.plan.events.automata import START, AutomatonEdge
from millstream.session.pattern_drawing import dot_text, pattern_dot, pattern_svg, svg_text

Format = OneOf["dot", "svg"]
_STEP, _ROW, _RADIUS, _LINE = 260, 190, 26, 15


def drawn(plan: Physical, form: str) -> str:
    """The automata and row patterns of a plan as a picture."""
    specs = [node.spec for node in walk(plan) if isinstance(node, Apply)]
    found = [spec for spec in specs if isinstance(spec, AutomatonSpec | MatchSpec)]
    if form not in ("dot", "svg"):
        raise BindError(f"cannot draw as {form}", hint='explain(format="dot") or explain(format="svg")')
    if not found:
        raise BindError("this query has no automaton to draw", hint="NEXT, FOLD and MATCH_RECOGNIZE make one")
    return _dot(found) if form == "dot" else _svg(found)


def _name(spec: AutomatonSpec, number: int) -> str:
    return "start" if number == START else "end" if number == spec.end else f"q{number + 1}"


def _conditions(conditions: tuple[Expr, ...]) -> list[str]:
    return [told(condition) for condition in conditions] or ["TRUE"]


def _loops(spec: AutomatonSpec, number: int) -> tuple[list[str], list[str] | None]:
    """What an instance waits for, and what rebinds it."""
    rebinds = [edge for edge in spec.leaving(number) if edge.target == number]
    waits = _conditions(spec.states[number].conditions)
    return waits, _conditions(rebinds[0].conditions) if rebinds else None


def _forward(spec: AutomatonSpec) -> list[AutomatonEdge]:
    return [edge for edge in spec.edges if edge.source != edge.target]


def _dot(specs: list[AutomatonSpec | MatchSpec]) -> str:
    lines = ["digraph automata {", "  rankdir=LR; node [shape=circle];"]
    for at, spec in enumerate(specs):
        lines += pattern_dot(spec.search, at) if isinstance(spec, MatchSpec) else _automaton_dot(spec, at)
    return "\n".join([*lines, "}"]) + "\n"


def _automaton_dot(spec: AutomatonSpec, at: int) -> list[str]:
    lines = []
    for number in (START, *range(spec.end + 1)):
        shape = "doublecircle" if number == spec.end else "circle"
        lines.append(f'  "{at}.{_name(spec, number)}" [label="{_name(spec, number)}", shape={shape}];')
    for number in range(spec.end):
        waits, rebinds = _loops(spec, number)
        place = f'"{at}.{_name(spec, number)}"'
        lines.append(f"  {place} -> {place} [style=dashed, label={dot_text(['unless', *waits])}];")
        if rebinds is not None:
            lines.append(f"  {place} -> {place} [label={dot_text(rebinds)}];")
    for edge in _forward(spec):
        ends = (f'"{at}.{_name(spec, number)}"' for number in (edge.source, edge.target))
        lines.append(f"  {' -> '.join(ends)} [label={dot_text(_conditions(edge.conditions))}];")
    return lines


def _svg(specs: list[AutomatonSpec | MatchSpec]) -> str:
    """Each automaton in a row."""
    parts: list[str] = []
    width = height = 0
    for spec in specs:
        if isinstance(spec, MatchSpec):
            drawn_, wide, high = pattern_svg(spec.search, height)
        else:
            drawn_, wide, high = _automaton_svg(spec, height), (spec.end + 2) * _STEP, _ROW
        parts += drawn_
        width, height = max(width, wide), height + high
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11" fill="none" stroke="#333">',
        '<defs><marker id="tip" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto">'
        '<path d="M0,0 L9,4 L0,8 z" fill="#333" stroke="none"/></marker></defs>',
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


def _automaton_svg(spec: AutomatonSpec, top: int) -> list[str]:
    """Above a state what it waits for, below what rebinds it."""
    middle = top + _ROW // 2
    parts = [line for edge in _forward(spec) for line in _arrow(spec, edge, middle)]
    return parts + [line for number in (START, *range(spec.end + 1)) for line in _state(spec, number, middle)]


def _place(number: int) -> int:
    return _STEP // 2 + (number + 1) * _STEP


def _arrow(spec: AutomatonSpec, edge: AutomatonEdge, middle: int) -> list[str]:
    begin, end = _place(edge.source) + _RADIUS, _place(edge.target) - _RADIUS
    lines = [] if edge.source != START and not edge.conditions else _conditions(edge.conditions)
    if edge.target == edge.source + 1:
        return [f'<path d="M{begin},{middle} L{end},{middle}" marker-end="url(#tip)"/>'] + svg_text(
            (begin + end) // 2, middle - 8 - _LINE * (len(lines) - 1), lines
        )
    bend = middle + _ROW // 2 - 10
    return [
        f'<path d="M{begin},{middle} Q{(begin + end) // 2},{bend} {end},{middle}" marker-end="url(#tip)"/>'
    ] + svg_text((begin + end) // 2, bend - _LINE, lines)


def _state(spec: AutomatonSpec, number: int, middle: int) -> list[str]:
    x = _place(number)
    parts = [f'<circle cx="{x}" cy="{middle}" r="{_RADIUS}" fill="#eef3fb"/>']
    if number == spec.end:
        parts.append(f'<circle cx="{x}" cy="{middle}" r="{_RADIUS - 4}"/>')
    parts += svg_text(x, middle + 4, [_name(spec, number)])
    if 0 <= number < spec.end:
        waits, rebinds = _loops(spec, number)
        top, bottom = middle - _RADIUS, middle + _RADIUS
        parts.append(
            f'<path d="M{x - 10},{top + 2} C{x - 30},{top - 30} {x + 30},{top - 30} {x + 10},{top + 2}" '
            'stroke-dasharray="4 3" marker-end="url(#tip)"/>'
        )
        parts += svg_text(x, top - 28 - _LINE * (len(waits) - 1), ["unless " + waits[0], *waits[1:]])
        if rebinds is not None:
            parts.append(
                f'<path d="M{x + 10},{bottom - 2} C{x + 30},{bottom + 30} {x - 30},{bottom + 30} '
                f'{x - 10},{bottom - 2}" marker-end="url(#tip)"/>'
            )
            parts += svg_text(x, bottom + 38, rebinds)
    return parts
