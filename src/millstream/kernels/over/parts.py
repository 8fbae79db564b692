"""Pieces of generated source: how each part of the state takes a value in and lets it go."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.kernels.accumulators import Extreme, Sums, entered
from millstream.kernels.accumulators.columns import ArgumentColumn
from millstream.kernels.over.layout import Held, Nth, OverLayout, Queue, Rank
from millstream.kernels.source.writer import indented
from millstream.plan.aggregates import BESIDE, KNOWN


def cell_at(position: str) -> str:
    """Where the cell of a position begins; cut to a positive number, so that the compiler need not expect an index that
    counts from the end."""
    return f"((base + ({position} & mask) * CELL) & POSITIVE)"


def cell_value(layout: OverLayout, arg: ArgumentColumn) -> tuple[str, str]:
    """The value of an argument in cell c, and whether it is one."""
    lane = f"c + CELL_{arg.name.upper()}"
    value = f"fcells[{lane}]" if arg.kind == "float" else f"cells[{lane}]"
    if arg.flagged:
        return value, f"(cells[c + CELL_FLAGS] >> {layout.flag_bit(arg)}) & 1 != 0"
    if arg.kind == "text":
        return value, f"cells[{lane}] >= 0"
    return value, f"cells[{lane}] != {'NULL_FLOAT' if arg.kind == 'float' else 'NULL_INT'}"


def load_cell(layout: OverLayout, arg: ArgumentColumn) -> Iterator[str]:
    """The argument of the row in cell c, under the names that an arriving row's has."""
    value, known = cell_value(layout, arg)
    yield f"{arg.name}_in = {known}"
    if arg.valued:
        yield f"{arg.name}_v = {value}"
        yield f"{arg.name}_word = cells[c + CELL_{arg.name.upper()}]"


def put(layout: OverLayout, part: Held) -> Iterator[str]:
    """The arriving row's value, or that of the row at `entering` if its frame is delayed, enters what is held."""
    state, arg, at = part.state, part.arg, part.place
    if arg is None or len(part.args) > 1:
        yield from entered(state, at, *((f"{each.name}_v", f"{each.name}_in") for each in part.args))
        return
    known = f"{arg.name}_in"
    if part.distinct:
        bits = f"{arg.name}_v"
        if arg.kind == "float":
            bits = f"{arg.name}_word" if part.frame.is_delayed else f"{arg.name}_bits[r]"
        known += f" and {_counted('in', layout, part, bits)}"
    yield from state.enter(at, f"{arg.name}_v", known)
    if part.frame.is_bounded and isinstance(state, Sums) and state.exact_sums and not part.distinct:
        yield f"if {state.unsure(at)}:"
        yield from indented(_again(layout, part, state))


def take(layout: OverLayout, part: Held) -> Iterator[str]:
    """The value in cell c leaves the sums of a frame."""
    assert part.arg is not None and isinstance(part.state, Sums)
    arg = part.arg
    value, known = cell_value(layout, arg)
    if part.distinct:
        known += f" and {_counted('out', layout, part, f'cells[c + CELL_{arg.name.upper()}]')}"
    yield f"if {known}:"
    if part.state.has_sum or part.state.has_squares:
        yield f"    {arg.name}_old = {value}"
    yield from indented(part.state.leave(part.place, f"{arg.name}_old"))


def _counted(way: str, layout: OverLayout, part: Held, bits: str) -> str:
    assert part.arg is not None
    i = layout.tables.index(part)
    word = f"word_of({bits})" if part.arg.kind == "float" else bits
    return f"count_{way}(table{i}, state, USED + {i}, s, {word})"


def _again(layout: OverLayout, part: Held, state: Sums) -> Iterator[str]:
    assert part.arg is not None
    value, known = cell_value(layout, part.arg)
    yield "# A value that dwarfed all others took their digits with it: add up what is left anew."
    yield from state.reset(part.place)
    stop = "entering + 1" if part.frame.is_delayed else "end"
    yield f"for position in range({part.frame.name}_head, {stop}):"
    yield f"    c = {cell_at('position')}"
    yield f"    if {known}:"
    yield from indented(state.again(part.place, value), 2)


def offer(part: Queue) -> Iterator[str]:
    """The value that enters may become the extreme."""
    prefix = f"s + {part.name.upper()}"
    value = f"{part.arg.name}_v"
    yield f"if {' and '.join(f'{arg.name}_in' for arg in part.args)}:"
    array = "fcells" if part.arg.kind == "float" else "cells"
    lane = f"CELL_{part.name.upper()}_QUEUE"
    yield f"    queue_head = slots[{prefix}_QUEUE_HEAD]"
    yield f"    queue_tail = slots[{prefix}_QUEUE_TAIL]"
    yield "    while queue_head < queue_tail:"
    yield f"        position = cells[{cell_at('(queue_tail - 1)')} + {lane}]"
    yield f"        {part.arg.name}_old = {array}[{cell_at('position')} + CELL_{part.arg.name.upper()}]"
    yield f"        if {_stays(part, f'{part.arg.name}_old', value)}:"
    yield "            break"
    yield "        queue_tail -= 1"
    yield f"    cells[{cell_at('queue_tail')} + {lane}] = {'entering' if part.frame.is_delayed else 'tail'}"
    yield f"    slots[{prefix}_QUEUE_TAIL] = queue_tail + 1"


def _stays(part: Queue, old: str, new: str) -> str:
    """Whether a value waits in the queue when a newer one comes."""
    if part.fn in KNOWN:
        return str(part.fn == "first_known")
    ranked = Extreme(part.arg, part.fn)
    # the value beside the first of equal ones counts
    return f"not ({ranked.comes_first(new, old)})" if part.fn in BESIDE else ranked.comes_first(old, new)


def expire(part: Queue) -> Iterator[str]:
    """Candidates that the frame has left behind go."""
    prefix = f"s + {part.name.upper()}"
    entry = f"cells[{cell_at('queue_head')} + CELL_{part.name.upper()}_QUEUE]"
    yield f"queue_head = slots[{prefix}_QUEUE_HEAD]"
    yield f"while queue_head < slots[{prefix}_QUEUE_TAIL] and {entry} < {part.frame.name}_head:"
    yield "    queue_head += 1"
    yield f"slots[{prefix}_QUEUE_HEAD] = queue_head"


def note(layout: OverLayout, part: Nth) -> Iterator[str]:
    """The row that enters may be the one with the number."""
    known, value, rows = (f"s + {part.name.upper()}_{lane}" for lane in ("KNOWN", "VALUE", "ROWS"))
    yield f"slots[{rows}] += 1"
    yield f"if slots[{rows}] == widths[{2 * len(layout.frames) + part.number}]:"
    yield f"    slots[{known}] = {part.arg.name}_in"
    yield f"    {'sums' if part.arg.kind == 'float' else 'slots'}[{value}] = {part.arg.name}_v"


def count_up(part: Rank) -> Iterator[str]:
    """This row comes: its time is that of the last row or a new one."""
    rows, last, value = (f"slots[s + {part.name.upper()}_{lane}]" for lane in ("ROWS", "LAST", "VALUE"))
    yield f"if {rows} == 0 or {last} != t:"
    yield f"    {last} = t"
    yield f"    {value} = {rows if part.fn == 'rank' else value} + 1"
    yield f"{rows} += 1"
