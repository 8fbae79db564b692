"""Aggregates written in SQL: CREATE AGGREGATE and the statements of its body."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from millstream.sql.definitions import DefinitionParser
from millstream.sql.failures import did_you_mean, quoted
from millstream.sql.nodes import STATES, CreateAggregate, LocalTableClause
from millstream.sql.spans import cover

_HEADS = ("ALGEBRAIC", "WINDOW", "AGGREGATE")
_CHANGES = ("INSERT", "UPDATE", "DELETE")


class AggregateParser(DefinitionParser):
    """`[CREATE] [ALGEBRAIC] [WINDOW] AGGREGATE name(…) : type { TABLE …; INITIALIZE: { … } ITERATE: { … } … }`."""

    def _parse_created(self, replace: bool) -> exp.Expr:
        if self._match_texts(_HEADS, advance=False):
            return self._parse_create_aggregate(replace)
        return super()._parse_created(replace)

    def _parse_bare_aggregate(self) -> CreateAggregate:
        """AGGREGATE without CREATE; its first word has been read."""
        self._retreat(self._index - 1)
        return self._parse_create_aggregate(replace=False)

    def _parse_create_aggregate(self, replace: bool) -> CreateAggregate:
        algebraic = self._match_text_seq("ALGEBRAIC")
        window = self._match_text_seq("WINDOW")
        self._expect_words("AGGREGATE")
        exists = self._match_text_seq("IF", "NOT", "EXISTS")
        name = self._parse_name("the name of the aggregate")
        node = CreateAggregate(
            this=name,
            parameters=self._parse_parameters(),
            returns=self._parse_results(name),
            tables=[],
            window=bool(window),
            algebraic=bool(algebraic),
            or_replace=replace,
            if_not_exists=bool(exists),
        )
        self._expect(TokenType.L_BRACE, "'{'")
        self._in_body = True
        self._parse_body(node)
        self._in_body = False
        return node

    def _parse_parameters(self) -> list[exp.ColumnDef]:
        if self._match_pair(TokenType.L_PAREN, TokenType.R_PAREN):
            return []
        return self._parse_columns()

    def _parse_columns(self) -> list[exp.ColumnDef]:
        """`(name [type], …)`."""
        self._expect(TokenType.L_PAREN, "'('")
        columns = self._parse_list(self._parse_typed_name, "the name of a column")
        self._match_r_paren()
        return columns

    def _parse_typed_name(self) -> exp.ColumnDef:
        first = self._curr
        name = self._parse_name("the name of a column")
        node = exp.ColumnDef(this=name, kind=self._parse_types(schema=True))
        cover(node, first, self._prev)
        return node

    def _parse_results(self, name: exp.Identifier) -> list[exp.ColumnDef]:
        if not self._match(TokenType.COLON) and not self._match_text_seq("RETURNS"):
            failure = self._failure(f"expected ':' or RETURNS, found {quoted(self._curr)}", self._curr)
            failure.hint = f"{name.name}(…) : type, or {name.name}(…) : (column type, …)"
            raise failure
        if self._match(TokenType.L_PAREN, advance=False):
            return self._parse_columns()
        first = self._curr
        kind = self._parse_types(schema=True)
        if kind is None:
            self.unexpected("a type or '('")
        # The name without its place: the place of this column is that of the type.
        column = exp.ColumnDef(this=exp.Identifier(this=name.this, quoted=name.args.get("quoted")), kind=kind)
        cover(column, first, self._prev)
        return [column]

    def _parse_body(self, node: CreateAggregate) -> None:
        """Tables, then states, up to the closing brace."""
        while self._match_text_seq("TABLE"):
            self._parse_local_tables(node)
            while self._match(TokenType.SEMICOLON):
                pass
        while not self._match(TokenType.R_BRACE):
            if not self._match(TokenType.SEMICOLON):
                self._parse_state(node)

    def _parse_local_tables(self, node: CreateAggregate) -> None:
        """`t(…)`, or several with commas between; the word TABLE may be repeated."""
        while True:
            first = self._curr
            table = LocalTableClause(this=self._parse_name("the name of a table"), columns=self._parse_columns())
            cover(table, first, self._prev)
            node.append("tables", table)
            if not self._match(TokenType.COMMA):
                break
            if self._next.token_type is not TokenType.L_PAREN:
                self._match_text_seq("TABLE")
        if not self._match(TokenType.SEMICOLON) and not self._match(TokenType.R_BRACE, advance=False):
            self.unexpected("';'")

    def _parse_state(self, node: CreateAggregate) -> None:
        """`STATE: { … }`, or several states with one body."""
        names = [self._parse_label(node, [])]
        while not self._match(TokenType.L_BRACE):
            if not self._is_label():
                self.unexpected("'{'")
            names.append(self._parse_label(node, names))
        statements: list[exp.Expr] = []
        while not self._match(TokenType.R_BRACE):
            if self._match(TokenType.SEMICOLON):
                continue
            statements.append(self._parse_change())
            if self._curr.token_type not in (TokenType.SEMICOLON, TokenType.R_BRACE):
                self.unexpected("';' or '}'")
        for name in names:
            node.set(name, statements if name == names[0] else [statement.copy() for statement in statements])

    def _is_label(self) -> bool:
        return bool(self._match_texts(STATES, advance=False)) or self._next.token_type is TokenType.COLON

    def _parse_label(self, node: CreateAggregate, before: list[str]) -> str:
        """The name of a state and its colon."""
        word = self._curr
        if not self._match_texts(STATES):
            raise self._unknown_state(word)
        name = word.text.lower()
        if name in before or node.state(name) is not None:
            raise self._failure(f"{word.text.upper()} is given twice", word)
        self._expect(TokenType.COLON, f"':' after {word.text.upper()}")
        return name

    def _unknown_state(self, word: Token) -> Exception:
        if word.text.upper() == "TABLE":
            return self._failure("the tables of an aggregate are declared before its states", word)
        failure = self._failure(f"expected {', '.join(STATES[:-1])}, {STATES[-1]} or '}}', found {quoted(word)}", word)
        failure.hint = did_you_mean(word.text, STATES)
        return failure

    def _parse_change(self) -> exp.Expr:
        """One statement of a state."""
        first = self._curr
        if not self._match_texts(_CHANGES):
            failure = self._failure(f"expected INSERT, UPDATE or DELETE, found {quoted(first)}", first)
            query = first.token_type in (TokenType.SELECT, TokenType.WITH, TokenType.VALUES)
            hint = "to return rows, write INSERT INTO RETURN SELECT …"
            failure.hint = hint if query else did_you_mean(first.text, _CHANGES)
            raise failure
        word = first.text.upper()
        if word == "INSERT":
            node: exp.Expr = self._parse_insertion()
        else:
            node = self._parse_update_statement() if word == "UPDATE" else self._parse_delete_statement()
        cover(node, first, self._prev)
        return node

    def _parse_insertion(self) -> exp.Insert:
        """INSERT INTO t with a query, or with VALUES and perhaps a condition."""
        target = self._parse_insert_target()
        first = self._curr
        if not self._match(TokenType.VALUES):
            return self.expression(exp.Insert(this=target, expression=self._parse_query()))
        values = exp.Values(expressions=self._parse_rows())
        cover(values, first, self._prev)
        return self.expression(exp.Insert(this=target, expression=values, where=self._parse_where()))

    def _parse_rows(self) -> list[exp.Tuple]:
        """The rows of VALUES; the papers also print them in one more pair of parentheses."""
        index = self._index
        rows = self._parse_list(self._parse_values_row, "'('")
        if len(rows) > 1 or not all(isinstance(value, exp.Tuple) for value in rows[0].expressions):
            return rows
        self._retreat(index + 1)
        rows = self._parse_list(self._parse_values_row, "'('")
        self._match_r_paren()
        return rows

    def _parse_where(self, skip_where_token: bool = False) -> exp.Where | None:
        # The papers print a stray `;` before the WHERE of an UPDATE; no statement begins with WHERE.
        if self._in_body and self._match_pair(TokenType.SEMICOLON, TokenType.WHERE, advance=False):
            self._advance()
        return super()._parse_where(skip_where_token)
