"""Whatever the text: statements or a ParseError, no token lost, and what was read prints and reads back the same."""

import random
from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import ParseError
from millstream.sql import Statement, parse, span_of, to_sql
from millstream.sql.dialect import Millstream
from tiers import examples

CORPUS = parse((Path(__file__).parent / "identity.sql").read_text(encoding="utf-8"))
FOREIGN = """
    [ ] { } ? $1 @x # ~ -> : := `a` |> \\ ! && 0x1F 1. PIVOT LATERAL TOP FETCH ASOF WITHIN GROUP EXCLUDE TIES
    FOR AT OF START CONNECT MATCH_RECOGNIZE REPLACE COLUMNS STRUCT ARRAY MAP COLLATE RETURNING CYCLE
    MATERIALIZED UESCAPE JSON UNSIGNED FORMAT DEFAULT SYMMETRIC NEAREST KEEP RESPECT NULLS OVERLAPS DIV XOR
    RLIKE GLOB ISNULL IF ANY TRIM LEADING PER STORED KEY VALUE /*+x*/ SQLGLOT.META é ☃ \u00a0 '' "" -- /* */ ; ,
    . ( ) :: || => ** // 1e5 .5 'x' "y z"
""".split()  # noqa: SIM905


def pieces(text: str) -> list[str]:
    return [text[token.start : token.end + 1] for token in Millstream().tokenize(text)]


PIECES = [pieces(statement.text) for statement in CORPUS]
VOCABULARY = sorted({piece for statement in PIECES for piece in statement} | set(FOREIGN))


def read(text: str) -> list[Statement]:
    """The statements, or none if the text is refused in the proper way; checks all laws on the way."""
    try:
        statements = parse(text)
    except ParseError as error:
        assert error.sql == text and error.message and error.span is not None
        assert 0 <= error.span.start <= len(text) and str(error)
        assert error.detail is None, f"an error of sqlglot's own: {error.detail}"
        return []
    for statement in statements:
        assert text[statement.offset : statement.offset + len(statement.text)] == statement.text
        printed = to_sql(statement.ast)
        assert [again.ast for again in parse(printed)] == [statement.ast], printed
        for node in statement.ast.walk():
            span = span_of(node)
            assert span is None or statement.offset <= span.start < span.end <= statement.offset + len(statement.text)
    return statements


@settings(max_examples=examples(300), deadline=None)
@given(st.text(max_size=60))
def test_any_text(text: str) -> None:
    read(text)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.sampled_from(VOCABULARY), max_size=12).map(" ".join))
def test_any_sequence_of_tokens(text: str) -> None:
    read(text)


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(PIECES), st.data())
def test_damaged_statements(tokens: list[str], data: st.DataObject) -> None:
    tokens = list(tokens)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(tokens)))
        change = data.draw(st.sampled_from(["delete", "insert", "replace", "swap", "cut"]))
        if change == "insert":
            tokens.insert(at, data.draw(st.sampled_from(VOCABULARY)))
        elif change == "replace":
            tokens[at : at + 1] = [data.draw(st.sampled_from(VOCABULARY))]
        elif change == "swap":
            tokens[at : at + 2] = tokens[at : at + 2][::-1]
        else:
            del tokens[at : at + (1 if change == "delete" else 5)]
    read(" ".join(tokens))


@pytest.mark.parametrize("shard", range(4))
def test_no_stray_token_is_ever_dropped(shard: int) -> None:
    """A stray word, number or string is refused or visible in what was read, wherever it stands."""
    choose = random.Random(shard)
    for tokens in PIECES[shard::4]:
        for at in choose.sample(range(len(tokens) + 1), min(6, len(tokens) + 1)):
            for stray in ("zz9", "98765", "'qq7'"):
                text = " ".join([*tokens[:at], stray, *tokens[at:]])
                statements = read(text)
                assert not statements or any(stray in to_sql(statement.ast) for statement in statements), text


@pytest.mark.parametrize("shard", range(4))
def test_a_deleted_token_changes_the_meaning_or_is_optional(shard: int) -> None:
    optional = {"AS", "CREATE", "INTERVAL", ",", "+", "ASC", "ALL", "WHERE", "IS", ";"}
    for statement, tokens in list(zip(CORPUS, PIECES, strict=True))[shard::4]:
        for at, token in enumerate(tokens):
            if token.upper() in optional or " ".join(tokens[at : at + 2]).upper() in ("RANGE UNBOUNDED", "ARRAY ["):
                continue
            same = [other.ast for other in read(" ".join(tokens[:at] + tokens[at + 1 :]))] == [statement.ast]
            assert not same, f"{token} does not count in {statement.text}"


def number(choose: random.Random, depth: int) -> str:
    """A random expression of numbers, mostly without the parentheses that would fix its meaning."""
    if depth == 0:
        return choose.choice(["1", "2", "0", "a", "b", "NULL", "2.5"])
    left, right = number(choose, depth - 1), number(choose, depth - 1)
    case = f"CASE WHEN {truth(choose, depth - 1)} THEN {left} ELSE {right} END"
    operation = f"{left} {choose.choice(['+', '-', '*', '/', '%', '//'])} {right}"
    return choose.choice([operation, operation, f"- {left}", f"({left})", f"{left}::int", case])


def truth(choose: random.Random, depth: int) -> str:
    """A random condition, likewise."""
    if depth == 0:
        return choose.choice(["TRUE", "p", "q", "NULL"])
    left, right = truth(choose, depth - 1), truth(choose, depth - 1)
    x, y, z = (number(choose, depth - 1) for _ in range(3))
    negation = choose.choice(["", "NOT "])
    return choose.choice(
        [
            f"{left} {choose.choice(['AND', 'OR', '='])} {right}",
            f"NOT {left}",
            f"({left})",
            f"{left} IS {negation}{choose.choice(['TRUE', 'FALSE', 'NULL'])}",
            f"{x} {choose.choice(['=', '<>', '<', '<=', '>', '>='])} {y}",
            f"{x} IS {negation}NULL",
            f"{x} {negation}IN ({y}, {z})",
            f"{x} {negation}BETWEEN {y} AND {z}",
            f"{x} IS {negation}DISTINCT FROM {y}",
        ]
    )


def test_expressions_bind_as_in_duckdb() -> None:
    """What we print means in DuckDB what was written meant: no operator moved."""
    database = duckdb.connect(config={"threads": 1})
    database.execute("CREATE TABLE v (a INT, b INT, p BOOLEAN, q BOOLEAN)")
    database.execute("INSERT INTO v VALUES (1, 2, TRUE, FALSE), (2, NULL, FALSE, NULL), (3, 1, NULL, TRUE)")
    choose = random.Random(0)
    compared = 0
    for _ in range(300):
        text = f"SELECT {choose.choice([number, truth])(choose, choose.randint(1, 3))} AS x FROM v"
        try:
            expected = database.execute(text).fetchall()
        except duckdb.Error:
            continue
        [statement] = read(text)
        # NaN equals nothing, itself included; its text does.
        assert str(database.execute(to_sql(statement.ast)).fetchall()) == str(expected), text
        compared += 1
    assert compared > 200
