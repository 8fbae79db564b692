"""Arrays, structs and maps: their types, and how their values are written."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from millstream.sql.intervals import IntervalParser
from millstream.sql.spans import cover

_WINDOW_WORDS = ("RANGE", "ROWS")
_CLOSING = {TokenType.L_PAREN: (TokenType.R_PAREN, "')'"), TokenType.LT: (TokenType.GT, "'>'")}


class NestedParser(IntervalParser):
    """`STRUCT(a INT)`, `MAP(VARCHAR, INT)`, `{'a': 1}`, `MAP {'k': 1}`, `[1, 2]` and `a[1]`."""

    def _parse_column_ops(self, this: exp.Expr | None) -> exp.Expr | None:
        # a brace follows MAP alone, brackets (`BRACKETS`) any value
        if self._curr.token_type is TokenType.L_BRACE and this is not None and _is_word(this, "MAP"):
            this = self._parse_bracket(this)
        return super()._parse_column_ops(this)

    def _parse_bracket(self, this: exp.Expr | None = None) -> exp.Expr | None:
        """`[1, 2]` and `ARRAY[1, 2]`, which are calls of list_value, and `a[1]`, which is one of list_extract."""
        first = self._curr
        if first.token_type is TokenType.L_BRACE and (this is None or _is_word(this, "MAP")):
            return self._parse_bracket(self._parse_braces(first, is_map=this is not None))
        # behind a table, brackets hold a window
        if isinstance(this, exp.Table) or first.token_type is not TokenType.L_BRACKET:
            return this
        after = self._tokens[self._index + 2 : self._index + 3]
        if self._next.text.upper() in _WINDOW_WORDS and after and after[0].token_type is TokenType.NUMBER:
            self.unexpected()
        self._advance()
        if this is None or _is_word(this, "ARRAY"):
            is_empty = self._match(TokenType.R_BRACKET, advance=False)
            values = [] if is_empty else self._parse_list(self._parse_disjunction, "an expression")
            node = exp.Anonymous(this="list_value", expressions=values)
        else:
            node = exp.Anonymous(this="list_extract", expressions=[this, self._parse_operand()])
        self._expect(TokenType.R_BRACKET, "']'")
        cover(node, first, self._prev)
        if this is not None and "start" in this.meta:
            node.meta["start"] = this.meta["start"]
        return self._parse_bracket(node)

    def _parse_braces(self, first: Token, is_map: bool) -> exp.Expr:
        """`{'name': value, …}`, which is a call of struct_pack, or behind MAP one of map."""
        self._advance()
        is_empty = is_map and self._match(TokenType.R_BRACE, advance=False)
        part = self._parse_map_entry if is_map else self._parse_field_value
        entries = [] if is_empty else self._parse_list(part, "an entry")
        self._expect(TokenType.R_BRACE, "'}'")
        if is_map:
            sides = [[entry.this for entry in entries], [entry.expression for entry in entries]]
            lists = [exp.Anonymous(this="list_value", expressions=side) for side in sides]
            node = exp.Anonymous(this="map", expressions=lists)
        else:
            node = exp.Anonymous(this="struct_pack", expressions=entries)
        cover(node, first, self._prev)
        return node

    def _parse_map_entry(self) -> exp.Expr:
        key = self._parse_operand()
        self._expect(TokenType.COLON, "':'")
        return exp.Kwarg(this=key, expression=self._parse_operand())

    def _parse_field_value(self) -> exp.Expr:
        name = self._parse_field_name()
        self._expect(TokenType.COLON, "':'")
        return exp.Kwarg(this=name, expression=self._parse_operand())

    def _parse_field_name(self) -> exp.Identifier:
        if self._match(TokenType.STRING):
            return exp.to_identifier(self._prev.text, quoted=True)
        return self._parse_name("the name of a field")

    def _parse_nested_type(self) -> exp.DataType | None:
        """STRUCT, ROW or MAP with what they hold, in parentheses or between < and >; or ARRAY<type>."""
        word, opening = self._curr.text.upper(), self._next.token_type if self._next else None
        if word == "ARRAY" and opening is TokenType.LT:
            self._advance(2)
            element = self._parse_inner_type()
            self._expect(TokenType.GT, "'>'")
            return exp.DataType(this=exp.DType.ARRAY, expressions=[element], nested=True)
        if word not in ("STRUCT", "ROW", "MAP", "ENUM") or opening not in _CLOSING:
            return None
        if word == "ENUM":
            failure = self._failure("ENUM is not supported", self._curr)
            failure.hint = "use VARCHAR"
            raise failure
        self._advance(2)
        part: Callable[[], exp.Expr] = self._parse_inner_type if word == "MAP" else self._parse_field_type
        parts = self._parse_list(part, "a type" if word == "MAP" else "the name of a field")
        closing, wanted = _CLOSING[opening]
        self._expect(closing, wanted)
        return exp.DataType(this=exp.DType.MAP if word == "MAP" else exp.DType.STRUCT, expressions=parts, nested=True)

    def _parse_field_type(self) -> exp.Expr:
        name = self._parse_field_name()
        self._match(TokenType.COLON)
        return exp.ColumnDef(this=name, kind=self._parse_inner_type())

    def _parse_inner_type(self) -> exp.Expr:
        kind = self._parse_types(schema=True)
        if kind is None:
            self.unexpected("a type")
        return kind

    def _parse_array_of(self, element: exp.Expr) -> exp.Expr:
        """The type before `[]`, or the array of it."""
        while self._match(TokenType.L_BRACKET):
            length = self._parse_number() if self._match(TokenType.NUMBER, advance=False) else None
            self._expect(TokenType.R_BRACKET, "']'")
            values = None if length is None else [length]
            element = exp.DataType(this=exp.DType.ARRAY, expressions=[element], values=values, nested=True)
        return element

    def _parse_operand(self) -> exp.Expr:
        node = self._parse_disjunction()
        if node is None:
            self.unexpected("an expression")
        return node


def _is_word(node: exp.Expr, word: str) -> bool:
    return isinstance(node, exp.Column) and not node.table and not node.this.quoted and node.name.upper() == word
