"""Pieces of generated source: how each part of the state takes a value in and lets it go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from millstream.kernels.aggregates import KNOWN
from millstream.kernels.over.layout import Arg, Edge, Extreme, Layout, Rank, Sums


def cell_at(position: str) -> str:
    """Where the cell of a position begins; cut to a positive number, so that the compiler need not expect an index that
    counts from the end."""
    return f"((base + ({position} & mask) * CELL) & POSITIVE)"


def cell_value(layout: Layout, arg: Arg) -> tuple[str, str]:
    """The value of an argument in cell c, and whether it is one."""
    lane = f"c + CELL_{arg.name.upper()}"
    value = f"fcells[{lane}]" if arg.kind == "float" else f"cells[{lane}]"
    if arg.flagged:
        return value, f"(cells[c + CELL_FLAGS] >> {layout.flag_bit(arg)}) & 1 != 0"
    if arg.kind == "text":
        return value, f"cells[{lane}] >= 0"
    return value, f"cells[{lane}] != {'NULL_FLOAT' if arg.kind == 'float' else 'NULL_INT'}"


def load_cell(layout: Layout, arg: Arg) -> Iterator[str]:
    """The argument of the row in cell c, under the names that an arriving row's has."""
    value, known = cell_value(layout, arg)
    yield f"{arg.name}_in = {known}"
    if arg.valued:
        yield f"{arg.name}_v = {value}"
        yield f"{arg.name}_word = cells[c + CELL_{arg.name.upper()}]"


def put(layout: Layout, part: Sums) -> Iterator[str]:
    """The arriving row's value, or that of the row at `entering` if its frame is delayed, enters the sums."""
    if part.arg is None:
        yield f"slots[s + {part.name.upper()}_COUNT] += 1"
        return
    arg = part.arg
    counted = ""
    if part.distinct:
        bits = f"{arg.name}_v"
        if arg.kind == "float":
            bits = f"{arg.name}_word" if part.frame.is_delayed else f"{arg.name}_bits[r]"
        counted = f" and {_counted('in', layout, part, bits)}"
    yield f"if {arg.name}_in{counted}:"
    yield from indented(_change(part, f"{arg.name}_v", entering=True))
    if part.frame.is_bounded and part.exact_sums and not part.distinct:
        lanes = [f"s + {part.name.upper()}_{lane.upper()}" for lane in part.exact_sums]
        yield f"if {' or '.join(f'unsure(sums, {lane})' for lane in lanes)}:"
        yield from indented(_again(layout, part))


def take(layout: Layout, part: Sums) -> Iterator[str]:
    """The value in cell c leaves the sums of a frame."""
    assert part.arg is not None
    arg = part.arg
    value, known = cell_value(layout, arg)
    if part.distinct:
        known += f" and {_counted('out', layout, part, f'cells[c + CELL_{arg.name.upper()}]')}"
    yield f"if {known}:"
    if part.has_sum or part.has_squares:
        yield f"    {arg.name}_old = {value}"
    yield from indented(_change(part, f"{arg.name}_old", entering=False))
    if part.exact_sums:
        yield f"    if slots[s + {part.name.upper()}_COUNT] == 0:"
        yield from indented(_reset(part), 8)


def _counted(way: str, layout: Layout, part: Sums, bits: str) -> str:
    assert part.arg is not None
    i = layout.tables.index(part)
    word = f"word_of({bits})" if part.arg.kind == "float" else bits
    return f"count_{way}(table{i}, state, USED + {i}, s, {word})"


def _change(part: Sums, v: str, entering: bool) -> Iterator[str]:
    assert part.arg is not None
    prefix = f"s + {part.name.upper()}"
    sign, step = ("", "+=") if entering else ("-", "-=")
    yield f"slots[{prefix}_COUNT] {step} 1"
    if part.arg.kind == "float" and part.exact_sums:
        yield f"if {v} - {v} == 0.0:"
        yield f"    exact_add(sums, {prefix}_SUM, {sign}{v})"
        if part.has_squares:
            yield f"    if abs({v}) < LARGEST_SQUARED:"
            yield f"        add_square(sums, {prefix}_SQUARES, {v}, {sign}1.0)"
            yield "    else:"
            yield f"        slots[{prefix}_HUGE] {step} 1"
        yield f"elif {v} != {v}:"
        yield f"    slots[{prefix}_ODD] {step} 1"
        yield "else:"
        yield f"    slots[{prefix}_ODD] {step} 1 << 32"
        yield f"    slots[{prefix}_NET] {step} 1 if {v} > 0.0 else -1"
    elif part.has_sum and part.arg.is_wide:
        yield f"slots[{prefix}_SUM] {step} {v} >> 32"
        yield f"slots[{prefix}_SUM_LOW] {step} {v} & LOW_HALF"
    elif part.has_sum:
        yield f"slots[{prefix}_SUM] {step} {v}"
    if part.arg.kind != "float" and part.has_squares:
        yield f"number = {_scaled(part, v)}"
        yield f"exact_add(sums, {prefix}_TOTAL, {sign}number)"
        yield f"add_square(sums, {prefix}_SQUARES, number, {sign}1.0)"


def _scaled(part: Sums, value: str) -> str:
    """An integer argument as the number it stands for."""
    assert part.arg is not None
    return f"float({value}) / {10.0**part.arg.type.scale!r}" if part.arg.type.scale else f"float({value})"


def _reset(part: Sums) -> list[str]:
    first = (f"s + {part.name.upper()}_{lane.upper()}" for lane in part.exact_sums)
    return [f"sums[{at}{more}] = 0.0" for at in first for more in ("", " + 1", " + 2")]


def _again(layout: Layout, part: Sums) -> Iterator[str]:
    assert part.arg is not None
    prefix = f"s + {part.name.upper()}"
    value, known = cell_value(layout, part.arg)
    yield "# A value that dwarfed all others took their digits with it: add up what is left anew."
    yield from _reset(part)
    stop = "entering + 1" if part.frame.is_delayed else "end"
    yield f"for position in range({part.frame.name}_head, {stop}):"
    yield f"    c = {cell_at('position')}"
    yield f"    if {known}:"
    if part.arg.kind == "float":
        yield f"        number = {value}"
        yield "        if number - number == 0.0:"
        yield f"            exact_add(sums, {prefix}_SUM, number)"
        if part.has_squares:
            yield "            if abs(number) < LARGEST_SQUARED:"
            yield f"                add_square(sums, {prefix}_SQUARES, number, 1.0)"
    else:
        yield f"        number = {_scaled(part, value)}"
        yield f"        exact_add(sums, {prefix}_TOTAL, number)"
        yield f"        add_square(sums, {prefix}_SQUARES, number, 1.0)"


def _comes_first(part: Extreme, left: str, right: str) -> str:
    """Whether one value beats another on the way to the extreme; among floats NaN is greatest."""
    if part.fn in KNOWN:
        # `left` is the value that would be kept: the older one in a queue, the newer one in place of the only one.
        return str((part.fn == "first_known") == part.frame.is_bounded)
    if part.fn == "max":
        left, right = right, left
    if part.arg.kind == "int":
        return f"{left} < {right}"
    if part.arg.kind == "float":
        return f"{left} < {right} or ({right} != {right} and {left} == {left})"
    return f"text_before({left}, {right}, {', '.join(f'{part.arg.name}_{a}' for a in ('starts', 'lengths', 'arena'))})"


def offer(part: Extreme) -> Iterator[str]:
    """The value that enters may become the extreme."""
    prefix = f"s + {part.name.upper()}"
    value = f"{part.arg.name}_v"
    yield f"if {part.arg.name}_in:"
    if not part.frame.is_bounded:
        best = f"{'sums' if part.arg.kind == 'float' else 'slots'}[{prefix}_BEST]"
        yield f"    {part.arg.name}_old = {best}"
        yield f"    if slots[{prefix}_ANY] == 0 or {_comes_first(part, value, f'{part.arg.name}_old')}:"
        yield f"        slots[{prefix}_ANY] = 1"
        yield f"        {best} = {value}"
        return
    array = "fcells" if part.arg.kind == "float" else "cells"
    lane = f"CELL_{part.name.upper()}_QUEUE"
    yield f"    queue_head = slots[{prefix}_QUEUE_HEAD]"
    yield f"    queue_tail = slots[{prefix}_QUEUE_TAIL]"
    yield "    while queue_head < queue_tail:"
    yield f"        position = cells[{cell_at('(queue_tail - 1)')} + {lane}]"
    yield f"        {part.arg.name}_old = {array}[{cell_at('position')} + CELL_{part.arg.name.upper()}]"
    yield f"        if {_comes_first(part, f'{part.arg.name}_old', value)}:"
    yield "            break"
    yield "        queue_tail -= 1"
    yield f"    cells[{cell_at('queue_tail')} + {lane}] = {'entering' if part.frame.is_delayed else 'tail'}"
    yield f"    slots[{prefix}_QUEUE_TAIL] = queue_tail + 1"


def expire(part: Extreme) -> Iterator[str]:
    """Candidates that the frame has left behind go."""
    prefix = f"s + {part.name.upper()}"
    entry = f"cells[{cell_at('queue_head')} + CELL_{part.name.upper()}_QUEUE]"
    yield f"queue_head = slots[{prefix}_QUEUE_HEAD]"
    yield f"while queue_head < slots[{prefix}_QUEUE_TAIL] and {entry} < {part.frame.name}_head:"
    yield "    queue_head += 1"
    yield f"slots[{prefix}_QUEUE_HEAD] = queue_head"


def note(part: Edge) -> Iterator[str]:
    """The value that enters may be the first or is the last."""
    known, value = (f"s + {part.name.upper()}_{lane}" for lane in ("KNOWN", "VALUE"))
    lines = [
        f"slots[{known}] = 1 if {part.arg.name}_in else 2",
        f"{'sums' if part.arg.kind == 'float' else 'slots'}[{value}] = {part.arg.name}_v",
    ]
    if part.fn == "first_value":
        yield f"if slots[{known}] == 0:"
        lines = list(indented(lines))
    yield from lines


def count_up(part: Rank) -> Iterator[str]:
    """This row comes: its time is that of the last row or a new one."""
    rows, last, value = (f"slots[s + {part.name.upper()}_{lane}]" for lane in ("ROWS", "LAST", "VALUE"))
    yield f"if {rows} == 0 or {last} != t:"
    yield f"    {last} = t"
    yield f"    {value} = {rows if part.fn == 'rank' else value} + 1"
    yield f"{rows} += 1"


def indented(lines: Iterable[str], by: int = 4) -> Iterator[str]:
    return (" " * by + line for line in lines)
