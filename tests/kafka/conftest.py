"""One broker for all tests here, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from broker import Broker, Unavailable, running_broker
from kafka_topics import Topics


@pytest.fixture(scope="session")
def kafka() -> Iterator[Broker]:
    pytest.importorskip("confluent_kafka", reason="the package confluent-kafka is not installed")
    with_broker = running_broker()
    try:
        broker = with_broker.__enter__()
    except Unavailable as reason:
        pytest.skip(str(reason))
    yield broker
    with_broker.__exit__(None, None, None)


@pytest.fixture(scope="session")
def topics(kafka: Broker) -> Topics:
    return Topics(kafka)
