"""Time that passes without rows: a source of heartbeats in every streaming job.

Its offsets are times: what the wall clock said, and how far `advance` let each stream come. Spark journals them before
a micro-batch runs, so time is data here, too: a repeated micro-batch sees the same time. Without news it costs nothing
but a question at each trigger.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from millstream.errors import EngineError
from millstream.hosts.spark.job.fan import Fan, FanRun, Spread
from millstream.hosts.spark.parts import StopsWhenAsked
from millstream.hosts.spark.session import register_own
from millstream.hosts.spark.steps import Arrows
from millstream.kernels.batch import BEGIN, Batch
from millstream.records import dataclass
from millstream.schema import Schema
from millstream.sql import parse_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CLOCK_FORMAT = "millstream_clock"

TICK = "spark.millstream.tick"
"""How often time is told to streams that are stamped on arrival, while nothing arrives."""

DEFAULT_TICK = "1 second"


class HeartbeatFile:
    """How `advance` reaches the source, which runs in a process of its own beside the driver."""

    def __init__(self) -> None:
        self._reached: dict[str, int] = {}
        self._directory = tempfile.TemporaryDirectory(prefix="millstream-beats-", ignore_cleanup_errors=True)
        self.path = str(Path(self._directory.name) / "reached.json")

    def advance(self, stream: str, upto: int) -> None:
        """No later row of the stream is below `upto`."""
        self._reached[stream.lower()] = max(upto, self._reached.get(stream.lower(), BEGIN))
        hidden = Path(f"{self.path}.new")
        hidden.write_text(json.dumps(self._reached))
        hidden.replace(self.path)

    def close(self) -> None:
        self._directory.cleanup()


class ClockSource(DataSource):  # type: ignore[misc]
    """Known to Spark by its name. There is a class for each job, which Spark sends to where it is needed."""

    tick: ClassVar[int]
    file: ClassVar[str]

    def schema(self) -> str:
        return "beat STRING"

    def streamReader(self, schema: Any) -> ClockReader:
        return ClockReader(self.tick, self.file)


class ClockReader(DataSourceStreamReader, StopsWhenAsked):  # type: ignore[misc]
    """Offsets: the time in whole ticks (0 if nobody asks for it), and the heartbeats of streams as JSON."""

    def __init__(self, tick: int, file: str) -> None:
        self.tick = tick
        self.file = file
        self.target: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:
        return {"now": 0, "beats": "{}"}

    def prepareForTriggerAvailableNow(self) -> None:
        self.target = self._current()

    def getDefaultReadLimit(self) -> Any:
        from pyspark.sql.streaming.datasource import ReadAllAvailable

        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        begin = start or self.initialOffset()
        reached = self.target or self._current()
        beats = json.loads(begin["beats"])
        for stream, upto in json.loads(reached["beats"]).items():
            beats[stream] = max(upto, beats.get(stream, upto))
        return {"now": max(int(begin["now"]), int(reached["now"])), "beats": json.dumps(beats, sort_keys=True)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [] if start == end else [InputPartition(json.dumps(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"beat": [partition.value]})

    def commit(self, end: dict[str, Any]) -> None: ...

    def stop(self) -> None: ...

    def _current(self) -> dict[str, Any]:
        try:
            beats = Path(self.file).read_text()
        except OSError:
            beats = "{}"
        now = time_ns() // 1000
        return {"now": now // self.tick * self.tick if self.tick else 0, "beats": beats}


@dataclass(frozen=True)
class Timed:
    """A source of the job to which time is told: the clock's, if its rows are stamped with that, and heartbeats."""

    stream: str
    by_clock: bool
    fan: Fan
    schema: Schema
    place: str = ""
    beside: tuple[tuple[str, int], ...] = ()
    """the stages beside the source, which have their state there, each with the number of its clocks"""


@dataclass(frozen=True)
class TellTime:
    """A worker's work: heartbeats on the ways that rows of the sources go."""

    sources: tuple[Timed, ...]
    spread: Spread

    def __call__(self, arrows: Arrows) -> Arrows:
        for told in arrows:
            for text in told.column(0).to_pylist():
                beat = json.loads(text)
                beats = json.loads(beat["beats"])
                for source in self.sources:
                    upto = int(beats.get(source.stream, BEGIN))
                    if source.by_clock and beat["now"]:
                        upto = max(upto, int(beat["now"]))
                    if upto > BEGIN and source.beside:
                        _leave_note(source, upto)
                    if upto > BEGIN:
                        run = FanRun(source.fan, self.spread)
                        yield from run.take(Batch.empty(source.schema.arrow, upto))
                        yield from run.end()


def _leave_note(source: Timed, upto: int) -> None:
    """No exchange leads to the stages beside a source: they hear of the time in the next micro-batch."""
    from millstream.hosts.spark.file_state import state_directory
    from millstream.hosts.spark.job.beside import Notes

    directory, number = state_directory()
    Notes(directory / source.place).beat(number, {name: [upto] * clocks for name, clocks in source.beside})


def clock_frame(spark: SparkSession, sources: tuple[Timed, ...], file: str) -> DataFrame:
    """Heartbeats as they come."""
    tick = tick_of(spark) if any(source.by_clock for source in sources) else 0
    return spark.readStream.format(register_own(spark, ClockSource, CLOCK_FORMAT, tick=tick, file=file)).load()


def tick_of(spark: SparkSession) -> int:
    """Microseconds between two ticks."""
    text = str(spark.conf.get(TICK, DEFAULT_TICK) or DEFAULT_TICK)
    span = parse_duration(text)
    if span is None or span <= 0:
        raise EngineError(f"{TICK} is {text!r}, which is not a duration", hint="write it like '1 second'")
    return span
