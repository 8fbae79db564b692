"""Where in the text a node came from."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from millstream.errors import Span


def cover(node: exp.Expr, first: Token, last: Token) -> None:
    """Record that the node was written from token `first` to token `last`."""
    meta = node.meta
    meta["start"] = first.start
    meta["end"] = last.end


def span_of(node: exp.Expr) -> Span | None:
    """The characters of the whole text given to `parse` that the node was read from; None for a node made otherwise."""
    start: int | None = None
    end = 0
    for part in node.walk():
        meta = part._meta
        first = meta.get("start") if meta else None
        if meta and isinstance(first, int):
            start = first if start is None else min(start, first)
            end = max(end, int(meta["end"]))
    return None if start is None else Span(start, end + 1)
