"""The source text of an OVER operator's loop, made for its frames and calls."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from textwrap import indent

from millstream.kernels.jit import source_of
from millstream.kernels.over import loops
from millstream.kernels.over.emit import emit
from millstream.kernels.over.layout import Arg, Edge, Extreme, Layout, NamedFrame, Sums
from millstream.kernels.over.parts import functions

DONE, CELLS_NEEDED, TABLE_NEEDED, OVERFLOW = 0, 1, 1_000, 2_000
FIRST, ADDED, LAST, WANTED, USED = range(5)

_CONSTANTS = f"""\
# What `step` answers: it is done, or it has to be called again with more room.
DONE, CELLS_NEEDED, TABLE_NEEDED, OVERFLOW = {DONE}, {CELLS_NEEDED}, {TABLE_NEEDED}, {OVERFLOW}
# Lanes of `state`: where to go on, how far, how many cells are wanted, and from USED on how full the tables are.
FIRST, ADDED, LAST, WANTED, USED = {FIRST}, {ADDED}, {LAST}, {WANTED}, {USED}
EARLIEST = -0x8000_0000_0000_0000
AHEAD = 8
"""


def generate(layout: Layout) -> str:
    """A module whose `step` takes the rows of one shard in and writes their results.

    Names and widths are not in it: queries that differ in those alone share its compiled form.
    """
    own = "\n\n".join([_lanes(layout), *functions(layout), _step(layout)])
    library = source_of(loops, *re.findall(r"\w+", own))
    primitives = "from millstream.kernels.jit.primitives import COMPILED, prefetch\n"
    return f"{primitives}{library}\n\n{_CONSTANTS}{own}\n"


def parameters(layout: Layout) -> list[str]:
    """The names of what `step` is called with, in order."""
    names = ["rows", "at", "state", "widths", "time"]
    for arg in layout.args:
        names += argument_names(arg)
    names += ["slots", "sums"]
    if layout.logged:
        names += ["cells", "fcells", "regions"]
    names += [f"table{i}" for i in range(len(layout.tables))]
    for i in range(len(layout.spec.calls)):
        names += [f"out{i}", f"ok{i}"]
    return names


def argument_names(arg: Arg) -> list[str]:
    """The arrays that carry an argument column."""
    names = []
    if arg.valued:
        names.append(arg.name)
        if arg.kind == "float":
            names.append(f"{arg.name}_bits")
        if arg.kind == "text":
            names += [f"{arg.name}_starts", f"{arg.name}_lengths", f"{arg.name}_arena"]
    if arg.flagged:
        names.append(f"{arg.name}_ok")
    return names


def _lanes(layout: Layout) -> str:
    lines = ["# Lanes of a key's record."]
    lines += [f"{name.upper()} = {lane}" for name, lane in layout.slot_lanes.items()]
    if layout.cell_lanes:
        lines += ["# Lanes of a row's cell."]
        lines += [f"CELL_{name.upper()} = {lane}" for name, lane in layout.cell_lanes.items()]
        lines += [f"CELL = {len(layout.cell_lanes)}"]
    return "\n".join(lines) + "\n"


def _step(layout: Layout) -> str:
    head = f"def step({', '.join(parameters(layout))}):\n"
    for i, frame in enumerate(layout.frames):
        if frame in layout.logged:
            head += f"    {frame.name}_width = widths[{i}]\n"
    enter = "\n".join(_enter(layout))
    early = [i for i, call in enumerate(layout.spec.calls) if call.frame.unit == "rows"]
    late = [i for i, call in enumerate(layout.spec.calls) if call.frame.unit == "range"]
    enter += "\n" + "\n".join(line for i in early for line in emit(layout, i))
    if not late:
        return f"""{head}\
    last = state[LAST]
    for q in range(state[ADDED], last):
        p = q
{indent(enter, " " * 8)}
    return DONE"""
    leave = "\n".join([*_record(layout), *(line for i in late for line in emit(layout, i))])
    return f"""{head}\
    last = state[LAST]
    p = state[FIRST]
    while p < last:
        # Rows of equal time see each other: first all of them enter, then each gets its result.
        t = time[rows[p]]
        stop = p + 1
        while stop < last and time[rows[stop]] == t:
            stop += 1
        for q in range(max(p, state[ADDED]), stop):
{indent(enter, " " * 12)}
        for q in range(p, stop):
{indent(leave, " " * 12)}
        p = stop
    return DONE"""


def _record(layout: Layout) -> Iterator[str]:
    """What a result after the peers' entry reads."""
    yield "r = rows[q]"
    yield "s = at[q]"
    if layout.logged:
        yield "base = slots[s + BASE]"
        yield "mask = slots[s + CAPACITY] - 1"
        yield "end = slots[s + TAIL]"
        for frame in layout.logged:
            if frame.is_range:
                yield f"{frame.name}_head = slots[s + {frame.name.upper()}_HEAD]"


def _enter(layout: Layout) -> Iterator[str]:
    yield "r = rows[q]"
    yield "s = at[q]"
    yield from _look_ahead(layout)
    if layout.logged:
        yield from _room(layout)
    for i in range(len(layout.tables)):
        yield f"if 6 * state[USED + {i}] >= len(table{i}):"
        yield from _pause(f"TABLE_NEEDED + {i}")
    for arg in layout.args:
        yield from _load_from_row(arg)
    for frame in layout.logged:
        yield from _leave(layout, frame)
    if layout.logged:
        yield from _write_cell(layout)
    for frame in layout.frames:
        yield from _arrive(layout, frame)


def _look_ahead(layout: Layout) -> Iterator[str]:
    """The records and cells of rows to come are asked for early: their misses overlap with this row's work."""
    width = len(layout.slot_lanes)
    yield "if COMPILED and q + 2 * AHEAD < last:"
    yield "    prefetch(slots, at[q + 2 * AHEAD])"
    if width > 4:
        yield f"    prefetch(slots, at[q + 2 * AHEAD] + {width - 1})"
    if layout.logged:
        yield "    soon = at[q + AHEAD]"
        yield "    near = slots[soon + CAPACITY] - 1"
        for frame in layout.logged:
            head = f"slots[soon + {frame.name.upper()}_HEAD]"
            if not frame.is_range:
                head = f"(slots[soon + TAIL] - {frame.name}_width - 1)"
            yield f"    prefetch(cells, slots[soon + BASE] + ({head} & near) * CELL)"
        yield "    prefetch(cells, slots[soon + BASE] + (slots[soon + TAIL] & near) * CELL)"


def _room(layout: Layout) -> Iterator[str]:
    """Before anything changes: is there a cell for this row, or will one become free by its coming?"""
    yield "base = slots[s + BASE]"
    yield "capacity = slots[s + CAPACITY]"
    yield "tail = slots[s + TAIL]"
    lows = []
    stays = []
    for frame in layout.logged:
        if frame.is_range:
            yield f"{frame.name}_since = max(t, EARLIEST + {frame.name}_width) - {frame.name}_width"
            yield f"{frame.name}_head = slots[s + {frame.name.upper()}_HEAD]"
            lows.append(f"{frame.name}_head")
            stays.append(f"({frame.name}_head == low and cells[oldest + CELL_TIME] >= {frame.name}_since)")
        else:
            lows.append(f"max(0, tail - {frame.name}_width - 1)")
            stays.append(f"low >= tail - {frame.name}_width")
    low = lows[0] if len(lows) == 1 else f"min({', '.join(lows)})"
    yield f"low = {low}"
    yield "if tail - low == capacity:"
    yield "    oldest = base + (low & (capacity - 1)) * CELL"
    yield f"    if capacity == 0 or {' or '.join(stays)}:"
    yield "        if not resize(slots, s, cells, regions, state, low, tail, max(FIRST_CAPACITY, 2 * capacity)):"
    yield from _indented(_pause("CELLS_NEEDED"), 8)
    yield "        base = slots[s + BASE]"
    yield "        capacity = slots[s + CAPACITY]"
    if all(frame.is_range for frame in layout.logged):
        yield "elif capacity > 64 and tail - low < capacity >> 3:"
        yield "    if resize(slots, s, cells, regions, state, low, tail, capacity >> 1):"
        yield "        base = slots[s + BASE]"
        yield "        capacity = slots[s + CAPACITY]"
    yield "mask = capacity - 1"


def _pause(answer: str) -> Iterator[str]:
    yield "    state[FIRST] = p"
    yield "    state[ADDED] = q"
    yield f"    return {answer}"


def _load_from_row(arg: Arg) -> Iterator[str]:
    if arg.valued:
        yield f"{arg.name}_v = {arg.name}[r]"
    if arg.flagged:
        yield f"{arg.name}_in = {arg.name}_ok[r]"
    elif arg.kind == "float":
        yield f"{arg.name}_in = {arg.name}_bits[r] != NULL_FLOAT"
    else:
        yield f"{arg.name}_in = {arg.name}_v {'>= 0' if arg.kind == 'text' else '!= NULL_INT'}"


def _leave(layout: Layout, frame: NamedFrame) -> Iterator[str]:
    """The rows that a frame leaves behind when this row comes."""
    name = frame.name
    sums = [part for part in layout.parts if isinstance(part, Sums) and part.frame == frame]
    taken = [line for part in sums for line in _take(layout, part)]
    if frame.is_range:
        yield f"while {name}_head < tail:"
        yield f"    c = base + ({name}_head & mask) * CELL"
        yield f"    if cells[c + CELL_TIME] >= {name}_since:"
        yield "        break"
        yield from _indented(taken, 4)
        yield f"    {name}_head += 1"
        yield f"slots[s + {name.upper()}_HEAD] = {name}_head"
    else:
        if taken:
            yield f"if tail > {name}_width:"
            yield f"    c = base + ((tail - {name}_width - 1) & mask) * CELL"
            yield from _indented(taken, 4)
        yield f"{name}_head = max(0, tail - {name}_width)"
    for queue in layout.queues:
        if queue.frame == frame:
            yield f"expire_{queue.name}(slots, cells, s, base, mask, {name}_head)"


def _take(layout: Layout, part: Sums) -> Iterator[str]:
    assert part.arg is not None
    value, known = cell_value(layout, part.arg)
    if part.distinct:
        i = layout.tables.index(part)
        value_word = word(part.arg, f"cells[c + CELL_{part.arg.name.upper()}]")
        known += f" and count_out(table{i}, state, USED + {i}, s, {value_word})"
    yield f"if {known}:"
    yield f"    take_{part.name}(slots, sums, s{f', {value}' if part.arg.valued else ''})"


def cell_value(layout: Layout, arg: Arg) -> tuple[str, str]:
    """The value of an argument in cell c, and whether it is one."""
    lane = f"c + CELL_{arg.name.upper()}"
    value = f"fcells[{lane}]" if arg.kind == "float" else f"cells[{lane}]"
    if arg.flagged:
        return value, f"(cells[c + CELL_FLAGS] >> {layout.flag_bit(arg)}) & 1 != 0"
    if arg.kind == "text":
        return value, f"cells[{lane}] >= 0"
    return value, f"cells[{lane}] != {'NULL_FLOAT' if arg.kind == 'float' else 'NULL_INT'}"


def word(arg: Arg, bits: str) -> str:
    """A value's bits as a word by which equal values are found."""
    return f"word_of({bits})" if arg.kind == "float" else bits


def _write_cell(layout: Layout) -> Iterator[str]:
    yield "c = base + (tail & mask) * CELL"
    if "time" in layout.cell_lanes:
        yield "cells[c + CELL_TIME] = t"
    flags = [f"({arg.name}_in << {layout.flag_bit(arg)})" for arg in layout.logged_args if arg.flagged]
    if flags:
        yield f"cells[c + CELL_FLAGS] = {' | '.join(flags)}"
    for arg in layout.logged_args:
        if arg.valued:
            target = "fcells" if arg.kind == "float" else "cells"
            yield f"{target}[c + CELL_{arg.name.upper()}] = {arg.name}_v"
    yield "end = tail + 1"
    yield "slots[s + TAIL] = end"


def _arrive(layout: Layout, frame: NamedFrame) -> Iterator[str]:
    """This row enters a frame."""
    for part in layout.parts:
        if part.frame != frame:
            continue
        if part.arg is None:
            yield f"slots[s + {part.name.upper()}_COUNT] += 1"
            continue
        arg = part.arg
        if isinstance(part, Sums):
            condition = f"{arg.name}_in"
            if part.distinct:
                i = layout.tables.index(part)
                bits = f"{arg.name}_bits[r]" if arg.kind == "float" else f"{arg.name}_v"
                condition += f" and count_in(table{i}, state, USED + {i}, s, {word(arg, bits)})"
            yield f"if {condition}:"
            yield f"    put_{part.name}(slots, sums, s{f', {arg.name}_v' if arg.valued else ''})"
            if frame.is_bounded and part.exact_sums and not part.distinct:
                unsure = " or ".join(
                    f"unsure(sums, s + {part.name.upper()}_{lane.upper()})" for lane in part.exact_sums
                )
                yield f"if {unsure}:"
                yield f"    again_{part.name}(slots, sums, cells, fcells, s, base, mask, {frame.name}_head, end)"
        elif isinstance(part, Extreme):
            text = f", {arg.name}_starts, {arg.name}_lengths, {arg.name}_arena" if arg.kind == "text" else ""
            ring = "cells, fcells, s, base, mask, tail" if frame.is_bounded else f"sums, s, {arg.name}_v"
            yield f"if {arg.name}_in:"
            yield f"    offer_{part.name}(slots, {ring}{text})"
        else:
            yield from _edge(part)


def _edge(part: Edge) -> Iterator[str]:
    arg = part.arg
    known, value = (f"s + {part.name.upper()}_{lane}" for lane in ("KNOWN", "VALUE"))
    target = "sums" if arg.kind == "float" else "slots"
    if part.fn == "first_value":
        yield f"if slots[{known}] == 0:"
        yield f"    slots[{known}] = 1 if {arg.name}_in else 2"
        yield f"    {target}[{value}] = {arg.name}_v"
    else:
        yield f"slots[{known}] = 1 if {arg.name}_in else 2"
        yield f"{target}[{value}] = {arg.name}_v"


def _indented(lines: Iterable[str], by: int) -> Iterator[str]:
    return (" " * by + line for line in lines)
