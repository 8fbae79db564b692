"""Tasks of a streaming query are told where its checkpoint is: they keep state in it.

The user starts the query, so only Spark knows the place. It calls listeners on the query's own thread before the first
micro-batch; what is set on that thread comes with every task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKPOINT = "millstream.checkpoint"
"""What tasks are told: where the checkpoint of their query is."""

STATE_PLACE = "millstream/state"
"""In a checkpoint: the directory of state files."""

_LISTENS = "_millstream_listens"


def tell_checkpoints(spark: SparkSession) -> None:
    """From now on, tasks of the session's streaming queries know their checkpoints."""
    if not hasattr(spark, _LISTENS):
        listener = TellCheckpoint(spark)
        spark.streams.addListener(listener)
        setattr(spark, _LISTENS, listener)


class TellCheckpoint:
    """A listener as Java has it: PySpark's own would take every micro-batch's progress apart."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @property
    def _jlistener(self) -> Any:
        jvm: Any = self._spark.sparkContext._jvm
        return jvm.PythonStreamingQueryListenerWrapper(self)

    def onQueryStarted(self, event: Any) -> None:
        session: Any = self._spark._jsparkSession
        query = session.streams().get(event.id().toString())
        if query is None:
            return
        place = str(query.streamingQuery().resolvedCheckpointRoot())
        self._spark.sparkContext.setLocalProperty(CHECKPOINT, place)

    def onQueryProgress(self, event: Any) -> None: ...

    def onQueryIdle(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None: ...

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


def local(place: str) -> str:
    """The path of a directory that Spark names by its URI."""
    return "/" + place.removeprefix("file:").lstrip("/")
