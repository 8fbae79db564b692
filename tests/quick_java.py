"""How tests start Java: with the quick compiler, and with Spark's classes from an archive.

Loading and checking classes is half of what a short Spark program costs: 14 s of processor time without the archive,
8 s with it. `python tests/quick_java.py` makes it, if Java and Spark are there; without it everything works the same.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_COMPILER = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SECONDS = 600

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
    query = rows.writeStream.format("noop").option("checkpointLocation", scratch).trigger(availableNow=True).start()
    query.awaitTermination(60)
m.spark.stop()
"""


def _archive() -> Path:
    from importlib.util import find_spec

    found = find_spec("pyspark")
    place = Path(found.origin).parent if found is not None and found.origin is not None else Path(tempfile.gettempdir())
    return place / "millstream-tests.jsa"


def _options() -> str:
    archive = _archive()
    # without -Xlog the JVM complains on standard output when it cannot use the archive
    return f"{_COMPILER} -XX:SharedArchiveFile={archive} -Xlog:disable" if archive.exists() else _COMPILER


QUICK = _options()
"""A JVM that lives for seconds spends most of its time loading and compiling classes."""


def make_archive() -> str:
    """Run a small program and keep the classes that it loaded; what came of it, in words."""
    from importlib.util import find_spec

    archive = _archive()
    if archive.exists():
        return f"{archive.name} is there"
    if find_spec("pyspark") is None or (shutil.which("java") is None and "JAVA_HOME" not in os.environ):
        return "no Spark here, so no archive of its classes"
    fresh = archive.with_suffix(".new")
    options = f"{_COMPILER} -XX:ArchiveClassesAtExit={fresh} -Xlog:disable"
    program = [sys.executable, "-c", _PROGRAM]
    started = time.monotonic()
    done = subprocess.run(program, env={**os.environ, "SPARK_SUBMIT_OPTS": options}, capture_output=True, text=True)
    size = -1
    # the JVM writes it after Python has gone
    while done.returncode == 0 and time.monotonic() - started < _SECONDS:
        before, size = size, fresh.stat().st_size if fresh.exists() else 0
        if before == size > 0:
            fresh.replace(archive)
            return f"{archive.name}: {size >> 20} MB after {time.monotonic() - started:.0f} s"
        time.sleep(1)
    return f"no archive of Spark's classes: {done.stderr[-400:]}"


if __name__ == "__main__":
    print(make_archive())
