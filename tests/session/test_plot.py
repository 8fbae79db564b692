"""`q.plot()`: what is drawn of a result, without a display."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.session.plotting import Roles, plot

ROWS = """SELECT {columns} FROM quotes MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY t
    MEASURES MATCH_NUMBER() AS nr, CLASSIFIER() AS label
    ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (A DOWN+ UP+)
    DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price)) AS m"""
PRICES = [50, 47, 44, 48, 55, 55, 60]


@pytest.fixture(autouse=True)
def no_display() -> Iterator[None]:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


@pytest.fixture
def db() -> Iterator[ms.Database]:
    with ms.connect() as session:
        session.execute("CREATE STREAM quotes (symbol VARCHAR, price INT, t INT) ORDER BY t")
        yield session


def lines(axes: Any) -> list[list[tuple[int, int]]]:
    return [list(zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in axes.get_lines()]


def dots(axes: Any) -> list[set[tuple[float, float]]]:
    return [{(x, y) for x, y in points.get_offsets()} for points in axes.collections if len(points.get_offsets())]


def start(db: ms.Database, columns: str = "*") -> ms.Query:
    query = db.sql(ROWS.format(columns=columns))
    assert isinstance(query, ms.Query)
    return query


def test_matches_are_marked_on_the_series(db: ms.Database) -> None:
    query = start(db)
    db.push("quotes", [("ACME", price, t) for t, price in enumerate(PRICES)])
    db.finish()
    axes = query.plot()
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("t", "price")
    series, band = lines(axes)
    assert series == list(enumerate(PRICES))
    assert band == list(enumerate(PRICES))[:5]
    assert dots(axes) == [{(0, 50)}, {(1, 47), (2, 44)}, {(3, 48), (4, 55)}]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["A", "DOWN", "UP"]


def test_it_takes_nothing_away(db: ms.Database) -> None:
    query = start(db)
    db.push("quotes", [("ACME", price, t) for t, price in enumerate(PRICES)])
    query.plot()
    db.finish()
    axes = query.plot()
    assert lines(axes)[0] == list(enumerate(PRICES))
    assert query.fetch().num_rows == len(PRICES)
    assert query.fetch().num_rows == 0


def test_partitions_are_lines_of_their_own(db: ms.Database) -> None:
    query = start(db)
    db.push("quotes", [(name, price + 10 * n, t) for t, price in enumerate(PRICES) for n, name in enumerate("XY")])
    db.finish()
    axes = query.plot()
    assert len(lines(axes)) == 4
    assert [text.get_text() for text in axes.texts] == ["X", "Y"]


def test_columns_are_known_under_other_names(db: ms.Database) -> None:
    query = start(db, "m.t AS moment, m.nr AS n, m.price AS paid, m.label AS part")
    db.push("quotes", [("ACME", price, t) for t, price in enumerate(PRICES)])
    db.finish()
    axes = query.plot()
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("moment", "paid")
    assert len(lines(axes)) == 2
    assert len(dots(axes)) == 3


def test_columns_and_axes_are_chosen(db: ms.Database) -> None:
    from matplotlib import pyplot

    query = start(db)
    db.push("quotes", [("ACME", price, t) for t, price in enumerate(PRICES)])
    _, mine = pyplot.subplots()
    assert query.plot(x="PRICE", y="t", ax=mine) is mine
    assert (mine.get_xlabel(), mine.get_ylabel()) == ("price", "t")
    with pytest.raises(ms.BindError, match="no column volume"):
        query.plot(y="volume")


def test_any_result_is_a_series(db: ms.Database) -> None:
    query = db.sql("SELECT symbol, t, price * 2 AS twice FROM quotes")
    assert isinstance(query, ms.Query)
    db.push("quotes", [("ACME", price, t) for t, price in enumerate(PRICES)])
    axes = query.plot()
    assert lines(axes) == [[(t, price * 2) for t, price in enumerate(PRICES)]]
    assert axes.get_legend() is None


def test_rows_without_a_value_leave_no_trace() -> None:
    rows = pa.table({"t": [1, 2, None], "v": [1.0, None, 3.0], "m": [1, 1, 1]})
    axes = plot(rows, Roles(match="m", times=frozenset({"t"})))
    assert lines(axes) == [[(1, 1.0)], [(1, 1.0)]]


def test_nothing_to_draw() -> None:
    with pytest.raises(ms.BindError, match="no column of numbers"):
        plot(pa.table({"t": pa.array([0], pa.timestamp("us")), "name": ["a"]}), Roles())


def test_without_matplotlib(db: ms.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    query = start(db)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ms.EngineError, match="plot\\(\\) needs matplotlib") as caught:
        query.plot()
    assert caught.value.hint == "pip install matplotlib"
