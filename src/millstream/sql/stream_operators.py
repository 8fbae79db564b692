"""ISTREAM, DSTREAM and RSTREAM: around a query, around its SELECT list, and around a relation in FROM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from millstream.sql import words
from millstream.sql.queries import QueryParser
from millstream.sql.relations import STREAM_OPERATORS, StreamItems
from millstream.sql.spans import cover

# What may follow a whole SELECT list.
_LIST_ENDS = frozenset(
    {
        TokenType.EXCEPT,
        TokenType.FROM,
        TokenType.GROUP_BY,
        TokenType.HAVING,
        TokenType.INTERSECT,
        TokenType.LIMIT,
        TokenType.OFFSET,
        TokenType.ORDER_BY,
        TokenType.QUALIFY,
        TokenType.R_BRACE,
        TokenType.R_PAREN,
        TokenType.SEMICOLON,
        TokenType.SENTINEL,
        TokenType.UNION,
        TokenType.WHERE,
        TokenType.WINDOW,
    }
)
# What begins an item and cannot go on with one that began with a column called istream.
_ITEM_STARTS = words.ALIAS_TOKENS | {
    TokenType.CASE,
    TokenType.CURRENT_DATE,
    TokenType.CURRENT_TIMESTAMP,
    TokenType.DISTINCT,
    TokenType.EXISTS,
    TokenType.FALSE,
    TokenType.LEFT,
    TokenType.L_PAREN,
    TokenType.NOT,
    TokenType.NULL,
    TokenType.NUMBER,
    TokenType.RIGHT,
    TokenType.STRING,
    TokenType.TRUE,
}
_PREDICATES = (TokenType.BETWEEN, TokenType.ILIKE, TokenType.IN, TokenType.LIKE)
_QUERY_STARTS = (TokenType.SELECT, TokenType.WITH, TokenType.VALUES)
# Marks a query that stood in the parentheses of a stream operator: clauses behind them are not its own.
_ENCLOSED = "enclosed"


class StreamOperatorParser(QueryParser):
    """Queries whose relation becomes a stream; they have args["stream_of"]."""

    def _at_stream_operator(self) -> bool:
        return self._next.token_type is TokenType.L_PAREN and self._match_texts(STREAM_OPERATORS, advance=False)

    def _parse_select(
        self,
        nested: bool = False,
        table: bool = False,
        parse_subquery_alias: bool = True,
        parse_set_operation: bool = True,
        consume_pipe: bool = True,
    ) -> exp.Expr | None:
        # sqlglot comes with neither flag where an expression may stand, too.
        if not nested or table or not self._at_stream_operator():
            return super()._parse_select(nested, table, parse_subquery_alias, parse_set_operation, consume_pipe)
        first = self._curr
        query: exp.Expr | None = self._parse_stream_query()
        if parse_set_operation:
            query = self._parse_set_operations(query)
        if query is not None:
            cover(query, first, self._prev)
        return query

    def _parse_stream_query(self) -> exp.Query:
        """`ISTREAM (query)`, or `ISTREAM (relation)` for all columns of the relation."""
        first = self._curr
        kind = first.text.upper()
        self._advance(2)
        inner = self._curr
        if self._at_query():
            query = self._parse_query()
            while isinstance(query, exp.Subquery) and query.is_wrapper and not query.args.get("stream_of"):
                query = query.this
        else:
            query = exp.Select(expressions=[exp.Star()], from_=exp.From(this=self._parse_table()))
        if not isinstance(query, exp.Query):
            raise self._failure("expected a query, found rows of values", inner)
        if query.args.get("stream_of"):
            failure = self._failure("the query in parentheses is already a stream", first)
            failure.hint = f"leave out {kind}"
            raise failure
        self._match_r_paren()
        query.set("stream_of", kind)
        query.meta[_ENCLOSED] = True
        cover(query, first, self._prev)
        return query

    def _at_query(self) -> bool:
        """At a query, perhaps inside of parentheses."""
        index = self._index
        while self._match(TokenType.L_PAREN):
            pass
        found = self._curr.token_type in _QUERY_STARTS or self._at_stream_operator()
        self._retreat(index)
        return found

    def _parse_relation(self) -> exp.Expr:
        if not self._at_stream_operator():
            return super()._parse_relation()
        first = self._curr
        return self._parse_named(exp.Subquery(this=self._parse_stream_query()), first)

    def _parse_wrapped_select(self, table: bool = False) -> exp.Expr | None:
        node = super()._parse_wrapped_select(table=table)
        # FROM (ISTREAM (query)) is FROM ISTREAM (query).
        inner = node.this if table and isinstance(node, exp.Subquery) and node.is_wrapper else None
        return inner if isinstance(inner, exp.Query) and inner.meta.get(_ENCLOSED) else node

    def _parse_function(
        self,
        functions: dict[str, Callable[..., Any]] | None = None,
        anonymous: bool = False,
        optional_parens: bool = True,
        any_token: bool = False,
    ) -> exp.Expr | None:
        if self._at_stream_operator():
            failure = self._failure(f"{self._curr.text.upper()} turns a whole query into a stream", self._curr)
            failure.hint = f"write SELECT {self._curr.text.upper()}(a, b) FROM …"
            raise failure
        return super()._parse_function(functions, anonymous, optional_parens, any_token)

    # SELECT lists

    def _parse_projections(self) -> tuple[list[exp.Expr], list[exp.Expr] | None]:
        if not self._match_texts(STREAM_OPERATORS, advance=False) or not self._begins_stream_items():
            return super()._parse_projections()
        first = self._curr
        whole = self._next.token_type is TokenType.L_PAREN and self._token_behind_parentheses() in _LIST_ENDS
        self._advance(2 if whole else 1)
        distinct = self._match(TokenType.DISTINCT)
        items = self._parse_list(self._parse_item, f"an expression after {first.text.upper()}")
        if whole:
            self._match_r_paren()
        return [StreamItems(this=first.text.upper(), distinct=bool(distinct), expressions=items)], None

    def _begins_stream_items(self) -> bool:
        """Whether the word here is an operator, as against a column of that name."""
        after = self._tokens[self._index + 2 : self._index + 3]
        behind = after[0].token_type if after else TokenType.SENTINEL
        if self._next.token_type is TokenType.STAR:
            return behind in _LIST_ENDS or behind is TokenType.COMMA
        if self._next.token_type is TokenType.NOT:
            return behind not in _PREDICATES
        zoned = self._next.text.upper() == "AT" and bool(after) and after[0].text.upper() == "TIME"
        return self._next.token_type in _ITEM_STARTS and not zoned

    def _token_behind_parentheses(self) -> TokenType:
        """The type of the token behind the parentheses that open at the next token."""
        depth = 0
        for at in range(self._index + 1, len(self._tokens)):
            kind = self._tokens[at].token_type
            depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
            if depth == 0:
                return self._tokens[at + 1].token_type if at + 1 < len(self._tokens) else TokenType.SENTINEL
        return TokenType.SENTINEL

    def _parse_query_modifiers(self, this: Any) -> Any:
        if isinstance(this, exp.Query) and this.meta.get(_ENCLOSED):
            return this
        if isinstance(this, exp.Select):
            _settle_items(this)
        return super()._parse_query_modifiers(this)

    # Set operations

    def parse_set_operation(
        self, this: exp.Expr | None, consume_pipe: bool = False, intersect_only: bool = False
    ) -> exp.SetOperation | None:
        if self._curr.token_type in self.SET_OPERATIONS:
            this = _parenthesized(this)
        node = super().parse_set_operation(this, consume_pipe, intersect_only)
        if node is not None:
            node.set("expression", _parenthesized(node.expression))
        return node


def _settle_items(select: exp.Select) -> None:
    """Spread `ISTREAM(a, b)` and the papers' `DISTINCT (a, b)` into the query they stand in."""
    [first, *others] = select.expressions
    if isinstance(first, StreamItems):
        select.set("stream_of", first.this)
        select.set("expressions", first.expressions)
        if first.args["distinct"] and not select.args.get("distinct"):
            select.set("distinct", exp.Distinct())
        [first, *others] = first.expressions
    distinct = select.args.get("distinct")
    if distinct and not distinct.args.get("on") and isinstance(first, exp.Tuple) and first.expressions and not others:
        select.set("expressions", first.expressions)


def _parenthesized(operand: Any) -> Any:
    """An operand of a set operation that stood in a stream operator, in parentheses to keep its clauses to itself."""
    if not isinstance(operand, exp.Query) or not operand.meta.get(_ENCLOSED):
        return operand
    node = exp.Subquery(this=operand)
    node.meta["start"], node.meta["end"] = operand.meta["start"], operand.meta["end"]
    return node
