"""What the benchmarks on Spark share: Spark's own state stores, and streaming queries timed in turn."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
PROVIDERS = "org.apache.spark.sql.execution.streaming.state"

STORES = {
    "default store": f"{PROVIDERS}.HDFSBackedStateStoreProvider",
    "RocksDB": f"{PROVIDERS}.RocksDBStateStoreProvider",
}
"""Where Spark's own operators keep state: as it comes, and RocksDB with changelogs, as our sessions have it. The better
of the two counts."""

Make = Callable[[], Any]
"""Makes a streaming DataFrame, anew for each run."""


def on_stores(spark: Any, name: str, make: Make) -> dict[str, Make]:
    """A query of Spark's own operators, once for each store."""

    def on(provider: str) -> Make:
        def made() -> Any:
            spark.conf.set(PROVIDER, provider)
            return make()

        return made

    return {f"{name}, {store}": on(provider) for store, provider in STORES.items()}


def micro_batches(df: Any) -> list[float]:
    """Run a streaming query over all files: the seconds of each micro-batch with input."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
        writer = df.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        entries = [json.loads(entry.json) for entry in query.recentProgress]
    return [entry["durationMs"]["triggerExecution"] / 1000 for entry in entries if entry["numInputRows"]]


def in_turn(variants: Mapping[str, Make], rounds: int, warm: int = 1) -> dict[str, float]:
    """The median seconds of a micro-batch of each query. All run `warm` times to warm up, and then count, always in
    turn, so that other work of the machine meets all of them; the first micro-batch of each run does not count."""
    spent: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(warm + rounds):
        for name, make in variants.items():
            seconds = micro_batches(make())[1:]
            if number >= warm:
                spent[name] += seconds
    return {name: statistics.median(seconds) for name, seconds in spent.items()}


def files_of(size: int, most: int) -> int:
    """How many micro-batches of a size all queries run: fewer of large ones, but two that count."""
    return min(most, max(3, 10_000_000 // size))


def best_of(rates: Mapping[str, float], name: str) -> float | None:
    """The highest rate of a query on any store; None if it did not run."""
    found = [rate for known, rate in rates.items() if known.rpartition(", ")[0] == name]
    return max(found, default=None)
