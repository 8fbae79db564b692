"""Tasks of a streaming query are told where its checkpoint is: they keep state in it.

The user starts the query, so only Spark knows the place. It calls listeners on the query's own thread before the first
micro-batch; what is set on that thread comes with every task.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.durable import sync_directory, write_durably
from millstream.hosts.spark.session import cores_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKPOINT = "millstream.checkpoint"
"""What tasks are told: where the checkpoint of their query is."""

STATE_PLACE = "millstream/state"
"""In a checkpoint: the directory of state files."""

BUCKETS = "millstream.buckets"
"""What tasks are told, too: how many buckets the state of their query has; nothing if its plan says that."""

BUCKETS_PLACE = "millstream/buckets"
"""In the checkpoint of a DataFrame's query: the file that says it."""

JOB_PLACE = "millstream/job.json"
"""In the checkpoint of a job: what it is, and among other things how many buckets it has."""

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
        self._spark.sparkContext.setLocalProperty(BUCKETS, noted_buckets(place, cores_of(self._spark)))

    def onQueryProgress(self, event: Any) -> None: ...

    def onQueryIdle(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None: ...

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


def noted_buckets(place: str, cores: int) -> str:
    """How many buckets the state in a checkpoint has, and from now on will have: each costs some time in every
    micro-batch, so more of them than cores only slow a query down. Empty if that is for the plan to say: in a job, and
    where state was kept before this was noted."""
    if not place.startswith(("file:", "/")):
        return ""
    root = Path(local(place))
    note = root / BUCKETS_PLACE
    if note.exists():
        return note.read_text()
    if (root / STATE_PLACE).exists() or (root / JOB_PLACE).exists():
        return ""
    note.parent.mkdir(parents=True, exist_ok=True)
    write_durably(note, str(cores).encode())
    sync_directory(note.parent)
    return str(cores)


def bucket_count(most: int) -> int:
    """In a task: how many buckets the state of its query has, if the plan only says how many at most."""
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    told = None if context is None else context.getLocalProperty(BUCKETS)
    return min(most, int(told)) if told else most


def local(place: str) -> str:
    """The path of a directory that Spark names by its URI."""
    return "/" + place.removeprefix("file:").lstrip("/")
