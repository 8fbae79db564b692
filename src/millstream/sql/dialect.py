"""The sqlglot dialect `millstream`: DuckDB's functions and types, our words, statements and spelling."""

from __future__ import annotations

from sqlglot.dialects.duckdb import DuckDB

from millstream.sql import words
from millstream.sql.generator import MillstreamGenerator
from millstream.sql.parser import MillstreamParser


class Millstream(DuckDB):
    """Registered with sqlglot under its name in lower case."""

    class Tokenizer(DuckDB.Tokenizer):
        KEYWORDS = {**words.KEYWORDS}
        COMMANDS = set()
        BYTE_STRINGS = []
        HEREDOC_STRINGS = []

    Parser = MillstreamParser
    Generator = MillstreamGenerator
