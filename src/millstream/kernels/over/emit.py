"""Pieces of generated source: the result of a call."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.kernels.over.layout import Held, Nth, OverLayout, Rank
from millstream.kernels.over.parts import cell_at, cell_value


def emit(layout: OverLayout, number: int) -> Iterator[str]:
    """The statements that write `out` and `ok` of a call for row r of the record at s."""
    call = layout.spec.calls[number]
    out, ok = f"out{number}[r]", f"ok{number}[r]"
    frame = layout.frame(call)
    distinct = "distinct " if call.distinct else ""
    inside = distinct + ", ".join(arg.name for arg in layout.args_of(call)) if call.args else "*"
    yield f"# {call.fn}({inside}) over {frame.name}: {'' if frame.is_bounded else 'unbounded '}{frame.frame.unit}"
    wanted = layout.part(call)
    if wanted is None:
        yield from _from_cells(layout, number)
        return
    part = layout.part_named(wanted.name)
    prefix = f"s + {part.name.upper()}"
    if isinstance(part, Rank):
        yield f"{out} = slots[{prefix}_VALUE]"
    elif isinstance(part, Nth):
        yield f"{ok} = slots[{prefix}_KNOWN] != 0"
        yield f"{out} = {'sums' if part.arg.kind == 'float' else 'slots'}[{prefix}_VALUE]"
    elif isinstance(part, Held):
        yield from layout.accumulator(call).result(part.place, out, ok, f"return OVERFLOW + {number}")
    else:
        told = part.args[0]
        array = "fcells" if told.kind == "float" else "cells"
        yield f"queue_head = slots[{prefix}_QUEUE_HEAD]"
        yield f"{ok} = queue_head < slots[{prefix}_QUEUE_TAIL]"
        yield f"if queue_head < slots[{prefix}_QUEUE_TAIL]:"
        yield f"    position = cells[{cell_at('queue_head')} + CELL_{part.name.upper()}_QUEUE]"
        yield f"    {out} = {array}[{cell_at('position')} + CELL_{told.name.upper()}]"
        yield "else:"
        yield f"    {out} = 0"


def _from_cells(layout: OverLayout, number: int) -> Iterator[str]:
    call = layout.spec.calls[number]
    out, ok = f"out{number}[r]", f"ok{number}[r]"
    frame = layout.frame(call)
    name = frame.name
    end = f"{name}_end" if frame.is_delayed else "end"
    if call.arg is None:
        yield f"{out} = {end} - {name}_head"
        return
    arg = layout.arg(call)
    if call.fn == "last_value" and not frame.is_delayed:
        yield f"{ok} = {arg.name}_in"
        yield f"{out} = {arg.name}_v"
        return
    value, known = cell_value(layout, arg)
    if call.fn == "first_value" and not frame.is_delayed:
        yield f"c = {cell_at(f'{name}_head')}"
        yield f"{ok} = {known}"
        yield f"{out} = {value}"
        return
    if call.fn == "nth_value":
        yield f"nth = {name}_head + widths[{2 * len(layout.frames) + layout.numbers.index(call.number)}] - 1"
    place, is_there = {
        "nth_value": ("nth", f"nth < {end}"),
        "first_value": (f"{name}_head", f"{name}_head < {end}"),
        "last_value": (f"({end} - 1)", f"{name}_head < {end}"),
        "lag": (f"(end - 1 - {name}_width)", f"end > {name}_width"),
    }[call.fn]
    yield f"if {is_there}:"
    yield f"    c = {cell_at(place)}"
    yield f"    {ok} = {known}"
    yield f"    {out} = {value}"
    yield "else:"
    yield f"    {ok} = False"
    yield f"    {out} = 0"
