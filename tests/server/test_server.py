"""Sessions behind HTTP: the same calls, the same rows, the same errors."""

from __future__ import annotations

import http.client
import json
import logging
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

import millstream as ms
from millstream.server.logs import JsonLines
from millstream.server.run import Address, check
from tests.server.conftest import TOKEN, ServerProcess

STREAM = "CREATE STREAM s (v INT, name VARCHAR, t INT) ORDER BY t"


def raw(server: ServerProcess, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request(method, path, body, {"Authorization": f"Bearer {TOKEN}", **headers})
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_clients_share_a_session(server: ServerProcess) -> None:
    one, two = server.client(), server.client()
    one.execute(STREAM)
    q = one.sql("SELECT v, name FROM s WHERE v > $low", name="große", params={"low": 1})
    assert (q.name, [each.name for each in two.queries()]) == ("große", ["große"])
    assert two.push("s", [(1, "a", 1), {"v": 2, "name": "ü", "t": 2}]) == ms.Counts(2, 0, 0)
    assert two.push("s", pa.table({"v": [3], "name": ["c"], "t": [3]})).accepted == 1
    assert two.push("s", [(4, "late", 0), ("x", "wrong", 5)]) == ms.Counts(0, 1, 1)
    assert two.query("große").fetch().to_pylist() == [{"v": 2, "name": "ü"}, {"v": 3, "name": "c"}]
    assert one.query("große").fetch().num_rows == 0
    assert q.schema == pa.schema([("v", pa.int32()), ("name", pa.string())])
    assert "Scan s" in q.explain()
    held = one.sql("SELECT count(*) AS n FROM s [RANGE 10]", name="held")
    two.push("s", [(5, "d", 6)])
    two.advance("s", 7)
    assert held.snapshot().to_pylist() == [{"n": 1}]
    assert [held.snapshot(7, window=f"RANGE {n}").to_pylist() for n in (1, 2)] == [[], [{"n": 1}]]
    q.stop()
    assert [each.name for each in two.queries()] == ["held"]
    one.execute("CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2)")
    assert one.sql("SELECT sum(a) AS x FROM t").fetch().to_pylist() == [{"x": 3}]


def test_a_webhook_feeds_a_server(server: ServerProcess) -> None:
    there = server.client()
    there.execute(STREAM)
    q = there.sql("SELECT v, name FROM s", name="q")
    url = f"connector = 'webhook', url = '{server.address}/v1/streams/s/rows', batch_rows = 2"
    with ms.connect() as here:
        here.execute(f"{STREAM}; CREATE SINK w WITH ({url}, \"header.authorization\" = 'Bearer {TOKEN}')")
        here.execute("INSERT INTO w SELECT v, name, t FROM s")
        here.push("s", [(n, "ü\n", n) for n in range(5)])
        here.finish()
    assert q.fetch().to_pylist() == [{"v": n, "name": "ü\n"} for n in range(5)]


def test_errors_arrive_as_they_are(server: ServerProcess) -> None:
    db = server.client()
    db.execute(STREAM)
    with pytest.raises(ms.BindError) as caught:
        db.sql("SELECT vv FROM s")
    assert caught.value.span is not None and "^^" in str(caught.value)
    with pytest.raises(ms.ParseError):
        db.execute("SELEC 1")
    with pytest.raises(ms.MillstreamError, match="no query nobody"):
        db.query("nobody")
    with pytest.raises(ms.MillstreamError, match="no stream"):
        db.push("unknown", [(1,)])
    with pytest.raises(ms.MillstreamError, match="cannot connect"):
        ms.connect("http://127.0.0.1:1")


def test_rows_come_in_many_forms(server: ServerProcess) -> None:
    db = server.client()
    db.execute(STREAM)
    q = db.sql("SELECT v FROM s")
    forms = {
        "application/x-ndjson": b'{"v": 1, "name": "a", "t": 1}\n\n{"v": 2, "name": "b", "t": 2}\n',
        "application/json": b'[{"v": 3, "name": "a", "t": 3}]',
        "text/csv": b"v,name,t\n4,x,4\n",
    }
    for kind, body in forms.items():
        assert raw(server, "POST", "/v1/streams/s/rows", body, **{"Content-Type": kind})[0] == 200
    assert q.fetch().column("v").to_pylist() == [1, 2, 3, 4]
    for kind, body in {**dict.fromkeys(forms, b"{"), "application/vnd.apache.arrow.stream": b"x", "a/b": b""}.items():
        status, told = raw(server, "POST", "/v1/streams/s/rows", body, **{"Content-Type": kind})
        assert status in (200, 400)
        assert status == 400 or json.loads(told)["accepted"] == 0
    db.push("s", [(5, "b", 5)])
    assert raw(server, "POST", f"/v1/queries/{q.name}/fetch", Accept="application/x-ndjson") == (200, b'{"v":5}\n')


def test_only_who_has_the_token_comes_in(server: ServerProcess) -> None:
    server.client()
    for token in (None, "", "wrong", TOKEN + "x"):
        with pytest.raises(ms.MillstreamError, match="token"):
            ms.connect(server.address, token=token)
    paths = ("/v1/queries", "/v1/execute", "/v1/streams/s/rows", "/v1/queries/q/rows")
    for path in paths:
        for method in ("GET", "POST", "DELETE"):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
            connection.request(method, path)
            assert connection.getresponse().status in (401, 405)
    assert raw(server, "GET", "/health")[0] == 200


def test_sql_of_clients_reaches_nothing(server: ServerProcess) -> None:
    db = server.client()
    for statement in (
        "CREATE STREAM f (line VARCHAR) SOURCE '/etc/passwd'",
        "SELECT * FROM read_text('/etc/passwd')",
        "COPY (SELECT 1) TO '/tmp/x'",
        "ATTACH '/tmp/x.db'",
        "INSTALL httpfs",
        "SET jit = 'off'",
        "CREATE STREAM k (a INT) WITH (connector = 'kafka', topic = 't', brokers = 'example.org:9092')",
    ):
        with pytest.raises(ms.MillstreamError):
            db.execute(statement)


def test_what_was_acknowledged_survives_a_kill(server: ServerProcess) -> None:
    db = server.client()
    db.execute(STREAM)
    db.sql("SELECT v, sum(v) OVER (ROWS UNBOUNDED PRECEDING) AS x FROM s", name="q")
    total = []
    for turn in range(3):
        db.push("s", [(v, "a", turn * 10 + v) for v in range(5)])
        if turn == 1:
            total += db.query("q").fetch().to_pylist()
        server.kill()
        server.start()
        db = server.client()
    total += db.query("q").fetch().to_pylist()
    assert [row["v"] for row in total] == [0, 1, 2, 3, 4] * 3
    assert total[-1]["x"] == 30
    # it ends in good order, and then as a process that was asked to
    assert server.end() == -signal.SIGTERM


def test_rows_are_streamed_as_they_come(server: ServerProcess) -> None:
    db = server.client()
    db.execute(STREAM)
    q = db.sql("SELECT v FROM s", name="q")
    seen: list[int] = []
    enough = threading.Event()

    def read() -> None:
        for batch in q.subscribe():
            seen.extend(batch["v"].to_pylist())
            if len(seen) >= 40:
                enough.set()

    threads = [threading.Thread(target=read, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    other = server.client()
    for v in range(20_000):
        other.push("s", [(v, "a", v)])
        if enough.wait(0.02):
            break
    assert enough.is_set()
    other.stop("q")
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def test_a_server_for_everybody_is_not_started() -> None:
    check(Address(), "a token")
    check(Address(), "")
    for address, token in ((Address(), None), (Address(), "short"), (Address("0.0.0.0"), "a token")):
        with pytest.raises(ms.MillstreamError):
            check(address, token)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_both_protocols_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    )
    subprocess.run([*command.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    server = ServerProcess(tmp_path / "kept", tls=(certificate, key))
    try:
        with monkeypatch.context() as trusting:
            trusting.setenv("SSL_CERT_FILE", str(certificate))
            server.client().execute(STREAM)
            conninfo = server.conninfo()
        with pytest.raises(ms.ConnectorError, match="certificate verify failed"):
            ms.connect(server.address, token=TOKEN)
        with psycopg.connect(f"{conninfo} sslmode=verify-full sslrootcert={certificate}", autocommit=True) as connected:
            assert connected.pgconn.ssl_in_use
            connected.execute("INSERT INTO s VALUES (1, 'a', 1)")
        with pytest.raises(psycopg.OperationalError, match="this server needs TLS"):
            psycopg.connect(f"{conninfo} sslmode=disable")
    finally:
        server.kill()


def test_the_log_is_lines_of_json_if_asked_for() -> None:
    try:
        raise ValueError("of no use")
    except ValueError:
        record = logging.LogRecord("millstream.server", logging.ERROR, "", 1, "%s failed", ("one",), sys.exc_info())
    told = json.loads(JsonLines().format(record))
    assert told["level"] == "error" and told["message"] == "one failed" and "of no use" in told["error"]
    assert "\n" not in JsonLines().format(record) and told["time"].endswith("Z")
