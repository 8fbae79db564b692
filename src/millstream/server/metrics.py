"""Counters of a session for Prometheus, in its text format. They are kept anyway; nothing is computed here."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.session.database import Database

MOST_QUERIES = 1_000
"""queries with figures of their own; of more, only the sums are given"""


def prometheus(database: Database, uptime: float, pushed: int) -> str:
    """The page /metrics."""
    return "".join(f"{line}\n" for line in _lines(database, uptime, pushed))


def _lines(database: Database, uptime: float, pushed: int) -> Iterator[str]:
    progress, queries = database.progress(), database.queries()
    yield from _one("millstream_uptime_seconds", "gauge", "Seconds since the server started", round(uptime, 3))
    yield from _one("millstream_queries", "gauge", "Running queries", len(queries))
    yield from _one("millstream_http_rows_total", "counter", "Rows pushed over HTTP", pushed)
    yield from _one("millstream_rows_late_total", "counter", "Late rows", progress.late)
    yield from _one("millstream_rows_rejected_total", "counter", "Rejected rows", progress.rejected)
    emitted = progress.rows_out
    yield from _one("millstream_rows_emitted_total", "counter", "Rows emitted by all queries", sum(emitted.values()))
    yield from _many("millstream_stream_rows_total", "counter", "Rows of a stream", "stream", progress.rows_in)
    shares = dict(progress.backfilling)
    yield from _many(
        "millstream_query_backfilled", "gauge", "Share of history that a new query has read", "query", shares
    )
    if len(queries) <= MOST_QUERIES:
        yield from _many("millstream_query_rows_total", "counter", "Rows emitted by a query", "query", emitted)
        failed = {query.name: int(query.state == "failed") for query in queries}
        yield from _many("millstream_query_failed", "gauge", "Whether a query has failed", "query", failed)


def _one(name: str, kind: str, told: str, value: float) -> Iterator[str]:
    yield from (f"# HELP {name} {told}", f"# TYPE {name} {kind}", f"{name} {value}")


def _many(name: str, kind: str, told: str, label: str, values: object) -> Iterator[str]:
    assert isinstance(values, dict)
    yield from (f"# HELP {name} {told}", f"# TYPE {name} {kind}")
    for key, value in values.items():
        shown = str(key).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        yield f'{name}{{{label}="{shown}"}} {value}'
