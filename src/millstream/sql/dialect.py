"""The sqlglot dialect `millstream`: DuckDB's functions and types, our words, statements and spelling."""

from __future__ import annotations

from typing import ClassVar

from sqlglot.dialects.duckdb import DuckDB

from millstream.sql import words
from millstream.sql.generator import MillstreamGenerator
from millstream.sql.parser import MillstreamParser


class Millstream(DuckDB):
    """Registered with sqlglot under its name in lower case."""

    class Tokenizer(DuckDB.Tokenizer):
        KEYWORDS: ClassVar = {**words.KEYWORDS}
        COMMANDS: ClassVar = set()
        BYTE_STRINGS: ClassVar = []
        HEREDOC_STRINGS: ClassVar = []

    Parser = MillstreamParser
    Generator = MillstreamGenerator
