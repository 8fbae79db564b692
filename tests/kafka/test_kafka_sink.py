"""Topics as sinks, against a real broker."""

from __future__ import annotations

import json
import time
from typing import Any

import pyarrow as pa
import pytest
from kafka_topics import Topics

import millstream as ms
from millstream.connectors.contract import Sink
from millstream.connectors.registry import make_sink
from millstream.errors import ConnectorError
from millstream.schema import Schema
from millstream.types import INTEGER, VARCHAR

SCHEMA = Schema.of(n=INTEGER, s=VARCHAR)


def sink(topics: Topics, topic: str, **options: Any) -> Sink:
    return make_sink({"connector": "kafka", "topic": topic, "brokers": topics.broker.address, **options}, "out")


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"n": n, "s": f'"{n}"'} for n in numbers], schema=SCHEMA.arrow)


def written(topics: Topics, topic: str) -> list[int]:
    return [json.loads(value)["n"] for _, value in topics.messages(topic)]


def test_rows_appear_when_committed(topics: Topics) -> None:
    topic = topics.make()
    out = sink(topics, topic, key="S")
    out.open(SCHEMA, {})
    out.write(batch(1, 2))
    assert topics.messages(topic) == []
    assert out.commit()["rows"] == 2
    assert topics.messages(topic) == [('"1"', '{"n":1,"s":"\\"1\\""}'), ('"2"', '{"n":2,"s":"\\"2\\""}')]
    out.write(batch(3))
    out.close()
    assert written(topics, topic) == [1, 2, 3]


def test_a_sink_that_reopens_writes_nothing_twice(topics: Topics) -> None:
    topic = topics.make()
    first = sink(topics, topic)
    first.open(SCHEMA, {})
    first.write(batch(1, 2))
    known = first.commit()
    first.write(batch(3, 4))
    first.commit()  # the host crashed before it noted this one
    first.write(batch(5))  # and this was never committed
    second = sink(topics, topic)
    second.open(SCHEMA, json.loads(json.dumps(known)))
    second.write(batch(3))
    second.write(batch(4, 5, 6))
    second.close()
    assert written(topics, topic) == [1, 2, 3, 4, 5, 6]
    with pytest.raises(ConnectorError):
        first.commit()  # its successor has taken over


def test_rows_do_not_wait_for_a_host_that_never_commits(topics: Topics) -> None:
    topic = topics.make()
    out = sink(topics, topic, commit_ms=50)
    out.open(SCHEMA, {})
    out.write(batch(1))
    until = time.monotonic() + 10
    while written(topics, topic) != [1]:
        assert time.monotonic() < until
        time.sleep(0.05)
    out.close()


def test_csv_and_at_least_once(topics: Topics) -> None:
    topic = topics.make()
    out = sink(topics, topic, format="csv", delimiter=";", delivery="at_least_once")
    out.open(SCHEMA, {})
    out.write(batch(1, 2))
    out.close()
    assert [value for _, value in topics.messages(topic)] == ['1;"""1"""', '2;"""2"""']


def test_upserts_have_keys_and_deletions_are_tombstones(topics: Topics) -> None:
    latest, pairs = topics.make(), topics.make()
    with ms.connect() as db:
        db.execute("CREATE STREAM s (id INT, v INT, d VARCHAR, t INT) ORDER BY t")
        for name, topic, key in (("latest", latest, "id"), ("pairs", pairs, "id, v")):
            at = f"connector = 'kafka', topic = '{topic}', brokers = '{topics.broker.address}'"
            db.execute(f"CREATE SINK {name} WITH ({at}, mode = 'upsert', key = '{key}')")
            db.execute(f"INSERT INTO {name} SELECT id, v FROM s [PARTITION BY id ROWS 1 DELETE WHEN d = 'd']")
        db.push("s", [(1, 5, "", 1), (1, 6, "", 2), (1, 0, "d", 3)])
        db.finish()
    assert topics.messages(latest) == [("1", '{"id":1,"v":5}'), ("1", '{"id":1,"v":6}'), ("1", None)]
    assert sorted(map(str, topics.messages(pairs))) == sorted(
        map(str, [
            ('{"id":1,"v":5}', '{"id":1,"v":5}'), ('{"id":1,"v":6}', '{"id":1,"v":6}'),
            ('{"id":1,"v":5}', None), ('{"id":1,"v":6}', None),
        ])
    )  # fmt: skip


def test_wrong_key_and_missing_topic(topics: Topics) -> None:
    with pytest.raises(ConnectorError, match="is not a column"):
        sink(topics, topics.make(), key="k").open(SCHEMA, {})
    with pytest.raises(ConnectorError, match="no topic nowhere"):
        sink(topics, "nowhere").open(SCHEMA, {})


def test_a_query_from_topic_to_topic(topics: Topics) -> None:
    source, target = topics.make(), topics.make()
    topics.send(source, *(f"{n},2024-01-01T00:00:{n:02d}" for n in range(20)))
    at = f"brokers = '{topics.broker.address}'"
    with ms.connect() as db:
        db.execute(
            f"""CREATE STREAM s (n INT, ts TIMESTAMP) ORDER BY ts
                  WITH (connector = 'kafka', topic = '{source}', {at}, format = 'csv', end = 'latest');
                CREATE SINK o WITH (connector = 'kafka', topic = '{target}', {at});
                INSERT INTO o SELECT n FROM s WHERE n % 2 = 0"""
        )
        db.run()
    assert written(topics, target) == list(range(0, 20, 2))
