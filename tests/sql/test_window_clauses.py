"""SLIDE, ACTIVE EXPIRATION and the windows that are table functions in FROM."""

import pytest
from sql_texts import check_mistake, one
from sqlglot import exp

from millstream.sql import duration_us, parse, span_of
from millstream.sql.nodes import Slide, WindowTable


def frame(over: str) -> exp.WindowSpec:
    spec = one(f"SELECT sum(bid.price) OVER({over}) FROM Bid").find(exp.WindowSpec)
    assert spec is not None
    return spec


def window(relation: str) -> WindowTable:
    node = one(f"SELECT * FROM {relation}").find(WindowTable)
    assert node is not None and isinstance(node.parent, exp.Table)
    return node


def spans(node: WindowTable) -> dict[str, int | None]:
    """The lengths of a window's time spans in seconds."""
    found = {key: node.args.get(key) for key in ("size", "slide", "gap", "offset")}
    return {key: (duration_us(span) or 0) // 1_000_000 for key, span in found.items() if span is not None}


def test_slides_of_rows_and_of_time() -> None:
    rows = frame("PARTITION BY itemID ROWS 49 PRECEDING SLIDE 10").args["slide"]
    assert isinstance(rows, Slide) and rows.this == exp.Literal.number(10)
    time = frame("RANGE 1 HOUR PRECEDING SLIDE 5 MINUTES").args["slide"]
    assert isinstance(time.this, exp.Interval) and duration_us(time.this) == 300_000_000
    assert frame("RANGE 1 HOUR PRECEDING SLIDE INTERVAL '5' MINUTE").args["slide"] == time
    assert frame("RANGE BETWEEN 1 HOUR PRECEDING AND CURRENT ROW slide 5 minutes").args["slide"] == time
    assert frame("ROWS UNBOUNDED PRECEDING SLIDE 28").args["start"] == "UNBOUNDED"
    assert frame("ROWS 9 PRECEDING").args.get("slide") is None


def test_slides_tell_frames_apart() -> None:
    frames = ["", " SLIDE 2", " SLIDE 3", " SLIDE 2 SECONDS", " ACTIVE EXPIRATION"]
    assert len({frame(f"RANGE 9 SECONDS PRECEDING{end}") for end in frames}) == len(frames)


def test_active_expiration() -> None:
    spec = frame("RANGE 5 SECONDS PRECEDING ACTIVE EXPIRATION")
    assert spec.args["active"] is True and spec.args.get("slide") is None
    assert not frame("RANGE 5 SECONDS PRECEDING SLIDE 1 SECOND").args.get("active")


def test_the_papers_calls() -> None:
    larceny = one(
        "CREATE STREAM larceny AS (SELECT tagid, tagtime, item_alarm(tagid, tagtype, tagtime) OVER "
        "(RANGE 5 SECONDS PRECEDING ACTIVE EXPIRATION) FROM tag_readings)"
    )
    assert larceny.find(exp.Window) is not None
    # The alias stands before OVER.
    printed = "SELECT itemID, sum(bid.price) AS s OVER(PARTITION BY itemID ROWS 9 PRECEDING SLIDE 10) FROM Bid"
    assert one(printed) == one(
        "SELECT itemID, sum(bid.price) OVER (PARTITION BY itemID ROWS 9 PRECEDING SLIDE 10) AS s FROM Bid"
    )
    assert one("SELECT f(a) AS b OVER w FROM s WINDOW w AS (ROWS 3 PRECEDING SLIDE 4)").find(Slide)


@pytest.mark.parametrize(
    "over",
    [
        "ORDER BY t PARTITION BY k ROWS 3 PRECEDING",
        "ORDER BY t ROWS 3 PRECEDING PARTITION BY k",
        "PARTITION BY k ORDER BY t ROWS 3 PRECEDING",
    ],
)
def test_partition_by_in_any_place(over: str) -> None:
    assert one(f"SELECT sum(x) OVER ({over}) FROM s") == one(
        "SELECT sum(x) OVER (PARTITION BY k ORDER BY t ROWS 3 PRECEDING) FROM s"
    )


@pytest.mark.parametrize(
    "call",
    ["rank()", "dense_rank()", "row_number()", "lag(x, 2)", "lag(x, 2, 0)", "lead(x)", "first_value(x)",
     "last_value(x)", "nth_value(x, 2)", "ntile(4)", "percent_rank()", "cume_dist()", "my_own(x, 3)",
     "count(DISTINCT x)"],
)  # fmt: skip
def test_window_functions(call: str) -> None:
    query = one(f"SELECT {call} OVER (PARTITION BY k ORDER BY t) FROM s")
    assert isinstance(query, exp.Select) and isinstance(query.selects[0], exp.Window)
    assert isinstance(query.selects[0].this, exp.Func)


@pytest.mark.parametrize(
    "relation",
    [
        "TUMBLE(s, ts, INTERVAL '5' MINUTE)",
        "tumble(s, ts, interval '5 minutes')",
        "TUMBLE(s, ts, 5 MINUTES)",
        "TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '5' MINUTE)",
        "TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '5' MINUTES))",
        "TABLE(TUMBLE(DATA => TABLE s, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '5' MINUTES))",
        "TABLE ( tumble ( size => 5 minutes, timecol => descriptor(ts), data => table s ) )",
    ],
)
def test_all_forms_of_a_tumble_are_one(relation: str) -> None:
    node = window(relation)
    assert node == window("TUMBLE(s, ts, 5 MINUTES)")
    assert (node.kind, node.this, node.time) == ("TUMBLE", exp.to_table("s"), exp.column("ts"))
    assert spans(node) == {"size": 300} and node.partition == []


@pytest.mark.parametrize(
    ("relation", "kind", "expected"),
    [
        ("HOP(s, ts, 1 MINUTE, 3 MINUTES)", "HOP", {"slide": 60, "size": 180}),
        ("hop(s, ts, interval '1 minute', interval '3 minutes')", "HOP", {"slide": 60, "size": 180}),
        ("TABLE(HOP(TABLE s, DESCRIPTOR(ts), 1 MINUTE, 3 MINUTES))", "HOP", {"slide": 60, "size": 180}),
        (
            "TABLE(HOP(DATA => TABLE s, TIMECOL => DESCRIPTOR(ts), SIZE => 3 MINUTES, SLIDE => 1 MINUTE))",
            "HOP",
            {"slide": 60, "size": 180},
        ),
        ("HOP(s, ts, 1 MINUTE, 3 MINUTES, 5 SECONDS)", "HOP", {"slide": 60, "size": 180, "offset": 5}),
        ("TUMBLE(s, ts, 1 DAY, INTERVAL '-1' HOUR)", "TUMBLE", {"size": 86_400, "offset": -3_600}),
        ("TUMBLE(s, ts, 1 DAY, OFFSET => 1 HOUR)", "TUMBLE", {"size": 86_400, "offset": 3_600}),
        ("CUMULATE(TABLE s, DESCRIPTOR(ts), 1 HOUR, 1 DAY)", "CUMULATE", {"slide": 3_600, "size": 86_400}),
        ("CUMULATE(s, ts, SIZE => 1 DAY, STEP => 1 HOUR)", "CUMULATE", {"slide": 3_600, "size": 86_400}),
        ("SESSION(s, ts, 10 SECONDS)", "SESSION", {"gap": 10}),
        ("TABLE(SESSION(DATA => TABLE s, TIMECOL => DESCRIPTOR(ts), GAP => 10 SECONDS))", "SESSION", {"gap": 10}),
    ],
)
def test_kinds_of_windows(relation: str, kind: str, expected: dict[str, int]) -> None:
    node = window(relation)
    assert (node.kind, node.this.name, node.time.name, spans(node)) == (kind, "s", "ts", expected)


@pytest.mark.parametrize(
    ("relation", "keys"),
    [
        ("TABLE(SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), 10 SECONDS))", ["k"]),
        ("SESSION(s PARTITION BY (k, l), ts, 10 SECONDS)", ["k", "l"]),
        ("SESSION(DATA => TABLE s PARTITION BY (s.k), TIMECOL => ts, GAP => 1 SECOND)", ["k"]),
    ],
)
def test_partitions_of_sessions(relation: str, keys: list[str]) -> None:
    assert [key.name for key in window(relation).partition] == keys


def test_windows_over_queries_with_aliases_and_joins() -> None:
    query = one(
        "SELECT w.a FROM TUMBLE((SELECT a, ts FROM s WHERE a > 1), ts, 5 MINUTES) AS w "
        "JOIN TABLE(HOP(TABLE (SELECT b FROM t), DESCRIPTOR(x.ts), 1 SECOND, 2 SECONDS)) v ON w.a = v.b, tumble AS u"
    )
    first, second = query.find_all(WindowTable)
    assert isinstance(first.this, exp.Subquery) and isinstance(second.this, exp.Subquery)
    assert [node.parent.alias for node in (first, second) if node.parent] == ["w", "v"]
    assert second.time.table == "x"


def test_names_stay_names() -> None:
    assert window("TUMBLE(table, time, 1 DAY)").this.name == "table"
    assert window("TUMBLE(TABLE table, DESCRIPTOR(timestamp), 1 DAY)").time.name == "timestamp"
    assert window("TUMBLE(s, descriptor, 1 DAY)").time.name == "descriptor"
    for text in (
        "SELECT session, hop FROM tumble",
        "SELECT tumble(a) FROM table(b)",
        "SELECT slide, active FROM slide",
    ):
        assert not one(text).find(WindowTable)


def test_places() -> None:
    text = "SELECT sum(x) OVER (ROWS 3 PRECEDING SLIDE 2) FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), 1 DAY)) AS w"
    root = parse(text)[0].ast
    written = {}
    for kind in (Slide, exp.WindowSpec, WindowTable, exp.Interval):
        node = root.find(kind)
        span = span_of(node) if node is not None else None
        assert span is not None
        written[kind.__name__] = text[span.start : span.end]
    assert written == {
        "Slide": "SLIDE 2",
        "WindowSpec": "ROWS 3 PRECEDING SLIDE 2",
        "WindowTable": "TUMBLE(TABLE s, DESCRIPTOR(ts), 1 DAY)",
        "Interval": "1 DAY",
    }


# (text with the culprit between ⟨ and ⟩, message, hint where one matters)
MISTAKES = [
    ("SELECT sum(x) OVER (ROWS 3 PRECEDING SLIDE⟨)⟩ FROM s", "expected a number or a time span, found ')'", None),
    ("SELECT sum(x) OVER (ROWS 3 PRECEDING SLIDE ⟨x⟩) FROM s", "expected a number or a time span, found 'x'", None),
    (
        "SELECT sum(x) OVER (ROWS 3 PRECEDING SLIDE 5 ⟨SECNDS⟩) FROM s",
        "expected a unit of time, found 'SECNDS'",
        "did you mean SECONDS?",
    ),
    ("SELECT sum(x) OVER (RANGE 3 DAYS PRECEDING ACTIVE⟨)⟩ FROM s", "expected EXPIRATION, found ')'", None),
    (
        "SELECT sum(x) OVER (ROWS 3 PRECEDING SLIDE 2 ⟨ACTIVE⟩ EXPIRATION)",
        "a window has either SLIDE or ACTIVE EXPIRATION, and once",
        None,
    ),
    (
        "SELECT sum(x) OVER (RANGE 3 DAYS PRECEDING ACTIVE EXPIRATION ⟨SLIDE⟩ 2)",
        "a window has either SLIDE or ACTIVE EXPIRATION, and once",
        None,
    ),
    ("SELECT sum(x) OVER (PARTITION BY k ⟨SLIDE⟩ 2)", "expected ')', found 'SLIDE'", None),
    (
        "SELECT sum(x) OVER (PARTITION BY k ROWS 3 PRECEDING ⟨PARTITION BY⟩ l)",
        "expected ')', found 'PARTITION BY'",
        None,
    ),
    ("SELECT a AS b ⟨OVER⟩ (ROWS 3 PRECEDING)", "unexpected 'OVER'", None),
    ("SELECT * FROM TUMBLE(s, ts⟨)⟩", "TUMBLE needs a size, found ')'", None),
    ("SELECT * FROM HOP(s, ts, 1 DAY⟨)⟩", "HOP needs a size, found ')'", None),
    ("SELECT * FROM SESSION(⟨)⟩", "expected the name of a stream or a query in parentheses, found ')'", None),
    ("SELECT * FROM SESSION(s, ts, 1 DAY, ⟨2⟩ DAYS)", "SESSION has too many arguments", None),
    ("SELECT * FROM TUMBLE(s, ts, ⟨SIZ⟩ => 5 DAYS)", "TUMBLE has no argument 'SIZ'", "did you mean SIZE?"),
    (
        "SELECT * FROM TUMBLE(s, ts, ⟨GAP⟩ => 5 DAYS)",
        "TUMBLE has no argument 'GAP'",
        "its arguments are DATA, TIMECOL, SIZE, OFFSET",
    ),
    ("SELECT * FROM TUMBLE(s, ts, 5 DAYS, ⟨SIZE⟩ => 5 DAYS)", "the size of TUMBLE is given twice", None),
    ("SELECT * FROM TUMBLE((⟨s⟩), ts, 5 DAYS)", "expected a query, found 's'", None),
    ("SELECT * FROM TABLE(TUMBLE(s, ts, 5 DAYS)⟨,⟩ 1)", "expected ')', found ','", None),
]


@pytest.mark.parametrize(("marked", "message", "hint"), MISTAKES, ids=[case[0] for case in MISTAKES])
def test_mistakes(marked: str, message: str, hint: str | None) -> None:
    check_mistake(marked, message, hint)
