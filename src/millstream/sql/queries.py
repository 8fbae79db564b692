"""Queries: SELECT, FROM, joins and set operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.parser import Parser
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import TokenType

from millstream.sql.event_nodes import EventExpression
from millstream.sql.failures import quoted
from millstream.sql.history import HistoryParser
from millstream.sql.nodes import JsonColumn, JsonTable, SideStream
from millstream.sql.patterns import MatchRecognize, SequenceMatch
from millstream.sql.relations import Windowed
from millstream.sql.spans import cover

_SIDE_STREAMS = ("LATE", "ERRORS", "HISTORY")
_SEVERAL_GROUPINGS: dict[str, type[exp.Expr]] = {"ROLLUP": exp.Rollup, "CUBE": exp.Cube}
_CLAUSES = ("where", "group", "having", "windows", "qualify", "order", "limit", "offset")
_FROM_ENDS = frozenset(
    {
        TokenType.EXCEPT,
        TokenType.GROUP_BY,
        TokenType.HAVING,
        TokenType.INTERSECT,
        TokenType.LIMIT,
        TokenType.OFFSET,
        TokenType.ORDER_BY,
        TokenType.QUALIFY,
        TokenType.R_PAREN,
        TokenType.SENTINEL,
        TokenType.UNION,
        TokenType.WHERE,
    }
)


class QueryParser(HistoryParser):
    """SELECT statements and what stands in FROM."""

    SUPPORTS_TABLE_QUERY = False
    OPTIONAL_ALIAS_TOKEN_CTE = False
    QUERY_MODIFIER_PARSERS: ClassVar[dict[TokenType, Callable[[Any], tuple[str, Any]]]] = {
        token: DuckDBParser.QUERY_MODIFIER_PARSERS[token]
        for token in (
            TokenType.WHERE,
            TokenType.GROUP_BY,
            TokenType.HAVING,
            TokenType.QUALIFY,
            TokenType.WINDOW,
            TokenType.ORDER_BY,
            TokenType.LIMIT,
            TokenType.OFFSET,
        )
    }
    QUERY_MODIFIER_TOKENS: ClassVar = set(QUERY_MODIFIER_PARSERS)

    def _parse_query(self) -> exp.Expr:
        """A whole query: SELECT, VALUES, WITH …, or any of these in parentheses, with set operations."""
        first = self._curr
        query = self._parse_events_alone() or self._parse_ddl_select()
        if not isinstance(query, exp.Query | exp.Values):
            self.unexpected("a query")
        if isinstance(query, exp.Values) and query.args.get("alias"):
            self._retreat(self._index - 1)
            self.unexpected()
        cover(query, first, self._prev)
        return query

    def _parse_statement(self) -> exp.Expr:
        # sqlglot calls this where a query stands inside a statement: in and after WITH.
        return self._parse_query()

    def _parse_select(
        self,
        nested: bool = False,
        table: bool = False,
        parse_subquery_alias: bool = True,
        parse_set_operation: bool = True,
        consume_pipe: bool = True,
    ) -> exp.Expr | None:
        first = self._curr
        node = super()._parse_select(nested, table, parse_subquery_alias, parse_set_operation, consume_pipe)
        if node is not None:
            cover(node, first, self._prev)
        return node

    def _parse_projections(self) -> tuple[list[exp.Expr], list[exp.Expr] | None]:
        if self._prev.token_type is TokenType.ALIAS:
            self.unexpected("an expression")
        return self._parse_list(self._parse_item, "an expression after SELECT"), None

    def _parse_item(self) -> exp.Expr | None:
        """One item of a SELECT list; the papers also print the alias before OVER."""
        self._item_start = self._index
        first = self._curr
        item = self._parse_expression()
        if isinstance(item, exp.Alias) and isinstance(item.this, exp.Func) and self._match(TokenType.OVER):
            window = self._parse_over(exp.Window(this=item.this, over="OVER"))
            cover(window, first, self._prev)
            item.set("this", window)
        return item

    # FROM

    def _parse_table(
        self,
        schema: bool = False,
        joins: bool = False,
        alias_tokens: object = None,
        parse_bracket: bool = False,
        is_db_reference: bool = False,
        parse_partition: bool = False,
        consume_pipe: bool = False,
    ) -> exp.Expr:
        """One item of FROM with its alias: a name, a table function, or a query in parentheses."""
        # Of sqlglot's flags two tell something: it comes with `consume_pipe` alone behind an opening parenthesis.
        wrapped = consume_pipe and not joins and self._curr.token_type in self.SELECT_START_TOKENS
        query = wrapped or self._match(TokenType.L_PAREN, advance=False)
        first = self._curr
        node = (
            self._parse_derived_table_values()
            or self._parse_bare_query()
            or (self._at_unary_event() and self._parse_unary_event())
            or (query and self._parse_query_item())
            or self._parse_relation()
        )
        node = self._parse_events(self._parse_matches(node, first), first)
        self._note_history()
        if joins:
            self._append_joins(node)
        return node

    def _parse_bare_query(self) -> exp.Subquery | None:
        """The papers' `FROM SELECT …`, a query without parentheses."""
        first = self._curr
        if self._prev.token_type is not TokenType.FROM or first.token_type is not TokenType.SELECT:
            return None
        node = exp.Subquery(this=self._parse_select())
        cover(node, first, self._prev)
        return node

    def _parse_query_item(self) -> exp.Expr | None:
        first = self._curr
        node = self._parse_select(table=True, parse_subquery_alias=False)
        return self._parse_named(node, first) if isinstance(node, exp.Subquery) else node

    def _parse_wrapped_select(self, table: bool = False) -> exp.Expr | None:
        node = super()._parse_wrapped_select(table=table)
        if table and isinstance(
            node, exp.Table | exp.Subquery | Windowed | MatchRecognize | SequenceMatch | EventExpression
        ):
            # (a JOIN b ON …) as an item of FROM
            self._append_joins(node)
        return node

    def _parse_relation(self) -> exp.Expr:
        first = self._curr
        if self._match_text_seq("LATERAL", "(", advance=False):
            failure = self._failure("LATERAL is not supported", first)
            failure.hint = "leave it out, and write the condition in ON or WHERE"
            raise failure
        node = (
            self._parse_side_stream()
            or self._parse_json_table_entry()
            or self._parse_window_table()
            or self._parse_table_parts()
        )
        if not isinstance(node, exp.Table):
            self.unexpected("the name of a stream or table")
        if self._match_text_seq("FOR", "SYSTEM_TIME"):
            self._expect_words("AS", "OF")
            moment = self._parse_bitwise()
            if moment is None:
                self.unexpected("a point in time")
            node.set("version", exp.Version(this="SYSTEM_TIME", kind="AS OF", expression=moment))
        return self._parse_named(node, first)

    def _parse_table_part(self, schema: bool = False) -> exp.Expr | None:
        # Functions in FROM stay plain calls: they are tables, and no engine's scalar functions.
        call = None if schema else self._parse_function(optional_parens=False, anonymous=True)
        return call or self._parse_id_var(any_token=False)

    def _parse_derived_table_values(self, allow_value_synonym: bool = False) -> exp.Values | None:
        """VALUES (…), … with its alias, or the same in parentheses."""
        wrapped = self._match_pair(TokenType.L_PAREN, TokenType.VALUES)
        if not wrapped and not self._match(TokenType.VALUES):
            return None
        rows = self._parse_list(self._parse_values_row, "'('")
        if wrapped:
            self._match_r_paren()
        return self.expression(exp.Values(expressions=rows, alias=self._parse_table_alias()))

    def _parse_values_row(self) -> exp.Tuple:
        self._expect(TokenType.L_PAREN, "'('")
        values = self._parse_list(self._parse_disjunction, "an expression")
        self._match_r_paren()
        return self.expression(exp.Tuple(expressions=values))

    def _parse_json_table_entry(self) -> exp.Table | None:
        """JSON_TABLE(document, path COLUMNS (name type [PATH path], …))."""
        first = self._curr
        if not self._match_text_seq("JSON_TABLE", "("):
            return None
        document = self._parse_operand()
        self._expect(TokenType.COMMA, "','")
        path = self._parse_operand()
        self._expect_words("COLUMNS")
        self._expect(TokenType.L_PAREN, "'('")
        columns = self._parse_list(self._parse_json_column, "a column")
        self._expect(TokenType.R_PAREN, "')'")
        self._expect(TokenType.R_PAREN, "')'")
        node = JsonTable(this=document, path=path, columns=columns)
        cover(node, first, self._prev)
        return exp.Table(this=node)

    def _parse_json_column(self) -> JsonColumn:
        name = self._parse_name("the name of a column")
        kind = self._parse_inner_type()
        return JsonColumn(this=name, kind=kind, path=self._parse_operand() if self._match_text_seq("PATH") else None)

    def _parse_side_stream(self) -> exp.Table | None:
        """LATE(s), ERRORS(s) or HISTORY(s)."""
        if self._next.token_type is not TokenType.L_PAREN or not self._match_texts(_SIDE_STREAMS):
            return None
        first = self._prev
        self._advance()
        node = SideStream(this=self._parse_name("the name of a stream"), kind=first.text.upper())
        self._match_r_paren()
        cover(node, first, self._prev)
        return exp.Table(this=node)

    def _parse_historical_data(self) -> None:
        """AT (…) behind a table is not of our language; `at` is free to be an alias."""

    def _parse_changes(self) -> None:
        """CHANGES (…) behind a table is not of our language."""

    def _parse_join(
        self, skip_join_token: bool = False, parse_bracket: bool = False, alias_tokens: object = None
    ) -> exp.Join | None:
        if self._match(TokenType.COMMA):
            # A comma that ends the FROM list is a slip of the papers.
            if self._curr.token_type in _FROM_ENDS:
                return None
            return self.expression(exp.Join(this=self._parse_table()))
        half = self._parse_half_join()
        is_asof = half is None and self._at_asof_join()
        if is_asof:
            self._advance()
        join = Parser._parse_join(self, skip_join_token or half is not None)
        if join is None:
            return None
        if is_asof:
            join.set("method", "ASOF")
        if half is not None:
            join.set("kind", half)
        unconditional = join.args.get("kind") == "CROSS" or join.args.get("method") == "NATURAL"
        if not unconditional and not join.args.get("on") and not join.args.get("using"):
            self.unexpected("ON or USING")
        return join

    # Clauses

    def _parse_query_modifiers(self, this: Any) -> Any:
        """The joins and clauses of a query, each clause once and in SQL's order."""
        if not isinstance(this, exp.Query | exp.Values):
            return this
        last = max((rank for rank, clause in enumerate(_CLAUSES) if this.args.get(clause)), default=-1)
        if isinstance(this, exp.Select) and this.args.get("from_") and last < 0:
            self._append_joins(this)
        while self._match_set(self.QUERY_MODIFIER_PARSERS, advance=False):
            index = self._index
            clause, node = self.QUERY_MODIFIER_PARSERS[self._curr.token_type](self)
            if _CLAUSES.index(clause) <= last:
                self._retreat(index)
                self.unexpected()
            last = _CLAUSES.index(clause)
            this.set(clause, node)
        self._parse_publish(this)
        self._give_history(this)
        return this

    def _append_joins(self, node: exp.Expr) -> None:
        for join in self._parse_joins():
            node.append("joins", join)

    def parse_set_operation(
        self, this: exp.Expr | None, consume_pipe: bool = False, intersect_only: bool = False
    ) -> exp.SetOperation | None:
        left = this.expression if isinstance(this, exp.SetOperation) else this
        ended = isinstance(left, exp.Select) and any(left.args.get(clause) for clause in ("order", "limit", "offset"))
        if ended and self._curr.token_type in self.SET_OPERATIONS:
            failure = self._failure(f"unexpected {quoted(self._curr)}", self._curr)
            failure.hint = "put the query with ORDER BY or LIMIT in parentheses"
            raise failure
        return super().parse_set_operation(this, consume_pipe, intersect_only)

    def _parse_group(self, skip_group_by_token: bool = False) -> exp.Group | None:
        if not self._match(TokenType.GROUP_BY):
            return None
        if self._match(TokenType.ALL):
            return self.expression(exp.Group(all=True))
        return self.expression(exp.Group(expressions=self._parse_list(self._parse_key, "an expression")))

    def _parse_key(self) -> exp.Expr | None:
        """An expression, or several ways to group at once, which only stored tables can be asked for."""
        first = self._curr
        if self._match_text_seq("GROUPING", "SETS"):
            self._expect(TokenType.L_PAREN, "'('")
            node: exp.Expr = exp.GroupingSets(expressions=self._parse_list(self._parse_key, "an expression"))
        elif self._next.token_type is TokenType.L_PAREN and self._match_texts(_SEVERAL_GROUPINGS):
            kind = _SEVERAL_GROUPINGS[self._prev.text.upper()]
            self._advance()
            node = kind(expressions=self._parse_list(self._parse_disjunction, "an expression"))
        else:
            return self._parse_disjunction()
        self._match_r_paren()
        cover(node, first, self._prev)
        return node

    def _parse_limit(
        self, this: exp.Expr | None = None, top: bool = False, skip_limit_token: bool = False
    ) -> exp.Expr | None:
        if top or not self._match(TokenType.LIMIT):
            return this
        return self.expression(exp.Limit(this=this, expression=self._parse_term()))

    def _parse_limit_by(self) -> None:
        """LIMIT n BY … is not of our language."""

    def _parse_connect(self, skip_start_token: bool = False) -> None:
        """START WITH … CONNECT BY is not of our language; `start` is free to be an alias."""

    def _parse_per(self, this: exp.Expr | None) -> exp.Expr | None:
        # `agg() PER (…)` is not of our language.
        return this
