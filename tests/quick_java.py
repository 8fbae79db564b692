"""How tests start Java and Spark's Python processes: with nothing that only pays in programs that run for minutes.

Loading and checking classes is half of what a short Spark program costs, so they come from an archive: 14 s of
processor time without it, 8 s with it. Spark's Python processes import PySpark from a zip of source files, which each
process compiles again (0.6 of its 0.8 s); from a home of Spark's without this zip they import the installed package.

`python tests/quick_java.py` makes both, if Java and Spark are there; without them everything works the same.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

COMPILER = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_ROOM = "-Xmn320m"
"""Room for what is new, so that it is seldom collected."""

PLAIN = {
    # a few rows are done long before code for them would be compiled; programs run by tests have it compiled
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings of Spark sessions that tests make."""

_SECONDS = 600
_PLACE = Path(sys.prefix) / "millstream-tests"
_ARCHIVE = _PLACE / "classes.jsa"
_HOME = _PLACE / "spark"

_PROGRAM = """
import tempfile
import millstream as ms
from millstream.spark import Millstream
db = ms.connect(engine="spark")
db.execute("CREATE STREAM s (k INT, v INT, ts TIMESTAMP) ORDER BY ts")
sums = db.sql("SELECT k, sum(v) OVER (PARTITION BY k ROWS 1 PRECEDING) AS n FROM s")
db.push("s", [(1, 1, "2026-01-01 00:00:00"), (1, 2, "2026-01-01 00:00:01")])
db.finish()
assert sums.fetch().num_rows == 2
m = Millstream()
m.register("r", m.spark.readStream.format("rate").load(), time="timestamp")
rows = m.sql("SELECT value, count(*) OVER (RANGE 1 SECOND PRECEDING) AS n FROM r")
with tempfile.TemporaryDirectory() as scratch:
    m.spark.createDataFrame([(1, "a")], "k INT, v STRING").write.parquet(scratch + "/in")
    read = m.spark.readStream.schema("k INT, v STRING").parquet(scratch + "/in")
    for number, (frame, format) in enumerate([(rows, "noop"), (read, "parquet")]):
        writer = frame.writeStream.format(format).option("checkpointLocation", f"{scratch}/{number}")
        writer.option("path", f"{scratch}/out{number}").trigger(availableNow=True).start().awaitTermination(60)
m.spark.stop()
"""


def _package() -> Path | None:
    """Where PySpark is installed."""
    found = find_spec("pyspark")
    return None if found is None or found.origin is None else Path(found.origin).parent


def spark_home() -> Path:
    """The home of Spark that tests use."""
    package = _package()
    assert package is not None
    return _HOME if _HOME.exists() else package


def _options() -> str:
    # without -Xlog the JVM complains on standard output when it cannot use the archive
    return f"{COMPILER} -XX:SharedArchiveFile={_ARCHIVE} -Xlog:disable" if _ARCHIVE.exists() else COMPILER


QUICK = _options()
"""A JVM that lives for seconds spends most of its time loading and compiling classes."""


def environment() -> Mapping[str, str]:
    """What tests and the programs that they run have in their environment."""
    own = {"SPARK_SUBMIT_OPTS": f"{QUICK} {_ROOM}", "SPARK_LAUNCHER_OPTS": COMPILER}
    return own if _package() is None else {**own, "SPARK_HOME": str(spark_home())}


def prepare() -> str:
    """Make what is missing; what came of it, in words."""
    package = _package()
    if package is None or (shutil.which("java") is None and "JAVA_HOME" not in os.environ):
        return "no Spark here, so no archive of its classes"
    if not _HOME.exists():
        fresh = _HOME.with_suffix(".new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        for name in ("bin", "jars", "sbin"):
            (fresh / name).symlink_to(package / name)
        fresh.replace(_HOME)
    return f"{_ARCHIVE.name} is there" if _ARCHIVE.exists() else _make_archive()


def _make_archive() -> str:
    """Run a small program and keep the classes that it loaded."""
    fresh = _ARCHIVE.with_suffix(".new")
    options = f"{COMPILER} -XX:ArchiveClassesAtExit={fresh} -Xlog:disable"
    program = [sys.executable, "-c", _PROGRAM]
    started = time.monotonic()
    done = subprocess.run(
        program,
        env={**os.environ, **environment(), "SPARK_SUBMIT_OPTS": options},
        capture_output=True,
        text=True,
    )
    size = -1
    # the JVM writes it after Python has gone
    while done.returncode == 0 and time.monotonic() - started < _SECONDS:
        before, size = size, fresh.stat().st_size if fresh.exists() else 0
        if before == size > 0:
            fresh.replace(_ARCHIVE)
            return f"{_ARCHIVE.name}: {size >> 20} MB after {time.monotonic() - started:.0f} s"
        time.sleep(1)
    return f"no archive of Spark's classes: {done.stderr[-400:]}"


if __name__ == "__main__":
    print(prepare())
