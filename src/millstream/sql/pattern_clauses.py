"""The clauses around PATTERN: MEASURES, AFTER MATCH SKIP, WITHIN, SUBSET and DEFINE; and what only they hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from millstream.sql import words
from millstream.sql.failures import did_you_mean, quoted
from millstream.sql.patterns import (
    AfterMatch,
    Final,
    Matching,
    PatternDefinition,
    PatternSubset,
    RunningExtent,
    Starred,
    Within,
)
from millstream.sql.row_patterns import VARIABLE, RowPatternParser

_MEASURE = "a measure such as LAST(a.price) AS price"
_SKIPS = "PAST LAST ROW, TO NEXT ROW, TO FIRST … or TO LAST …"
_CLAUSE_HEADS = (
    ("PARTITION BY",), ("ORDER BY",), ("MEASURES",), ("ONE", "ROW"), ("ALL", "ROWS"), ("AFTER", "MATCH"),
    ("INITIAL", "PATTERN"), ("SEEK", "PATTERN"), ("PATTERN", "("), ("WITHIN",), ("SUBSET",), ("DEFINE",), (")",),
    ("ROWS", "BETWEEN"), ("RANGE", "BETWEEN"), ("GROUPS", "BETWEEN"),
)  # fmt: skip
_CLAUSE_ORDER = "PARTITION BY, ORDER BY, MEASURES, … PER MATCH, AFTER MATCH SKIP, PATTERN, WITHIN, SUBSET, DEFINE"
_LATE_CLAUSES = ("WITHIN", "SUBSET", "DEFINE")
_EXTENTS: dict[str, type[exp.Expression]] = {"RUNNING": RunningExtent, "FINAL": Final}

T = TypeVar("T")


class PatternClauseParser(RowPatternParser):
    """The clauses that MATCH_RECOGNIZE and patterns in windows share."""

    # Whether MEASURES or DEFINE is being read, where RUNNING and FINAL are words.
    _in_match = False

    def _parse_measures(self) -> list[exp.Alias] | None:
        if not self._match_text_seq("MEASURES"):
            return None
        return self._inside_match(lambda: self._parse_csv(self._parse_measure))

    def _parse_measure(self) -> exp.Alias:
        first = self._curr
        value = None if self._at_match_clause() else self._parse_disjunction()
        if value is None:
            self.unexpected(_MEASURE)
        if not self._at_bare_name():
            self._check_extent(value)
            self._expect(TokenType.ALIAS, "AS and the name of the measure")
        return self._covered(exp.Alias(this=value, alias=self._parse_name("the name of the measure")), first)

    def _check_extent(self, value: exp.Expr) -> None:
        """Refuse FINAL and RUNNING before a column, which were read as a column themselves."""
        word = value.name.upper() if isinstance(value, exp.Column) and not value.table else ""
        if word in _EXTENTS and self._curr.token_type in words.NAME_TOKENS:
            raise self._hinted(f"{word} is only allowed before FIRST, LAST and aggregates", f"write {word} LAST(…)")

    def _at_bare_name(self) -> bool:
        """At the name of a measure without AS, as Oracle allows it: what follows shows that it is one."""
        after = self._next.text.upper()
        is_last = any(after == head[0] for head in _CLAUSE_HEADS) and not self._at_match_clause()
        return self._curr.token_type in words.NAME_TOKENS and (is_last or after == ",")

    def _at_match_clause(self) -> bool:
        return any(self._match_text_seq(*head, advance=False) for head in _CLAUSE_HEADS)

    def _parse_after_match(self) -> AfterMatch | None:
        first = self._curr
        if not self._match_text_seq("AFTER", "MATCH"):
            return None
        self._expect_words("SKIP")
        if self._match_text_seq("PAST", "LAST", "ROW"):
            node = AfterMatch(to="PAST LAST ROW")
        elif self._match_text_seq("TO", "NEXT", "ROW"):
            node = AfterMatch(to="NEXT ROW")
        elif self._match_text_seq("TO"):
            side = "LAST"
            if self._match_texts(("FIRST", "LAST")):
                side = self._prev.text.upper()
            if self._at_match_clause():
                self.unexpected(VARIABLE)
            node = AfterMatch(to=side, this=self._parse_name(VARIABLE))
        else:
            failure = self._failure(f"expected {_SKIPS}, found {quoted(self._curr)}", self._curr)
            failure.hint = did_you_mean(self._curr.text, ("PAST", "TO"))
            raise failure
        return self._covered(node, first)

    def _parse_pattern_clauses(self, node: Matching) -> None:
        """PATTERN and what follows it. WITHIN may stand behind any of them: systems differ."""
        if not self._match_text_seq("PATTERN", "("):
            failure = self._failure(f"expected PATTERN (…), found {quoted(self._curr)}", self._curr)
            failure.hint = (
                f"the order is {_CLAUSE_ORDER}"
                if self._at_match_clause() and not self._match(TokenType.R_PAREN, advance=False)
                else did_you_mean(self._curr.text, ("PATTERN", "MEASURES", "AFTER", "DEFINE", "SUBSET")) or failure.hint
            )
            raise failure
        node.set("pattern", self._parse_row_pattern())
        if self._match(TokenType.COMMA, advance=False):
            raise self._hinted("unexpected ','", "separate variables with spaces, not commas")
        self._expect(TokenType.R_PAREN, "')'")
        self._parse_within(node)
        if self._match_text_seq("SUBSET"):
            node.set("subsets", self._parse_csv(self._parse_subset))
            self._parse_within(node)
        if self._match_text_seq("DEFINE"):
            node.set("definitions", self._inside_match(lambda: self._parse_csv(self._parse_definition)))
            self._parse_within(node)
        if node.within is None and self._match_text_seq("WITH", "TIMEOUTS", advance=False):
            raise self._hinted(f"unexpected {quoted(self._curr)}", "WITH TIMEOUTS comes after WITHIN …")
        if self._match_texts(_LATE_CLAUSES, advance=False):
            word = self._curr.text.upper()
            given = {"WITHIN": node.within, "SUBSET": node.subsets, "DEFINE": node.definitions}[word]
            raise self._hinted(
                f"{word} is given twice" if given else f"unexpected {quoted(self._curr)}",
                f"the order is {_CLAUSE_ORDER}",
            )
        if self._at_match_clause() and not self._match(TokenType.R_PAREN, advance=False):
            raise self._hinted(f"unexpected {quoted(self._curr)}", f"the order is {_CLAUSE_ORDER}")

    def _parse_subset(self) -> PatternSubset:
        first = self._curr
        name = self._parse_name("the name of a subset")
        self._expect(TokenType.EQ, "'='")
        self._expect(TokenType.L_PAREN, "'('")
        variables = self._parse_csv(lambda: self._parse_name(VARIABLE))
        self._expect(TokenType.R_PAREN, "')'")
        return self._covered(PatternSubset(this=name, expressions=variables), first)

    def _parse_definition(self) -> PatternDefinition:
        first = self._curr
        name = self._parse_name(VARIABLE)
        self._expect(TokenType.ALIAS, "AS and a condition")
        return self._covered(PatternDefinition(this=name, expression=self._parse_operand()), first)

    def _parse_within(self, node: Matching) -> None:
        if node.within is not None or not self._match_text_seq("WITHIN"):
            return
        first = self._prev
        length: exp.Expr | None
        if self._match(TokenType.STRING):
            text = self._prev
            length = self._covered(self._parse_interval_text(text), text)
        elif self._match(TokenType.NUMBER, advance=False) and self._next.text.upper() in _LATE_CLAUSES:
            length = self._parse_number()
        else:
            length = self._parse_time_span() or self._parse_number()
        if length is None:
            self.unexpected("a number or a time span such as 5 MINUTES")
        timeouts = self._match(TokenType.WITH)
        if timeouts:
            self._expect_words("TIMEOUTS")
        node.set("within", self._covered(Within(this=length, timeouts=bool(timeouts)), first))

    # Expressions

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> exp.Expr | None:
        """An operand; RUNNING and FINAL before anything but a call are names."""
        if not self._in_match or self._third() is not TokenType.L_PAREN or not self._at_extent():
            return super()._parse_type(parse_interval, fallback_to_identifier)
        self._advance()
        first = self._prev
        node = _EXTENTS[first.text.upper()](this=self._parse_function())
        return self._parse_column_ops(self._covered(node, first))

    def _at_extent(self) -> bool:
        return self._next.token_type in self.FUNC_TOKENS and self._match_texts(_EXTENTS, advance=False)

    def _parse_lambda(self, alias: bool = False) -> exp.Expr | None:
        """An argument; `*A` and `*A.price` are those of a whole run of rows."""
        first = self._curr
        if first.token_type is not TokenType.STAR or self._next.token_type not in words.NAME_TOKENS:
            return super()._parse_lambda(alias)
        if self._third() not in (TokenType.R_PAREN, TokenType.COMMA, TokenType.DOT):
            return super()._parse_lambda(alias)
        self._advance()
        column = self._parse_column()
        if type(column) is not exp.Column:
            raise self._failure("expected a variable or one of its columns after '*'", first)
        return self._covered(Starred(this=column), first)

    def _third(self) -> TokenType:
        """The type of the token after the next one."""
        at = self._index + 2
        return self._tokens[at].token_type if at < len(self._tokens) else TokenType.SENTINEL

    def _inside_match(self, parse: Callable[[], T]) -> T:
        outer, self._in_match = self._in_match, True
        result = parse()
        self._in_match = outer
        return result
