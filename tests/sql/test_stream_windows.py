"""Windows in FROM, the joins of what they make, and what is said about mistakes in them."""

import pytest
from sql_texts import check_mistake, one
from sqlglot import exp

from millstream.sql import duration_us, parse, span_of
from millstream.sql.relations import Granularity, StreamWindow, Windowed


def item(text: str) -> Windowed:
    """The first item of FROM."""
    node = one(f"SELECT * FROM {text}").args["from_"].this
    assert isinstance(node, Windowed)
    return node


def window(text: str) -> StreamWindow:
    node = item(f"s {text}").window
    assert node is not None
    return node


def seconds(node: exp.Expr | None) -> float | None:
    span = duration_us(node) if node is not None else None
    return None if span is None else span / 1_000_000


def test_windows_of_time() -> None:
    plain = window("WINDOW(RANGE 5 HOURS)")
    assert (plain.kind, seconds(plain.size), plain.slide, plain.now, plain.partition) == (
        "RANGE",
        18_000,
        None,
        False,
        [],
    )
    sliding = window("WINDOW(RANGE 5 HOURS SLIDE 1 HOUR)")
    assert (seconds(sliding.size), seconds(sliding.slide)) == (18_000, 3_600)
    unbounded = window("WINDOW(RANGE UNBOUNDED)")
    assert (unbounded.kind, unbounded.size, unbounded.now) == ("RANGE", None, False)
    now = window("WINDOW(NOW)")
    assert (now.kind, now.size, now.now) == ("RANGE", None, True)
    assert now != unbounded
    assert window("WINDOW(RANGE 50 SLIDE 10)").size == exp.Literal.number(50)


def test_windows_of_rows() -> None:
    rows = window("WINDOW(PARTITION BY a, s.b ROWS 10 SLIDE 5)")
    assert rows.kind == "ROWS" and rows.size == exp.Literal.number(10) and rows.slide == exp.Literal.number(5)
    assert rows.partition == [exp.column("a"), exp.column("b", table="s")]
    assert (window("[ROWS UNBOUNDED]").kind, window("[ROWS UNBOUNDED]").size) == ("ROWS", None)
    # Whether it means anything is for the binder to say.
    assert window("WINDOW(PARTITION BY k RANGE 5)").partition == [exp.column("k")]


def test_ranges_of_quality() -> None:
    node = item("s WINDOW(RANGE MIN 12 HOURS, MAX 24 HOURS) GRANULARITY(COARSEST 2 HOURS, FINEST 10 SECONDS)")
    assert node.window is not None and node.granularity is not None
    assert (node.window.size, seconds(node.window.least), seconds(node.window.most)) == (None, 43_200, 86_400)
    assert (node.granularity.size, seconds(node.granularity.coarsest)) == (None, 7_200)
    assert seconds(node.granularity.finest) == 10
    rows = window("WINDOW(ROWS MIN 50, MAX 200 SLIDE 3)")
    assert (rows.least, rows.most, rows.slide) == tuple(map(exp.Literal.number, (50, 200, 3)))


@pytest.mark.parametrize(
    ("bracket", "form"),
    [
        ("[RANGE 10 MINUTES]", "WINDOW(RANGE 10 MINUTES)"),
        ("[Range Unbounded]", "WINDOW(RANGE UNBOUNDED)"),
        ("[Unbounded]", "WINDOW(RANGE UNBOUNDED)"),
        ("[Now]", "WINDOW(NOW)"),
        ("[ROWS 5]", "WINDOW(ROWS 5)"),
        ("[partition by k rows 1]", "WINDOW(PARTITION BY k ROWS 1)"),
        ("[RANGE 30 SECONDS SLIDE 10 SECONDS]", "window (range interval '30' second slide interval '10 seconds')"),
        ("[RANGE 30]", "WINDOW ( RANGE 30 )"),
        ("[RANGE MIN 1, MAX 2]", "WINDOW(RANGE MIN 1, MAX 2)"),
    ],
)
def test_brackets_mean_the_same(bracket: str, form: str) -> None:
    assert window(bracket) == window(form)


@pytest.mark.parametrize(
    "text",
    [
        "s x WINDOW(ROWS 5) GRANULARITY(1 MINUTE)",
        "s AS x [ROWS 5] granularity (1 minute)",
        "s WINDOW(ROWS 5) GRANULARITY(1 MINUTE) x",
        "s [ROWS 5] GRANULARITY(INTERVAL '1' MINUTE) AS x",
    ],
)
def test_the_alias_stands_before_or_after(text: str) -> None:
    node = item(text)
    assert (node.alias, node.name, node.this) == ("x", "s", exp.to_table("s"))
    assert node.granularity is not None and seconds(node.granularity.size) == 60


def test_aliases_with_columns_and_none() -> None:
    assert [column.name for column in item("s [ROWS 5] AS x (a, b)").args["alias"].columns] == ["a", "b"]
    assert item("s x (a, b) [ROWS 5]") == item("s [ROWS 5] AS x (a, b)")
    assert (item("s [ROWS 5]").alias, item("s [ROWS 5]").alias_or_name) == ("", "s")
    alone = item("s GRANULARITY(60)")
    assert alone.window is None and alone.granularity == Granularity(size=exp.Literal.number(60))


def test_subqueries_and_functions_have_windows_too() -> None:
    node = item("(SELECT a FROM s) x WINDOW(ROWS 5)")
    assert isinstance(node.this, exp.Subquery) and node.this.alias == "" and node.alias == "x"
    assert isinstance(item("((SELECT a FROM s) UNION ALL (SELECT a FROM t)) [NOW] x").this.this, exp.Union)
    assert item("LATE(s) [NOW] x").alias == "x"
    assert item("f(1, 'a') [NOW]").this.find(exp.Anonymous)


def test_items_without_windows_stay_tables() -> None:
    source = one("SELECT * FROM s x").args["from_"].this
    assert isinstance(source, exp.Table) and source.alias == "x"
    assert isinstance(one("SELECT * FROM (SELECT 1) x").args["from_"].this, exp.Subquery)


def test_a_window_clause_is_another_thing() -> None:
    query = one("SELECT sum(x) OVER w FROM s WINDOW(ROWS 5) y WINDOW w AS (ROWS 3 PRECEDING)")
    assert isinstance(query.args["from_"].this, Windowed) and query.args["windows"][0].name == "w"
    plain = one("SELECT sum(x) OVER w FROM s WINDOW w AS (ROWS 3 PRECEDING)")
    assert isinstance(plain.args["from_"].this, exp.Table) and len(plain.args["windows"]) == 1


@pytest.mark.parametrize(
    ("words", "side", "kind"),
    [
        ("JOIN", "", ""),
        ("INNER JOIN", "", "INNER"),
        ("LEFT JOIN", "LEFT", ""),
        ("RIGHT OUTER JOIN", "RIGHT", "OUTER"),
        ("FULL OUTER JOIN", "FULL", "OUTER"),
        ("SEMI JOIN", "", "SEMI"),
        ("left semi join", "", "SEMI"),
        ("ANTI JOIN", "", "ANTI"),
        ("LEFT ANTI JOIN", "", "ANTI"),
    ],
)
@pytest.mark.parametrize("condition", ["ON x.a = y.a", "USING (a)"])
def test_joins_of_windows(words: str, side: str, kind: str, condition: str) -> None:
    query = one(f"SELECT * FROM s x WINDOW(RANGE 5 HOURS) {words} t [NOW] y {condition} WHERE a > 1")
    [join] = query.args["joins"]
    assert (join.side, join.kind, join.this.alias) == (side, kind, "y")
    assert isinstance(join.this, Windowed) and query.args["from_"].this.alias == "x"
    # The words are no alias of the left side, either.
    [bare] = one(f"SELECT * FROM s {words} t {condition}").args["joins"]
    assert (bare.side, bare.kind, bare.this) == (side, kind, exp.to_table("t"))


def test_cross_joins_commas_and_parentheses() -> None:
    query = one("SELECT * FROM (s [NOW] x CROSS JOIN t [ROWS 5]) q, u WINDOW(ROWS 5)")
    inner = query.args["from_"].this
    assert isinstance(inner, exp.Subquery) and isinstance(inner.this, Windowed)
    assert inner.this.args["joins"][0].kind == "CROSS" and isinstance(query.args["joins"][0].this, Windowed)
    nested = one("SELECT * FROM s [NOW] JOIN t [NOW] JOIN u [NOW] ON 1 = 1 ON 2 = 2")
    assert len(nested.args["joins"]) == 1 and len(nested.args["joins"][0].this.args["joins"]) == 1


def test_granularity_as_an_alias() -> None:
    source = one("SELECT a FROM s granularity (a, b)").args["from_"].this
    assert isinstance(source, exp.Table) and source.alias == "granularity" and len(source.args["alias"].columns) == 2
    assert item("s granularity [ROWS 5]").alias == "granularity"


def test_places() -> None:
    text = (
        "SELECT ISTREAM(a) FROM OpenAuction O WINDOW(PARTITION BY k ROWS 5 SLIDE 2) GRANULARITY(1 MINUTE), "
        "(SELECT b FROM t) [RANGE 9 DAYS] x, DSTREAM(r) y"
    )
    root = parse(text)[0].ast

    def written(kind: type[exp.Expr]) -> list[str]:
        spans = [span_of(node) for node in root.find_all(kind, bfs=False)]
        return [text[span.start : span.end] for span in spans if span is not None]

    assert written(Windowed) == [
        "OpenAuction O WINDOW(PARTITION BY k ROWS 5 SLIDE 2) GRANULARITY(1 MINUTE)",
        "(SELECT b FROM t) [RANGE 9 DAYS] x",
    ]
    assert written(StreamWindow) == ["WINDOW(PARTITION BY k ROWS 5 SLIDE 2)", "[RANGE 9 DAYS]"]
    assert written(Granularity) == ["GRANULARITY(1 MINUTE)"]
    assert written(exp.Table) == ["OpenAuction", "t", "r"]
    assert written(exp.Subquery) == ["(SELECT b FROM t)", "DSTREAM(r) y"]
    assert written(exp.Select) == [text, "SELECT b FROM t", "DSTREAM(r)"]
    assert written(exp.Interval) == ["1 MINUTE", "9 DAYS"]


_SPAN = "a number or a time span such as 5 MINUTES"
_PRECEDING = "a window in FROM always holds the latest rows: write it without PRECEDING"
# (text with the culprit between ⟨ and ⟩, message, hint where one matters)
MISTAKES = [
    ("SELECT * FROM s WINDOW(RANGE⟨)⟩", f"expected {_SPAN} or UNBOUNDED, found ')'", None),
    ("SELECT * FROM s [ROWS⟨]⟩", "expected a number of rows or UNBOUNDED, found ']'", None),
    ("SELECT * FROM s [ROWS ⟨x⟩]", "expected a number of rows or UNBOUNDED, found 'x'", None),
    ("SELECT * FROM s WINDOW(⟨)⟩", "expected PARTITION BY, ROWS, RANGE, UNBOUNDED or NOW, found ')'", None),
    (
        "SELECT * FROM s [⟨RANG⟩ 5]",
        "expected PARTITION BY, ROWS, RANGE, UNBOUNDED or NOW, found 'RANG'",
        "did you mean RANGE?",
    ),
    ("SELECT * FROM s WINDOW(⟨10⟩ MINUTES)", "expected PARTITION BY, ROWS, RANGE, UNBOUNDED or NOW, found '10'", None),
    ("SELECT * FROM s [PARTITION BY ROWS ⟨5⟩]", "expected ROWS or RANGE, found '5'", None),
    ("SELECT * FROM s [PARTITION BY k ⟨NOW⟩]", "expected ROWS or RANGE, found 'NOW'", None),
    ("SELECT * FROM s WINDOW(RANGE 5 ⟨HUORS⟩)", "expected a unit of time, found 'HUORS'", "did you mean HOURS?"),
    ("SELECT * FROM s WINDOW(RANGE 5 HOURS SLIDE⟨)⟩", f"expected {_SPAN}, found ')'", None),
    ("SELECT * FROM s WINDOW(RANGE 5 HOURS ⟨PRECEDING⟩)", "expected ')', found 'PRECEDING'", _PRECEDING),
    ("SELECT * FROM s [ROWS 5 ⟨PRECEDING⟩]", "expected ']', found 'PRECEDING'", _PRECEDING),
    ("SELECT * FROM s WINDOW(RANGE MIN 5⟨)⟩", "expected ',', found ')'", None),
    ("SELECT * FROM s WINDOW(RANGE MIN 5, ⟨6⟩)", "expected MAX, found '6'", None),
    ("SELECT * FROM s ⟨[⟩ROWS 5", "this '[' is never closed", None),
    ("SELECT * FROM s [ROWS 5⟨)⟩", "unexpected ')'", None),
    ("SELECT * FROM s ROWS 5⟨]⟩", "unexpected ']'", None),
    ("SELECT * FROM s [ROWS 5] ⟨[⟩ROWS 5]", "unexpected '['", None),
    ("SELECT * FROM s x [ROWS 5] ⟨y⟩", "unexpected 'y'", None),
    ("SELECT * FROM s GRANULARITY(⟨)⟩", f"expected {_SPAN}, found ')'", None),
    ("SELECT * FROM s GRANULARITY(COARSEST 2⟨)⟩", "expected ',', found ')'", None),
    ("SELECT * FROM s [NOW] SEMI JOIN t ⟨WHERE⟩ a", "expected ON or USING, found 'WHERE'", None),
    ("SELECT a⟨[⟩RANGE 1 HOUR] FROM s", "unexpected '['", None),
    ("SELECT a[⟨]⟩ FROM s", "expected an expression, found ']'", None),
]


@pytest.mark.parametrize(("marked", "message", "hint"), MISTAKES, ids=[case[0] for case in MISTAKES])
def test_mistakes(marked: str, message: str, hint: str | None) -> None:
    check_mistake(marked, message, hint)
