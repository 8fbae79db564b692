"""Statements that change what runs: ALTER STREAM, ALTER QUERY, PAUSE and RESUME."""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from millstream.sql.aggregates import AggregateParser
from millstream.sql.failures import did_you_mean, quoted
from millstream.sql.history import Pause, QueryAlteration, StreamAlteration
from millstream.sql.relations import StreamWindow
from millstream.sql.spans import cover

_ALTERABLE = ("QUERY", "STREAM")
_QUERY_NAME = "the name of a query"


class AlterationParser(AggregateParser):
    """What follows ALTER, PAUSE and RESUME."""

    WINDOW_BRACKETS: ClassVar = (TokenType.L_BRACKET, TokenType.WINDOW)

    def _parse_alteration(self) -> exp.Expr:
        if not self._match_texts(_ALTERABLE):
            failure = self._failure(f"expected QUERY or STREAM, found {quoted(self._curr)}", self._curr)
            failure.hint = did_you_mean(self._curr.text, _ALTERABLE)
            raise failure
        if self._prev.text.upper() == "STREAM":
            return self._parse_alter_stream()
        name = self._parse_name(_QUERY_NAME)
        if self._match(TokenType.ALIAS):
            return QueryAlteration(this=name, query=self._parse_query())
        if self._match_text_seq("PAUSE"):
            return Pause(this=name)
        if self._match_text_seq("RESUME"):
            return Pause(this=name, resume=True)
        if not self._match_text_seq("SET"):
            self.unexpected("AS, SET WINDOW, PAUSE or RESUME")
        self._expect_words("WINDOW")
        item = self._parse_name("the name of a stream") if self._match(TokenType.ON) else None
        return QueryAlteration(this=name, item=item, window=self._parse_new_window())

    def _parse_new_window(self) -> StreamWindow:
        """A window as it stands in FROM, with or without brackets, or as behind OVER."""
        if self._curr.token_type in self.WINDOW_BRACKETS and (window := self._parse_stream_window()) is not None:
            return window
        first = self._curr
        window = self._parse_window_body(framed=True)
        cover(window, first, self._prev)
        return window

    def _parse_alter_stream(self) -> StreamAlteration:
        name = self._parse_name("the name of a stream")
        if self._match_text_seq("NO", "HISTORY"):
            return StreamAlteration(this=name)
        self._expect_words("KEEP")
        return StreamAlteration(this=name, keep=self._parse_keep())

    def _parse_pause(self, *, resume: bool) -> Pause:
        if self._curr.text.upper() == "QUERY" and self._next:
            self._advance()
        return Pause(this=self._parse_name(_QUERY_NAME), resume=resume or None)
