"""What is wrong with a declaration is told without a broker."""

from __future__ import annotations

import socket
import sys
from typing import Any

import pytest

from millstream.connectors.kafka.source import KafkaSource
from millstream.connectors.registry import make_sink, make_source
from millstream.errors import ConnectorError
from millstream.schema import Schema
from millstream.types import INTEGER

SCHEMA = Schema.of(n=INTEGER)
GOOD = {"connector": "kafka", "topic": "t", "brokers": "127.0.0.1:1"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": ""}, "needs the option topic"),
        ({"brokers": ""}, "needs the option brokers"),
        ({"start": "soon"}, "start = 'soon'"),
        ({"end": "now"}, "end = 'now'"),
        ({"format": "avro"}, "format = 'avro'"),
        ({"header": True}, "no header"),
        ({"topics": "x"}, "no option topics"),
        ({"kafka.group.id": "x"}, "kafka.group.id cannot be set"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    pytest.importorskip("confluent_kafka")
    with pytest.raises(ConnectorError, match=message):
        make_source({**GOOD, **options}, SCHEMA, "s")


def test_wrong_sink_options() -> None:
    pytest.importorskip("confluent_kafka")
    with pytest.raises(ConnectorError, match="delivery"):
        make_sink({**GOOD, "delivery": "maybe"}, "s")


def test_a_missing_client_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    for make in (lambda: make_source(GOOD, SCHEMA, "s"), lambda: make_sink(GOOD, "s")):
        with pytest.raises(ConnectorError, match="needs the package confluent-kafka") as caught:
            make()
        assert caught.value.hint == "pip install 'millstream[kafka]'"


def test_no_broker() -> None:
    pytest.importorskip("confluent_kafka")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    options = {**GOOD, "brokers": f"127.0.0.1:{port}", "timeout_ms": 500}
    source = make_source(options, SCHEMA, "s")
    assert isinstance(source, KafkaSource)
    with pytest.raises(ConnectorError, match=f"cannot reach the Kafka brokers at 127.0.0.1:{port}"):
        next(source.read({}, lambda: False))
    with pytest.raises(ConnectorError, match="cannot reach the Kafka brokers"):
        make_sink(options, "s").open(SCHEMA, {})


def test_a_property_the_client_does_not_know() -> None:
    pytest.importorskip("confluent_kafka")
    with pytest.raises(ConnectorError, match=r"kafka\.no\.such\.thing cannot be set from SQL"):
        make_source({**GOOD, "kafka.no.such.thing": 1}, SCHEMA, "s")
    source = make_source({**GOOD, "kafka.fetch.wait.max.ms": "soon"}, SCHEMA, "s")
    assert source is not None
    with pytest.raises(ConnectorError, match=r"rejects its properties: .*fetch\.wait\.max\.ms"):
        next(source.read({}, lambda: False))
