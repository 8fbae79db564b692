"""Tokens inside PATTERN (…), where some characters mean something else than in the rest of the language."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sqlglot.tokenizer_core import Token, TokenType

# sqlglot's type of `??`, which is no token of ours: a `?` anywhere else is a placeholder, and refused.
QUESTION_MARK = TokenType.DQMARK


def settle_patterns(tokens: list[Token]) -> Iterator[Token]:
    """The tokens of a text; in row patterns, `?` and `$` stand for themselves, even where `$` touches a name."""
    depth = 0
    for index, token in enumerate(tokens):
        if depth or (token.token_type is TokenType.L_PAREN and _is_pattern(tokens[index - 1 : index])):
            depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if not depth:
            yield token
        elif token.token_type is TokenType.PLACEHOLDER:
            yield _part(token, QUESTION_MARK, 0, 1)
        elif token.token_type is TokenType.VAR and "$" in token.text:
            for part in re.finditer(r"\$|[^$]+", token.text):
                yield _part(token, TokenType.DOLLAR if part[0] == "$" else TokenType.VAR, *part.span())
        else:
            yield token


def _is_pattern(before: list[Token]) -> bool:
    return bool(before) and before[0].token_type is TokenType.VAR and before[0].text.upper() == "PATTERN"


def _part(token: Token, kind: TokenType, start: int, end: int) -> Token:
    """Some characters of a token as a token of their own."""
    at = token.start + start
    return Token(kind, token.text[start:end], token.line, token.col, start=at, end=at + end - start - 1)
