"""Syntax errors: what is said, what is underlined, what is hinted."""

import pytest
from sql_texts import check_mistake, failure

from millstream.sql import parse

# (text with the culprit between ⟨ and ⟩, message, hint where one matters)
CASES = [
    ("⟨SELEC⟩ x", "expected a statement, found 'SELEC'", "did you mean SELECT?"),
    ("SELECT 1; ⟨CRATE⟩ STREAM s (a int)", "expected a statement, found 'CRATE'", "did you mean CREATE?"),
    ("ALTER ⟨TABLE⟩ t ADD x int", "expected QUERY or STREAM, found 'TABLE'", None),
    (
        "CREATE STREAM s (v int) KEEP ⟨v⟩",
        "expected an amount to keep, found 'v'",
        "KEEP 1 DAY, KEEP 10 GB, KEEP 1000000 ROWS or KEEP ALL",
    ),
    ("⟨VACUUM⟩", "expected a statement, found 'VACUUM'", None),
    ("⟨x⟩ + 1", "expected a statement, found 'x'", None),
    ("SELECT a FORM ⟨s⟩", "unexpected 's'", "did you mean FROM instead of FORM?"),
    ("SELECT a FROM s WEHRE ⟨x⟩ > 1", "unexpected 'x'", "did you mean WHERE instead of WEHRE?"),
    ("SELECT a FROM s GROUP ⟨a⟩", "unexpected 'a'", "did you mean GROUP BY instead of GROUP?"),
    ("SELECT a FROM s ⟨42⟩", "unexpected '42'", None),
    ("SELECT a b ⟨c⟩ FROM s", "unexpected 'c'", None),
    ("SELECT a FROM s WHERE⟨⟩", "expected an expression, found the end of the statement", None),
    ("SELECT ⟨FROM⟩ s", "expected an expression after SELECT, found 'FROM'", None),
    ("SELECT a,⟨,⟩ b FROM s", "expected an expression, found ','", None),
    ("SELECT f(a,⟨)⟩ FROM s", "expected an expression, found ')'", None),
    ("SELECT a -> ⟨FROM⟩ s", "expected an expression, found 'FROM'", None),
    ("SELECT a ->> ⟨<⟩ 1 FROM s", "expected an expression, found '<'", None),
    ("SELECT a AS ⟨FROM⟩ s", "expected a name after AS, found 'FROM'", None),
    ("SELECT a FROM s JOIN t ⟨WHERE⟩ a", "expected ON or USING, found 'WHERE'", None),
    ("SELECT a FROM s ORDER BY a ⟨WHERE⟩ b", "unexpected 'WHERE'", None),
    ("SELECT a FROM s WHERE b⟨,⟩ t", "unexpected ','", None),
    ("SELECT a FROM (s ⟨WHERE⟩ b)", "expected ')', found 'WHERE'", None),
    ("SELECT CASE WHEN a THEN 1 ⟨FROM⟩ s", "expected END, found 'FROM'", None),
    ("SELECT CASE WHEN a ⟨1⟩ END", "expected THEN, found '1'", None),
    ("SELECT a BETWEEN 1 ⟨OR⟩ 2", "expected AND, found 'OR'", None),
    ("SELECT a IS ⟨5⟩", "expected NULL, TRUE, FALSE or DISTINCT FROM, found '5'", None),
    ("SELECT ⟨(⟩a FROM s", "this '(' is never closed", None),
    (
        "CREATE STREAM s ⟨(⟩a int; b int) ORDER BY a",
        "this '(' is never closed",
        "the next ';' ends the statement; if it is in the wrong place, remove it or write ','",
    ),
    ("SELECT a⟨)⟩ FROM s", "unexpected ')'", None),
    ("SELECT ⟨'abc⟩", "expected a closing ', found the end of the text", None),
    ("SELECT a ⟨/* abc⟩", "this comment is never closed", None),
    (
        "SELECT ⟨?⟩",
        "no value for the parameter ?",
        "give values: sql(text, params={'name': value}) for $name, params=[value, …] for ?",
    ),
    ("SELECT 12⟨abc⟩", "unexpected 'abc' after a number", None),
    ("SELECT 'a' ⟨'b'⟩", "expected ',' or an operator between two strings", None),
    ("SELECT s.⟨left⟩ FROM s", "expected a name after '.', found 'left'", None),
    (
        "CREATE ⟨STREEM⟩ s (a int)",
        "expected STREAM, TABLE, SINK, FUNCTION, AGGREGATE, VIEW or QUERIES, found 'STREEM'",
        "did you mean STREAM?",
    ),
    (
        "CREATE ⟨QUERY⟩ q AS SELECT 1",
        "expected STREAM, TABLE, SINK, FUNCTION, AGGREGATE, VIEW or QUERIES, found 'QUERY'",
        None,
    ),
    ("CREATE STREAM⟨⟩", "expected the name of the stream, found the end of the statement", None),
    ("CREATE STREAM s⟨⟩", "expected '(' or AS, found the end of the statement", None),
    ("CREATE STREAM s (⟨)⟩", "expected the name of a column, found ')'", None),
    ("CREATE STREAM s (a int ⟨b⟩ int)", "expected ')', found 'b'", None),
    (
        "CREATE STREAM s (⟨select⟩ int)",
        "expected the name of a column, found 'select'",
        'select is a reserved word; as a name, write "select"',
    ),
    ("CREATE STREAM s (a int) ORDER BY a⟨,⟩ b", "a stream is ordered by one column", None),
    ("CREATE STREAM s (a int) ORDER BY a ⟨ORDER BY⟩ a", "ORDER BY is given twice", None),
    ("CREATE STREAM s (a int) SLACK ⟨'5'⟩", "expected a time span such as 5 SECONDS, found a string", None),
    ("CREATE STREAM s (a int) SLACK 5 ⟨SECNDS⟩", "expected a unit of time, found 'SECNDS'", "did you mean SECONDS?"),
    ("CREATE STREAM s (a int) SOURCE ⟨port⟩", "expected a string or a function call, found 'port'", None),
    ("CREATE STREAM s (a int) WITH (x = ⟨file⟩)", "expected a literal, found 'file'", "write 'file' in quotes"),
    ("CREATE STREAM s (a int) WITH (⟨a = 1⟩, A = 2)", "the option 'a' is given twice", None),
    ("CREATE STREAM s (a int) ⟨LIKE⟩ t", "unexpected 'LIKE'", None),
    ("CREATE TABLE t (a int) ⟨ENGINE⟩ = x", "unexpected 'ENGINE'", None),
    ("CREATE FUNCTION f(x int) RETURNS int⟨⟩", "expected AS or RETURN, found the end of the statement", None),
    ("CREATE SINK s ⟨AS⟩ SELECT 1", "expected WITH (connector = …), found 'AS'", None),
    ("INSERT ⟨t⟩ VALUES (1)", "expected INTO, found 't'", None),
    ("INSERT INTO t VALUES (1) ⟨x⟩", "unexpected 'x'", None),
    ("UPDATE t ⟨a⟩ = 1", "expected SET, found 'a'", None),
    ("DELETE ⟨t⟩", "expected FROM, found 't'", None),
    ("DROP ⟨s⟩", "expected STREAM, TABLE, SINK, FUNCTION, AGGREGATE, QUERY, QUERIES or VIEW, found 's'", None),
    ("DROP STREAM s ⟨t⟩", "unexpected 't'", None),
    (
        "SHOW ⟨STREAM⟩",
        "expected STREAMS, TABLES, VIEWS, QUERIES, SINKS, FUNCTIONS, AGGREGATES or SHARING, found 'STREAM'",
        "did you mean STREAMS?",
    ),
    ("EXPLAIN ⟨DROP⟩ TABLE t", "only queries, INSERT, CREATE … AS and ALTER QUERY can be explained", None),
    ("SET x⟨⟩", "expected '=', found the end of the statement", None),
    ("SELECT sum(x) OVER (ROWS 3 ⟨)⟩ FROM s", "expected PRECEDING, found ')'", None),
    ("SELECT sum(x) OVER (ROWS BETWEEN 3 PRECEDING⟨)⟩ FROM s", "expected AND, found ')'", None),
    ("SELECT sum(x) OVER (ROWS 3 ⟨FOLLOWING⟩) FROM s", "expected PRECEDING, found 'FOLLOWING'", None),
    (
        "SELECT sum(x) OVER (RANGE 10 ⟨SECNDS⟩ PRECEDING)",
        "expected a unit of time, found 'SECNDS'",
        "did you mean SECONDS?",
    ),
    ("SELECT INTERVAL ⟨'ten days'⟩", "cannot read 'ten days' as a time span", None),
    ("SELECT * FROM Bid WHERE a WINDOW⟨(⟩RANGE 10 MINUTES)", "expected the name of a window, found '('", None),
    ("SELECT Bid⟨[⟩RANGE 10 MINUTES]", "unexpected '['", None),
    ("SELECT a FROM s LIMIT 1 ⟨UNION⟩ SELECT b FROM t", "unexpected 'UNION'", None),
]


@pytest.mark.parametrize(("marked", "message", "hint"), CASES, ids=[case[0] for case in CASES])
def test_message_place_and_hint(marked: str, message: str, hint: str | None) -> None:
    check_mistake(marked, message, hint)


def test_the_place_counts_from_the_whole_text() -> None:
    text = "SELECT 1;\n-- comment\nSELECT a FROM s WHERE;\nSELECT 2"
    error = failure(text)
    assert error.span is not None and error.span.start == text.index(";\nSELECT 2")
    assert "  3 | SELECT a FROM s WHERE;" in str(error)


def test_deep_nesting_is_an_error_and_long_chains_are_not() -> None:
    assert failure("SELECT " + "(" * 2000 + "a" + ")" * 2000).message == "the statement is nested too deeply"
    [statement] = parse("SELECT a FROM s WHERE " + " AND ".join(f"a <> {i}" for i in range(1000)))
    assert statement.text.endswith("999")


@pytest.mark.parametrize(
    "text",
    [
        "FILTER{x > 1}(S) NEXT{x} T",
        "SELECT ISTREAM(a FROM s)",
        "CALL f()",
        "PRAGMA x",
        "BEGIN",
        "COPY t TO 'x'",
        "GRANT ALL ON t TO u",
        "KILL 5",
        "USE x",
        "MERGE INTO t",
        "SELECT a FROM t TABLESAMPLE (10)",
        "SELECT a FROM t PIVOT (sum(x) FOR y IN (1))",
        "SELECT [1 2]",
        "SELECT a[1:2]",
        "SELECT {1: 'a'}",
        "SELECT $1",
        "SELECT @x",
        "SELECT #1",
        "SELECT a:b",
        "SELECT e'a'",
        "SELECT lambda x: x",
    ],
)
def test_what_is_not_of_the_language_is_refused(text: str) -> None:
    failure(text)
