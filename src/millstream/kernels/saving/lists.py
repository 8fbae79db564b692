"""Arrow columns of what one row has many of: lists, and rows of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.batch import Ints
from millstream.kernels.keys import ByteTable

Lanes = npt.NDArray[np.int64]


def lists(owner: npt.NDArray[Any], values: pa.Array | pa.RecordBatch, count: int) -> pa.Array:
    """Values as lists of `count` rows; `owner` tells the row of each, and increases."""
    ends = np.cumsum(np.bincount(owner, minlength=count))
    if isinstance(values, pa.RecordBatch):
        values = values.to_struct_array()
    return pa.LargeListArray.from_arrays(pa.array(np.append(0, ends)), values)


def unlisted(column: pa.Array) -> tuple[Ints, pa.Array]:
    """The inverse of `lists`: the row of each value, and the values."""
    return np.repeat(np.arange(len(column)), column.value_lengths().to_numpy()), column.flatten()


def fixed(lanes: Lanes) -> pa.Array:
    """Rows of equally many numbers as one column."""
    return pa.FixedSizeListArray.from_arrays(pa.array(lanes.reshape(-1)), lanes.shape[1])


def unfixed(column: pa.Array) -> Lanes:
    """The inverse of `fixed`, to be written to."""
    return np.array(column.flatten().to_numpy()).reshape(-1, column.type.list_size)


Coded = tuple[Ints, Ints, npt.NDArray[np.bool_]]
"""Where codes of strings stand: the row that each belongs to, the lane, and which of it are codes."""


def strings_of(table: ByteTable, coded: Sequence[Coded], count: int) -> pa.Array:
    """The strings that each of `count` rows has by their codes, as lists; lanes then tell places in these."""
    owner = np.concatenate([np.zeros(0, dtype=np.int64), *(owner[where] for owner, _, where in coded)])
    codes = np.concatenate([np.zeros(0, dtype=np.int64), *(lane[where] for _, lane, where in coded)])
    known, places = np.unique(owner << 32 | codes, return_inverse=True)
    owners = known >> 32
    places -= np.searchsorted(owners, np.arange(count))[owner]
    start = 0
    for _, lane, where in coded:
        own = int(np.count_nonzero(where))
        lane[where] = places[start : start + own]
        start += own
    return lists(owners, table.values(known & 0xFFFFFFFF), count)


def code_strings(table: ByteTable, strings: pa.Array, coded: Sequence[Coded]) -> None:
    """The inverse: let lanes have codes of a table that gets to know the strings."""
    codes = table.slots(strings.flatten(), add=True).astype(np.int64)
    lengths = strings.value_lengths().to_numpy()
    first = np.cumsum(lengths) - lengths
    for owner, lane, where in coded:
        lane[where] = codes[first[owner[where]] + lane[where]]
