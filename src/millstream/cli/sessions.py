"""Opening the session of a command: the engine, its settings, and what to say if it is not there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from millstream.cli.options import EngineName
from millstream.records import dataclass

if TYPE_CHECKING:
    from millstream.session.database import Database


@dataclass(frozen=True)
class Wish:
    """The session that a command was asked for; in `conf`, the names of SET are ours and all others Spark's."""

    engine: EngineName
    directory: Path | None = None
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    streaming: bool = False
    trigger: str | None = None
    server: str | None = None
    """the address of a server that has the session"""


@dataclass(frozen=True)
class Opened:
    """An open session, and a function that says in a few words what the engine is at."""

    database: Database
    activity: Callable[[], str] = lambda: ""


@contextmanager
def session(wish: Wish) -> Iterator[Opened]:
    """The session, closed at the end together with the engine."""
    if wish.server is not None:
        yield from _in_server(wish, wish.server)
        return
    settings, others = _split(wish.conf)
    if wish.engine is EngineName.spark:
        yield from _on_spark(wish, settings, others)
        return
    for given, option in ((wish.master, "--master"), (wish.trigger, "--trigger"), (wish.streaming, "--streaming")):
        if given:
            raise typer.BadParameter("is for Spark only", param_hint=option)
    if others:
        raise typer.BadParameter(f"{min(others)} is not a setting of the embedded engine", param_hint="--conf")
    import millstream

    with millstream.connect(wish.directory, **settings) as database:
        yield Opened(database)


def _in_server(wish: Wish, server: str) -> Iterator[Opened]:
    import millstream

    given = {
        "DIR": wish.directory,
        "--master": wish.master,
        "--conf": wish.conf,
        "--engine": wish.engine.value == "spark",
    }
    for option, value in given.items():
        if value:
            raise typer.BadParameter("the server has its own", param_hint=option)
    with millstream.connect(server, token=os.environ.get("MILLSTREAM_TOKEN")) as database:
        yield Opened(database)


def _on_spark(wish: Wish, settings: Mapping[str, Any], spark_conf: Mapping[str, str]) -> Iterator[Opened]:
    from millstream.cli import spark_session
    from millstream.config import Config
    from millstream.hosts.spark.session import refuse_setting

    config = Config()
    for name in settings:
        refuse_setting(name)
    for name, value in settings.items():
        config = config.with_setting(name, value)
    spark = spark_session.start_spark(wish.master, spark_conf)
    try:
        with spark_session.spark_database(
            spark, config, checkpoint=wish.directory, streaming=wish.streaming, trigger=wish.trigger
        ) as database:
            yield Opened(database, lambda: spark_session.activity(spark))
    finally:
        spark_session.stop_spark(spark)


def _split(conf: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    from millstream.config import Config

    known = {entry.name for entry in fields(Config)} | {"disable_rule"}
    ours = {name: _plain(value) for name, value in conf.items() if name in known}
    return ours, {name: value for name, value in conf.items() if name not in known}


def _plain(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
