"""Parameters: `$name` and `?` in a statement, with values that the caller gives.

A value takes the place of its parameter as the tokens of a literal, after the text was divided into tokens: whatever a
text holds, it is a constant and cannot become syntax. So parameters stand wherever literals may.
"""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from sqlglot.tokenizer_core import Token, TokenType

from millstream.errors import BindError, nearest
from millstream.records import dataclass
from millstream.sql.failures import SyntaxFailure, span_of_token

Parameters = Mapping[str, Any] | Sequence[Any]
"""values by name for `$name`, or in order for `?`"""


@dataclass(frozen=True)
class Symbol:
    """A parameter that stays open: it becomes a column of this name, whose type binding knows."""

    name: str

    @property
    def column(self) -> str:
        return f"${self.name}"


_NAMED = re.compile(r"\$\w+")
_HINT = "give values: sql(text, params={'name': value}) for $name, params=[value, …] for ?"


def is_parameter(token: Token) -> bool:
    """Whether a token stands for a value that is not in the text."""
    return token.token_type is TokenType.PLACEHOLDER or (
        token.token_type is TokenType.VAR and _NAMED.fullmatch(token.text) is not None
    )


def with_values(tokens: list[Token], params: Parameters | None) -> list[Token]:
    """The tokens of a text with literals in place of parameters; every value must be asked for."""
    if params is None:
        missing = next(filter(is_parameter, tokens), None)
        if missing is not None:
            raise SyntaxFailure(f"no value for the parameter {missing.text}", span_of_token(missing), _HINT)
        return tokens
    if isinstance(params, str | bytes) or not isinstance(params, Mapping | Sequence):
        raise BindError(f"params is a dict or a list, this is {type(params).__name__}", hint=_HINT)
    values = _Values(params)
    bound = [part for token in tokens for part in (values.literal(token) if is_parameter(token) else (token,))]
    values.require_all_used()
    return bound


class _Values:
    def __init__(self, params: Parameters) -> None:
        self._named = isinstance(params, Mapping)
        names = [str(key).removeprefix("$") for key in params] if isinstance(params, Mapping) else None
        given = list(params.values()) if isinstance(params, Mapping) else list(params)
        self._values: dict[str, Any] = dict(zip(names or map(str, range(1, len(given) + 1)), given, strict=True))
        self._used: set[str] = set()
        self._asked = 0

    def literal(self, token: Token) -> Iterator[Token]:
        key = token.text[1:]
        if token.token_type is TokenType.PLACEHOLDER:
            if self._named:
                raise SyntaxFailure("? takes its value from a list", span_of_token(token), _HINT)
            self._asked += 1
            key = str(self._asked)
        if key not in self._values:
            close = nearest(key, self._values) if self._named else []
            hint = f"did you mean ${close[0]}?" if close else _HINT
            raise SyntaxFailure(f"no value for the parameter {token.text}", span_of_token(token), hint)
        self._used.add(key)
        try:
            parts = list(_literal(self._values[key]))
        except ValueError as error:
            raise SyntaxFailure(f"the parameter {token.text} {error}", span_of_token(token)) from None
        for kind, text in parts:
            yield Token(kind, text, token.line, token.col, start=token.start, end=token.end)

    def require_all_used(self) -> None:
        left = [key for key in self._values if key not in self._used]
        if left and self._named:
            raise BindError(f"no parameter ${left[0]} in the statement", hint="leave it out of params")
        if left:
            raise BindError(f"{len(self._values)} values for {len(self._used)} parameters")


Parts = Iterator[tuple[TokenType, str]]


def _literal(value: Any) -> Parts:
    """The tokens of a constant of a Python value."""
    match value:
        case None:
            yield TokenType.NULL, "NULL"
        case bool():
            yield (TokenType.TRUE, "TRUE") if value else (TokenType.FALSE, "FALSE")
        case int():
            if not -(2**63) <= value < 2**63:
                yield from _cast(str(value), (TokenType.DECIMAL, "DECIMAL"), 38, 0)
            elif value < 0:
                yield from ((TokenType.L_PAREN, "("), (TokenType.DASH, "-"))
                yield from ((TokenType.NUMBER, str(-value)), (TokenType.R_PAREN, ")"))
            else:
                yield TokenType.NUMBER, str(value)
        case float():
            yield from _cast(repr(value), (TokenType.DOUBLE, "DOUBLE"))
        case Decimal():
            yield from _decimal(value)
        case str():
            yield TokenType.STRING, value
        case bytes() | bytearray():
            yield from ((TokenType.VAR, "unhex"), (TokenType.L_PAREN, "("))
            yield from ((TokenType.STRING, value.hex()), (TokenType.R_PAREN, ")"))
        case dt.datetime():
            zoned = value.tzinfo is not None
            kind = (TokenType.TIMESTAMPTZ, "TIMESTAMPTZ") if zoned else (TokenType.TIMESTAMPNTZ, "TIMESTAMP")
            yield from _cast(value.isoformat(" "), kind)
        case dt.date():
            yield from _cast(value.isoformat(), (TokenType.DATE, "DATE"))
        case dt.time():
            yield from _cast(value.isoformat(), (TokenType.TIME, "TIME"))
        case dt.timedelta():
            micros = value // dt.timedelta(microseconds=1)
            yield from ((TokenType.INTERVAL, "INTERVAL"), (TokenType.STRING, str(micros)))
            yield TokenType.VAR, "MICROSECOND"
        case Symbol():
            yield TokenType.IDENTIFIER, value.column
        case uuid.UUID():
            yield TokenType.STRING, str(value)
        case list() | tuple():
            yield TokenType.L_BRACKET, "["
            for place, part in enumerate(value):
                if place:
                    yield TokenType.COMMA, ","
                yield from _literal(part)
            yield TokenType.R_BRACKET, "]"
        case _ if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
            yield from _literal(value.item())  # a number of NumPy
        case _:
            raise ValueError(f"has the Python type {type(value).__name__}, which has no SQL type")


def _decimal(value: Decimal) -> Parts:
    if not value.is_finite():
        raise ValueError(f"is {value}, which is not a DECIMAL")
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    precision = max(len(digits) + max(0, int(exponent)), scale, 1)
    if precision > 38:
        raise ValueError("has more than 38 digits")
    yield from _cast(f"{value:f}", (TokenType.DECIMAL, "DECIMAL"), precision, scale)


def _cast(text: str, type_: tuple[TokenType, str], *sizes: int) -> Parts:
    yield from ((TokenType.VAR, "CAST"), (TokenType.L_PAREN, "("), (TokenType.STRING, text), (TokenType.ALIAS, "AS"))
    yield type_
    if sizes:
        yield TokenType.L_PAREN, "("
        for place, size in enumerate(sizes):
            if place:
                yield TokenType.COMMA, ","
            yield TokenType.NUMBER, str(size)
        yield TokenType.R_PAREN, ")"
    yield TokenType.R_PAREN, ")"
