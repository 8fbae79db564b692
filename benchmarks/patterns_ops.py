"""What optimised pattern search (OPS) saves beside a naive search by the same loops: tests of conditions, and time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

import millstream as ms
from millstream.expressions.evaluator import compile_arrow
from millstream.kernels import jit
from millstream.kernels.batch import FOREVER, Batch
from millstream.kernels.patterns.chain import ChainMachine
from millstream.kernels.patterns.machine import Found
from millstream.kernels.patterns.spec import MatchSpec
from millstream.physical.nodes import Apply, Compute, walk

SYMBOLS = 100
UNCHANGED = (0.0, 0.3, 0.6, 0.7, 0.8, 0.9)
"""Shares of rows that bring the price of the row before; those of real quotes are high."""
QUOTE = "CREATE STREAM quote (name BIGINT, price DOUBLE, time BIGINT, date TIMESTAMP) ORDER BY date"
DOUBLE_BOTTOM = """SELECT W.name, FIRST(W).time, FIRST(W).price, LAST(Z).time, LAST(Z).price FROM quote
    PARTITION BY name SEQUENCE BY date AS (*W, *X, *Y, *Z)
    WHERE W.price <= W.previous.price AND count(*W) >= 5 AND X.price >= X.previous.price AND count(*X) >= 5
      AND Y.price <= Y.previous.price AND count(*Y) >= 5 AND Z.price >= Z.previous.price AND count(*Z) >= 5"""
# That prices are positive makes a fall exclude a rise, which the tables need to know.
RELAXED = """SELECT X.name, X.time, S.time FROM quote PARTITION BY name SEQUENCE BY date
    AS (X, *Y, *Z, *T, *U, *V, *W, *R, S)
    WHERE X.price > 0 AND Y.price > 0 AND T.price > 0 AND R.price > 0 AND S.price > 0
      AND X.price >= 0.98 * X.previous.price AND Y.price < 0.98 * Y.previous.price
      AND Z.price > 0.98 * Z.previous.price AND Z.price < 1.02 * Z.previous.price AND T.price > 1.02 * T.previous.price
      AND U.price > 0.98 * U.previous.price AND U.price < 1.02 * U.previous.price AND V.price < 0.98 * V.previous.price
      AND W.price > 0.98 * W.previous.price AND W.price < 1.02 * W.previous.price AND R.price > 1.02 * R.previous.price
      AND S.price <= 1.02 * S.previous.price"""
SEARCHED, TEXT = "abcabcacab", "babcbabcabcaabcabcabcacabc"


@dataclass(frozen=True)
class Outcome:
    """What a search found, and the processor time that took: all of the kernel, and the search alone, without keeping
    rows."""

    matches: int
    tests: int
    seconds: float
    searching: float


class TimedMachine(ChainMachine):
    """Tells how long it has searched."""

    spent = 0.0

    def advance(self, *given: Any) -> Found:
        began = time.thread_time()
        found = super().advance(*given)
        self.spent += time.thread_time() - began
        return found


class Searcher:
    """A query whose pattern is searched for with the tables of OPS or without, by the kernel alone."""

    def __init__(self, declaration: str, query: str) -> None:
        with ms.connect() as db:
            db.execute(declaration)
            plan = db.prepare(query).plan
        found = next(node for node in walk(plan) if isinstance(node, Apply) and isinstance(node.spec, MatchSpec))
        self.spec: Any = found.spec
        below = found.inputs[0]
        self._columns = below.columns if isinstance(below, Compute) else None
        self._input = below.inputs[0].schema if isinstance(below, Compute) else below.schema

    def batches(self, table: pa.Table, times: np.ndarray, size: int = 262_144) -> list[Batch]:
        """The rows as the kernel gets them: with what a row alone decides already computed."""
        return list(self._cut(table, times, size))

    def _cut(self, table: pa.Table, times: np.ndarray, size: int) -> Iterator[Batch]:
        for low in range(0, table.num_rows, size):
            rows = table.slice(low, size).select(list(self._input.names)).combine_chunks().to_batches()[0]
            rows = pa.RecordBatch.from_arrays(rows.columns, schema=self._input.arrow)
            if self._columns is not None:
                made = compile_arrow(tuple(expr for _, expr in self._columns), self._input)(rows)
                rows = pa.RecordBatch.from_arrays(made, schema=self.spec.input.arrow)
            own = times[low : low + size]
            yield Batch(rows, own, np.arange(low, low + len(own)), int(own[-1]))

    def run(self, batches: list[Batch], shifting: bool, counting: bool = False) -> Outcome:
        kernel = self._kernel(shifting, counting)
        state = kernel.open()
        kernel.machine.spent = 0.0
        began = time.thread_time()
        matches = sum(len(kernel.step(state, batch)) for batch in batches)
        matches += len(kernel.step(state, Batch.empty(batches[0].rows.schema, FOREVER)))
        return Outcome(matches, state.machine.evaluations, time.thread_time() - began, kernel.machine.spent)

    @cache  # noqa: B019 - there are a few searchers, which live as long as the program
    def _kernel(self, shifting: bool, counting: bool) -> Any:
        kernel = self.spec.build()
        kernel.machine = TimedMachine(self.spec.search, shifting=shifting, counting=counting)
        return kernel


def walks(rows: int, unchanged: float, step: float) -> tuple[pa.Table, np.ndarray]:
    """Random walks of some symbols that take turns; a move is about `step` of the price, or none at all."""
    random = np.random.default_rng(11)
    days = rows // SYMBOLS
    moves = random.normal(0, step, (days, SYMBOLS))
    moves[random.random((days, SYMBOLS)) < unchanged] = 0.0
    price = 100 * np.exp(np.cumsum(moves, axis=0)).ravel()
    name = np.tile(np.arange(SYMBOLS), days)
    day = np.repeat(np.arange(days), SYMBOLS)
    times = np.arange(days * SYMBOLS, dtype=np.int64) * 1_000
    columns = {"name": name, "price": price, "time": day, "date": pa.array(times).cast(pa.timestamp("us"))}
    return pa.table(columns), times


def compare_searches(rows: int, rounds: int = 5) -> None:
    """Print what the tables save on double bottoms and on a text, beside the naive search."""
    with jit.using("on", threads=1):
        for title, query, step in (("T7", DOUBLE_BOTTOM, 0.01), ("relaxed, 2 %", RELAXED, 0.01)):
            print(f"\ndouble bottom ({title}) over random walks, {rows:,} rows; per row (wanted: 5x and 2x)")
            groups = ("conditions tested", "search alone, ns", "whole kernel, ns")
            print(" " * 12 + "   ".join(f"{group:^26}" for group in groups))
            print(f"  {'unchanged':>9} " + "   ".join(["   naive      OPS    ratio"] * 3) + "   matches")
            searcher = Searcher(QUOTE, query)
            for unchanged in UNCHANGED:
                _compare(searcher, rows, unchanged, step, rounds)
        _compare_text()


def _compare(searcher: Searcher, rows: int, unchanged: float, step: float, rounds: int) -> None:
    batches = searcher.batches(*walks(rows, unchanged, step))
    ways = {True: "OPS", False: "naive"}
    tests = {}
    found = set()
    for shifting in ways:
        counted = searcher.run(batches, shifting, counting=True)
        tests[shifting] = counted.tests / rows
        found.add(counted.matches)
        searcher.run(batches[:1], shifting)
    outcomes: dict[bool, list[Outcome]] = {shifting: [] for shifting in ways}
    for _ in range(rounds):
        for shifting in ways:
            outcomes[shifting].append(searcher.run(batches, shifting))
            found.add(outcomes[shifting][-1].matches)
    if len(found) != 1:
        raise SystemExit(f"the searches differ: {sorted(found)} matches")
    searching = {way: min(one.searching for one in all_) / rows * 1e9 for way, all_ in outcomes.items()}
    kernel = {way: min(one.seconds for one in all_) / rows * 1e9 for way, all_ in outcomes.items()}
    figures = "   ".join(
        f"{of[False]:>8.2f} {of[True]:>8.2f} {of[False] / of[True]:>7.2f}x" for of in (tests, searching, kernel)
    )
    print(f"  {unchanged:>9.0%} {figures}   {found.pop():,}", flush=True)


def _compare_text() -> None:
    """The example of Knuth, Morris and Pratt: comparisons of letters."""
    variables = [f"v{number}" for number in range(len(SEARCHED))]
    conditions = " AND ".join(f"{v}.letter = '{letter}'" for v, letter in zip(variables, SEARCHED, strict=True))
    query = f"SELECT v0.place, v9.place AS until FROM letters AS ({', '.join(variables)}) WHERE {conditions}"
    searcher = Searcher("CREATE STREAM letters (letter VARCHAR, place BIGINT) ORDER BY place", query)
    print(f"\n{SEARCHED} in a text; comparisons")
    for name, text in ((TEXT, TEXT), ("abcabcaca repeated", "abcabcaca" * 10_000)):
        table = pa.table({"letter": list(text), "place": np.arange(len(text))})
        batches = searcher.batches(table, np.arange(len(text), dtype=np.int64))
        naive, shifting = (searcher.run(batches, way, counting=True) for way in (False, True))
        most = 2 * (len(text) + len(SEARCHED))
        print(
            f"  {name:<28} naive {naive.tests:>9,}   OPS {shifting.tests:>9,}   "
            f"(wanted: at most 2 (m + n) = {most:,}; {shifting.matches} of {naive.matches} matches)"
        )
