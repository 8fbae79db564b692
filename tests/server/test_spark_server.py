"""`millstream serve --engine spark`: the same server over a Spark session."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

import millstream as ms
from tests.server.conftest import ServerProcess
from tests.server.test_server import raw

pytestmark = pytest.mark.spark


def test_clients_share_a_spark_session(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "none", engine="spark")
    try:
        db = server.client(patience=180)
        db.execute("CREATE STREAM s (k VARCHAR, v INT, t INT) ORDER BY t; CREATE TABLE names (k VARCHAR, name VARCHAR)")
        db.execute("INSERT INTO names VALUES ('a', 'Ann')")
        query = db.sql(
            "SELECT name, sum(v) AS total FROM TUMBLE(s, t, 10) AS w JOIN names AS n ON w.k = n.k "
            "GROUP BY name, window_end",
            name="q",
        )
        reader = query.subscribe(name="r")
        assert db.push("s", [("a", 1, 1), ("a", 2, 5), ("b", 9, 6), ("a", 4, 12)]).accepted == 4
        with psycopg.connect(server.conninfo(), autocommit=True) as client:
            assert client.execute("SELECT name FROM names").fetchall() == [("Ann",)]
            assert client.execute("SHOW QUERIES").fetchone()[0] == "q"  # type: ignore[index]
        status, told = raw(server, "GET", "/v1/queries/q/operators")
        assert (status, json.loads(told)["error"]) == (400, "UnsupportedError")
        assert json.loads(raw(server, "GET", "/v1/overview")[1])["count"] == 1
        db.finish()
        expected = [{"name": "Ann", "total": 3}, {"name": "Ann", "total": 4}]
        found = []
        while len(found) < 2:
            batch = reader.next(120)
            assert batch is not None
            found += batch.to_pylist()
        assert found == expected
        with pytest.raises(ms.MillstreamError, match=r"(?i)pause"):
            query.pause()
    finally:
        server.kill()
