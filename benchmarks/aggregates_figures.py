"""Figures 4 to 7 of the Stream Mill paper: what a row costs by window size, and what slides save."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import millstream as ms
from aggregates_native import BareAverage, BareItems, NativeAverage, NativeItems
from aggregates_sql import BATCH_ROWS, Chain, Data, session

SLIDES = (1, 10, 100, 1_000, 10_000, 20_000, 40_000)
SLIDE_RULES = "pane_slides,tumble_slides"
FIRST_CHUNK = 256
LONG_ENOUGH = 0.05
"""Seconds of a chunk that are measured well."""


@dataclass(frozen=True)
class Job:
    """One of the two aggregates in its four forms."""

    name: str
    argument: str
    native: Callable[[int], Any]
    bare: Callable[[int], Any]
    same: Callable[[pa.Array, pa.Array], bool]


def close_to(left: pa.Array, right: pa.Array) -> bool:
    return bool(np.allclose(left.to_numpy(zero_copy_only=False), right.to_numpy(zero_copy_only=False), rtol=1e-6))


AVERAGE = Job("avg", "price", NativeAverage, BareAverage, close_to)
ITEMS = Job("items", "item", NativeItems, BareItems, lambda left, right: bool(left.equals(right)))


def interleaved(works: dict[str, list[Callable[[], object]]], rounds: int) -> dict[str, float]:
    """The least seconds of a piece of work of each contender; all take turns, so that a disturbance meets all."""
    least = dict.fromkeys(works, float("inf"))
    for _ in range(rounds):
        for pieces in zip(*works.values(), strict=True):
            for name, work in zip(works, pieces, strict=True):
                start = time.perf_counter()
                work()
                least[name] = min(least[name], time.perf_counter() - start)
    return least


def growing(chain: Chain, data: Data, window: int, patience: float) -> float | None:
    """Seconds per row of something slow once its window is full, or None if filling it takes too long."""
    whole = data.together(chain.columns, window)
    chain.step(whole.slice(0, 1))
    at, size, least, measured, began = 1, FIRST_CHUNK, float("inf"), 0, time.perf_counter()
    while measured < 5 and at + size <= data.rows:
        full = at >= window
        part = whole.slice(at, at + size)
        start = time.perf_counter()
        chain.step(part)
        spent = time.perf_counter() - start
        at += size
        if full and (spent >= LONG_ENOUGH or size >= BATCH_ROWS):
            least = min(least, spent / size)
            measured += 1
        elif spent < LONG_ENOUGH:
            size = min(2 * size, BATCH_ROWS)
        elif spent > 4 * LONG_ENOUGH:
            size = max(1, size // 4)
        if time.perf_counter() - began > patience:
            break
    return least if measured else None


def check_same(job: Job, db: ms.Database, data: Data, window: int) -> None:
    """All forms give the same column, NULLs aside."""
    rows = min(4 * window + 1_000, data.rows, 20_000)
    results = {}
    for name, query in queries(job, window).items():
        chain = Chain(db, query)
        results[name] = chain.step(data.together(chain.columns, window).slice(0, rows)).rows.column(-1)
    for name, contender in (("B", job.native(window)), ("B, bare", job.bare(window))):
        results[name] = contender.step(data.whole.column(job.argument).slice(0, rows))
    for name, result in results.items():
        if not job.same(result, results["A"]):
            raise AssertionError(f"{name} and A differ, window {window}")


def queries(job: Job, window: int) -> dict[str, str]:
    over = f"OVER (ROWS {window - 1} PRECEDING)"
    return {
        "A": f"SELECT expiring_{job.name}({job.argument}) {over} AS result FROM bid",
        "C": f"SELECT keeping_{job.name}({job.argument}, num, size) AS result FROM bid",
        "D": f"SELECT naive_{job.name}({job.argument}) {over} AS result FROM bid",
    }


def by_window(job: Job, data: Data, windows: tuple[int, ...], rounds: int, patience: float) -> dict[str, list[Any]]:
    """Nanoseconds per row of every form for each window; None where filling the window would take too long."""
    found: dict[str, list[Any]] = {}
    hopeless: set[str] = set()
    for window in windows:
        db = session()
        texts = queries(job, window)
        if window <= 1_000:
            check_same(job, db, data, window)
        sql = Chain(db, texts["A"])
        contenders = {"A": sql, "B": job.native(window), "B, bare": job.bare(window)}
        batches = data.batches(sql.columns)
        works: dict[str, list[Callable[[], object]]] = {}
        for name, contender in contenders.items():
            inputs: list[Any] = batches if name == "A" else [batch.rows.column(0) for batch in batches]
            works[name] = [lambda step=contender.step, given=given: step(given) for given in inputs]
        interleaved(works, 1)
        row = {name: seconds / BATCH_ROWS for name, seconds in interleaved(works, rounds).items()}
        if job.name == "avg":
            row["A, whole engine"] = whole_engine(data, texts["A"])
        for name in ("C", "D"):
            slow = None if name in hopeless else growing(Chain(db, texts[name]), data, window, patience)
            if slow is None:
                hopeless.add(name)
            row[name] = slow  # type: ignore[assignment]
        for name, seconds in row.items():
            found.setdefault(name, []).append(None if seconds is None else seconds * 1e9)
        db.close()
        print(f"  window {window:,}: " + ", ".join(f"{k} {cost(v[-1])}" for k, v in found.items()), flush=True)
    return found


def whole_engine(data: Data, query: str) -> float:
    """Seconds per row through the in-process engine: a registered table in, a table out; the best of three."""
    least = float("inf")
    for _ in range(3):
        with session() as db:
            db.execute("DROP STREAM bid")
            db.register("bid", data.table, time="ts")
            start = time.perf_counter()
            table = db.sql(query).arrow()
            least = min(least, time.perf_counter() - start)
            assert len(table) == data.rows
    return least / data.rows


def by_slide(preceding: int, data: Data, slides: tuple[int, ...], rounds: int) -> dict[str, list[Any]]:
    """For each slide the values held and million rows per second, with the rules for slides and without them."""
    found: dict[str, list[Any]] = {}
    for slide in slides:
        text = f"SELECT sum(price) OVER (ROWS {preceding} PRECEDING SLIDE {slide}) AS total FROM bid"
        chains, works = {}, {}
        for name in ("panes", "delta"):
            with session() as db:
                if name == "delta":
                    db.execute(f"SET disable_rule = '{SLIDE_RULES}'")
                chain = chains[name] = Chain(db, text)
            works[name] = [lambda step=chain.step, b=b: step(b) for b in data.batches(chain.columns)]
        interleaved(works, 1)
        for name, chain in chains.items():
            most = 0
            for batch in data.batches(chain.columns)[:2]:
                chain.step(batch)
                most = max(most, chain.window_values())
            found.setdefault(f"{name}: values held", []).append(most)
        for name, seconds in interleaved(works, rounds).items():
            found.setdefault(f"{name}: M rows/s", []).append(BATCH_ROWS / seconds / 1e6)
        print(f"  slide {slide:,}: " + ", ".join(f"{k} {v[-1]:,.0f}" for k, v in found.items()), flush=True)
    return found


def cost(nanoseconds: float | None) -> str:
    return "–" if nanoseconds is None else f"{nanoseconds:,.1f} ns"
