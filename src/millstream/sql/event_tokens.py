"""Tokens of the event algebra: `$1.price`, and lengths of time such as `10min` inside braces."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot.tokenizer_core import Token, TokenType

from millstream.sql.durations import UNITS
from millstream.sql.event_nodes import DECORATORS

_BEFORE_BRACES = ("FILTER", "NEXT", "FOLD", "AGGREGATE")
_SHORT = {
    "MS": "MILLISECOND", "MSEC": "MILLISECOND", "US": "MICROSECOND", "S": "SECOND", "SEC": "SECOND", "SECS": "SECOND",
    "MIN": "MINUTE", "MINS": "MINUTE", "H": "HOUR", "HR": "HOUR", "HRS": "HOUR", "D": "DAY", "W": "WEEK",
}  # fmt: skip


def settle_events(tokens: list[Token]) -> Iterator[Token]:
    """The tokens of a text; `$`, `$1` and `$2` before a dot are names, and numbers with units are intervals."""
    depth = 0
    place = 0
    while place < len(tokens):
        token = tokens[place]
        after = tokens[place + 1] if place + 1 < len(tokens) else None
        if token.token_type is TokenType.L_BRACE and (depth or _opens(tokens[place - 1 : place])):
            depth += 1
        elif token.token_type is TokenType.R_BRACE and depth:
            depth -= 1
        place += 1
        if token.text in DECORATORS and after is not None and after.token_type is TokenType.DOT:
            yield _as(token, TokenType.IDENTIFIER, token.text)
        elif depth and token.token_type is TokenType.NUMBER and after is not None and (unit := _unit(after)):
            yield _as(token, TokenType.INTERVAL, "INTERVAL")
            yield _as(token, TokenType.STRING, token.text)
            yield _as(after, TokenType.VAR, unit)
            place += 1
        else:
            yield token


def _opens(before: list[Token]) -> bool:
    return bool(before) and before[0].text.upper() in _BEFORE_BRACES


def _unit(token: Token) -> str | None:
    if token.token_type is not TokenType.VAR:
        return None
    word = token.text.upper()
    return UNITS.get(word) or _SHORT.get(word)


def _as(token: Token, kind: TokenType, text: str) -> Token:
    return Token(kind, text, token.line, token.col, start=token.start, end=token.end)
