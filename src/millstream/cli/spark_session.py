"""A session on Spark for the command line: its streaming options, and what Spark is doing right now."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.cli.failures import EngineMissing
from millstream.config import Config
from millstream.errors import EngineError
from millstream.hosts.spark.host import SparkHost
from millstream.hosts.spark.session import get_session
from millstream.hosts.tables import TableStore
from millstream.session.database import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


EMBEDDED_HINT = "or run it in this process, without Java and Spark: --engine embedded"


def start_spark(master: str | None, conf: Mapping[str, str]) -> SparkSession:
    """Spark, or an error that names the way without it."""
    try:
        return get_session(master or "local[*]", conf)
    except EngineError as error:
        hint = "; ".join(part for part in (error.hint or "").split("; ") if "ms.connect" not in part)
        raise EngineMissing(
            error.message, detail=error.detail, hint=f"{hint}; {EMBEDDED_HINT}" if hint else EMBEDDED_HINT
        ) from None


def stop_spark(spark: SparkSession) -> None:
    """End Spark; a signal to the whole process group may have ended it already."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped,unused-ignore]

    counters = getattr(getattr(spark, "_sc", None), "_accumulatorServer", None)
    if counters is not None:
        # the connection of the counters ends with Java, which is no error
        counters.handle_error = lambda *_: None
    with suppress(Py4JError, OSError):
        spark.stop()


def spark_database(
    spark: SparkSession, config: Config, *, checkpoint: Path | None, streaming: bool, trigger: str | None
) -> Database:
    """A session on Spark; `streaming` follows files instead of reading them once."""
    tables = TableStore(config=config)
    place = None if checkpoint is None else str(checkpoint.expanduser().absolute())
    host = SparkHost(spark, tables.read, checkpoint=place, trigger=_trigger(trigger), follow=streaming, tables=tables)
    return Database(host, tables, config)


def _trigger(text: str | None) -> dict[str, Any] | None:
    """What Spark's writer calls the trigger: `now` is all that is there and then the end, else a length of time."""
    if text is None:
        return None
    return {"availableNow": True} if text.strip().lower() == "now" else {"processingTime": text}


def activity(spark: SparkSession) -> str:
    """The tasks that Spark is at, in a few words; empty if it does nothing or does not tell."""
    if not hasattr(spark, "_jsparkSession"):
        return ""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped,unused-ignore]

    try:
        tracker = spark.sparkContext.statusTracker()
        stages = [info for info in map(tracker.getStageInfo, tracker.getActiveStageIds()) if info is not None]
    except (Py4JError, OSError):
        return ""
    if not stages:
        return ""
    done, total = sum(info.numCompletedTasks for info in stages), sum(info.numTasks for info in stages)
    return f"Spark stage {max(info.stageId for info in stages)}: {done} of {total} tasks"
