"""Row patterns in FROM and in windows: what they are read to, and what is said about mistakes in them."""

from collections.abc import Iterator

import pytest
from sql_texts import check_mistake, one
from sqlglot import exp

from millstream.sql import duration_us, parse, span_of, to_sql
from millstream.sql.functions import function_name
from millstream.sql.patterns import (
    Final,
    MatchRecognize,
    PatternChoice,
    PatternEdge,
    PatternExclusion,
    PatternPermutation,
    PatternQuantifier,
    PatternSequence,
    PatternVariable,
    RowPattern,
    RunningExtent,
    SequenceMatch,
    Starred,
    WindowMatch,
)
from millstream.sql.relations import Windowed


def item(text: str) -> exp.Expr:
    """The first item of FROM."""
    node = one(f"SELECT * FROM {text}").args["from_"].this
    assert isinstance(node, exp.Expr)
    return node


def match(clauses: str) -> MatchRecognize:
    node = item(f"s MATCH_RECOGNIZE ({clauses})")
    assert isinstance(node, MatchRecognize)
    return node


def sequence(text: str) -> SequenceMatch:
    node = item(text)
    assert isinstance(node, SequenceMatch)
    return node


def pattern(text: str) -> RowPattern:
    return match(f"PATTERN ({text})").pattern


def var(name: str, quoted: bool = False) -> PatternVariable:
    return PatternVariable(this=exp.to_identifier(name, quoted=quoted))


def row(*parts: RowPattern) -> PatternSequence:
    return PatternSequence(expressions=list(parts))


def either(*parts: RowPattern) -> PatternChoice:
    return PatternChoice(expressions=list(parts))


def times(part: RowPattern, least: int, most: int | None, reluctant: bool = False) -> PatternQuantifier:
    return PatternQuantifier(this=part, least=least, most=most, reluctant=reluctant)


A, B, C = var("A"), var("B"), var("C")


# PATTERN


@pytest.mark.parametrize(
    ("sign", "least", "most"),
    [
        ("*", 0, None),
        ("+", 1, None),
        ("?", 0, 1),
        ("{3}", 3, 3),
        ("{3,}", 3, None),
        ("{,3}", 0, 3),
        ("{2,3}", 2, 3),
        ("{,}", 0, None),
        ("{0,1}", 0, 1),
        ("{ 2 , 3 }", 2, 3),
        (" *", 0, None),
    ],
)
def test_quantifiers(sign: str, least: int, most: int | None) -> None:
    assert pattern(f"A{sign}") == times(A, least, most)
    assert pattern(f"A{sign}?") == times(A, least, most, reluctant=True)
    assert pattern(f"(A B){sign}? C") == row(times(row(A, B), least, most, reluctant=True), C)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A", A),
        ("(A)", A),
        ("((A))", A),
        ("A B C", row(A, B, C)),
        ("(A B) C", row(row(A, B), C)),
        ("A | B | C", either(A, B, C)),
        ("A|B C", either(A, row(B, C))),
        ("(A | B) C", row(either(A, B), C)),
        ("A | (B | C)", either(A, either(B, C))),
        ("()", row()),
        ("() | A", either(row(), A)),
        ("()* A", row(times(row(), 0, None), A)),
        ("(A*)?", times(times(A, 0, None), 0, 1)),
        ("(A?)?", times(times(A, 0, 1), 0, 1)),
        ("A??", times(A, 0, 1, reluctant=True)),
        ("(A | B)+?", times(either(A, B), 1, None, reluctant=True)),
        ("^A B$", row(PatternEdge(end=False), A, B, PatternEdge(end=True))),
        ("^ | $", either(PatternEdge(end=False), PatternEdge(end=True))),
        ("A$B", row(A, PatternEdge(end=True), B)),
        ("A$ $", row(A, PatternEdge(end=True), PatternEdge(end=True))),
        ("^+", times(PatternEdge(end=False), 1, None)),
        ("{- A -}", PatternExclusion(this=A)),
        ("{-A-}", PatternExclusion(this=A)),
        ("A{-B+ | C-}*", row(A, times(PatternExclusion(this=either(times(B, 1, None), C)), 0, None))),
        ("A{2}{-B-}", row(times(A, 2, 2), PatternExclusion(this=B))),
        ("PERMUTE(A)", PatternPermutation(expressions=[A])),
        ("permute(A, B C, (A | B)){2}", times(PatternPermutation(expressions=[A, row(B, C), either(A, B)]), 2, 2)),
        ("PERMUTE B", row(var("PERMUTE"), B)),
        ('"PERMUTE" (A | B)', row(var("PERMUTE", quoted=True), either(A, B))),
        ('"A""" "b$c?"', row(var('A"', quoted=True), var("b$c?", quoted=True))),
        ("next pattern date", row(var("next"), var("pattern"), var("date"))),
    ],
)
def test_row_patterns(text: str, expected: RowPattern) -> None:
    assert pattern(text) == expected


def test_signs_of_patterns_mean_nothing_elsewhere() -> None:
    [statement] = parse("SELECT a$b, pattern(x) FROM s WHERE a$ > 1")
    assert "a$b" in to_sql(statement.ast)
    hint = "give values: sql(text, params={'name': value}) for $name, params=[value, …] for ?"
    check_mistake("SELECT a ⟨?⟩ b", "no value for the parameter ?", hint)


def test_parts_know_their_place() -> None:
    text = "SELECT * FROM s MATCH_RECOGNIZE (PATTERN (A (B | C)+? {- D -}) WITHIN '3 SECONDS' DEFINE A AS x > 1) AS m"
    [statement] = parse(text)

    def places(kind: type[exp.Expr]) -> list[str]:
        spans = (span_of(node) for node in statement.ast.find_all(kind))
        return sorted(text[span.start : span.end] for span in spans if span is not None)

    assert places(PatternVariable) == ["A", "B", "C", "D"]
    assert places(PatternChoice) == ["(B | C)"]
    assert places(PatternQuantifier) == ["(B | C)+?"]
    assert places(PatternExclusion) == ["{- D -}"]
    assert places(PatternSequence) == ["A (B | C)+? {- D -}"]
    assert places(exp.Interval) == ["'3 SECONDS'"]
    assert places(MatchRecognize) == [text[text.index("s MATCH") :]]


# MATCH_RECOGNIZE


def test_all_clauses() -> None:
    node = match(
        "PARTITION BY a, b + 1 ORDER BY ts, n DESC MEASURES A.x AS ax, LAST(B.y) AS by "
        "ALL ROWS PER MATCH WITH UNMATCHED ROWS AFTER MATCH SKIP TO FIRST b "
        "PATTERN (A b+) WITHIN 3 SECONDS WITH TIMEOUTS SUBSET u = (a, b), w = (a) "
        "DEFINE A AS A.x > 1, b AS b.x < PREV(b.x)"
    )
    assert isinstance(node.this, exp.Table) and node.this.name == "s"
    assert [to_sql(key) for key in node.partition] == ["a", "b + 1"]
    assert node.order is not None and [to_sql(key) for key in node.order.expressions] == ["ts", "n DESC"]
    assert [(measure.alias, to_sql(measure.this)) for measure in node.measures] == [("ax", "A.x"), ("by", "LAST(B.y)")]
    assert node.rows is not None and (node.rows.all, node.rows.omit, node.rows.unmatched) == (True, False, True)
    assert node.skip is not None and (node.skip.to, node.skip.name) == ("FIRST", "b")
    assert node.pattern == row(A, times(var("b"), 1, None))
    assert node.within is not None and node.within.timeouts and duration_us(node.within.this) == 3_000_000
    assert [(subset.name, [v.name for v in subset.expressions]) for subset in node.subsets] == [
        ("u", ["a", "b"]),
        ("w", ["a"]),
    ]
    assert [(definition.name, to_sql(definition.expression)) for definition in node.definitions] == [
        ("A", "A.x > 1"),
        ("b", "b.x < PREV(b.x)"),
    ]


def test_what_is_left_out() -> None:
    node = match("PATTERN (A)")
    assert (node.partition, node.order, node.measures, node.rows, node.skip) == ([], None, [], None, None)
    assert (node.within, node.subsets, node.definitions, node.alias) == (None, [], [], "")


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("ONE ROW PER MATCH", (False, False, False)),
        ("ALL ROWS PER MATCH", (True, False, False)),
        ("ALL ROWS PER MATCH SHOW EMPTY MATCHES", (True, False, False)),
        ("ALL ROWS PER MATCH OMIT EMPTY MATCHES", (True, True, False)),
        ("all rows per match with unmatched rows", (True, False, True)),
    ],
)
def test_rows_per_match(text: str, flags: tuple[bool, bool, bool]) -> None:
    rows = match(f"{text} PATTERN (A)").rows
    assert rows is not None and (rows.all, rows.omit, rows.unmatched) == flags


@pytest.mark.parametrize(
    ("text", "to", "name"),
    [
        ("PAST LAST ROW", "PAST LAST ROW", ""),
        ("TO NEXT ROW", "NEXT ROW", ""),
        ("TO FIRST a", "FIRST", "a"),
        ("TO LAST a", "LAST", "a"),
        ("TO a", "LAST", "a"),
        ("TO FIRST first", "FIRST", "first"),
        ("TO next", "LAST", "next"),
        ('TO "LAST"', "LAST", "LAST"),
        ('TO FIRST "a b"', "FIRST", "a b"),
    ],
)
def test_skips(text: str, to: str, name: str) -> None:
    skip = match(f"AFTER MATCH SKIP {text} PATTERN (A)").skip
    assert skip is not None and (skip.to, skip.name) == (to, name)


@pytest.mark.parametrize(
    "span", ["INTERVAL '90' SECOND", "INTERVAL '90 seconds'", "90 SECONDS", "'90 seconds'", "'90' SECOND", "'00:01:30'"]
)
@pytest.mark.parametrize("order", ["{} SUBSET u = (A) DEFINE A AS x > 1", "SUBSET u = (A) {} DEFINE A AS x > 1",
                                   "SUBSET u = (A) DEFINE A AS x > 1 {}"])  # fmt: skip
def test_within_stands_anywhere_behind_the_pattern(span: str, order: str) -> None:
    node = match(f"PATTERN (A) {order.format(f'WITHIN {span}')}")
    assert node.within is not None and duration_us(node.within.this) == 90_000_000 and not node.within.timeouts
    assert len(node.subsets) == len(node.definitions) == 1


def test_within_a_number() -> None:
    for text in ("WITHIN 3 DEFINE A AS x > 1", "DEFINE A AS x > 1 WITHIN 3", "WITHIN 3 SUBSET u = (A)", "WITHIN 3"):
        within = match(f"PATTERN (A) {text}").within
        assert within is not None and within.this == exp.Literal.number(3)
    within = match("PATTERN (A) WITHIN 2.5 WITH TIMEOUTS").within
    assert within is not None and within.this == exp.Literal.number("2.5") and within.timeouts


def test_what_may_be_searched() -> None:
    clause = "MATCH_RECOGNIZE (PATTERN (A))"
    named = item(f"s AS t {clause} AS m")
    assert isinstance(named, MatchRecognize) and named.alias == "m" and named.this.alias == "t"
    assert isinstance(item(f"(SELECT a FROM s) {clause} m").this, exp.Subquery)
    assert isinstance(item(f"(SELECT a FROM s) AS q (b) {clause}").this, exp.Subquery)
    assert isinstance(item(f"(VALUES (1, 2)) AS t (a, b) {clause} m").this, exp.Values)
    assert isinstance(item(f"LATE(s) {clause}").this, exp.Table)
    assert isinstance(item(f"TUMBLE(s, ts, 5 MINUTES) {clause}").this, exp.Table)
    assert item(f"s {clause} AS m (x, y)").args["alias"].columns == [exp.to_identifier("x"), exp.to_identifier("y")]
    again = item(f"s {clause} m {clause} AS n")
    assert isinstance(again, MatchRecognize) and isinstance(again.this, MatchRecognize) and again.this.alias == "m"


def test_several_in_one_from() -> None:
    clause = "MATCH_RECOGNIZE (PATTERN (A))"
    select = one(f"SELECT * FROM s {clause} AS m, t {clause} AS n JOIN u {clause} AS o ON m.x = o.x WHERE m.x = n.x")
    joined = [join.this for join in select.args["joins"]]
    assert [type(node) for node in joined] == [MatchRecognize] * 2 and [node.alias for node in joined] == ["n", "o"]
    assert item(f"(s {clause} AS m JOIN t ON m.x = t.x)").this.args["joins"]


def measured(text: str) -> exp.Expr:
    [measure] = match(f"MEASURES {text} AS m PATTERN (A)").measures
    value = measure.this
    assert isinstance(value, exp.Expr)
    return value


def test_windows_behind_matches() -> None:
    clauses = "MATCH_RECOGNIZE (MEASURES A.x AS y PATTERN (A))"
    for text in (
        f"s {clauses} [ROWS 5]",
        f"s {clauses} AS m (k) [ROWS 5]",
        f"s {clauses} WINDOW(RANGE 5 MINUTES) AS m",
    ):
        [statement] = parse(f"SELECT * FROM {text}")
        windowed = statement.ast.args["from_"].this
        assert isinstance(windowed, Windowed)
        assert isinstance(windowed.this, MatchRecognize)
        assert parse(to_sql(statement.ast))[0].ast == statement.ast
    [statement] = parse(f"SELECT sum(y) OVER w FROM s {clauses} WINDOW w AS (ROWS 1 PRECEDING)")
    assert isinstance(statement.ast.args["from_"].this, MatchRecognize)


@pytest.mark.parametrize("after", ["", "ONE ROW PER MATCH ", "AFTER MATCH SKIP TO NEXT ROW "])
def test_measures_without_as(after: str) -> None:
    bare = match(f"MEASURES A.x since, LAST(t) - 1 pattern, count(*) n {after}PATTERN (A)")
    assert bare == match(f"MEASURES A.x AS since, LAST(t) - 1 AS pattern, count(*) AS n {after}PATTERN (A)")


def test_running_and_final() -> None:
    running = measured("RUNNING LAST(A.x, 1)")
    assert isinstance(running, RunningExtent) and function_name(running.this) == "LAST"
    final = measured("final sum(DISTINCT x) FILTER (WHERE A.x > 1)")
    assert isinstance(final, Final) and isinstance(final.this, exp.Filter)
    nested = measured("PREV(FINAL LAST(x), 2) + RUNNING count(A.*)::double")
    assert [type(node) for node in nested.find_all(RunningExtent, Final)] == [Final, RunningExtent]
    assert isinstance(nested, exp.Add) and isinstance(nested.expression, exp.Cast)
    [definition] = match("PATTERN (A) DEFINE A AS RUNNING avg(A.x) > 1").definitions
    assert isinstance(definition.expression.this, RunningExtent)
    # Anywhere else they are names.
    assert measured("final + running") == exp.Add(this=exp.column("final"), expression=exp.column("running"))
    check_mistake("SELECT final sum⟨(⟩x) FROM s", "unexpected '('", None)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("PREV(A.price, 2)", "PREV"),
        ("NEXT(price)", "NEXT"),
        ("FIRST(A.price, 1)", "FIRST"),
        ("last(A.price)", "last"),
        ("PREV(LAST(A.price, 1), 2)", "PREV"),
        ("CLASSIFIER()", "CLASSIFIER"),
        ("CLASSIFIER(u)", "CLASSIFIER"),
        ("MATCH_NUMBER()", "MATCH_NUMBER"),
        ("match_rowtime()", "match_rowtime"),
        ("TIMED_OUT()", "TIMED_OUT"),
        ("count(A.*)", "count"),
        ("count(*)", "count"),
        ("count()", "count"),
    ],
)
def test_calls_in_measures(text: str, name: str) -> None:
    assert function_name(measured(text)) == name


# AS (X, *Y)


def test_sequences() -> None:
    node = sequence('s PARTITION BY a, s.b SEQUENCE BY c, d AS (X, *Y, "z z")')
    assert node.partition == [exp.column("a"), exp.column("b", table="s")]
    assert [part.this for part in node.sequence] == [exp.column("c"), exp.column("d")]
    assert [(v.name, v.star) for v in node.variables] == [("X", False), ("Y", True), ("z z", False)]
    assert sequence("s SEQUENCE BY c AS (X)").partition == []
    assert isinstance(sequence("(SELECT a FROM s) PARTITION BY a AS (X, Y)").this, exp.Subquery)
    assert sequence("s AS t PARTITION BY t.a AS (X, Y)").this.alias == "t"


def test_keys_of_sequences_may_be_expressions_with_names() -> None:
    node = sequence("s PARTITION BY lower(a) AS low, b % 10 SEQUENCE BY c, d + 1 DESC AS (X, *Y)")
    assert [to_sql(key) for key in node.partition] == ["LOWER(a) AS low", "b % 10"]
    assert [bool(part.args.get("desc")) for part in node.sequence] == [False, True]
    assert [variable.name for variable in node.variables] == ["X", "Y"]


def test_aliases_that_resemble_match_recognize() -> None:
    node = one("SELECT * FROM (SELECT x, y FROM s) match_recognises (partition, measures), u match_recognise")
    assert node.args["from_"].this.alias == "match_recognises"


def test_values_of_sequences() -> None:
    select = one(
        "SELECT LAST(*Y).speed, FIRST(W).time, Y.previous.speed, ccount(Y), avg(*A.price), f(*A, 2) FROM s AS (X)"
    )
    last, first, previous, running, average, other = select.expressions
    assert isinstance(last, exp.Dot) and last.expression == exp.to_identifier("speed")
    assert last.this == exp.Last(this=Starred(this=exp.column("Y")))
    assert first == exp.Dot(this=exp.First(this=exp.column("W")), expression=exp.to_identifier("time"))
    assert previous == exp.column("speed", table="previous", db="Y")
    assert running.expressions == [exp.column("Y")]
    assert average == exp.Avg(this=Starred(this=exp.column("price", table="A")))
    assert other.expressions == [Starred(this=exp.column("A")), exp.Literal.number(2)]


def test_names_of_items_stay_names() -> None:
    select = one(
        "SELECT * FROM (SELECT x, y FROM s) AS t(a, b), s AS s2, s sequence, s WINDOW(NOW) AS w, u match_recognize"
    )
    aliases = [select.args["from_"].this.alias, *(join.this.alias for join in select.args["joins"])]
    assert aliases == ["t", "s2", "sequence", "w", "match_recognize"]


# WINDOW


def windows(text: str) -> Iterator[exp.Window]:
    yield from one(text).find_all(exp.Window)


def test_patterns_in_the_window_clause() -> None:
    select = one(
        "SELECT id, val OVER w, label OVER w AS l, count(*) OVER w FROM t WINDOW w AS (PARTITION BY k ORDER BY id "
        "MEASURES RUNNING LAST(A.v) AS val, CLASSIFIER() AS label ROWS BETWEEN CURRENT ROW AND 5 FOLLOWING "
        "AFTER MATCH SKIP TO NEXT ROW SEEK PATTERN (A B*?) SUBSET u = (A, B) DEFINE B AS v < PREV(v))"
    )
    _, val, label, count = select.expressions
    assert isinstance(val, exp.Window) and val.this == exp.column("val") and val.alias == "w"
    assert isinstance(label, exp.Alias) and label.this.this == exp.column("label")
    assert isinstance(count.this, exp.Count)
    [window] = select.args["windows"]
    found = window.args["match"]
    assert isinstance(found, WindowMatch) and found.seek and [m.alias for m in found.measures] == ["val", "label"]
    assert found.skip is not None and found.skip.to == "NEXT ROW"
    assert found.pattern == row(A, times(B, 0, None, reluctant=True))
    assert len(found.subsets) == len(found.definitions) == 1
    assert window.args["partition_by"] == [exp.column("k")] and window.args["order"] is not None
    assert to_sql(window.args["spec"]) == "ROWS BETWEEN CURRENT ROW AND 5 FOLLOWING"


def test_patterns_behind_over() -> None:
    frame = "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING"
    [window] = windows(f"SELECT 1 + val OVER (ORDER BY id MEASURES A.v AS val {frame} INITIAL PATTERN (A$)) FROM t")
    assert window.this == exp.column("val") and not window.args["match"].seek
    [window] = windows(f"SELECT sum(v) OVER ({frame} PATTERN (A)) AS total FROM t")
    assert isinstance(window.args["match"], WindowMatch) and window.args["match"].measures == []
    [window, _] = windows(
        f"SELECT a FROM t WINDOW w AS (ORDER BY id) ORDER BY m OVER (w MEASURES x AS m {frame} PATTERN (A))"
    )
    assert isinstance(window, exp.Window)


def test_words_of_patterns_name_windows() -> None:
    text = "SELECT sum(x) OVER (measures ORDER BY a), sum(x) OVER (pattern ROWS 3 PRECEDING), sum(x) OVER seek FROM s"
    found = list(windows(f"{text} WINDOW measures AS (ORDER BY a), seek AS (after)"))
    assert len(found) == 5 and all(window.args.get("match") is None for window in found)
