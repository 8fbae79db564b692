"""PyFlink's MATCH_RECOGNIZE over the same quotes; run by a Python of its own that has apache-flink.

    python benchmarks/patterns_flink.py FEW MANY

FEW and MANY are folders of CSV files (symbol, price, ts). Printed are, for each form of the query, the seconds of both
and the matches in the first, as JSON. The job over the few rows comes first, to warm up, and again to tell what
starting a job costs; so does one that only reads, since reading text is no part of the comparison.

Flink knows no PREV, so a row is compared with the last one of its variable, or with what LAG gave it beforehand: both
forms run, and the faster one counts. Its patterns may not end in a greedy variable: the row that ends the rise is a
variable of its own, and the next match may begin there.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

QUOTES = """CREATE TABLE {name} (symbol BIGINT, price DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
    WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv')"""
NOWHERE = (
    "CREATE TABLE nowhere (symbol BIGINT, top DOUBLE, bottom DOUBLE, back DOUBLE) WITH ('connector' = 'blackhole')"
)
MATCHES = """SELECT symbol, top, bottom, back FROM {rows} MATCH_RECOGNIZE (
    PARTITION BY symbol ORDER BY ts
    MEASURES A.price AS top, LAST(DOWN.price) AS bottom, LAST(UP.price) AS back
    ONE ROW PER MATCH AFTER MATCH SKIP TO FIRST BEHIND
    PATTERN (A DOWN+ UP+ BEHIND)
    DEFINE {define})"""
BY_VARIABLE = """DOWN AS price < LAST(DOWN.price, 1) OR (LAST(DOWN.price, 1) IS NULL AND price < A.price),
    UP AS price > LAST(UP.price, 1) OR (LAST(UP.price, 1) IS NULL AND price > LAST(DOWN.price)),
    BEHIND AS price <= LAST(UP.price)"""
LAGGED = "(SELECT symbol, price, ts, LAG(price) OVER (PARTITION BY symbol ORDER BY ts) AS was FROM {name})"
BY_LAG = "DOWN AS price < was, UP AS price > was, BEHIND AS price <= was"
FORMS = {"by variable": ("{name}", BY_VARIABLE), "by LAG": (LAGGED, BY_LAG)}


ROUNDS = ("few", "few", "many")


def seconds_of(tables: Any, query: str) -> float:
    began = time.perf_counter()
    tables.execute_sql("INSERT INTO nowhere " + query).wait()
    return time.perf_counter() - began


def main(few: str, many: str) -> None:
    from pyflink.table import EnvironmentSettings, TableEnvironment

    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("parallelism.default", "2")
    tables.execute_sql(NOWHERE)
    for name, path in {"few": few, "many": many}.items():
        tables.execute_sql(QUOTES.format(name=name, path=path))
    told = {"reading": {name: seconds_of(tables, f"SELECT symbol, price, price, price FROM {name}") for name in ROUNDS}}
    for form, (rows, define) in FORMS.items():
        queries = {name: MATCHES.format(rows=rows.format(name=name), define=define) for name in ("few", "many")}
        seconds = {name: seconds_of(tables, queries[name]) for name in ROUNDS}
        with tables.execute_sql(queries["few"]).collect() as results:
            told[form] = {**seconds, "matches": sum(1 for _ in results)}
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:3])
