"""State of a bucket as one value: it comes to the worker with the rows, and goes back with the results.

Variables of state cost a message to Java for each access, and Java takes longer to prepare them for every task than a
small micro-batch takes to compute. One value needs neither, but is read and written as a whole. Processors see the same
variables in both.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming import StatefulProcessor

from millstream.errors import StateError
from millstream.hosts.spark.processor import StageProcessor
from millstream.hosts.spark.session import CHECKS, KEPT_AS, VARIABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_BYTES = 1 << 30
"""Of one value: Java's arrays end at twice that."""

Part = tuple[str, ...]
"""The name of a variable, and for a map the key in it."""


def stateful(packed: DataFrame, processor: StatefulProcessor, output: str, mode: str, kept: str) -> DataFrame:
    """Each bucket's rows through a processor, with its state."""
    if kept == VARIABLES:
        buckets = packed.groupBy("bucket")
        return buckets.transformWithStateInPandas(StageProcessor(processor), output, "Append", mode)
    from pyspark.sql import functions as F

    # something to compute: otherwise Spark hands rows of a Python worker to an exchange that cannot write such rows
    buckets = packed.withColumn("bucket", F.coalesce("bucket", F.lit(0))).groupBy("bucket")
    return buckets.applyInPandasWithState(in_one_value(processor), output, "kept BINARY", "append", "NoTimeout")


class Unchecked:
    """While a query starts, Spark does not refuse several operators with one value each.

    It does so because its watermark would drop rows between them. Heartbeats of ours travel with the rows instead.
    """

    def __init__(self, spark: SparkSession, several: bool) -> None:
        self._conf = spark.conf if several else None

    def __enter__(self) -> None:
        if self._conf is not None:
            self._before = self._conf.get(CHECKS, "true")
            self._conf.set(CHECKS, "false")

    def __exit__(self, *_: object) -> None:
        if self._conf is not None:
            self._conf.set(CHECKS, str(self._before))


def in_one_value(processor: StatefulProcessor) -> Callable[[Any, Iterable[Any], Any], Iterator[Any]]:
    """A processor as Spark's function over the rows and the value of a bucket."""
    opened: list[OneValue] = []

    def take(key: Any, frames: Iterable[Any], state: Any) -> Iterator[Any]:
        if not opened:
            # Spark joins frames with empty ones, of which pandas warns
            warnings.filterwarnings("ignore", category=FutureWarning)
            opened.append(OneValue())
            processor.init(opened[0])
        [value] = opened
        value.load(bytes(state.get[0]) if state.exists else None)
        for frame in processor.handleInputRows(key, frames, None):
            # Spark may fill up rows with NULLs, which would make floats of these
            yield frame.astype({name: "Int64" for name, kind in frame.dtypes.items() if kind.kind == "i"})
        if value.changed:
            state.update((value.saved(),))
        processor.close()

    return take


class OneValue:
    """What a processor sees as Spark's handle: its variables are parts of one value."""

    near_bytes = 0
    """of parts that heads hold: all parts are as near here"""

    def __init__(self) -> None:
        self.parts: dict[Part, bytes | memoryview] = {}
        self.changed = False

    def load(self, saved: bytes | None) -> None:
        """Begin with the value of a bucket."""
        self.parts, self.changed = {}, False
        if saved is None:
            return
        length = int.from_bytes(saved[:4], "little")
        place, content = 4 + length, memoryview(saved)
        for *part, size in json.loads(saved[4:place]):
            self.parts[tuple(part)] = content[place : place + size]
            place += size

    def saved(self) -> bytes:
        """The value of the bucket: an index, and the parts."""
        index = json.dumps([[*part, len(blob)] for part, blob in self.parts.items()]).encode()
        value = b"".join([len(index).to_bytes(4, "little"), index, *self.parts.values()])
        if len(value) > MOST_BYTES:
            raise StateError(
                f"the state of a bucket has {len(value):,} bytes, too many for one value",
                hint=f"use more spark.millstream.buckets, or {KEPT_AS}={VARIABLES}, with a new checkpoint directory",
            )
        return value

    def get(self, part: Part) -> bytes | memoryview | None:
        return self.parts.get(part)

    def put(self, part: Part, blob: bytes | None) -> None:
        if blob is None:
            self.parts.pop(part, None)
        else:
            self.parts[part] = blob
        self.changed = True

    def getValueState(self, name: str, _: str) -> ValuePart:
        return ValuePart(self, name)

    def getMapState(self, name: str, _: str, __: str) -> MapPart:
        return MapPart(self, name)


class ValuePart:
    """A variable that is a text."""

    def __init__(self, value: OneValue, name: str) -> None:
        self._value, self._name = value, name

    def get(self) -> tuple[str] | None:
        found = self._value.get((self._name,))
        return None if found is None else (bytes(found).decode(),)

    def update(self, text: tuple[str]) -> None:
        self._value.put((self._name,), text[0].encode())


class MapPart:
    """A variable that is a map from numbers to blobs."""

    def __init__(self, value: OneValue, name: str) -> None:
        self._value, self._name = value, name

    def _part(self, key: tuple[int, ...]) -> Part:
        return (self._name, *map(str, key))

    def getValue(self, key: tuple[int, ...]) -> tuple[bytes | memoryview | None]:
        return (self._value.get(self._part(key)),)

    def updateValue(self, key: tuple[int, ...], blob: tuple[bytes]) -> None:
        self._value.put(self._part(key), blob[0])

    def removeKey(self, key: tuple[int, ...]) -> None:
        self._value.put(self._part(key), None)
