"""Windows in FROM: `S WINDOW(RANGE 5 HOURS)`, `S [ROWS 10]`, `S WINDOW(…) GRANULARITY(1 MINUTE)`."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from millstream.sql.failures import did_you_mean, quoted
from millstream.sql.relations import Granularity, StreamWindow, Windowed
from millstream.sql.spans import cover
from millstream.sql.window_tables import WindowTableParser

_KINDS = ("ROWS", "RANGE")
_STARTS = ("PARTITION BY", "ROWS", "RANGE", "UNBOUNDED", "NOW")
_HALF_JOINS = ("SEMI", "ANTI")
_ASOF_FOLLOWERS = (TokenType.JOIN, TokenType.LEFT, TokenType.INNER, TokenType.RIGHT, TokenType.FULL)
_CLAUSES = ("SLIDE", "LATENESS", "DELETE")
_SIZE = "a number or a time span such as 5 MINUTES"
_SIZES = {"ROWS": "a number of rows", "RANGE": _SIZE}


class StreamWindowParser(WindowTableParser):
    """What may stand behind a stream in FROM: its alias, its window and its granularity."""

    def _parse_named(self, node: exp.Table | exp.Subquery, first: Token) -> exp.Expr:
        """An item of FROM with what follows it; the alias stands on either side of the window."""
        last = self._prev
        alias = self._parse_table_alias()
        window = self._parse_stream_window()
        granularity = self._parse_granularity()
        item: exp.Expr = node
        if window is not None or granularity is not None:
            cover(node, first, last)
            alias = alias or self._parse_table_alias()
            item = Windowed(this=node, window=window, granularity=granularity, alias=alias)
        elif alias is not None:
            item.set("alias", alias)
        cover(item, first, self._prev)
        return item

    def _parse_table_alias(self, alias_tokens: object = None) -> exp.TableAlias | None:
        if self._at_granularity() or self._at_half_join() or self._at_asof_join():
            return None
        return super()._parse_table_alias(alias_tokens)

    def _at_half_join(self) -> bool:
        """At `SEMI JOIN` or `ANTI JOIN`; anywhere else the words are names."""
        return self._match_texts(_HALF_JOINS, advance=False) and self._next.token_type is TokenType.JOIN

    def _at_asof_join(self) -> bool:
        """At `ASOF JOIN` or `ASOF LEFT JOIN`; anywhere else the word is a name."""
        return self._match_texts(("ASOF",), advance=False) and self._next.token_type in _ASOF_FOLLOWERS

    def _parse_half_join(self) -> str | None:
        """SEMI or ANTI of `[LEFT] SEMI JOIN`, which is consumed; None if none stands here."""
        index = self._index
        self._match(TokenType.LEFT)
        if not self._at_half_join():
            self._retreat(index)
            return None
        self._advance(2)
        return self._tokens[self._index - 2].text.upper()

    # WINDOW

    def _parse_stream_window(self) -> StreamWindow | None:
        first = self._curr
        if self._match_pair(TokenType.WINDOW, TokenType.L_PAREN):
            node = self._parse_window_body()
            self._close_window(TokenType.R_PAREN, "')'")
        elif self._match(TokenType.L_BRACKET):
            node = self._parse_window_body()
            self._close_window(TokenType.R_BRACKET, "']'")
        else:
            return None
        cover(node, first, self._prev)
        return node

    def _close_window(self, token_type: TokenType, wanted: str) -> None:
        if self._match(token_type):
            return
        failure = self._failure(f"expected {wanted}, found {quoted(self._curr)}", self._curr)
        if self._match_texts(("PRECEDING", "FOLLOWING"), advance=False):
            failure.hint = f"a window in FROM always holds the latest rows: write it without {self._curr.text.upper()}"
        raise failure

    def _parse_window_body(self, framed: bool = False) -> StreamWindow:
        """What a window holds; if `framed`, it may be written as behind OVER."""
        if self._match_text_seq("NOW"):
            return StreamWindow(kind="RANGE", now=True)
        if self._match_text_seq("UNBOUNDED"):
            return StreamWindow(kind="RANGE")
        keys: list[exp.Column] = []
        if self._match(TokenType.PARTITION_BY):
            keys = self._parse_list(lambda: self._parse_plain_column("the name of a column"), "the name of a column")
        if not self._match_texts(_KINDS):
            wanted = "ROWS or RANGE" if keys else f"{', '.join(_STARTS[:-1])} or {_STARTS[-1]}"
            failure = self._failure(f"expected {wanted}, found {quoted(self._curr)}", self._curr)
            failure.hint = did_you_mean(self._curr.text, _STARTS)
            raise failure
        kind = self._prev.text.upper()
        wanted = _SIZES[kind]
        node = StreamWindow(kind=kind, partition=keys or None)
        if self._match_text_seq("MIN"):
            node.set("least", self._parse_window_size(wanted))
            self._expect(TokenType.COMMA, "','")
            self._expect_words("MAX")
            node.set("most", self._parse_window_size(wanted))
        elif not self._match_text_seq("UNBOUNDED"):
            node.set("size", self._parse_window_size(f"{wanted} or UNBOUNDED"))
        if framed and self._match_text_seq("PRECEDING"):
            node.set("preceding", True)
        if self._match_text_seq("SLIDE"):
            node.set("slide", self._parse_window_size(wanted))
        if self._match_text_seq("LATENESS"):
            node.set("lateness", self._parse_window_size(_SIZE))
        if self._match_text_seq("DELETE"):
            self._expect(TokenType.WHEN, "WHEN")
            condition = self._parse_disjunction()
            if condition is None:
                self.unexpected("a condition")
            node.set("delete", condition)
        return node

    def _parse_window_size(self, wanted: str) -> exp.Expr:
        """`10`, `10 SECONDS` or `INTERVAL '10' SECOND`."""
        counted = self._next.text.upper() in _CLAUSES
        value = (None if counted else self._parse_time_span()) or self._parse_length()
        if value is None:
            self.unexpected(wanted)
        return value

    # GRANULARITY

    def _at_granularity(self) -> bool:
        """At `GRANULARITY(1 MINUTE)`, as against the alias of `FROM s granularity(a, b)`."""
        if not self._match_text_seq("GRANULARITY", "(", advance=False):
            return False
        inner = [token.token_type for token in self._tokens[self._index + 2 : self._index + 4]]
        named = inner[0] in self.ID_VAR_TOKENS and inner[-1] in (TokenType.COMMA, TokenType.R_PAREN)
        return not named

    def _parse_granularity(self) -> Granularity | None:
        if not self._at_granularity():
            return None
        first = self._curr
        self._advance(2)
        if self._match_text_seq("COARSEST"):
            coarsest = self._parse_window_size(_SIZE)
            self._expect(TokenType.COMMA, "','")
            self._expect_words("FINEST")
            node = Granularity(coarsest=coarsest, finest=self._parse_window_size(_SIZE))
        else:
            node = Granularity(size=self._parse_window_size(_SIZE))
        self._match_r_paren()
        cover(node, first, self._prev)
        return node
