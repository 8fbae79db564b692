"""What stands in PATTERN (…)."""

from __future__ import annotations

from typing import TypeVar

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from millstream.errors import Span
from millstream.sql import words
from millstream.sql.expressions import ExpressionParser
from millstream.sql.failures import SyntaxFailure, quoted
from millstream.sql.pattern_tokens import QUESTION_MARK
from millstream.sql.patterns import (
    PatternChoice,
    PatternEdge,
    PatternExclusion,
    PatternPermutation,
    PatternQuantifier,
    PatternSequence,
    PatternVariable,
    RowPattern,
)
from millstream.sql.spans import cover

VARIABLE = "a variable of the pattern"
_SHORT_QUANTIFIERS = {TokenType.STAR: (0, None), TokenType.PLUS: (1, None), QUESTION_MARK: (0, 1)}
_IN_PARENTHESES = "put the repeated part into parentheses"
_SLIPS = {TokenType.DPIPE: "alternatives are separated by a single |", TokenType.DSTAR: _IN_PARENTHESES}
_MOST_DIGITS = 9

E = TypeVar("E", bound=exp.Expr)


class RowPatternParser(ExpressionParser):
    """Regular expressions over variables."""

    def _parse_row_pattern(self) -> RowPattern:
        first = self._curr
        options = [self._parse_pattern_sequence()]
        while self._match(TokenType.PIPE):
            options.append(self._parse_pattern_sequence())
        if self._curr.token_type in _SLIPS:
            raise self._hinted(f"unexpected {quoted(self._curr)}", _SLIPS[self._curr.token_type])
        return self._covered(PatternChoice(expressions=options), first) if len(options) > 1 else options[0]

    def _parse_pattern_sequence(self) -> RowPattern:
        first = self._curr
        parts: list[RowPattern] = []
        while part := self._parse_pattern_primary():
            parts.append(self._parse_quantified(part))
        if not parts:
            raise self._hinted(f"expected {VARIABLE}, found {quoted(self._curr)}", "() means no row at all")
        return self._covered(PatternSequence(expressions=parts), first) if len(parts) > 1 else parts[0]

    def _parse_pattern_primary(self) -> RowPattern | None:
        first = self._curr
        node: RowPattern
        if self._match(TokenType.L_PAREN):
            empty = self._match(TokenType.R_PAREN, advance=False)
            node = PatternSequence(expressions=[]) if empty else self._parse_row_pattern()
            self._expect(TokenType.R_PAREN, "')'")
        elif self._match_pair(TokenType.L_BRACE, TokenType.DASH):
            node = PatternExclusion(this=self._parse_row_pattern())
            self._expect(TokenType.DASH, "'-}'")
            self._expect(TokenType.R_BRACE, "'-}'")
        elif self._match(TokenType.CARET) or self._match(TokenType.DOLLAR):
            node = PatternEdge(end=self._prev.token_type is TokenType.DOLLAR)
        elif self._match_text_seq("PERMUTE", "("):
            node = PatternPermutation(expressions=self._parse_csv(self._parse_row_pattern))
            self._expect(TokenType.R_PAREN, "')'")
        elif first.token_type in words.NAME_TOKENS:
            node = PatternVariable(this=self._parse_name(VARIABLE))
        else:
            return None
        return self._covered(node, first)

    def _parse_quantified(self, part: RowPattern) -> RowPattern:
        """The part with its quantifier, if one follows."""
        sign = self._curr
        if sign.token_type in _SHORT_QUANTIFIERS:
            self._advance()
            least, most = _SHORT_QUANTIFIERS[sign.token_type]
        elif self._at_bounds():
            least, most = self._parse_bounds()
        else:
            return part
        node = PatternQuantifier(this=part, least=least, most=most, reluctant=bool(self._match(QUESTION_MARK)))
        if self._curr.token_type in _SHORT_QUANTIFIERS or self._at_bounds():
            raise self._hinted(f"unexpected {quoted(self._curr)} after a quantifier", _IN_PARENTHESES)
        node.meta["start"], node.meta["end"] = part.meta["start"], self._prev.end
        return node

    def _at_bounds(self) -> bool:
        return self._curr.token_type is TokenType.L_BRACE and self._next.token_type is not TokenType.DASH

    def _parse_bounds(self) -> tuple[int, int | None]:
        """`{n}`, `{n,}`, `{,m}`, `{n,m}` or `{,}`."""
        first = self._curr
        self._advance()
        least = self._parse_count()
        if self._match(TokenType.COMMA):
            most = self._parse_count()
        elif least is not None:
            most = least
        else:
            self.unexpected("a number or ','")
        self._expect(TokenType.R_BRACE, "'}'")
        place = Span(first.start, self._prev.end + 1)
        if most == 0:
            raise SyntaxFailure("a pattern cannot repeat at most 0 times", place, "leave it out")
        if most is not None and most < (least or 0):
            raise SyntaxFailure(
                f"a pattern cannot repeat at least {least} and at most {most} times",
                place,
                f"did you mean {{{most},{least}}}?",
            )
        return least or 0, most

    def _parse_count(self) -> int | None:
        if not self._match(TokenType.NUMBER):
            return None
        token = self._prev
        if not token.text.isdecimal() or len(token.text) > _MOST_DIGITS:
            raise self._failure(f"expected a whole number of at most {_MOST_DIGITS} digits", token)
        return int(token.text)

    def _covered(self, node: E, first: Token) -> E:
        cover(node, first, self._prev)
        return node

    def _hinted(self, message: str, hint: str) -> SyntaxFailure:
        failure = self._failure(message, self._curr)
        failure.hint = hint
        return failure
