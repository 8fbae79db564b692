"""One broker for all tests here, or the reason why there is none."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from broker import Broker, Unavailable, running_broker
from kafka_topics import Topics

_running = ExitStack()


@pytest.fixture(scope="session")
def kafka() -> Broker:
    pytest.importorskip("confluent_kafka", reason="the package confluent-kafka is not installed")
    try:
        return _running.enter_context(running_broker())
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def topics(kafka: Broker) -> Topics:
    return Topics(kafka)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """The tests here run one after another, and a broker takes time also when nobody uses it."""
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        _running.close()
