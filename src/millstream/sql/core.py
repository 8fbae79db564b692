"""The strict core of the parser: what may be a name, what a list is, and how failures are reported.

sqlglot's parser forgives much: it skips what it misses and drops what it cannot place. Here every token counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NoReturn, TypeVar, cast

from sqlglot import exp
from sqlglot.parser import SENTINEL_NONE, Parser
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import Token, TokenType

from millstream import limits
from millstream.errors import LimitError, Span
from millstream.sql import words
from millstream.sql.failures import SyntaxFailure, incomplete, quoted, reworded, span_of_token, typo_hint

T = TypeVar("T")
E = TypeVar("E", bound=exp.Expr)

# A trailing comma is forgiven where a list of SELECT, FROM or GROUP BY ends: the papers print such slips.
_LIST_ENDS = frozenset(
    {
        TokenType.FROM,
        TokenType.WHERE,
        TokenType.GROUP_BY,
        TokenType.HAVING,
        TokenType.ORDER_BY,
        TokenType.SENTINEL,
    }
)

_STEPS_AT_LEAST, _STEPS_PER_TOKEN = 100_000, 200
"""how often a statement may be gone back and forth in; usual ones take ten steps a token"""


class StrictParser(DuckDBParser):
    """Names, lists and errors."""

    TYPE_TOKENS: ClassVar = set(words.TYPE_TOKENS)
    ID_VAR_TOKENS: ClassVar[set[TokenType]] = set(words.NAME_TOKENS)
    ALIAS_TOKENS: ClassVar = set(words.ALIAS_TOKENS)
    TABLE_ALIAS_TOKENS: ClassVar[set[TokenType]] = set(words.ALIAS_TOKENS)
    PLACEHOLDER_PARSERS: ClassVar = {}

    _steps = 0
    _most_steps = 0

    def begin(self, tokens: int) -> None:
        """Before a statement of so many tokens is read."""
        self._steps, self._most_steps = 0, _STEPS_AT_LEAST + _STEPS_PER_TOKEN * tokens

    def _advance(self, times: int = 1) -> None:
        super()._advance(times)
        self._steps += 1
        if not self._steps & 0x3FF:
            # sqlglot tries one reading after the other: nested ones can multiply
            limits.check()
            if self._steps > self._most_steps:
                raise LimitError("the statement is too complex to parse", hint="nest it less deeply")

    def raise_error(self, message: str, token: Token = SENTINEL_NONE) -> NoReturn:
        found = token or self._curr
        raise self._failure(reworded(message, found), found)

    def unexpected(self, wanted: str | None = None) -> NoReturn:
        """Fail at the current token."""
        what = f"expected {wanted}, found {quoted(self._curr)}" if wanted else f"unexpected {quoted(self._curr)}"
        raise self._failure(what, self._curr)

    def _failure(self, message: str, found: Token) -> SyntaxFailure:
        before = self._prev
        if found:
            span = span_of_token(found)
        else:
            span = Span(before.end + 1, before.end + 2) if before else Span(0, 1)
        return SyntaxFailure(message, span, typo_hint(found, before))

    def validate_expression(self, expression: E, args: list[exp.Expr] | None = None) -> E:
        if expression.error_messages(args):
            arguments = None if args is None else len(args)
            raise self._failure(incomplete(expression, self._curr, arguments), self._curr)
        return expression

    def _parse_as_command(self, start: Token) -> NoReturn:
        self.raise_error(f"unexpected {quoted(start)}", start)

    def _expect(self, token_type: TokenType, wanted: str) -> None:
        if not self._match(token_type):
            self.unexpected(wanted)

    def _expect_words(self, *texts: str) -> None:
        for text in texts:
            if not self._match_text_seq(text):
                self.unexpected(text)

    def _parse_name(self, wanted: str) -> exp.Identifier:
        name = self._parse_id_var(any_token=False)
        if not isinstance(name, exp.Identifier):
            failure = self._failure(f"expected {wanted}, found {quoted(self._curr)}", self._curr)
            word = self._curr.text
            if self._curr and word.isalpha() and self._curr.token_type not in self.TEXT_MATCH_EXCLUDED_TOKENS:
                failure.hint = f'{word} is a reserved word; as a name, write "{word}"'
            raise failure
        return name

    def _advance_any(self, ignore_reserved: bool = False) -> Token | None:
        if self._curr.token_type in words.NAME_TOKENS:
            self._advance()
            return self._prev
        return None

    def _parse_string_as_identifier(self) -> None:
        """A string never is a name."""

    def _parse_csv(self, parse_method: Callable[[], T | None], sep: TokenType = TokenType.COMMA) -> list[T]:
        item = parse_method()
        items = [] if item is None else [item]
        while self._match(sep):
            if item is None:
                self._retreat(self._index - 1)
                self.unexpected()
            item = parse_method()
            if item is not None:
                items.append(item)
            elif self._curr.token_type in _LIST_ENDS:
                break
            else:
                self.unexpected("an expression")
        return items

    def _parse_list(self, parse_method: Callable[[], T | None], wanted: str) -> list[T]:
        """A comma-separated list with at least one element."""
        items = self._parse_csv(parse_method)
        if not items:
            self.unexpected(wanted)
        return items

    def _parse_alias(self, this: exp.Expr | None, explicit: bool = False) -> exp.Expr | None:
        node = super()._parse_alias(this, explicit=explicit)
        self._require_name_after_as()
        return node

    def _parse_table_alias(self, alias_tokens: object = None) -> exp.TableAlias | None:
        alias = Parser._parse_table_alias(self, alias_tokens=cast(None, alias_tokens))
        self._require_name_after_as()
        if alias is not None and alias.this is None:
            self.unexpected("a name before the list of columns")
        return alias

    def _parse_function_parameter(self) -> exp.Expr | None:
        # One name of `AS t (a, b)`; sqlglot would take types, too.
        return self._parse_id_var(any_token=False)

    def _require_name_after_as(self) -> None:
        if self._prev.token_type is TokenType.ALIAS:
            self.unexpected("a name after AS")
