"""Expressions: operators, CASE, functions, intervals and OVER."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.parser import Parser
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import Token, TokenType

from millstream.sql import functions
from millstream.sql.nested import NestedParser
from millstream.sql.nodes import Oldest
from millstream.sql.spans import cover

_WRAPPERS = (exp.Window, exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)


class ExpressionParser(NestedParser):
    """What may stand in a SELECT list or a condition."""

    PRIMARY_PARSERS: ClassVar = {
        **{
            token: DuckDBParser.PRIMARY_PARSERS[token] for token in (TokenType.STRING, TokenType.NUMBER, TokenType.STAR)
        },
        TokenType.HEX_STRING: lambda self, token: self._parse_hexadecimal(token),
        # sqlglot's own parsers of these leave out where the word stood.
        TokenType.NULL: lambda self, token: self.expression(exp.Null(), token),
        TokenType.TRUE: lambda self, token: self.expression(exp.Boolean(this=True), token),
        TokenType.FALSE: lambda self, token: self.expression(exp.Boolean(this=False), token),
    }
    RANGE_PARSERS: ClassVar = {
        token: DuckDBParser.RANGE_PARSERS[token]
        for token in (TokenType.BETWEEN, TokenType.ILIKE, TokenType.IN, TokenType.IS, TokenType.LIKE)
    }
    COLUMN_OPERATORS: ClassVar = {
        **{token: DuckDBParser.COLUMN_OPERATORS[token] for token in (TokenType.DOT, TokenType.DCOLON)},
        TokenType.ARROW: lambda self, this, path: self._member("json_extract", this, path),
        TokenType.DARROW: lambda self, this, path: self._member("json_extract_string", this, path),
    }
    NO_PAREN_FUNCTIONS: ClassVar = {
        TokenType.CURRENT_DATE: exp.CurrentDate,
        TokenType.CURRENT_TIMESTAMP: exp.CurrentTimestamp,
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar = {"CASE": lambda self: self._parse_case()}
    FUNCTIONS: ClassVar = functions.FUNCTIONS
    FUNCTION_PARSERS: ClassVar = functions.FUNCTION_PARSERS
    SIGNED_TO_UNSIGNED_TYPE_TOKEN: ClassVar[dict[TokenType, TokenType]] = {}
    JSON_OPERATORS: ClassVar[dict[TokenType, Callable[..., Any]]] = {}
    ASSIGNMENT: ClassVar[dict[TokenType, type[exp.Expr]]] = {}
    BRACKETS: ClassVar[frozenset[TokenType]] = frozenset((TokenType.L_BRACKET,))

    def _member(self, function: str, document: exp.Expr, path: exp.Expr | None) -> exp.Anonymous:
        """`document -> path`, said as a call."""
        if path is None:
            self.unexpected("an expression")
        return exp.Anonymous(this=function, expressions=[document, path])

    def _parse_hexadecimal(self, token: Token) -> exp.Expr:
        """x'00ff' is bytes, 0xff a number."""
        if self.sql[token.start] == "0":
            return self.expression(exp.Literal.number(int(token.text, 16)), token)
        if len(token.text) % 2:
            self.raise_error("the digits of x'…' come in pairs", token)
        return self.expression(exp.Unhex(this=exp.Literal.string(token.text)), token)

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
        node: exp.Expr | None = None if check_func else self._parse_nested_type()
        if node is not None:
            node = self._parse_array_of(node)
        elif allow_identifiers and first.token_type is TokenType.VAR:
            # A type we do not know by name; the binder says so, with the place.
            self._advance()
            node = self._parse_array_of(exp.DataType(this=exp.DType.USERDEFINED, kind=first.text))
        elif first.token_type is TokenType.INTERVAL:
            # Before a literal it is the INTERVAL of a time span, and a name anywhere else in an expression.
            node = None if check_func else exp.DataType(this=exp.DType.INTERVAL)
            self._advance(0 if check_func else 1)
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
        index = self._index
        rhs = super()._parse_is_rhs(distinct)
        if rhs is None or not (distinct or isinstance(rhs, exp.Null | exp.Boolean)):
            self._retreat(index)
            self.unexpected("NULL, TRUE, FALSE or DISTINCT FROM")
        return rhs

    def _parse_function(
        self,
        functions: dict[str, Callable[..., Any]] | None = None,
        anonymous: bool = False,
        optional_parens: bool = True,
        any_token: bool = False,
    ) -> exp.Expr | None:
        first = self._curr
        if self._in_body and (oldest := self._parse_oldest()):
            return oldest
        node = self._parse_function_call(functions, anonymous, optional_parens, any_token)
        if node is not None:
            cover(node, first, self._prev)
            call = node
            while isinstance(call, _WRAPPERS):
                call = call.this
            call.meta["start"] = first.start
            call.meta["called_as"] = first.text
        return node

    def _parse_oldest(self) -> Oldest | None:
        """`oldest()` or `oldest().column`."""
        first = self._curr
        if not self._match_text_seq("OLDEST", "(", ")"):
            return None
        node = Oldest(this=self._parse_name("the name of a column") if self._match(TokenType.DOT) else None)
        cover(node, first, self._prev)
        return node

    def _parse_lambda(self, alias: bool = False) -> exp.Expr | None:
        """One argument: `name => value`, `DISTINCT x, …`, or an expression, maybe with ORDER BY or IGNORE NULLS."""
        after = self._tokens[self._index + 1 : self._index + 3]
        is_assigned = [token.token_type for token in after] == [TokenType.COLON, TokenType.EQ]
        if self._next.token_type is TokenType.FARROW or is_assigned:
            name = self._parse_name("the name of a parameter")
            self._advance(1 + is_assigned)
            return self.expression(exp.Kwarg(this=name, expression=self._parse_operand()))
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
