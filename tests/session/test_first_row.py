"""A fresh process answers soon: what its first rows do not need is not imported."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import sys
import millstream as ms
print(*sorted({"numpy", "pyarrow", "sqlglot"} & sys.modules.keys()))
db = ms.connect()
db.execute("CREATE STREAM s (k BIGINT, v BIGINT, t BIGINT) ORDER BY t")
queries = [
    db.sql("SELECT k, v * 2 AS w FROM s WHERE v > 1"),
    db.sql("SELECT k, sum(v) OVER (PARTITION BY k ORDER BY t ROWS 3 PRECEDING) AS w FROM s"),
    db.sql("SELECT k, count(*) AS n FROM s [RANGE 5] GROUP BY k"),
]
db.push("s", [(1, 2, 3), (1, 3, 9)])
print(*(query.fetch().num_rows for query in queries))
unwanted = {"asyncio", "duckdb", "hypothesis", "numba", "numpy.ma", "pandas", "pyspark", "rich", "typer"}
print(*sorted(unwanted & sys.modules.keys()))
"""


def test_first_rows_need_neither_compiler_nor_database() -> None:
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": path, "MILLSTREAM_JIT": "auto"},
    )
    assert done.stdout.splitlines() == ["", "2 2 1", ""]
