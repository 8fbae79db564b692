"""The plan of a streaming query, kept in its checkpoint: what it goes on with, and what its state belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream import plan_form
from millstream.catalog import StreamDef
from millstream.errors import StateError
from millstream.expressions.python_calls import PythonCode
from millstream.hosts.contract import ReadyQuery
from millstream.hosts.spark.stage import Stage
from millstream.records import dataclass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLACE = "millstream/plan.json"


@dataclass(frozen=True)
class KeptStage:
    """A stage that keeps state: what it does, for people, and what its state is."""

    does: str
    signature: str


@dataclass(frozen=True)
class KeptPlan:
    """A program as it ran, with the stages it became."""

    program: ReadyQuery
    stages: tuple[KeptStage, ...]
    streams: tuple[StreamDef, ...] = ()
    fed: bool = False
    """whether joins share an exchange with the kernels below them; those of older checkpoints do not"""
    records: bool = False
    """whether groups of relations may keep records; those of older checkpoints do not"""

    @staticmethod
    def of(
        program: ReadyQuery, stages: Sequence[Stage], streams: Sequence[StreamDef], fed: bool, records: bool
    ) -> KeptPlan:
        kept = tuple(KeptStage(stage.spec.describe(), stage.signature) for stage in stages)
        # another slack keeps the state
        return KeptPlan(program, kept, tuple(replace(stream, slack=0) for stream in streams), fed, records)

    @staticmethod
    def read(spark: SparkSession, checkpoint: str, now: ReadyQuery) -> KeptPlan | None:
        """The plan in a checkpoint that `now` is started on; None if there is none."""
        text = read_text(spark, f"{checkpoint}/{PLACE}")
        if text is None:
            return None
        codes = plan_form.python_in(now)

        def python(name: str, digest: str) -> PythonCode:
            # code whose text changed makes another plan: it is only compared, never run
            found = codes.get(name)
            return found if found is not None and found.digest == digest else PythonCode(name, digest, None)

        kept: KeptPlan = plan_form.loads(text, python)
        return kept

    def resumed(self, program: ReadyQuery) -> ReadyQuery:
        """What runs when `program` is started on the checkpoint: the plan that ran before, if it is the same query."""
        if program.bound is None or program.bound != self.program.bound:
            return program
        return replace(program, plan=self.program.plan)

    def follow(self, before: KeptPlan | None, spark: SparkSession, checkpoint: str) -> None:
        """Take the place of the plan that ran before; refused if some state would be that of something else."""
        if before is not None:
            if before.program.sink != self.program.sink:
                raise another_query("its rows went to another sink")
            declared = {stream.name.lower(): stream for stream in before.streams}
            for stream in self.streams:
                if declared.get(stream.name.lower(), stream) != stream:
                    raise another_query(f"stream {stream.name} was declared differently")
            for number, (old, new) in enumerate(zip_longest(before.stages, self.stages), 1):
                if old is None or new is None or old.signature != new.signature:
                    raise another_query(f"stage {number} was {told_stage(old)} and is now {told_stage(new)}")
        if before != self:
            write_text(spark, f"{checkpoint}/{PLACE}", plan_form.dumps(self))


def another_query(why: str) -> StateError:
    return StateError(
        "the checkpoint belongs to another query", detail=why, hint="start with a new checkpoint directory"
    )


def told_stage(stage: KeptStage | None) -> str:
    return "not there" if stage is None else f"[{stage.does}] with {stage.signature.rpartition(',')[0]}"


def read_text(spark: SparkSession, path: str) -> str | None:
    """A file beside a checkpoint; None if there is none."""
    jvm = _jvm(spark)
    if jvm is None:
        return Path(path).read_text() if Path(path).exists() else None
    place = jvm.org.apache.hadoop.fs.Path(path)
    files = place.getFileSystem(spark._jsc.hadoopConfiguration())
    if not files.exists(place):
        return None
    stream = files.open(place)
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


def write_text(spark: SparkSession, path: str, text: str) -> None:
    """Put a file beside a checkpoint, in place of the one that is there."""
    jvm = _jvm(spark)
    if jvm is None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(f"{path}.new").write_text(text)
        Path(f"{path}.new").rename(path)
        return
    place, temporary = (jvm.org.apache.hadoop.fs.Path(name) for name in (path, f"{path}.new"))
    files = place.getFileSystem(spark._jsc.hadoopConfiguration())
    out = files.create(temporary, True)
    try:
        out.write(bytearray(text.encode()))
    finally:
        out.close()
    # in one step: there is never no file
    gateway: Any = spark.sparkContext._gateway
    overwriting = gateway.new_array(getattr(jvm.org.apache.hadoop.fs, "Options$Rename"), 1)
    overwriting[0] = getattr(jvm.org.apache.hadoop.fs, "Options$Rename").OVERWRITE
    context = jvm.org.apache.hadoop.fs.FileContext.getFileContext(
        files.makeQualified(place).toUri(), spark._jsc.hadoopConfiguration()
    )
    context.rename(files.makeQualified(temporary), files.makeQualified(place), overwriting)


def _jvm(spark: SparkSession) -> Any:
    """Java, which knows the file systems that checkpoints are in; None on Spark Connect, which does not reach it."""
    return getattr(spark, "_jvm", None) if hasattr(spark, "_jsparkSession") else None
