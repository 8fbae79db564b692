"""Kill drivers, executors and Python workers of a job on two executors, and check its sinks by numbers in the rows.

    python benchmarks/spark_cluster_kills.py --kills 200 --rows 1000000
    python benchmarks/spark_cluster_kills.py --kills 6 --rows 2000 --files 20 --no-kafka --state value

Five queries run as one job on `local-cluster[2,1,1024]`: two executors, processes of their own. Two write part files,
one writes a Delta table, two write Kafka topics (a broker is started on this machine). At random moments a driver with
all its processes is killed, or one executor, or one Python worker. A driver takes longest to start, so every sixth kill
is of one, or as `--drivers` says. At the end each sink must have every number once, in rows equal to those of the
in-process engine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "kafka"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "spark"))

import kill_runs
from kill_runs import Difference, names, session_of

from quick_java import PLAIN, environment

STREAM = """CREATE STREAM trades (number BIGINT, symbol VARCHAR, venue VARCHAR, price DOUBLE, ts TIMESTAMP)
    ORDER BY ts SLACK 3 SECONDS WITH (connector = 'file', path = '{folder}/in', format = 'parquet'{follow});
CREATE STREAM totals AS SELECT number, symbol, venue, ts,
    sum(price) OVER (PARTITION BY symbol RANGE 10 SECONDS PRECEDING) AS total,
    count(*) OVER (PARTITION BY symbol ROWS UNBOUNDED PRECEDING) AS seen FROM trades"""
QUERIES = {
    "dear": "SELECT number, price FROM trades WHERE price > 50",
    "totals_of": "SELECT number, total, seen FROM totals",
    "highest": "SELECT number, max(total) OVER (PARTITION BY venue ROWS 3 PRECEDING) AS highest FROM totals",
    "seen_of": "SELECT number, count(*) OVER (PARTITION BY venue ROWS UNBOUNDED PRECEDING) AS seen FROM trades",
    "cheap": "SELECT number, price FROM trades WHERE price < 5",
}
TOPICS = ("seen_of", "cheap")
"""Of these, results go to topics."""
TABLE = "highest"
"""Of this one, they go to a Delta table."""


def drive(folder: Path, state: str, kafka: str, now: bool) -> None:
    """The driver: until all files are read, or until it is killed."""
    from millstream.config import Config
    from millstream.hosts.spark.host import SparkHost
    from millstream.hosts.spark.session import get_session
    from millstream.hosts.tables import TableStore
    from millstream.session.database import Database

    spark = get_session(
        "local-cluster[2,1,1024]",
        {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.local.dir": str(folder / "scratch"),
            "spark.sql.shuffle.partitions": "4",
            "spark.task.maxFailures": "20",
            "spark.deploy.maxExecutorRetries": "-1",
            "spark.millstream.filesPerTrigger": "1",
            "spark.millstream.state": state,
            "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            # what runs for seconds would spend them compiling
            "spark.executorEnv.MILLSTREAM_JIT": "off",
            **PLAIN,
        },
    )
    trigger: dict[str, Any] = {"availableNow": True} if now else {"processingTime": "0 seconds"}
    tables = TableStore()
    host = SparkHost(spark, tables.read, checkpoint=str(folder / "checkpoint"), trigger=trigger, follow=True, buckets=8)
    db = Database(host, tables, Config())
    db.execute(STREAM.format(folder=folder, follow=", follow = TRUE"))
    for name, text in QUERIES.items():
        topic = f"connector = 'kafka', topic = '{name}', brokers = '{kafka}', format = 'json'"
        form = "delta" if name == TABLE else "parquet"
        file = f"connector = 'file', path = '{folder}/{name}', format = '{form}'"
        db.execute(f"CREATE SINK {name} WITH ({topic if kafka and name in TOPICS else file})")
        db.execute(f"INSERT INTO {name} {text}")
    db.run()


def start(folder: Path, options: argparse.Namespace, kafka: str, now: bool) -> subprocess.Popen[bytes]:
    command = [sys.executable, __file__, "--drive", str(folder), "--state", options.state, "--address", kafka]
    # executors keep their files in Spark's own directory otherwise
    own = {**os.environ, **environment(), "SPARK_WORKER_DIR": str(folder / "work"), "MILLSTREAM_JIT": "off"}
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [*command, *(["--now"] if now else [])],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            env=own,
            start_new_session=True,
        )


def killed(driver: subprocess.Popen[bytes], kind: str, rng: random.Random) -> bool:
    """Kill one process of that kind, or the driver with all that it started; whether there was one."""
    if kind == "driver":
        kill_runs.kill(driver)
        return True
    if kind == "worker":
        found = kill_runs.workers_of(driver)
    else:
        found = [pid for pid in session_of(driver.pid) if b"CoarseGrainedExecutorBackend" in _command(pid)]
    if not found:
        return False
    with suppress(ProcessLookupError):
        os.kill(rng.choice(found), signal.SIGKILL)
    return True


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def run(folder: Path, options: argparse.Namespace, kafka: str) -> int:
    rng = random.Random(options.seed)
    kill_runs.write_input(folder, options.files, options.rows // options.files, rng)
    offsets, driver, begun = folder / "checkpoint/job/offsets", None, time.monotonic()
    counts = dict.fromkeys(("driver", "executor", "worker"), 0)
    while sum(counts.values()) < options.kills:
        if driver is None:
            driver = start(folder, options, kafka, now=False)
        before, left = names(offsets), len(names(folder / "in")) - len(names(offsets))
        kill_runs.wait_for(driver, folder, lambda before=before: names(offsets) != before, 600 if left > 0 else 15)  # type: ignore[misc]
        time.sleep(rng.uniform(0, 2))
        kind = "driver" if rng.random() < options.drivers else rng.choice(("executor", "worker"))
        counts[kind] += killed(driver, kind, rng)
        driver = None if kind == "driver" else driver
        print(f"{time.monotonic() - begun:6.0f} s: {counts}, {len(names(offsets))} micro-batches begun", flush=True)
    if driver is not None:
        kill_runs.kill(driver)
    last = start(folder, options, kafka, now=True)
    try:
        code = last.wait(3600)
    finally:
        kill_runs.kill(last)
    assert code == 0, (folder / "log").read_text()[-4000:]
    return checked(folder, kafka)


def checked(folder: Path, kafka: str) -> int:
    import millstream as ms

    db = ms.connect()
    db.execute(STREAM.format(folder=folder, follow=""))
    queries = {name: db.sql(text, name=name) for name, text in QUERIES.items()}
    db.run()
    db.finish()
    bad = 0
    for name, query in queries.items():
        rows = query.fetch()
        right = sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True))
        # the last row only lets time pass, and is not final on Spark where a kernel waits for more
        last = right[-1][0] if right and name not in ("dear", "cheap") else None
        right = [row for row in right if row[0] != last]
        found = in_topic(kafka, name) if kafka and name in TOPICS else in_files(folder / name)
        found = [row for row in found if row[0] != last]
        difference = Difference.of(found, right)
        print(f"{name:<10} {len(found):>9,} rows of {len(right):,}: {difference}", flush=True)
        bad += difference != Difference(0, 0, 0)
    return bad


def in_files(folder: Path) -> list[tuple[Any, ...]]:
    import pyarrow.parquet as pq

    if folder.name == TABLE:
        from deltalake import DeltaTable

        tables = [DeltaTable(str(folder)).to_pyarrow_table()]
    else:
        tables = [pq.read_table(path) for path in sorted(folder.glob("part-*"))]
    return [row for table in tables for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]


def in_topic(address: str, topic: str) -> list[tuple[Any, ...]]:
    """What a reader of committed messages finds."""
    from confluent_kafka import Consumer

    settings = {"bootstrap.servers": address, "group.id": f"check-{topic}", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    consumer.subscribe([topic])
    rows, quiet = [], 0
    while quiet < 3:
        messages = consumer.consume(10_000, timeout=5.0)
        quiet = 0 if messages else quiet + 1
        rows += [tuple(json.loads(message.value()).values()) for message in messages if message.error() is None]
    consumer.close()
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=260, help="one is a micro-batch; some more than kills")
    parser.add_argument("--drivers", type=float, default=1 / 6, help="the share of kills that are of the driver")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--state", default="variables", choices=("variables", "value"))
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--drive", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--address", default="", help=argparse.SUPPRESS)
    parser.add_argument("--now", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        drive(options.drive, options.state, options.address, options.now)
        return 0
    folder = Path(tempfile.mkdtemp(prefix="millstream-cluster-kills-"))
    print(f"all is in {folder}", flush=True)
    if options.no_kafka:
        return run(folder, options, "")
    from broker import running_broker
    from kafka_topics import Topics

    with running_broker() as broker:
        for topic in TOPICS:
            Topics(broker).make(name=topic)
        return run(folder, options, broker.address)


if __name__ == "__main__":
    sys.exit(main())
