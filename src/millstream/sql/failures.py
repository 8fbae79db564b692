"""Syntax errors: how the parser reports them, and how they are shown to the user."""

from __future__ import annotations

import re

import sqlglot.errors
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from millstream.errors import ParseError, Span, nearest
from millstream.sql.other_dialects import hint_for

STATEMENT_WORDS = (
    "AGGREGATE", "ALGEBRAIC", "ALTER", "BACKUP", "CREATE", "DELETE", "DESCRIBE", "DROP", "DSTREAM", "EXPLAIN",
    "INSERT", "ISTREAM", "PAUSE", "RESET", "RESUME", "RSTREAM", "SELECT", "SET", "SHOW", "STOP", "STREAM", "TABLE",
    "UPDATE", "VALUES", "WINDOW", "WITH",
)  # fmt: skip
CLAUSE_WORDS = (
    "BETWEEN", "CASCADE", "CROSS JOIN", "DEFINE", "DISTINCT", "EXCEPT", "FROM", "GRANULARITY", "GROUP BY", "HAVING",
    "INNER JOIN", "INTERSECT", "INTERVAL", "JOIN", "LEFT JOIN", "LIMIT", "MATCH_RECOGNIZE", "MEASURES", "ORDER BY",
    "ORDERED BY", "PARTITION BY", "PATTERN", "PRECEDING", "RANGE", "RETURNS", "ROWS", "SELECT", "SINK", "SLACK",
    "SLIDE", "SOURCE", "STREAM", "SUBSET", "TABLE", "UNBOUNDED", "UNION", "USING", "VALUES", "WHERE", "WINDOW", "WITH",
    "WITHIN",
)  # fmt: skip
_CLOSENESS = 0.75


class SyntaxFailure(sqlglot.errors.ParseError):
    """A syntax error inside the parser; of sqlglot's kind, because its speculative parsing catches that kind."""

    def __init__(self, message: str, span: Span, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        self.hint = hint

    def told(self, sql: str) -> ParseError:
        hint = hint_for(sql[: self.span.end]) or self.hint
        return ParseError(self.message, hint=hint, span=self.span, sql=sql)


def span_of_token(token: Token) -> Span:
    return Span(token.start, token.end + 1)


def quoted(token: Token) -> str:
    """A token as an error message names it."""
    if not token:
        return "the end of the statement"
    if token.token_type is TokenType.STRING:
        return "a string"
    return f"'{token.text}'"


def did_you_mean(word: str, candidates: tuple[str, ...]) -> str | None:
    """A hint for a word that is nearly one of the candidates.

    >>> did_you_mean("selec", STATEMENT_WORDS), did_you_mean("price", CLAUSE_WORDS)
    ('did you mean SELECT?', None)
    """
    upper = word.upper()
    if upper in candidates:
        return None
    close = nearest(upper, candidates, cutoff=_CLOSENESS)
    return f"did you mean {close[0]}?" if close else None


def typo_hint(found: Token, before: Token) -> str | None:
    """A hint if the unexpected token, or the word before it (taken for a name), looks like a misspelt keyword."""
    if found.token_type is TokenType.VAR and (hint := did_you_mean(found.text, CLAUSE_WORDS)):
        return hint
    if before.token_type is TokenType.VAR and (hint := did_you_mean(before.text, CLAUSE_WORDS)):
        return f"{hint[:-1]} instead of {before.text}?"
    return None


def reworded(message: str, found: Token) -> str:
    """sqlglot's message in our words: what was expected and what was found."""
    if wanted := re.fullmatch(r"Expect(?:ing|ed) ([()\[\]{}<>])", message):
        return f"expected '{wanted[1]}', found {quoted(found)}"
    if message.startswith("Expected table name"):
        return f"expected the name of a stream or table, found {quoted(found)}"
    if re.match(r"Expected (?:TYPE after CAST|type)$", message):
        return f"expected a type, found {quoted(found)}"
    if message.startswith("Expected"):
        return f"{message[0].lower()}{message[1:]}, found {quoted(found)}"
    text = message.strip().rstrip(".")
    return text[:1].lower() + text[1:]


def incomplete(node: exp.Expr, found: Token, arguments: int | None) -> str:
    """The message for a node that lacks a required part or, being a function, has too many."""
    if isinstance(node, exp.Func) and arguments is not None:
        name = node.sql_name().lower()
        missing = any(node.args.get(key) in (None, []) for key in node.required_args)
        return f"{name} has too {'few' if missing else 'many'} arguments ({arguments})"
    return f"expected an expression, found {quoted(found)}"
