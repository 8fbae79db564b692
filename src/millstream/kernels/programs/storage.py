"""How generated source reads and writes cells: lists, rings, and the chains of an index."""

from __future__ import annotations

from millstream.expressions.kernel.forms import not_
from millstream.kernels.programs.layout import Cells
from millstream.kernels.source.writer import Writer, block
from millstream.plan.programs.nodes import WINDOW
from millstream.types import BOOLEAN, DOUBLE, SqlType

Pair = tuple[str, str]
"""The source of a value, and of whether it is NULL."""


def stored(words: str, floats: str, at: str, type_: SqlType) -> str:
    """The source of a value that lies at a place."""
    if type_ == DOUBLE:
        return f"{floats}[{at}]"
    return f"({words}[{at}] != 0)" if type_ == BOOLEAN else f"{words}[{at}]"


def store(write: Writer, words: str, floats: str, at: str, type_: SqlType, value: str) -> None:
    if type_ == DOUBLE:
        write(f"{floats}[{at}] = {value}")
    else:
        write(f"{words}[{at}] = {f'int({value})' if type_ == BOOLEAN else value}")


def load_cell(write: Writer, cells: Cells, at: str, variables: dict[int, str]) -> None:
    """Variables for some columns of the cell at a place."""
    n = cells.number
    for column, variable in variables.items():
        value = stored(f"c{n}", f"f{n}", f"{at} + {cells.lane(column)}", cells.table.schema.fields[column].type)
        write(f"v_{variable} = {value}", f"n_{variable} = (c{n}[{at} + {cells.lanes['nulls']}] >> {column}) & 1 != 0")


def _fill(write: Writer, cells: Cells, at: str, values: list[Pair], lanes: dict[str, str], full: bool) -> None:
    n = cells.number
    bits = [f"int({null}) << {i}" for i, (_, null) in enumerate(values) if null != "False"]
    if not full:
        write(f"c{n}[{at} + {cells.lanes['nulls']}] = {' | '.join(bits) or '0'}")
    for name, text in lanes.items():
        write(f"c{n}[{at} + {cells.lanes[name]}] = {text}")
    for i, ((value, null), field) in enumerate(zip(values, cells.table.schema, strict=True)):
        with write.when(not_(null)):
            store(write, f"c{n}", f"f{n}", f"{at} + {cells.lane(i)}", field.type, value)


def append(write: Writer, cells: Cells, values: list[Pair], lanes: dict[str, str], full: bool) -> None:
    """A new cell behind those of the group, for which there is room; `full` tells that none of them ever has NULLs."""
    (_append_to_ring if cells.is_ring else _append_to_list)(write, cells, values, lanes, full)


def _append_to_ring(write: Writer, cells: Cells, values: list[Pair], lanes: dict[str, str], full: bool) -> None:
    n, width, at = cells.number, cells.width, write.fresh("at")
    if not cells.alone:
        _enlarge_ring(write, cells)
    write(f"{at} = base{n} + (end{n} & mask{n}) * {width}")
    _fill(write, cells, at, values, lanes, full)
    write(f"end{n} += 1")


def _enlarge_ring(write: Writer, cells: Cells) -> None:
    """A region of twice the size at the end of the pool, if the ring is full; the old one is lost, in all at most as
    much as is used. The ring of a sole group is enlarged outside of the loop, which has more registers then."""
    n, width = cells.number, cells.width
    with write.block(f"if end{n} - first{n} > mask{n}:"):
        write(
            f"larger = max(4, 2 * (mask{n} + 1))",
            *block(
                f"for i in range(first{n}, end{n}):",
                f"for lane in range({width}):",
                f"    word = c{n}[base{n} + (i & mask{n}) * {width} + lane]",
                f"    c{n}[used{n} + (i & (larger - 1)) * {width} + lane] = word",
            ),
            f"base{n} = used{n}",
            f"mask{n} = larger - 1",
            f"used{n} += larger * {width}",
        )


def _append_to_list(write: Writer, cells: Cells, values: list[Pair], lanes: dict[str, str], full: bool) -> None:
    n, width = cells.number, cells.width
    cell, at = write.fresh("cell"), write.fresh("at")
    value, null = ("0", "True") if cells.index is None else values[cells.index]
    if cells.bound is not None:
        with write.when(not_(null)):
            write(f"{cell} = {value} + {cells.bound}")
    with write.when("True" if cells.bound is None else null):
        with write.block(f"if free{n} != 0:"):
            write(f"{cell} = free{n}", f"free{n} = c{n}[{cell} * {width}]")
        with write.block("else:"):
            write(f"used{n} += 1", f"{cell} = used{n}")
    write(f"{at} = {cell} * {width}", f"c{n}[{at}] = 0")
    _fill(write, cells, at, values, lanes, full)
    write(*block(f"if tail{n} != 0:", f"c{n}[tail{n} * {width}] = {cell}"), *block("else:", f"head{n} = {cell}"))
    if "previous" in cells.lanes:
        write(f"c{n}[{at} + {cells.lanes['previous']}] = tail{n}")
    write(f"tail{n} = {cell}", f"count{n} += 1")
    if cells.table.name == WINDOW:
        write(f"current = {cell}")
    if "after" in cells.lanes:
        before, after = cells.lanes["before"], cells.lanes["after"]
        write(f"c{n}[{at} + {before}] = newest", f"c{n}[{at} + {after}] = 0")
        write(*block("if newest != 0:", f"c{n}[newest * {width} + {after}] = {cell}"))
        write(*block("else:", f"eldest = {cell}"), f"newest = {cell}")
    if cells.index is not None:
        if cells.bound is None:
            with write.when(not_(null)):
                write(f"chain(at, {value}, {_chained(cells, cell)})")
        with write.when(null):
            write(f"meta[{3 * n + 2}] = 1")
    if cells.order is not None:
        value, null = values[cells.order]
        with write.when(not_(null)):
            write(*block(f"if first{n} == end{n}:", f"mixed{n} = 0"))
            place = enter_order(write, cells, cell, value)
            write(f"mixed{n} |= int({place} != last{n})")


def ring_of(cells: Cells) -> str:
    """The source of the arguments that tell a loop where the order of a group's cells lies."""
    n = cells.number
    return f"order{n}, base{n}, room{n}, first{n}, end{n}"


def values_of(cells: Cells) -> str:
    """The like for the values by which they are ordered."""
    kind = "f" if cells.table.schema.fields[cells.order or 0].type == DOUBLE else "c"
    return f"{kind}{cells.number}, {cells.width}, {cells.ordered_lane}"


def enter_order(write: Writer, cells: Cells, cell: str, value: str) -> str:
    """Put a cell where its value belongs in the order; gives the variable of the place, that of the end before is
    `last`."""
    n, place = cells.number, write.fresh("place")
    write(
        f"base{n}, room{n} = grow({ring_of(cells)})",
        f"{place} = place_of_new({ring_of(cells)}, {values_of(cells)}, {value})",
        f"last{n} = end{n}",
        f"first{n}, end{n} = enter({ring_of(cells)}, {place}, {cell})",
    )
    return place


def leave_order(write: Writer, cells: Cells, cell: str) -> None:
    """Take a cell out of the order, if it is there."""
    n = cells.number
    with write.block(f"if (c{n}[{cell} * {cells.width} + {cells.lanes['nulls']}] >> {cells.order}) & 1 == 0:"):
        write(f"first{n}, end{n} = leave({ring_of(cells)}, {values_of(cells)}, {cell})")


def unlink(write: Writer, cells: Cells, cell: str, previous: str, ordered: bool = True) -> None:
    """Take a cell out of its list, given the one before it (0: none) unless the cell knows it, and free it; without
    `ordered` it has left the order before."""
    n, width = cells.number, cells.width
    if ordered and cells.order is not None:
        leave_order(write, cells, cell)
    following = write.fresh("following")
    if "previous" in cells.lanes:
        previous = write.fresh("previous")
        write(f"{previous} = c{n}[{cell} * {width} + {cells.lanes['previous']}]")
    if cells.index is not None and cells.bound is None:
        with write.block(f"if {_is_indexed(cells, cell)}:"):
            word = f"c{n}[{cell} * {width} + {cells.lane(cells.index)}]"
            write(f"unchain(at, {word}, {_chained(cells, cell)})")
    write(f"{following} = c{n}[{cell} * {width}]")
    if previous == "0":
        write(f"head{n} = {following}")
    else:
        write(*block(f"if {previous} != 0:", f"c{n}[{previous} * {width}] = {following}"))
        write(*block("else:", f"head{n} = {following}"))
    write(*block(f"if {following} == 0:", f"tail{n} = {previous}"), f"count{n} -= 1")
    if "previous" in cells.lanes:
        write(*block(f"if {following} != 0:", f"c{n}[{following} * {width} + {cells.lanes['previous']}] = {previous}"))
    if "after" in cells.lanes:
        before, after = (f"c{n}[{cell} * {width} + {cells.lanes[name]}]" for name in ("before", "after"))
        write(*block(f"if {before} != 0:", f"c{n}[{before} * {width} + {cells.lanes['after']}] = {after}"))
        write(*block("else:", f"eldest = {after}"))
        write(*block(f"if {after} != 0:", f"c{n}[{after} * {width} + {cells.lanes['before']}] = {before}"))
        write(*block("else:", f"newest = {before}"))
    if cells.index is not None and cells.bound is not None:
        with write.block(f"if {_is_indexed(cells, cell)}:"):
            write(f"c{n}[{cell} * {width} + {cells.lane(cells.index)}] = {cells.bound}")
        write("else:")
        write(f"    c{n}[{cell} * {width}] = free{n}", f"    free{n} = {cell}")
        return
    write(f"c{n}[{cell} * {width}] = free{n}", f"free{n} = {cell}")


def drop(write: Writer, cells: Cells) -> None:
    """Empty a group's table."""
    n = cells.number
    if cells.is_ring:
        write(*(f"{name} = end{n}" for name in (f"first{n}", *cells.locals[4:])))
        return
    if cells.order is not None:
        write(f"first{n} = 0", f"end{n} = 0", f"mixed{n} = 0")
    if cells.index is not None or "after" in cells.lanes:
        gone = write.fresh("gone")
        with write.block(f"while head{n} != 0:"):
            write(f"{gone} = head{n}")
            unlink(write, cells, gone, "0", ordered=False)
        return
    with write.block(f"if tail{n} != 0:"):
        write(f"c{n}[tail{n} * {cells.width}] = free{n}", f"free{n} = head{n}")
    write(f"head{n} = 0", f"tail{n} = 0", f"count{n} = 0")


def _is_indexed(cells: Cells, cell: str) -> str:
    """The source of whether the value by which a cell would be found is not NULL."""
    return f"(c{cells.number}[{cell} * {cells.width} + {cells.lanes['nulls']}] >> {cells.index}) & 1 == 0"


def _chained(cells: Cells, cell: str) -> str:
    return f"{cell}, c{cells.number}, {cells.width}, {cells.lanes['chained']}, heads{cells.number}"
