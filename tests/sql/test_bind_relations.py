"""Windows in FROM, relations and queries inside queries: the plans they are bound to."""

from __future__ import annotations

from pathlib import Path

import pytest
from bound_plans import golden, perform, plan_of

from millstream.bind import statements as act
from millstream.bind.context import Context
from millstream.catalog import Catalog, ViewDef
from millstream.plan import nodes as P
from millstream.plan import relations as R
from millstream.plan.annotations import is_chronon
from millstream.types import BIGINT, TIMESTAMP, TIMESTAMPTZ

DECLARATIONS = """
CREATE STREAM Bid (itemID INT, bid_price DOUBLE, bidderID INT, ts TIMESTAMP) ORDER BY ts;
CREATE STREAM OpenAuction (itemID INT, sellerID INT, start_price DOUBLE, ts TIMESTAMP) ORDER BY ts;
CREATE STREAM ClosedAuction (itemID INT, ts TIMESTAMP) ORDER BY ts;
CREATE STREAM sensor (temperature DOUBLE, ts TIMESTAMPTZ) ORDER BY ts;
CREATE STREAM day (v INT, d DATE) ORDER BY d;
CREATE STREAM tick (k INT, v INT, t INT) ORDER BY t;
CREATE STREAM arrival (k INT, v INT);
CREATE TABLE member (id INT, name VARCHAR);
CREATE FUNCTION DolToEuro(x DOUBLE) AS x * 0.9;
CREATE AGGREGATE biggest(x DOUBLE) : (b DOUBLE) {
  TABLE state(v DOUBLE);
  INITIALIZE: { INSERT INTO state VALUES (x); }
  ITERATE: { UPDATE state SET v = x WHERE x > v; }
  TERMINATE: { INSERT INTO RETURN SELECT v FROM state; } }
"""
GOLDEN = Path(__file__).with_suffix(".txt")


@pytest.fixture
def catalog() -> Catalog:
    made = Catalog()
    perform(DECLARATIONS, made)
    return made


@pytest.mark.parametrize(("query", "plan"), [pytest.param(*case, id=str(i)) for i, case in enumerate(golden(GOLDEN))])
def test_plan(query: str, plan: str, catalog: Catalog) -> None:
    comment, _, text = query.partition("\n")
    assert comment.startswith("# ")
    assert str(plan_of(text, catalog)).splitlines() == plan.splitlines()


@pytest.mark.parametrize(
    ("source", "type_"),
    [("Bid", TIMESTAMP), ("sensor", TIMESTAMPTZ), ("day", TIMESTAMP), ("tick", BIGINT), ("arrival", BIGINT)],
)
def test_validity_has_the_type_of_the_streams_time(source: str, type_: object, catalog: Catalog) -> None:
    action = perform(f"SELECT count(*) AS n FROM {source} [ROWS 3]", catalog)
    assert isinstance(action, act.StartQuery)
    assert isinstance(action.bound.plan, R.Validity)
    assert action.bound.plan.type == type_
    assert action.bound.names == ("n", "valid_from", "valid_to")


def test_only_what_is_delivered_has_validity(catalog: Catalog) -> None:
    inner = plan_of("CREATE STREAM d AS SELECT itemID FROM Bid [NOW]", catalog)
    assert inner.kind is P.Kind.RELATION
    outer = plan_of("SELECT * FROM (SELECT itemID FROM Bid [NOW]) AS x, d", catalog)
    assert [node for node in P.walk(outer) if isinstance(node, R.Validity)] == [outer]
    explained = perform("EXPLAIN CREATE STREAM d2 AS SELECT itemID FROM Bid [NOW]", catalog)
    assert isinstance(explained, act.ExplainPlan)
    assert isinstance(explained.of.bound.plan, R.Validity)


def test_names_of_validity_may_be_taken(catalog: Catalog) -> None:
    action = perform("SELECT itemID AS valid_from FROM Bid [NOW]", catalog)
    assert isinstance(action, act.StartQuery)
    assert action.bound.names == ("valid_from", "valid_from", "valid_to")
    assert action.bound.plan.schema.names == ("valid_from", "valid_from_2", "valid_to")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT * FROM Bid [NOW]", True),
        ("SELECT * FROM Bid [RANGE 2 SECONDS]", False),
        ("SELECT * FROM Bid [ROWS 1]", False),
        ("SELECT DISTINCT itemID FROM Bid [NOW] WHERE bid_price > 1", True),
        ("SELECT itemID, max(bid_price) AS m FROM Bid [NOW] GROUP BY itemID", True),
        ("SELECT b.itemID FROM Bid [RANGE 1 HOUR] AS b, ClosedAuction AS c", True),
        ("SELECT b.itemID FROM Bid [RANGE 1 HOUR] AS b LEFT JOIN ClosedAuction AS c ON TRUE", False),
        ("SELECT b.itemID FROM ClosedAuction AS b LEFT JOIN Bid [RANGE 1 HOUR] AS c ON TRUE", True),
        ("SELECT b.itemID FROM Bid [RANGE 1 HOUR] AS b RIGHT JOIN ClosedAuction AS c ON TRUE", True),
        ("SELECT b.itemID FROM Bid [RANGE 1 HOUR] AS b FULL JOIN ClosedAuction AS c ON TRUE", False),
        ("SELECT b.itemID FROM Bid [RANGE 1 HOUR] AS b ANTI JOIN ClosedAuction AS c ON TRUE", False),
        ("SELECT itemID FROM Bid [NOW] EXCEPT SELECT itemID FROM Bid [RANGE 1 HOUR]", True),
        ("SELECT itemID FROM Bid [RANGE 1 HOUR] EXCEPT SELECT itemID FROM Bid [NOW]", False),
        ("SELECT itemID FROM Bid [RANGE 1 HOUR] INTERSECT SELECT itemID FROM Bid [NOW]", True),
        ("SELECT itemID FROM Bid [RANGE 1 HOUR] UNION ALL SELECT itemID FROM Bid [NOW]", False),
        ("SELECT name FROM Bid [NOW] AS b JOIN member ON id = itemID", True),
    ],
)
def test_chronon_relations(query: str, expected: bool, catalog: Catalog) -> None:
    plan = plan_of(f"CREATE STREAM d AS {query}", catalog)
    assert is_chronon(plan) is expected


def test_a_relation_has_no_time_column(catalog: Catalog) -> None:
    context = Context(catalog, "")
    assert context.time_columns(plan_of("SELECT ts FROM Bid", catalog)) == {"ts"}
    assert context.time_columns(plan_of("CREATE STREAM a AS SELECT ts FROM Bid [NOW]", catalog)) == frozenset()
    assert context.time_columns(plan_of("CREATE STREAM b AS SELECT ISTREAM(ts) FROM Bid [ROWS 1]", catalog)) == set()


def test_numbers_are_the_time_of_events_made_of_a_relation(catalog: Catalog) -> None:
    made = "(SELECT ISTREAM(v) FROM tick [ROWS 3]) AS e"
    plan = plan_of(f"SELECT sum(v) OVER (RANGE 5 PRECEDING) FROM {made}", catalog)
    assert "RANGE" in str(plan).upper()


@pytest.mark.parametrize("how", ["LEFT JOIN", "JOIN"])
def test_a_stored_table_is_looked_up(how: str, catalog: Catalog) -> None:
    plan = plan_of(f"SELECT name FROM Bid [ROWS 3] AS b {how} member ON id = bidderID", catalog)
    expected = ["left" if how == "LEFT JOIN" else "inner"]
    assert [node.how for node in P.walk(plan) if isinstance(node, P.JoinTable)] == expected


def test_an_adhoc_query_reads_views_and_tables(catalog: Catalog) -> None:
    perform("CREATE VIEW hot AS SELECT itemID, count(*) AS n FROM Bid [RANGE 1 HOUR] GROUP BY itemID", catalog)
    action = perform("SELECT name, n FROM hot JOIN member ON id = itemID ORDER BY n DESC LIMIT 3", catalog)
    assert isinstance(action, act.OnTables)
    assert (action.views, action.reads, action.is_query) == (("hot",), {"member"}, True)
    filled = perform("INSERT INTO member SELECT itemID, 'hot' FROM hot", catalog)
    assert isinstance(filled, act.OnTables)
    assert (filled.views, filled.is_query) == (("hot",), False)
    kept = perform("CREATE TABLE hottest AS SELECT * FROM hot", catalog)
    assert isinstance(kept, act.OnTables)
    assert (kept.views, kept.create) == (("hot",), ("hottest", False))


@pytest.mark.parametrize(
    "query", ["SELECT * FROM hot, Bid [NOW] AS b", "ISTREAM(SELECT * FROM hot)", "SELECT * FROM Istream(hot) AS h"]
)
def test_a_standing_query_reads_a_view_as_a_relation(query: str, catalog: Catalog) -> None:
    perform("CREATE VIEW hot (item, n) AS SELECT itemID, count(*) FROM Bid [RANGE 1 HOUR] GROUP BY itemID", catalog)
    action = perform(query, catalog)
    assert isinstance(action, act.StartQuery)
    assert "hot" in action.uses
    assert {"item", "n"} <= set(action.bound.names)


def test_a_view_keeps_its_query_as_text(catalog: Catalog) -> None:
    text = "SELECT itemID FROM Bid WINDOW(RANGE INTERVAL '1' HOUR)"
    perform(f"CREATE VIEW v AS {text}", catalog)
    view = catalog.get("v", ViewDef)
    assert view.names == ("itemID",)
    assert str(plan_of(f"CREATE STREAM again AS {view.sql}", catalog)) == str(view.plan)


def test_an_aggregate_written_in_sql_is_part_of_the_call(catalog: Catalog) -> None:
    plan = plan_of("SELECT itemID, biggest(bid_price) AS b FROM Bid [RANGE 1 HOUR] GROUP BY itemID", catalog)
    [summary] = [node for node in P.walk(plan) if isinstance(node, R.Summarize)]
    [call] = summary.calls
    assert (call.fn, call.args, call.program is not None) == ("biggest", ("bid_price",), True)
