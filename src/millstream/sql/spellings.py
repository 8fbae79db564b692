"""Other spellings of what the language has: MINUS is EXCEPT, FETCH FIRST n ROWS ONLY is LIMIT n, which may also come
behind OFFSET."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot.tokenizer_core import Token, TokenType


def settle_spellings(tokens: list[Token]) -> Iterator[Token]:
    """The tokens of a text, with other spellings replaced."""
    settled = list(_replaced(tokens))
    for index in range(len(settled) - 3):
        end = index + (3 if settled[index + 2].text.upper() in ("ROW", "ROWS") else 2)
        limit = settled[end : end + 2]
        if settled[index].token_type is TokenType.OFFSET and limit[0].token_type is TokenType.LIMIT:
            settled[index : end + 2] = [*limit, *settled[index : index + 2]]
    return iter(settled)


def _replaced(tokens: list[Token]) -> Iterator[Token]:
    index = 0
    while index < len(tokens):
        token = tokens[index]
        ahead = [each.text.upper() for each in tokens[index + 1 : index + 5]]
        if token.text.upper() == "MINUS" and (ahead[:1] in (["SELECT"], ["ALL"]) or ahead[:2] == ["(", "SELECT"]):
            yield _as(token, TokenType.EXCEPT, "EXCEPT")
        elif token.text.upper() == "FETCH" and (length := _fetch_length(ahead)):
            yield _as(token, TokenType.LIMIT, "LIMIT")
            yield tokens[index + 2] if length == 4 else _as(tokens[index + 1], TokenType.NUMBER, "1")
            index += length
        else:
            yield token
        index += 1


def _fetch_length(ahead: list[str]) -> int:
    """How many words follow FETCH: FIRST|NEXT [n] ROW|ROWS ONLY."""
    if ahead[:1] not in (["FIRST"], ["NEXT"]):
        return 0
    rows = (["ROW", "ONLY"], ["ROWS", "ONLY"])
    return 3 if ahead[1:3] in rows else 4 if ahead[2:4] in rows else 0


def _as(token: Token, kind: TokenType, text: str) -> Token:
    return Token(kind, text, token.line, token.col, start=token.start, end=token.end)
