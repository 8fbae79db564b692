"""Who looks for `A DOWN+ UP+` in quotes: this engine, in-process and on Spark, a loop by hand, and PyFlink."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import millstream as ms
from patterns_data import Quotes, write_csv, write_parquet

FLINK = "2.3.0"
STREAM = "CREATE STREAM quotes (symbol {key}, price DOUBLE, ts TIMESTAMP) ORDER BY ts{source}"
QUERY = """SELECT * FROM quotes MATCH_RECOGNIZE (
    PARTITION BY symbol ORDER BY ts
    MEASURES FIRST(price) AS top, LAST(DOWN.price) AS bottom, LAST(UP.price) AS back
    ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
    PATTERN (A DOWN+ UP+)
    DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price))"""


def embedded(batches: Sequence[pa.RecordBatch]) -> tuple[float, int]:
    """Seconds for all batches but the first, from push to the rows in hand, and how many matches there are."""
    key = "VARCHAR" if pa.types.is_string(batches[0].schema.field("symbol").type) else "BIGINT"
    with ms.connect() as db:
        db.execute(STREAM.format(key=key, source=""))
        query = db.sql(QUERY)
        db.push("quotes", batches[0])
        found = query.fetch().num_rows
        began = time.perf_counter()
        for batch in batches[1:]:
            db.push("quotes", batch)
        found += query.fetch().num_rows
        seconds = time.perf_counter() - began
        db.finish()
        return seconds, found + query.fetch().num_rows


def by_hand() -> Callable[..., Any]:
    """A loop for exactly this pattern, compiled: symbols are small whole numbers, there are no NULLs, no disorder."""
    import numba as nb

    @nb.njit(nogil=True)
    def search(symbol, price, stage, before, top, bottom, out_symbol, out_top, out_bottom, out_back):  # type: ignore[no-untyped-def]
        found = 0
        for i in range(len(symbol)):
            s = symbol[i]
            now, was = price[i], before[s]
            before[s] = now
            at = stage[s]
            if at == 3 and now > was:
                continue
            if at != 0 and now < was and at != 3:
                stage[s] = 2
                bottom[s] = now
                continue
            if at == 2 and now > was:
                stage[s] = 3
                continue
            if at == 3:
                out_symbol[found], out_top[found] = s, top[s]
                out_bottom[found], out_back[found] = bottom[s], was
                found += 1
            stage[s] = 1
            top[s] = now
        return found

    return search


class ByHand:
    """The loop over NumPy arrays, batch by batch."""

    def __init__(self, symbols: int) -> None:
        self.symbols = symbols
        self.loop = by_hand()

    def run(self, batches: Sequence[tuple[np.ndarray, np.ndarray]], at_end: bool = True) -> tuple[float, int]:
        """Seconds for all batches but the first, and how many matches there are; those that the end of the rows ends
        only if `at_end`."""
        stage = np.zeros(self.symbols, np.int8)
        before, top, bottom = np.zeros(self.symbols), np.zeros(self.symbols), np.zeros(self.symbols)
        most = max(len(symbol) for symbol, _ in batches)
        found, began = 0, time.perf_counter()
        for number, (symbol, price) in enumerate(batches):
            if number == 1:
                began = time.perf_counter()
            out = (np.empty(most, np.int64), np.empty(most), np.empty(most), np.empty(most))
            found += self.loop(symbol, price, stage, before, top, bottom, *out)
        return time.perf_counter() - began, found + (int((stage == 3).sum()) if at_end else 0)


def flink(rows: int, symbols: int, python: Path | None, cache: Path) -> tuple[float | None, str]:
    """Rows per second of PyFlink with parallelism 2, and how that came about."""
    if python is None:
        try:
            python = install(cache / f"flink-{FLINK}")
        except (subprocess.SubprocessError, OSError) as failure:
            return None, f"not installed: {_last_words(failure)}"
    few = max(rows // 10, 1_000)
    with tempfile.TemporaryDirectory() as directory:
        folders = {name: Path(directory) / name for name in ("few", "many")}
        write_csv(folders["few"], few, symbols)
        write_csv(folders["many"], rows, symbols)
        program = Path(__file__).with_name("patterns_flink.py")
        try:
            printed = _run([str(python), str(program), *map(str, folders.values())])
            told = json.loads(printed.splitlines()[-1])
        except (subprocess.SubprocessError, OSError, ValueError, IndexError) as failure:
            return None, f"did not run: {_last_words(failure)}"
    quotes = [(batch["symbol"].to_numpy(), batch["price"].to_numpy()) for batch in Quotes(symbols).batches(few)]
    found = ByHand(symbols).run(quotes, at_end=False)[1]
    rates = {}
    reading = told.pop("reading")
    for form, each in told.items():
        if each["matches"] != found:
            sys.exit(f"PyFlink {form} found {each['matches']} matches in {few:,} quotes, the loop by hand {found}")
        # what both jobs have in common is starting them; reading text does not count
        spent = each["many"] - each["few"] - max(reading["many"] - reading["few"], 0.0)
        rates[form] = (rows - few) / max(spent, 1e-9)
    best = max(rates, key=lambda form: rates[form])
    return rates[best], f"{rows:,} rows; " + ", ".join(f"{form} {rate:,.0f} rows/s" for form, rate in rates.items())


def install(folder: Path) -> Path:
    """A Python that has apache-flink, which wants other versions of what is needed here; made once."""
    python = folder / "bin" / "python"
    done = folder / "installed"
    if not done.exists():
        print("  installing apache-flink (some minutes, once)", flush=True)
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"apache-flink=={FLINK}"])
        done.touch()
    return python


def _run(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=1_800).stdout


def _last_words(failure: Exception) -> str:
    return str(getattr(failure, "stderr", "") or failure).strip()[-300:]


def on_spark(rows: int, symbols: int, files: int = 20, per_trigger: int = 10) -> float:
    """Rows per second of the Spark host on local[2], streaming, from declared Parquet files."""
    from millstream.hosts.spark.session import get_session
    from millstream.spark import Millstream
    from spark import Bench

    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory) / "quotes"
        write_parquet(folder, rows, symbols, files)
        spark = get_session("local[2]", {"spark.millstream.filesPerTrigger": str(per_trigger)})
        try:
            m = Millstream(spark)
            source = f" WITH (connector = 'file', path = '{folder}', follow = TRUE)"
            m.execute(STREAM.format(key="BIGINT", source=source))
            bench = Bench(spark, folder, rows, files, per_trigger)
            bench.stream("Spark host, local[2], streaming", lambda: m.sql(QUERY))
            return next(iter(bench.results.values()))
        finally:
            spark.stop()
