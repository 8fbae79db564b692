"""The words of the language: which are tokens of their own, and which may be names."""

from __future__ import annotations

from sqlglot.dialects.duckdb import DuckDB
from sqlglot.tokenizer_core import TokenType

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
# Types of one kind share a token, so that a type prints in one spelling and reads back as the same type.
_TYPE_TOKENS = {
    TokenType.BIGINT: TokenType.BIGINT,
    TokenType.BOOLEAN: TokenType.BOOLEAN,
    TokenType.CHAR: TokenType.TEXT,
    TokenType.DATE: TokenType.DATE,
    TokenType.DECIMAL: TokenType.DECIMAL,
    TokenType.DOUBLE: TokenType.DOUBLE,
    TokenType.FLOAT: TokenType.FLOAT,
    TokenType.INT: TokenType.INT,
    TokenType.INTERVAL: TokenType.INTERVAL,
    TokenType.NCHAR: TokenType.TEXT,
    TokenType.NVARCHAR: TokenType.TEXT,
    TokenType.SMALLINT: TokenType.SMALLINT,
    TokenType.TEXT: TokenType.TEXT,
    TokenType.TIME: TokenType.TIME,
    TokenType.TIMESTAMP: TokenType.TIMESTAMPNTZ,
    TokenType.TIMESTAMPLTZ: TokenType.TIMESTAMPTZ,
    TokenType.TIMESTAMPNTZ: TokenType.TIMESTAMPNTZ,
    TokenType.TIMESTAMPTZ: TokenType.TIMESTAMPTZ,
    TokenType.TINYINT: TokenType.TINYINT,
    TokenType.VARBINARY: TokenType.VARBINARY,
    TokenType.VARCHAR: TokenType.TEXT,
}
_OPERATORS = ("||", "<=", ">=", "<>", "!=", "==", "::", "=>", "//", "**")

KEYWORDS: dict[str, TokenType] = {
    **{
        word: token
        for word, token in DuckDB.Tokenizer.KEYWORDS.items()
        if token in _CLAUSE_TOKENS and word[0].isalpha()
    },
    **{word: _TYPE_TOKENS[token] for word, token in DuckDB.Tokenizer.KEYWORDS.items() if token in _TYPE_TOKENS},
    **{operator: DuckDB.Tokenizer.KEYWORDS[operator] for operator in _OPERATORS},
}

TYPE_TOKENS = frozenset(_TYPE_TOKENS.values())
# Names of columns, streams and tables, and names given after AS.
NAME_TOKENS = TYPE_TOKENS | {TokenType.VAR, TokenType.IDENTIFIER, TokenType.END, TokenType.FILTER, TokenType.WINDOW}
# Names given without AS must not swallow the word of a following clause.
ALIAS_TOKENS = NAME_TOKENS - {TokenType.END, TokenType.FILTER, TokenType.WINDOW}
