"""Time spans: `10 SECONDS` and INTERVAL literals, all read to one form."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from millstream.errors import Span
from millstream.sql.core import StrictParser
from millstream.sql.durations import AMOUNT, CLOCK, UNITS, example_of_fields, fields_from, parts_of, parts_of_fields
from millstream.sql.failures import SyntaxFailure, did_you_mean, quoted, span_of_token
from millstream.sql.spans import cover

_AMOUNTS = (TokenType.NUMBER, TokenType.STRING)


class IntervalParser(StrictParser):
    """An Interval holds its amount as a string (or an expression) and its unit as a Var in the singular."""

    # Whether the body of an aggregate is being read, and at which token the current item of a SELECT list began.
    _in_body = False
    _item_start = -1

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> exp.Expr | None:
        """An operand. Inside the body of an aggregate a span needs no INTERVAL: `num_min minutes`, `5 minutes`."""
        first = self._curr
        # A unit behind a whole item of a SELECT list is its alias.
        spans = self._in_body and not fallback_to_identifier and self._index != self._item_start
        if spans and first.token_type is TokenType.NUMBER and self._is_unit(self._next):
            return self._parse_time_span()
        node = super()._parse_type(parse_interval, fallback_to_identifier)
        if spans and type(node) is exp.Column and self._is_unit(self._curr):
            node = exp.Interval(this=node, unit=self._parse_unit())
            cover(node, first, self._prev)
        return node

    def _is_unit(self, token: Token) -> bool:
        return token.token_type is TokenType.VAR and token.text.upper() in UNITS

    def _parse_time_span(self) -> exp.Interval | None:
        """`10 SECONDS`, `$n SECONDS` or an INTERVAL; None (and nothing consumed) if a span does not start here."""
        if self._is_open_parameter() and self._is_unit(self._next):
            first = self._curr
            node = exp.Interval(this=self._parse_column(), unit=self._parse_unit())
            cover(node, first, self._prev)
            return node
        if self._curr.token_type is TokenType.NUMBER and self._next.token_type is TokenType.VAR:
            if self._next.text.upper() in self.WINDOW_SIDES:
                return None
            first = self._curr
            self._advance()
            node = exp.Interval(this=exp.Literal.string(first.text), unit=self._parse_unit())
            cover(node, first, self._prev)
            return node
        return self._parse_interval()

    def _is_open_parameter(self) -> bool:
        """Whether a parameter comes that has no value yet: it was read as a column of this name."""
        return self._curr.token_type is TokenType.IDENTIFIER and self._curr.text.startswith("$")

    def _parse_length(self) -> exp.Expr | None:
        """A number, or a parameter that has no value yet."""
        return self._parse_column() if self._is_open_parameter() else self._parse_number()

    def _parse_unit(self) -> exp.Var:
        unit = UNITS.get(self._curr.text.upper()) if self._curr.token_type is TokenType.VAR else None
        if unit is None:
            failure = self._failure(f"expected a unit of time, found {quoted(self._curr)}", self._curr)
            failure.hint = did_you_mean(self._curr.text, tuple(UNITS)) or "SECONDS, MINUTES, HOURS, DAYS, …"
            raise failure
        self._advance()
        return exp.Var(this=unit)

    def _parse_interval(self, require_interval: bool = True, parse_function_unit: bool = True) -> exp.Interval | None:
        """An INTERVAL literal; None if the word is a name here."""
        first = self._curr
        if first.token_type is not TokenType.INTERVAL:
            return None
        index = self._index
        self._advance()
        node = self._parse_interval_body()
        if node is None:
            self._retreat(index)
            return None
        cover(node, first, self._prev)
        return node

    def _parse_interval_body(self) -> exp.Interval | None:
        if self._match(TokenType.STRING):
            return self._parse_interval_text(self._prev)
        if self._match(TokenType.NUMBER):
            return exp.Interval(this=exp.Literal.string(self._prev.text), unit=self._parse_unit())
        if self._is_negative_amount():
            self._advance(2)
            if self._prev.token_type is TokenType.STRING:
                return self._parse_interval_text(self._prev, "-")
            return exp.Interval(this=exp.Literal.string(f"-{self._prev.text}"), unit=self._parse_unit())
        amount = self._parse_paren() if self._match(TokenType.L_PAREN, advance=False) else self._parse_column()
        if not isinstance(amount, exp.Paren | exp.Column) or self._curr.text.upper() not in UNITS:
            return None
        if isinstance(amount, exp.Paren):
            # Prints in parentheses anyway; a number prints as a string.
            inner = amount.this
            number = isinstance(inner, exp.Literal) and not inner.is_string
            amount = exp.Literal.string(inner.name) if number else inner
        return exp.Interval(this=amount, unit=self._parse_unit())

    def _is_negative_amount(self) -> bool:
        """`-5 SECONDS`, as against `interval - 5` of a column called interval."""
        unit = self._tokens[self._index + 2 : self._index + 3]
        signed = any(self._match_pair(TokenType.DASH, kind, advance=False) for kind in _AMOUNTS)
        return signed and unit != [] and unit[0].text.upper() in UNITS

    def _parse_interval_text(self, token: Token, sign: str = "") -> exp.Interval:
        """The rest of `INTERVAL '…'`: the unit follows a number, or two of them follow fields; others hold units."""
        text = sign + token.text.strip()
        if self._is_unit(self._curr) and self._next.text.upper() == "TO":
            return self._parse_fields(text, token)
        if AMOUNT.fullmatch(text):
            return exp.Interval(this=exp.Literal.string(text), unit=self._parse_unit())
        parts = parts_of(text)
        if parts is None and not CLOCK.fullmatch(text):
            raise SyntaxFailure(f"cannot read '{token.text}' as a time span", span_of_token(token))
        if parts is not None and len(parts) == 1:
            return exp.Interval(this=exp.Literal.string(parts[0][0]), unit=exp.Var(this=parts[0][1]))
        whole = text if parts is None else " ".join(f"{amount} {unit}" for amount, unit in parts)
        return exp.Interval(this=exp.Literal.string(whole))

    def _parse_fields(self, text: str, token: Token) -> exp.Interval:
        """`MINUTE TO SECOND` behind '1:30', and the like."""
        first = self._curr
        larger = self._parse_unit().name
        self._expect_words("TO")
        smaller = self._parse_unit().name
        fields = fields_from(larger, smaller)
        if fields is None:
            place = Span(first.start, self._prev.end + 1)
            hint = "YEAR TO MONTH, or from DAY, HOUR or MINUTE to a smaller one, down to SECOND"
            raise SyntaxFailure(f"no interval goes from {larger} to {smaller}", place, hint)
        parts = parts_of_fields(text, fields)
        if parts is None:
            message = f"cannot read '{token.text}' as {larger} TO {smaller}"
            raise SyntaxFailure(message, span_of_token(token), f"write it like '{example_of_fields(fields)}'")
        return exp.Interval(this=exp.Literal.string(" ".join(f"{amount} {unit}" for amount, unit in parts)))
