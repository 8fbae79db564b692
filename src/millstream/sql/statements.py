"""Text → statements, and statements → text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import sqlglot.errors
from sqlglot import exp
from sqlglot.errors import ErrorLevel
from sqlglot.tokenizer_core import Token, TokenType

from millstream import limits
from millstream.errors import LimitError, MillstreamError, ParseError, Span
from millstream.records import dataclass
from millstream.sql import words
from millstream.sql.dialect import Millstream
from millstream.sql.event_tokens import settle_events
from millstream.sql.failures import SyntaxFailure, quoted, span_of_token
from millstream.sql.parameters import Parameters, is_parameter, with_values
from millstream.sql.parser import MillstreamParser
from millstream.sql.pattern_tokens import settle_patterns
from millstream.sql.spans import span_of
from millstream.sql.spellings import settle_spellings

_DIALECT = Millstream()
_OPENING = {TokenType.L_PAREN: ")", TokenType.L_BRACKET: "]", TokenType.L_BRACE: "}"}
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
_FOREIGN = (TokenType.PARAMETER, TokenType.PLACEHOLDER, TokenType.HASH, TokenType.BACKSLASH, TokenType.UNKNOWN)
_OPERANDS = words.NAME_TOKENS | {TokenType.NUMBER, TokenType.STRING, TokenType.R_PAREN}
_NOTHING = Token(TokenType.SENTINEL, "", start=-1, end=-2)
_NUMBER = re.compile(r"(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)([eE][+-]?\d+)?")
_NO_DIGITS = re.compile(r"\b[xX]'[^']*[^'0-9a-fA-F][^']*'")
_WORD = re.compile(r"[^\W\d][\w$]*")

LONGEST = 4_000_000
"""characters of a text of statements"""
_A_SECOND = 200_000
"""characters that are read in less than a second, also by a machine that has other things to do"""


@dataclass(frozen=True)
class Statement:
    """One statement: its AST, its own text, and the offset of that text in the whole text parsed."""

    ast: exp.Expression
    text: str
    offset: int


def parameter_names(text: str) -> tuple[str, ...]:
    """The names of the parameters of a text, each once."""
    try:
        return tuple(dict.fromkeys(token.text[1:] for token in _tokenize(text) if is_parameter(token)))
    except SyntaxFailure as failure:
        raise failure.told(text) from None


def parse(text: str, params: Parameters | None = None) -> list[Statement]:
    """The statements of a text, separated by semicolons; ParseError for anything else. `params` are the values of its
    parameters; the text of a statement that has some is written anew, with the values in their places."""
    _check_length(text)
    _check_unicode(text)
    parser = MillstreamParser(dialect=_DIALECT)
    try:
        tokens = _tokenize(text)
        given = any(map(is_parameter, tokens))
        tokens = with_values(tokens, params)
        _check(tokens)
        parsed = [_parse_one(parser, part, text) for part in _split(tokens)]
        return [replace(each, text=to_sql(each.ast)) for each in parsed] if given else parsed
    except SyntaxFailure as failure:
        raise failure.told(text) from None
    except LimitError as error:
        error.span, error.sql = error.span or _position(parser), text
        raise
    except MillstreamError:
        raise
    except RecursionError:
        raise ParseError("the statement is nested too deeply", span=_position(parser), sql=text) from None
    except Exception as error:
        # sqlglot builds nodes while it reads and trips over some malformed input in ways of its own.
        raise ParseError(
            f"cannot read the statement at {quoted(parser._curr)}", detail=str(error), span=_position(parser), sql=text
        ) from error


def _check_length(text: str) -> None:
    """Reading words cannot be interrupted, so a text must be short enough for the time that a statement has."""
    work = limits.current()
    seconds = work.limits.seconds if work is not None else 0.0
    most = min(LONGEST, int(seconds * _A_SECOND)) if seconds else LONGEST
    if len(text) > most:
        detail = "limited by the setting statement_timeout" if most < LONGEST else None
        raise LimitError(f"the text has {len(text):,} characters; at most {most:,} are allowed", detail=detail)


def to_sql(ast: exp.Expr) -> str:
    """The text of a statement or of any part of one; `parse` reads it back to an equal AST."""
    try:
        return _DIALECT.generate(ast, comments=False, normalize_functions=False, unsupported_level=ErrorLevel.IGNORE)
    except RecursionError:
        raise ParseError("the statement is nested too deeply", span=span_of(ast)) from None


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        span = Span(error.start, error.end)
        shown = text.encode(errors="replace").decode()
        raise ParseError("this is an incomplete character", span=span, sql=shown) from None


def _parse_one(parser: MillstreamParser, tokens: list[Token], text: str) -> Statement:
    start, end = tokens[0].start, tokens[-1].end + 1
    _match_brackets(tokens, text[end:].lstrip()[:1] == ";")
    return Statement(parser.parse_tokens(tokens, text), text[start:end], start)


def _position(parser: MillstreamParser) -> Span:
    return span_of_token(parser._curr or parser._prev)


def _tokenize(text: str) -> list[Token]:
    try:
        tokens = _DIALECT.tokenize(text)
    except sqlglot.errors.TokenError as error:
        raise _lexical_failure(text, error) from None
    tokens = list(settle_spellings(list(settle_events(list(settle_patterns(tokens))))))
    for token in tokens:
        # sqlglot carries comments into the tree and takes some of them for instructions.
        token.comments = []
    return tokens


def _lexical_failure(text: str, error: sqlglot.errors.TokenError) -> SyntaxFailure:
    missing = re.match(r"Missing (\S+) from \d+:(\d+)", str(error.__cause__))
    if missing:
        start = min(int(missing[2]), max(0, len(text) - 1))
        return SyntaxFailure(f"expected a closing {missing[1]}, found the end of the text", Span(start, len(text)))
    if "Numeric string" in str(error.__cause__) and (digits := _NO_DIGITS.search(text)):
        return SyntaxFailure("x'…' has the digits 0 to 9 and a to f", Span(*digits.span()))
    opened = text.rfind("/*")
    if opened >= 0:
        return SyntaxFailure("this comment is never closed", Span(opened, len(text)))
    return SyntaxFailure("cannot read the text", Span(error.start or 0, len(text)))


def _check(tokens: list[Token]) -> None:
    """Refuse tokens that are none of ours or stand beside each other as they never may."""
    before = farther = _NOTHING
    for token in tokens:
        if message := _foreign(token) or _misplaced(token, before, farther):
            hint = 'names that are reserved words or have special characters need double quotes: "…"'
            raise SyntaxFailure(message, span_of_token(token), hint if _could_be_quoted(token, before) else None)
        farther, before = before, token


def _foreign(token: Token) -> str | None:
    if token.token_type in _FOREIGN or (token.token_type is TokenType.VAR and not _WORD.fullmatch(token.text)):
        return f"unexpected character {token.text[:1]!r}"
    if token.token_type is TokenType.NUMBER and not _NUMBER.fullmatch(token.text):
        return f"{token.text[:40]} is not a number"
    return None


def _misplaced(token: Token, before: Token, farther: Token) -> str | None:
    kind = token.token_type
    touching = token.start == before.end + 1
    if before.token_type is TokenType.NUMBER and (kind is TokenType.DOT or (touching and token.text[:1].isalnum())):
        return f"unexpected {quoted(token)} after a number"
    if before.token_type is TokenType.DOT:
        # `.5` is a number, `a.5` is nothing.
        fraction = kind is TokenType.NUMBER and touching and farther.token_type not in _OPERANDS
        if not fraction and kind is not TokenType.STAR and kind not in words.NAME_TOKENS:
            return f"expected a name after '.', found {quoted(token)}"
    if kind is TokenType.STRING and before.token_type is TokenType.STRING:
        return "expected ',' or an operator between two strings"
    return None


def _could_be_quoted(token: Token, before: Token) -> bool:
    return token.text == "`" or (before.token_type is TokenType.DOT and token.text[:1].isalpha())


def _match_brackets(tokens: list[Token], is_ended: bool) -> None:
    """Refuse a statement whose parentheses do not match; `is_ended`: a `;` follows."""
    unclosed: list[Token] = []
    for token in tokens:
        if token.token_type in _OPENING:
            unclosed.append(token)
        elif token.token_type in _CLOSING and (not unclosed or _OPENING[unclosed.pop().token_type] != token.text):
            raise SyntaxFailure(f"unexpected {quoted(token)}", span_of_token(token))
    if unclosed:
        hint = (
            "the next ';' ends the statement; if it is in the wrong place, remove it or write ','" if is_ended else None
        )
        raise SyntaxFailure(f"this {quoted(unclosed[-1])} is never closed", span_of_token(unclosed[-1]), hint)


def _split(tokens: list[Token]) -> Iterator[list[Token]]:
    """The tokens of each statement; the `;` inside braces belong to the body of an aggregate.

    The papers print a stray `;` before SOURCE; there the declaration goes on.
    """
    statement: list[Token] = []
    depth = 0
    for index, token in enumerate(tokens):
        if token.token_type is TokenType.L_BRACE:
            depth += 1
        elif token.token_type is TokenType.R_BRACE:
            depth = max(0, depth - 1)
        if token.token_type is not TokenType.SEMICOLON or depth:
            statement.append(token)
        elif statement and not (_declares_stream(statement) and _is_source(tokens[index + 1 : index + 3])):
            yield statement
            statement = []
    if statement:
        yield statement


def _declares_stream(tokens: list[Token]) -> bool:
    head = [token.text.upper() for token in tokens[:4]]
    return head[:1] == ["STREAM"] or (head[:1] == ["CREATE"] and "STREAM" in head)


def _is_source(tokens: list[Token]) -> bool:
    return (
        len(tokens) == 2
        and tokens[0].text.upper() == "SOURCE"
        and tokens[1].token_type in (TokenType.STRING, TokenType.VAR)
    )
