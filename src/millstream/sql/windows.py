"""OVER: the window of an aggregate."""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from millstream.sql.nodes import Slide
from millstream.sql.pattern_clauses import PatternClauseParser
from millstream.sql.patterns import WindowMatch
from millstream.sql.spans import cover

_FRAME_KINDS = ("ROWS", "RANGE", "GROUPS")
_EXCLUDED = (("CURRENT", "ROW"), ("GROUP",), ("TIES",), ("NO", "OTHERS"))
_PATTERN_STARTS = ("MEASURES", "AFTER", "INITIAL", "SEEK", "PATTERN")
# What follows the name of the window that another one goes on from.
_AFTER_BASE = (TokenType.R_PAREN, TokenType.PARTITION_BY, TokenType.ORDER_BY)


class WindowParser(PatternClauseParser):
    """OVER (…), OVER w and WINDOW w AS (…)."""

    # Empty so that sqlglot's `_parse_window` reads FILTER, WITHIN GROUP and IGNORE NULLS and leaves OVER to us.
    WINDOW_BEFORE_PAREN_TOKENS: ClassVar[set[TokenType]] = set()

    def _parse_window(self, this: exp.Expr | None, alias: bool = False) -> exp.Expr | None:
        if alias:
            return self._parse_window_definition(this)
        # sqlglot comes here right behind a call, whose closing parenthesis it does not insist on.
        if self._prev.token_type not in (TokenType.R_PAREN, TokenType.END):
            self.unexpected("')'")
        if this is not None:
            this.meta["end"] = self._prev.end
            this.meta.setdefault("start", self._prev.start)
        function = super()._parse_window(this)
        if not self._match(TokenType.OVER):
            return function
        return self._parse_over(exp.Window(this=function, over="OVER"))

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> exp.Expr | None:
        """An operand; a name before OVER is a measure of the pattern in that window."""
        first = self._curr
        node = super()._parse_type(parse_interval, fallback_to_identifier)
        if type(node) is exp.Column and not node.table and self._match(TokenType.OVER):
            node = self._covered(self._parse_over(exp.Window(this=node, over="OVER")), first)
        return node

    def _parse_window_definition(self, name: exp.Expr | None) -> exp.Window:
        """`w AS (…)` of a WINDOW clause."""
        if name is None:
            self.unexpected("the name of a window")
        self._expect(TokenType.ALIAS, "AS")
        self._expect(TokenType.L_PAREN, "'('")
        return self._parse_over_body(exp.Window(this=name))

    def _parse_over(self, window: exp.Window) -> exp.Window:
        """What follows OVER: the name of a window, or a body in parentheses."""
        if self._match(TokenType.L_PAREN):
            return self._parse_over_body(window)
        window.set("alias", self._parse_name("'(' or the name of a window"))
        return self.expression(window)

    def _parse_over_body(self, window: exp.Window) -> exp.Window:
        """The rest of a window in parentheses."""
        if self._at_base():
            window.set("alias", self._parse_id_var(any_token=False))
        # PARTITION BY may also stand behind the other clauses.
        keys = self._parse_partition_by()
        window.set("order", self._parse_order())
        keys = keys or self._parse_partition_by()
        first = self._curr
        measures = self._parse_measures()
        window.set("spec", self._parse_frame())
        if measures is not None and window.args.get("spec") is None:
            self.unexpected("ROWS BETWEEN CURRENT ROW AND …")
        if measures is not None or self._at_pattern():
            window.set("match", self._parse_window_match(measures, first))
        window.set("partition_by", keys or self._parse_partition_by())
        self._match_r_paren()
        return window

    def _at_base(self) -> bool:
        """At the name of another window; words of patterns are names if what follows them shows it."""
        named = self._next.token_type in _AFTER_BASE or self._next.text.upper() in _FRAME_KINDS
        return not self._match_texts(_FRAME_KINDS, advance=False) and (named or not self._at_pattern())

    def _at_pattern(self) -> bool:
        return self._match_texts(_PATTERN_STARTS, advance=False)

    def _parse_window_match(self, measures: list[exp.Alias] | None, first: Token) -> WindowMatch:
        node = WindowMatch(measures=measures, skip=self._parse_after_match())
        if self._match_texts(("INITIAL", "SEEK")):
            node.set("seek", self._prev.text.upper() == "SEEK" or None)
        self._parse_pattern_clauses(node)
        return self._covered(node, first)

    def _parse_partition_by(self) -> list[exp.Expr]:
        if not self._match(TokenType.PARTITION_BY):
            return []
        return self._parse_list(self._parse_disjunction, "an expression")

    def _parse_frame(self) -> exp.WindowSpec | None:
        """ROWS | RANGE with its bounds; one bound alone means up to the current row."""
        if not self._match_texts(_FRAME_KINDS):
            return None
        first = self._prev
        if self._match(TokenType.BETWEEN):
            start, start_side = self._parse_frame_bound()
            self._expect(TokenType.AND, "AND")
            end, end_side = self._parse_frame_bound()
        else:
            start, start_side = self._parse_frame_bound()
            end, end_side = "CURRENT ROW", None
            if start_side == "FOLLOWING":
                self._retreat(self._index - 1)
                self.unexpected("PRECEDING")
        node = exp.WindowSpec(kind=first.text.upper(), start=start, start_side=start_side, end=end, end_side=end_side)
        if self._match_text_seq("EXCLUDE"):
            node.set("exclude", self._parse_excluded())
        self._parse_slide(node)
        cover(node, first, self._prev)
        return node

    def _parse_excluded(self) -> exp.Var:
        chosen = next((words for words in _EXCLUDED if self._match_text_seq(*words)), None)
        if chosen is None:
            self.unexpected("CURRENT ROW, GROUP, TIES or NO OTHERS")
        return exp.var(" ".join(chosen))

    def _parse_slide(self, frame: exp.WindowSpec) -> None:
        """SLIDE n [unit] or ACTIVE EXPIRATION, kept by the frame."""
        if self._match_text_seq("SLIDE"):
            first = self._prev
            counted = self._next.text.upper() == "ACTIVE"
            step = (None if counted else self._parse_time_span()) or self._parse_number()
            if step is None:
                self.unexpected("a number or a time span")
            slide = Slide(this=step)
            cover(slide, first, self._prev)
            frame.set("slide", slide)
        elif self._match_text_seq("ACTIVE"):
            self._expect_words("EXPIRATION")
            frame.set("active", True)
        if self._match_texts(("SLIDE", "ACTIVE"), advance=False):
            raise self._failure("a window has either SLIDE or ACTIVE EXPIRATION, and once", self._curr)

    def _parse_frame_bound(self) -> tuple[str | exp.Expr, str | None]:
        if self._match_text_seq("CURRENT", "ROW"):
            return "CURRENT ROW", None
        extent: str | exp.Expr | None = "UNBOUNDED" if self._match_text_seq("UNBOUNDED") else self._parse_extent()
        if extent is None:
            self.unexpected("a number, a time span, UNBOUNDED or CURRENT ROW")
        if not self._match_texts(self.WINDOW_SIDES):
            self.unexpected("PRECEDING")
        return extent, self._prev.text.upper()

    def _parse_extent(self) -> exp.Expr | None:
        """`49`, `10 SECONDS`, `INTERVAL '10' SECOND` or any expression."""
        return self._parse_time_span() or self._parse_bitwise()
