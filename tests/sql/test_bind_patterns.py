"""Row patterns: the plans they are bound to, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from bound_plans import golden, perform, plan_of

from millstream.bind import statements as act
from millstream.bind.context import Context
from millstream.catalog import Catalog
from millstream.errors import BindError, UnsupportedError
from millstream.physical.planner import plan_physical
from millstream.plan import nodes as P
from millstream.plan.patterns import search as M
from millstream.plan.ties import SortKey, Ties
from millstream.rules import OPTIMIZE, run_rules

DECLARATIONS = """
CREATE STREAM t (sym VARCHAR, price INT, qty INT, ts TIMESTAMP) ORDER BY ts;
CREATE STREAM tick (k INT, v INT, n INT) ORDER BY n;
CREATE STREAM arrival (k INT, v INT);
CREATE STREAM Sessions (SessNo INT, ClickTime TIMESTAMP, PageNo INT, PageType CHAR(1)) ORDER BY ClickTime;
CREATE STREAM speed (stationId INT, speed DOUBLE, speedTime TIMESTAMP) ORDER BY speedTime;
CREATE TABLE stations (stationId INT, location VARCHAR);
CREATE STREAM diff (stationId INT, speed_diff DOUBLE, speedTime TIMESTAMP) ORDER BY speedTime;
CREATE STREAM events (time TIMESTAMP, name VARCHAR, type VARCHAR, magnitude DOUBLE) ORDER BY time;
CREATE STREAM quote (name VARCHAR, price DOUBLE, time INT, date TIMESTAMP) ORDER BY date;
CREATE FUNCTION twice(x INT) AS x * 2;
CREATE AGGREGATE biggest(x DOUBLE) : (b DOUBLE) {
  TABLE state(v DOUBLE);
  INITIALIZE: { INSERT INTO state VALUES (x); }
  ITERATE: { UPDATE state SET v = x WHERE x > v; }
  TERMINATE: { INSERT INTO RETURN SELECT v FROM state; } };
CREATE AGGREGATE each(x INT) : INT {
  INITIALIZE: ITERATE: { INSERT INTO RETURN VALUES (x); } }
"""
GOLDEN = Path(__file__).with_suffix(".txt")


@pytest.fixture
def catalog() -> Catalog:
    made = Catalog()
    perform(DECLARATIONS, made)
    return made


def search_of(text: str, catalog: Catalog) -> M.Search:
    [match] = [node for node in P.walk(plan_of(text, catalog)) if isinstance(node, M.Match)]
    return match.search


def optimized(plan: P.Node) -> P.Node:
    return run_rules(plan, OPTIMIZE)[0]


def recognize(clauses: str) -> str:
    return f"SELECT * FROM t MATCH_RECOGNIZE ({clauses}) AS m"


@pytest.mark.parametrize(("query", "plan"), [pytest.param(*case, id=str(i)) for i, case in enumerate(golden(GOLDEN))])
def test_plan(query: str, plan: str, catalog: Catalog) -> None:
    comment, _, text = query.partition("\n")
    assert comment.startswith("# ")
    found = plan_of(text, catalog)
    assert str(found).splitlines() == plan.splitlines()
    # rules keep what comes out, and everything has a way to run
    best = optimized(found)
    assert best.schema == found.schema
    assert plan_physical(best).schema == found.schema


def test_names_of_the_result(catalog: Catalog) -> None:
    def names(text: str) -> tuple[str, ...]:
        action = perform(text, catalog)
        assert isinstance(action, act.StartQuery)
        return action.bound.names

    clauses = "PARTITION BY sym ORDER BY ts MEASURES A.price AS p, CLASSIFIER() AS c {} PATTERN (A) DEFINE A AS TRUE"
    assert names(recognize(clauses.format("ONE ROW PER MATCH"))) == ("sym", "p", "c")
    assert names(recognize(clauses.format("ALL ROWS PER MATCH"))) == ("sym", "ts", "p", "c", "price", "qty")
    twice = "ORDER BY ts, qty DESC, ts ALL ROWS PER MATCH PATTERN (A) DEFINE A AS TRUE"
    assert names(recognize(twice)) == ("ts", "qty", "ts_2", "sym", "price")
    computed = "PARTITION BY lower(sym), qty % 2 AS odd ORDER BY ts, abs(price) MEASURES 1 AS p {} PATTERN (A)"
    assert names(recognize(computed.format("ONE ROW PER MATCH"))) == ("lower", "odd", "p")
    everything = ("lower", "odd", "ts", "p", "sym", "price", "qty")
    assert names(recognize(computed.format("ALL ROWS PER MATCH"))) == everything
    renamed = "SELECT b FROM t MATCH_RECOGNIZE (PARTITION BY sym MEASURES price AS p PATTERN (A)) AS m (a, b)"
    assert names(renamed) == ("b",)
    sequence = "SELECT sym, LAST(Y).price, Y.previous.qty, count(*Y), ccount(Y), X.price AS p FROM t PARTITION BY sym"
    assert names(f"{sequence} AS (X, *Y)") == ("sym", "price", "qty", "count", "ccount", "p")


def test_a_quantifier_over_all_orders_of_a_permutation(catalog: Catalog) -> None:
    search = search_of(recognize("MEASURES price AS p PATTERN (PERMUTE(A, B, C)+?)"), catalog)
    assert str(search.pattern) == "PERMUTE(A, B, C)+?"


def test_subsets_stand_for_their_variables(catalog: Catalog) -> None:
    clauses = """MEASURES LAST(U.price) AS p, count(V.*) AS n, CLASSIFIER(U) AS c AFTER MATCH SKIP TO LAST U
                 PATTERN (A B C) SUBSET U = (C, a), V = (u, B) DEFINE A AS U.price > 3, B AS U.price > 3"""
    search = search_of(recognize(clauses), catalog)
    assert {reach.variables for reach in search.reaches if reach.name in search.columns} == {("C", "A")}
    assert [summary.variables for summary in search.summaries] == [("C", "A", "B")]
    assert search.skip == M.Skip("last", ("C", "A"))
    # the row under test for A is the last of the subset; for B it is an earlier one
    assert [str(search.spelled(condition)) for _, condition in search.conditions] == ["$p1", "LAST(C|A.$p1)"]


def test_what_a_row_decides_is_computed_below(catalog: Catalog) -> None:
    clauses = """MEASURES LAST(A.price * A.qty) AS p, sum(twice(price)) AS s PATTERN (A B)
                 DEFINE A AS lower(sym) = 'x' AND price * qty > PREV(price * qty) AND qty > 3,
                        B AS upper(A.sym) = sym AND coalesce(A.sym, 'none') = sym"""
    plan = plan_of(recognize(clauses), catalog)
    [match] = [node for node in P.walk(plan) if isinstance(node, M.Match)]
    assert isinstance(match.input, P.Project)
    made = {name: str(expr) for name, expr in match.input.columns if name.startswith("$")}
    assert made == {
        "$p1": "(CAST(price AS BIGINT) * CAST(qty AS BIGINT))",
        "$p2": "(CAST(price AS BIGINT) * 2)",
        "$p3": "((lower(sym) = 'x') AND (qty > 3))",
        "$p4": "upper(sym)",
    }
    assert {name: str(expr) for name, expr in match.search.made} == made
    conditions = {name: match.search.spelled(condition) for name, condition in match.search.conditions}
    # NULL means something to coalesce, and A may have no row: that is asked of the match
    assert conditions == {
        "A": "($p3 AND ($p1 > PREV($p1)))",
        "B": "((LAST(A.$p4) = sym) AND (coalesce(LAST(A.sym), 'none') = sym))",
    }


def test_decimals_reach_loops_as_what_they_are_compared_as(catalog: Catalog) -> None:
    perform("CREATE STREAM paid (price DECIMAL(9, 2), ts TIMESTAMP) ORDER BY ts", catalog)
    clauses = "MEASURES count(*) AS n PATTERN (A B) DEFINE B AS price < 0.98 * PREV(price)"
    search = search_of(f"SELECT * FROM paid MATCH_RECOGNIZE ({clauses})", catalog)
    assert search.spelled(search.conditions[0][1]) == "($p1 < PREV($p2))"
    assert [str(expr) for _, expr in search.made] == ["CAST(price AS DOUBLE)", "(0.98 * CAST(price AS DOUBLE))"]


def test_what_may_fail_is_asked_only_of_rows_that_are_tested(catalog: Catalog) -> None:
    clauses = "MEASURES price AS p PATTERN (A) DEFINE A AS CAST(sym AS INT) > 3 AND qty > 1"
    plan = plan_of(recognize(clauses), catalog)
    [match] = [node for node in P.walk(plan) if isinstance(node, M.Match)]
    assert [str(expr) for _, expr in match.search.made] == ["(qty > 1)"]
    assert match.search.spelled(match.search.conditions[0][1]) == "($p1 AND (CAST(sym AS INTEGER) > 3))"


def test_parts_of_one_navigation_are_reached_one_by_one(catalog: Catalog) -> None:
    clauses = """MEASURES LAST(sym || CLASSIFIER()) AS a, FIRST(coalesce(sym, CLASSIFIER())) AS b,
                          LAST(MATCH_NUMBER(), 2) AS c PATTERN (A B)"""
    project = plan_of(recognize(clauses), catalog).inputs[0]
    assert isinstance(project, P.Project)
    [match] = [node for node in P.walk(project) if isinstance(node, M.Match)]
    told = {name: match.search.spelled(expr) for name, expr in project.columns}
    # what is not NULL for NULLs has to ask whether there is a row
    assert told == {
        "a": "(sym || classifier())",
        "b": "CASE WHEN (FIRST($p1) IS NULL) THEN NULL ELSE coalesce(FIRST(sym), FIRST(classifier())) END",
        "c": "CASE WHEN (LAST($p1, 2) IS NULL) THEN NULL ELSE match_number() END",
    }


def test_ties_are_sorted_by_what_follows_the_time(catalog: Catalog) -> None:
    clauses = "PARTITION BY sym ORDER BY ts, sym, price DESC, qty NULLS FIRST MEASURES price AS p PATTERN (A)"
    [ties] = [node for node in P.walk(plan_of(recognize(clauses), catalog)) if isinstance(node, Ties)]
    assert ties.keys == ("sym",)
    assert ties.by == (SortKey("price", True), SortKey("qty", nulls_first=True))
    plain = plan_of(recognize("ORDER BY ts MEASURES price AS p PATTERN (A)"), catalog)
    assert not any(isinstance(node, Ties) for node in P.walk(plain))


@pytest.mark.parametrize(
    ("source", "within", "expected"),
    [
        ("t", "INTERVAL '5' MINUTE", 300_000_000),
        ("t", "10 SECONDS", 10_000_000),
        ("tick", "7", 7),
    ],
)
def test_within(source: str, within: str, expected: int, catalog: Catalog) -> None:
    text = (
        f"SELECT * FROM {source} MATCH_RECOGNIZE (MEASURES count(*) AS c PATTERN (A) WITHIN {within} DEFINE A AS TRUE)"
    )
    assert search_of(text, catalog).within == expected


FALLS = "DEFINE D AS price < PREV(price), U AS price > PREV(price)"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("MEASURES MATCH_ROWTIME() AS at PATTERN (A B)", {"at"}),
        ("MEASURES B.ts AS at, A.ts AS since PATTERN (A (B | B))", {"at"}),
        ("MEASURES B.ts AS b, C.ts AS c, ts AS at PATTERN (A (B | C){2})", {"at"}),
        (f"MEASURES ts AS at PATTERN (A D+ U) {FALLS}", {"at"}),
        (f"MEASURES ts AS at AFTER MATCH SKIP TO NEXT ROW PATTERN (A D+ U) {FALLS}", set()),
        ("MEASURES ts AS at PATTERN (A D+ U) DEFINE D AS price <= PREV(price), U AS price >= PREV(price)", set()),
        ("MEASURES ts AS at PATTERN (A B?)", set()),
        ("MEASURES ts AS at PATTERN (A B+)", set()),
        ("MEASURES ts AS at PATTERN (A B $)", set()),
        ("MEASURES ts AS at PATTERN (A | B B)", set()),
        ("MEASURES ts AS at, TIMED_OUT() AS late PATTERN (A B) WITHIN 5 MINUTES WITH TIMEOUTS DEFINE A AS TRUE", set()),
        ("MEASURES ts AS at PATTERN (A B) DEFINE B AS NEXT(price) > 3", set()),
        ("ALL ROWS PER MATCH PATTERN (A B)", set()),
    ],
)
def test_when_a_match_comes_as_its_last_row_does(query: str, expected: set[str], catalog: Catalog) -> None:
    assert Context(catalog, "").time_columns(plan_of(recognize(query), catalog)) == expected


def test_a_sequence_is_a_stream_like_any_other(catalog: Catalog) -> None:
    pairs = "SELECT X.sym, Y.ts, Y.price - X.price AS up FROM t PARTITION BY sym AS (X, Y) WHERE Y.price > X.price"
    perform(f"CREATE STREAM pairs AS {pairs}", catalog)
    for text in (
        "SELECT sum(up) OVER (RANGE 10 SECONDS PRECEDING) FROM pairs",
        "SELECT sym, count(*) FROM TUMBLE(pairs, ts, 1 MINUTE) GROUP BY sym, window_start, window_end",
        f"SELECT count(*) FROM ({pairs}) AS p [RANGE 1 MINUTE]",
        "SELECT LAST(U).up FROM pairs PARTITION BY sym AS (*U, D) WHERE U.up > 3 AND D.up <= 3",
        "SELECT * FROM pairs MATCH_RECOGNIZE (ORDER BY ts MEASURES A.up AS u PATTERN (A B) DEFINE B AS up > A.up)",
    ):
        assert plan_physical(optimized(plan_of(text, catalog)))


def test_conditions_on_keys_move_below_the_search(catalog: Catalog) -> None:
    recognized = recognize("PARTITION BY sym MEASURES price AS p PATTERN (A B)") + " WHERE sym = 'x' AND p > 3"
    sequence = "SELECT X.price FROM t PARTITION BY sym AS (X, *Y) WHERE sym = 'x' AND X.sym <> 'y' AND Y.price > 3"
    for text, above in ((recognized, 1), (sequence, 0)):
        plan = optimized(plan_of(text, catalog))
        [match] = [node for node in P.walk(plan) if isinstance(node, M.Match)]
        filters = [node for node in P.walk(plan) if isinstance(node, P.Filter)]
        inside = [node for node in P.walk(match) if isinstance(node, P.Filter)]
        assert (len(filters) - len(inside), len(inside)) == (above, 1)


def test_columns_that_nobody_reads_are_not_told(catalog: Catalog) -> None:
    clauses = """PARTITION BY sym MEASURES A.price AS p, LAST(qty + 1) AS q, count(*) AS n, avg(price) AS a
                 PATTERN (A B) DEFINE B AS avg(price) > 3"""
    plan = optimized(plan_of(f"SELECT p FROM t MATCH_RECOGNIZE ({clauses})", catalog))
    [match] = [node for node in P.walk(plan) if isinstance(node, M.Match)]
    assert [str(match.search.named[name]) for name in match.search.columns] == ["LAST(A.price)"]
    assert [summary.fn for summary in match.search.summaries] == ["avg"]
    assert match.search.made == ()
    assert set(match.input.schema.names) == {"sym", "price"}


# -- what is refused ---------------------------------------------------------------------------------------------------

MEASURED = "SELECT * FROM t MATCH_RECOGNIZE (MEASURES price AS p PATTERN (A B) DEFINE A AS {}) AS m"


@pytest.mark.parametrize(
    ("query", "culprit", "message"),
    [
        (MEASURED.format("X.price > 1"), "X.price", "no variable X in the pattern"),
        (MEASURED.format("t.price > 1"), "t.price", "t is not a variable of the pattern"),
        (MEASURED.format("count(B) > 1"), "B", "B is a variable of the pattern, not a column"),
        (MEASURED.format("FINAL LAST(price) > 1"), "FINAL LAST(price)", "FINAL is not allowed in DEFINE"),
        (MEASURED.format("PREV(FINAL FIRST(price)) > 1"), "FINAL FIRST(price)", "FINAL is not allowed in DEFINE"),
        (MEASURED.format("PREV(PREV(price)) > 1"), "PREV(price)", "PREV is not allowed inside PREV"),
        (MEASURED.format("FIRST(NEXT(price)) > 1"), "NEXT(price)", "NEXT is not allowed inside FIRST"),
        (MEASURED.format("LAST(FIRST(price)) > 1"), "FIRST(price)", "FIRST is not allowed inside LAST"),
        (MEASURED.format("PREV(1 + LAST(price)) > 1"), "LAST(price)", "LAST is not allowed inside PREV"),
        (MEASURED.format("sum(LAST(price)) > 1"), "LAST(price)", "LAST is not allowed inside sum"),
        (MEASURED.format("LAST(sum(price)) > 1"), "sum(price)", "an aggregate is not allowed inside LAST"),
        (MEASURED.format("sum(avg(price)) > 1"), "avg(price)", "an aggregate is not allowed inside sum"),
        (MEASURED.format("LAST(A.price + B.price) > 1"), "B.price", "LAST uses columns of A and of B"),
        (MEASURED.format("sum(A.price + price) > 1"), "price", "sum uses columns of A and of all rows"),
        (MEASURED.format("LAST(A.sym || CLASSIFIER(B)) = 'x'"), "CLASSIFIER(B)", "LAST uses columns of A and of B"),
        (MEASURED.format("sum(B.price) FILTER (WHERE A.qty > 1) > 3"), "B.price", "sum uses columns of A and of B"),
        (MEASURED.format("count(B.*) FILTER (WHERE A.qty > 1) > 3"), "B.*", "count uses columns of A and of B"),
        (MEASURED.format("FINAL (LAST(price) + 1) > 3"), "FINAL (LAST(price) + 1)",
         "FINAL is only allowed before FIRST"),
        (MEASURED.format("LAST(price, qty) > 1"), "qty", "LAST takes a constant number of rows"),
        (MEASURED.format("LAST(price, -1) > 1"), "-1", "LAST takes a constant number of rows"),
        (MEASURED.format("LAST(price, 1, 2) > 1"), "LAST(price, 1, 2)", "LAST takes one or two arguments, got 3"),
        (MEASURED.format("RUNNING lower(sym) = 'x'"), "RUNNING lower(sym)",
         "RUNNING is only allowed before FIRST, LAST and"),
        (MEASURED.format("CLASSIFIER(X) = 'A'"), "CLASSIFIER(X)", "no variable X in the pattern"),
        (MEASURED.format("CLASSIFIER(A.price) = 'A'"), "CLASSIFIER(A.price)", "CLASSIFIER takes the name"),
        (MEASURED.format("MATCH_NUMBER(1) = 1"), "MATCH_NUMBER(1)", "MATCH_NUMBER takes no argument"),
        (MEASURED.format("TIMED_OUT()"), "TIMED_OUT()", "TIMED_OUT is not allowed in DEFINE"),
        (MEASURED.format("MATCH_ROWTIME() > ts"), "MATCH_ROWTIME()", "MATCH_ROWTIME is not allowed in DEFINE"),
        (MEASURED.format("price"), "price", "a condition is needed here, not INTEGER"),
        (MEASURED.format("TRUE, a AS qty > 1"), "a", "a is defined twice"),
        (MEASURED.format("sum(A.*) > 1"), "A.*", "sum takes a value"),
        (MEASURED.format("each(price) > 1"), "each(price)", "each may return no row or several"),
        (MEASURED.format("sum(sym) > 1"), "sum(sym)", "sum does not apply to VARCHAR"),
        (MEASURED.format("last(price) FILTER (WHERE qty > 1) > 1"), "last(price)", "FILTER with LAST is not supported"),
        (
            recognize("MEASURES price AS p PATTERN (A B) SUBSET U = (A, B) DEFINE U AS TRUE"),
            "U", "U is not in the pattern",
        ),
        (recognize("MEASURES price AS p PATTERN (A B) DEFINE C AS TRUE"), "C", "C is not in the pattern"),
        (recognize("MEASURES price AS p PATTERN (A B) SUBSET a = (B)"), "a", "there is a variable a already"),
        (recognize("MEASURES price AS p PATTERN (A B) SUBSET U = (C)"), "C", "no variable C in the pattern"),
        (recognize("MEASURES price AS p AFTER MATCH SKIP TO C PATTERN (A B)"), "C", "no variable C in the pattern"),
        (recognize("MEASURES price AS x, qty AS X PATTERN (A B)"), "qty AS X", "two columns are named X"),
        (recognize("MEASURES LAST(t.price) AS x PATTERN (A B)"), "t.price", "t is not a variable of the pattern"),
        (recognize("MEASURES LAST(A).price AS x PATTERN (A B)"), "LAST(A).price", "a column must be inside LAST(…)"),
        (recognize("MEASURES count(*A) AS n PATTERN (A)"), "*A",
         "*A is only allowed with a sequence, FROM s AS (*A, …)"),
        (recognize("MEASURES MATCH_ROWTIME(qty) AS n PATTERN (A)"), "MATCH_ROWTIME(qty)",
         "MATCH_ROWTIME takes no argument"),
        (recognize("MEASURES MATCH_SEQUENCE_NUMBER() AS n PATTERN (A)"), "MATCH_SEQUENCE_NUMBER()",
         "MATCH_SEQUENCE_NUMBER is not allowed in a pattern"),
        (MEASURED.format("price > LAG(price)"), "LAG(price)", "LAG is not allowed in a pattern"),
        (MEASURED.format("price > A.previous.price"), "A.previous.price", ".previous is only allowed in sequences"),
        ("SELECT count(*A) FROM t", "*A", "*A refers to a run of rows, but FROM has no sequence"),
        ("SELECT sum(*A.price) OVER (ROWS 3 PRECEDING) FROM t", "*A.price", "*A.price refers to a run of rows"),
        ("SELECT sym, count(*A) FROM t [RANGE 5 MINUTES] GROUP BY sym", "*A", "*A refers to a run of rows"),
        ("SELECT count(*A) FROM stations", "*A", "*A refers to a run of rows"),
        ("SELECT n FROM (SELECT count(*Y) AS n FROM t) WHERE n > 1", "*Y", "*Y refers to a run of rows"),
        ("SELECT PREV(price) FROM t", "PREV(price)", "PREV is only allowed in MEASURES"),
        ("SELECT price FROM t WHERE CLASSIFIER() = 'A'", "CLASSIFIER()", "CLASSIFIER is only allowed in MEASURES"),
        (
            recognize("MEASURES price AS qty ALL ROWS PER MATCH PATTERN (A B)"),
            "price AS qty", "two columns are named qty",
        ),
        (recognize("ORDER BY price MEASURES price AS p PATTERN (A)"), "price", "a stream is ordered by its time"),
        (recognize("ORDER BY ts DESC MEASURES price AS p PATTERN (A)"), "ts", "a stream is ordered by its time"),
        (recognize("PARTITION BY max(price) PATTERN (A)"), "max(price)", "an aggregate is not allowed in PARTITION BY"),
        (recognize("PARTITION BY lower(sym) AS Price PATTERN (A)"), "lower(sym) AS Price",
         "there is a column Price already"),
        (recognize("ORDER BY abs(price), ts MEASURES price AS p PATTERN (A)"), "abs(price)",
         "a stream is ordered by its time"),
        ("SELECT upper(sym) FROM t PARTITION BY lower(sym) AS (X, Y)", "sym", "which row's sym?"),
        (
            recognize("ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (A {- B -})"),
            "A {- B -}", "WITH UNMATCHED ROWS and {- -} do not go together",
        ),
        (recognize("MEASURES TIMED_OUT() AS x PATTERN (A)"), "TIMED_OUT()", "TIMED_OUT() needs timeouts"),
        (recognize("MEASURES price AS p PATTERN (A) WITHIN 5 DEFINE A AS TRUE"), "5", "WITHIN needs a unit of time"),
        (recognize("PATTERN (A B)"), "t MATCH_RECOGNIZE (PATTERN (A B)) AS m", "the match has no output columns"),
        (
            recognize("MEASURES price AS p PATTERN (PERMUTE(a, b, c, d, e, f, g, h, i, j, k))"),
            "PERMUTE(a, b, c, d, e, f, g, h, i, j, k)", "PERMUTE of 11 parts",
        ),
        (recognize("MEASURES price AS p PATTERN ((a{900}){900})"), "(a{900}){900}", "this pattern is too long"),
        ("SELECT * FROM arrival MATCH_RECOGNIZE (MEASURES MATCH_ROWTIME() AS r PATTERN (A))", "MATCH_ROWTIME()",
         "these rows have no time column"),
        ("SELECT * FROM arrival MATCH_RECOGNIZE (MEASURES v AS r PATTERN (A) WITHIN 5 SECONDS DEFINE A AS TRUE)",
         "5 SECONDS", "WITHIN needs a stream with times"),
        ("SELECT * FROM stations MATCH_RECOGNIZE (MEASURES location AS l PATTERN (A))", "stations",
         "MATCH_RECOGNIZE needs a stream"),
        ("SELECT * FROM t [ROWS 5] MATCH_RECOGNIZE (MEASURES price AS p PATTERN (A))", "t [ROWS 5]",
         "MATCH_RECOGNIZE needs events, not a relation"),
        ("SELECT t.price FROM t MATCH_RECOGNIZE (MEASURES price AS price PATTERN (A)) AS m", "t.price",
         "no t in FROM"),
        ("SELECT price FROM t AS (X, *Y)", "price", "which row's price?"),
        ("SELECT X.pric FROM t AS (X, *Y)", "pric", "no column pric"),
        ("SELECT Q.price FROM t AS (X, *Y)", "Q.price", "no variable Q in the pattern"),
        ("SELECT LAST(Q).price FROM t AS (X, *Y)", "Q", "no variable Q in the pattern"),
        ("SELECT LAST('x').price FROM t AS (X, *Y)", "'x'", "a variable of the sequence is expected here"),
        ("SELECT lower(Y).price FROM t AS (X, *Y)", "lower(Y).price", "a column of FIRST(…) or LAST(…) is expected"),
        ("SELECT avg(*Y) FROM t AS (X, *Y)", "avg(*Y)", "which column's avg?"),
        ("SELECT count(*Q) FROM t AS (X, *Y)", "Q", "no variable Q in the pattern"),
        ("SELECT Y FROM t AS (X, *Y)", "Y", "Y is a variable of the sequence, not a column"),
        ("SELECT X.price FROM t AS (X, *Y) WHERE Y.price < Y.previos.price", "Y.previos.price", "Y has no previos"),
        ("SELECT * FROM t AS (X, *Y)", "*", "* of a sequence is not supported"),
        ("SELECT X.price FROM t AS (X, *x)", "X", "X appears twice in the sequence"),
        ("SELECT X.price FROM stations AS X, t AS (X, *Y)", "stations AS X", "X is a variable of the sequence"),
        ("SELECT X.price FROM t AS (X, *Y), speed", "speed",
         "only stored tables may be joined with a sequence in FROM"),
        ("SELECT X.price FROM t AS (X, *Y) GROUP BY X.price", "X.price",
         "GROUP BY is not allowed together with a sequence"),
        ("SELECT sum(X.price) OVER (RANGE 3 PRECEDING) FROM t AS (X)", "sum(X.price) OVER (RANGE 3 PRECEDING)",
         "a moving aggregate in a pattern reads a number of rows"),
        ("SELECT X.price FROM t SEQUENCE BY price AS (X, *Y)", "price", "a stream is ordered by its time"),
        ("SELECT X.location FROM stations AS (X, *Y)", "stations", "a sequence needs a stream"),
        ("SELECT z OVER w FROM t WINDOW w AS (MEASURES A.price AS y ROWS BETWEEN CURRENT ROW AND 3 FOLLOWING "
         "PATTERN (A))", "z OVER w", "no measure z in this window"),
        ("SELECT y OVER w FROM t WINDOW w AS (MEASURES A.price AS y ROWS BETWEEN 1 PRECEDING AND 3 FOLLOWING "
         "PATTERN (A))", "ROWS BETWEEN 1 PRECEDING AND 3 FOLLOWING",
         "a pattern needs a frame that begins at the current row"),
        ("SELECT y OVER w FROM t WINDOW w AS (ROWS 3 PRECEDING)", "y OVER w", "OVER needs an aggregate before it"),
    ],
)  # fmt: skip
def test_refused(query: str, culprit: str, message: str, catalog: Catalog) -> None:
    with pytest.raises((BindError, UnsupportedError)) as caught:
        perform(query, catalog)
    assert caught.value.message.startswith(message)
    assert caught.value.span is not None
    assert query[caught.value.span.start : caught.value.span.end] == culprit


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("SELECT avg(*Y) FROM t PARTITION BY sym AS (X, *Y)", "avg(*Y.price)"),
        ("SELECT X.price FROM t SEQUENCE BY price AS (X, *Y)", "SEQUENCE BY ts"),
        ("SELECT X.price FROM t AS (X, *Y) WHERE Y.price < Y.previos.price", "Y.previous.price is of the row before"),
        (recognize("MEASURES LAST(A).price AS x PATTERN (A B)"), "LAST(A.price)"),
        (recognize("MEASURES LAST(t.price) AS x PATTERN (A B)"), "write price for any row, or A.price"),
        (recognize("MEASURES count(*A) AS n PATTERN (A)"), "write A.* here"),
        (recognize("MEASURES sum(*A.price) AS n PATTERN (A)"), "write A.price here"),
        (MEASURED.format("price > A.previous.price"), "write PREV(A.price)"),
        (MEASURED.format("MATCH_NUMBER > 1"), "it is a function: MATCH_NUMBER()"),
        (recognize("MEASURES A.* AS x PATTERN (A)"), "name a column, or write count(…)"),
        ("SELECT t.sym FROM t MATCH_RECOGNIZE (PARTITION BY sym PATTERN (A))",
         "the entry in FROM has no name: add AS …"),
        ("SELECT t.sym FROM t MATCH_RECOGNIZE (PARTITION BY sym PATTERN (A)) AS m", "available: m"),
    ],
)  # fmt: skip
def test_hint(query: str, hint: str, catalog: Catalog) -> None:
    with pytest.raises((BindError, UnsupportedError)) as caught:
        perform(query, catalog)
    assert caught.value.hint == hint


def test_columns_that_are_called_like_those_of_the_search(catalog: Catalog) -> None:
    perform('CREATE STREAM odd ("$r1" INT, "$p1" INT, "$w1r1" INT, n INT) ORDER BY n', catalog)
    recognized = """SELECT * FROM odd MATCH_RECOGNIZE (
        MEASURES LAST("$p1" * 2) AS "$s1", FIRST("$r1") AS f, sum("$p1" + n) AS s ALL ROWS PER MATCH
        PATTERN (A B+) DEFINE B AS "$p1" + 1 > 0 AND "$r1" > PREV("$r1"))"""
    assert plan_of(recognized, catalog).schema.names == ("$s1", "f", "s", "$r1", "$p1", "$w1r1", "n")
    sequence = 'SELECT X."$r1", sum(*Y."$p1") FROM odd AS (X, *Y) WHERE Y."$p1" + 1 > X."$p1"'
    assert len(plan_of(sequence, catalog).schema) == 2
    window = """SELECT m OVER w FROM odd WINDOW w AS (ORDER BY n MEASURES LAST("$w1r1" + 1) AS m
        ROWS BETWEEN CURRENT ROW AND 3 FOLLOWING PATTERN (A B))"""
    assert len(plan_of(window, catalog).schema) == 1


def test_the_time_of_a_match_may_name_the_time_column(catalog: Catalog) -> None:
    named = recognize("MEASURES MATCH_ROWTIME(ts) AS at PATTERN (A)")
    assert plan_of(named, catalog) == plan_of(named.replace("(ts)", "()"), catalog)
