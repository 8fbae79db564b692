"""The NEXMark queries of the examples give what DuckDB says, on both hosts."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from nexmark_answers import EVENTS, RELATIONS

import millstream as ms
from millstream.cli.pipeline import fill_in

EXAMPLES = Path(__file__).parents[2] / "examples" / "nexmark"
SETTINGS = {
    "suite": {"rate": "60", "bids": "2760", "auctions": "180", "persons": "60", "closings": "79"},
    "thesis": {"bids": "2760", "auctions": "180", "persons": "60", "closings": "79"},
}
STREAMS = {
    "suite": ("person", "auction", "bid", "closed"),
    "thesis": ("OpenAuction", "ClosedAuction", "Bid", "PersonEvents"),
}
INSTANTS = 60
"""How many instants of a relation are compared."""
ON_CHANGES = tuple(query for query in RELATIONS if query != "thesis/q6")
"""q6 compares every count with every other, which takes long when nothing is compiled."""
ON_SPARK = ("q5", "q2", "q8", "q3", "thesis/q4", "thesis/q5")


def family(query: str) -> str:
    return "thesis" if query.startswith("thesis/") else "suite"


def answer(db: ms.Database, query: str, directory: Path) -> pa.Table:
    """What a query of the examples gives on the generated streams."""
    folder, variables = (EXAMPLES / query).parent, {**SETTINGS[family(query)], "out": str(directory)}
    db.execute(fill_in((folder / "streams.sql").read_text(), variables))
    standing = db.execute(fill_in((EXAMPLES / f"{query}.sql").read_text(), variables))
    assert isinstance(standing, ms.Query)
    if query != "q10":
        return standing.arrow()
    db.finish()
    return pq.read_table(directory)


@pytest.fixture(scope="module")
def oracles() -> Iterator[dict[str, Any]]:
    """For each kind of streams, DuckDB with all their rows."""
    made = {}
    for kind, names in STREAMS.items():
        made[kind] = duckdb.connect(config={"threads": 1})
        with ms.connect() as db:
            folder = EXAMPLES if kind == "suite" else EXAMPLES / kind
            db.execute(fill_in((folder / "streams.sql").read_text(), SETTINGS[kind]))
            for name in names:
                rows = db.sql(f"SELECT * FROM {name}").arrow()  # noqa: F841 - DuckDB finds it by its name
                made[kind].execute(f"CREATE TABLE {name} AS SELECT * FROM rows")
    yield made
    for each in made.values():
        each.close()


def bag(rows: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(float(f"{value:.9g}") if isinstance(value, float) else value for value in row) for row in rows)


def listed(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def check(query: str, table: pa.Table, oracle: Any) -> None:
    """Compare all rows of events, or what is valid at some instants of a relation."""
    assert table.num_rows > 0
    if query in EVENTS:
        assert bag(listed(table)) == bag(oracle.execute(EVENTS[query]).fetchall())
        return
    assert table.column_names[-2:] == ["valid_from", "valid_to"]
    rows = listed(table)
    seen = 0
    for instant in instants(rows):
        held = [row[:-2] for row in rows if row[-2] <= instant and (row[-1] is None or instant < row[-1])]
        wanted = oracle.execute(RELATIONS[query], {"t": instant}).fetchall()
        assert bag(held) == bag(wanted), f"at {instant}"
        seen += len(wanted)
    assert seen > INSTANTS // 4


def instants(rows: list[tuple[Any, ...]]) -> list[datetime]:
    """Times at which something begins or ends, those just before, and some between."""
    bounds = sorted({bound for row in rows for bound in row[-2:] if bound is not None})
    chance = random.Random(5)
    chosen = chance.sample(bounds, min(INSTANTS // 2, len(bounds)))
    chosen += [bound - timedelta(microseconds=1) for bound in chosen[::2]]
    return chosen + [chance.choice(bounds) + timedelta(microseconds=chance.randrange(10**7)) for _ in range(15)]


@pytest.mark.parametrize("query", [*EVENTS, *RELATIONS])
def test_query(query: str, oracles: dict[str, Any], tmp_path: Path) -> None:
    with ms.connect(jit="off") as db:
        check(query, answer(db, query, tmp_path / "out"), oracles[family(query)])


@pytest.mark.parametrize("query", ON_CHANGES)
def test_query_on_changes(query: str, oracles: dict[str, Any], tmp_path: Path) -> None:
    with ms.connect(jit="off", relations="changes") as db:
        check(query, answer(db, query, tmp_path / "out"), oracles[family(query)])


@pytest.mark.spark
@pytest.mark.parametrize("query", ON_SPARK)
def test_query_on_spark(query: str, oracles: dict[str, Any], tmp_path: Path) -> None:
    with ms.connect(engine="spark") as db:
        check(query, answer(db, query, tmp_path / "out"), oracles[family(query)])


def test_every_query_is_checked() -> None:
    files = {str(path.relative_to(EXAMPLES).with_suffix("")) for path in EXAMPLES.rglob("*.sql")}
    assert files - {"streams", "thesis/streams"} == {*EVENTS, *RELATIONS}
