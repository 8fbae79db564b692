"""One reading of a topic: messages received, merged, decoded and handed over with their offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

import numpy as np

from millstream.connectors.contract import Chunk
from millstream.connectors.convert.common import empty
from millstream.connectors.kafka.client import TopicClient, library, reason
from millstream.connectors.kafka.merge import Merge, Run
from millstream.connectors.kafka.messages import MessageDecoder
from millstream.errors import ConnectorError
from millstream.schema import Schema

GATHER_SECONDS = 0.005
DISCOVER_SECONDS = 5.0
"""How often a live reading looks for new partitions."""
COMMIT_SECONDS = 1.0
HELD_MESSAGES = 131_072
"""A partition that is this far ahead of the others is not fetched until they catch up."""


class TopicReading:
    """Reads partitions of a topic to their ends, or for as long as it is asked to."""

    def __init__(self, client: TopicClient, merge: Merge, decoder: MessageDecoder, schema: Schema) -> None:
        self._kafka = library()
        self._client = client
        self._merge = merge
        self._decoder = decoder
        self._schema = schema

    def run(
        self, stop: Callable[[], bool], limit: int, poll_seconds: float, live: bool, report: bool = False
    ) -> Iterator[Chunk]:
        """Chunks until the ends are reached, or `stop()` if it is a live reading; `report` commits for a group."""
        self._client.assign({p: part.next for p, part in self._merge.partitions.items() if not part.done})
        looked = told = time.monotonic()
        while not stop() and (live or not self._merge.done):
            idle = True
            self._receive(self._client.take(max(limit, 1024), poll_seconds, GATHER_SECONDS), live)
            for run in self._merge.ready(limit):
                idle = False
                yield self._chunk(run)
                if stop():
                    return
            self._throttle()
            now = time.monotonic()
            if report and (now - told >= COMMIT_SECONDS or (not live and self._merge.done)):
                told = now
                self._client.commit({int(p): place for p, place in self._merge.offset()["partitions"].items()})
            if not live:
                continue
            if idle:
                yield Chunk(empty(self._schema), self._merge.offset())
            if now - looked >= DISCOVER_SECONDS:
                looked = now
                self._discover()

    def _receive(self, messages: list[Any], live: bool) -> None:
        if not messages:
            return
        kinds = self._kafka.Message
        errors = list(map(kinds.error, messages))
        ends: dict[int, int] = {}
        if any(errors):
            for place, error in enumerate(errors):
                if error is not None:
                    self._event(messages[place], error, ends)
            messages = [message for message, error in zip(messages, errors, strict=True) if error is None]
        if messages:
            self._sort_in(messages)
        for number, end in ends.items():
            part = self._merge.partitions[number]
            if end >= part.next:
                part.next, part.at_end = end, True
        if live:
            for part in self._merge.partitions.values():
                part.at_end = part.at_end or part.next >= self._client.seen_end(part.number) >= 0

    def _sort_in(self, messages: list[Any]) -> None:
        kinds, count = self._kafka.Message, len(messages)
        values = list(map(kinds.value, messages))
        offsets = np.fromiter(map(kinds.offset, messages), np.int64, count)
        parts = self._merge.partitions
        if len(parts) == 1:
            next(iter(parts.values())).add(values, offsets, np.zeros(count, np.int64), self._merge.time)
            return
        numbers = np.fromiter(map(kinds.partition, messages), np.int64, count)
        times = np.fromiter(map(itemgetter(1), map(kinds.timestamp, messages)), np.int64, count)
        for number in np.unique(numbers).tolist():
            places = np.flatnonzero(numbers == number)
            mine = list(map(values.__getitem__, places.tolist()))
            parts[number].add(mine, offsets[places], times[places], self._merge.time)

    def _event(self, message: Any, error: Any, ends: dict[int, int]) -> None:
        codes = self._kafka.KafkaError
        if error.code() == codes._PARTITION_EOF:
            ends[message.partition()] = message.offset()
        elif error.code() in (codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE):
            raise gone(self._client.topic, message.partition(), self._merge.partitions[message.partition()].next)
        elif not error.retriable() or error.fatal():
            raise ConnectorError(f"cannot read the topic {self._client.topic}: {reason(error)}")

    def _throttle(self) -> None:
        for part in self._merge.partitions.values():
            ahead = len(part.values) >= HELD_MESSAGES or (part.to is not None and part.next >= part.to)
            if ahead != part.paused and len(self._merge.partitions) > 1:
                (self._client.pause if ahead else self._client.resume)(part.number)
                part.paused = ahead

    def _discover(self) -> None:
        try:
            found = set(self._client.partitions()) - set(self._merge.partitions)
        except ConnectorError:
            # brokers that stay away are noticed when nothing arrives
            return
        for number in sorted(found):
            self._merge.begin(number)
            self._client.assign({number: 0})

    def _chunk(self, run: Run) -> Chunk:
        def origin(place: int) -> str:
            return f"{self._client.topic}[{run.partitions[place]}]@{run.offsets[place]}"

        rows, rejected = self._decoder.decode(run.values, origin)
        return Chunk(rows, run.offset, rejected)


def gone(topic: str, partition: int, offset: int) -> ConnectorError:
    return ConnectorError(
        f"{topic}[{partition}] no longer has the messages from offset {offset} on",
        detail="the topic's retention removed them, or the topic was created again",
        hint="restart the query",
    )
