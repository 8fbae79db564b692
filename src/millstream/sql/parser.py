"""The parser of the dialect: which statements there are, and the statements that control the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NoReturn, cast

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from millstream.sql.alterations import AlterationParser
from millstream.sql.failures import STATEMENT_WORDS, did_you_mean, quoted
from millstream.sql.history import QueryAlteration
from millstream.sql.nodes import (
    Backup,
    CreateSink,
    CreateStream,
    Explain,
    ResetOption,
    SetLocation,
    SetOption,
    Show,
    Stop,
)
from millstream.sql.relations import CreateView
from millstream.sql.spans import cover

_EXPLAIN_MODES = ("VERBOSE", "RULES", "COST")
_SHOWABLE = ("STREAMS", "TABLES", "VIEWS", "QUERIES", "SINKS", "FUNCTIONS", "AGGREGATES", "SHARING")
_EXPLAINABLE = (exp.Query, exp.Values, exp.Insert, exp.Create, CreateStream, CreateSink, CreateView, QueryAlteration)
_QUERY_STARTS = (TokenType.SELECT, TokenType.WITH, TokenType.VALUES, TokenType.L_PAREN)


class MillstreamParser(AlterationParser):
    """One statement's tokens → its AST."""

    STATEMENTS: ClassVar[dict[str, Callable[[MillstreamParser], exp.Expr]]] = {
        "AGGREGATE": lambda self: self._parse_bare_aggregate(),
        "ALGEBRAIC": lambda self: self._parse_bare_aggregate(),
        "ALTER": lambda self: self._parse_alteration(),
        "BACKUP": lambda self: self._parse_backup(),
        "CREATE": lambda self: self._parse_create_statement(),
        "DELETE": lambda self: self._parse_delete_statement(),
        "DESC": lambda self: self._parse_describe_statement(),
        "DESCRIBE": lambda self: self._parse_describe_statement(),
        "DROP": lambda self: self._parse_drop_statement(),
        "EXPLAIN": lambda self: self._parse_explain(),
        "INSERT": lambda self: self._parse_insert_statement(),
        "PAUSE": lambda self: self._parse_pause(resume=False),
        "RESET": lambda self: self._parse_reset(),
        "RESUME": lambda self: self._parse_pause(resume=True),
        "SET": lambda self: self._parse_set_option(),
        "SHOW": lambda self: self._parse_show_statement(),
        "STOP": lambda self: self._parse_stop(),
        "STREAM": lambda self: self._parse_create_stream(),
        "TABLE": lambda self: self._parse_create_table(kind="TABLE"),
        "UPDATE": lambda self: self._parse_update_statement(),
        "WINDOW": lambda self: self._parse_bare_aggregate(),
    }

    def parse_tokens(self, tokens: list[Token], sql: str) -> exp.Expression:
        """The AST of one statement; `tokens` are all of its tokens and `sql` the text their offsets count in."""
        self.reset()
        self.begin(len(tokens))
        self.sql = sql
        self._chunks = [tokens]
        self._advance_chunk()
        node = self._parse_any_statement()
        if self._curr:
            self.unexpected()
        cover(node, tokens[0], tokens[-1])
        return cast(exp.Expression, node)

    def _parse_any_statement(self) -> exp.Expr:
        if self._curr.token_type in _QUERY_STARTS or self._at_stream_operator():
            return self._parse_query()
        if self._match(TokenType.FROM, advance=False):
            return self._parse_query()
        if self._match_texts(self.STATEMENTS):
            return self.STATEMENTS[self._prev.text.upper()](self)
        return self._unknown_statement()

    def _unknown_statement(self) -> NoReturn:
        failure = self._failure(f"expected a statement, found {quoted(self._curr)}", self._curr)
        failure.hint = did_you_mean(self._curr.text, STATEMENT_WORDS)
        raise failure

    def _parse_explain(self) -> Explain:
        mode = self._prev.text.upper() if self._match_texts(_EXPLAIN_MODES) else None
        first = self._curr
        statement = self._parse_any_statement()
        if not isinstance(statement, _EXPLAINABLE):
            raise self._failure("only queries, INSERT, CREATE … AS and ALTER QUERY can be explained", first)
        cover(statement, first, self._prev)
        return self.expression(Explain(this=statement, mode=mode))

    def _parse_show_statement(self) -> Show:
        if not self._match_texts(_SHOWABLE):
            self._unknown_kind(_SHOWABLE)
        return self.expression(Show(kind=self._prev.text.upper()))

    def _parse_describe_statement(self) -> exp.Describe:
        return self.expression(exp.Describe(this=self._parse_target("the name of a stream, table or sink")))

    def _parse_stop(self) -> Stop:
        return self.expression(Stop(this=self._parse_name("the name of a query")))

    def _parse_backup(self) -> Backup:
        self._expect_words("TO")
        if self._curr.token_type is not TokenType.STRING:
            self.unexpected("a directory in quotes")
        return self.expression(Backup(this=self._parse_primary()))

    def _parse_set_option(self) -> SetOption | SetLocation:
        if self._at_location():
            return self._parse_location()
        key = self._parse_setting_key("the name of a setting")
        if not self._match(TokenType.EQ) and not self._match_text_seq("TO"):
            self.unexpected("'='")
        value = self._parse_setting_value() or self._parse_bare_word()
        if value is None:
            self.unexpected("a value")
        return self.expression(SetOption(this=key, expression=value))

    def _parse_bare_word(self) -> exp.Var | None:
        """A word that stands for itself, as in SET mode = fast."""
        word = self._curr
        if not word or word.token_type in self.TEXT_MATCH_EXCLUDED_TOKENS or not word.text[:1].isalpha():
            return None
        self._advance()
        return exp.Var(this=word.text)

    def _at_location(self) -> bool:
        return self._next.token_type not in (TokenType.EQ, TokenType.SENTINEL) and self._match_text_seq("LOCATION")

    def _parse_location(self) -> SetLocation:
        """What follows SET LOCATION: a name, a directory, and whether nothing may be written there."""
        name = self._parse_name("the name of a location")
        self._expect(TokenType.EQ, "'='")
        if self._curr.token_type is not TokenType.STRING:
            self.unexpected("a directory in quotes")
        directory = self._parse_primary()
        read_only = bool(self._match_text_seq("READ", "ONLY"))
        return self.expression(SetLocation(this=name, expression=directory, read_only=read_only))

    def _parse_reset(self) -> ResetOption | SetLocation:
        if self._at_location():
            return self.expression(SetLocation(this=self._parse_name("the name of a location")))
        return self.expression(ResetOption(this=self._parse_setting_key("the name of a setting")))
