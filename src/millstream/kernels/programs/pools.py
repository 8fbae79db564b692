"""The arrays in which a compiled program keeps the rows of its tables, seen from outside of its loops."""

from __future__ import annotations

from typing import Any

import numpy as np

from millstream.kernels.batch import Ints
from millstream.kernels.programs.layout import Cells
from millstream.plan.programs import WINDOW
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


def saved_schema(cells: Cells) -> Schema:
    """The columns under which a list's rows are saved."""
    if cells.table.name != WINDOW:
        return cells.table.schema
    return Schema((*cells.table.schema.fields, Field("$time", BIGINT), Field("$id", BIGINT)))


def dtype_of(type_: SqlType) -> str:
    return "float64" if type_ == DOUBLE else "bool" if type_ == BOOLEAN else "int64"
