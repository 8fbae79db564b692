"""Pieces of generated source: the result of a call."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.kernels.over.layout import Edge, Extreme, Layout, Rank, Sums
from millstream.kernels.over.parts import cell_at, cell_value, indented


def emit(layout: Layout, number: int) -> Iterator[str]:
    """The statements that write `out` and `ok` of a call for row r of the record at s."""
    call = layout.spec.calls[number]
    out, ok = f"out{number}[r]", f"ok{number}[r]"
    frame = layout.frame(call)
    distinct = "distinct " if call.distinct else ""
    inside = "*" if call.arg is None else f"{distinct}{layout.arg(call).name}"
    yield f"# {call.fn}({inside}) over {frame.name}: {'' if frame.is_bounded else 'unbounded '}{frame.frame.unit}"
    wanted = layout.part(call)
    if wanted is None:
        yield from _from_cells(layout, number)
        return
    part = layout.part_named(wanted.name)
    prefix = f"s + {part.name.upper()}"
    if isinstance(part, Rank):
        yield f"{out} = slots[{prefix}_VALUE]"
    elif isinstance(part, Sums):
        yield f"n = slots[{prefix}_COUNT]"
        if call.fn == "count":
            yield f"{out} = n"
            return
        least = 2 if call.fn in ("var_samp", "stddev_samp") else 1
        yield f"{ok} = n >= {least}"
        yield f"if n >= {least}:"
        yield from indented(_sum_result(part, number, call.fn, call.type.name))
        yield "else:"
        yield f"    {out} = 0"
    elif isinstance(part, Extreme) and frame.is_bounded:
        array = "fcells" if part.arg.kind == "float" else "cells"
        yield f"queue_head = slots[{prefix}_QUEUE_HEAD]"
        yield f"{ok} = queue_head < slots[{prefix}_QUEUE_TAIL]"
        yield f"if queue_head < slots[{prefix}_QUEUE_TAIL]:"
        yield f"    position = cells[{cell_at('queue_head')} + CELL_{part.name.upper()}_QUEUE]"
        yield f"    {out} = {array}[{cell_at('position')} + CELL_{part.arg.name.upper()}]"
        yield "else:"
        yield f"    {out} = 0"
    else:
        array = "sums" if part.arg.kind == "float" else "slots"
        known, value = ("KNOWN", "VALUE") if isinstance(part, Edge) else ("ANY", "BEST")
        yield f"{ok} = slots[{prefix}_{known}] == 1"
        yield f"{out} = {array}[{prefix}_{value}]"


def _from_cells(layout: Layout, number: int) -> Iterator[str]:
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
    place, is_there = {
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


def _sum_result(part: Sums, number: int, fn: str, type_name: str) -> Iterator[str]:
    assert part.arg is not None
    prefix = f"s + {part.name.upper()}"
    out = f"out{number}[r]"
    if fn in ("sum", "avg"):
        if part.arg.kind == "float":
            yield f"{out} = float_sum(slots, sums, {prefix}_SUM){'' if fn == 'sum' else ' / n'}"
            return
        units = f"(n * {10.0**part.arg.type.scale!r})" if part.arg.type.scale else "n"
        if not part.arg.is_wide:
            yield f"{out} = slots[{prefix}_SUM]" if fn == "sum" else f"{out} = float(slots[{prefix}_SUM]) / {units}"
            return
        yield f"upper = slots[{prefix}_SUM] + (slots[{prefix}_SUM_LOW] >> 32)"
        yield f"under = slots[{prefix}_SUM_LOW] & LOW_HALF"
        if fn == "avg":
            yield f"{out} = (upper * 4294967296.0 + under) / {units}"
            return
        yield "if upper < -0x8000_0000 or upper > 0x7FFF_FFFF:"
        yield f"    return OVERFLOW + {number}"
        yield f"{out} = (upper << 32) + under"
        if type_name == "DECIMAL":
            yield f"if abs({out}) >= 1_000_000_000_000_000_000:"
            yield f"    return OVERFLOW + {number}"
        return
    total = "SUM" if part.arg.kind == "float" else "TOTAL"
    yield f"result = spread(sums, {prefix}_{total}, {prefix}_SQUARES, n) / {'(n - 1)' if fn.endswith('samp') else 'n'}"
    if part.arg.kind == "float":
        yield f"if slots[{prefix}_ODD] != 0 or slots[{prefix}_HUGE] != 0:"
        yield "    result = math.nan"
    yield f"{out} = {'math.sqrt(result)' if fn.startswith('stddev') else 'result'}"
