"""Queries built without SQL: from logical operators, which are optimised, and from physical ones, which are not."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import millstream as ms
from millstream.kernels.relations.events import ToEventsSpec
from millstream.kernels.relations.join import JoinSpec
from millstream.kernels.relations.stages import RangeStage, ValidityStage
from millstream.physical.nodes import Apply, Source, Staged
from millstream.plan.relations import RangeWindow
from millstream.schema import Schema
from millstream.session.builder import Flow
from millstream.types import BIGINT, INTEGER

STREAMS = """
    CREATE STREAM a (k INT, x INT, t INT) ORDER BY t;
    CREATE STREAM b (k INT, y INT, t INT) ORDER BY t;
    CREATE STREAM later (k INT, at TIMESTAMP) ORDER BY at;
    CREATE TABLE names (k INT, name VARCHAR);
    INSERT INTO names VALUES (1, 'one'), (2, 'two');
"""


@pytest.fixture
def db() -> Iterator[ms.Database]:
    with ms.connect() as database:
        database.execute(STREAMS)
        yield database


def feed(db: ms.Database) -> None:
    db.push("a", [(1, 10, 0), (2, 20, 1), (2, 20, 1), (1, 11, 30)])
    db.push("b", [(1, 100, 4), (2, 200, 12), (1, 101, 28)])
    db.finish()


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=repr)


def over_a(db: ms.Database) -> Flow:
    return db.stream("a").window("RANGE 10")


def over_b(db: ms.Database) -> Flow:
    return db.stream("b").window("RANGE 5")


Build = Callable[[ms.Database], Flow]
SAME: dict[str, tuple[Build, str]] = {
    "stream": (lambda db: db.stream("a"), "SELECT * FROM a"),
    "window": (over_a, "SELECT * FROM a WINDOW(RANGE 10)"),
    "rows": (lambda db: db.stream("a").window("PARTITION BY k ROWS 1"), "SELECT * FROM a [PARTITION BY k ROWS 1]"),
    "slide": (lambda db: db.stream("a").window("RANGE 4 SLIDE 2"), "SELECT * FROM a [RANGE 4 SLIDE 2]"),
    "granularity": (lambda db: over_a(db).granularity("3"), "SELECT * FROM a [RANGE 10] GRANULARITY(3)"),
    "where": (
        lambda db: db.stream("a").where("x > 10 OR k = 1").where("x < 20"),
        "SELECT * FROM a WHERE (x > 10 OR k = 1) AND x < 20",
    ),
    "where, then window": (
        lambda db: db.stream("a").where("x > 10").window("ROWS 1"),
        "SELECT * FROM (SELECT * FROM a WHERE x > 10) AS a [ROWS 1]",
    ),
    "select": (
        lambda db: over_a(db).where("x > 10").select("k + 1 AS j", "x"),
        "SELECT k + 1 AS j, x FROM a [RANGE 10] WHERE x > 10",
    ),
    "select over": (
        lambda db: db.stream("a").select("k", "sum(x) OVER (ROWS 1 PRECEDING) AS s"),
        "SELECT k, sum(x) OVER (ROWS 1 PRECEDING) AS s FROM a",
    ),
    "group by": (
        lambda db: over_a(db).group_by("k", "k", "sum(x) AS s", having="sum(x) > 15"),
        "SELECT k, sum(x) AS s FROM a [RANGE 10] GROUP BY k HAVING sum(x) > 15",
    ),
    "group by keys only": (lambda db: over_a(db).group_by("k"), "SELECT k FROM a [RANGE 10] GROUP BY k"),
    "one group": (lambda db: over_a(db).group_by("", "count(*) AS n"), "SELECT count(*) AS n FROM a [RANGE 10]"),
    "groups of windows that end": (
        lambda db: db.stream("TUMBLE(a, t, 10)").group_by("window_end", "window_end", "count(*) AS n"),
        "SELECT window_end, count(*) AS n FROM TUMBLE(a, t, 10) GROUP BY window_end",
    ),
    "distinct": (lambda db: over_a(db).select("k").distinct(), "SELECT DISTINCT k FROM a [RANGE 10]"),
    "join": (
        lambda db: over_a(db).join(over_b(db), on="a.k = b.k").where("x + y > 0").select("a.k", "x", "y"),
        "SELECT a.k, x, y FROM a [RANGE 10] JOIN b [RANGE 5] ON a.k = b.k WHERE x + y > 0",
    ),
    "join without select": (
        lambda db: over_a(db).join(over_b(db), on="a.k = b.k"),
        "SELECT * FROM a [RANGE 10] JOIN b [RANGE 5] ON a.k = b.k",
    ),
    "cross join": (
        lambda db: over_a(db).join(over_b(db)).select("x", "y"),
        "SELECT x, y FROM a [RANGE 10] CROSS JOIN b [RANGE 5]",
    ),
    "join with events": (
        lambda db: over_a(db).join(db.stream("b"), on="a.k = b.k").select("x", "y"),
        "SELECT x, y FROM a [RANGE 10], b WHERE a.k = b.k",
    ),
    "join with a table": (
        lambda db: (
            over_a(db).join(db.stream("names").where("k > 1"), on="a.k = names.k", how="left").select("x", "name")
        ),
        "SELECT x, name FROM a [RANGE 10] LEFT JOIN (SELECT * FROM names WHERE k > 1) AS n ON a.k = n.k",
    ),
    "join of three": (
        lambda db: (
            over_a(db)
            .join(over_b(db), on="a.k = b.k")
            .where("y > 100")
            .join(db.stream("a", "c").window("RANGE 3"), on="b.k = c.k", how="left")
            .select("a.x", "b.y", "c.x AS z")
        ),
        "SELECT a.x, b.y, c.x AS z FROM a [RANGE 10] JOIN b [RANGE 5] ON a.k = b.k "
        "LEFT JOIN a [RANGE 3] AS c ON b.k = c.k WHERE y > 100",
    ),
    "join of filtered sides": (
        lambda db: over_a(db).where("x > 10").join(over_b(db).where("y > 100"), on="a.k = b.k", how="full"),
        "SELECT * FROM (SELECT * FROM a [RANGE 10] WHERE x > 10) AS a "
        "FULL JOIN (SELECT * FROM b [RANGE 5] WHERE y > 100) AS b ON a.k = b.k",
    ),
    "join with itself": (
        lambda db: over_a(db).join(over_a(db).alias("o"), on="a.x < o.x").select("a.x", "o.x AS y"),
        "SELECT a.x, o.x AS y FROM a [RANGE 10], a [RANGE 10] AS o WHERE a.x < o.x",
    ),
    "events near each other": (
        lambda db: db.stream("a").join(db.stream("b"), on="a.k = b.k AND b.t BETWEEN a.t AND a.t + 6").select("x", "y"),
        "SELECT x, y FROM a JOIN b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + 6",
    ),
    "asof": (
        lambda db: db.stream("a").join(db.stream("b"), on="a.k = b.k AND a.t >= b.t", how="asof").select("x", "y"),
        "SELECT x, y FROM a ASOF JOIN b ON a.k = b.k AND a.t >= b.t",
    ),
    "subquery": (
        lambda db: over_b(db).where("y > (SELECT max(x) FROM a [RANGE 10])"),
        "SELECT * FROM b [RANGE 5] WHERE y > (SELECT max(x) FROM a [RANGE 10])",
    ),
    "union": (
        lambda db: over_a(db).select("k").union(over_b(db).select("k")),
        "SELECT k FROM a [RANGE 10] UNION ALL SELECT k FROM b [RANGE 5]",
    ),
    "union of sets": (
        lambda db: over_a(db).select("k").union(over_b(db).select("k"), all=False),
        "SELECT k FROM a [RANGE 10] UNION SELECT k FROM b [RANGE 5]",
    ),
    "except": (
        lambda db: over_a(db).select("k").except_(over_b(db).select("k")),
        "SELECT k FROM a [RANGE 10] EXCEPT ALL SELECT k FROM b [RANGE 5]",
    ),
    "except of sets": (
        lambda db: over_a(db).select("k").except_(over_b(db).select("k"), all=False),
        "SELECT k FROM a [RANGE 10] EXCEPT SELECT k FROM b [RANGE 5]",
    ),
    "intersect": (
        lambda db: over_a(db).select("k").intersect(over_b(db).select("k")),
        "SELECT k FROM a [RANGE 10] INTERSECT ALL SELECT k FROM b [RANGE 5]",
    ),
    "istream": (lambda db: over_a(db).select("k").distinct().istream(), "SELECT ISTREAM(DISTINCT k) FROM a [RANGE 10]"),
    "dstream": (lambda db: over_a(db).where("k = 2").dstream(), "SELECT DSTREAM(*) FROM a [RANGE 10] WHERE k = 2"),
    "rstream": (lambda db: db.stream("a").window("RANGE 2").rstream(), "SELECT RSTREAM(*) FROM a [RANGE 2]"),
    "window over derived events": (
        lambda db: over_a(db).select("k").distinct().istream().window("RANGE 3"),
        "SELECT * FROM (SELECT ISTREAM(DISTINCT k) FROM a [RANGE 10]) AS a [RANGE 3]",
    ),
} | {
    how: (
        lambda db, how=how: over_a(db).join(over_b(db), on="a.k = b.k", how=how),
        f"SELECT * FROM a [RANGE 10] {how.upper()} JOIN b [RANGE 5] ON a.k = b.k",
    )
    for how in ("left", "right", "full", "semi", "anti")
}


@pytest.mark.parametrize("name", SAME)
def test_as_in_sql(db: ms.Database, name: str) -> None:
    """What is built gives the rows of the query that says the same."""
    build, text = SAME[name]
    built, written = build(db).start(), db.sql(text)
    feed(db)
    assert built.schema == written.schema
    found = rows(built.fetch())
    assert found == rows(written.fetch())
    assert found, "nothing was compared"


def test_built_flows_are_optimised(db: ms.Database) -> None:
    flow = over_a(db).join(over_b(db), on="a.k = b.k").where("x > 10").select("x", "y")
    text = "SELECT x, y FROM a [RANGE 10] JOIN b [RANGE 5] ON a.k = b.k WHERE x > 10"
    assert flow.explain() == db.explain(text)
    assert "rules applied: " in flow.explain()
    assert flow.explain("cost").startswith("costs")


def test_flows_are_values(db: ms.Database) -> None:
    base = over_a(db)
    few, many = base.where("x > 15"), base.where("x <= 15")
    first, second = few.start("few"), many.start("many")
    feed(db)
    assert rows(first.fetch().select(["x"])) == [(20,), (20,)]
    assert rows(second.fetch().select(["x"])) == [(10,), (11,)]
    assert db.query("few").sql.splitlines()[0] == "Validity"


def test_built_queries_hold_their_streams(db: ms.Database) -> None:
    query = over_b(db).where("y > (SELECT max(x) FROM a [RANGE 10])").start("held")
    for stream in ("a", "b"):
        with pytest.raises(ms.MillstreamError, match=f"{stream} is used by held"):
            db.execute(f"DROP STREAM {stream}")
    query.stop()
    db.execute("DROP STREAM a; DROP STREAM b")


def test_built_queries_have_a_content(db: ms.Database) -> None:
    query = over_a(db).group_by("k", "k", "count(*) AS n").start()
    db.push("a", [(1, 10, 0), (2, 20, 1), (1, 11, 2)])
    assert rows(query.snapshot()) == [(1, 2), (2, 1)]


def test_names_that_are_words(db: ms.Database) -> None:
    db.execute('CREATE STREAM "order" ("group by" INT, t INT) ORDER BY t')
    query = db.stream("order").window("ROWS 1").where('"group by" > 1').alias("select").select("*").start()
    db.push("order", [(1, 0), (2, 1)])
    db.finish()
    assert rows(query.fetch()) == [(2, 1, 1, None)]


def elsewhere() -> Flow:
    other = ms.connect()
    other.execute(STREAMS)
    return over_a(other)


REFUSED: dict[str, tuple[Build, str]] = {
    "no stream": (lambda db: db.stream("zz"), "no stream or table zz"),
    "two streams": (lambda db: db.stream("a, b"), "a flow starts with one entry of FROM"),
    "a filtered stream": (lambda db: db.stream("a WHERE x > 1"), "a flow starts with one entry of FROM"),
    "a statement": (lambda db: db.stream("a; DROP STREAM a"), "only expressions are allowed"),
    "no column": (lambda db: over_a(db).where("z > 1"), "no column z\n  1 | SELECT * FROM a WHERE (z > 1)\n"),
    "no column to select": (lambda db: over_a(db).select("z"), "no column z"),
    "no column to group by": (lambda db: over_a(db).group_by("z", "count(*) AS n"), "no column z"),
    "no column to join on": (lambda db: over_a(db).join(over_b(db), on="a.k = b.z"), "no column b.z"),
    "no condition": (lambda db: over_a(db).where("x"), "a condition is needed here"),
    "no expression": (lambda db: over_a(db).where("x >"), "expected an expression"),
    "more than a condition": (lambda db: over_a(db).where("x > 1) ORDER BY (k"), "only expressions are allowed"),
    "a union for a condition": (lambda db: over_a(db).where("TRUE) UNION (SELECT 1"), "only expressions are allowed"),
    "groups for columns": (lambda db: over_a(db).select("count(*) AS n FROM b GROUP BY"), "expected an expression"),
    "more than keys": (lambda db: over_a(db).group_by("k HAVING count(*) > 1", "k"), "only expressions are allowed"),
    "more than a join": (
        lambda db: over_a(db).join(over_b(db), on="a.k = b.k JOIN names ON TRUE"),
        "only expressions are allowed",
    ),
    "no such join": (lambda db: over_a(db).join(over_b(db), on="TRUE", how="outer"), "no join outer"),  # type: ignore[arg-type]
    "no flow": (lambda db: over_a(db).join("b", on="TRUE"), "a flow is expected here, not 'b'"),  # type: ignore[arg-type]
    "a flow of another session": (lambda db: over_a(db).union(elsewhere()), "the flows belong to different sessions"),
    "no window": (lambda db: db.stream("a").window("RAGNE 5"), "did you mean RANGE"),
    "two windows": (lambda db: db.stream("a").window("RANGE 5) o, b WINDOW(RANGE 3"), "more than one window"),
    "window and granularity": (lambda db: db.stream("a").window("RANGE 5) GRANULARITY(2"), "more than one window"),
    "a unit": (lambda db: db.stream("a").window("RANGE 5 SECONDS"), "the stream is ordered by a number"),
    "a window over a table": (lambda db: db.stream("names").window("ROWS 3"), "a window needs a stream"),
    "other clocks": (
        lambda db: over_a(db).join(db.stream("later"), on="TRUE"),
        "ordered by a number and one ordered by time",
    ),
    "union of other clocks": (
        lambda db: over_a(db).select("k").union(db.stream("later").window("NOW").select("k")),
        "ordered by a number and one ordered by time",
    ),
    "union of other widths": (lambda db: over_a(db).union(over_b(db).select("k")), "UNION of 3 and 1 columns"),
    "one name twice": (lambda db: over_a(db).join(over_a(db), on="TRUE"), "a appears twice in FROM"),
    "two columns of a name": (lambda db: over_a(db).join(over_b(db)).distinct(), "two columns are named k"),
    "distinct events": (lambda db: db.stream("a").distinct(), "DISTINCT over a whole stream"),
    "groups of a stream": (lambda db: db.stream("a").group_by("k", "k"), "GROUP BY over a whole stream never ends"),
    "two streams without windows": (
        lambda db: db.stream("a").join(db.stream("b"), on="a.k = b.k"),
        "two streams in FROM without windows",
    ),
    "istream of events": (lambda db: db.stream("a").istream(), "ISTREAM takes a relation"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(db: ms.Database, name: str) -> None:
    build, message = REFUSED[name]
    with pytest.raises(ms.MillstreamError) as caught:
        build(db)
    assert message in str(caught.value)


def test_tables_alone_are_refused(db: ms.Database) -> None:
    with pytest.raises(ms.MillstreamError, match="a query over stored tables alone is not a stream"):
        db.stream("names").where("k = 1").start()


def test_not_kept(tmp_path: Path) -> None:
    """What has no text is gone with the session, closed or crashed; what has one goes on."""
    with ms.connect(tmp_path / "kept") as db:
        db.execute(STREAMS)
        kept = db.sql("SELECT k FROM a", name="kept")
        built = over_a(db).start("built")
        db.push("a", [(1, 10, 0)])
        assert built.fetch().num_rows == kept.fetch().num_rows == 1
        over_b(db).start("stopped").stop()
        crashed = copied(tmp_path)
    for directory in (crashed, tmp_path / "kept"):
        with ms.connect(directory) as db:
            assert [query.name for query in db.queries()] == ["kept"]
            db.push("a", [(2, 20, 1)])
            assert rows(db.query("kept").fetch()) == [(2,)]


def copied(home: Path) -> Path:
    """The directory of a session as a crash would leave it now."""
    shutil.copytree(home / "kept", home / "crashed")
    return home / "crashed"


# -- physical operators ------------------------------------------------------------------------------------------------

OPEN = Schema.of(itemID=INTEGER, sellerID=INTEGER)
CLOSED = Schema.of(itemID=INTEGER)
RESULT = Schema.of(itemID=INTEGER, sellerID=INTEGER, valid_from=BIGINT, valid_to=BIGINT)


def short_auctions() -> Staged:
    """Q3 of the thesis, operator by operator: auctions that close within 300 units of time."""
    opened = Staged(OPEN, Source(OPEN, "OpenAuction", "main"), RangeStage(OPEN, RangeWindow(300)), spans=True)
    closed = Staged(CLOSED, Source(CLOSED, "ClosedAuction", "main"), RangeStage(CLOSED, RangeWindow(1)), spans=True)
    join = JoinSpec(OPEN, CLOSED, by=("itemID",), columns=(("left", "itemID"), ("left", "sellerID")))
    return Staged(RESULT, Apply(OPEN, (opened, closed), join, spans=True), ValidityStage(OPEN, RESULT, BIGINT))


@pytest.fixture
def auctions() -> Iterator[ms.Database]:
    with ms.connect() as database:
        database.execute("""
            CREATE STREAM OpenAuction (itemID INT, sellerID INT, t INT) ORDER BY t;
            CREATE STREAM ClosedAuction (itemID INT, t INT) ORDER BY t
        """)
        yield database


def test_one_query_three_ways(auctions: ms.Database) -> None:
    db = auctions
    queries = [
        db.sql(
            "SELECT O.itemID, sellerID FROM OpenAuction O WINDOW(RANGE 300), ClosedAuction C WHERE O.itemID = C.itemID"
        ),
        db.stream("OpenAuction")
        .window("RANGE 300")
        .join(db.stream("ClosedAuction"), on="OpenAuction.itemID = ClosedAuction.itemID")
        .select("OpenAuction.itemID", "sellerID")
        .start(),
        db.install(short_auctions()),
    ]
    db.push("OpenAuction", [(1, 9, 0), (2, 8, 100)])
    db.push("ClosedAuction", [(1, 250), (1, 300), (2, 500)])
    assert [rows(query.snapshot(250)) for query in queries] == [[(1, 9)]] * 3
    db.finish()
    assert [rows(query.fetch()) for query in queries] == [[(1, 9, 250, 251)]] * 3
    assert len({query.schema for query in queries}) == 1


def test_installed_as_given(auctions: ms.Database) -> None:
    plan = short_auctions()
    query = auctions.install(plan, name="mine")
    assert query.explain() == str(plan) == query.sql
    with pytest.raises(ms.MillstreamError, match=r"(?i)OpenAuction is used by mine"):
        auctions.execute("DROP STREAM OpenAuction")
    query.stop()
    auctions.execute("DROP STREAM OpenAuction")


def test_installed_events(auctions: ms.Database) -> None:
    join = short_auctions().input
    query = auctions.install(Apply(OPEN, (join,), ToEventsSpec(OPEN, "istream", 1, "intervals")))
    auctions.push("OpenAuction", [(1, 9, 0)])
    auctions.push("ClosedAuction", [(1, 250)])
    auctions.finish()
    assert rows(query.fetch()) == [(1, 9)]
    with pytest.raises(ms.MillstreamError, match="only a relation has a snapshot"):
        query.snapshot()


def test_plans_that_do_not_fit(auctions: ms.Database) -> None:
    plan = short_auctions()
    join = plan.input
    assert isinstance(join, Apply)
    misread = Source(Schema.of(itemID=BIGINT), "ClosedAuction", "main")
    for wrong, message in (
        (join, "valid during intervals, which are not among its columns"),
        (replace(plan, input=replace(join, over=join.over[::-1])), "join by itemID takes .* and is given"),
        (Source(OPEN, "nowhere", "main"), "no stream nowhere"),
        (Source(OPEN, "ClosedAuction", "main"), "no column sellerID INTEGER in ClosedAuction"),
        (misread, "no column itemID BIGINT in ClosedAuction"),
    ):
        with pytest.raises(ms.MillstreamError, match=message):
            auctions.install(wrong)
    assert auctions.queries() == []
