"""The source text of an OVER operator's loop, made for its frames and calls."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.kernels import accumulators
from millstream.kernels.accumulators import Sums
from millstream.kernels.over import loops
from millstream.kernels.over.emit import emit
from millstream.kernels.over.layout import Held, NamedFrame, Nth, OverLayout, Part, Queue, Rank
from millstream.kernels.over.parts import cell_at, count_up, expire, load_cell, note, offer, put, take
from millstream.kernels.source.passes import imports_of
from millstream.kernels.source.writer import filled, indented

DONE, CELLS_NEEDED, TABLE_NEEDED, OVERFLOW = 0, 1, 1_000, 2_000
FIRST, ADDED, LAST, WANTED, USED = range(5)

_HEADER = f"""\
# What `step` answers: it is done, or it has to be called again with more room.
DONE, CELLS_NEEDED, TABLE_NEEDED, OVERFLOW = {DONE}, {CELLS_NEEDED}, {TABLE_NEEDED}, {OVERFLOW}
# Lanes of `state`: where to go on, how far, how many cells are wanted, and from USED on how full the tables are.
FIRST, ADDED, LAST, WANTED, USED = {FIRST}, {ADDED}, {LAST}, {WANTED}, {USED}
POSITIVE = 0x7FFF_FFFF_FFFF_FFFF
AHEAD = 8
"""
_RINGS = ("BASE", "CAPACITY", "FIRST_CAPACITY", "resize")


def generate(layout: OverLayout) -> str:
    """A module whose `step` takes the rows of one shard in and writes their results.

    Names and widths are not in it: queries that differ in those alone share its compiled form.
    """
    own = f"{_HEADER}{_lanes(layout)}\n\n{_step(layout)}"
    text = f"{accumulators.imports(own)}from millstream.kernels.jit.primitives import COMPILED, prefetch\n"
    return text + "".join(f"{line}\n" for line in imports_of(loops.__name__, _RINGS, own)) + "\n" + own


def parameters(layout: OverLayout) -> list[str]:
    """The names of what `step` is called with, in order."""
    names = ["rows", "at", "state", "widths", "time", *(f"reach_{frame.name}" for frame in layout.own)]
    for arg in layout.args:
        names += arg.arrays
    names += ["slots", "sums"]
    if layout.logged:
        names += ["cells", "fcells", "regions", "shape"]
    names += [f"table{i}" for i in range(len(layout.tables))]
    for i in range(len(layout.spec.calls)):
        names += [f"out{i}", f"ok{i}"]
    return names


def _lanes(layout: OverLayout) -> str:
    lines = ["# Lanes of a key's record."]
    lines += [f"{name.upper()} = {lane}" for name, lane in layout.slot_lanes.items()]
    if layout.cell_lanes:
        lines += ["# Lanes of a row's cell."]
        lines += [f"CELL_{name.upper()} = {lane}" for name, lane in layout.cell_lanes.items()]
        lines += [f"CELL = {len(layout.cell_lanes)}"]
    return "\n".join(lines) + "\n"


def _step(layout: OverLayout) -> str:
    head = f"def step({', '.join(parameters(layout))}):\n"
    for i, frame in enumerate(layout.frames):
        if frame in layout.logged and not frame.is_own:
            head += f"    {frame.name}_width = widths[{i}]\n"
        if frame.is_delayed:
            head += f"    {frame.name}_until = widths[{len(layout.frames) + i}]\n"
    early = [i for i, call in enumerate(layout.spec.calls) if not call.frame.has_peers]
    late = [i for i, call in enumerate(layout.spec.calls) if call.frame.has_peers]
    enter = [*_enter(layout), *(line for i in early for line in emit(layout, i))]
    if not late:
        if any(isinstance(part, Rank) for part in layout.parts) or "time" in layout.cell_lanes:
            enter = ["t = time[rows[q]]", *enter]
        template = f"""{head}\
    last = state[LAST]
    for q in range(state[ADDED], last):
        p = q
        <enter>
    return DONE
"""
        return filled(template, enter=enter)
    leave = [*_record(layout), *(line for i in late for line in emit(layout, i))]
    template = f"""{head}\
    last = state[LAST]
    p = state[FIRST]
    while p < last:
        # Rows of equal time see each other: first all of them enter, then each gets its result.
        t = time[rows[p]]
        stop = p + 1
        while stop < last and time[rows[stop]] == t:
            stop += 1
        for q in range(max(p, state[ADDED]), stop):
            <enter>
        for q in range(p, stop):
            <leave>
        p = stop
    return DONE
"""
    return filled(template, enter=enter, leave=leave)


def _record(layout: OverLayout) -> Iterator[str]:
    """What a result after the peers' entry reads."""
    yield "r = rows[q]"
    yield "s = at[q]"
    if layout.logged:
        yield "base = slots[s + BASE]"
        yield "mask = slots[s + CAPACITY] - 1"
        yield "end = slots[s + TAIL]"
        for frame in layout.logged:
            if frame.is_range and frame.is_bounded:
                yield f"{frame.name}_head = slots[s + {frame.name.upper()}_HEAD]"
            if frame.is_range and frame.is_delayed:
                yield f"{frame.name}_end = slots[s + {frame.name.upper()}_END]"


def _enter(layout: OverLayout) -> Iterator[str]:
    yield "r = rows[q]"
    yield "s = at[q]"
    for frame in layout.logged:
        if frame.is_own:
            yield f"{frame.name}_width = reach_{frame.name}[r]"
            yield f"slots[s + {frame.name.upper()}_WIDTH] = {frame.name}_width"
    yield from _look_ahead(layout)
    if layout.logged:
        yield from _room(layout)
    # What may pause goes by where it is, so that it can be done again; what follows is done once.
    for frame in layout.delayed:
        if frame.is_range:
            yield from _catch_up(layout, frame)
    for i in range(len(layout.tables)):
        yield from _table_room(i)
    for frame in layout.delayed:
        yield from _leave(layout, frame)
        if not frame.is_range:
            yield from _enter_at_distance(layout, frame)
    for arg in layout.args:
        yield from arg.load("r")
    for frame in layout.logged:
        if not frame.is_delayed:
            yield from _leave(layout, frame)
    if layout.logged:
        yield from _write_cell(layout)
    for part in layout.parts:
        if not part.frame.is_delayed:
            yield from _take_in(layout, part)


def _take_in(layout: OverLayout, part: Part) -> Iterator[str]:
    match part:
        case Held():
            yield from put(layout, part)
        case Queue():
            yield from offer(part)
        case Rank():
            yield from count_up(part)
        case Nth():
            yield from note(layout, part)


def _table_room(table: int, *before: str) -> Iterator[str]:
    yield f"if 6 * state[USED + {table}] >= len(table{table}):"
    yield from indented(before)
    yield from _pause(f"TABLE_NEEDED + {table}")


def _catch_up(layout: OverLayout, frame: NamedFrame) -> Iterator[str]:
    """The rows that have become old enough to be in a frame enter it."""
    name = frame.name
    end = f"slots[s + {name.upper()}_END]"
    by_position = frame.is_earlier or frame.is_later
    yield f"while {name}_end < {f'tail + 1 - {name}_until' if by_position else 'tail'}:"
    yield f"    c = {cell_at(f'{name}_end')}"
    if not frame.is_later:
        yield f"    if cells[c + {frame.cell_place}] > {name}_latest:"
        yield "        break"
    for i, part in enumerate(layout.tables):
        if part.frame == frame:
            yield from indented(_table_room(i, f"{end} = {name}_end"))
    yield f"    entering = {name}_end"
    yield from indented(_take_in_from_cell(layout, frame))
    yield f"    {name}_end += 1"
    yield f"{end} = {name}_end"


def _enter_at_distance(layout: OverLayout, frame: NamedFrame) -> Iterator[str]:
    """The row that has become far enough from the last one to be in a frame of rows enters it."""
    name = frame.name
    yield f"{name}_end = max(0, tail + 1 - {name}_until)"
    lines = list(_take_in_from_cell(layout, frame))
    if lines:
        yield f"entering = tail - {name}_until"
        yield "if entering >= 0:"
        yield f"    c = {cell_at('entering')}"
        yield from indented(lines)


def _take_in_from_cell(layout: OverLayout, frame: NamedFrame) -> Iterator[str]:
    parts = [part for part in layout.parts if part.frame == frame]
    needed = {arg.name for part in parts if not isinstance(part, Rank) for arg in part.args}
    for arg in layout.args:
        if arg.name in needed:
            yield from load_cell(layout, arg)
    for part in parts:
        yield from _take_in(layout, part)


def _look_ahead(layout: OverLayout) -> Iterator[str]:
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
            lane = "HEAD" if frame.is_bounded else "END"
            head = f"slots[soon + {frame.name.upper()}_{lane}]"
            if not frame.is_range:
                head = f"(slots[soon + TAIL] - {_reach(frame)})"
            yield f"    prefetch(cells, slots[soon + BASE] + ({head} & near) * CELL)"
        yield "    prefetch(cells, slots[soon + BASE] + (slots[soon + TAIL] & near) * CELL)"


def _room(layout: OverLayout) -> Iterator[str]:
    """Before anything changes: is there a cell for this row, or will one become free by its coming?"""
    yield "base = slots[s + BASE]"
    yield "capacity = slots[s + CAPACITY]"
    yield "tail = slots[s + TAIL]"
    lows = []
    stays = []
    if layout.counts_groups:
        # the number of this row's time in its partition: it is noted when the row has its cell
        yield "group = slots[s + GROUP_NUMBER]"
        yield "if group == 0 or slots[s + GROUP_TIME] != t:"
        yield "    group += 1"
    for frame in layout.logged:
        name = frame.name
        if frame.is_later:
            yield f"{name}_end = slots[s + {name.upper()}_END]"
            yield f"{name}_head = slots[s + {name.upper()}_HEAD]"
            # the row before them is there, too: its time says which rows are later
            lows.append(f"max(0, tail - {_reach(frame)})")
            stays.append(f"oldest > tail - {_reach(frame)}")
            continue
        if frame.is_range and frame.is_delayed:
            until = "1" if frame.is_earlier else f"{name}_until"
            yield f"{name}_latest = max({frame.place}, NULL_INT + {until}) - {until}"
            yield f"{name}_end = slots[s + {name.upper()}_END]"
        if frame.is_earlier and frame.is_bounded:
            yield f"{name}_since = tail - {name}_width"
            yield f"{name}_head = slots[s + {name.upper()}_HEAD]"
            lows.append(f"{name}_head")
            # a row that has not entered yet leaves after it has
            waits = f"cells[c + {frame.cell_place}] > {name}_latest"
            stays.append(f"({name}_head == oldest and (oldest >= {name}_since or {waits}))")
        elif frame.is_range and frame.is_bounded:
            yield f"{name}_since = max({frame.place}, NULL_INT + {name}_width) - {name}_width"
            yield f"{name}_head = slots[s + {name.upper()}_HEAD]"
            lows.append(f"{name}_head")
            stays.append(f"({name}_head == oldest and cells[c + {frame.cell_place}] >= {name}_since)")
        elif frame.is_range:
            lows.append(f"{name}_end")
            waits = f"cells[c + {frame.cell_place}] > {name}_latest"
            if frame.is_earlier:
                waits = f"({waits} or oldest > tail - {name}_until)"
            stays.append(f"({name}_end == oldest and {waits})")
        else:
            lows.append(f"max(0, tail - {_reach(frame)})")
            stays.append(f"oldest > tail - {_reach(frame)}")
    together = ", ".join(lows)
    yield f"oldest = min({together})" if len(lows) > 1 else f"oldest = {together}"
    yield "wanted = capacity"
    yield "if tail - oldest == capacity:"
    yield "    c = (base + (oldest & (capacity - 1)) * CELL) & POSITIVE"
    yield f"    if capacity == 0 or {' or '.join(stays)}:"
    yield "        wanted = max(FIRST_CAPACITY, 2 * capacity)"
    if all(frame.is_range for frame in layout.logged):
        yield "elif capacity > 64 and tail - oldest < capacity >> 3:"
        yield "    wanted = capacity >> 1"
    yield "if wanted != capacity:"
    yield "    if not resize(slots, s, cells, regions, shape, oldest, tail, wanted):"
    yield "        state[WANTED] = wanted"
    yield from indented(_pause("CELLS_NEEDED"))
    yield "    base = slots[s + BASE]"
    yield "mask = wanted - 1"


def _reach(frame: NamedFrame) -> str:
    """How far behind an arriving row lies the oldest one that a frame of rows needs."""
    return f"({frame.name}_width + 1)" if frame.is_bounded else f"{frame.name}_until"


def _pause(answer: str) -> Iterator[str]:
    yield "    state[FIRST] = p"
    yield "    state[ADDED] = q"
    yield f"    return {answer}"


def _leave(layout: OverLayout, frame: NamedFrame) -> Iterator[str]:
    """The rows that a frame leaves behind when this row comes."""
    name = frame.name
    if not frame.is_bounded:
        return
    held = [part for part in layout.parts if isinstance(part, Held) and part.frame == frame]
    taken = [line for part in held if isinstance(part.state, Sums) for line in take(layout, part)]
    if frame.is_later:
        yield f"{name}_since = NULL_INT"
        yield f"if tail > {name}_width:"
        yield f"    {name}_since = cells[{cell_at(f'(tail - {name}_width - 1)')} + CELL_TIME] + 1"
    if frame.is_range:
        yield f"while {name}_head < {f'{name}_end' if frame.is_delayed else 'tail'}:"
        yield f"    c = {cell_at(f'{name}_head')}"
        place = f"{name}_head" if frame.is_earlier else f"cells[c + {frame.cell_place}]"
        yield f"    if {place} >= {name}_since:"
        yield "        break"
        yield from indented(taken)
        yield f"    {name}_head += 1"
        yield f"slots[s + {name.upper()}_HEAD] = {name}_head"
    else:
        if taken:
            yield f"if tail > {name}_width:"
            yield f"    c = {cell_at(f'(tail - {name}_width - 1)')}"
            yield from indented(taken)
        yield f"{name}_head = max(0, tail - {name}_width)"
    for queue in layout.queues:
        if queue.frame == frame:
            yield from expire(queue)


def _write_cell(layout: OverLayout) -> Iterator[str]:
    yield f"c = {cell_at('tail')}"
    if "time" in layout.cell_lanes:
        yield "cells[c + CELL_TIME] = t"
    if layout.counts_groups:
        yield "cells[c + CELL_GROUP] = group"
        yield "slots[s + GROUP_NUMBER] = group"
        yield "slots[s + GROUP_TIME] = t"
    flags = [f"({arg.name}_in << {layout.flag_bit(arg)})" for arg in layout.logged_args if arg.flagged]
    if flags:
        yield f"cells[c + CELL_FLAGS] = {' | '.join(flags)}"
    for arg in layout.logged_args:
        if arg.valued:
            target = "fcells" if arg.kind == "float" else "cells"
            yield f"{target}[c + CELL_{arg.name.upper()}] = {arg.name}_v"
    yield "end = tail + 1"
    yield "slots[s + TAIL] = end"
