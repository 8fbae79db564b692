"""The source text of the loop that summarizes groups, made for the calls of a spec."""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import indent

from millstream.kernels import accumulators
from millstream.kernels.over.emit import emit
from millstream.kernels.over.parts import load_cell, put, take
from millstream.kernels.relations import stair_source, tree_source
from millstream.kernels.relations.stair_source import TEXT_ARRAYS, drop_steps, put_step, stair_functions, values_of
from millstream.kernels.relations.summary_layout import Ranked, SummaryLayout
from millstream.kernels.relations.tree_source import end_of_tree, put_value, take_value, tree_functions

DONE, ROOM, OVERFLOW = 0, 1, 2
"""What a loop answers: it is done, it needs room for more values in its tables, or which sum is too large."""

_NOTHING = {"float": "0.0", "int": "0", "text": "-1"}

_HEADER = f"""\
DONE, ROOM, OVERFLOW = {DONE}, {ROOM}, {OVERFLOW}
FOREVER = 0x7FFF_FFFF_FFFF_FFFF
OPEN = -0x8000_0000_0000_0000
USED = 0
# Lanes of a row, of an output row and of a group.
SLOT, UNTIL = 0, 1
START, END, OWNER, LINK, NULLS = 0, 1, 2, 3, 4
LIVE, DIED, MARK = 0, 1, 2
"""


def generate(layout: SummaryLayout) -> str:
    """A module whose `step` works on all events of complete instants and writes the rows of groups that changed."""
    functions = (stair_functions if layout.has_ends else tree_functions)(layout.extremes)
    own = f"{_HEADER}{_lanes(layout)}\n\n{functions}{_step(layout)}"
    imports = [accumulators.imports(own)]
    if layout.extremes:
        imports += (stair_source if layout.has_ends else tree_source).IMPORTS
    return "".join(f"{line.rstrip()}\n" for line in imports) + "\n" + own


def _lanes(layout: SummaryLayout) -> str:
    lines = [f"{name.upper()} = {lane}" for name, lane in layout.group_lanes.items()]
    lines += [f"CELL_{name.upper()} = {lane}" for name, lane in layout.row_lanes.items()]
    lines += [f"GROUP, ROW, PLACE = {layout.group_width}, {layout.row_width}, {layout.place_width}"]
    return "\n".join(lines) + "\n"


def _parameters(layout: SummaryLayout) -> list[str]:
    names = ["came_time", "came", "fcame"]
    if layout.has_ends:
        names += ["gone_time", "gone", "fgone"]
    names += ["slots", "sums", "touched", "lanes", "flanes", "marks", "done"]
    names += ["steps", "fsteps", "pool"] if layout.extremes else []
    names += [f"{arg.name}_{array}" for arg in layout.text_extremes for array in TEXT_ARRAYS]
    if layout.layout.tables:
        names += ["state", *(f"table{i}" for i in range(len(layout.layout.tables)))]
    return names


def _step(layout: SummaryLayout) -> str:
    head = f"def step({', '.join(_parameters(layout))}):\n"
    return head + (_intervals(layout) if layout.has_ends else _changes(layout))


def _intervals(layout: SummaryLayout) -> str:
    return f"""\
    p = 0
    q = 0
    tail = marks[0]
    base = marks[1]
    while True:
        t = FOREVER
        if p < len(came_time):
            t = came_time[p]
        if q < len(gone_time):
            t = min(t, gone_time[q])
        if t == FOREVER:
            break
{_text(_room(layout, "p", "q"), 8)}
        count = 0
        while q < len(gone_time) and gone_time[q] == t:
            c = q * ROW
            q += 1
{_text(_touch("gone"), 12)}
            slots[s + LIVE] -= 1
{_text(_named(_leave(layout), "gone"), 12)}
        while p < len(came_time) and came_time[p] == t:
            c = p * ROW
            p += 1
{_text(_touch("came"), 12)}
            slots[s + LIVE] += 1
            slots[s + REACH] = max(slots[s + REACH], came[c + UNTIL])
{_text(_named(_enter(layout), "came"), 12)}
        for k in range(count):
            slot = touched[k]
            s = slot * GROUP
            slots[s + MARK] = 0
            held = slots[s + HELD] - 1
{_text(_expire(layout), 12)}
            if slots[s + LIVE] == 0:
                if held >= 0:
                    lanes[(held - base) * PLACE + END] = t
                slots[s + HELD] = 0
                slots[s + DIED] = tail
                continue
{_text(_results(layout), 12)}
            if held >= 0:
                h = (held - base) * PLACE
                # A row that says the same goes on, but not for ever: all behind it wait for its end.
                if t < lanes[h + LINK] and {_same(layout, "lanes", "h + NULLS", "h + 5")}:
                    continue
                lanes[h + END] = t
            at = (tail - base) * PLACE
            lanes[at + START] = t
            lanes[at + END] = OPEN
            lanes[at + OWNER] = slot
            lanes[at + LINK] = slots[s + REACH]
{_text(_write(layout, "lanes", "at + NULLS", "at + 5"), 12)}
            tail += 1
            slots[s + HELD] = tail
    marks[0] = tail
    return DONE
"""


def _changes(layout: SummaryLayout) -> str:
    calls = range(len(layout.calls))
    old = [f"lanes[at + {5 + i}] = slots[s + GIVEN{i}]" for i in calls]
    return f"""\
    first = 0
    tail = marks[0]
    while first < len(came_time):
        t = came_time[first]
        last = first + 1
        while last < len(came_time) and came_time[last] == t:
            last += 1
{_text(_room(layout, "first", "0"), 8)}
        count = 0
        # What comes first, so that nothing goes that is not there.
        for p in range(first, last):
            c = p * ROW
            if came[c + UNTIL] > 0:
{_text(_touch("came"), 16)}
                slots[s + LIVE] += 1
{_text(_named(_enter(layout), "came"), 16)}
        for p in range(first, last):
            c = p * ROW
            if came[c + UNTIL] < 0:
{_text(_touch("came"), 16)}
                slots[s + LIVE] -= 1
{_text(_named(_leave(layout), "came"), 16)}
        first = last
        for k in range(count):
            slot = touched[k]
            s = slot * GROUP
            slots[s + MARK] = 0
            is_there = slots[s + LIVE] > 0
            if is_there:
{_text(_results(layout), 16)}
                if slots[s + GIVEN] == 1 and {_same(layout, "slots", "s + GIVEN_NULLS", "s + GIVEN0")}:
                    continue
            if slots[s + GIVEN] == 1:
                at = tail * PLACE
                tail += 1
                lanes[at + START] = t
                lanes[at + END] = -1
                lanes[at + OWNER] = slot
                lanes[at + NULLS] = slots[s + GIVEN_NULLS]
{_text(old, 16)}
            slots[s + GIVEN] = 0
            if is_there:
                at = tail * PLACE
                tail += 1
                lanes[at + START] = t
                lanes[at + END] = 1
                lanes[at + OWNER] = slot
{_text(_write(layout, "lanes", "at + NULLS", "at + 5"), 16)}
                slots[s + GIVEN] = 1
{_text(_write(layout, "slots", "s + GIVEN_NULLS", "s + GIVEN0"), 16)}
    marks[0] = tail
    return DONE
"""


def _text(lines: Iterator[str] | list[str], by: int) -> str:
    return indent("\n".join(lines), " " * by)


def _named(lines: Iterator[str], rows: str) -> Iterator[str]:
    """OVER's pieces of source with the rows that they read by another name."""
    for line in lines:
        yield re.sub(r"\b(f?)cells\b", rf"\g<1>{rows}", line)


def _room(layout: SummaryLayout, first: str, gone: str) -> Iterator[str]:
    """Stop before an instant whose values may not fit into the tables."""
    tables = range(len(layout.layout.tables))
    if not tables:
        return
    if layout.has_ends:
        yield "last = p"
        yield "while last < len(came_time) and came_time[last] == t:"
        yield "    last += 1"
    yield f"new = last - {first}"
    full = " or ".join(f"6 * (state[USED + {i}] + new) > len(table{i})" for i in tables)
    yield f"if {full}:"
    yield f"    done[0] = {first}"
    yield f"    done[1] = {gone}"
    yield "    done[2] = new"
    yield "    marks[0] = tail"
    yield "    return ROOM"


def _touch(rows: str) -> list[str]:
    return [
        f"slot = {rows}[c + SLOT]",
        "s = slot * GROUP",
        "if slots[s + MARK] == 0:",
        "    slots[s + MARK] = 1",
        "    touched[count] = slot",
        "    count += 1",
    ]


def _enter(layout: SummaryLayout) -> Iterator[str]:
    for arg in layout.args:
        yield from load_cell(layout.layout, arg)
    for held in layout.held:
        yield from put(layout.layout, held)
    for part in layout.extremes:
        yield from put_step(part, layout.extremes) if layout.has_ends else put_value(part)


def _leave(layout: SummaryLayout) -> Iterator[str]:
    for held in layout.held:
        yield from take(layout.layout, held)
    for part in () if layout.has_ends else layout.extremes:
        yield from take_value(layout.layout, part)


def _expire(layout: SummaryLayout) -> Iterator[str]:
    for part in layout.extremes:
        yield from drop_steps(part)


def _results(layout: SummaryLayout) -> Iterator[str]:
    """What each call comes to, as variables; `nulls` tells which ones are NULL."""
    yield "nulls = 0"
    for i, call in enumerate(layout.calls):
        if call.arg is None:
            yield f"out{i} = slots[s + LIVE]"
        elif call.fn in ("min", "max"):
            wanted = Ranked(layout.layout.arg(call), call.fn)
            if layout.has_ends:
                yield f"best = slots[s + {wanted.name.upper()}_FIRST] - 1"
                yield "if best >= 0:"
            else:
                yield f"best = {end_of_tree(layout.keeper(wanted), call.fn)}"
                yield "if best > 0:"
            yield f"    out{i} = {values_of(wanted)}[{'STEP' if layout.has_ends else 'NODE'} * best + VALUE]"
            yield "else:"
            yield f"    out{i} = {_NOTHING[wanted.arg.kind]}"
            yield f"    nulls |= {1 << i}"
        else:
            for line in emit(layout.layout, i):
                yield line.replace(f"out{i}[r]", f"out{i}").replace(f"ok{i}[r]", f"ok{i}")
            if call.fn != "count":
                yield f"if not ok{i}:"
                yield f"    nulls |= {1 << i}"


def _floats(layout: SummaryLayout, number: int) -> bool:
    return layout.calls[number].type.name == "DOUBLE"


def _array(layout: SummaryLayout, array: str, number: int) -> str:
    if not _floats(layout, number):
        return array
    return "flanes" if array == "lanes" else "sums"


def _same(layout: SummaryLayout, array: str, nulls: str, values: str) -> str:
    """Whether the results are those written before."""
    tests = [f"{array}[{nulls}] == nulls"]
    for i in range(len(layout.calls)):
        before = f"{_array(layout, array, i)}[{values} + {i}]"
        same = f"{before} == out{i}"
        tests.append(f"({same} or ({before} != {before} and out{i} != out{i}))" if _floats(layout, i) else same)
    return " and ".join(tests)


def _write(layout: SummaryLayout, array: str, nulls: str, values: str) -> Iterator[str]:
    yield f"{array}[{nulls}] = nulls"
    for i in range(len(layout.calls)):
        yield f"{_array(layout, array, i)}[{values} + {i}] = out{i}"
