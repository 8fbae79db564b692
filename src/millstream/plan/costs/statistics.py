"""Statistics of streams, measured as rows pass: their rate, and how many different values their columns have."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.arrays import to_numpy
from millstream.records import dataclass

MEMORY = 10_000
"""rows after which older distances count for 1/e"""

SKETCH = 256
"""least hashes kept of each column: the number of different values is known to about 1/16"""

SAMPLE = 512
"""rows that are looked at when a batch is looked into; of text, whose hashes are made one by one, an eighth of it"""

PAUSE = 2048
"""rows between two looks at first; later a tenth of all that came, so that looking costs ever less"""


@dataclass(frozen=True, slots=True)
class StreamStatistics:
    """A stream so far: the distance of its rows in time, and the number of different values of its columns."""

    rows: int
    distance: float
    distinct: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Statistics:
    """What an optimizer may know: streams by their name in lower case, and parts of conditions by their text, as the
    share of rows for which they were true."""

    streams: Mapping[str, StreamStatistics] = field(default_factory=dict)
    selectivities: Mapping[str, float] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.streams or self.selectivities)


UNKNOWN = Statistics()


_SKETCH = pa.struct([("column", pa.string()), ("least", pa.list_(pa.uint64())), ("looked_at", pa.int64())])
_SAVED = pa.schema(
    [
        ("rows", pa.int64()), ("last", pa.int64()), ("distance", pa.float64()), ("next_look", pa.int64()),
        ("sketches", pa.list_(_SKETCH)),
    ]
)  # fmt: skip


class StreamObserver:
    """Watches one stream: a few operations for each batch, and now and then a look at some of its rows."""

    def __init__(self) -> None:
        self.rows = 0
        self._last: int | None = None
        self._distance: float | None = None
        self._sketches: dict[str, Sketch] = {}
        self._next_look = 0

    def observe(self, time: npt.NDArray[np.int64], rows: pa.RecordBatch) -> None:
        """Take note of rows in order of time; batches of any size lead to nearly the same."""
        count = len(time)
        if not count:
            return
        first, last = int(time[0]), int(time[-1])
        self.rows += count
        steps = count - 1 if self._last is None else count
        if steps:
            mean = (last - (first if self._last is None else self._last)) / steps
            # one step of exponential smoothing for each row, all at once
            old = math.exp(-steps / MEMORY)
            self._distance = mean if self._distance is None else old * self._distance + (1 - old) * mean
        self._last = last
        if self.rows >= self._next_look:
            self._look(rows)
            self._next_look = self.rows + max(PAUSE, self.rows // 10)

    def _look(self, rows: pa.RecordBatch) -> None:
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            sketch = self._sketches.get(name)
            if sketch is None:
                sketch = self._sketches[name] = Sketch()
            sketch.add(column)

    def statistics(self) -> StreamStatistics | None:
        """What is known by now, or None if that is nothing."""
        if self._distance is None:
            return None
        distinct = {name: sketch.estimate(self.rows) for name, sketch in self._sketches.items()}
        # rows of equal time are as close as rows can be told apart
        return StreamStatistics(self.rows, max(self._distance, 1 / MEMORY), distinct)

    def saved(self) -> pa.RecordBatch:
        """What was seen, as one row."""
        sketches = [{"column": name, **sketch.saved()} for name, sketch in self._sketches.items()]
        own = {"rows": self.rows, "last": self._last, "distance": self._distance, "next_look": self._next_look}
        return pa.RecordBatch.from_pylist([{**own, "sketches": sketches}], _SAVED)

    @staticmethod
    def restored(saved: pa.RecordBatch) -> StreamObserver:
        """The inverse of `saved`."""
        observer, row = StreamObserver(), saved.to_pylist()[0]
        observer.rows, observer._last, observer._distance = row["rows"], row["last"], row["distance"]
        observer._next_look = row["next_look"]
        observer._sketches = {each["column"]: Sketch(each["least"], each["looked_at"]) for each in row["sketches"]}
        return observer


class Sketch:
    """The number of different values in a column, from the least hashes of a sample."""

    def __init__(self, least: Sequence[int] = (), looked_at: int = 0) -> None:
        self._least: npt.NDArray[np.uint64] = np.array(least, np.uint64)
        self._looked_at = looked_at

    def saved(self) -> dict[str, object]:
        return {"least": self._least.tolist(), "looked_at": self._looked_at}

    def add(self, column: pa.Array) -> None:
        """Look at the first rows of a column."""
        hashes = _hashes(column.slice(0, SAMPLE if _is_plain(column.type) else SAMPLE // 8))
        self._looked_at += len(hashes)
        if len(self._least) == SKETCH:
            hashes = hashes[hashes < self._least[-1]]
        if len(hashes):
            least = np.sort(np.concatenate((self._least, hashes)))
            # np.unique would import numpy.ma
            self._least = least[np.append(True, least[1:] != least[:-1])][:SKETCH]

    def estimate(self, rows: int) -> float:
        """How many there are among so many rows, if all are equally frequent."""
        if not self._looked_at:
            return 1.0
        if len(self._least) < SKETCH:
            seen = float(len(self._least))
        else:
            seen = (SKETCH - 1) / (float(self._least[-1]) / 2.0**64)
        low, high = seen, float(max(rows, 1))
        # of D values, a sample of n shows D (1 - exp(-n / D)): the more the sample repeats itself, the fewer there are
        while high - low > 0.01 * low:
            middle = math.sqrt(low * high)
            shown = -middle * math.expm1(-self._looked_at / middle)
            low, high = (middle, high) if shown < seen else (low, middle)
        return min(low, float(max(rows, 1)))


def _is_plain(type_: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(type_) and type_.bit_width in (8, 16, 32, 64))


def _hashes(column: pa.Array) -> npt.NDArray[np.uint64]:
    """A hash of each value that is not NULL; the same value has the same one in every run."""
    values = column.drop_null()
    if _is_plain(column.type):
        bits = values.view(pa.from_numpy_dtype(np.dtype(f"i{column.type.bit_width // 8}")))
        mixed = to_numpy(bits).astype(np.int64).view(np.uint64)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        return np.asarray(mixed ^ (mixed >> np.uint64(31)), np.uint64)
    made = [hashlib.blake2b(repr(value).encode(), digest_size=8).digest() for value in values.to_pylist()]
    return np.frombuffer(b"".join(made), np.uint64)
