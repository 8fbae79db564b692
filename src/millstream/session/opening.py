"""Opening a session: which host, which settings, in memory or in a directory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.config import Config
from millstream.errors import EngineError
from millstream.hosts.tables import TableStore
from millstream.session.database import Database
from millstream.session.times import wall_clock

ENGINES = ("embedded", "spark")


def open_session(
    path: str | Path | None, engine: str, spark: Any, clock: Callable[[], int] | None, aggregates: Iterable[Any],
    settings: dict[str, Any],
) -> Database:  # fmt: skip
    """The session that `millstream.connect` describes."""
    config = Config()
    for name, value in settings.items():
        config = config.with_setting(name, value)
    aggregates = tuple(aggregates)
    database = _open(path, engine, spark, config, clock or wall_clock, aggregates)
    for made in aggregates:
        database.register_aggregate(made)
    return database


def _open(
    path: str | Path | None, engine: str, spark: Any, config: Config, now: Callable[[], int], aggregates: Iterable[Any]
) -> Database:
    if spark is not None or engine == "spark":
        return _on_spark(path, spark, config, now)
    if engine not in ENGINES:
        raise EngineError(f"no engine {engine}", hint="engines: " + ", ".join(ENGINES))
    from millstream.hosts.embedded.host import EmbeddedHost

    # Arrow looks for pandas when it makes its first array: now, not while the first row waits
    pa.array([0])
    if path is not None:
        from millstream.session.persistent import open_persistent

        return open_persistent(Path(path).expanduser(), config, now, aggregates)
    tables = TableStore()
    return Database(EmbeddedHost(tables, config, now), tables, config)


def _on_spark(path: str | Path | None, spark: Any, config: Config, now: Callable[[], int]) -> Database:
    from millstream.hosts.spark.host import SparkHost
    from millstream.hosts.spark.session import get_session

    if path is not None:
        raise EngineError(
            "a session on Spark cannot be persistent", hint="use the checkpoint of the streaming query instead"
        )
    tables = TableStore()
    return Database(SparkHost(spark or get_session(), tables.read, now=now), tables, config)
