"""Queries inside queries in all places and ways: at every instant, what DuckDB says."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from millstream.plan.relations import RangeWindow, RowsWindow
from tests.support.snapshot_queries import random_rows
from tests.support.snapshots import Case, Windowed, run
from tiers import THOROUGH

WINDOWS = {
    "a": Windowed("s", RangeWindow(5)),
    "b": Windowed("r", RangeWindow(3)),
    "c": Windowed("u", RangeWindow(4)),
    "p": Windowed("r", RowsWindow(1, ("k",))),
}
TABLES = {
    "t": [(0, 1, "a"), (1, 2, None), (1, 3, "b"), (None, 2, "a"), (2, None, "b")],
    "f": [(0, 2, "a"), (1, 1, "a"), (2, 3, None)],
    "g": [(0, 3, "a"), (2, 1, "b")],
    "e": [],
}
QUERIES = Path(__file__).with_name("nested_queries.sql").read_text().splitlines()[1:]


@pytest.mark.parametrize("query", QUERIES)
def test_nested(query: str) -> None:
    windows = {name: window for name, window in WINDOWS.items() if f"{{{name}}}" in query}
    tables = {name: rows for name, rows in TABLES.items() if f"{{{name}}}" in query}
    for seed in range(2 if THOROUGH else 1):
        chance = random.Random(f"{seed} {query}")
        streams = {window.stream: random_rows(chance) for window in windows.values()}
        run(Case(query, windows, streams, None, tables), seed)
