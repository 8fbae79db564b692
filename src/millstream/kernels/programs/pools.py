"""The arrays in which a compiled program keeps the rows of its tables, seen from outside of its loops."""

from __future__ import annotations

from typing import Any

import numpy as np

from millstream.kernels.batch import Ints
from millstream.kernels.programs.layout import Cells
from millstream.plan.programs.nodes import WINDOW
from millstream.schema import Field, Schema
from millstream.types import BIGINT, BOOLEAN, DOUBLE, SqlType

FIRST_CELLS = 64
"""How many cells a pool has at first."""


def ring_places(rings: Any, width: int) -> tuple[Ints, Ints]:
    """Where the cells of rings lie, in order, and which ring each belongs to."""
    base, size, first, end = rings.T
    counts = end - first
    owner = np.repeat(np.arange(len(rings)), counts)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts) + first[owner]
    return owner, base[owner] + (place & (size[owner] - 1)) * width


def own_cells(cells: Cells) -> int:
    """How many cells of a list belong to a value each."""
    return 0 if cells.bound is None else 2 * cells.bound


def new_pool(cells: Cells, rows: int) -> Any:
    """Cells with room for so many rows beside those that belong to a value each."""
    pool = np.zeros((own_cells(cells) + max(FIRST_CELLS, 2 * (rows + 1)), cells.width), dtype=np.int64)
    if cells.bound is not None and cells.index is not None:
        # All others hold a value that is not theirs already.
        pool[cells.bound, cells.lane(cells.index)] = cells.bound
    return pool


def new_order(cells: Cells, size: int) -> Ints:
    """An array for the order of cells with regions of so many places in all; nothing if they are in none."""
    order = np.zeros(0 if cells.order is None else FIRST_CELLS + 2 * size, dtype=np.int64)
    order[:1] = 1 + size
    return order


def loaded_order(cells: Cells, owner: Ints, number: Ints, words: Ints, absent: Any) -> tuple[Any, Ints]:
    """What the records of groups say of the order of their cells, and that order; the cells are given as they were
    inserted, by their numbers and what lies in the lane of the column, NULL where `absent`."""
    assert cells.order is not None
    owner, number, words = owner[~absent], number[~absent], np.ascontiguousarray(words[~absent])
    values = words.view(np.float64) if cells.table.schema.fields[cells.order].type == DOUBLE else words
    sorting = np.lexsort((values, owner))
    counts = np.bincount(owner, minlength=1)
    sizes = ring_sizes(counts)
    bases = 1 + np.cumsum(sizes) - sizes
    order = new_order(cells, int(sizes.sum()))
    owner = owner[sorting]
    order[bases[owner] + np.arange(len(owner)) - np.searchsorted(owner, owner)] = number[sorting]
    mixed = np.zeros_like(counts)
    mixed[owner[sorting != np.arange(len(sorting))]] = 1
    return np.stack((bases, sizes, np.zeros_like(counts), counts, mixed), axis=1), order


def ring_sizes(counts: Ints) -> Ints:
    """The sizes of rings for so many cells each: powers of two, nothing for none."""
    sizes: Ints = np.where(counts == 0, 0, 1 << np.ceil(np.log2(np.maximum(counts, 4))).astype(np.int64))
    return sizes


def saved_schema(cells: Cells) -> Schema:
    """The columns under which a list's rows are saved."""
    if cells.table.name != WINDOW:
        return cells.table.schema
    return Schema((*cells.table.schema.fields, Field("$time", BIGINT), Field("$id", BIGINT)))


def dtype_of(type_: SqlType) -> str:
    return "float64" if type_ == DOUBLE else "bool" if type_ == BOOLEAN else "int64"
