"""Every error a user can meet: what, why, a hint, and the place in the SQL text, underlined when printed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from millstream.records import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of characters in the SQL text, which an error underlines."""

    start: int
    end: int


class MillstreamError(Exception):
    """What went wrong (`message`), why (`detail`), what to do (`hint`) and where (`span` within `sql`)."""

    def __init__(
        self,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        span: Span | None = None,
        sql: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint
        self.span = span
        self.sql = sql

    def __str__(self) -> str:
        lines = [self.message]
        if self.sql is not None and self.span is not None:
            lines += underline(self.sql, self.span)
        if self.detail:
            lines.append(f"why: {self.detail}")
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.detail, self.hint, self.span, self.sql)


def _rebuild(
    kind: type[MillstreamError], message: str, detail: str | None, hint: str | None, span: Span | None, sql: str | None
) -> MillstreamError:
    return kind(message, detail=detail, hint=hint, span=span, sql=sql)


class ParseError(MillstreamError):
    """The text is not a valid statement."""


class BindError(MillstreamError):
    """The statement names something that does not exist, or combines things that do not fit."""


class UnsupportedError(BindError):
    """The statement is valid SQL, but has no meaning over unbounded streams, or is not supported here."""


@contextmanager
def refusing_depth() -> Iterator[None]:
    """A context for work that recurses into a statement: an error if the statement is nested too deeply for it."""
    try:
        yield
    except RecursionError:
        raise UnsupportedError(
            "the statement is nested too deeply", hint="split it with CREATE STREAM … AS; write x IN (…) for many x = …"
        ) from None


def ours(error: Exception) -> MillstreamError:
    """An error of a library or of the operating system as a MillstreamError with a readable message."""
    if isinstance(error, MillstreamError):
        return error
    if isinstance(error, OSError):
        return ConnectorError(str(error))
    return EngineError(f"{type(error).__name__}: {error}", hint="this is a bug in Millstream: please report it")


class CatalogError(MillstreamError):
    """A name is taken, unknown, or still in use."""


class DataError(MillstreamError):
    """Input data does not fit the declared schema, or a computed value does not fit its type."""


class StateError(MillstreamError):
    """Saved state does not belong to this query, or cannot be read."""


class ConnectorError(MillstreamError):
    """A source or sink cannot be opened, read or written."""


class LimitError(MillstreamError):
    """A statement or a query cost more than the session allows: time, memory, rows, or the size of its text."""


class CancelledError(MillstreamError):
    """A statement or query was cancelled."""


class EngineError(MillstreamError):
    """The chosen engine is missing or cannot run this."""


def internal_error(error: Exception) -> EngineError:
    """A defect of the engine, as a MillstreamError."""
    told = f"internal error: {type(error).__name__}: {error}"
    return EngineError(told[:300], hint="this is a bug in Millstream: please report it with the statement")


def underline(sql: str, span: Span) -> list[str]:
    """The line(s) of `sql` at `span`, numbered, with carets below the culprit.

    >>> print(*underline("SELECT a\\nFROM tt", Span(14, 16)), sep="\\n")
      2 | FROM tt
        |      ^^
    """
    start = max(0, min(span.start, len(sql)))
    end = max(start + 1, min(span.end, len(sql)))
    number = sql.count("\n", 0, start) + 1
    line_start = sql.rfind("\n", 0, start) + 1
    line_end = sql.find("\n", start)
    line_end = len(sql) if line_end < 0 else line_end
    label = f"{number:>3} | "
    carets = "^" * max(1, min(end, line_end) - start)
    return [label + sql[line_start:line_end], " " * (len(label) - 2) + "| " + " " * (start - line_start) + carets]


def nearest(word: str, known: Iterable[str], most: int = 1, cutoff: float = 0.6) -> list[str]:
    """The known words that a misspelled one is nearest to, whatever their case."""
    import difflib  # only messages need it

    lower = {other.lower(): other for other in known}
    return [lower[near] for near in difflib.get_close_matches(word.lower(), lower, most, cutoff)]
