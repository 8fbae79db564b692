"""Kernels in streaming queries: a stateful processor of Spark that runs one kernel per bucket."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming import StatefulProcessor

from millstream.errors import StateError
from millstream.hosts.spark import blobs
from millstream.hosts.spark.state import Head, Store, keep_live, live_state
from millstream.hosts.spark.steps import kernel_of
from millstream.kernels.batch import BEGIN, Batch
from millstream.kernels.contract import KernelSpec

OUTPUT = "blob BINARY"


class KernelProcessor(StatefulProcessor):  # type: ignore[misc]
    """Rows wait until the watermark has passed them, then go through the kernel in order of time.

    With `latent` time there is nothing to wait for: the order of arrival is the order of time.
    """

    def __init__(self, spec: KernelSpec, buckets: int, per_ms: int, latent: bool) -> None:
        self._spec = spec
        self._per_ms = per_ms
        self._latent = latent
        self._fingerprint = fingerprint_of(spec, buckets)

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._store = Store(handle)

    def handleInputRows(self, key: Any, rows: Iterable[Any], timerValues: Any) -> Iterator[Any]:
        arrived = [
            (int(port), bool(fresh), bytes(blob))
            for frame in rows
            for port, fresh, blob in zip(frame["port"], frame["fresh"], frame["blob"], strict=True)
        ]
        yield from self._advance(int(key[0]), arrived, timerValues.getCurrentWatermarkInMs(), fired=False)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        yield from self._advance(int(key[0]), [], timerValues.getCurrentWatermarkInMs(), fired=True)

    def close(self) -> None: ...

    def _advance(
        self, bucket: int, arrived: list[tuple[int, bool, bytes]], watermark: int, fired: bool
    ) -> Iterator[Any]:
        head = self._store.head() or Head(self._fingerprint)
        if head.fingerprint != self._fingerprint:
            raise StateError(
                "the checkpoint belongs to another query",
                detail="a kernel, its columns or the number of buckets changed since the state was saved",
                hint="start with a new checkpoint directory",
            )
        layouts = [blobs.layout_of(schema) for schema in self._spec.inputs]
        ready: list[list[pa.RecordBatch]] = [[] for _ in layouts]
        upto = self._sort_arrivals(head, arrived, watermark, layouts, ready)
        changed = bool(arrived)
        if upto > head.upto:
            for port, blob in self._store.due(head, upto):
                self._release(head, port, blobs.decode(blob, layouts[port]), upto, ready)
            inputs = [
                blobs.in_order(part, layout) if part else None for part, layout in zip(ready, layouts, strict=True)
            ]
            stepped, output = self._step(head, bucket, inputs, upto)
            yield from output
            changed = changed or stepped
        if not self._latent:
            # Spark wakes the bucket when the watermark moves again, with or without rows for it
            if head.timer >= 0 and not fired:
                self._handle.deleteTimer(head.timer)
            head.timer = max(watermark, 0) + 1
            self._handle.registerTimer(head.timer)
            changed = True
        if changed:
            self._store.put_head(head)

    def _sort_arrivals(
        self,
        head: Head,
        arrived: list[tuple[int, bool, bytes]],
        watermark: int,
        layouts: list[pa.Schema],
        ready: list[list[pa.RecordBatch]],
    ) -> int:
        """Divide what arrived into rows that are ready, rows that wait and rows that came too late; how far time is."""
        if self._latent:
            upto = head.upto
            for port, _, blob in arrived:
                rows = blobs.decode(blob, layouts[port])
                ready[port].append(rows)
                upto = max(upto, int(blobs.times(rows).max()) + 1)
            return upto
        # Spark's watermark starts at zero, which says nothing yet
        upto = watermark * self._per_ms if watermark > 0 else BEGIN
        for port, fresh, blob in arrived:
            rows = blobs.decode(blob, layouts[port])
            if fresh and upto > BEGIN:
                in_time = blobs.times(rows) >= upto
                if not in_time.all():
                    head.late += int((~in_time).sum())
                    rows = rows.filter(pa.array(in_time))
            self._release(head, port, rows, upto, ready)
        return upto

    def _release(
        self, head: Head, port: int, rows: pa.RecordBatch, upto: int, ready: list[list[pa.RecordBatch]]
    ) -> None:
        """Rows below `upto` are ready, the others wait."""
        time = blobs.times(rows)
        below = time < upto
        if below.all():
            if rows.num_rows:
                ready[port].append(rows)
            return
        if below.any():
            ready[port].append(rows.filter(pa.array(below)))
            rows, time = rows.filter(pa.array(~below)), time[~below]
        self._store.hold(head, port, int(time.min()), blobs.encode(rows))

    def _step(self, head: Head, bucket: int, inputs: list[pa.RecordBatch | None], upto: int) -> tuple[bool, list[Any]]:
        """Step the kernel over every port; whether the state must be saved, and the packed output."""
        import pandas as pd

        kernel, layout = kernel_of(self._spec), blobs.layout_of(self._spec.output)
        live = live_state(kernel, self._store, head, bucket)
        out = []
        for port, rows in enumerate(inputs):
            schema = self._spec.inputs[port]
            batch = Batch.empty(schema.arrow, upto, port) if rows is None else blobs.to_batch(rows, schema, upto, port)
            given = kernel.step(live.state, batch)
            if len(given):
                out.append(blobs.encode(blobs.from_batch(given, layout)))
        # a heartbeat that brought nothing out may as well be forgotten: the next one says more
        stepped = bool(out) or any(rows is not None for rows in inputs)
        if stepped:
            head.upto = upto
            snapshot = kernel.snapshot(live.state)
            self._store.put_snapshot(head, live.saved, snapshot)
            live.saved = snapshot
        keep_live(head, bucket, live)
        return stepped, [pd.DataFrame({"blob": out})] if out else []


def fingerprint_of(spec: KernelSpec, buckets: int) -> str:
    """Equal for kernels that can continue each other's state."""
    return hashlib.sha256(f"{buckets} {spec!r}".encode()).hexdigest()[:16]
