"""Aggregates written in SQL or Python over stored tables."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from python_twins import PYTHON_TWINS, SQL_TWINS

import millstream as ms

ROWS: list[tuple[str | None, float, int]] = [
    ("b", 1.0, 1), ("a", 2.0, 2), ("b", 4.0, 3), (None, 7.0, 4), ("a", 10.0, 5), (None, 1.0, 6),
]  # fmt: skip


@pytest.fixture(params=["sql", "py"])
def twin(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def db() -> ms.Database:
    made = ms.connect(aggregates=PYTHON_TWINS)
    made.execute(SQL_TWINS)
    made.execute("CREATE TABLE t (k VARCHAR, x DOUBLE, n INTEGER)")
    values = ", ".join(f"({'NULL' if k is None else repr(k)}, {x}, {n})" for k, x, n in ROWS)
    made.execute(f"INSERT INTO t VALUES {values}")
    return made


def ask(db: ms.Database, text: str) -> list[tuple[Any, ...]]:
    table = db.execute(text).arrow()  # type: ignore[union-attr]
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def names(db: ms.Database, text: str) -> list[str]:
    return list(db.execute(text).arrow().column_names)  # type: ignore[union-attr]


def test_a_whole_table(db: ms.Database, twin: str) -> None:
    assert ask(db, f"SELECT {twin}_total(x) FROM t") == [(25.0,)]
    assert names(db, f"SELECT {twin}_total(x) FROM t") == [f"{twin}_total"]
    assert ask(db, f"SELECT {twin}_total(x) AS s FROM t WHERE x > 100") == []


def test_groups_in_order_of_their_first_rows(db: ms.Database, twin: str) -> None:
    assert ask(db, f"SELECT k, {twin}_total(x) FROM t GROUP BY k") == [("b", 5.0), ("a", 12.0), (None, 8.0)]
    by_two = f"SELECT n % 2 = 0 AS even, {twin}_total(x) FROM t GROUP BY even, k IS NULL"
    assert ask(db, by_two) == [(False, 15.0), (True, 2.0), (True, 8.0)]
    assert ask(db, f"SELECT upper(k), {twin}_total(x) FROM t GROUP BY 1 ORDER BY 1 NULLS LAST") == [
        ("A", 12.0), ("B", 5.0), (None, 8.0),
    ]  # fmt: skip


def test_the_order_of_a_subquery_is_that_of_the_tuples(db: ms.Database, twin: str) -> None:
    # 1 2 4 7 10 1 climbs four times, never by more than 4; backwards 1 10 7 4 2 1 once, by 9
    steps = [(1.0, 2.0), (2.0, 4.0), (4.0, 7.0), (7.0, 10.0)]
    assert ask(db, f"SELECT {twin}_climbs(x) FROM t") == steps
    assert ask(db, f"SELECT {twin}_climbs(x) FROM (SELECT * FROM t ORDER BY n DESC)") == [(1.0, 10.0)] * 2
    assert names(db, f"SELECT k, {twin}_climbs(x) FROM t GROUP BY k") == ["k", "low", "high"]


def test_what_returns_as_rows_come_stands_beside_the_row(db: ms.Database, twin: str) -> None:
    got = ask(db, f"SELECT n, k, {twin}_decay(x) FROM t GROUP BY k")
    # b: 1, (0.9 * 1 + 1.1 * 4) / 2; a: 2, (0.9 * 2 + 1.1 * 10) / 2; NULL: 7, (0.9 * 7 + 1.1 * 1) / 2
    expected = [(1, "b", 1.0), (2, "a", 2.0), (3, "b", 2.65), (4, None, 7.0), (5, "a", 6.4), (6, None, 3.7)]
    assert [row[:2] for row in got] == [row[:2] for row in expected]
    assert [row[2] for row in got] == pytest.approx([row[2] for row in expected])
    assert ask(db, "SELECT n FROM t WHERE n < 3 ORDER BY n") == [(1,), (2,)]
    assert ask(db, f"SELECT n, {twin}_decay(x) FROM t WHERE n = 4 ORDER BY n") == [(4, 7.0)]


def test_clauses_after_the_groups(db: ms.Database, twin: str) -> None:
    text = f"SELECT k, {twin}_total(x) AS s FROM t GROUP BY k"
    assert ask(db, f"{text} HAVING {twin}_total(x) > 6 ORDER BY s DESC") == [("a", 12.0), (None, 8.0)]
    assert ask(db, f"{text} LIMIT 1 OFFSET 1") == [("a", 12.0)]
    assert ask(db, f"SELECT DISTINCT {twin}_total(2) FROM t GROUP BY k") == [(4.0,)]
    assert ask(db, f"SELECT k, {twin}_total(x) * 2 + 1, rank() OVER (ORDER BY {twin}_total(x)) FROM t GROUP BY k") == [
        ("b", 11.0, 1), ("a", 25.0, 3), (None, 17.0, 2),
    ]  # fmt: skip
    with_ = f"WITH w AS (SELECT k, x FROM t WHERE k IS NOT NULL) SELECT k, {twin}_total(x) FROM w GROUP BY k"
    assert ask(db, with_) == [("b", 5.0), ("a", 12.0)]


def test_beside_other_aggregates(db: ms.Database, twin: str) -> None:
    text = f"SELECT k, count(*), {twin}_total(x), max(n) + 1, py_total(n), sum(x) FILTER (n > 2) FROM t GROUP BY k"
    assert ask(db, text) == [("b", 2, 5.0, 4, 4.0, 4.0), ("a", 2, 12.0, 6, 7.0, 10.0), (None, 2, 8.0, 7, 10.0, 8.0)]
    assert ask(db, f"SELECT {twin}_total(x), sum(x), avg(n) FROM t") == [(25.0, 25.0, 3.5)]
    # of these the parser does not know that they are aggregates
    text = f"SELECT k, max_by(k, x), string_agg(n::VARCHAR, '-'), {twin}_total(x) FROM t GROUP BY k"
    assert ask(db, text) == [("b", "b", "1-3", 5.0), ("a", "a", "2-5", 12.0), (None, None, "4-6", 8.0)]


def test_tables_are_joined_first(db: ms.Database, twin: str) -> None:
    db.execute("CREATE TABLE names (k VARCHAR, name VARCHAR)")
    db.execute("INSERT INTO names VALUES ('a', 'Ada'), ('b', 'Bob')")
    text = f"SELECT name, {twin}_total(x) FROM t JOIN names ON t.k = names.k GROUP BY names.name ORDER BY name"
    assert ask(db, text) == [("Ada", 12.0), ("Bob", 5.0)]


def test_arguments_are_cast_and_checked(db: ms.Database) -> None:
    assert ask(db, "SELECT py_total(n), sql_total(n) FROM t") == [(21.0, 21.0)]
    for text, said in (
        ("SELECT py_total(x, n) FROM t", "py_total takes 1 argument, got 2"),
        ("SELECT n, py_total(x) FROM t", "column n is neither in GROUP BY"),
        ("SELECT *, py_total(x) FROM t", "* next to an aggregate"),
        ("SELECT py_total(sum(x)) FROM t", "is not allowed inside another"),
        ("SELECT py_total(sql_total(x)) FROM t", "is not allowed inside another"),
        ("SELECT py_climbs(x) AS both FROM t", "this aggregate has several results"),
    ):
        with pytest.raises(ms.BindError) as error:
            db.execute(text)
        assert said in error.value.message and error.value.span is not None


@pytest.mark.parametrize(
    "text, said",
    [
        ("SELECT py_mean(x) FROM t", "py_mean is for windows only"),
        ("SELECT py_total(x) OVER (ROWS 1 PRECEDING) FROM t", "OVER a window of a stored table"),
        ("SELECT * FROM (SELECT py_total(x) FROM t)", "only in the outermost SELECT"),
        ("SELECT py_total(x) FROM t UNION ALL SELECT 1", "only in the outermost SELECT"),
        ("INSERT INTO t SELECT k, py_total(x), 1 FROM t GROUP BY k", "only in the outermost SELECT"),
        ("UPDATE t SET x = py_total(x)", "only in the outermost SELECT"),
        ("SELECT py_decay(x), count(*) FROM t", "next to py_decay, which returns rows as they arrive"),
        ("SELECT py_decay(x), py_total(x) FROM t", "py_total together with py_decay"),
        ("SELECT py_climbs(x), py_decay(x) FROM t", "py_climbs is used together with other aggregates"),
        ("SELECT k, py_total(x) FROM t GROUP BY ROLLUP (k)", "GROUP BY takes only expressions"),
        ("SELECT k, py_total(x) FROM t GROUP BY ALL", "GROUP BY takes only expressions"),
    ],
)
def test_refusals(db: ms.Database, text: str, said: str) -> None:
    with pytest.raises(ms.UnsupportedError) as error:
        db.execute(text)
    assert said in error.value.message


def test_the_table_stores_own_aggregates_are_untouched(db: ms.Database) -> None:
    assert ask(db, "SELECT k, median(x) FROM t GROUP BY k ORDER BY k") == [("a", 6.0), ("b", 2.5), (None, 4.0)]
    db.execute("CREATE AGGREGATE median(x DOUBLE) : DOUBLE { TABLE s(n INTEGER); INITIALIZE: ITERATE: { } "
               "TERMINATE: { INSERT INTO RETURN VALUES (-1.0); } }")  # fmt: skip
    assert ask(db, "SELECT median(x) FROM t") == [(-1.0,)]


def test_a_table_made_of_it_is_kept(tmp_path: Path) -> None:
    with ms.connect(tmp_path / "db", aggregates=PYTHON_TWINS) as db:
        db.execute("CREATE TABLE t (k VARCHAR, x DOUBLE); INSERT INTO t VALUES ('a', 1), ('b', 2), ('a', 3)")
        db.execute("CREATE TABLE totals AS SELECT k, py_total(x) AS total FROM t GROUP BY k")
        with pytest.raises(ms.CatalogError, match="totals already exists"):
            db.execute("CREATE TABLE totals AS SELECT py_total(x) AS total FROM t")
    with ms.connect(tmp_path / "db", aggregates=PYTHON_TWINS) as db:
        assert ask(db, "SELECT * FROM totals") == [("a", 4.0), ("b", 2.0)]


def test_an_error_in_python_is_told(db: ms.Database) -> None:
    @ms.aggregate("bad", parameters={"x": "DOUBLE"}, returns="DOUBLE")
    class Bad:
        def initialize(self, x: float) -> None: ...

        iterate = initialize

        def terminate(self) -> float:
            raise RuntimeError("no")

    db.register_aggregate(Bad)
    with pytest.raises(ms.DataError, match=r"bad\.terminate failed: RuntimeError: no"):
        db.execute("SELECT bad(x) FROM t")


def test_many_groups_and_batches(db: ms.Database, twin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.hosts.table_aggregates._BATCH", 64)
    draw = random.Random(1)
    rows = [(draw.randrange(50), draw.randrange(100) / 4) for _ in range(1000)]
    db.execute("CREATE TABLE many (g INTEGER, x DOUBLE)")
    db.execute("INSERT INTO many VALUES " + ", ".join(map(str, rows)))
    totals: dict[int, float] = {}
    for g, x in rows:
        totals[g] = totals.get(g, 0.0) + x
    assert ask(db, f"SELECT g, {twin}_total(x) FROM many GROUP BY g") == list(totals.items())
    climbs = []
    last: dict[int, float] = {}
    for g, x in rows:
        if g in last and x > last[g]:
            climbs += [(g, last[g], x)] * (2 if x > last[g] + 4 else 1)
        last[g] = x
    assert ask(db, f"SELECT g, {twin}_climbs(x) FROM many GROUP BY g") == climbs
