"""The event algebra in FROM: `FILTER{…} s`, `a NEXT{…} b`, `a FOLD{…, …, …} b`, `AGGREGATE{…} s`; and PUBLISH."""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from millstream.sql.event_nodes import DECORATORS, EventAggregate, EventExpression, EventFilter, EventFold, EventNext
from millstream.sql.matches import MatchParser
from millstream.sql.words import NAME_TOKENS

_CONDITION = "a condition"
_BINARY = ("NEXT", "FOLD")
_QUERY_STARTS = (TokenType.SELECT, TokenType.WITH, TokenType.FROM)


class EventParser(MatchParser):
    """What stands in FROM to say which events follow each other."""

    def _parse_table_alias(self, alias_tokens: object = None) -> exp.TableAlias | None:
        if self._at_event_operator() or self._at_publish():
            return None
        return super()._parse_table_alias(alias_tokens)

    def _parse_events(self, item: exp.Expr, first: Token) -> exp.Expr:
        """The item of FROM that began at `first`, or what the operators behind it make of it."""
        found = False
        while self._at_event_operator():
            item = self._parse_event_operator(_unwrapped(item))
            self._covered(item, first)
            found = True
        if found and (alias := self._parse_table_alias()) is not None:
            item.set("alias", alias)
        if isinstance(item, exp.Subquery) and isinstance(item.this, EventExpression):
            inner = item.this
            if item.args.get("alias"):
                inner.set("alias", item.args["alias"])
            return self._covered(inner, first)
        return item

    # -- unary -----------------------------------------------------------------------------------------------------

    def _at_unary_event(self) -> bool:
        return self._next.token_type is TokenType.L_BRACE and self._match_texts(("FILTER", "AGGREGATE"), advance=False)

    def _parse_unary_event(self) -> EventExpression:
        first = self._curr
        self._advance(2)
        if first.text.upper() == "FILTER":
            node: EventExpression = EventFilter(condition=self._parse_event_condition())
        else:
            node = EventAggregate(expressions=self._parse_list(self._parse_expression, "an aggregate"))
            if self._match_text_seq("BY"):
                node.set("keys", self._parse_list(self._parse_column, "a column"))
        self._expect(TokenType.R_BRACE, "'}'")
        node.set("this", self._parse_event_input())
        _plain_decorators(node)
        return self._covered(node, first)

    # -- binary ----------------------------------------------------------------------------------------------------

    def _at_event_operator(self) -> bool:
        """At NEXT or FOLD with what must follow; anywhere else the words are names."""
        if not self._curr or self._curr.text.upper() not in _BINARY or self._curr.token_type is not TokenType.VAR:
            return False
        after = self._next.token_type
        if after is TokenType.L_BRACE:
            return True
        return self._curr.text.upper() == "NEXT" and (after is TokenType.L_PAREN or after in NAME_TOKENS)

    def _parse_event_operator(self, left: exp.Expr) -> EventExpression:
        word = self._curr.text.upper()
        self._advance()
        node: EventExpression
        if word == "NEXT":
            node = EventNext(this=left)
            if self._match(TokenType.L_BRACE):
                node.set("condition", self._parse_event_condition())
                self._expect(TokenType.R_BRACE, "'}'")
        else:
            self._advance()
            node = self._parse_fold(left)
        node.set("expression", self._parse_event_input())
        _plain_decorators(node)
        return node

    def _parse_fold(self, left: exp.Expr) -> EventFold:
        """What stands in the braces of FOLD: which event is next, whether it goes on with it, what is computed."""
        node = EventFold(this=left)
        for part in ("condition", "continues"):
            if not self._match(TokenType.COMMA, advance=False):
                node.set(part, self._parse_event_condition())
            if not self._match(TokenType.COMMA):
                failure = self._failure(f"expected ',', found '{self._curr.text}'", self._curr)
                failure.hint = "FOLD{which event is next, whether it continues, what is computed}; any may be empty"
                raise failure
        if not self._match(TokenType.R_BRACE, advance=False):
            node.set("expressions", self._parse_list(self._parse_expression, "an expression with AS"))
        self._expect(TokenType.R_BRACE, "'}'")
        return node

    def _parse_event_condition(self) -> exp.Expr:
        first = self._curr
        condition = self._parse_disjunction()
        if condition is None:
            self.unexpected(_CONDITION)
        return self._covered(condition, first)

    def _parse_event_input(self) -> exp.Expr:
        """An input of an operator: a stream, a query or further operators in parentheses, FILTER{…} of one."""
        if self._at_unary_event():
            return self._parse_unary_event()
        first = self._curr
        if first.token_type is TokenType.L_PAREN:
            self._advance()
            inner: exp.Expr | None = self._parse_query() if self._at_whole_query() else self._parse_table()
            if self._curr.token_type in self.SET_OPERATIONS:
                inner = self._parse_set_operations(inner)
            self._match_r_paren()
            assert inner is not None
            if isinstance(inner, exp.Query) and not isinstance(inner, exp.Subquery | exp.Table):
                inner = exp.Subquery(this=inner)
            return self._covered(inner, first)
        # a name behind it is that of the whole expression
        node = self._parse_table_parts()
        if not isinstance(node, exp.Table):
            self.unexpected("the name of a stream")
        return self._covered(node, first)

    def _at_whole_query(self) -> bool:
        return self._curr.token_type in _QUERY_STARTS

    def _parse_query(self) -> exp.Expr:
        raise NotImplementedError

    def _parse_events_alone(self) -> exp.Select | None:
        """`FROM a NEXT b`, which stands for all columns; None where FROM has neither an operator nor PUBLISH."""
        index = self._index
        if not self._match(TokenType.FROM):
            return None
        query = exp.Select(expressions=[exp.Star()], from_=exp.From(this=self._parse_table()))
        self._parse_publish(query)
        if isinstance(query.args["from_"].this, EventExpression) or query.args.get("publish"):
            return query
        self._retreat(index)
        return None

    # -- PUBLISH ---------------------------------------------------------------------------------------------------

    def _at_publish(self) -> bool:
        return self._match_texts(("PUBLISH",), advance=False) and self._next.token_type in NAME_TOKENS

    def _parse_publish(self, query: Any) -> None:
        if self._at_publish():
            self._advance()
            query.set("publish", self._parse_name("the name of a stream"))


def _unwrapped(item: exp.Expr) -> exp.Expr:
    """What stands in parentheses without being a query."""
    while isinstance(item, exp.Subquery) and not isinstance(item.this, exp.Query) and not item.args.get("alias"):
        item = item.this
    return item


def _plain_decorators(node: EventExpression) -> None:
    """`$1` and its kin are written as they are, without quotes."""
    for column in node.find_all(exp.Column):
        for part in ("table", "db", "catalog"):
            name = column.args.get(part)
            if isinstance(name, exp.Identifier) and name.name in DECORATORS:
                name.set("quoted", False)
