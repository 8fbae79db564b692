"""Opening the session of a command: the engine, its settings, and what to say if it is not there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from millstream.cli.failures import EngineMissing
from millstream.cli.options import Engine
from millstream.errors import EngineError

if TYPE_CHECKING:
    from millstream.session import Database

EMBEDDED_HINT = "or run it in this process, without Java and Spark: --engine embedded"


@contextmanager
def session(
    engine: Engine,
    *,
    directory: Path | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> Iterator[Database]:
    """A session on the engine; in `conf`, the names of SET are ours and all others Spark's."""
    import millstream

    settings, spark_conf = _split(conf or {})
    if engine is Engine.spark:
        spark = _spark(master, spark_conf)
        try:
            with millstream.connect(directory, spark=spark, **settings) as database:
                yield database
        finally:
            spark.stop()
        return
    if master is not None:
        raise typer.BadParameter("only Spark has a master", param_hint="--master")
    if spark_conf:
        raise typer.BadParameter(f"{min(spark_conf)} is not a setting of the embedded engine", param_hint="--conf")
    with millstream.connect(directory, **settings) as database:
        yield database


def _spark(master: str | None, conf: Mapping[str, str]) -> Any:
    from millstream.hosts.spark.session import get_session

    try:
        return get_session(master or "local[*]", conf)
    except EngineError as error:
        hint = "; ".join(part for part in (error.hint or "").split("; ") if "ms.connect" not in part)
        raise EngineMissing(
            error.message, detail=error.detail, hint=f"{hint}; {EMBEDDED_HINT}" if hint else EMBEDDED_HINT
        ) from None


def _split(conf: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    from millstream.config import Config

    known = {field.name for field in fields(Config)} | {"disable_rule"}
    ours = {name: _plain(value) for name, value in conf.items() if name in known}
    return ours, {name: value for name, value in conf.items() if name not in known}


def _plain(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
