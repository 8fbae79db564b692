"""Where a statement ends: at a semicolon that is not inside quotes, comments or braces."""

from __future__ import annotations

import re

_PIECE = re.compile(
    r"""
      (?P<quoted> '(?:[^']|'')*' | "(?:[^"]|"")*" )
    | (?P<comment> --[^\n]*(?:\n|$) | /\*.*?\*/ )
    | (?P<open> ['"] | /\* )
    | (?P<brace> [{}] )
    | (?P<end> ; )
    """,
    re.VERBOSE | re.DOTALL,
)
_BLANK = re.compile(r"(?:\s|--[^\n]*+(?:\n|$)|/\*(?>.*?\*/))*+", re.DOTALL)


def split_complete(text: str) -> tuple[list[str], str]:
    """The complete statements at the beginning of a text, and the rest that waits for more lines.

    >>> split_complete("SELECT ';'; SELECT 2; SELECT 'a")
    (["SELECT ';'", 'SELECT 2'], " SELECT 'a")
    """
    complete: list[str] = []
    start = depth = 0
    for piece in _PIECE.finditer(text):
        if piece["open"]:
            break
        if piece["brace"]:
            depth += 1 if piece["brace"] == "{" else -1
        elif piece["end"] and depth <= 0:
            complete.append(text[start : piece.start()].strip())
            start, depth = piece.end(), 0
    return [statement for statement in complete if statement], text[start:]


def is_blank(text: str) -> bool:
    """Whether a text says nothing: spaces and whole comments only."""
    return _BLANK.fullmatch(text) is not None
