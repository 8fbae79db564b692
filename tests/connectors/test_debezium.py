"""Changes that Debezium writes, in files and messages, and the table that they make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import millstream
from millstream.connectors.kafka.messages import MessageDecoder
from millstream.connectors.textoptions import TextOptions
from millstream.schema import Schema
from millstream.types import BIGINT, INTEGER, VARCHAR


def change(op: str, ts: int, before: Any = None, after: Any = None) -> dict[str, Any]:
    return {"before": before, "after": after, "source": {"db": "shop"}, "op": op, "ts_ms": ts}


CHANGES = [
    change("r", 1_000, after={"id": 1, "price": 10, "other": "x"}),
    change("c", 2_000, after={"id": 2, "price": 20}),
    change("u", 3_000, before={"id": 1, "price": 10}, after={"id": 1, "price": 11}),
    change("d", 4_000, before={"id": 2, "price": 20}),
]


@pytest.mark.parametrize("enveloped", [False, True])
def test_a_file_of_changes_is_a_table(tmp_path: Path, enveloped: bool) -> None:
    path = tmp_path / "changes.json"
    messages = [{"schema": {"type": "struct"}, "payload": each} if enveloped else each for each in CHANGES]
    lines = [*map(json.dumps, messages), "null", "", json.dumps(change("c", 5_000)), "{"]
    path.write_text("\n".join(lines))
    with millstream.connect() as db:
        db.execute(
            "CREATE STREAM items (id INT, price INT, op VARCHAR, ts_ms TIMESTAMP) ORDER BY ts_ms "
            f"WITH (connector = 'file', path = '{path}', format = 'debezium')"
        )
        rows = db.sql("SELECT id, price, op, epoch(ts_ms) AS t FROM items")
        table = db.sql("SELECT id, price FROM items [PARTITION BY id ROWS 1 DELETE WHEN op = 'd']")
        errors = db.sql("SELECT error, origin FROM ERRORS(items)")
        db.run()
        assert [tuple(row.values()) for row in rows.fetch().to_pylist()] == [
            (1, 10, "r", 1.0),
            (2, 20, "c", 2.0),
            (1, 11, "u", 3.0),
            (2, 20, "d", 4.0),
        ]
        history = [(row["id"], row["price"], row["valid_to"] is None) for row in table.fetch().to_pylist()]
        assert sorted(history) == [(1, 10, False), (1, 11, True), (2, 20, False)]
        found = errors.fetch().to_pylist()
        assert [row["error"].partition(":")[0] for row in found] == [
            "neither a row before nor after the change",
            "malformed JSON",
        ]
        assert [row["origin"].rpartition(":")[2] for row in found] == ["7", "8"]


def test_messages_without_a_value_say_nothing_new() -> None:
    schema = Schema.of(id=INTEGER, op=VARCHAR, ts_ms=BIGINT)
    decoder = MessageDecoder(schema, "debezium", TextOptions())
    values = [json.dumps(CHANGES[3], indent=1).encode(), None, json.dumps(CHANGES[2]).encode(), b"[1, 2]"]
    rows, rejected = decoder.decode(values, lambda place: f"message {place}")
    assert rows.to_pylist() == [{"id": 2, "op": "d", "ts_ms": 4000}, {"id": 1, "op": "u", "ts_ms": 3000}]
    assert [each.origin for each in rejected] == ["message 3"]
