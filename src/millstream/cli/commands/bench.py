"""`millstream bench`: how fast this machine is, beside DuckDB on the same file."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.failures import explained
from millstream.cli.options import Conf, Debug, EngineName, Master, pairs
from millstream.records import dataclass

if TYPE_CHECKING:
    from millstream.session.database import Database

_STANDING = 10_000
_WARM = 20_000
"""Rows, at most, with which each query runs first: then its code is compiled or being compiled."""


@dataclass(frozen=True)
class Workload:
    """A query over quotes, and what DuckDB is asked for the same rows, if it can be asked."""

    name: str
    query: str
    duckdb: str | None = None


WORKLOADS = (
    Workload(
        "filter",
        "SELECT symbol, price FROM quotes WHERE price > 250 AND volume > 1000",
        "SELECT symbol, price FROM quotes WHERE price > 250 AND volume > 1000",
    ),
    Workload(
        "average of the last 10 seconds, for each row",
        "SELECT symbol, avg(price) OVER (PARTITION BY symbol RANGE 10 SECONDS PRECEDING) AS mean FROM quotes",
        "SELECT symbol, avg(price) OVER (PARTITION BY symbol ORDER BY ts RANGE INTERVAL 10 SECONDS PRECEDING) AS mean"
        " FROM quotes",
    ),
    Workload(
        "count, sum, max per minute and symbol",
        "SELECT symbol, window_end, count(*) AS n, sum(volume) AS total, max(price) AS top"
        " FROM TUMBLE(quotes, ts, 1 MINUTE) GROUP BY symbol, window_end",
        "SELECT symbol, time_bucket(INTERVAL 1 MINUTE, ts) AS start, count(*) AS n, sum(volume) AS total,"
        " max(price) AS top FROM quotes GROUP BY symbol, start",
    ),
    Workload(
        "pattern: falling, then rising prices",
        "SELECT * FROM quotes MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts"
        " MEASURES FIRST(price) AS top, LAST(DOWN.price) AS bottom, LAST(UP.price) AS back PATTERN (A DOWN+ UP+)"
        " DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price))",
    ),
)


def bench(
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, help="Rows: quotes of 100 symbols.")] = 2_000_000,
    engine: Annotated[EngineName, typer.Option("--engine", "-e", help="Where queries run.")] = EngineName.embedded,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Number of runs; the best one counts.")] = 3,
    master: Master = None,
    conf: Conf = None,
    debug: Debug = False,
) -> None:
    """Measure a few queries on this machine, and DuckDB on the same Parquet file.

    DuckDB answers once, over a file that ends; a continuous query emits each row as soon as it is final. So DuckDB is a
    measure of the machine. Reading the file counts for both, starting the engine and compiling for neither.

    **Examples**

        millstream bench
        millstream bench --rows 10000000 --engine spark
    """
    with explained(debug):
        from tempfile import TemporaryDirectory

        import pyarrow as pa

        from millstream.cli.sessions import Wish, session
        from millstream.cli.terminal import errors, output, rows_table
        from millstream.connectors.generators.write import write_generated

        progress = errors()
        with TemporaryDirectory(prefix="millstream-bench-") as scratch:
            files = {}
            for name, count in (("warm", _warm(rows)), ("quotes", rows)):
                files[name] = Path(scratch) / f"{name}.parquet"
                write_generated("quotes", None, count, files[name], "parquet", seed=42, options={"rate": 10_000.0})
            wish = Wish(engine, master=master, conf=pairs(conf, "--conf"))
            measured = []
            with session(wish) as opened:
                database = opened.database
                for name, path in files.items():
                    database.register(name, str(path), time="ts")
                for workload in WORKLOADS:
                    progress.print(f"{workload.name} …", style="dim")
                    _run(database, workload.query.replace("quotes", "warm"))
                    given, seconds = best(partial(_run, database, workload.query), repeat)
                    peer = None
                    if workload.duckdb is not None:
                        peer = rows / best(partial(_ask_duckdb, workload.duckdb, files["quotes"]), repeat)[1]
                    measured.append((workload.name, given, rows / seconds, peer))
                progress.print(f"{_STANDING:,} standing queries …", style="dim")
                given, seconds = _standing(database, files["quotes"])
                measured.append(
                    (f"{_STANDING:,} standing queries: a symbol, a range of prices", given, rows / seconds, None)
                )
        names, counts, rates, peers = zip(*measured, strict=True)
        table = {
            "query": names,
            "rows out": [f"{count:,}" for count in counts],
            "rows/s": [f"{rate:,.0f}" for rate in rates],
            "DuckDB, rows/s": ["" if rate is None else f"{rate:,.0f}" for rate in peers],
        }
        output().print(rows_table(pa.table(table), f"{rows:,} quotes, {engine.value}, best of {repeat}"))


def best(run: Callable[[], int], repeat: int) -> tuple[int, float]:
    """What a run returns, and the seconds of the fastest one."""
    seconds, given = [], 0
    for _ in range(repeat):
        start = time.perf_counter()
        given = run()
        seconds.append(time.perf_counter() - start)
    return given, min(seconds)


def _warm(rows: int) -> int:
    return min(rows // 10, _WARM)


def _run(database: Database, query: str) -> int:
    return int(database.sql(query).arrow().num_rows)


def _ask_duckdb(query: str, path: Path) -> int:
    import pyarrow.parquet as pq

    from millstream import sealed_duckdb

    with sealed_duckdb.connect() as connection:
        connection.register("quotes", pq.read_table(path))
        return int(connection.sql(query).to_arrow_table().num_rows)


def _standing(database: Database, path: Path) -> tuple[int, float]:
    """Many queries of one shape over pushed rows: how many rows they emit, and how long they take."""
    import pyarrow.parquet as pq

    rows = pq.read_table(path)
    symbols = rows.column("symbol").unique().to_pylist()
    constants = [
        {"id": number, "symbol": symbols[number % len(symbols)], "low": low, "high": low + 5.0}
        for number in range(_STANDING)
        for low in [5.0 * (number // len(symbols))]
    ]
    database.execute("CREATE STREAM pushed (symbol VARCHAR, price DOUBLE, volume BIGINT, ts TIMESTAMP) ORDER BY ts")
    text = "SELECT symbol, price FROM pushed WHERE symbol = $symbol AND price >= $low AND price < $high"
    many = database.sql_many(text, constants, key="id")
    warm = rows.slice(0, _warm(rows.num_rows))
    database.push("pushed", warm)
    many.fetch()
    start = time.perf_counter()
    database.push("pushed", rows.slice(warm.num_rows))
    database.finish()
    return many.fetch().num_rows, time.perf_counter() - start
