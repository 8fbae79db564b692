"""The state of queries that join a job as if they had always been part of it.

A batch job over what the job's sources have been read of, as far as its last micro-batch came, leaves their state
beside that of the others. The job then goes on from its offsets. Spark's own log says what those are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from millstream.errors import StateError, UnsupportedError
from millstream.hosts.contract import ReadyQuery
from millstream.hosts.spark.build import idle_of, is_exchange
from millstream.hosts.spark.checkpoints import CHECKPOINT, STATE_PLACE
from millstream.hosts.spark.job.control import BATCH_ID
from millstream.hosts.spark.job.frames import job_frame
from millstream.hosts.spark.job.graph import GraphBuilder, JobQuery
from millstream.hosts.spark.job.kept_job import KeptJob, new_name
from millstream.hosts.spark.job.plans import PLACE, forget_from
from millstream.hosts.spark.job.surroundings import SessionInputs
from millstream.hosts.spark.session import FILES, KEPT_AS
from millstream.kernels.batch import BEGIN
from millstream.kernels.over.spec import OverSpec
from millstream.physical.nodes import Apply, Source, streams_of, walk
from millstream.plan.reach import Reach, reaches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Again = Callable[[Mapping[str, Sequence[str]], Mapping[str, int]], SessionInputs]
"""The inputs of a session with just what these offsets name, by stream in lower case; and of some streams, from which
time on their rows matter."""


def backfill(spark: SparkSession, checkpoint: str, kept: KeptJob, queries: Sequence[JobQuery], again: Again) -> None:
    """Compute the state of queries from all that the job has read; their results up to there are not given.

    Whatever it is interrupted at, the job can go on without them, or this can be done again.
    """
    if kept.kept != FILES:
        raise UnsupportedError(
            "the state of a query cannot be computed anew in this checkpoint",
            detail=f"it keeps state otherwise than in {FILES}: see {KEPT_AS}",
            hint="stop the query and start the other one WITH HISTORY",
        )
    offsets = Offsets(checkpoint)
    batch = offsets.last_batch()
    if batch < 0:
        return  # nothing has been read
    forget_from(offsets.root / PLACE, batch + 1)
    given = offsets.read_until(batch, [source.stream.lower() for source in kept.sources])
    around = again(given, matters_from(offsets.root / STATE_PLACE, batch, kept, queries))
    own = [replace(query, around=around) for query in queries]
    builder = GraphBuilder(True, kept.buckets, idle_of(spark), new_name, around=around, partials=False)
    graph = builder.build(own)
    packed = job_frame(spark, graph, {around.number: around}, streaming=True, kept=FILES, joins=offsets.clock(batch))
    context = spark.sparkContext
    # what tasks of a micro-batch are told
    told = {CHECKPOINT: f"file:{offsets.root}", BATCH_ID: str(batch)}
    for name, value in told.items():
        context.setLocalProperty(name, value)
    try:
        packed.write.format("noop").mode("overwrite").save()
    finally:
        for name in told:
            nothing: Any = None
            context.setLocalProperty(name, nothing)


def matters_from(state: Path, batch: int, kept: KeptJob, queries: Sequence[JobQuery]) -> dict[str, int]:
    """The streams of which only rows from some time on matter to these queries, and these times.

    Where results do not belong to rows, all matter: what has been valid for long is still to be given. Otherwise all
    results that are to come are of rows from the time on that the running definition has reached, and of older rows
    only those in their frames count.
    """
    clocks = _clocks(state, batch)
    found: dict[str, int | None] = {}
    for query in queries:
        old = kept.find(query.program.name)
        at = None
        if old is not None and _answers_rows(old.program) and _answers_rows(query.program):
            at = min((clock for name in old.names for clock in clocks.get(name, ())), default=None)
        for stream, reach in _reaches(query.program).items():
            since = None if at is None or reach is None or at == BEGIN else max(at - reach - 1, BEGIN)
            known = found.get(stream, since)
            found[stream] = None if since is None or known is None else min(since, known)
    return {stream: since for stream, since in found.items() if since is not None}


def _clocks(state: Path, batch: int) -> dict[str, list[int]]:
    """How far time had come for each stage of a job, by its name."""
    # not before there is a job: importing the host must not import pyspark
    from millstream.hosts.spark.file_state import FileValue
    from millstream.hosts.spark.job.levels import LevelStore

    found: dict[str, list[int]] = {}
    for bucket in state.glob("level-*/*"):
        store = LevelStore(FileValue(bucket, batch + 1))
        store.load()
        for name, head in store.heads.items():
            found.setdefault(name, []).extend(head.clocks)
    return found


def _answers_rows(program: ReadyQuery) -> bool:
    """Whether each result of a query belongs to one row of its only stream, and is given when time has passed it."""
    nodes = list(walk(program.plan))
    specs = [node.spec for node in nodes if isinstance(node, Apply) and is_exchange(node)]
    alone = sum(isinstance(node, Source) for node in nodes) == 1
    return alone and not program.relation and all(isinstance(spec, OverSpec) for spec in specs)


def _reaches(program: ReadyQuery) -> dict[str, Reach]:
    return dict.fromkeys(streams_of(program.plan)) if program.bound is None else reaches(program.bound)


class Offsets:
    """What Spark's log in a checkpoint says: which micro-batches are done, and what sources had been read of then."""

    def __init__(self, checkpoint: str) -> None:
        self.root = Path(checkpoint.removeprefix("file://")).absolute()

    def last_batch(self) -> int:
        """The last micro-batch that is done; -1 if none is."""
        return max(_numbers(self.root / "commits"), default=-1)

    def read_until(self, batch: int, sources: Sequence[str]) -> dict[str, list[str]]:
        """What each stream had been read of after a micro-batch: paths of files, or the offset of its source."""
        lines = _lines(self.root / "offsets" / str(batch))[1:]
        found: dict[str, list[str]] = {stream: [] for stream in sources}
        for number, (stream, line) in enumerate(zip(sources, lines, strict=False)):
            if found[stream] or line == "-":
                continue
            offset = json.loads(line)
            if "logOffset" in offset:
                found[stream] = list(self._files(number, int(offset["logOffset"])))
            else:
                found[stream] = [offset["offset"]]
        return found

    def clock(self, batch: int) -> str:
        """How far time had come: the source of heartbeats is the last one of a job."""
        return _lines(self.root / "offsets" / str(batch))[-1]

    def _files(self, source: int, last: int) -> Iterator[str]:
        """The files that a source had found by then; Spark puts its notes together from time to time."""
        place = self.root / "sources" / str(source)
        compact = max((n for n in _numbers(place, ".compact") if n <= last), default=-1)
        notes = [place / f"{compact}.compact"] if compact >= 0 else []
        notes += [place / str(number) for number in range(compact + 1, last + 1)]
        for note in notes:
            if not note.exists():
                raise StateError(f"the checkpoint has no note {note.name} of the files that were read")
            for line in _lines(note):
                yield unquote(json.loads(line)["path"])


def _lines(path: Path) -> list[str]:
    """What a file of Spark's log has after its version."""
    version, *lines = path.read_text().splitlines()
    if version != "v1":
        raise StateError(f"the checkpoint's log has version {version}, and this version of Millstream reads v1")
    return [line for line in lines if line]


def _numbers(directory: Path, suffix: str = "") -> list[int]:
    try:
        names = [path.name for path in directory.iterdir()]
    except FileNotFoundError:
        return []
    found = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
    return [int(name) for name in found if name.isdigit()]
