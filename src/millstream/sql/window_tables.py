"""TUMBLE, HOP, CUMULATE, SESSION and GAP_FILL in FROM."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from millstream.sql.failures import did_you_mean, quoted
from millstream.sql.nodes import GapColumn, WindowTable
from millstream.sql.spans import cover
from millstream.sql.windows import WindowParser

# What follows the rows and their time column, in this order; `offset` and `longest` may be left out.
_SPANS: dict[str, tuple[str, ...]] = {
    "TUMBLE": ("size", "offset"),
    "HOP": ("slide", "size", "offset"),
    "CUMULATE": ("slide", "size", "offset"),
    "SESSION": ("gap",),
    "GAP_FILL": ("step", "longest"),
}
_OPTIONAL = ("offset", "longest")
_FILLS = ("LOCF", "INTERPOLATE")
# The names of arguments: Flink calls the slide of CUMULATE its step.
_NAMES = {
    "DATA": "this",
    "TIMECOL": "time",
    "SIZE": "size",
    "SLIDE": "slide",
    "STEP": "slide",
    "GAP": "gap",
    "OFFSET": "offset",
}


class WindowTableParser(WindowParser):
    """Windows as table functions: `TUMBLE(s, ts, 5 MINUTES)` and the standard's
    `TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '5' MINUTE))`."""

    def _parse_window_table(self) -> exp.Table | None:
        index = self._index
        wrapped = self._match_text_seq("TABLE", "(")
        if not self._match_texts(_SPANS) or not self._match(TokenType.L_PAREN):
            self._retreat(index)
            return None
        first = self._tokens[self._index - 2]
        node = self._parse_window_arguments(first)
        self._match_r_paren()
        cover(node, first, self._prev)
        if wrapped:
            self._match_r_paren()
        return exp.Table(this=node)

    def _parse_window_arguments(self, word: Token) -> WindowTable:
        kind = word.text.upper()
        order = ("this", "time", *_SPANS[kind])
        node = WindowTable(kind=kind)
        for position in range(len(order) + 1):
            first = self._curr
            if kind == "GAP_FILL" and self._parse_fills(node):
                break
            key = self._parse_argument_name(kind)
            if key is None and position == len(order):
                raise self._failure(f"{kind} has too many arguments", first)
            key = key or order[position]
            if node.args.get(key):
                raise self._failure(f"the {_described(key)} of {kind} is given twice", first)
            self._parse_window_argument(node, key)
            if not self._match(TokenType.COMMA):
                break
        if self._match_text_seq("LATENESS"):
            self._parse_window_argument(node, "lateness")
        missing = [key for key in order if key not in _OPTIONAL and not node.args.get(key)]
        if missing:
            raise self._failure(f"{kind} needs a {_described(missing[0])}, found {quoted(self._curr)}", self._curr)
        return node

    def _parse_fills(self, node: WindowTable) -> bool:
        """LOCF(x), INTERPOLATE(y) and PARTITION_BY(k), which stand last, in any order; False if none does."""
        fills: list[exp.Expr] = []
        index = self._index
        while self._next.token_type is TokenType.L_PAREN and self._match_texts((*_FILLS, "PARTITION_BY")):
            word = self._prev.text.upper()
            self._match(TokenType.L_PAREN)
            columns = self._parse_list(lambda: self._parse_plain_column("the name of a column"), "the name of a column")
            self._match_r_paren()
            if word == "PARTITION_BY":
                node.set("partition", list(columns))
            else:
                fills += [GapColumn(this=column, how=word) for column in columns]
            if not self._match(TokenType.COMMA):
                node.set("fills", fills)
                return True
        if self._index > index:
            self.unexpected("LOCF(column), INTERPOLATE(column) or PARTITION_BY(column)")
        return False

    def _parse_argument_name(self, kind: str) -> str | None:
        """The part that `NAME =>` names; None if the argument has no name."""
        if self._next.token_type is not TokenType.FARROW:
            return None
        key = _NAMES.get(self._curr.text.upper())
        if key is None or key not in ("this", "time", *_SPANS[kind]):
            names = tuple(name for name, key in _NAMES.items() if key in ("this", "time", *_SPANS[kind]))
            failure = self._failure(f"{kind} has no argument {quoted(self._curr)}", self._curr)
            failure.hint = did_you_mean(self._curr.text, names) or f"its arguments are {', '.join(names)}"
            raise failure
        self._advance(2)
        return key

    def _parse_window_argument(self, node: WindowTable, key: str) -> None:
        if key == "this":
            node.set("this", self._parse_windowed_rows())
            if self._match(TokenType.PARTITION_BY):
                node.set("partition", self._parse_window_keys())
        elif key == "time":
            described = self._next.token_type is TokenType.L_PAREN and self._match_text_seq("DESCRIPTOR", "(")
            node.set("time", self._parse_plain_column("the name of the time column"))
            if described:
                self._match_r_paren()
        else:
            # a stream that is ordered by a number has windows of numbers
            span = self._parse_time_span() or self._parse_length()
            if span is None:
                self.unexpected(f"the {_described(key)}, a time span such as 5 MINUTES")
            node.set(key, span)

    def _parse_windowed_rows(self) -> exp.Expr:
        """`s`, `TABLE s` or a query in parentheses."""
        if self._next.token_type not in (TokenType.COMMA, TokenType.PARTITION_BY):
            self._match_text_seq("TABLE")
        first, index = self._curr, self._index
        if self._match(TokenType.L_PAREN, advance=False):
            node = self._parse_select(table=True, parse_subquery_alias=False)
            if not isinstance(node, exp.Subquery) or not isinstance(node.this, exp.Query):
                self._retreat(index + 1)
                self.unexpected("a query")
            return node
        node = exp.Table(this=self._parse_name("the name of a stream or a query in parentheses"))
        cover(node, first, self._prev)
        return node

    def _parse_window_keys(self) -> list[exp.Expr]:
        """One column, or several in parentheses."""
        if not self._match(TokenType.L_PAREN):
            return [self._parse_plain_column("the name of a column")]
        keys = self._parse_list(lambda: self._parse_plain_column("the name of a column"), "the name of a column")
        self._match_r_paren()
        return list(keys)

    def _parse_plain_column(self, wanted: str) -> exp.Column:
        first = self._curr
        name = self._parse_name(wanted)
        node = exp.Column(this=name)
        if self._match(TokenType.DOT):
            node = exp.Column(this=self._parse_name("the name of a column"), table=name)
        cover(node, first, self._prev)
        return node


def _described(key: str) -> str:
    return {"this": "stream", "time": "time column"}.get(key, key)
