"""Clients of PostgreSQL that are not libraries of Python here: pgjdbc (DBeaver), dbt, and DuckDB's postgres extension.

`make clients` installs them; without one of them its test is skipped.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.conftest import TOKEN, ServerProcess
from tests.server.test_postgres import DECLARED, FIRST

BEGIN = dt.datetime(2026, 1, 1)
ROOT = Path(__file__).parents[2]
CLIENTS = Path(os.environ.get("MILLSTREAM_CLIENTS", ROOT / "out" / "clients"))
JAR = next(CLIENTS.glob("postgresql-*.jar"), None)
EXTENSION = next(CLIENTS.glob("lib/python*/site-packages/duckdb_extension_*/extensions/*/*.duckdb_extension"), None)


def run(*command: object, **environment: str) -> str:
    told = subprocess.run(
        [str(part) for part in command], env={**os.environ, **environment}, capture_output=True, text=True, timeout=240
    )
    assert told.returncode == 0, told.stdout + told.stderr
    return told.stdout


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    running = ServerProcess(tmp_path_factory.mktemp("clients") / "kept")
    running.client().execute(DECLARED)
    yield running
    running.kill()


@pytest.mark.skipif(JAR is None or shutil.which("java") is None, reason="pgjdbc is not there: make clients")
def test_dbeaver_and_other_java_tools(server: ServerProcess) -> None:
    db = server.client()
    db.execute("CREATE TABLE keyed (id INT, kind VARCHAR, note VARCHAR NOT NULL, PRIMARY KEY (id, kind))")
    program = Path(__file__).parent / "clients" / "Jdbc.java"
    told = run("java", "-cp", JAR, program, f"jdbc:postgresql://127.0.0.1:{server.postgres}/millstream", "admin", TOKEN)
    assert "FAILED" not in told, told  # a query on the catalog
    found = dict(line.split(": ", 1) for line in told.splitlines() if ": " in line)
    assert {name: found[name] for name in EXPECTED} == EXPECTED
    assert found["types"] == "true" and found["columns"].startswith(
        "a int4 4 10 0 YES 1, b numeric 2 10 2 YES 2, c bool"
    )
    assert [line for line in told.splitlines() if line.startswith("prepared")] == [
        "prepared: 1 2.50 true 2026-01-02 0.5 ü'x 2026-01-02T03:04:05Z"  # as text, and in binary form
    ] * 2
    assert found["error"].endswith('"nothing" not found in FROM clause!')


EXPECTED = {
    "product": "PostgreSQL 16, valid true",
    "catalogs": "millstream",
    "schemas": "information_schema, pg_catalog, public",
    "tables": "keyed TABLE, s TABLE, t TABLE, busy VIEW",
    "key": "id 1, kind 2",
    "row id": "id, kind",
    "indexes": "id f, kind f",
    "from": "numeric 10 2",
    "batch": "[1, 1, 1]",
    "view": "3",
    "fetched": "49995000",
    "copied in": "1",
    "copied out": "4 0 1 2 9",
    "cancelled": "57014",
}


@pytest.mark.skipif(not (CLIENTS / "bin" / "dbt").exists(), reason="dbt is not there: make clients")
def test_dbt(server: ServerProcess, tmp_path: Path) -> None:
    db = server.client()
    db.execute("CREATE STREAM quotes (symbol VARCHAR, price DOUBLE, ts TIMESTAMP) ORDER BY ts KEEP ALL")
    project = tmp_path / "project"
    shutil.copytree(ROOT / "examples" / "dbt", project)

    def dbt(*command: str) -> str:
        where = ["--project-dir", project, "--profiles-dir", project]
        known = {
            "MILLSTREAM_PORT": str(server.postgres),
            "MILLSTREAM_TOKEN": TOKEN,
            "DBT_SEND_ANONYMOUS_USAGE_STATS": "0",
        }
        return run(CLIENTS / "bin" / "dbt", *command, *where, "--no-use-colors", **known)

    db.push("quotes", [("ACME", 20.0, BEGIN), ("ACME", 21.0, BEGIN), ("BETA", 5.0, BEGIN), ("GAMMA", 1.0, BEGIN)])
    assert "All checks passed!" in dbt("debug")
    assert "PASS=2 WARN=0 ERROR=0" in dbt("run")
    assert db.execute("SELECT * FROM report").fetch().to_pylist() == []  # rows from before are in HISTORY(quotes) only
    late = BEGIN + dt.timedelta(seconds=1)
    db.push("quotes", [("ACME", 22.0, late), ("ACME", 30.0, late), ("BETA", 7.0, late)])
    db.push("quotes", [("GAMMA", 1.0, BEGIN + dt.timedelta(seconds=2))])  # a snapshot has what is final
    # the view goes on with what it has, the table is made anew
    assert "PASS=2 WARN=0 ERROR=0" in dbt("run")
    assert db.execute("SELECT * FROM report").fetch().to_pylist() == [{"symbol": "ACME", "n": 2}]
    assert "PASS=3 WARN=0 ERROR=0" in dbt("test")
    assert "Catalog written" in dbt("docs", "generate")
    (project / "models" / "broken.sql").write_text("select nothing from {{ ref('by_symbol') }}")
    with pytest.raises(AssertionError, match="nothing"):
        dbt("run", "--select", "broken")


@pytest.mark.skipif(EXTENSION is None, reason="DuckDB's postgres extension is not there: make clients")
def test_duckdb_attaches_the_server(server: ServerProcess) -> None:
    program = """
import sys, duckdb
db = duckdb.connect()
db.execute(f"LOAD '{sys.argv[1]}'")
db.execute(f"ATTACH '{sys.argv[2]}' AS m (TYPE postgres)")
for text in sys.argv[3:]:
    print(db.execute(text).fetchall())
"""
    db, later = server.client(), dt.datetime(2027, 1, 1)
    db.push("s", [(at, f"name {at}", later) for at in range(5000)])
    db.push("s", [(5000, "last", later + dt.timedelta(seconds=1))])
    asked = {
        "SELECT count(*) FROM duckdb_columns() WHERE database_name = 'm' AND table_name IN ('t', 'busy', 's')": [(13,)],
        "SELECT * EXCLUDE (h) FROM m.t WHERE a = 1": [FIRST[:7] + FIRST[8:]],
        "SELECT h = TIMESTAMPTZ '2026-01-02 03:04:05Z' FROM m.t WHERE b > 2 AND f LIKE 'ü%' LIMIT 1": [(True,)],
        "SELECT n FROM m.busy": [(5001,)],
        "SELECT count(*), max(v) FROM postgres_query('m', 'SELECT v FROM HISTORY(s) WHERE v > 100')": [(4900, 5000)],
        "SELECT t.a, b.n FROM m.t AS t, m.busy AS b WHERE t.a = 1": [(1, 5001)],
        "INSERT INTO m.s VALUES (7, 'from DuckDB', TIMESTAMP '2027-01-01 00:00:02')": [(1,)],
        "SELECT v, name FROM postgres_query('m', 'SELECT v, name FROM HISTORY(s) ORDER BY ts DESC LIMIT 1')": [
            (7, "from DuckDB")
        ],
    }
    place = server.conninfo().replace("'", "''")
    told = run(CLIENTS / "bin" / "python", "-c", program, EXTENSION, place, *asked).splitlines()
    assert dict(zip(asked, told, strict=True)) == {text: repr(rows) for text, rows in asked.items()}
