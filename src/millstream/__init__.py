"""Millstream: continuous SQL over event streams, in-process and on Spark."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from millstream.errors import (
    BindError,
    CancelledError,
    CatalogError,
    ConnectorError,
    DataError,
    EngineError,
    LimitError,
    MillstreamError,
    ParseError,
    Span,
    StateError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from millstream.connectors.access import Access, Location
    from millstream.hosts.contract import Counts
    from millstream.remote.aio import Connecting
    from millstream.session.database import Database
    from millstream.session.python_aggregates import aggregate, function
    from millstream.session.query import Query, Result
    from millstream.session.sensors import SensorProxy
    from millstream.session.subscriptions import Reader

__version__ = "0.1.0"


def connect(
    path: Any = None, *, engine: str = "embedded", spark: Any = None, clock: Any = None, aggregates: Any = (),
    functions: Any = (), profile: str = "default", locations: Any = None,
    hosts: Any = (), brokers: Any = (), listen: Any = (),
    **settings: Any,
) -> Database:  # fmt: skip
    """Open a session.

    Without arguments it runs in this process and in memory. With `path` it keeps its catalog, tables, queries and their
    state in a directory. `engine="spark"` or `spark=session` runs the same calls on Spark. `clock` is a function that
    returns µs since the epoch; it stamps streams ordered by `current_time`. `aggregates` and `functions` are written in
    Python; open a directory with all that its queries use. `settings` are those of SET: batch_rows, threads, jit, …

    With `profile="untrusted"`, SQL may come from anybody: it reaches files only in `locations` (directories by name),
    connects only to `hosts` and Kafka `brokers`, listens only on loopback and the addresses in `listen`, changes no
    settings, and has limits of time, memory and rows. See docs/security.md.

    `connect("http://…", token=…)` is a session in a server, with the same calls; see docs/server.md.
    """
    if isinstance(path, str) and path.startswith(("http://", "https://")):
        from millstream.remote.session import RemoteDatabase

        return RemoteDatabase(path, **settings)  # type: ignore[return-value]
    access_of, open_session = _opening(spark is not None or engine == "spark")
    access = access_of(profile, locations or {}, hosts, brokers, listen)
    return open_session(path, engine, spark, clock, (*aggregates, *functions), settings, access)


def connect_async(path: Any = None, **given: Any) -> Connecting:
    """A session for asyncio: `async with connect_async(…) as db`. It has the arguments and calls of `connect`; await
    the calls, and `async for` reads what `subscribe` returns."""
    from millstream.remote.aio import Connecting

    return Connecting(lambda: connect(path, **given))


def _opening(on_spark: bool) -> tuple[Callable[..., Access], Callable[..., Database]]:
    """The functions that open sessions. The garbage collector skips the modules that they import."""
    import gc

    pauses = "millstream.session.opening" not in sys.modules and gc.isenabled()
    if pauses:
        gc.disable()
    try:
        from millstream.session.opening import access_of, open_session

        if not on_spark:
            import_module("millstream.hosts.embedded.host")
    finally:
        if pauses:
            if not gc.get_freeze_count():
                # all that there is becomes old at once, instead of being looked at as young
                gc.freeze()
                gc.unfreeze()
            gc.enable()
    return access_of, open_session


_LATER = {
    "Counts": "hosts.contract",
    "Database": "session.database",
    "Location": "connectors.access",
    "Query": "session.query",
    "Reader": "session.subscriptions",
    "Result": "session.query",
    "SensorProxy": "session.sensors",
    "aggregate": "session.python_aggregates",
    "function": "session.python_aggregates",
}
"""Names whose modules are imported when they are asked for."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'millstream' has no attribute {name!r}")
    return getattr(import_module(f"millstream.{_LATER[name]}"), name)


__all__ = [
    "BindError",
    "CancelledError",
    "CatalogError",
    "ConnectorError",
    "Counts",
    "DataError",
    "Database",
    "EngineError",
    "LimitError",
    "Location",
    "MillstreamError",
    "ParseError",
    "Query",
    "Reader",
    "Result",
    "SensorProxy",
    "Span",
    "StateError",
    "UnsupportedError",
    "aggregate",
    "connect",
    "connect_async",
    "function",
]
