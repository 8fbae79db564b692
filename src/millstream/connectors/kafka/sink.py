"""The Kafka sink: rows as messages, in transactions that also note how many rows were written."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from threading import Lock, Timer
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.connectors.contract import Offset, SeenAtOnce
from millstream.connectors.kafka.client import Cluster, TopicClient, library, reason, split_options
from millstream.connectors.options import Options, OptionValue, closest, upsert_keys
from millstream.connectors.sinks.render import as_text, csv_values, json_values
from millstream.errors import ConnectorError
from millstream.schema import Schema, unique_names
from millstream.types import SqlType

_TRANSACTION_MS = 600_000
_BATCHING = {"linger.ms": 5, "queue.buffering.max.messages": 500_000, "partitioner": "murmur2_random"}


class KafkaSink(SeenAtOnce):
    """Writes rows to a topic; offsets are `{rows, id}`.

    What was sent cannot be taken back. Instead every transaction notes its count of rows under the sink's id, and a
    sink that reopens passes over the rows that were sent after the commit it goes on from.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        form: str = "json",
        delimiter: str = ",",
        keys: tuple[str, ...] = (),
        upserts: bool = False,
        exactly_once: bool = True,
        commit_ms: int = 30_000,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._form = form
        self._delimiter = delimiter
        self._keys = keys
        self._upserts = upserts
        self._exactly_once = exactly_once
        self._commit_seconds = commit_ms / 1000
        self._names: list[str] = []
        self._types: list[SqlType] = []
        self._key_places: list[int] = []
        self._id = ""
        self._rows = 0
        self._pass_over = 0
        self._producer: Any = None
        self._in_transaction = False
        self._timer: Timer | None = None
        self._lock = Lock()
        self._failed: str | None = None

    @staticmethod
    def from_options(given: Mapping[str, OptionValue]) -> KafkaSink:
        own, properties = split_options(given)
        options = Options("connector kafka", own)
        topic = options.required("topic", "'results'")
        cluster = Cluster.from_options(options, properties)
        form = options.choice("format", ("json", "jsonl", "csv"), "json")
        delimiter = options.text("delimiter", ",") or ","
        options.choice("mode", ("append", "upsert"))
        key, keys = options.text("key"), upsert_keys(given)
        delivery = options.choice("delivery", ("exactly_once", "at_least_once"), "exactly_once")
        commit_ms = options.integer("commit_ms", 30_000, low=1, high=_TRANSACTION_MS // 2)
        options.finish()
        assert commit_ms is not None
        if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
            raise ConnectorError(
                f"{options.owner}: delimiter = {delimiter!r} is not valid", hint="delimiter is one ASCII character"
            )
        library()
        return KafkaSink(
            cluster, topic, form="csv" if form == "csv" else "json", delimiter=delimiter,
            keys=keys or (() if key is None else (key,)), upserts=keys is not None,
            exactly_once=delivery == "exactly_once", commit_ms=commit_ms,
        )  # fmt: skip

    def open(self, schema: Schema, committed: Offset) -> None:
        self._names, self._types = unique_names(field.name for field in schema.fields), [f.type for f in schema.fields]
        self._key_places = [self._place_of(key) for key in self._keys]
        self._rows = int(committed.get("rows", 0))
        self._id = str(committed.get("id") or uuid.uuid4().hex)
        self._failed = None
        own: dict[str, Any] = {"enable.idempotence": True}
        if self._exactly_once:
            own |= {"transactional.id": f"millstream-{self._id}", "transaction.timeout.ms": _TRANSACTION_MS}
        kafka = library()
        with TopicClient(self._cluster, self._topic, self._group) as client:
            client.await_leaders()
            try:
                self._producer = kafka.Producer(self._cluster.settings(_BATCHING, own))
                if self._exactly_once:
                    # this also ends a transaction that a predecessor left open
                    self._producer.init_transactions(self._cluster.timeout_seconds)
                    self._pass_over = max(0, self._noted(kafka, client) - self._rows) if committed else 0
            except kafka.KafkaException as error:
                raise self._cannot("open", error) from error

    def write(self, rows: pa.RecordBatch) -> None:
        with self._lock:
            self._check()
            passed = min(self._pass_over, rows.num_rows)
            self._pass_over -= passed
            self._rows += rows.num_rows
            rows = rows.slice(passed)
            if rows.num_rows == 0:
                return
            values, keys = self._values(rows).to_pylist(), self._key_texts(rows)
            if keys is not None and None in keys and self._upserts:
                raise ConnectorError(f"a row without a key cannot be an upsert in the topic {self._topic}")
            try:
                if self._exactly_once and not self._in_transaction:
                    self._begin()
                self._send(values, keys)
            except library().KafkaException as error:
                raise self._cannot("write to", error) from error
            except ConnectorError as error:
                self._failed = error.message
                raise

    def commit(self) -> Offset:
        with self._lock:
            assert self._producer is not None, "the sink is not open"
            self._commit()
            return {"rows": self._rows, "id": self._id}

    def release(self) -> None:
        # what is open is left to the brokers, who abort it
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._producer = None

    def close(self) -> None:
        if self._producer is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        try:
            # after a failure what is open is left to the brokers, who abort it: half a batch must not be seen
            if self._failed is None:
                self.commit()
        finally:
            self._producer = None

    @property
    def _group(self) -> str:
        return f"millstream-sink-{self._id}"

    def _place_of(self, key: str) -> int:
        lower = [name.lower() for name in self._names]
        if key.lower() not in lower:
            raise ConnectorError(
                f"connector kafka: key = {key!r} is not a column of the query",
                hint=f"its columns are {', '.join(self._names)}{closest(key, self._names)}",
            )
        return lower.index(key.lower())

    def _values(self, rows: pa.RecordBatch) -> pa.Array:
        """Each row as the text of one message. A key that is deleted has none: a tombstone."""
        if not self._upserts:
            return self._texts(rows, range(rows.num_columns))
        gone = pc.equal(rows.column(rows.num_columns - 1), "d")
        return pc.if_else(gone, pa.scalar(None, pa.string()), self._texts(rows, range(rows.num_columns - 1)))

    def _key_texts(self, rows: pa.RecordBatch) -> list[str | None] | None:
        """The key of each message: the text of one column, or several with their names."""
        if len(self._key_places) > 1:
            return list(self._texts(rows, self._key_places).to_pylist())
        return list(as_text(rows.column(self._key_places[0])).to_pylist()) if self._key_places else None

    def _texts(self, rows: pa.RecordBatch, places: Sequence[int]) -> pa.Array:
        """Some columns of each row in the format of the sink."""
        parts: list[Any] = []
        for place in places:
            name, column = self._names[place], rows.column(place)
            if self._form == "csv":
                parts += [self._delimiter if parts else "", csv_values(column, self._delimiter)]
            else:
                opening = "," if parts else "{"
                parts += [f"{opening}{json.dumps(name, ensure_ascii=False)}:", json_values(column, self._types[place])]
        return pc.binary_join_element_wise(*parts, "" if self._form == "csv" else "}", "")

    def _send(self, values: list[str | None], keys: list[str | None] | None) -> None:
        produce, topic = self._producer.produce, self._topic
        # a transaction fails as a whole when a message does; without one every message must tell
        told = None if self._exactly_once else self._delivered
        until = time.monotonic() + self._cluster.timeout_seconds
        for place, value in enumerate(values):
            while True:
                try:
                    produce(topic, value, None if keys is None else keys[place], on_delivery=told)
                    break
                except BufferError:
                    # the queue is full: wait for the brokers, who must take some of it in reasonable time
                    if self._producer.poll(0.1):
                        until = time.monotonic() + self._cluster.timeout_seconds
                    if time.monotonic() > until:
                        raise self._cluster.unreachable("messages are not accepted") from None
        self._producer.poll(0)

    def _begin(self) -> None:
        self._producer.begin_transaction()
        self._in_transaction = True
        # brokers abort what stays open for long, so rows do not wait for a host that never commits
        self._timer = Timer(self._commit_seconds, self._commit_in_time)
        self._timer.daemon = True
        self._timer.start()

    def _commit_in_time(self) -> None:
        with self._lock:
            try:
                if self._producer is not None:
                    self._commit()
            except ConnectorError as error:
                self._failed = error.message

    def _commit(self) -> None:
        self._check()
        kafka = library()
        try:
            if not self._exactly_once:
                if self._producer.flush(self._cluster.timeout_seconds):
                    raise self._cluster.unreachable("messages are not accepted")
                self._check()
            elif self._in_transaction:
                if self._timer is not None:
                    self._timer.cancel()
                self._note_rows(kafka)
                self._producer.commit_transaction(self._cluster.timeout_seconds)
                self._in_transaction = False
        except kafka.KafkaException as error:
            raise self._cannot("commit to", error) from error

    def _note_rows(self, kafka: Any) -> None:
        """Note the count of rows as an offset of the sink's group: the transaction carries both or none."""
        with TopicClient(self._cluster, self._topic, self._group) as client:
            place = kafka.TopicPartition(self._topic, 0, self._rows)
            group = client.consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction([place], group, self._cluster.timeout_seconds)

    def _noted(self, kafka: Any, client: TopicClient) -> int:
        place = kafka.TopicPartition(self._topic, 0)
        found = client.consumer.committed([place], timeout=self._cluster.timeout_seconds)
        return max(0, int(found[0].offset))

    def _check(self) -> None:
        if self._failed is not None:
            raise ConnectorError(self._failed)

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self._cannot("write to", error)

    def _cannot(self, what: str, error: Any) -> ConnectorError:
        """The error, remembered: a sink that lost rows does not go on."""
        self._failed = f"cannot {what} the topic {self._topic} at {self._cluster.brokers}: {reason(error)}"
        return ConnectorError(self._failed)
