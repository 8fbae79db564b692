"""The words of the language: which are tokens of their own, and which may be names."""

from __future__ import annotations

from sqlglot.tokenizer_core import TokenType
from sqlglot.tokens import Tokenizer

# Only these words are tokens of their own. Every other word (stream, source, slack, next, slide, rows, …) is an
# ordinary name that the parser recognises where a clause may stand, so that it stays free as a column name.
_CLAUSE_TOKENS = frozenset(
    {
        TokenType.ALIAS,
        TokenType.ALL,
        TokenType.AND,
        TokenType.ANY,
        TokenType.ASC,
        TokenType.BETWEEN,
        TokenType.CASE,
        TokenType.CONSTRAINT,
        TokenType.CROSS,
        TokenType.CURRENT_DATE,
        TokenType.CURRENT_TIMESTAMP,
        TokenType.DESC,
        TokenType.DISTINCT,
        TokenType.ELSE,
        TokenType.END,
        TokenType.ESCAPE,
        TokenType.EXCEPT,
        TokenType.EXISTS,
        TokenType.FALSE,
        TokenType.FILTER,
        TokenType.FOREIGN_KEY,
        TokenType.FROM,
        TokenType.FULL,
        TokenType.GROUP_BY,
        TokenType.HAVING,
        TokenType.ILIKE,
        TokenType.IN,
        TokenType.INNER,
        TokenType.INTERSECT,
        TokenType.IS,
        TokenType.JOIN,
        TokenType.LEFT,
        TokenType.LIKE,
        TokenType.LIMIT,
        TokenType.NATURAL,
        TokenType.NOT,
        TokenType.NULL,
        TokenType.OFFSET,
        TokenType.ON,
        TokenType.OR,
        TokenType.ORDER_BY,
        TokenType.OUTER,
        TokenType.OVER,
        TokenType.PARTITION_BY,
        TokenType.PRIMARY_KEY,
        TokenType.QUALIFY,
        TokenType.RECURSIVE,
        TokenType.RIGHT,
        TokenType.SELECT,
        TokenType.SOME,
        TokenType.THEN,
        TokenType.TRUE,
        TokenType.UNION,
        TokenType.USING,
        TokenType.VALUES,
        TokenType.WHEN,
        TokenType.WHERE,
        TokenType.WINDOW,
        TokenType.WITH,
    }
)
# Spellings of one type share a token, so that a type prints in one spelling and reads back as the same type.
_TYPES: dict[TokenType, tuple[str, ...]] = {
    TokenType.BIGINT: ("BIGINT", "INT8", "LONG"),
    TokenType.BOOLEAN: ("BOOL", "BOOLEAN"),
    TokenType.DATE: ("DATE",),
    TokenType.DECIMAL: ("DEC", "DECIMAL", "NUMERIC"),
    TokenType.DOUBLE: ("DOUBLE", "DOUBLE PRECISION", "FLOAT8"),
    TokenType.FLOAT: ("FLOAT", "FLOAT4", "REAL"),
    TokenType.INT: ("INT", "INT4", "INTEGER"),
    TokenType.INTERVAL: ("INTERVAL",),
    TokenType.SMALLINT: ("INT2", "SHORT", "SMALLINT"),
    TokenType.TEXT: (
        "BPCHAR", "CHAR", "CHAR VARYING", "CHARACTER", "CHARACTER VARYING", "NCHAR", "NVARCHAR", "STRING", "TEXT",
        "VARCHAR",
    ),
    TokenType.TIME: ("TIME",),
    TokenType.TIMESTAMPNTZ: ("DATETIME", "TIMESTAMP", "TIMESTAMPNTZ", "TIMESTAMP_NTZ"),
    TokenType.TIMESTAMPTZ: ("TIMESTAMPLTZ", "TIMESTAMPTZ", "TIMESTAMP_LTZ"),
    TokenType.TINYINT: ("BYTE", "INT1", "TINYINT"),
    TokenType.VARBINARY: ("BINARY", "BLOB", "BYTEA", "VARBINARY"),
}  # fmt: skip
_OPERATORS = {
    "!=": TokenType.NEQ,
    "**": TokenType.DSTAR,
    "->": TokenType.ARROW,
    "->>": TokenType.DARROW,
    "//": TokenType.DIV,
    "::": TokenType.DCOLON,
    "<=": TokenType.LTE,
    "<>": TokenType.NEQ,
    "==": TokenType.EQ,
    "=>": TokenType.FARROW,
    ">=": TokenType.GTE,
    "||": TokenType.DPIPE,
}
# As the papers print them; characters of their own, so that they need no blanks around them.
MATHEMATICAL_SIGNS = {"≤": TokenType.LTE, "≥": TokenType.GTE, "≠": TokenType.NEQ}

KEYWORDS: dict[str, TokenType] = {
    **{word: token for word, token in Tokenizer.KEYWORDS.items() if token in _CLAUSE_TOKENS and word[0].isalpha()},
    **{word: token for token, spellings in _TYPES.items() for word in spellings},
    **_OPERATORS,
}
# the name of an option
del KEYWORDS["PARTITIONED_BY"]

TYPE_TOKENS = frozenset(_TYPES)
# Names of columns, streams and tables, and names given after AS.
NAME_TOKENS = TYPE_TOKENS | {TokenType.VAR, TokenType.IDENTIFIER, TokenType.END, TokenType.FILTER, TokenType.WINDOW}
# Names given without AS must not swallow the word of a following clause.
ALIAS_TOKENS = NAME_TOKENS - {TokenType.END, TokenType.FILTER, TokenType.WINDOW}
