"""Random pipelines over disordered files give the same rows on both engines; random_pipelines.py runs many more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from random_pipelines import QUERIES, canonical, differences

pytestmark = pytest.mark.spark


def test_the_same_rows_on_both_engines(spark: Any, tmp_path: Path) -> None:
    assert differences(range(len(QUERIES)), tmp_path, spark) == []


def test_how_a_relation_is_cut_does_not_matter() -> None:
    whole, cut = [("a", 1, 9)], [("a", 1, 4), ("a", 4, 9)]
    assert canonical(whole, True) == canonical(cut, True) != canonical([("a", 1, 8)], True)
    assert canonical(whole, False) != canonical(cut, False)
