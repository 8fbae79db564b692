"""Where the rows of a streaming job go: each outlet to its sink, once for each micro-batch.

Tasks write part files into hidden directories and hand the rows of other outlets to the driver. The driver then
commits the micro-batch, outlet by outlet. Spark repeats a micro-batch whose end it did not see: files carry its
number, so those of the first try are replaced; other sinks are reopened where the last whole micro-batch left them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from functools import partial
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from millstream.connectors.contract import Sink
from millstream.connectors.registry import make_sink
from millstream.durable import sync_directory
from millstream.hosts.contract import ReadyQuery
from millstream.hosts.spark import blobs
from millstream.hosts.spark.failures import inside_a_micro_batch
from millstream.hosts.spark.job.committed import Committed
from millstream.hosts.spark.job.fan import JOB_ROWS, WRITTEN, Spread, outlet_number, packed_rows
from millstream.hosts.spark.job.frames import outlet_branch
from millstream.hosts.spark.kept_plan import read_text, write_text
from millstream.hosts.spark.sinks import is_part_sink, is_remote, part_options, spark_format, written_schema
from millstream.hosts.spark.steps import Arrows, spare_collector
from millstream.hosts.spark.surface import exact, surface
from millstream.records import dataclass
from millstream.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TakeBatch = Callable[["DataFrame", int], Any]
"""A function of the user's: the rows of a micro-batch and its number, as `foreachBatch` of Spark has it."""

Deliver = Callable[[str, pa.Table, int], None]
"""What takes the rows that a query gives in a micro-batch, which may be repeated: its name, the rows, and the number"""

LEDGER = "millstream/outlets.json"
"""In a checkpoint: the last micro-batch that was whole, and where it left the sinks that the driver writes."""


@dataclass(frozen=True)
class PartFiles:
    """An outlet that goes to part files: how they are written, and where."""

    options: tuple[tuple[str, Any], ...]
    sink: str
    schema: Schema
    """under the names that are written"""
    target: str

    @property
    def scratch(self) -> Path:
        """Where files are until the micro-batch is whole; hidden from readers."""
        return Path(self.target) / ".unfinished"

    def commit(self, batch: int, directories: Iterable[tuple[int, str]]) -> None:
        """The files of a micro-batch appear in place of those of an earlier try."""
        target = Path(self.target)
        target.mkdir(parents=True, exist_ok=True)
        for old in target.glob(f"part-{batch:08d}?????*"):
            old.unlink()
        for task, directory in directories:
            for number, part in enumerate(sorted(Path(directory).glob("part-*"))):
                part.rename(target / f"part-{batch:08d}{task:05d}{number:03d}{part.suffix}")
        sync_directory(target)
        shutil.rmtree(self.scratch, ignore_errors=True)

    def clear(self) -> None:
        """Remove what another run left: a query that begins anew replaces it."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        for old in Path(self.target).glob("part-*"):
            old.unlink()


@dataclass(frozen=True)
class WriteOutlets:
    """A worker's work: rows of `files` into part files, of which packed rows tell; those of outlets that are handed on,
    and what stages tell, go on as they are."""

    files: Mapping[int, PartFiles]
    handed_on: frozenset[int]

    def begin(self) -> WritingOutlets:
        return WritingOutlets(self)

    def __call__(self, arrows: Arrows) -> Arrows:
        writing = self.begin()
        for packed in arrows:
            yield writing.rest(packed)
        yield from writing.end()
        spare_collector()


class WritingOutlets:
    """The part files of a task, each in a directory of its own."""

    def __init__(self, work: WriteOutlets) -> None:
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        self._task = int(context.partitionId())
        self._work = work
        self._directories: dict[int, Path] = {}
        self._sinks: dict[int, Sink] = {}
        self._counts: dict[int, int] = {}

    def takes(self, outlet: int) -> bool:
        return outlet in self._work.files

    def write(self, outlet: int, columns: list[pa.Array]) -> None:
        files = self._work.files[outlet]
        if outlet not in self._sinks:
            self._directories[outlet] = directory = files.scratch / f"{self._task:05d}-{uuid4()}"
            self._sinks[outlet] = make_sink({**dict(files.options), "path": str(directory)}, files.sink)
            self._sinks[outlet].open(files.schema, {})
            self._counts[outlet] = 0
        rows = pa.RecordBatch.from_arrays(columns, schema=files.schema.arrow)
        self._sinks[outlet].write(rows)
        self._counts[outlet] += rows.num_rows

    def rest(self, packed: pa.RecordBatch) -> pa.RecordBatch:
        left = []
        for place, stage in enumerate(packed.column("stage").to_pylist()):
            outlet = outlet_number(stage)
            if self.takes(outlet):
                blob = packed.column("blob")[place].as_buffer()
                self.write(outlet, blobs.decode(blob, blobs.layout_of(self._work.files[outlet].schema)).columns[2:])
            elif outlet < 0 or outlet in self._work.handed_on:
                left.append(place)
        return packed if len(left) == packed.num_rows else packed.take(pa.array(left, pa.int64()))

    def end(self) -> Arrows:
        together(sink.close for sink in self._sinks.values())
        told = [
            {"bucket": self._task, "stage": outlet_number(outlet), "port": WRITTEN, "rows": self._counts[outlet]}
            | {"blob": str(directory).encode()}
            for outlet, directory in self._directories.items()
        ]
        if told:
            yield packed_rows(told, Spread(1))


def together(work: Iterable[Callable[[], object]]) -> None:
    """Work that waits for disks, at the same time."""
    all_work = list(work)
    if len(all_work) < 2:
        for each in all_work:
            each()
        return
    with ThreadPoolExecutor(len(all_work)) as pool:
        for done in [pool.submit(each) for each in all_work]:
            done.result()


def part_files(program: ReadyQuery) -> PartFiles | None:
    """The part files that a program's rows go to; None if they go elsewhere."""
    if program.sink is None or not is_part_sink(program.sink):
        return None
    target, options = part_options(program.sink)
    return PartFiles(options, program.sink.name, written_schema(program), target)


@dataclass
class Outlets:
    """The outlets of a streaming job, and what is committed of them; `deliver` takes the rows of those without a sink,
    by the names of their queries.

    `functions` are the user's own, by the names of queries in lower case. `prepare` is called before each micro-batch.
    """

    spark: SparkSession
    checkpoint: str
    deliver: Deliver
    functions: dict[str, TakeBatch] = field(default_factory=dict)
    prepare: Callable[[int], None] = lambda _: None
    isolate: Callable[[int], bool] = lambda _: False
    """called if a micro-batch fails: whether it can be tried again, without queries that are to blame"""
    committed: dict[int, Committed] = field(default_factory=dict)
    """how many rows of each outlet"""
    late: dict[int, int] = field(default_factory=dict)
    """in an open job: how many late rows each stage counted"""

    def __post_init__(self) -> None:
        self.programs: dict[int, ReadyQuery] = {}
        self.files: dict[int, PartFiles] = {}
        self.lock = RLock()
        """held during a micro-batch, and while outlets come or go"""
        self.at_work: set[int] | None = None
        """in an open job: the outlets of the micro-batch at hand"""
        self._by_spark: set[int] = set()
        self._in_driver: set[int] = set()
        self._sinks: dict[int, Sink] = {}
        self._ledger: dict[str, Any] = {"batch": -1, "sinks": {}}
        self._written = False

    def add(self, programs: Mapping[int, ReadyQuery]) -> None:
        """These will have to be written."""
        for number, program in programs.items():
            self.programs[number] = program
            found = part_files(program)
            if program.name.lower() in self.functions:
                self._by_spark.add(number)
            elif found is not None:
                self.files[number] = found
            elif program.sink is not None and is_remote(program.sink):
                self._by_spark.add(number)
            else:
                self._in_driver.add(number)

    def remove(self, number: int) -> None:
        """No rows will come for it."""
        program = self.programs.pop(number)
        self.files.pop(number, None)
        self._by_spark.discard(number)
        self._in_driver.discard(number)
        sink = self._sinks.pop(number, None)
        if sink is not None:
            sink.close()
            if program.name not in [other.name for other in self.programs.values()]:
                self._ledger["sinks"].pop(program.name, None)

    @property
    def only_files(self) -> bool:
        return len(self.files) == len(self.programs)

    def open(self, numbers: Iterable[int], new: Iterable[int]) -> None:
        """Get ready to write; those among them that are `new` begin afresh."""
        begun, opened = set(new), []
        for number in begun & self.files.keys():
            self.files[number].clear()
        if self._ledger["batch"] < 0:
            text = read_text(self.spark, f"{self.checkpoint}/{LEDGER}")
            if text is not None:
                self._ledger = json.loads(text)
        for number in numbers:
            program = self.programs[number]
            if number in self._in_driver and program.sink is not None:
                sink = make_sink(program.sink.options, program.sink.name)
                sink.open(written_schema(program), {} if number in begun else self._noted(number))
                self._sinks[number] = sink
                if number in begun:
                    # from here on a restart knows the sink: what a first micro-batch writes that fails is found again
                    self._ledger["sinks"][program.name] = sink.commit()
                    opened.append(number)
        if opened:
            write_text(self.spark, f"{self.checkpoint}/{LEDGER}", json.dumps(self._ledger))

    def _noted(self, number: int) -> dict[str, Any]:
        noted: dict[str, Any] = self._ledger["sinks"].get(self.programs[number].name, {})
        return noted

    def written_above(self) -> WriteOutlets | None:
        """How the tasks that make rows write them, too, before micro-batches are handed over; None if some rows are
        wanted as rows of Spark's."""
        self._written = not self._by_spark
        return self.work if self._written else None

    @property
    def work(self) -> WriteOutlets:
        return WriteOutlets(dict(self.files), frozenset(self._in_driver))

    def take(self, packed: DataFrame, batch: int) -> None:
        """A micro-batch, as `foreachBatch` hands it over."""
        with inside_a_micro_batch(), self.lock:
            self.prepare(batch)
            while not self._take(packed, batch):
                pass

    def _take(self, packed: DataFrame, batch: int) -> bool:
        """Whether it was done; if not, it is to be tried again, without the queries that failed."""
        by_spark = sorted(self._by_spark & (self.programs.keys() if self.at_work is None else self.at_work))
        if by_spark:
            packed = packed.persist()
        try:
            try:
                written = (packed if self._written else packed.mapInArrow(self.work, JOB_ROWS)).toArrow()
            except Exception:
                if self.isolate(batch):
                    return False
                raise
            self.commit(written, batch)
            for number in by_spark:
                program = self.programs[number]
                branch = outlet_branch(packed, number, program.plan.schema, streaming=False)
                frame = surface((branch,), program.columns)
                function = self.functions.get(program.name.lower())
                if function is not None:
                    function(frame, batch)
                else:
                    self._write_remote(program, frame, batch)
            return True
        finally:
            if by_spark:
                packed.unpersist()

    def commit(self, written: pa.Table, batch: int) -> None:
        """What the tasks of a micro-batch wrote and handed on becomes permanent."""
        directories: dict[int, list[tuple[int, str]]] = {number: [] for number in self.files}
        parts: dict[int, list[pa.RecordBatch]] = {number: [] for number in self._in_driver}
        counts: dict[int, int] = {}
        layouts = {number: blobs.layout_of(self.programs[number].plan.schema) for number in self._in_driver}
        columns = (written.column(name).to_pylist() for name in ("stage", "port", "bucket", "rows", "late"))
        for stage, port, task, rows, late, blob in zip(*columns, written.column("blob"), strict=True):
            number = outlet_number(stage)
            if number < 0:
                self.late[stage] = self.late.get(stage, 0) + late
            elif port == WRITTEN:
                directories[number].append((task, blob.as_py().decode()))
                counts[number] = counts.get(number, 0) + rows
            else:
                parts[number].append(blobs.decode(blob.as_buffer(), layouts[number]))
        together(partial(files.commit, batch, directories[number]) for number, files in self.files.items())
        for number, own in parts.items():
            program = self.programs[number]
            table = exact(pa.Table.from_batches(own, layouts[number]), program.plan.schema, program.columns)
            counts[number] = table.num_rows
            if number not in self._sinks:
                self.deliver(program.name, table, batch)
            elif batch > self._ledger["batch"]:
                # together: a micro-batch that is repeated may have its rows in another order
                for rows_ in table.combine_chunks().to_batches():
                    self._sinks[number].write(rows_)
                self._ledger["sinks"][program.name] = self._sinks[number].commit()
        for number, rows in counts.items():
            self.committed.setdefault(number, Committed()).add(batch, rows)
        if self._sinks and batch > self._ledger["batch"]:
            self._ledger["batch"] = batch
            write_text(self.spark, f"{self.checkpoint}/{LEDGER}", json.dumps(self._ledger))

    def _write_remote(self, program: ReadyQuery, frame: DataFrame, batch: int) -> None:
        """Through Spark's writers, for file systems that only Spark reaches: hidden first, then under the number of the
        micro-batch."""
        assert program.sink is not None
        form, path, options = spark_format(program.sink)
        scratch = f"{path}/.unfinished-{batch:08d}"
        frame.write.format(form).options(**options).mode("overwrite").save(scratch)
        jvm: Any = self.spark._jvm
        place = jvm.org.apache.hadoop.fs.Path
        files = place(path).getFileSystem(self.spark._jsc.hadoopConfiguration())
        for old in files.globStatus(place(f"{path}/part-{batch:08d}-*")) or ():
            files.delete(old.getPath(), False)
        for part in files.globStatus(place(f"{scratch}/part-*")) or ():
            name = part.getPath().getName().removeprefix("part-")
            files.rename(part.getPath(), place(f"{path}/part-{batch:08d}-{name}"))
        files.delete(place(scratch), True)

    def close(self) -> None:
        """Let go of sinks; rows that no micro-batch committed were never written."""
        for sink in self._sinks.values():
            sink.close()
        self._sinks = {}
