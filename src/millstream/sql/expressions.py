"""Expressions: operators, CASE, functions, intervals and OVER."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp
from sqlglot.parser import Parser
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokens import Token, TokenType

from millstream.sql import functions
from millstream.sql.core import StrictParser
from millstream.sql.durations import AMOUNT, CLOCK, UNITS, parts_of
from millstream.sql.failures import SyntaxFailure, did_you_mean, span_of_token
from millstream.sql.spans import cover

_FRAME_KINDS = ("ROWS", "RANGE", "GROUPS")
_WRAPPERS = (exp.Window, exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)


class ExpressionParser(StrictParser):
    """What may stand in a SELECT list or a condition."""

    PRIMARY_PARSERS = {
        **{
            token: DuckDBParser.PRIMARY_PARSERS[token]
            for token in (TokenType.STRING, TokenType.NUMBER, TokenType.HEX_STRING, TokenType.STAR)
        },
        # sqlglot's own parsers of these leave out where the word stood.
        TokenType.NULL: lambda self, token: self.expression(exp.Null(), token),
        TokenType.TRUE: lambda self, token: self.expression(exp.Boolean(this=True), token),
        TokenType.FALSE: lambda self, token: self.expression(exp.Boolean(this=False), token),
    }
    RANGE_PARSERS = {
        token: DuckDBParser.RANGE_PARSERS[token]
        for token in (TokenType.BETWEEN, TokenType.ILIKE, TokenType.IN, TokenType.IS, TokenType.LIKE)
    }
    COLUMN_OPERATORS = {token: DuckDBParser.COLUMN_OPERATORS[token] for token in (TokenType.DOT, TokenType.DCOLON)}
    NO_PAREN_FUNCTIONS = {
        TokenType.CURRENT_DATE: exp.CurrentDate,
        TokenType.CURRENT_TIMESTAMP: exp.CurrentTimestamp,
    }
    NO_PAREN_FUNCTION_PARSERS = {"CASE": lambda self: self._parse_case()}
    FUNCTIONS = functions.FUNCTIONS
    FUNCTION_PARSERS = functions.FUNCTION_PARSERS
    SIGNED_TO_UNSIGNED_TYPE_TOKEN: dict[TokenType, TokenType] = {}
    JSON_OPERATORS: dict[TokenType, Callable[..., Any]] = {}
    ASSIGNMENT: dict[TokenType, type[exp.Expr]] = {}
    BRACKETS: frozenset[TokenType] = frozenset()
    # Empty so that sqlglot's `_parse_window` reads FILTER, WITHIN GROUP and IGNORE NULLS and leaves OVER to us.
    WINDOW_BEFORE_PAREN_TOKENS: set[TokenType] = set()

    def _parse_expression(self) -> exp.Expr | None:
        # DuckDB's prefix alias (`name: value`) is left out: a colon belongs to the bodies of aggregates.
        return Parser._parse_expression(self)

    def _parse_unary(self) -> exp.Expr | None:
        first = self._curr
        node = super()._parse_unary()
        if node is not None and first.token_type in self.UNARY_PARSERS:
            cover(node, first, self._prev)
        return node

    def _parse_paren(self) -> exp.Expr | None:
        first = self._curr
        node = super()._parse_paren()
        if node is not None:
            cover(node, first, self._prev)
        return node

    def _parse_types(
        self,
        check_func: bool = False,
        schema: bool = False,
        allow_identifiers: bool = True,
        with_collation: bool = False,
    ) -> exp.Expr | None:
        first = self._curr
        if allow_identifiers and first.token_type is TokenType.VAR:
            # A type we do not know by name; the binder says so, with the place.
            self._advance()
            node: exp.Expr | None = exp.DataType(this=exp.DType.USERDEFINED, kind=first.text)
        else:
            node = super()._parse_types(check_func, schema, False, with_collation)
            ending = [token.token_type for token in self._tokens[self._index - 2 : self._index]]
            if node is not None and ending == [TokenType.L_PAREN, TokenType.R_PAREN]:
                self._retreat(self._index - 1)
                self.unexpected("a number")
        if node is not None:
            cover(node, first, self._prev)
        return node

    def _parse_type_size(self) -> exp.DataTypeParam | None:
        """One number of DECIMAL(10, 2)."""
        if not self._match(TokenType.NUMBER, advance=False):
            return None
        return self.expression(exp.DataTypeParam(this=self._parse_number()))

    def _parse_case(self) -> exp.Case:
        first = self._prev
        operand = None if self._match(TokenType.WHEN, advance=False) else self._parse_disjunction()
        branches = []
        while self._match(TokenType.WHEN):
            condition = self._parse_disjunction()
            self._expect(TokenType.THEN, "THEN")
            branches.append(self.expression(exp.If(this=condition, true=self._parse_disjunction())))
        if not branches:
            self.unexpected("WHEN")
        default = self._parse_operand() if self._match(TokenType.ELSE) else None
        self._expect(TokenType.END, "END")
        node = self.expression(exp.Case(this=operand, ifs=branches, default=default))
        cover(node, first, self._prev)
        return node

    def _parse_operand(self) -> exp.Expr:
        node = self._parse_disjunction()
        if node is None:
            self.unexpected("an expression")
        return node

    def _parse_cast(self, strict: bool, safe: bool | None = None) -> exp.Expr:
        value = self._parse_operand()
        self._expect(TokenType.ALIAS, "AS")
        kind = self._parse_types()
        if kind is None:
            self.unexpected("a type")
        return self.build_cast(strict=strict, this=value, to=kind, safe=safe)

    def _parse_substring(self) -> exp.Substring:
        """SUBSTRING(x FROM start [FOR length]) or SUBSTRING(x, start[, length])."""
        whole = self._parse_operand()
        if not self._match(TokenType.FROM) and not self._match(TokenType.COMMA):
            self.unexpected("FROM or ','")
        start = self._parse_operand()
        more = self._match_text_seq("FOR") or self._match(TokenType.COMMA)
        return self.expression(exp.Substring(this=whole, start=start, length=self._parse_operand() if more else None))

    def _parse_trim(self) -> exp.Trim:
        node = super()._parse_trim()
        if node.args.get("position") == "BOTH":
            node.set("position", None)
        return node

    def _parse_position(self, haystack_first: bool = False) -> exp.StrPosition:
        """POSITION(part IN whole)."""
        part = self._parse_bitwise()
        self._expect(TokenType.IN, "IN")
        return self.expression(exp.StrPosition(this=self._parse_bitwise(), substr=part))

    def _parse_between(self, this: exp.Expr | None) -> exp.Between:
        # IS binds looser than BETWEEN: without parentheses the text would be read back differently.
        if isinstance(this, exp.Is | exp.NullSafeEQ | exp.NullSafeNEQ):
            this = exp.Paren(this=this)
        low = self._parse_bitwise()
        self._expect(TokenType.AND, "AND")
        return self.expression(exp.Between(this=this, low=low, high=self._parse_bitwise()))

    def _parse_in(self, this: exp.Expr | None, alias: bool = False) -> exp.In:
        if not self._match(TokenType.L_PAREN, advance=False):
            self.unexpected("'('")
        node = super()._parse_in(this, alias=alias)
        if not node.expressions and not node.args.get("query"):
            self._retreat(self._index - 1)
            self.unexpected("an expression")
        node.meta["start"], node.meta["end"] = self._prev.start, self._prev.end
        return node

    def _parse_is_rhs(self, distinct: bool = False) -> exp.Expr | None:
        rhs = super()._parse_is_rhs(distinct)
        if rhs is None or not (distinct or isinstance(rhs, exp.Null | exp.Boolean)):
            self.unexpected("NULL, TRUE, FALSE or DISTINCT FROM")
        return rhs

    # Functions and OVER

    def _parse_function(
        self,
        functions: dict[str, Callable[..., Any]] | None = None,
        anonymous: bool = False,
        optional_parens: bool = True,
        any_token: bool = False,
    ) -> exp.Expr | None:
        first = self._curr
        node = self._parse_function_call(functions, anonymous, optional_parens, any_token)
        if node is not None:
            cover(node, first, self._prev)
            call = node
            while isinstance(call, _WRAPPERS):
                call = call.this
            call.meta["start"] = first.start
            call.meta["called_as"] = first.text
        return node

    def _parse_lambda(self, alias: bool = False) -> exp.Expr | None:
        """One argument of a call: `name => value`, `DISTINCT x, …`, or an expression with ORDER BY or IGNORE NULLS behind."""
        if self._next.token_type is TokenType.FARROW:
            name = self._parse_name("the name of a parameter")
            self._advance()
            return self.expression(exp.Kwarg(this=exp.var(name.name), expression=self._parse_operand()))
        if self._match(TokenType.DISTINCT):
            values = self._parse_list(self._parse_disjunction, "an expression")
            argument: exp.Expr | None = self.expression(exp.Distinct(expressions=values))
        elif self._match(TokenType.ALL):
            argument = self._parse_operand()
        else:
            argument = self._parse_disjunction()
        if argument is None:
            return None
        return self._parse_respect_or_ignore_nulls(self._parse_order(self._parse_respect_or_ignore_nulls(argument)))

    def _parse_window(self, this: exp.Expr | None, alias: bool = False) -> exp.Expr | None:
        if alias:
            return self._parse_window_definition(this)
        # sqlglot comes here right behind a call, whose closing parenthesis it does not insist on.
        if self._prev.token_type not in (TokenType.R_PAREN, TokenType.END):
            self.unexpected("')'")
        if this is not None:
            this.meta["end"] = self._prev.end
            this.meta.setdefault("start", self._prev.start)
        function = super()._parse_window(this)
        if not self._match(TokenType.OVER):
            return function
        return self.expression(exp.Window(this=function, over="OVER", **self._parse_over()))

    def _parse_window_definition(self, name: exp.Expr | None) -> exp.Window:
        """`w AS (…)` of a WINDOW clause."""
        if name is None:
            self.unexpected("the name of a window")
        self._expect(TokenType.ALIAS, "AS")
        self._expect(TokenType.L_PAREN, "'('")
        body = self._parse_over_body()
        self._match_r_paren()
        return self.expression(exp.Window(this=name, **body))

    def _parse_over(self) -> dict[str, Any]:
        """What follows OVER: the name of a window, or a body in parentheses."""
        if not self._match(TokenType.L_PAREN):
            return {"alias": self._parse_name("'(' or the name of a window")}
        body = self._parse_over_body()
        self._match_r_paren()
        return body

    def _parse_over_body(self) -> dict[str, Any]:
        base = None if self._match_texts(_FRAME_KINDS, advance=False) else self._parse_id_var(any_token=False)
        return {
            "alias": base,
            "partition_by": self._parse_partition_by(),
            "order": self._parse_order(),
            "spec": self._parse_frame(),
        }

    def _parse_partition_by(self) -> list[exp.Expr]:
        if not self._match(TokenType.PARTITION_BY):
            return []
        return self._parse_list(self._parse_disjunction, "an expression")

    def _parse_frame(self) -> exp.WindowSpec | None:
        """ROWS | RANGE with its bounds; one bound alone means up to the current row."""
        if not self._match_texts(_FRAME_KINDS):
            return None
        kind = self._prev.text.upper()
        if self._match(TokenType.BETWEEN):
            start, start_side = self._parse_frame_bound()
            self._expect(TokenType.AND, "AND")
            end, end_side = self._parse_frame_bound()
        else:
            start, start_side = self._parse_frame_bound()
            end, end_side = "CURRENT ROW", None
            if start_side == "FOLLOWING":
                self._retreat(self._index - 1)
                self.unexpected("PRECEDING")
        return self.expression(
            exp.WindowSpec(kind=kind, start=start, start_side=start_side, end=end, end_side=end_side)
        )

    def _parse_frame_bound(self) -> tuple[str | exp.Expr, str | None]:
        if self._match_text_seq("CURRENT", "ROW"):
            return "CURRENT ROW", None
        extent: str | exp.Expr | None = "UNBOUNDED" if self._match_text_seq("UNBOUNDED") else self._parse_extent()
        if extent is None:
            self.unexpected("a number, a time span, UNBOUNDED or CURRENT ROW")
        if not self._match_texts(self.WINDOW_SIDES):
            self.unexpected("PRECEDING")
        return extent, self._prev.text.upper()

    def _parse_extent(self) -> exp.Expr | None:
        """`49`, `10 SECONDS`, `INTERVAL '10' SECOND` or any expression."""
        return self._parse_time_span() or self._parse_bitwise()

    # Time spans

    def _parse_time_span(self) -> exp.Interval | None:
        """`10 SECONDS` or an INTERVAL; None (and nothing consumed) if a span does not start here."""
        if self._curr.token_type is TokenType.NUMBER and self._next.token_type is TokenType.VAR:
            if self._next.text.upper() in self.WINDOW_SIDES:
                return None
            first = self._curr
            self._advance()
            node = exp.Interval(this=exp.Literal.string(first.text), unit=self._parse_unit())
            cover(node, first, self._prev)
            return node
        return self._parse_interval()

    def _parse_unit(self) -> exp.Var:
        unit = UNITS.get(self._curr.text.upper()) if self._curr.token_type is TokenType.VAR else None
        if unit is None:
            failure = self._failure(f"expected a unit of time, found '{self._curr.text}'", self._curr)
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
        if self._match_pair(TokenType.DASH, TokenType.NUMBER):
            return exp.Interval(this=exp.Literal.string(f"-{self._prev.text}"), unit=self._parse_unit())
        amount = self._parse_paren() if self._match(TokenType.L_PAREN, advance=False) else self._parse_column()
        if not isinstance(amount, exp.Paren | exp.Column) or self._curr.text.upper() not in UNITS:
            return None
        if isinstance(amount, exp.Paren):
            # Prints in parentheses anyway; a number prints as a string.
            amount = exp.Literal.string(amount.this.name) if amount.this.is_number else amount.this
        return exp.Interval(this=amount, unit=self._parse_unit())

    def _parse_interval_text(self, token: Token) -> exp.Interval:
        """The rest of `INTERVAL '…'`: the unit follows a number; other strings hold their units."""
        text = token.text.strip()
        if AMOUNT.fullmatch(text):
            return exp.Interval(this=exp.Literal.string(text), unit=self._parse_unit())
        parts = parts_of(text)
        if parts is None and not CLOCK.fullmatch(text):
            raise SyntaxFailure(f"cannot read '{token.text}' as a time span", span_of_token(token))
        if parts is not None and len(parts) == 1:
            return exp.Interval(this=exp.Literal.string(parts[0][0]), unit=exp.Var(this=parts[0][1]))
        whole = text if parts is None else " ".join(f"{amount} {unit}" for amount, unit in parts)
        return exp.Interval(this=exp.Literal.string(whole))
