"""ISTREAM, DSTREAM and RSTREAM, views, and what is said about mistakes in them."""

import pytest
from sql_texts import check_mistake, one
from sqlglot import exp

from millstream.sql.nodes import Explain, Show
from millstream.sql.relations import CreateView, Windowed


def stream_of(node: exp.Expr) -> str | None:
    found = node.args.get("stream_of")
    return None if found is None else str(found)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("SELECT ISTREAM(a, b) FROM s", "SELECT a, b FROM s"),
        ("SELECT istream a, b FROM s", "SELECT a, b FROM s"),
        ("ISTREAM(SELECT a, b FROM s)", "SELECT a, b FROM s"),
        ("ISTREAM ( ( SELECT a, b FROM s ) )", "SELECT a, b FROM s"),
        ("(SELECT ISTREAM(a, b) FROM s)", "(SELECT a, b FROM s)"),
        ("SELECT ISTREAM(*) FROM s", "SELECT * FROM s"),
        ("SELECT ISTREAM * FROM s", "SELECT * FROM s"),
        ("SELECT ISTREAM(DISTINCT x) FROM s", "SELECT DISTINCT x FROM s"),
        ("SELECT ISTREAM DISTINCT x FROM s", "SELECT DISTINCT x FROM s"),
        ("SELECT DISTINCT ISTREAM(x) FROM s", "SELECT DISTINCT x FROM s"),
        ("SELECT DISTINCT ISTREAM((x, y)) FROM s", "SELECT DISTINCT x, y FROM s"),
        ("SELECT ISTREAM(a + 1 AS x, max(b)) FROM s GROUP BY a", "SELECT a + 1 AS x, max(b) FROM s GROUP BY a"),
        ("SELECT ISTREAM (a + b) * 2 AS x, c FROM s", "SELECT (a + b) * 2 AS x, c FROM s"),
        ("SELECT ISTREAM NOT a, left(b, 2) FROM s", "SELECT NOT a, left(b, 2) FROM s"),
        ("SELECT ISTREAM(istream) FROM s", "SELECT istream FROM s"),
        ("SELECT ISTREAM(1)", "SELECT 1"),
        ("ISTREAM(SELECT a EXCEPT ALL SELECT b FROM t LIMIT 1)", "SELECT a EXCEPT ALL SELECT b FROM t LIMIT 1"),
        ("ISTREAM(s [ROWS 5])", "SELECT * FROM s [ROWS 5]"),
        ("WITH c AS (SELECT 1) SELECT ISTREAM(a) FROM c", "WITH c AS (SELECT 1) SELECT a FROM c"),
        ("WITH c AS (SELECT 1) ISTREAM(SELECT a FROM c)", "WITH c AS (SELECT 1) SELECT a FROM c"),
        ("ISTREAM(WITH c AS (SELECT 1) SELECT a FROM c)", "WITH c AS (SELECT 1) SELECT a FROM c"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["ISTREAM", "DSTREAM", "RSTREAM"])
def test_streams_of_queries(text: str, same: str, kind: str) -> None:
    text, same = (part.replace("ISTREAM", kind).replace("istream", kind.lower()) for part in (text, same))
    node = one(text)
    query = node.this if isinstance(node, exp.Subquery) else node
    assert stream_of(query) == kind and query != one(same)
    query.set("stream_of", None)
    assert node == one(same)


def test_streams_in_from() -> None:
    person = one("SELECT P.id FROM Istream(Person) P").args["from_"].this
    assert isinstance(person, exp.Subquery) and person.alias == "P" and stream_of(person.this) == "ISTREAM"
    assert person == one("SELECT P.id FROM (SELECT ISTREAM(*) FROM Person) AS P").args["from_"].this
    query = one("SELECT * FROM DSTREAM(SELECT a FROM s UNION SELECT b FROM t) x").args["from_"].this
    assert isinstance(query.this, exp.Union) and stream_of(query.this) == "DSTREAM" and query.alias == "x"
    assert query == one("SELECT * FROM (DSTREAM(SELECT a FROM s UNION SELECT b FROM t)) x").args["from_"].this
    windowed = one("SELECT * FROM Rstream(r) WINDOW(RANGE 12 HOURS) P").args["from_"].this
    assert isinstance(windowed, Windowed) and windowed.alias == "P" and stream_of(windowed.this.this) == "RSTREAM"
    assert (
        len(one("SELECT * FROM s JOIN ISTREAM(r) x ON TRUE, (ISTREAM(q) y JOIN DSTREAM(q) ON TRUE)").args["joins"]) == 2
    )


def test_streams_in_set_operations_keep_their_clauses() -> None:
    union = one("ISTREAM(SELECT a FROM s LIMIT 1) UNION ALL DSTREAM(SELECT a FROM s EXCEPT SELECT b FROM t LIMIT 2)")
    assert isinstance(union, exp.Union) and union.args.get("limit") is None
    assert [stream_of(side.this) for side in (union.this, union.expression)] == ["ISTREAM", "DSTREAM"]
    chain = one("ISTREAM(SELECT a UNION SELECT b) EXCEPT SELECT c INTERSECT RSTREAM(SELECT d) ORDER BY 1")
    assert [stream_of(node) for node in chain.find_all(exp.SetOperation)].count("ISTREAM") == 1
    assert chain.args.get("order") is not None


def test_streams_inside_other_statements() -> None:
    assert stream_of(one("CREATE STREAM n AS ISTREAM(SELECT a FROM s [ROWS 5])").args["query"]) == "ISTREAM"
    explain = one("EXPLAIN VERBOSE RSTREAM(SELECT a FROM s [NOW])")
    assert isinstance(explain, Explain) and stream_of(explain.this) == "RSTREAM"
    assert stream_of(one("INSERT INTO t ISTREAM(SELECT a FROM s)").expression) == "ISTREAM"
    [common] = one("WITH c AS (ISTREAM(SELECT a FROM s)) SELECT * FROM c").find_all(exp.CTE)
    assert stream_of(common.this) == "ISTREAM"


def test_views() -> None:
    view = one("CREATE OR REPLACE VIEW IF NOT EXISTS v (a, b) AS SELECT x, y FROM s [ROWS 5]")
    assert isinstance(view, CreateView) and view.name == "v"
    assert [column.name for column in view.columns] == ["a", "b"]
    assert view.query.find(Windowed) and view.args["or_replace"] and view.args["if_not_exists"]
    plain = one("create view v as select 1")
    assert isinstance(plain, CreateView) and plain.columns == [] and not plain.args.get("or_replace")
    assert isinstance(one("EXPLAIN CREATE VIEW v AS SELECT 1").this, CreateView)
    drop = one("DROP VIEW IF EXISTS v")
    assert isinstance(drop, exp.Drop) and drop.kind == "VIEW" and drop.args["exists"]
    show = one("SHOW VIEWS")
    assert isinstance(show, Show) and show.kind == "VIEWS"


# (text with the culprit between ⟨ and ⟩, message, hint where one matters)
MISTAKES = [
    ("SELECT ISTREAM(⟨)⟩ FROM s", "expected an expression after ISTREAM, found ')'", None),
    (
        "SELECT a, ⟨ISTREAM⟩(b) FROM s",
        "ISTREAM turns a whole query into a stream",
        "write SELECT ISTREAM(a, b) FROM …",
    ),
    ("SELECT a FROM s WHERE ⟨dstream⟩(a) > 1", "DSTREAM turns a whole query into a stream", None),
    ("⟨ISTREAM⟩(SELECT DSTREAM(a) FROM s)", "the query in parentheses is already a stream", "leave out ISTREAM"),
    ("ISTREAM(⟨VALUES⟩ (1))", "expected a query, found rows of values", None),
    ("ISTREAM(SELECT a FROM s) ⟨WHERE⟩ a > 1", "unexpected 'WHERE'", None),
    ("SELECT * FROM ISTREAM(⟨)⟩", "expected the name of a stream or table, found ')'", None),
    ("⟨ISTREM⟩(SELECT a FROM s)", "expected a statement, found 'ISTREM'", "did you mean ISTREAM?"),
    ("CREATE VIEW v⟨⟩", "expected AS, found the end of the statement", None),
    ("CREATE VIEW v (⟨)⟩ AS SELECT 1", "expected the name of a column, found ')'", None),
    ("CREATE VIEW v (a ⟨int⟩) AS SELECT 1", "expected ')', found 'int'", None),
]


@pytest.mark.parametrize(("marked", "message", "hint"), MISTAKES, ids=[case[0] for case in MISTAKES])
def test_mistakes(marked: str, message: str, hint: str | None) -> None:
    check_mistake(marked, message, hint)
