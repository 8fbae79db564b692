"""Queries on relations: the papers' as printed, random ones, and names that are words of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sql_texts import one
from sqlglot import exp

from millstream.errors import ParseError
from millstream.sql import parse, span_of, to_sql
from millstream.sql.relations import Windowed
from tiers import examples

PAPER = {
    "Q1": "SELECT itemID, DolToEuro(bid_price), bidderID\nFROM Bid;",
    "Q2": """
        SELECT Bid.*
        FROM Bid
        WHERE itemID = 1007 OR itemID = 1020
              OR itemID = 2001 OR itemID = 2019
              OR itemID = 1087;""",
    "Q3": """
        SELECT OpenAuction.*
        FROM OpenAuction O WINDOW(RANGE 5 HOURS),
              ClosedAuction C
        WHERE O.itemID = C.itemID;""",
    "Q5": """
        CREATE STREAM CurrentPrice AS
            SELECT P.itemID, P.price, O.sellerID AS sellerID
            FROM ((SELECT itemID, bid_price AS price
                    FROM Bid WINDOW(RANGE 2 DAYS))
                  UNION ALL
                (SELECT itemID, start_price AS price
                    FROM OpenAuction WINDOW(RANGE 2 DAYS))) P,
                      ClosedAuction C,
                      OpenAuction O WINDOW(RANGE 2 DAYS)
            WHERE P.itemID = C.itemID AND C.itemID = O.itemID;

        CREATE STREAM ClosingPriceStream AS
            SELECT itemID, sellerID, MAX(P.price) AS price
            FROM CurrentPrice P
            GROUP BY P.itemID, P.sellerID;""",
    "Q4": """
        SELECT itemID, bid_price
        FROM   Bid WINDOW(RANGE 10 MINUTES)
        WHERE  bid_price = (SELECT MAX(bid_price)
                            FROM BID WINDOW(RANGE 10 MINUTES));""",
    "Q6": """
        SELECT itemID
        FROM  (SELECT    B1.itemID AS itemID, COUNT(*) AS num
               FROM      Bid [RANGE 60 MINUTES] B1
               GROUP BY B1.itemID)
        WHERE num >= ALL(SELECT COUNT(*)
                          FROM Bid [RANGE 60 MINUTES] B2
                          GROUP BY B2.itemID);""",
    "average selling price": """
        SELECT sellerID, AVG(price)
        FROM ClosingPriceStream WINDOW(PARTITION BY sellerID ROWS 10)
        GROUP BY sellerID;""",
    "highest bid, tumbling": """
        SELECT itemID, bid_price
          FROM Bid WINDOW(RANGE 10 MINUTES
                          SLIDE 10 MINUTES)
         WHERE bid_price = (SELECT MAX(bid_price)
                              FROM Bid WINDOW(RANGE 10 MINUTES
                                              SLIDE 10 MINUTES));""",
    "monitor new users": """
        CREATE STREAM NewPersonStream AS
            SELECT P.id, P.name
            FROM   Istream(Person) P;

        SELECT DISTINCT(P.id, P.name)
        FROM   SELECT P.id, P.name
               FROM   NewPersonStream WINDOW(RANGE 12 HOURS) P, OpenAuction O
               WHERE  P.id = O.sellerID;""",
    "granularity": "SELECT AVG(temperature)\n  FROM sensor WINDOW(RANGE 1 HOUR) GRANULARITY(1 MINUTE);",
    "ranges": """
        SELECT AVG(temperature)
          FROM sensor WINDOW(RANGE MIN 12 HOURS, MAX 24 HOURS)
                GRANULARITY(COARSEST 2 HOURS, FINEST 10 SECONDS);""",
    "rows": "SELECT a FROM s WINDOW(ROWS MIN 50, MAX 200), t WINDOW(ROWS 7 SLIDE 2)",
    "trailing commas": """
        SELECT itemID, bid_price
        FROM   Bid WINDOW(RANGE 10 MINUTES),
        WHERE  bid_price = (SELECT MAX(bid_price) FROM BID [RANGE 10 MINUTES], GROUP BY itemID);""",
}


@pytest.mark.parametrize("text", PAPER.values(), ids=PAPER.keys())
def test_the_papers_queries_round_trip(text: str) -> None:
    for statement in parse(text):
        [again] = parse(to_sql(statement.ast))
        assert again.ast == statement.ast
        assert to_sql(again.ast) == to_sql(statement.ast)


def test_distinct_of_several_columns() -> None:
    assert one("SELECT DISTINCT(P.id, P.name) FROM P") == one("SELECT DISTINCT P.id, P.name FROM P")
    assert one("SELECT DISTINCT (a) FROM s") == one("SELECT DISTINCT (a) FROM s")
    assert isinstance(one("SELECT (a, b) FROM s").expressions[0], exp.Tuple)
    assert isinstance(one("SELECT DISTINCT (a, b), c FROM s").expressions[0], exp.Tuple)


def test_a_query_in_from_without_parentheses() -> None:
    assert one("SELECT a FROM SELECT b FROM s, t WHERE x UNION SELECT c FROM u") == one(
        "SELECT a FROM (SELECT b FROM s, t WHERE x UNION SELECT c FROM u)"
    )


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x = (SELECT max(y) FROM t [NOW])", exp.Subquery),
        ("x >= ALL(SELECT y FROM t [NOW])", exp.All),
        ("x < ANY (SELECT y FROM t [NOW])", exp.Any),
        ("x <> SOME (SELECT y FROM t [NOW])", exp.Any),
        ("EXISTS (SELECT y FROM t [NOW])", exp.Exists),
        ("NOT EXISTS (SELECT y FROM t [NOW])", exp.Not),
        ("x IN (SELECT y FROM t [NOW])", exp.In),
        ("x NOT IN (SELECT y FROM t [NOW])", exp.Not),
    ],
)
def test_conditions_with_queries(text: str, kind: type[exp.Expr]) -> None:
    where = one(f"SELECT a FROM s [NOW] WHERE {text}").args["where"]
    assert where.find(kind) is not None and where.find(Windowed) is not None


@pytest.mark.parametrize(
    "word",
    ["now", "window", "view", "range", "rows", "istream", "dstream", "rstream", "granularity", "coarsest", "finest",
     "semi", "anti", "min", "slide", "unbounded"],
)  # fmt: skip
def test_words_stay_names(word: str) -> None:
    for text in (
        f"SELECT {word} FROM s",
        f"SELECT {word}, b FROM s",
        f"SELECT {word} AS x, {word} + 1, {word} * 2, s.{word}, {word} IS NULL, {word} NOT IN (1) FROM s",
        f"SELECT {word} * 2 FROM s",
        f"SELECT {word} NOT BETWEEN 1 AND 2 FROM s",
        f"SELECT {word} AT TIME ZONE 'UTC' FROM s",
        f"SELECT {word}::int FROM s",
        f"SELECT DISTINCT {word}, b FROM s",
        f"SELECT {word}.a FROM {word}",
        f"SELECT a AS {word} FROM s AS {word}",
        f"SELECT a FROM {word} JOIN t ON TRUE",
        f"SELECT a FROM s, {word} JOIN t AS {word} ON TRUE JOIN u ON TRUE",
        f"SELECT a FROM {word} WINDOW(RANGE 5), {word} AS {word} [ROWS 5]",
        f"SELECT a FROM s [PARTITION BY {word} ROWS 5] AS {word}",
        f"SELECT max({word}) FROM s WHERE {word} > 1 GROUP BY {word} ORDER BY {word}",
        f"WITH {word} (a) AS (SELECT 1) SELECT a FROM {word}",
        f"CREATE VIEW {word} ({word}) AS SELECT {word} FROM s",
    ):
        node = one(text)
        assert not any(part.args.get("stream_of") for part in node.walk()), text
        assert any(name.name == word for name in node.find_all(exp.Identifier)), text


names = st.sampled_from(["a", "b", "s", "istream", "now", "window", "range", '"two words"', "semi", "view", "rows"])
sizes = st.sampled_from(["1", "50", "10 SECONDS", "2 days", "INTERVAL '5' MINUTE", "0.5 HOURS"])
operators = st.sampled_from(["ISTREAM", "Dstream", "rstream"])
columns = st.lists(names, min_size=1, max_size=2).map(", ".join)


def maybe(strategy: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.just("") | strategy


extents = sizes | st.just("UNBOUNDED") | st.builds("MIN {}, MAX {}".format, sizes, sizes)
frames = st.builds(
    "{} {} {} {}".format,
    maybe(columns.map("PARTITION BY {}".format)),
    st.sampled_from(["ROWS", "range"]),
    extents,
    maybe(sizes.map("SLIDE {}".format)),
)
windows = (st.just("Now") | frames).flatmap(lambda body: st.sampled_from([f"WINDOW({body})", f"[{body}]"]))
granularities = sizes.map("GRANULARITY({})".format)


@st.composite
def items(draw: st.DrawFn, depth: int) -> str:
    shape = draw(st.sampled_from(["{}", "{}", "Istream({})", *(["({})", "RSTREAM(({}))"] if depth else [])]))
    inner = draw(queries(depth - 1) if "(" in shape and depth else names)
    parts = [shape.format(inner), draw(maybe(windows)), draw(maybe(granularities))]
    parts.insert(draw(st.sampled_from([1, 3])), draw(maybe(names.map("AS {}".format))))
    return " ".join(filter(None, parts))


@st.composite
def queries(draw: st.DrawFn, depth: int = 2) -> str:
    shape = draw(st.sampled_from(["select", "select", "select", "set", "stream"])) if depth else "select"
    if shape == "set":
        operation = draw(st.sampled_from(["UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"]))
        return f"{draw(queries(depth - 1))} {operation} {draw(queries(depth - 1))}"
    if shape == "stream":
        return f"{draw(operators)}(SELECT {draw(columns)} FROM {draw(items(depth - 1))})"
    shapes = ["{}", "DISTINCT {}", f"{draw(operators)}({{}})", "DISTINCT ({})"]
    wanted = draw(st.sampled_from(shapes)).format(draw(columns))
    join = draw(st.sampled_from(["", ", {}", " JOIN {} ON TRUE", " SEMI JOIN {} USING (k)", " CROSS JOIN {}"]))
    join = join.format(draw(items(0))) if join else ""
    where = draw(st.sampled_from(["", " WHERE x >= ALL (SELECT y FROM t [NOW])", " GROUP BY a"]))
    return f"SELECT {wanted} FROM {draw(items(depth))}{join}{where}"


@settings(max_examples=examples(200), deadline=None)
@given(queries())
def test_random_queries_round_trip(text: str) -> None:
    try:
        root = one(text)
    except ParseError as error:
        # The one thing that these texts do wrong.
        assert error.message == "the query in parentheses is already a stream"
        return
    for node in root.walk():
        span = span_of(node)
        assert span is None or 0 <= span.start < span.end <= len(text)
    for found in root.find_all(Windowed):
        assert span_of(found) is not None and span_of(found.window or found) is not None
