"""Rescaling: the state in a checkpoint divided anew, over another number of tasks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.errors import EngineError, StateError
from millstream.hosts.spark.checkpoints import STATE_PLACE, local
from millstream.hosts.spark.failures import telling, translated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REFUSED = re.compile(r"\[STATE_REPARTITION_INVALID_CHECKPOINT\.([A-Z_]+)\]")


def rescale(spark: SparkSession, checkpoint: str, partitions: int) -> None:
    """Divide the state of a stopped streaming query over `partitions` tasks; it resumes with that many.

    `checkpoint` is the query's own directory. Keys stay in their buckets, of which each task then has others, so more
    tasks than buckets are of no use. Where the state is already divided like that, nothing happens.
    """
    if partitions < 1:
        raise StateError(f"a checkpoint cannot be split over {partitions} tasks", hint="use at least one task")
    if (Path(local(checkpoint)) / STATE_PLACE).is_dir():
        # files of buckets: tasks share them in any number
        return
    manager: Any = getattr(spark, "_streamingCheckpointManager", None) if hasattr(spark, "_jsparkSession") else None
    if manager is None:
        raise EngineError(
            "this Spark session cannot rescale a checkpoint",
            detail="this needs Spark 4.2 or newer, without Spark Connect",
            hint="a query on the old checkpoint keeps the number of tasks that it has, with any number of cores",
        )
    if "://" not in checkpoint and not (Path(checkpoint) / "offsets").is_dir():
        # Spark would make a directory there
        raise StateError(
            f"no checkpoint of a streaming query in {checkpoint}",
            hint="for a pipeline, use the directory job inside the one given with --checkpoint",
        )
    if any(_is_at(query, checkpoint) for query in spark.streams.active):
        raise StateError(f"the query of {checkpoint} is running", hint="stop it first")
    try:
        manager.repartition(checkpoint, partitions)
    except Exception as error:
        _tell(error, checkpoint)


def _is_at(query: Any, checkpoint: str) -> bool:
    """Whether a running query keeps its checkpoint there."""
    with telling():
        place = str(query._jsq.streamingQuery().resolvedCheckpointRoot())
    return place.removeprefix("file:").rstrip("/") == checkpoint.removeprefix("file:").rstrip("/")


def _tell(error: Exception, checkpoint: str) -> None:
    """Raise what Spark said as ours, unless it is that there was nothing to do."""
    found = _REFUSED.search(str(error))
    match found[1] if found else "":
        case "SHUFFLE_PARTITIONS_ALREADY_MATCH":
            return
        case "LAST_BATCH_FAILED":
            raise StateError(
                f"the last micro-batch in {checkpoint} is not complete",
                hint="run the query until it ends (--trigger now), then rescale",
            ) from None
        case "LAST_BATCH_ABANDONED_REPARTITION":
            raise StateError(
                f"an earlier rescaling of {checkpoint} did not finish", hint="run it again with the same number"
            ) from None
        case "NO_BATCH_FOUND" | "NO_COMMITTED_BATCH":
            raise StateError(
                f"no micro-batch of {checkpoint} is complete yet",
                hint="set spark.sql.shuffle.partitions before the query starts for the first time",
            ) from None
    raise translated(error) from None
