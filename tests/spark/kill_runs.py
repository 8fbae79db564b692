"""A streaming pipeline to be killed: `python kill_runs.py FOLDER now|on` is its driver, the rest starts and kills it.

The driver reads the files of a folder, one per micro-batch, through two stages with different keys into part files. It
runs in a session (of processes) of its own, so that all its processes, the JVM and the Python workers too, can be
killed at once.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Told = Callable[[str], None]

SECOND = 1_000_000
PATIENCE = 600
"""Seconds after which a driver that does nothing is a failure."""

PIPELINE = """
CREATE STREAM trades (number BIGINT, symbol VARCHAR, venue VARCHAR, price DOUBLE, ts TIMESTAMP)
    ORDER BY ts SLACK 3 SECONDS WITH (connector = 'file', path = '{folder}/in', format = 'parquet');
CREATE STREAM totals AS
    SELECT number, symbol, venue, ts, sum(price) OVER (PARTITION BY symbol RANGE 10 SECONDS PRECEDING) AS total,
           count(*) OVER (PARTITION BY symbol ROWS UNBOUNDED PRECEDING) AS seen
    FROM trades
"""

RESULT = """
SELECT number, symbol, ts, total, seen, max(total) OVER (PARTITION BY venue ROWS 3 PRECEDING) AS highest FROM totals
"""

SINK = "CREATE SINK results WITH (connector = 'file', path = '{folder}/out', format = 'parquet');"


# -- the driver --------------------------------------------------------------------------------------------------------


def drive(folder: Path, now: bool) -> None:
    """Run the pipeline from its checkpoint: until all files are read, or until it is killed."""
    from millstream.config import Config
    from millstream.hosts.spark.host import SparkHost
    from millstream.hosts.spark.session import get_session
    from millstream.hosts.spark.sources import FILES_PER_TRIGGER
    from millstream.hosts.tables import TableStore
    from millstream.session.database import Database

    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    spark = get_session(
        # a failed task is tried again, and the log tells of it
        "local[2,4]",
        {
            "spark.log.level": "WARN",
            "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch}",
            "spark.local.dir": str(scratch),
            "spark.driver.memory": "1g",
            # a driver that lives for seconds would spend them compiling
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            FILES_PER_TRIGGER: "1",
        },
    )
    trigger: dict[str, Any] = {"availableNow": True} if now else {"processingTime": "0 seconds"}
    tables = TableStore()
    host = SparkHost(spark, tables.read, checkpoint=str(folder / "checkpoint"), trigger=trigger, follow=True, buckets=3)
    db = Database(host, tables, Config())
    db.execute(PIPELINE.format(folder=folder) + ";" + SINK.format(folder=folder))
    db.execute(f"INSERT INTO results {RESULT}")
    db.run()


# -- its data ----------------------------------------------------------------------------------------------------------


def write_input(folder: Path, files: int, rows: int, rng: random.Random) -> int:
    """Rows out of order by less than the slack, some keys NULL, cut into files; the last row only lets time pass.

    Returns how many rows must come out.
    """
    draw = np.random.default_rng(rng.getrandbits(32))
    count = files * rows
    times = 100 * SECOND + np.arange(count) // 3 * SECOND // 2 - draw.integers(0, 3, count) * SECOND
    symbols = [None if value == 6 else f"S{value}" for value in draw.integers(0, 7, count)]
    table = pa.table(
        {
            "number": np.arange(count + 1),
            "symbol": [*symbols, "end"],
            "venue": [*(f"V{value}" for value in draw.integers(0, 4, count)), "end"],
            "price": [*draw.integers(0, 100, count).astype(float).tolist(), 0.0],
            "ts": pa.array([*times.tolist(), int(times.max()) + 3600 * SECOND], pa.timestamp("us")),
        }
    )
    (folder / "in").mkdir(parents=True)
    cuts = [0, *sorted(rng.sample(range(1, count), files - 1)), count + 1]
    for number, (begin, end) in enumerate(itertools.pairwise(cuts)):
        path = folder / "in" / f"{number:05d}.parquet"
        pq.write_table(table.slice(begin, end - begin), path)
        os.utime(path, (number, number))
    return count


def in_process(folder: Path) -> list[tuple[Any, ...]]:
    """What the in-process engine makes of the same files, without the last row."""
    import millstream as ms

    db = ms.connect()
    db.execute(PIPELINE.format(folder=folder))
    query = db.sql(RESULT)
    db.run()
    db.finish()
    table = query.fetch()
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))[:-1]


def written(folder: Path) -> list[tuple[Any, ...]]:
    """What is in the sink, as any reader would see it."""
    tables = [pq.read_table(path) for path in sorted((folder / "out").glob("part-*"))]
    rows = [row for table in tables for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]
    return sorted(rows)


@dataclass(frozen=True)
class Difference:
    """How the rows of a sink differ from the right ones."""

    lost: int
    doubled: int
    wrong: int

    @staticmethod
    def of(found: list[tuple[Any, ...]], right: list[tuple[Any, ...]]) -> Difference:
        numbers, known = Counter(row[0] for row in found), {row[0]: row for row in right}
        return Difference(
            lost=len(known.keys() - numbers.keys()),
            doubled=sum(times - 1 for times in numbers.values()),
            wrong=sum(known.get(row[0]) != row for row in found),
        )


def run_job(
    folder: Path, points: Iterable[str], rng: random.Random, files: int = 20, rows: int = 10, told: Told = print
) -> tuple[Difference, int]:
    """Kill a driver at each of these points, let the last one finish; what is wrong with the result, and its rows."""
    count = write_input(folder, files, rows, rng)
    for point in points:
        begun = kill_at(folder, start(folder, now=False), point, rng)
        told(f"killed at {point}: {begun} of {files} micro-batches had begun{left_open(folder)}")
    finish(folder)
    right = in_process(folder)
    assert len(right) == count
    return Difference.of(written(folder), right), count


# -- killing it --------------------------------------------------------------------------------------------------------

POINTS = ("anywhere", "journal", "writing", "moving", "committed")
"""Where a driver is killed: at a random time; or at once when a micro-batch is in Spark's journal, when its tasks write
files, when files appear in the sink, when Spark has noted its end."""


def start(folder: Path, now: bool) -> subprocess.Popen[bytes]:
    """A driver, in a session of its own; what it says goes to a file."""
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, __file__, str(folder), "now" if now else "on"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            # compiled kernels give the same rows; over so few of them compiling would take most of the time
            env={**os.environ, "MILLSTREAM_JIT": "off"},
        )


def kill(driver: subprocess.Popen[bytes]) -> None:
    """SIGKILL to every process of the driver's session."""
    deadline = time.monotonic() + 30
    while True:
        alive = list(session_of(driver.pid))
        for pid in alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        driver.poll()
        if not alive:
            return
        assert time.monotonic() < deadline, "processes that cannot be killed"
        time.sleep(0.01)


def session_of(leader: int) -> Iterator[int]:
    """The living processes of a session."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == leader and fields[0] not in "ZX":
                yield int(entry.name)


def kill_at(folder: Path, driver: subprocess.Popen[bytes], point: str, rng: random.Random) -> int:
    """Wait for a point in the work of a micro-batch, then kill the driver; how many micro-batches had begun."""
    offsets, commits = folder / "checkpoint/job/offsets", folder / "checkpoint/job/commits"
    places = {"journal": offsets, "writing": folder / "out/.unfinished", "moving": folder / "out", "committed": commits}
    before = names(offsets), names(commits)
    all_read = len(before[1]) >= len(names(folder / "in"))
    try:
        # one that has nothing left to read stands still; it is killed all the same
        wait_for(driver, folder, lambda: (names(offsets), names(commits)) != before, 15 if all_read else PATIENCE)
        if point == "anywhere":
            time.sleep(rng.uniform(0, 4))
        for _ in range(rng.randint(1, 3) if point in places else 0):
            seen = names(places[point])
            wait_for(driver, folder, lambda seen=seen: bool(names(places[point]) - seen), 15)  # type: ignore[misc]
    finally:
        kill(driver)
    return len(names(offsets))


def left_open(folder: Path) -> str:
    """What a kill left behind: a micro-batch without its end, maybe with files in the sink already."""
    checkpoint = folder / "checkpoint/job"
    unfinished = {int(name) for name in names(checkpoint / "offsets") - names(checkpoint / "commits")}
    if not unfinished:
        return ""
    shown = any((folder / "out").glob(f"part-{max(unfinished):08d}*"))
    return ", the last did not finish" + (" though its files were there" if shown else "")


def names(place: Path) -> frozenset[str]:
    """The files of a directory that are complete."""
    try:
        found = [path.name for path in place.iterdir()]
    except FileNotFoundError:
        return frozenset()
    return frozenset(name for name in found if not name.startswith(".") and ".tmp" not in name)


def wait_for(
    driver: subprocess.Popen[bytes], folder: Path, seen: Callable[[], bool], at_most: float = PATIENCE
) -> None:
    """Look again and again; a driver that has read everything stands still, so not for ever."""
    deadline = time.monotonic() + at_most
    while not seen():
        assert driver.poll() is None, (folder / "log").read_text()[-4000:]
        if time.monotonic() > deadline:
            assert at_most < PATIENCE, "the driver does nothing: " + (folder / "log").read_text()[-4000:]
            return
        time.sleep(0.0005)


def finish(folder: Path, during: Callable[[subprocess.Popen[bytes]], None] = lambda driver: None) -> None:
    """Let a driver read all that is left; `during` does something to it meanwhile."""
    driver = start(folder, now=True)
    try:
        during(driver)
        code = driver.wait(PATIENCE)
    finally:
        kill(driver)
    assert code == 0, (folder / "log").read_text()[-4000:]


def kill_workers(folder: Path, driver: subprocess.Popen[bytes], rng: random.Random) -> None:
    """SIGKILL to all Python workers, once in each of the first micro-batches, until a task has met it."""
    for batch in ("0", "1", "2", "3"):
        wait_for(driver, folder, lambda batch=batch: batch in names(folder / "checkpoint/job/offsets"))  # type: ignore[misc]
        wait_for(driver, folder, lambda: bool(workers_of(driver)))
        time.sleep(rng.uniform(0, 0.3))
        for pid in workers_of(driver):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.5)
        if "Lost task" in (folder / "log").read_text():
            return


def workers_of(driver: subprocess.Popen[bytes]) -> list[int]:
    """The processes that run tasks: children of the process that they are forked from, with the same command."""
    found = []
    for pid in session_of(driver.pid):
        with suppress(OSError):
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"\0pyspark.worker\0" in command + b"\0" and Path(f"/proc/{parent}/cmdline").read_bytes() == command:
                found.append(pid)
    return found


if __name__ == "__main__":
    drive(Path(sys.argv[1]), now=sys.argv[2] == "now")
