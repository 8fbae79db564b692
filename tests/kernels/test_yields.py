"""Which rows are the last of their key in a slot: the same however many slots and keys there are."""

import numpy as np
import pytest

from millstream.kernels.streams.yields import last_in_slots


@pytest.mark.parametrize("keys", [1, 4, 10_000])
def test_last_rows(keys: int) -> None:
    random = np.random.default_rng(keys)
    for rows in (0, 1, 7, 60, 300):
        slot = np.sort(random.integers(-5, 9, rows))
        key = random.integers(0, keys, rows)
        last = {(slot[i], key[i]): i for i in range(rows)}
        assert np.flatnonzero(last_in_slots(slot, key)).tolist() == sorted(last.values())
