"""Statements as clients of PostgreSQL write them: names with schema and database, collations, comments in front."""

from __future__ import annotations

import re

from millstream.server.postgres.catalog import DATABASE, SCHEMA

# What is quoted is passed over, also if its end is missing: so matching takes time in proportion to the text.
_FOREIGN = re.compile(
    rf'(?<![\w".$])(?P<schema>(?:(?:"{DATABASE}"|{DATABASE})\.)?(?:"{SCHEMA}"|{SCHEMA})\.)(?=[\w"])'
    r'|\b(?P<collation>COLLATE\s++(?:pg_catalog\.)?(?:"(?:C|POSIX|default)"|(?:C|POSIX)\b))'
    r"""|'(?:[^']|'')*+'?|"(?:[^"]|"")*+"?|--[^\n]*+|/\*(?:[^*]|\*(?!/))*+""",
    re.I | re.S,
)
_IN_FRONT = re.compile(r"(?:\s++|--[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)*+")


def unqualified(text: str) -> str:
    """The statement with blanks instead of `public.` and `millstream.public.`, which all names are in, and of
    `COLLATE "C"`, which all texts have; so places in the text stay where they are."""
    return _FOREIGN.sub(lambda found: " " * len(found[0]) if found["schema"] or found["collation"] else found[0], text)


def bare(text: str) -> str:
    """The statement without comments in front and blanks around it."""
    return text[_IN_FRONT.match(text).end() :].strip()  # type: ignore[union-attr]
