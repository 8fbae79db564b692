"""Topics made and filled by tests."""

from __future__ import annotations

import itertools
from typing import Any

from broker import Broker

from millstream.connectors.kafka.client import Cluster, TopicClient


class Topics:
    """Makes topics on a broker, fills them and reads them raw."""

    def __init__(self, broker: Broker) -> None:
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient

        self.broker = broker
        self._numbers = itertools.count()
        self._admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
        settings = {"bootstrap.servers": broker.address, "linger.ms": 1, "log_level": 0, "enable.idempotence": True}
        self._producer = Producer({**settings, "topic.metadata.refresh.interval.ms": 200})

    def make(self, partitions: int = 1, name: str = "") -> str:
        from confluent_kafka.admin import NewTopic

        name = name or f"topic-{next(self._numbers)}"
        self._admin.create_topics([NewTopic(name, partitions, 1)])[name].result(20)
        self._await_leaders(name)
        return name

    def grow(self, topic: str, partitions: int) -> None:
        from confluent_kafka.admin import NewPartitions

        self._admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(20)
        self._await_leaders(topic)

    def _await_leaders(self, topic: str) -> None:
        with TopicClient(Cluster(self.broker.address), topic) as client:
            client.await_leaders()

    def send(self, topic: str, *values: str | bytes | None, partition: int = 0, time: int = 0) -> None:
        """Send values; `time` is the timestamp of the first, and each is a millisecond after the one before."""
        for place, value in enumerate(values):
            stamp = {"timestamp": time + place} if time else {}
            self._producer.produce(topic, value, partition=partition, **stamp)
        assert self._producer.flush(20) == 0

    def messages(self, topic: str) -> list[tuple[Any, Any]]:
        """Key and value of every committed message, partition by partition."""
        from confluent_kafka import Consumer, TopicPartition

        settings: dict[str, Any] = {"bootstrap.servers": self.broker.address, "group.id": "raw", "log_level": 0}
        consumer = Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False})
        partitions = list(consumer.list_topics(topic).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
        found: dict[int, list[tuple[str | None, str]]] = {p: [] for p in partitions}
        ended: set[int] = set()
        while len(ended) < len(partitions):
            message = consumer.poll(10)
            assert message is not None
            if message.error() is not None:
                ended.add(message.partition())
                continue
            key, value = message.key(), message.value()
            texts = (None if part is None else part.decode() for part in (key, value))
            found[message.partition()].append(tuple(texts))
        consumer.close()
        return [message for p in partitions for message in found[p]]
