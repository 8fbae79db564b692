"""Opening a session: which host, which settings, in memory or in a directory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from millstream.config import Config
from millstream.connectors.access import PROFILES, Access, Location
from millstream.errors import BindError, EngineError
from millstream.hosts.tables import TableStore
from millstream.session.database import Database
from millstream.session.times import wall_clock

ENGINES = ("embedded", "spark")

BOUNDED: dict[str, Any] = {
    "statement_timeout": 30.0, "memory_limit": 1 << 30, "max_output_rows": 1_000_000,
    # queries that are only looked at, with snapshot(), are fetched by nobody
    "max_unfetched_rows": 1_000_000, "when_unfetched": "drop",
}  # fmt: skip
"""the limits of the profile untrusted, unless the operator sets others"""


def access_of(
    profile: str, locations: Mapping[str, Any], hosts: Iterable[str], brokers: Iterable[str], listen: Iterable[str]
) -> Access:
    """What statements may reach, as the operator says."""
    if profile not in PROFILES:
        raise BindError(f"no profile {profile}", hint=" or ".join(PROFILES))
    named = {
        name.lower(): place if isinstance(place, Location) else Location(place) for name, place in locations.items()
    }
    allowed = (frozenset(each.lower() for each in _listed(given)) for given in (hosts, brokers, listen))
    return Access(profile, named, *allowed)


def _listed(given: Iterable[str]) -> Iterable[str]:
    return [given] if isinstance(given, str) else given


def open_session(
    path: str | Path | None, engine: str, spark: Any, clock: Callable[[], int] | None, code: Iterable[Any],
    settings: dict[str, Any], access: Access = Access(),
) -> Database:  # fmt: skip
    """The session that `millstream.connect` describes."""
    config = Config() if access.is_open else Config(**BOUNDED)
    if spark is not None or engine == "spark":
        from millstream.hosts.spark.session import refuse_setting

        for name in settings:
            refuse_setting(name)
    for name, value in settings.items():
        config = config.with_setting(name, value)
    code = tuple(code)
    given = {*settings, *(() if access.is_open else BOUNDED)}
    database = _open(path, engine, spark, config, clock or wall_clock, code, given)
    database.guard.access = access
    for made in code:
        database.register_function(made)
    return database


def _open(
    path: str | Path | None, engine: str, spark: Any, config: Config, now: Callable[[], int], code: Iterable[Any],
    given: Iterable[str],
) -> Database:  # fmt: skip
    if spark is not None or engine == "spark":
        return _on_spark(path, spark, config, now)
    if engine not in ENGINES:
        raise EngineError(f"no engine {engine}", hint="engines: " + ", ".join(ENGINES))
    from millstream.hosts.embedded.host import EmbeddedHost

    if path is not None:
        from millstream.session.persistent import open_persistent

        return open_persistent(Path(path).expanduser(), config, now, code, given)
    tables = TableStore(config=config)
    return Database(EmbeddedHost(tables, config, now), tables, config)


def _on_spark(path: str | Path | None, spark: Any, config: Config, now: Callable[[], int]) -> Database:
    from millstream.hosts.spark.host import SparkHost
    from millstream.hosts.spark.session import get_session

    if path is not None:
        raise EngineError(
            "a session on Spark cannot be persistent", hint="use the checkpoint of the streaming query instead"
        )
    tables = TableStore(config=config)
    return Database(SparkHost(spark or get_session(), tables.read, now=now, tables=tables), tables, config)
