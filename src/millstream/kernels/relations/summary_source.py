"""The source text of the loop that summarizes groups, made for the calls of a spec."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.kernels import accumulators
from millstream.kernels.accumulators import Place, Sums
from millstream.kernels.over.emit import emit
from millstream.kernels.over.parts import load_cell, put, take
from millstream.kernels.relations import stair_source, tree_source
from millstream.kernels.relations.stair_source import TEXT_ARRAYS, drop_steps, put_step, stair_functions, values_of
from millstream.kernels.relations.summary_layout import Ranked, SummaryLayout
from millstream.kernels.relations.tree_source import end_of_tree, put_value, take_value, tree_functions
from millstream.kernels.source.passes import renamed
from millstream.kernels.source.writer import filled, indented

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
    gone, came = ("1", "1") if layout.records is None else ("gone[c + CELL_ROWS]", "came[c + CELL_ROWS]")
    template = f"""\
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
        <room>
        count = 0
        while q < len(gone_time) and gone_time[q] == t:
            c = q * ROW
            q += 1
            <touch_gone>
            slots[s + LIVE] -= {gone}
            <leave>
        while p < len(came_time) and came_time[p] == t:
            c = p * ROW
            p += 1
            <touch>
            slots[s + LIVE] += {came}
            slots[s + REACH] = max(slots[s + REACH], came[c + UNTIL])
            <enter>
        for k in range(count):
            slot = touched[k]
            s = slot * GROUP
            slots[s + MARK] = 0
            held = slots[s + HELD] - 1
            <expire>
            if slots[s + LIVE] == 0:
                if held >= 0:
                    lanes[(held - base) * PLACE + END] = t
                slots[s + HELD] = 0
                slots[s + DIED] = tail
                continue
            <results>
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
            <write>
            tail += 1
            slots[s + HELD] = tail
    marks[0] = tail
    return DONE
"""
    return filled(
        template,
        room=_room(layout, "p", "q"),
        touch_gone=_touch("gone"),
        leave=_named(_leave(layout), "gone"),
        touch=_touch("came"),
        enter=_named(_enter(layout), "came"),
        expire=_expire(layout),
        results=_results(layout),
        write=_write(layout, "lanes", "at + NULLS", "at + 5"),
    )


def _changes(layout: SummaryLayout) -> str:
    calls = range(len(layout.calls))
    old = [f"lanes[at + {5 + i}] = slots[s + GIVEN{i}]" for i in calls]
    template = f"""\
    first = 0
    tail = marks[0]
    while first < len(came_time):
        t = came_time[first]
        last = first + 1
        while last < len(came_time) and came_time[last] == t:
            last += 1
        <room>
        count = 0
        # What comes first, so that nothing goes that is not there.
        for p in range(first, last):
            c = p * ROW
            if came[c + UNTIL] > 0:
                <touch>
                slots[s + LIVE] += 1
                <enter>
        for p in range(first, last):
            c = p * ROW
            if came[c + UNTIL] < 0:
                <touch>
                slots[s + LIVE] -= 1
                <leave>
        first = last
        for k in range(count):
            slot = touched[k]
            s = slot * GROUP
            slots[s + MARK] = 0
            is_there = slots[s + LIVE] > 0
            if is_there:
                <results>
                if slots[s + GIVEN] == 1 and {_same(layout, "slots", "s + GIVEN_NULLS", "s + GIVEN0")}:
                    continue
            if slots[s + GIVEN] == 1:
                at = tail * PLACE
                tail += 1
                lanes[at + START] = t
                lanes[at + END] = -1
                lanes[at + OWNER] = slot
                lanes[at + NULLS] = slots[s + GIVEN_NULLS]
                <old>
            slots[s + GIVEN] = 0
            if is_there:
                at = tail * PLACE
                tail += 1
                lanes[at + START] = t
                lanes[at + END] = 1
                lanes[at + OWNER] = slot
                <write>
                slots[s + GIVEN] = 1
                <keep>
    marks[0] = tail
    return DONE
"""
    return filled(
        template,
        room=_room(layout, "first", "0"),
        touch=_touch("came"),
        enter=_named(_enter(layout), "came"),
        leave=_named(_leave(layout), "came"),
        results=_results(layout),
        old=old,
        write=_write(layout, "lanes", "at + NULLS", "at + 5"),
        keep=_write(layout, "slots", "s + GIVEN_NULLS", "s + GIVEN0"),
    )


def _named(lines: Iterator[str], rows: str) -> list[str]:
    """OVER's pieces of source with the rows that they read by another name."""
    return renamed("\n".join(lines), {"cells": rows, "fcells": f"f{rows}"}).splitlines()


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
    if layout.records is not None:
        yield from _enter_record(layout)
        return
    for arg in layout.args:
        yield from load_cell(layout.layout, arg)
    for held in layout.held:
        yield from put(layout.layout, held)
    for part in layout.extremes:
        yield from put_step(part, layout.extremes) if layout.has_ends else put_value(part)


def _leave(layout: SummaryLayout) -> Iterator[str]:
    if layout.records is not None:
        yield from _leave_record(layout)
        return
    for held in layout.held:
        yield from take(layout.layout, held)
    for part in () if layout.has_ends else layout.extremes:
        yield from take_value(layout.layout, part)


def _enter_record(layout: SummaryLayout) -> Iterator[str]:
    """The rows of a record enter as one."""
    for held in layout.held:
        assert held.arg is not None
        yield from held.state.merge(held.place, layout.recorded(held.arg, "sums"))
    for part in layout.extremes:
        best, arg = layout.recorded(part.arg, part.fn), part.arg
        yield f"{arg.name}_in = {best['any']} != 0"
        yield f"{arg.name}_v = {best.float('best') if arg.is_float else best['best']}"
        yield from put_step(part, layout.extremes)


def _leave_record(layout: SummaryLayout) -> Iterator[str]:
    """They leave: a record with all signs turned is merged. What was lost in sums stays lost."""
    for held in layout.held:
        assert held.arg is not None and isinstance(held.state, Sums)
        there = layout.recorded(held.arg, "sums")
        turned = Place(lambda lane, is_float, there=there: _turned(there, lane, is_float))  # type: ignore[misc]
        yield from held.state.merge(held.place, turned)
        if held.state.exact_sums:
            yield f"if {held.place['count']} == 0:"
            yield from indented(held.state.reset(held.place))


def _turned(place: Place, lane: str, is_float: bool) -> str:
    text = place.text(lane, is_float)
    return text if lane.endswith("_error") else f"(-{text})"


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
