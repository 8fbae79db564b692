"""Row patterns in FROM: `s MATCH_RECOGNIZE (…)` and `s PARTITION BY k AS (X, *Y)`."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from millstream.errors import Span
from millstream.sql.failures import SyntaxFailure, did_you_mean, quoted
from millstream.sql.patterns import MatchRecognize, RowsPerMatch, SequenceMatch, SequenceVariable
from millstream.sql.relations import Windowed
from millstream.sql.stream_windows import StreamWindowParser
from millstream.sql.words import NAME_TOKENS

_RECOGNIZE = "MATCH_RECOGNIZE"
_MOST_WORDS = len(_RECOGNIZE.split("_"))
_KEY_NAME = "the name of the key"
_EXPRESSION = "an expression"
_VARIABLE = "a variable, optionally with a star before it"


class MatchParser(StreamWindowParser):
    """What may stand behind an item of FROM to find patterns in its rows."""

    def _parse_table_alias(self, alias_tokens: object = None) -> exp.TableAlias | None:
        if self._at_match_recognize() or self._at_sequence():
            return None
        self._refuse_misspelt()
        return super()._parse_table_alias(alias_tokens)

    def _parse_matches(self, item: exp.Expr, first: Token) -> exp.Expr:
        """The item of FROM that began at `first`, or the matches of the patterns that follow it."""
        while True:
            if self._at_match_recognize():
                item = self._parse_windowed(self._covered(self._parse_recognized(item), first))
            elif self._at_sequence():
                item = self._parse_sequence_match(item)
            else:
                return item
            self._covered(item, first)

    # MATCH_RECOGNIZE

    def _at_match_recognize(self) -> bool:
        return self._match_text_seq(_RECOGNIZE, "(", advance=False)

    def _refuse_misspelt(self) -> None:
        """Refuse what is nearly MATCH_RECOGNIZE and would be read as an alias, if its clauses follow."""
        index = self._index
        self._match(TokenType.ALIAS)
        names: list[Token] = []
        while self._curr.token_type in NAME_TOKENS and len(names) < _MOST_WORDS:
            names.append(self._curr)
            self._advance()
        is_followed = self._match(TokenType.L_PAREN) and self._at_match_clause() and self._curr.text != ")"
        self._retreat(index)
        if not is_followed or not names:
            return
        has_alias = len(names) > 1 and names[0].text.upper() != "MATCH"
        names = names[-1:] if has_alias else names
        written = "_".join(name.text.upper() for name in names)
        place = Span(names[0].start, names[-1].end + 1)
        is_word = written == _RECOGNIZE
        if is_word and len(names) == 1 and not has_alias:
            raise SyntaxFailure(f"{_RECOGNIZE} cannot be an alias", place, "leave AS out")
        if did_you_mean(written, (_RECOGNIZE,)) or (is_word and len(names) > 1):
            found = " ".join(name.text for name in names)
            raise SyntaxFailure(f"unexpected '{found}'", place, f"did you mean {_RECOGNIZE}?")

    def _parse_recognized(self, item: exp.Expr) -> MatchRecognize:
        self._advance(2)
        node = MatchRecognize(this=item)
        if self._match(TokenType.PARTITION_BY):
            node.set("partition", self._parse_list(self._parse_partition_key, _EXPRESSION))
        node.set("order", self._parse_order())
        node.set("measures", self._parse_measures())
        node.set("rows", self._parse_rows_per_match())
        node.set("skip", self._parse_after_match())
        self._parse_pattern_clauses(node)
        self._expect(TokenType.R_PAREN, "')'")
        node.set("alias", self._parse_table_alias())
        return node

    def _parse_partition_key(self) -> exp.Expr | None:
        """An expression that tells partitions apart, and the name that the result knows it by."""
        first = self._curr
        value = self._parse_disjunction()
        if value is None or self._next.token_type is TokenType.L_PAREN or not self._match(TokenType.ALIAS):
            return value
        if self._at_match_clause():
            self.unexpected(_KEY_NAME)
        return self._covered(exp.Alias(this=value, alias=self._parse_name(_KEY_NAME)), first)

    def _parse_windowed(self, item: MatchRecognize) -> exp.Expr:
        """The matches, or the window of them that follows; the alias stands on either side of it."""
        window = self._parse_stream_window()
        if window is None:
            return item
        alias = None if item.alias else self._parse_table_alias()
        return Windowed(this=item, window=window, alias=alias)

    def _parse_rows_per_match(self) -> RowsPerMatch | None:
        first = self._curr
        if self._match_text_seq("ONE", "ROW"):
            self._expect_words("PER", "MATCH")
            return self._covered(RowsPerMatch(all=False), first)
        if not self._match_text_seq("ALL", "ROWS"):
            return None
        self._expect_words("PER", "MATCH")
        node = RowsPerMatch(all=True)
        if self._match_text_seq("SHOW") or self._match_text_seq("OMIT"):
            node.set("omit", self._prev.text.upper() == "OMIT" or None)
            self._expect_words("EMPTY", "MATCHES")
        elif self._match_text_seq("WITH"):
            self._expect_words("UNMATCHED", "ROWS")
            node.set("unmatched", True)
        return self._covered(node, first)

    # AS (X, *Y)

    def _at_sequence(self) -> bool:
        """At PARTITION BY, SEQUENCE BY or `AS (` behind an item of FROM."""
        return (
            self._match(TokenType.PARTITION_BY, advance=False)
            or self._match_text_seq("SEQUENCE", "BY", advance=False)
            or self._match_pair(TokenType.ALIAS, TokenType.L_PAREN, advance=False)
        )

    def _parse_sequence_match(self, item: exp.Expr) -> SequenceMatch:
        node = SequenceMatch(this=item)
        if self._match(TokenType.PARTITION_BY):
            node.set("partition", self._parse_list(self._parse_partition_key, _EXPRESSION))
        if self._match_text_seq("SEQUENCE", "BY"):
            node.set("sequence", self._parse_list(self._parse_ordered, _EXPRESSION))
        if not self._match_pair(TokenType.ALIAS, TokenType.L_PAREN):
            failure = self._failure(f"expected AS (…), found {quoted(self._curr)}", self._curr)
            failure.hint = "a pattern is a list of variables, such as AS (X, *Y)"
            raise failure
        node.set("variables", self._parse_csv(self._parse_sequence_variable))
        self._expect(TokenType.R_PAREN, "')'")
        return node

    def _parse_sequence_variable(self) -> SequenceVariable:
        first = self._curr
        star = bool(self._match(TokenType.STAR))
        return self._covered(SequenceVariable(this=self._parse_name(_VARIABLE), star=star or None), first)
