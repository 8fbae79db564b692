"""The functions of generated OVER source: how each part of the state takes a value in and lets it go."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import indent

from millstream.kernels.over.layout import Extreme, Layout, Sums


def functions(layout: Layout) -> Iterator[str]:
    """Everything that `step` calls besides the library."""
    if layout.logged:
        yield _resize(layout)
    for part in layout.parts:
        if isinstance(part, Sums) and part.arg is not None:
            yield _change(part, entering=True)
            if part.frame.is_bounded:
                yield _change(part, entering=False)
                if part.exact_sums and not part.distinct:
                    yield _again(layout, part)
        elif isinstance(part, Extreme):
            if part.frame.is_bounded:
                yield _offer_queue(part)
                yield _expire_queue(part)
            else:
                yield _offer_best(part)


def _change(part: Sums, entering: bool) -> str:
    assert part.arg is not None
    prefix = part.name.upper()
    sign, step, verb = ("", "+=", "put") if entering else ("-", "-=", "take")
    lines = [f"slots[s + {prefix}_COUNT] {step} 1"]
    if part.arg.kind == "float" and part.exact_sums:
        lines += ["if v - v == 0.0:", f"    exact_add(sums, s + {prefix}_SUM, {sign}v)"]
        if part.has_squares:
            lines += [
                "    if abs(v) < LARGEST_SQUARED:",
                f"        add_square(sums, s + {prefix}_SQUARES, v, {sign}1.0)",
                "    else:",
                f"        slots[s + {prefix}_HUGE] {step} 1",
            ]
        lines += [
            "elif v != v:",
            f"    slots[s + {prefix}_ODD] {step} 1",
            "else:",
            f"    slots[s + {prefix}_ODD] {step} 1 << 32",
            f"    slots[s + {prefix}_NET] {step} 1 if v > 0.0 else -1",
        ]
    elif part.has_sum and part.arg.is_wide:
        lines += [f"slots[s + {prefix}_SUM] {step} v >> 32", f"slots[s + {prefix}_SUM_LOW] {step} v & LOW_HALF"]
    elif part.has_sum:
        lines += [f"slots[s + {prefix}_SUM] {step} v"]
    if part.arg.kind != "float" and part.has_squares:
        lines += [
            f"w = {scaled(part)}",
            f"exact_add(sums, s + {prefix}_TOTAL, {sign}w)",
            f"add_square(sums, s + {prefix}_SQUARES, w, {sign}1.0)",
        ]
    if not entering and part.exact_sums:
        lines += [f"if slots[s + {prefix}_COUNT] == 0:", *(f"    {line}" for line in _reset(part))]
    value = ", v" if part.arg.valued else ""
    return f"def {verb}_{part.name}(slots, sums, s{value}):\n" + indent("\n".join(lines), "    ") + "\n"


def scaled(part: Sums) -> str:
    """An integer argument as the number it stands for."""
    assert part.arg is not None
    return f"float(v) / {10.0**part.arg.type.scale!r}" if part.arg.type.scale else "float(v)"


def _reset(part: Sums) -> list[str]:
    return [
        f"sums[s + {part.name.upper()}_{lane.upper()}] = 0.0"
        for first in part.exact_sums
        for lane in (first, f"{first}_low", f"{first}_error")
    ]


def _again(layout: Layout, part: Sums) -> str:
    """A value that dwarfed all others took their digits with it: sum up what is left anew."""
    from millstream.kernels.over.codegen import cell_value

    assert part.arg is not None
    prefix = part.name.upper()
    value, known = cell_value(layout, part.arg)
    lines = [*_reset(part), "for p in range(head, end):", "    c = base + (p & mask) * CELL", f"    if {known}:"]
    lines += [f"        v = {value}"]
    if part.arg.kind == "float":
        lines += ["        if v - v == 0.0:", f"            exact_add(sums, s + {prefix}_SUM, v)"]
        if part.has_squares:
            lines += [
                "            if abs(v) < LARGEST_SQUARED:",
                f"                add_square(sums, s + {prefix}_SQUARES, v, 1.0)",
            ]
    else:
        lines += [
            f"        w = {scaled(part)}",
            f"        exact_add(sums, s + {prefix}_TOTAL, w)",
            f"        add_square(sums, s + {prefix}_SQUARES, w, 1.0)",
        ]
    body = indent("\n".join(lines), "    ")
    return f"def again_{part.name}(slots, sums, cells, fcells, s, base, mask, head, end):\n{body}\n"


def _before(part: Extreme, left: str, right: str) -> str:
    """Whether one value comes before another on the way to the extreme."""
    if part.fn == "max":
        left, right = right, left
    if part.arg.kind == "text":
        return f"text_before({left}, {right}, starts, lengths, arena)"
    return f"float_before({left}, {right})" if part.arg.kind == "float" else f"{left} < {right}"


def _text(part: Extreme) -> str:
    return ", starts, lengths, arena" if part.arg.kind == "text" else ""


def _offer_queue(part: Extreme) -> str:
    prefix = part.name.upper()
    array = "fcells" if part.arg.kind == "float" else "cells"
    lane = f"CELL_{part.arg.name.upper()}"
    return f"""\
def offer_{part.name}(slots, cells, fcells, s, base, mask, tail{_text(part)}):
    v = {array}[base + (tail & mask) * CELL + {lane}]
    head = slots[s + {prefix}_QUEUE_HEAD]
    end = slots[s + {prefix}_QUEUE_TAIL]
    while head < end:
        p = cells[base + ((end - 1) & mask) * CELL + CELL_{prefix}_QUEUE]
        w = {array}[base + (p & mask) * CELL + {lane}]
        if {_before(part, "w", "v")}:
            break
        end -= 1
    cells[base + (end & mask) * CELL + CELL_{prefix}_QUEUE] = tail
    slots[s + {prefix}_QUEUE_TAIL] = end + 1
"""


def _expire_queue(part: Extreme) -> str:
    prefix = part.name.upper()
    return f"""\
def expire_{part.name}(slots, cells, s, base, mask, first):
    head = slots[s + {prefix}_QUEUE_HEAD]
    end = slots[s + {prefix}_QUEUE_TAIL]
    while head < end and cells[base + (head & mask) * CELL + CELL_{prefix}_QUEUE] < first:
        head += 1
    slots[s + {prefix}_QUEUE_HEAD] = head
"""


def _offer_best(part: Extreme) -> str:
    prefix = part.name.upper()
    array = "sums" if part.arg.kind == "float" else "slots"
    best = f"{array}[s + {prefix}_BEST]"
    return f"""\
def offer_{part.name}(slots, sums, s, v{_text(part)}):
    if slots[s + {prefix}_ANY] == 0 or {_before(part, "v", best)}:
        slots[s + {prefix}_ANY] = 1
        {best} = v
"""


def _resize(layout: Layout) -> str:
    queues = "".join(
        f"""
    for p in range(slots[s + {queue.name.upper()}_QUEUE_HEAD], slots[s + {queue.name.upper()}_QUEUE_TAIL]):
        lane = CELL_{queue.name.upper()}_QUEUE
        cells[place + (p & (wanted - 1)) * CELL + lane] = cells[base + (p & (capacity - 1)) * CELL + lane]"""
        for queue in layout.queues
    )
    return f"""\
def resize(slots, s, cells, regions, state, low, tail, wanted):
    place = take_region(cells, regions, wanted, CELL)
    if place < 0:
        state[WANTED] = wanted
        return False
    base = slots[s + BASE]
    capacity = slots[s + CAPACITY]
    for p in range(low, tail):
        for lane in range(CELL):
            cells[place + (p & (wanted - 1)) * CELL + lane] = cells[base + (p & (capacity - 1)) * CELL + lane]{queues}
    if capacity > 0:
        give_region(cells, regions, base, capacity)
    slots[s + BASE] = place
    slots[s + CAPACITY] = wanted
    return True
"""
