"""Text → AST → text → AST changes nothing, for a corpus of everything the language has."""

from pathlib import Path

import pytest
from sqlglot import exp
from sqlglot.errors import ErrorLevel

from millstream.sql import Statement, parse, to_sql

CORPUS = parse((Path(__file__).parent / "identity.sql").read_text(encoding="utf-8"))


@pytest.mark.parametrize("statement", CORPUS, ids=lambda statement: statement.text[:60])
def test_round_trip(statement: Statement) -> None:
    text = to_sql(statement.ast)
    [again] = parse(text)
    assert again.ast == statement.ast
    assert to_sql(again.ast) == text
    assert not statement.ast.find(exp.Command)


@pytest.mark.parametrize("statement", CORPUS, ids=lambda statement: statement.text[:60])
def test_printing_drops_nothing(statement: Statement) -> None:
    statement.ast.sql(dialect="millstream", unsupported_level=ErrorLevel.RAISE)


def test_the_corpus_has_many_kinds_of_statement() -> None:
    kinds = {type(statement.ast).__name__ for statement in CORPUS}
    assert kinds >= {
        "Create", "CreateSink", "CreateStream", "Delete", "Describe", "Drop", "Except", "Explain", "Insert",
        "Intersect", "ResetOption", "Select", "SetOption", "Show", "Stop", "Union", "Update", "Values",
    }  # fmt: skip


def test_statements_keep_their_text_and_offset() -> None:
    text = " ;; -- nothing\n SELECT 1 ; /* between */ SHOW STREAMS;\n"
    first, second = parse(text)
    assert (first.text, second.text) == ("SELECT 1", "SHOW STREAMS")
    assert text[second.offset :].startswith("SHOW STREAMS")


@pytest.mark.parametrize("text", ["", "  \n", ";", "-- only a comment", "/* a */ ; /* b */"])
def test_nothing_to_do(text: str) -> None:
    assert parse(text) == []


def test_parts_of_a_statement_print_too() -> None:
    [statement] = parse("SELECT a + 1 AS b FROM s WHERE myFunc(a) > 2")
    assert isinstance(statement.ast, exp.Select)
    assert to_sql(statement.ast.selects[0]) == "a + 1 AS b"
    assert to_sql(statement.ast.args["where"].this) == "myFunc(a) > 2"


def test_the_dialect_is_known_to_sqlglot_by_name() -> None:
    [statement] = parse("SELECT sum(x) OVER (RANGE 10 SECONDS PRECEDING) FROM s")
    assert statement.ast.sql(dialect="millstream") == to_sql(statement.ast)
    assert "INTERVAL '10' SECOND PRECEDING" in statement.ast.sql(dialect="duckdb")
