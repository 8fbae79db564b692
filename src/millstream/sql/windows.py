"""OVER: the window of an aggregate."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from millstream.sql.expressions import ExpressionParser
from millstream.sql.nodes import Slide
from millstream.sql.spans import cover

_FRAME_KINDS = ("ROWS", "RANGE", "GROUPS")


class WindowParser(ExpressionParser):
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
        return self.expression(exp.Window(this=function, over="OVER", **self._parse_over()))

    def _parse_window_definition(self, name: exp.Expr | None) -> exp.Window:
        """`w AS (…)` of a WINDOW clause."""
        if name is None:
            self.unexpected("the name of a window")
        self._expect(TokenType.ALIAS, "AS")
        self._expect(TokenType.L_PAREN, "'('")
        body = self._parse_over_body()
        self._match_r_paren()
        return self.expression(exp.Window(this=name, **body))

    def _parse_over(self) -> dict[str, Any]:
        """What follows OVER: the name of a window, or a body in parentheses."""
        if not self._match(TokenType.L_PAREN):
            return {"alias": self._parse_name("'(' or the name of a window")}
        body = self._parse_over_body()
        self._match_r_paren()
        return body

    def _parse_over_body(self) -> dict[str, Any]:
        base = None if self._match_texts(_FRAME_KINDS, advance=False) else self._parse_id_var(any_token=False)
        # PARTITION BY may also stand behind the other clauses.
        keys = self._parse_partition_by()
        order = self._parse_order()
        keys = keys or self._parse_partition_by()
        frame = self._parse_frame()
        keys = keys or self._parse_partition_by()
        return {"alias": base, "partition_by": keys, "order": order, "spec": frame}

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
        self._parse_slide(node)
        cover(node, first, self._prev)
        return node

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
