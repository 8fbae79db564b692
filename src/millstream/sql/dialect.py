"""The sqlglot dialect `millstream`: DuckDB's functions, types and semantics, with our own words and statements."""

from __future__ import annotations

from typing import ClassVar

from sqlglot import tokens
from sqlglot.dialects.dialect import Dialect, NormalizationStrategy

from millstream.sql import words
from millstream.sql.generator import MillstreamGenerator
from millstream.sql.parser import MillstreamParser


class Millstream(Dialect):
    """Registered with sqlglot under its name in lower case.

    The switches are those of sqlglot's DuckDB dialect that tell nodes apart, so that a node means the same in both.
    That dialect is not the base class because importing it costs a third of importing sqlglot itself.
    """

    NORMALIZATION_STRATEGY = NormalizationStrategy.CASE_INSENSITIVE
    NULL_ORDERING = "nulls_are_last"
    CONCAT_COALESCE = True
    CONCAT_WS_COALESCE = True
    SUPPORTS_ORDER_BY_ALL = True
    NUMBERS_CAN_BE_UNDERSCORE_SEPARATED = True
    REGEXP_EXTRACT_NO_MATCH_RETURNS_NULL = False
    REGEXP_EXTRACT_MISSING_GROUP_RETURNS_EMPTY = True

    class Tokenizer(tokens.Tokenizer):
        KEYWORDS: ClassVar = {**words.KEYWORDS}
        SINGLE_TOKENS: ClassVar = {**tokens.Tokenizer.SINGLE_TOKENS, **words.MATHEMATICAL_SIGNS}
        HEX_STRINGS: ClassVar = [("x'", "'"), ("X'", "'")]
        COMMANDS: ClassVar = set()

    Parser = MillstreamParser
    Generator = MillstreamGenerator
