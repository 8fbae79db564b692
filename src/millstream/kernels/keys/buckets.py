"""Which bucket a key belongs to: a hash of values, the same in every process and on every machine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.jit import as_input, compile_kernel, source_of
from millstream.kernels.keys import byte_loops
from millstream.kernels.keys.words import byte_parts, to_words, validity
from millstream.types import from_arrow

_hash_column = compile_kernel(source_of(byte_loops), "hash_column")

Hashes = npt.NDArray[np.uint64]
_NULL_WORD = np.uint64(0x9AE16A3B2F90404F)


def bucket_of(columns: Sequence[pa.Array], buckets: int) -> npt.NDArray[np.int32]:
    """The bucket, 0 to `buckets` - 1, of each row's key: equal keys of equal types share one, in whatever batch."""
    hashes = np.zeros(len(columns[0]) if columns else 0, dtype=np.uint64)
    for column in columns:
        for words in _words(column):
            hashes = _mixed(hashes ^ words)
    return (hashes % np.uint64(buckets)).astype(np.int32)


def _words(column: pa.Array) -> list[Hashes]:
    type_ = from_arrow(column.type)
    if type_ is None:
        raise TypeError(f"no SQL type for {column.type}")
    if type_.is_coded:
        offsets, data = byte_parts(column, type_)
        hashes = np.zeros(len(column), dtype=np.int64)
        _hash_column(len(column), as_input(offsets), as_input(data), hashes)
        words = [hashes.view(np.uint64)]
    else:
        words = [word.view(np.uint64) for word in to_words(column, type_)]
    mask = validity(column)
    return words if mask is None else [np.where(mask, word, _NULL_WORD) for word in words]


def _mixed(words: Hashes) -> Hashes:
    """The finaliser of SplitMix64: every bit of a word reaches every bit of its hash."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
