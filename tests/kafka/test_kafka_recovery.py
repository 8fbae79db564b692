"""Sessions that are killed, and brokers that go away."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from broker import Broker
from kafka_topics import Topics

from millstream.connectors.registry import make_source
from millstream.errors import ConnectorError
from millstream.schema import Schema
from millstream.types import INTEGER

PATIENCE = 300
"""Seconds that a machine with much else to do may take; waiting ends as soon as it can."""

WORKER = """
import sys, time, millstream as ms
home, brokers, source, target = sys.argv[1:]
db = ms.connect(home, checkpoint_seconds=0.3)
if not db.queries():
    at = f"connector = 'kafka', brokers = '{brokers}'"
    db.execute(f'''
        CREATE STREAM s (n INT, ts TIMESTAMP) ORDER BY ts SLACK 1 SECOND WITH ({at}, topic = '{source}', poll_ms = 20);
        CREATE SINK o WITH ({at}, topic = '{target}', commit_ms = 150);
        INSERT INTO o SELECT n FROM s''')
    db.checkpoint()
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""


def rows(start: int, end: int) -> list[str]:
    return [json.dumps({"n": n, "ts": f"2024-01-01T00:{n // 60:02d}:{n % 60:02d}"}) for n in range(start, end)]


@pytest.mark.slow
def test_a_session_that_is_killed_loses_and_doubles_nothing(topics: Topics, tmp_path: Path) -> None:
    source, target = topics.make(), topics.make()
    rng = random.Random(7)
    sent = 0
    for _ in range(4):
        arguments = [str(tmp_path / "home"), topics.broker.address, source, target]
        worker = subprocess.Popen([sys.executable, "-c", WORKER, *arguments], stdout=subprocess.PIPE)
        assert worker.stdout is not None
        try:
            assert worker.stdout.readline().strip() == b"ready"
            for _ in range(6):
                topics.send(source, *rows(sent, sent + 10))
                sent += 10
                time.sleep(0.1 + rng.random() * 0.1)
        finally:
            worker.kill()
            worker.wait()
            worker.stdout.close()
    topics.send(source, *rows(1000, 1001))
    worker = subprocess.Popen([sys.executable, "-c", WORKER, *arguments], stdout=subprocess.PIPE)
    assert worker.stdout is not None
    try:
        until = time.monotonic() + PATIENCE
        found: list[int] = []
        while len(found) < sent and time.monotonic() < until:
            time.sleep(0.1)
            found = [json.loads(value)["n"] for _, value in topics.messages(target)]
    finally:
        worker.kill()
        worker.wait()
        worker.stdout.close()
    assert [n for n in found if n < sent] == list(range(sent))


@pytest.mark.slow
def test_a_broker_that_goes_away_and_comes_back(topics: Topics, kafka: Broker) -> None:
    topic = topics.make()
    topics.send(topic, *rows(0, 3))
    common = {"connector": "kafka", "topic": topic, "brokers": kafka.address, "poll_ms": 50}
    patient = make_source({**common, "timeout_ms": PATIENCE * 1000}, Schema.of(n=INTEGER), "s")
    hasty = make_source({**common, "timeout_ms": 2_000}, Schema.of(n=INTEGER), "s")
    assert patient is not None
    assert hasty is not None
    until = time.monotonic() + PATIENCE
    readings = [source.read({}, lambda: time.monotonic() > until) for source in (patient, hasty)]
    for reading in readings:
        assert next(chunk.rows.num_rows for chunk in reading if chunk.rows.num_rows) == 3
    kafka.kill()
    try:
        with pytest.raises(ConnectorError, match="cannot reach the Kafka brokers"):
            list(readings[1])
    finally:
        kafka.start()
    topics.send(topic, *rows(3, 5))
    assert next(chunk.rows.column(0).to_pylist() for chunk in readings[0] if chunk.rows.num_rows) == [3, 4]
    readings[0].close()  # type: ignore[attr-defined]
