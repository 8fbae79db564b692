"""Row patterns: against PyFlink and a loop by hand, what the shift tables of OPS save, and memory; all in one run.

    python benchmarks/patterns.py [--rows 10000000] [--only vshape,ops,memory] [--flink-rows 1000000]

vshape: `A DOWN+ UP+` over quotes of 1,000 symbols. The engine gets Arrow batches by push and gives Arrow; the loop by
hand is compiled by Numba and gets NumPy arrays; contenders take turns, and the least time counts. PyFlink reads fewer
rows, from CSV, with parallelism 2; it is installed below --cache the first time. Spark runs on local[2] and reads
Parquet files by the million. ops: the double bottom, as the papers have it, over random walks: tests of conditions, and
time, with the tables of OPS and without. memory: 100 M rows.
Machines are noisy: read the ratios.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from patterns_contenders import ByHand, embedded, flink, on_spark
from patterns_data import Quotes
from patterns_memory import watch_memory
from patterns_ops import compare_searches

PARTS = ("vshape", "ops", "memory")


def ratio(what: str, over: float | None, under: float | None, least: float) -> None:
    if over is None or under is None:
        print(f"  {what:<56}       –")
        return
    met = "" if over / under >= least else " NOT MET"
    print(f"  {what:<56} {over / under:8.2f}x   (wanted: at least {least:g}){met}", flush=True)


def note(name: str, rate: float | None, how: str = "") -> None:
    value = "       –" if rate is None else f"{rate / 1e6:8.3f}"
    print(f"  {name:<44} {value} M rows/s" + (f"   ({how})" if how else ""), flush=True)


def vshape(options: argparse.Namespace) -> None:
    print(f"A DOWN+ UP+, {options.rows:,} quotes of {options.symbols:,} symbols")
    quotes = list(Quotes(options.symbols).batches(options.rows))
    text = list(Quotes(options.symbols).batches(options.rows, text=True))
    arrays = [(batch["symbol"].to_numpy(), batch["price"].to_numpy()) for batch in quotes]
    hand = ByHand(options.symbols)
    hand.run(arrays[:2])
    embedded(quotes[:2])
    spent: dict[str, list[float]] = {}
    matches: set[int] = set()
    counted = options.rows - len(quotes[0])

    def take_turns(rounds: int) -> None:
        for _ in range(rounds):
            for name, run in (
                ("by hand in Numba", lambda: hand.run(arrays)),
                ("embedded", lambda: embedded(quotes)),
                ("embedded, symbols as text", lambda: embedded(text)),
            ):
                seconds, found = run()
                spent.setdefault(name, []).append(seconds)
                matches.add(found)

    take_turns(options.rounds)
    slow, how = (
        flink(options.flink_rows, options.symbols, options.flink, options.cache) if options.flink_rows else (None, "")
    )
    spark = None if options.no_spark else on_spark(options.rows, options.symbols)
    take_turns(1)
    if len(matches) != 1:
        sys.exit(f"contenders differ: {sorted(matches)} matches")
    rates = {name: counted / min(seconds) for name, seconds in spent.items()}
    for name, rate in rates.items():
        note(name, rate, f"best of {len(spent[name])}, {matches.copy().pop():,} matches")
    note("PyFlink, parallelism 2", slow, how)
    ratio("embedded / by hand", rates["embedded"], rates["by hand in Numba"], 0.25)
    ratio("embedded, symbols as text / by hand", rates["embedded, symbols as text"], rates["by hand in Numba"], 0.25)
    ratio("embedded / PyFlink", rates["embedded"], slow, 100)
    ratio("embedded, symbols as text / PyFlink", rates["embedded, symbols as text"], slow, 100)
    ratio("Spark, streaming / PyFlink", spark, slow, 8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--symbols", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--flink", type=Path, help="a Python that has apache-flink, instead of a new environment")
    parser.add_argument("--flink-rows", type=int, default=1_000_000, help="0: without PyFlink")
    parser.add_argument("--no-spark", action="store_true")
    parser.add_argument("--ops-rows", type=int, default=2_000_000)
    parser.add_argument("--memory-rows", type=int, default=100_000_000)
    parser.add_argument("--cache", type=Path, default=Path("out/patterns"), help="where PyFlink is installed")
    options = parser.parse_args()
    chosen = [part for part in options.only.split(",") if part]
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there is {', '.join(PARTS)}")
    if "vshape" in chosen:
        vshape(options)
    if "ops" in chosen:
        compare_searches(options.ops_rows)
    if "memory" in chosen:
        print(f"\nmemory over {options.memory_rows:,} quotes")
        watch_memory(options.memory_rows, options.symbols)


if __name__ == "__main__":
    main()
