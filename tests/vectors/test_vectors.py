"""Every vector of the snapshot algebra."""

from __future__ import annotations

import fact_vectors
import logical_vectors
import migration_vectors
import physical_vectors
import pytest
import query_vectors
from vector_data import VECTORS

CHECKS = {
    **logical_vectors.CHECKS,
    **physical_vectors.CHECKS,
    **fact_vectors.CHECKS,
    **migration_vectors.CHECKS,
    **query_vectors.CHECKS,
}
TESTED = [name for name, vector in VECTORS.items() if vector.op != "define"]


def test_all_vectors_are_there() -> None:
    assert len(VECTORS) == 74
    assert set(CHECKS) == set(TESTED)


@pytest.mark.parametrize("name", TESTED)
def test_vector(name: str) -> None:
    CHECKS[name](VECTORS[name])
