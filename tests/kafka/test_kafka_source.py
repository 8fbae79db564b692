"""Topics as sources, against a real broker."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka_topics import Topics

import millstream as ms
from millstream.connectors.contract import Chunk, Offset
from millstream.connectors.kafka import reader
from millstream.connectors.kafka.source import KafkaSource
from millstream.connectors.registry import make_source
from millstream.errors import ConnectorError
from millstream.schema import Schema
from millstream.types import INTEGER, VARCHAR

SCHEMA = Schema.of(n=INTEGER, s=VARCHAR)


def source(topics: Topics, topic: str, **options: Any) -> KafkaSource:
    given = {"connector": "kafka", "topic": topic, "brokers": topics.broker.address, "end": "latest", **options}
    made = make_source(given, SCHEMA, "t")
    assert isinstance(made, KafkaSource)
    return made


def numbers(chunks: Iterator[Chunk] | list[Chunk]) -> list[int]:
    return [n for chunk in chunks for n in chunk.rows.column(0).to_pylist()]


def never() -> bool:
    return False


def after(seconds: float) -> Callable[[], bool]:
    until = time.monotonic() + seconds
    return lambda: time.monotonic() > until


def rows(*values: int) -> list[str]:
    return [json.dumps({"n": n, "s": f"x{n}"}) for n in values]


def test_round_trip_and_resume_from_every_offset(topics: Topics) -> None:
    topic = topics.make()
    topics.send(topic, *rows(*range(40)))
    chunks = list(source(topics, topic).read({}, never, 7))
    assert numbers(chunks) == list(range(40))
    assert max(chunk.rows.num_rows for chunk in chunks) == 7
    assert chunks[-1].offset["partitions"] == {"0": 40}
    assert chunks[-1].rows.column(1).to_pylist()[-1] == "x39"
    done = 0
    for chunk in chunks:
        done += chunk.rows.num_rows
        saved = json.loads(json.dumps(chunk.offset))
        assert numbers(source(topics, topic).read(saved, never)) == list(range(done, 40))


def test_end_is_what_it_was_when_the_reading_began(topics: Topics) -> None:
    topic = topics.make()
    topics.send(topic, *rows(0, 1, 2))
    reading = source(topics, topic).read({}, never, 1)
    first = next(reading)
    assert first.rows.num_rows == 0
    topics.send(topic, *rows(3, 4))
    assert numbers(reading) == [0, 1, 2]
    assert numbers(source(topics, topic).read(first.offset, never)) == [0, 1, 2]
    assert numbers(source(topics, topic).read({}, never)) == [0, 1, 2, 3, 4]


def test_partitions_are_merged_by_timestamp_the_same_way_every_time(topics: Topics, monkeypatch: Any) -> None:
    monkeypatch.setattr(reader, "HELD_MESSAGES", 50)
    topic = topics.make(3)
    expected = []
    for p, (begin, count) in enumerate([(1000, 300), (1100, 200), (5000, 120)]):
        topics.send(topic, *rows(*range(p * 1000, p * 1000 + count)), partition=p, time=begin)
        expected += [(begin + i, p, p * 1000 + i) for i in range(count)]
    order = [n for _, _, n in sorted(expected)]
    chunks = list(source(topics, topic).read({}, never, 37))
    assert numbers(chunks) == order
    done = 0
    for chunk in chunks:
        done += chunk.rows.num_rows
        if done % 5 == 0 or done == len(order):
            assert numbers(source(topics, topic).read(chunk.offset, never, 64)) == order[done:]


def test_a_live_reading_delivers_soon_and_notices_new_partitions(topics: Topics, monkeypatch: Any) -> None:
    monkeypatch.setattr(reader, "DISCOVER_SECONDS", 0.2)
    topic = topics.make(2)
    topics.send(topic, *rows(1, 2), partition=0)
    live = source(topics, topic, end="none", poll_ms=20)
    assert not live.bounded
    seen: list[int] = []
    offset: Offset = {}
    grown = False
    for chunk in live.read({}, after(15)):
        seen += chunk.rows.column(0).to_pylist()
        offset = chunk.offset
        if seen == [1, 2] and not grown:
            grown = True
            topics.grow(topic, 3)
            topics.send(topic, *rows(3), partition=1)
            time.sleep(1)
            topics.send(topic, *rows(4), partition=2)
        if len(seen) == 4:
            break
    assert sorted(seen) == [1, 2, 3, 4]
    assert offset["partitions"] == {"0": 2, "1": 1, "2": 1}
    topics.send(topic, *rows(5), partition=1)
    resumed = live.read(offset, after(15))
    assert next(n for chunk in resumed for n in chunk.rows.column(0).to_pylist()) == 5
    resumed.close()  # type: ignore[attr-defined]


def test_rows_that_do_not_fit_are_rejected_with_their_place(topics: Topics) -> None:
    topic = topics.make()
    spread = '{\n "n": 3,\n "s": "a b"\n}\n'
    topics.send(topic, rows(1)[0], "oops", None, '{"n": "many"}', spread, '{"n": 4, "s": "a\nb"}', '[5, "five"]', "")
    chunks = list(source(topics, topic).read({}, never))
    assert numbers(chunks) == [1, 3, 5]
    rejected = {row.origin: row.error for chunk in chunks for row in chunk.rejected}
    assert list(rejected) == [f"{topic}[0]@{place}" for place in (1, 2, 3, 5)]
    assert "malformed JSON" in rejected[f"{topic}[0]@1"]
    assert rejected[f"{topic}[0]@2"] == "a message without a value"
    assert "n:" in rejected[f"{topic}[0]@3"]
    assert "malformed JSON" in rejected[f"{topic}[0]@5"]


def test_csv_values(topics: Topics) -> None:
    topic = topics.make()
    topics.send(topic, '1;"a;b"', "2;", "3;x\r\n", "4;x\n5;y", "six;x", "7")
    chunks = list(source(topics, topic, format="csv", delimiter=";").read({}, never))
    assert [tuple(row.values()) for chunk in chunks for row in chunk.rows.to_pylist()] == [
        (1, "a;b"), (2, None), (3, "x"),
    ]  # fmt: skip
    assert [row.origin for chunk in chunks for row in chunk.rejected] == [f"{topic}[0]@{place}" for place in (3, 4, 5)]


def test_parts_read_apart_are_the_whole(topics: Topics) -> None:
    topic = topics.make(3)
    for p in range(3):
        topics.send(topic, *rows(*range(p * 100, p * 100 + 20 * (p + 1))), "bad", partition=p)
    whole = source(topics, topic)
    start, end = whole.initial(), whole.latest({})
    assert end == {"partitions": {"0": 21, "1": 41, "2": 61}}
    middle = {"partitions": {"0": 5, "1": 41, "2": 0}}
    pieces = [*whole.parts(start, middle), *whole.parts(middle, end)]
    assert pieces[0] == {"partition": 0, "from": 0, "to": 5}
    assert whole.parts(end, whole.latest(end)) == []
    copy = pickle.loads(pickle.dumps(whole))
    apart = [chunk for piece in json.loads(json.dumps(pieces)) for chunk in copy.read_part(piece, 16)]
    together = list(whole.read({}, never))
    assert sorted(numbers(apart)) == sorted(numbers(together)) != []
    assert {r for chunk in apart for r in chunk.rejected} == {r for chunk in together for r in chunk.rejected}
    assert numbers(copy.read_part({"partition": 0, "from": 3, "to": 6})) == [3, 4, 5]


def test_start_at_the_end_or_at_a_time(topics: Topics) -> None:
    topic = topics.make()
    topics.send(topic, *rows(1, 2, 3), time=1_700_000_000_000)
    assert numbers(source(topics, topic, start="2023-11-14 22:13:20.001").read({}, never)) == [2, 3]
    assert numbers(source(topics, topic, start="2030-01-01").read({}, never)) == []
    live = source(topics, topic, start="latest", end="none").read({}, after(15))
    assert next(live).offset["partitions"] == {"0": 3}
    topics.send(topic, *rows(4))
    assert next(n for chunk in live for n in chunk.rows.column(0).to_pylist()) == 4
    live.close()  # type: ignore[attr-defined]


def test_a_missing_topic_is_named_with_the_nearest(topics: Topics) -> None:
    topic = topics.make()
    with pytest.raises(ConnectorError, match=f"no topic {topic}x") as caught:
        list(source(topics, topic + "x").read({}, never))
    assert topic in str(caught.value.hint)


def test_offsets_that_the_topic_does_not_have_are_an_error(topics: Topics) -> None:
    topic = topics.make()
    topics.send(topic, *rows(1))
    with pytest.raises(ConnectorError, match="no longer has the messages from offset 9"):
        list(source(topics, topic).read({"partitions": {"0": 9}}, never))


def test_a_query_over_a_topic(topics: Topics) -> None:
    topic = topics.make(2)
    for p in range(2):
        values = [f'{{"sym": "{"ab"[p]}", "price": {i}, "ts": "2024-01-01T00:00:{i:02d}"}}' for i in range(10)]
        topics.send(topic, *values, partition=p, time=1000)
    with ms.connect() as db:
        db.execute(
            f"""CREATE STREAM quotes (sym VARCHAR, price DOUBLE, ts TIMESTAMP) ORDER BY ts SLACK 1 SECOND
            WITH (connector = 'kafka', topic = '{topic}', brokers = '{topics.broker.address}', end = 'latest',
                  kafka.client.id = 'tests')"""
        )
        q = db.sql("SELECT sym, sum(price) OVER (PARTITION BY sym ORDER BY ts ROWS 1 PRECEDING) AS s FROM quotes")
        found = [(row["sym"], row["s"]) for row in q.arrow().to_pylist()]
    assert sorted(found) == sorted((sym, max(0, 2.0 * i - 1)) for sym in "ab" for i in range(10))
