"""The client library, the options that reach a cluster, and one topic seen through a consumer."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from millstream.connectors.options import Options, OptionValue, closest
from millstream.connectors.packages import needed
from millstream.errors import ConnectorError
from millstream.records import dataclass

PREFIX = "kafka."
_OURS = (
    "bootstrap.servers", "group.id", "enable.auto.commit", "auto.offset.reset", "enable.partition.eof",
    "transactional.id", "enable.idempotence",
)  # fmt: skip
# What may be set besides. Left out is what loads a library, runs a command or asks another server for a token.
_ALLOWED = frozenset((
    "acks", "api.version.request", "api.version.request.timeout.ms", "batch.num.messages", "batch.size",
    "broker.address.family", "broker.address.ttl", "check.crcs", "client.dns.lookup", "client.id", "client.rack",
    "compression.codec", "compression.level", "compression.type", "connections.max.idle.ms", "debug",
    "delivery.timeout.ms", "enable.ssl.certificate.verification", "fetch.error.backoff.ms", "fetch.max.bytes",
    "fetch.message.max.bytes", "fetch.min.bytes", "fetch.queue.backoff.ms", "fetch.wait.max.ms",
    "heartbeat.interval.ms", "isolation.level", "linger.ms", "log.connection.close", "log_level",
    "max.in.flight", "max.in.flight.requests.per.connection", "max.partition.fetch.bytes", "max.poll.interval.ms",
    "message.copy.max.bytes", "message.max.bytes", "message.send.max.retries", "message.timeout.ms",
    "metadata.max.age.ms", "metadata.recovery.strategy", "partitioner", "queue.buffering.max.kbytes",
    "queue.buffering.max.messages", "queue.buffering.max.ms", "queued.max.messages.kbytes", "queued.min.messages",
    "receive.message.max.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms", "request.required.acks",
    "request.timeout.ms", "retries", "retry.backoff.max.ms", "retry.backoff.ms", "sasl.kerberos.keytab",
    "sasl.kerberos.principal", "sasl.kerberos.service.name", "sasl.mechanism", "sasl.mechanisms", "sasl.password",
    "sasl.username", "security.protocol", "session.timeout.ms", "socket.blocking.max.ms",
    "socket.connection.setup.timeout.ms",
    "socket.keepalive.enable", "socket.max.fails", "socket.nagle.disable", "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes", "socket.timeout.ms", "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location",
    "ssl.certificate.pem", "ssl.cipher.suites", "ssl.crl.location", "ssl.curves.list",
    "ssl.endpoint.identification.algorithm", "ssl.key.location", "ssl.key.password", "ssl.key.pem",
    "ssl.keystore.location", "ssl.keystore.password", "ssl.sigalgs.list", "sticky.partitioning.linger.ms",
    "topic.metadata.propagation.max.ms", "topic.metadata.refresh.fast.interval.ms",
    "topic.metadata.refresh.interval.ms", "topic.metadata.refresh.sparse", "transaction.timeout.ms",
))  # fmt: skip
_PROBE_SECONDS = 1.0
# With the client's own numbers the fetcher naps for a second whenever its short queue is full.
_FETCHING = {"queued.min.messages": 500_000, "fetch.queue.backoff.ms": 10}


def library() -> Any:
    """The package confluent_kafka."""
    return needed("confluent-kafka", "kafka")


@dataclass(frozen=True)
class Cluster:
    """Where the brokers are and how they are spoken to."""

    brokers: str
    properties: tuple[tuple[str, OptionValue], ...] = ()
    timeout_seconds: float = 10.0

    @staticmethod
    def from_options(options: Options, properties: Mapping[str, OptionValue]) -> Cluster:
        brokers = options.text("brokers") or options.text("bootstrap_servers")
        if not brokers:
            options.required("brokers", "'localhost:9092'")
        timeout = options.integer("timeout_ms", 10_000, low=1)
        assert brokers and timeout is not None
        for name in properties:
            if name in _OURS:
                raise ConnectorError(
                    f"{options.owner}: {PREFIX}{name} cannot be set", hint="the connector sets this itself"
                )
            if name not in _ALLOWED:
                raise ConnectorError(
                    f"{options.owner}: {PREFIX}{name} cannot be set from SQL",
                    detail="only properties that load no library and run no command are allowed",
                    hint=f"see the options of the connector kafka{closest(name, _ALLOWED)}",
                )
        return Cluster(brokers, tuple(sorted(properties.items())), timeout / 1000)

    def settings(self, defaults: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
        """Properties for a client: quiet by default, the user's above the defaults, the connector's above all."""
        users = {name: str(value).lower() if isinstance(value, bool) else value for name, value in self.properties}
        return {"log_level": 2, **defaults, **users, "bootstrap.servers": self.brokers, **own}

    def unreachable(self, error: object) -> ConnectorError:
        return ConnectorError(
            f"cannot reach the Kafka brokers at {self.brokers}: {error}",
            hint="start the brokers, or correct the option brokers",
        )

    def refused(self, error: Exception) -> ConnectorError:
        return ConnectorError(
            f"the Kafka client rejects its properties: {reason(error)}", hint="see the options kafka.*"
        )


def split_options(options: Mapping[str, OptionValue]) -> tuple[dict[str, OptionValue], dict[str, OptionValue]]:
    """The connector's own options, and the client properties among them without their prefix."""
    own = {name: value for name, value in options.items() if not name.lower().startswith(PREFIX)}
    passed = {name.lower().removeprefix(PREFIX): value for name, value in options.items() if name not in own}
    return own, passed


def reason(error: Any) -> str:
    """What the client says went wrong."""
    inner = error.args[0] if isinstance(error, Exception) and error.args else error
    return str(inner.str()) if hasattr(inner, "str") else str(inner)


class TopicClient:
    """A consumer of one topic; use as a context manager."""

    def __init__(self, cluster: Cluster, topic: str, group: str | None = None) -> None:
        self._kafka = library()
        self._cluster = cluster
        self.topic = topic
        self._down_since: float | None = None
        own = {
            "group.id": group or f"millstream-{uuid.uuid4().hex}", "enable.auto.commit": False,
            "auto.offset.reset": "error", "enable.partition.eof": True, "error_cb": self._on_error,
        }  # fmt: skip
        try:
            self.consumer: Any = self._kafka.Consumer(cluster.settings(_FETCHING, own))
        except self._kafka.KafkaException as error:
            raise cluster.refused(error) from error

    def __enter__(self) -> TopicClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.consumer.close()

    def partitions(self, timeout: float | None = None) -> list[int]:
        """The topic's partitions; an error if it does not exist."""
        try:
            topics = self.consumer.list_topics(timeout=timeout or self._cluster.timeout_seconds).topics
        except self._kafka.KafkaException as error:
            raise self._cluster.unreachable(reason(error)) from error
        if self.topic not in topics:
            known = [name for name in topics if not name.startswith("__")]
            raise ConnectorError(
                f"the Kafka brokers at {self._cluster.brokers} have no topic {self.topic}",
                hint=f"create the topic first{closest(self.topic, known)}",
            )
        return sorted(topics[self.topic].partitions)

    def reach(self, partition: int) -> tuple[int, int]:
        """The first offset that is kept and the one after the last that may be read."""
        try:
            low, high = self.consumer.get_watermark_offsets(self._at(partition), timeout=self._cluster.timeout_seconds)
        except self._kafka.KafkaException as error:
            raise self._cluster.unreachable(reason(error)) from error
        return int(low), int(high)

    def await_leaders(self) -> None:
        """Wait until every partition answers. Messages sent to a topic so new that a leader is not ready yet come in
        another order, or are confirmed without being there: what is sent again meets what overtook it."""
        until = time.monotonic() + self._cluster.timeout_seconds
        for partition in self.partitions():
            while True:
                try:
                    self.reach(partition)
                    break
                except ConnectorError:
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.05)

    def seen_end(self, partition: int) -> int:
        """The end of a partition as of the last fetch; -1 before the first."""
        known = self.consumer.get_watermark_offsets(self._at(partition), cached=True)
        return -1 if known is None else int(known[1])

    def at_time(self, partitions: Iterable[int], millis: int) -> dict[int, int]:
        """The first offsets with a message of that time or later, -1 where there is none."""
        wanted = [self._at(partition, millis) for partition in partitions]
        try:
            found = self.consumer.offsets_for_times(wanted, timeout=self._cluster.timeout_seconds)
        except self._kafka.KafkaException as error:
            raise self._cluster.unreachable(reason(error)) from error
        return {place.partition: int(place.offset) for place in found}

    def assign(self, positions: Mapping[int, int]) -> None:
        """Read these partitions from these offsets on, in addition to what is assigned."""
        self.consumer.incremental_assign([self._at(partition, offset) for partition, offset in positions.items()])

    def pause(self, partition: int) -> None:
        self.consumer.pause([self._at(partition)])

    def resume(self, partition: int) -> None:
        self.consumer.resume([self._at(partition)])

    def take(self, count: int, wait: float, gather: float) -> list[Any]:
        """Up to `count` messages: wait for the first, then only a moment for the others."""
        first = self.consumer.consume(1, wait)
        if not first:
            self._check_alive()
            return []
        self._down_since = None
        return [*first, *self.consumer.consume(min(count - 1, 500_000), gather)] if count > 1 else list(first)

    def commit(self, positions: Mapping[int, int]) -> None:
        """Tell the group how far it is, for those who watch it."""
        places = [self._at(partition, offset) for partition, offset in positions.items()]
        self.consumer.commit(offsets=places, asynchronous=True)

    def _at(self, partition: int, offset: int | None = None) -> Any:
        if offset is None:
            return self._kafka.TopicPartition(self.topic, partition)
        return self._kafka.TopicPartition(self.topic, partition, offset)

    def _on_error(self, error: Any) -> None:
        if error.code() == self._kafka.KafkaError._ALL_BROKERS_DOWN and self._down_since is None:
            self._down_since = time.monotonic()

    def _check_alive(self) -> None:
        """After the client lost all brokers: look whether one is back, and give up when none is for too long."""
        since = self._down_since
        if since is None:
            return
        try:
            self.partitions(_PROBE_SECONDS)
            self._down_since = None
        except ConnectorError:
            if time.monotonic() - since >= self._cluster.timeout_seconds:
                raise
