"""Pictures of automata: Graphviz's language, or SVG."""

from __future__ import annotations

from html import escape
from typing import Literal as OneOf

from millstream.errors import BindError
from millstream.expressions.nodes import Expr, told
from millstream.kernels.events.spec import AutomatonSpec
from millstream.physical.nodes import Apply, Physical, walk
from millstream.plan.events.automata import START, AutomatonEdge

Format = OneOf["dot", "svg"]
_STEP, _ROW, _RADIUS, _LINE = 260, 190, 26, 15


def drawn(plan: Physical, form: str) -> str:
    """The automata of a plan as a picture."""
    specs = [node.spec for node in walk(plan) if isinstance(node, Apply) and isinstance(node.spec, AutomatonSpec)]
    if form not in ("dot", "svg"):
        raise BindError(f"cannot draw as {form}", hint='explain(format="dot") or explain(format="svg")')
    if not specs:
        raise BindError("this query has no automaton to draw", hint="NEXT and FOLD make one")
    return _dot(specs) if form == "dot" else _svg(specs)


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


def _dot(specs: list[AutomatonSpec]) -> str:
    lines = ["digraph automata {", "  rankdir=LR; node [shape=circle];"]
    for at, spec in enumerate(specs):
        for number in (START, *range(spec.end + 1)):
            shape = "doublecircle" if number == spec.end else "circle"
            lines.append(f'  "{at}.{_name(spec, number)}" [label="{_name(spec, number)}", shape={shape}];')
        for number in range(spec.end):
            waits, rebinds = _loops(spec, number)
            place = f'"{at}.{_name(spec, number)}"'
            lines.append(f"  {place} -> {place} [style=dashed, label={_quoted(['unless', *waits])}];")
            if rebinds is not None:
                lines.append(f"  {place} -> {place} [label={_quoted(rebinds)}];")
        for edge in _forward(spec):
            ends = (f'"{at}.{_name(spec, number)}"' for number in (edge.source, edge.target))
            lines.append(f"  {' -> '.join(ends)} [label={_quoted(_conditions(edge.conditions))}];")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(lines: list[str]) -> str:
    text = "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return f'"{text}"'


def _svg(specs: list[AutomatonSpec]) -> str:
    """Each automaton in a row: above a state what it waits for, below what rebinds it."""
    width = max(spec.end + 2 for spec in specs) * _STEP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{len(specs) * _ROW}" '
        'font-family="sans-serif" font-size="11" fill="none" stroke="#333">',
        '<defs><marker id="tip" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto">'
        '<path d="M0,0 L9,4 L0,8 z" fill="#333" stroke="none"/></marker></defs>',
    ]
    for at, spec in enumerate(specs):
        middle = at * _ROW + _ROW // 2
        for edge in _forward(spec):
            parts += _arrow(spec, edge, middle)
        for number in (START, *range(spec.end + 1)):
            parts += _state(spec, number, middle)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _place(number: int) -> int:
    return _STEP // 2 + (number + 1) * _STEP


def _arrow(spec: AutomatonSpec, edge: AutomatonEdge, middle: int) -> list[str]:
    begin, end = _place(edge.source) + _RADIUS, _place(edge.target) - _RADIUS
    lines = [] if edge.source != START and not edge.conditions else _conditions(edge.conditions)
    if edge.target == edge.source + 1:
        return [f'<path d="M{begin},{middle} L{end},{middle}" marker-end="url(#tip)"/>'] + _text(
            (begin + end) // 2, middle - 8 - _LINE * (len(lines) - 1), lines
        )
    bend = middle + _ROW // 2 - 10
    return [
        f'<path d="M{begin},{middle} Q{(begin + end) // 2},{bend} {end},{middle}" marker-end="url(#tip)"/>'
    ] + _text((begin + end) // 2, bend - _LINE, lines)


def _state(spec: AutomatonSpec, number: int, middle: int) -> list[str]:
    x = _place(number)
    parts = [f'<circle cx="{x}" cy="{middle}" r="{_RADIUS}" fill="#eef3fb"/>']
    if number == spec.end:
        parts.append(f'<circle cx="{x}" cy="{middle}" r="{_RADIUS - 4}"/>')
    parts += _text(x, middle + 4, [_name(spec, number)])
    if 0 <= number < spec.end:
        waits, rebinds = _loops(spec, number)
        top, bottom = middle - _RADIUS, middle + _RADIUS
        parts.append(
            f'<path d="M{x - 10},{top + 2} C{x - 30},{top - 30} {x + 30},{top - 30} {x + 10},{top + 2}" '
            'stroke-dasharray="4 3" marker-end="url(#tip)"/>'
        )
        parts += _text(x, top - 28 - _LINE * (len(waits) - 1), ["unless " + waits[0], *waits[1:]])
        if rebinds is not None:
            parts.append(
                f'<path d="M{x + 10},{bottom - 2} C{x + 30},{bottom + 30} {x - 30},{bottom + 30} '
                f'{x - 10},{bottom - 2}" marker-end="url(#tip)"/>'
            )
            parts += _text(x, bottom + 38, rebinds)
    return parts


def _text(x: int, y: int, lines: list[str]) -> list[str]:
    return [
        f'<text x="{x}" y="{y + _LINE * place}" text-anchor="middle" fill="#222" stroke="none">{escape(line)}</text>'
        for place, line in enumerate(lines)
    ]
