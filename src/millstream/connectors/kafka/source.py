"""The Kafka source: a topic read from an offset, to its end or for ever, as a whole or partition by partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa

from millstream.connectors.contract import Chunk, Offset
from millstream.connectors.convert.common import DEFAULT_RULES, empty
from millstream.connectors.convert.text import parse_text
from millstream.connectors.kafka.client import Cluster, TopicClient, library, split_options
from millstream.connectors.kafka.merge import Merge
from millstream.connectors.kafka.messages import MessageDecoder
from millstream.connectors.kafka.reader import TopicReading, gone
from millstream.connectors.options import Options, OptionValue, partition_column
from millstream.connectors.textoptions import TextOptions
from millstream.errors import ConnectorError
from millstream.schema import Schema
from millstream.types import TIMESTAMP

ROWS_PER_CHUNK = 65_536


class KafkaSource:
    """Reads a topic; offsets are `{"partitions": {"0": next offset, …}}`.

    They also carry the timestamp up to which partitions were merged, and where a bounded reading ends, so that reading
    on gives the rows in the same order. It holds no connection, so that it can be sent to tasks.
    """

    def __init__(
        self,
        schema: Schema,
        cluster: Cluster,
        topic: str,
        *,
        form: str = "json",
        text: TextOptions | None = None,
        start: str | int = "earliest",
        bounded: bool = False,
        group: str | None = None,
        poll_ms: int = 100,
        partitioned_by: str | None = None,
    ) -> None:
        self.schema = schema
        self.topic = topic
        self._cluster = cluster
        self._form = form
        self._text = text or TextOptions()
        self._start = start
        self._bounded = bounded
        self._group = group
        self._poll_seconds = poll_ms / 1000
        self.partitioned_by = partitioned_by
        self._size: int | None = None

    @staticmethod
    def from_options(given: Mapping[str, OptionValue], schema: Schema) -> KafkaSource:
        own, properties = split_options(given)
        options = Options("connector kafka", own)
        topic = options.required("topic", "'quotes'")
        cluster = Cluster.from_options(options, properties)
        form = options.choice("format", ("json", "jsonl", "csv", "debezium"), "json")
        text = TextOptions.from_options(options)
        start = _start(options)
        end = options.choice("end", ("none", "latest"), "none")
        group = options.text("group")
        poll_ms = options.integer("poll_ms", 100, low=1)
        partitioned_by = partition_column(options, schema)
        options.finish()
        assert poll_ms is not None
        if text.header:
            raise ConnectorError("connector kafka: messages have no header", hint="leave out header")
        library()
        return KafkaSource(
            schema, cluster, topic, form=form if form in ("csv", "debezium") else "json", text=text, start=start,
            bounded=end == "latest", group=group, poll_ms=poll_ms, partitioned_by=partitioned_by,
        )  # fmt: skip

    @property
    def bounded(self) -> bool:
        return self._bounded

    @property
    def replayable(self) -> bool:
        """A live reading meets the partitions as they grow, so only one with fixed ends repeats its order."""
        return self._bounded

    def size(self) -> int | None:
        return self._size

    def initial(self) -> Offset:
        """Where a reading starts, as of now."""
        with self._client() as client:
            return {"partitions": self._starts(client)}

    def latest(self, start: Offset, rows: int | None = None) -> Offset:
        """How far the topic reaches now, never before `start`; of more than `rows` messages each partition's share."""
        before = start.get("partitions", {})
        with self._client() as client:
            reach = {str(p): client.reach(p) for p in client.partitions()}
        self._check_division(before, reach)
        places = {p: int(before.get(p, first)) for p, (first, _) in reach.items()}
        waiting = {p: max(0, end - places[p]) for p, (_, end) in reach.items()}
        total = sum(waiting.values())
        if rows is not None and total > rows:
            waiting = {p: -(-count * rows // total) for p, count in waiting.items()}
        return {"partitions": {p: places[p] + count for p, count in waiting.items()}}

    def parts(self, start: Offset, end: Offset) -> list[Offset]:
        """What lies between two offsets as pieces that can be read independently, one for each partition."""
        begin = start.get("partitions") or self.initial()["partitions"]
        ends = end.get("partitions", {})
        pieces = [(int(p), int(begin.get(p, 0)), int(to)) for p, to in ends.items()]
        return [{"partition": p, "from": place, "to": to} for p, place, to in sorted(pieces) if place < to]

    def read_part(self, part: Offset, limit: int | None = None) -> Iterator[Chunk]:
        """The rows of a piece, in order."""
        partition, place, to = int(part["partition"]), int(part["from"]), int(part["to"])
        with self._client() as client:
            self._check_kept(client, {str(partition): place})
            merge = Merge({"partitions": {str(partition): place}}, {partition: to})
            for chunk in self._reading(client, merge).run(_never, limit or ROWS_PER_CHUNK, self._poll_seconds, False):
                yield Chunk(chunk.rows, {"partitions": chunk.offset["partitions"]}, chunk.rejected)

    def read(self, offset: Offset, stop: Callable[[], bool], limit: int | None = None) -> Iterator[Chunk]:
        with self._client() as client:
            begun = self._begun(client, offset)
            ends = {int(p): int(end) for p, end in begun["end"].items()} if self._bounded else None
            merge = Merge(begun, ends)
            if ends is not None:
                self._size = sum(max(0, ends[p] - part.next) for p, part in merge.partitions.items())
            if begun != offset:
                # the place where a reading begins is fixed by this chunk, whatever the topic does until the next one
                yield Chunk(empty(self.schema), begun)
            reading = self._reading(client, merge)
            yield from reading.run(
                stop, limit or ROWS_PER_CHUNK, self._poll_seconds, not self._bounded, self._group is not None
            )

    def _client(self) -> TopicClient:
        return TopicClient(self._cluster, self.topic, self._group)

    def _reading(self, client: TopicClient, merge: Merge) -> TopicReading:
        return TopicReading(client, merge, MessageDecoder(self.schema, self._form, self._text), self.schema)

    def _begun(self, client: TopicClient, offset: Offset) -> Offset:
        """The offset with all that a reading needs to know."""
        if not offset.get("partitions"):
            begun: Offset = {"partitions": self._starts(client)}
        else:
            known = offset["partitions"]
            new = {} if "end" in offset else {str(p): 0 for p in client.partitions() if str(p) not in known}
            self._check_kept(client, known)
            begun = {**offset, "partitions": {**known, **new}}
        if self._bounded and "end" not in begun:
            begun["end"] = {p: client.reach(int(p))[1] for p in begun["partitions"]}
        return begun

    def _starts(self, client: TopicClient) -> dict[str, int]:
        partitions = client.partitions()
        reaches = {p: client.reach(p) for p in partitions}
        if self._start == "earliest":
            return {str(p): reaches[p][0] for p in partitions}
        if self._start == "latest":
            return {str(p): reaches[p][1] for p in partitions}
        found = client.at_time(partitions, int(self._start))
        return {str(p): found[p] if found[p] >= 0 else reaches[p][1] for p in partitions}

    def _check_division(self, before: Mapping[str, object], now: Mapping[str, object]) -> None:
        """Where keys are divided by partitions, other partitions mean that keys have moved."""
        if self.partitioned_by is not None and before and set(before) != set(now):
            raise ConnectorError(
                f"topic {self.topic} has {len(now)} partitions now, and had {len(before)}",
                detail=f"the stream is partitioned by {self.partitioned_by}, whose values are in other partitions now",
                hint="start with a new checkpoint, or declare the stream without partitioned_by",
            )

    def _check_kept(self, client: TopicClient, places: Mapping[str, int]) -> None:
        existing = client.partitions()
        for name, place in places.items():
            low, high = client.reach(int(name)) if int(name) in existing else (0, 0)
            if int(name) not in existing or not low <= place <= high:
                raise gone(self.topic, int(name), place)


def _never() -> bool:
    return False


def _start(options: Options) -> str | int:
    """Earliest, latest, or the milliseconds of a timestamp."""
    text = (options.text("start", "earliest") or "earliest").strip()
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    values, wrong = parse_text(pa.array([text], pa.string()), TIMESTAMP, DEFAULT_RULES)
    if wrong:
        raise ConnectorError(
            f"{options.owner}: start = {text!r} is not valid",
            hint="start is 'earliest', 'latest' or a timestamp such as '2024-01-31 09:00:00'",
        )
    return -(-int(values.cast(pa.int64())[0].as_py()) // 1000)
