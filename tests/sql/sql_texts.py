"""Statements that survive printing, and mistakes with what is said of them."""

import pytest
from sqlglot import exp

from millstream.errors import ParseError
from millstream.sql import parse, to_sql


def one(text: str) -> exp.Expression:
    """The statement, checked to survive printing."""
    [statement] = parse(text)
    [again] = parse(to_sql(statement.ast))
    assert again.ast == statement.ast, to_sql(statement.ast)
    return statement.ast


def failure(text: str) -> ParseError:
    """The error that a text gives."""
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert caught.value.sql == text
    assert caught.value.detail is None, "an error of sqlglot's own slipped through"
    return caught.value


def check_mistake(marked: str, message: str, hint: str | None) -> None:
    """A text with the culprit between ⟨ and ⟩: that is underlined, with this message, and this hint if one is given."""
    start, end = marked.index("⟨"), marked.index("⟩")
    text = marked.replace("⟨", "").replace("⟩", "")
    error = failure(text)
    assert error.message == message
    assert error.span is not None and error.span.start == start
    assert text[start : error.span.end] == marked[start + 1 : end]
    if hint is not None:
        assert error.hint == hint
