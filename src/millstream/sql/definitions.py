"""Definitions and changes: CREATE, DROP, INSERT, UPDATE, DELETE."""

from __future__ import annotations

import re
from typing import Any, ClassVar, NoReturn

from sqlglot import exp
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import TokenType

from millstream.errors import Span
from millstream.sql.failures import SyntaxFailure, did_you_mean, quoted
from millstream.sql.nodes import CreateQueries, CreateSink, CreateStream, Option
from millstream.sql.relations import CreateView
from millstream.sql.spans import cover, span_of
from millstream.sql.stream_operators import StreamOperatorParser

_DROPPABLE = ("STREAM", "TABLE", "SINK", "FUNCTION", "AGGREGATE", "QUERY", "QUERIES", "VIEW")
_CREATABLE = ("STREAM", "TABLE", "SINK", "FUNCTION", "AGGREGATE", "VIEW", "QUERIES")
_SIMPLE_KEY = re.compile(r"[a-z_][a-z0-9_]*")
_KEYS_AND_CHECKS = ("PRIMARY KEY", "FOREIGN KEY", "UNIQUE", "CHECK")

# Clauses whose first word could be taken for a unit of time.
_STREAM_CLAUSES = ("KEEP", "ORDERED", "SINCE", "SOURCE", "VALID")


class DefinitionParser(StreamOperatorParser):
    """Statements that define, drop or change streams, tables, sinks and functions."""

    CONSTRAINT_PARSERS: ClassVar = {
        name: DuckDBParser.CONSTRAINT_PARSERS[name]
        for name in ("CHECK", "DEFAULT", "FOREIGN KEY", "NOT", "NULL", "PRIMARY KEY", "REFERENCES", "UNIQUE")
    }

    def _parse_create_statement(self) -> exp.Expr:
        replace = self._match(TokenType.OR)
        if replace:
            self._expect_words("REPLACE")
        return self._parse_created(bool(replace))

    def _parse_created(self, replace: bool) -> exp.Expr:
        """What follows CREATE [OR REPLACE]."""
        if not self._match_texts(_CREATABLE):
            self._unknown_kind(_CREATABLE)
        kind = self._prev.text.upper()
        exists = self._match_text_seq("IF", "NOT", "EXISTS")
        if kind == "STREAM":
            return self._parse_create_stream(or_replace=replace or None, if_not_exists=exists or None)
        if kind == "SINK":
            return self._parse_create_sink(or_replace=replace or None, if_not_exists=exists or None)
        if kind == "VIEW":
            return self._parse_create_view(or_replace=replace or None, if_not_exists=exists or None)
        if kind == "QUERIES":
            if replace or exists:
                raise self._failure("CREATE QUERIES takes neither OR REPLACE nor IF NOT EXISTS", self._prev)
            return self._parse_create_queries()
        flags = {"kind": kind, "replace": replace or None, "exists": exists or None}
        if kind == "TABLE":
            return self._parse_create_table(**flags)
        return self._parse_create_function(**flags)

    def _unknown_kind(self, kinds: tuple[str, ...]) -> NoReturn:
        failure = self._failure(
            f"expected {', '.join(kinds[:-1])} or {kinds[-1]}, found {quoted(self._curr)}", self._curr
        )
        failure.hint = did_you_mean(self._curr.text, kinds)
        raise failure

    # CREATE STREAM

    def _parse_create_stream(self, **flags: bool | None) -> CreateStream:
        """What follows [CREATE] STREAM: a name, columns, clauses in any order, AS query."""
        node = CreateStream(this=self._parse_name("the name of the stream"), **flags)
        if self._match(TokenType.L_PAREN, advance=False):
            columns: list[exp.Expr] = []
            keys: list[exp.Expr] = []
            for element in self._parse_wrapped_csv(self._parse_stream_element):
                (columns if isinstance(element, exp.ColumnDef) else keys).append(element)
            if len(keys) > 1:
                raise self._failure("PRIMARY KEY is given twice", self._prev)
            node.set("columns", columns)
            node.set("primary_key", keys[0] if keys else None)
        while True:
            first = self._curr
            clause = self._parse_stream_clause()
            if clause is None:
                break
            key, value = clause
            if node.args.get(key):
                raise self._failure(f"{first.text.upper()} is given twice", first)
            node.set(key, value)
        if self._match(TokenType.ALIAS):
            node.set("query", self._parse_query())
        elif not node.columns:
            self.unexpected("'(' or AS")
        return node

    def _parse_stream_element(self) -> exp.Expr | None:
        """A column, or PRIMARY KEY (column, …) NOT ENFORCED."""
        first = self._curr
        if not (self._match_texts(("PRIMARY KEY",), advance=False) and self._next.token_type is TokenType.L_PAREN):
            return self._parse_column_declaration()
        key = self._parse_constraint()
        if key is not None:
            cover(key, first, self._prev)
        return key

    def _parse_stream_clause(self) -> tuple[str, Any] | None:
        if self._match(TokenType.ORDER_BY) or self._match_text_seq("ORDERED", "BY"):
            return "order_by", self._parse_stream_order()
        if self._match_text_seq("SINCE"):
            return "since", self._parse_name("the name of a column")
        if self._match_text_seq("VALID"):
            return "valid", self._parse_validity()
        if self._match_text_seq("SLACK"):
            return "slack", self._parse_slack()
        if self._match_text_seq("SOURCE"):
            return "source", self._parse_source()
        if self._match_text_seq("KEEP"):
            return "keep", self._parse_keep()
        if self._match(TokenType.WITH):
            return "options", self._parse_options()
        return None

    def _parse_stream_order(self) -> exp.Identifier:
        column = self._parse_name("the name of a column")
        if self._match(TokenType.COMMA, advance=False):
            failure = self._failure("a stream is ordered by one column", self._curr)
            failure.hint = "use one column; a query can sort further"
            raise failure
        return column

    def _parse_validity(self) -> exp.Tuple:
        """FROM a TO b: the columns with the bounds of a row's validity."""
        self._expect(TokenType.FROM, "FROM")
        start = self._parse_name("the name of a column")
        self._expect_words("TO")
        return exp.Tuple(expressions=[start, self._parse_name("the name of a column")])

    def _parse_slack(self) -> exp.Expr:
        """A time span, or a number where the stream is ordered by one."""
        is_number = self._next.text.upper() in _STREAM_CLAUSES
        span = (None if is_number else self._parse_time_span()) or self._parse_number()
        if span is None:
            self.unexpected("a time span such as 5 SECONDS")
        return span

    def _parse_source(self) -> exp.Expr:
        if literal := self._parse_string():
            return literal
        call = self._parse_function(anonymous=True)
        if not isinstance(call, exp.Anonymous):
            self.unexpected("a string or a function call")
        return call

    def _parse_options(self) -> list[Option]:
        """The list of WITH (key = literal, …)."""
        self._expect(TokenType.L_PAREN, "'('")
        options = self._parse_list(self._parse_option, "an option")
        self._match_r_paren()
        names = [option.name for option in options]
        for option in options:
            if names.count(option.name) > 1:
                raise SyntaxFailure(f"the option '{option.name}' is given twice", span_of(option) or Span(0, 1))
        return options

    def _parse_option(self) -> Option:
        first = self._curr
        key = self._parse_setting_key("the name of an option")
        self._expect(TokenType.EQ, "'='")
        value = self._parse_setting_value()
        if value is None:
            failure = self._failure(f"expected a literal, found {quoted(self._curr)}", self._curr)
            failure.hint = f"write '{self._curr.text}' in quotes" if self._curr.token_type is TokenType.VAR else None
            raise failure
        node = Option(this=key, expression=value)
        cover(node, first, self._prev)
        return node

    def _parse_setting_key(self, wanted: str) -> exp.Identifier:
        """A key: words joined by dots (lower-cased, as SQL folds names) or a quoted string of any shape."""
        first = self._curr
        identifier = self._parse_name(wanted)
        key = identifier.name if identifier.args.get("quoted") else identifier.name.lower()
        while self._match(TokenType.DOT):
            key += "." + self._parse_name(wanted).name
        node = exp.Identifier(this=key, quoted=_SIMPLE_KEY.fullmatch(key) is None)
        cover(node, first, self._prev)
        return node

    def _parse_setting_value(self) -> exp.Expr | None:
        """A literal: string, number, boolean, NULL or a time span."""
        if self._curr.token_type in (TokenType.TRUE, TokenType.FALSE, TokenType.NULL, TokenType.STRING):
            return self._parse_primary()
        if self._match_pair(TokenType.DASH, TokenType.NUMBER, advance=False):
            return self._parse_unary()
        return self._parse_time_span() or self._parse_number()

    # CREATE TABLE, VIEW, SINK, FUNCTION

    def _parse_create_table(self, **flags: Any) -> exp.Create:
        """What follows [CREATE] TABLE: a name, columns and keys, WITH options, AS query."""
        name: exp.Expr = self._parse_target("the name of the table")
        declared = self._match(TokenType.L_PAREN, advance=False)
        if declared:
            elements = self._parse_wrapped_csv(self._parse_table_element)
            name = self.expression(exp.Schema(this=name, expressions=elements))
        options = self._parse_options() if self._match(TokenType.WITH) else None
        properties = exp.Properties(expressions=options) if options else None
        query = self._parse_query() if self._match(TokenType.ALIAS) else None
        if not declared and query is None:
            self.unexpected("'(' or AS")
        return self.expression(exp.Create(this=name, expression=query, properties=properties, **flags))

    def _parse_table_element(self) -> exp.Expr | None:
        named = self._curr.token_type is TokenType.CONSTRAINT
        keyed = self._match_texts(_KEYS_AND_CHECKS, advance=False) and self._next.token_type is TokenType.L_PAREN
        return self._parse_constraint() if named or keyed else self._parse_column_declaration()

    def _parse_column_declaration(self) -> exp.ColumnDef:
        """A column's name, its type (may be left out) and constraints."""
        first = self._curr
        name = self._parse_name("the name of a column")
        constraints_follow = self._match_texts(self.CONSTRAINT_PARSERS, advance=False)
        kind = None if constraints_follow else self._parse_types(schema=True)
        constraints = []
        while constraint := self._parse_column_constraint():
            constraints.append(constraint)
        node = self.expression(exp.ColumnDef(this=name, kind=kind, constraints=constraints))
        cover(node, first, self._prev)
        return node

    def _parse_create_view(self, **flags: bool | None) -> CreateView:
        name = self._parse_name("the name of the view")
        columns: list[exp.Identifier] = []
        if self._match(TokenType.L_PAREN):
            columns = self._parse_list(lambda: self._parse_name("the name of a column"), "the name of a column")
            self._match_r_paren()
        self._expect(TokenType.ALIAS, "AS")
        return CreateView(this=name, columns=columns or None, query=self._parse_query(), **flags)

    def _parse_create_sink(self, **flags: bool | None) -> CreateSink:
        node = CreateSink(this=self._parse_name("the name of the sink"), **flags)
        self._expect(TokenType.WITH, "WITH (connector = …)")
        node.set("options", self._parse_options())
        if self._match(TokenType.ALIAS):
            node.set("query", self._parse_query())
        return node

    def _parse_create_queries(self) -> CreateQueries:
        name = self._parse_name("the name of the queries")
        sink = self._parse_name("the name of a sink") if self._match_text_seq("INTO") else None
        self._expect(TokenType.ALIAS, "AS")
        return self.expression(CreateQueries(this=name, query=self._parse_query(), sink=sink))

    def _parse_create_function(self, **flags: Any) -> exp.Create:
        """`f(x DOUBLE, …) [RETURNS DOUBLE] AS expression`, `… RETURN expression`, or `… RETURNS TABLE AS query`."""
        name = self._parse_target("the name of the function")
        empty = self._match_pair(TokenType.L_PAREN, TokenType.R_PAREN)
        parameters = [] if empty else self._parse_wrapped_csv(self._parse_column_declaration)
        signature = exp.UserDefinedFunction(this=name, expressions=parameters, wrapped=True)
        properties = None
        if self._match_text_seq("RETURNS", "TABLE"):
            self._expect(TokenType.ALIAS, "AS")
            properties = exp.Properties(expressions=[exp.ReturnsProperty(this=exp.var("TABLE"))])
            query = self._parse_query()
            return self.expression(exp.Create(this=signature, expression=query, properties=properties, **flags))
        if self._match_text_seq("RETURNS"):
            kind = self._parse_types(schema=True)
            if kind is None:
                self.unexpected("a type")
            properties = exp.Properties(expressions=[exp.ReturnsProperty(this=kind)])
        if not self._match(TokenType.ALIAS) and not self._match_text_seq("RETURN"):
            self.unexpected("AS or RETURN")
        body = self._parse_operand()
        return self.expression(exp.Create(this=signature, expression=body, properties=properties, **flags))

    # DROP and changes of stored tables

    def _parse_target(self, wanted: str) -> exp.Table:
        """The name of the object that a statement defines or changes."""
        return exp.Table(this=self._parse_name(wanted))

    def _parse_drop_statement(self) -> exp.Drop:
        if not self._match_texts(_DROPPABLE):
            self._unknown_kind(_DROPPABLE)
        kind = self._prev.text.upper()
        exists = self._match_text_seq("IF", "EXISTS")
        target = self._parse_target(f"the name of the {kind.lower()}")
        cascade = self._match_text_seq("CASCADE")
        restrict = not cascade and self._match_text_seq("RESTRICT")
        return self.expression(exp.Drop(kind=kind, tables=[target], exists=exists, cascade=cascade, restrict=restrict))

    def _parse_insert_statement(self) -> exp.Insert:
        replaces = "REPLACE" if self._match_text_seq("OR", "REPLACE") else None
        target = self._parse_insert_target()
        return self.expression(exp.Insert(this=target, expression=self._parse_query(), alternative=replaces))

    def _parse_insert_target(self) -> exp.Expr:
        """`INTO t [(column, …)]`."""
        self._expect_words("INTO")
        target: exp.Expr = self._parse_target("the name of a table, stream or sink")
        if self._match(TokenType.L_PAREN, advance=False) and self._next.token_type not in self.SELECT_START_TOKENS:
            columns = self._parse_wrapped_csv(lambda: self._parse_name("the name of a column"))
            target = self.expression(exp.Schema(this=target, expressions=columns))
        return target

    def _parse_delete_statement(self) -> exp.Delete:
        self._expect(TokenType.FROM, "FROM")
        target = self._parse_target("the name of a table")
        return self.expression(exp.Delete(this=target, where=self._parse_where()))

    def _parse_update_statement(self) -> exp.Update:
        target = self._parse_target("the name of a table")
        self._expect_words("SET")
        assignments = self._parse_list(self._parse_assigned_column, "an assignment")
        return self.expression(exp.Update(this=target, expressions=assignments, where=self._parse_where()))

    def _parse_assigned_column(self) -> exp.EQ:
        column = exp.Column(this=self._parse_name("the name of a column"))
        self._expect(TokenType.EQ, "'='")
        return self.expression(exp.EQ(this=column, expression=self._parse_operand()))
