"""Time that passes without rows: alarms fire, windows close and heartbeats arrive in running streaming jobs."""

from __future__ import annotations

import socket
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.spark import Millstream

pytestmark = pytest.mark.spark

QUICK = {"processingTime": "200 milliseconds"}

ALARM = """
CREATE WINDOW AGGREGATE left_alone(tag) : VARCHAR {
  TABLE inwindow(t);
  INITIALIZE: ITERATE: { DELETE FROM inwindow WHERE tag = 'guard'; }
  EXPIRE: { INSERT INTO RETURN VALUES (tag); }
}
"""


class Taken:
    """Rows that a job hands over, and when."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.batches: list[int] = []
        """those that had rows"""

    def __call__(self, frame: Any, batch: int) -> None:
        rows = frame.collect()
        self.rows += rows
        self.batches += [batch] * bool(rows)

    def wait(self, count: int, seconds: float = 120.0) -> None:
        until = time.monotonic() + seconds
        while len(self.rows) < count and time.monotonic() < until:
            time.sleep(0.1)


def write(path: Path, **columns: Any) -> None:
    hidden = path.with_name("." + path.name)
    pq.write_table(pa.table(columns), hidden)
    hidden.rename(path)


def start(m: Millstream, text: str, checkpoint: Path) -> tuple[Taken, Any]:
    taken = Taken()
    return taken, m.start({"q": text}, checkpoint=str(checkpoint), trigger=QUICK, foreach_batch={"q": taken})


def test_an_alarm_fires_on_an_idle_stream(spark: Any, tmp_path: Path) -> None:
    """A tag is read at the door and nothing follows: the alarm comes by itself."""
    (tmp_path / "in").mkdir()
    m = Millstream(spark)
    m.execute(ALARM)
    options = f"connector = 'file', path = '{tmp_path / 'in'}', format = 'parquet', follow = true"
    m.execute(f"CREATE STREAM door (tag VARCHAR, current_time TIMESTAMP) ORDER BY current_time WITH ({options})")
    write(tmp_path / "in" / "1.parquet", tag=["camera"])
    text = "SELECT left_alone(tag) OVER (RANGE 2 SECONDS PRECEDING ACTIVE EXPIRATION) AS said FROM door"
    taken, job = start(m, text, tmp_path / "checkpoint")
    try:
        taken.wait(1)
        begun = {entry["batchId"]: entry for entry in job.query.recentProgress}
    finally:
        job.stop()
    assert [row.said for row in taken.rows] == ["camera"]
    read, *others = begun.values()
    assert all(entry["sources"][0]["numInputRows"] == 0 for entry in others), "no further file was read"
    due = datetime.fromisoformat(read["timestamp"]) + timedelta(seconds=2, milliseconds=read["batchDuration"])
    after = [
        number
        for number, entry in begun.items()
        if datetime.fromisoformat(entry["timestamp"]) > due and number < taken.batches[0]
    ]
    assert len(after) <= 1, "it came with the first or second micro-batch that started when it was due"


def test_windows_over_a_port_close_while_nothing_is_sent(spark: Any, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    m = Millstream(spark)
    m.execute(f"CREATE STREAM said (word VARCHAR, current_time TIMESTAMP) ORDER BY current_time SOURCE 'port{port}'")
    taken, job = start(
        m, "SELECT word, count(*) AS n FROM said [RANGE 1 SECOND] GROUP BY word", tmp_path / "checkpoint"
    )
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                with socket.create_connection(("127.0.0.1", port)) as line:
                    line.sendall(b'{"word": "hello"}\n')
                break
            except OSError:
                time.sleep(0.2)
        taken.wait(1)
    finally:
        job.stop()
        m.close()
    assert [(row.word, row.n) for row in taken.rows] == [("hello", 1)]
    assert (taken.rows[0].valid_to - taken.rows[0].valid_from).total_seconds() == 1


def test_heartbeats_reach_a_running_job_through_a_union(spark: Any, tmp_path: Path) -> None:
    m = Millstream(spark)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        options = f"connector = 'file', path = '{tmp_path / name}', format = 'parquet', follow = true"
        m.execute(f"CREATE STREAM {name} (x INT, ts TIMESTAMP) ORDER BY ts WITH ({options})")
    write(tmp_path / "a" / "1.parquet", x=[1, 2], ts=pa.array([1_000_000, 2_000_000], pa.timestamp("us")))
    text = "SELECT sum(x) OVER (ROWS 9 PRECEDING) AS total FROM (SELECT * FROM a UNION ALL SELECT * FROM b) AS u"
    taken, job = start(m, text, tmp_path / "checkpoint")
    try:
        while not job.query.recentProgress or job.query.recentProgress[-1]["batchId"] < 0:
            time.sleep(0.1)
        taken.wait(1, 3.0)
        assert not taken.rows, "b has told nothing"
        m.advance("b", "1970-01-01 00:00:01.5")
        taken.wait(1)
        assert [row.total for row in taken.rows] == [1]
        m.advance("a", "1970-01-01 00:01:00")
        m.advance("b", "1970-01-01 00:01:00")
        taken.wait(2)
    finally:
        job.stop()
    assert [row.total for row in taken.rows] == [1, 3]
