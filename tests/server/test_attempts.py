"""What strangers and clients try at a server, and what it says: no."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import time
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
import uvicorn

import millstream as ms
from millstream.server.accounts import Accounts
from millstream.server.app import Service
from millstream.server.patience import PatientProtocol
from tests.server.conftest import TOKEN, ServerProcess

STATEMENTS = [
    "SELECT * FROM read_text('{file}')",
    "SELECT * FROM '{file}'",
    "SELECT content FROM glob('{folder}/*'), read_blob('{file}')",
    "CREATE STREAM f (line VARCHAR) SOURCE '{file}'",
    "CREATE TABLE f (line VARCHAR) WITH (path = '{file}', format = 'csv')",
    "CREATE STREAM f (v INT) WITH (connector = 'file', location = 'backups', path = '../kept/accounts.json')",
    "CREATE STREAM k (a INT) WITH (connector = 'kafka', topic = 't', brokers = 'example.org:9092')",
    "CREATE STREAM p (a INT) WITH (connector = 'port', mode = 'connect', host = '169.254.169.254', port = 80)",
    "CREATE SINK w WITH (connector = 'webhook', url = 'http://169.254.169.254/')",
    "CREATE SINK w WITH (connector = 'file', path = '{folder}/out')",
    "CREATE SINK w WITH (connector = 'postgres', url = 'postgresql://localhost/x', table = 't')",
    "CREATE STREAM p (a INT) WITH (connector = 'postgres', url = 'postgresql://localhost/x', table = 't', slot = 's')",
    "CREATE SINK w WITH (connector = 'delta', path = '{folder}/table')",
    "COPY (SELECT 1) TO '{folder}/out'",
    "COPY t TO PROGRAM 'id'",
    "COPY t FROM '{file}'",
    "ATTACH '{folder}/x.db'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "EXPORT DATABASE '{folder}'",
    "SET enable_external_access = true",
    "SET jit = 'off'",
    "PRAGMA database_list",
    "SELECT getenv('HOME')",
    "SELECT * FROM duckdb_settings()",
]

CATALOG = [
    "SELECT relname, (SELECT content FROM read_text('{file}')) FROM pg_class",
    "SELECT version(), getenv('HOME')",
    "SELECT pg_read_file('{file}')",
    "SELECT pg_ls_dir('/')",
    "SELECT lo_import('{file}'), current_user",
    "COPY (SELECT * FROM pg_class, read_csv('{file}')) TO STDOUT",
    "SELECT * FROM pg_class; DROP TABLE pgc.pg_class",
    "DECLARE c CURSOR FOR SELECT * FROM pg_catalog.pg_class, glob('/*')",
]
"""through the system catalog, which is another DuckDB"""

PATHS = [
    "/console/../accounts.json", "/console/%2e%2e/accounts.py", "/console/..%2f..%2fserver/accounts.py", "//etc/passwd",
    "/console/....//....//etc/passwd", "/console/%2e%2e%2f%2e%2e%2f%2e%2e%2fpyproject.toml", "/console//etc/passwd",
    "/v1/queries/..%2f..%2faccounts.json", "/console/%00", "/console/vendor/../../accounts.py",
]  # fmt: skip


GENERAL = {"/metrics", "/v1/overview", "/v1/catalog", "/v1/queries"}
"""routes that show an account what it was granted, perhaps nothing"""


def asked(server: ServerProcess, method: str, path: str, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request(method, path, headers=headers or {})
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_what_clients_try_is_refused(server: ServerProcess) -> None:
    db, secret = server.client(), "kept from all"
    file = server.directory.parent / "secret.csv"
    file.write_text(secret)
    db.execute("CREATE TABLE t (a INT)")
    places = {"file": file, "folder": file.parent}
    for statement in STATEMENTS:
        with pytest.raises(ms.MillstreamError) as refused:
            db.execute(statement.format(**places))
        assert secret not in str(refused.value)
    with psycopg.connect(server.conninfo(), autocommit=True) as connected:
        for statement in STATEMENTS + CATALOG:
            with pytest.raises(psycopg.DatabaseError) as failed:
                connected.execute(statement.format(**places).encode())
            assert secret not in str(failed.value)
        assert connected.execute("SELECT count(*) FROM pg_class").fetchone() is not None
    assert sorted(each.name for each in file.parent.iterdir()) == ["backups", "kept", "secret.csv"]
    for path in PATHS:
        status, told = asked(server, "GET", path, {"Authorization": f"Bearer {TOKEN}"})
        assert status in (307, 404) and b"scram" not in told.lower() and secret.encode() not in told, path
    # more than a request may have is refused before it is read
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.putrequest("POST", "/v1/execute")
    for name, value in (("Authorization", f"Bearer {TOKEN}"), ("Content-Length", str(10**12))):
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 413 and "at most 256 MB" in json.loads(answer.read())["message"]
    # guessing takes long, and is noted
    begun = time.monotonic()
    for guess in ("secret", TOKEN + "!", ""):
        assert asked(server, "GET", "/v1/catalog", {"Authorization": f"Bearer {guess}"})[0] == 401
    assert time.monotonic() - begun > 1
    for password in ("", "x", "secret"):
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(server.conninfo(password=password))
    noted = [json.loads(line)["what"] for line in (server.directory / "audit.log").read_text().splitlines()]
    assert noted.count("wrong token") == 2 and noted.count("wrong password") >= 2 and noted.count("failed") > 40


def test_no_route_is_open_to_strangers_or_tells_more_than_was_granted(server: ServerProcess) -> None:
    """All routes of the description, and those of the page's own."""
    db, secret = server.client(), "kept_from_all"
    db.execute(f"CREATE STREAM s (v INT, {secret} INT, t INT) ORDER BY t KEEP ALL")
    db.sql(f"SELECT v, {secret} FROM s", name="q")
    db.push("s", [(1, 4711, 1)])
    copy = json.loads(asked(server, "POST", "/v1/queries/q/copies", {"Authorization": f"Bearer {TOKEN}"})[1])["copy"]
    nobody = Accounts(server.directory).add("nobody", "writer", streams=[])
    described = json.loads(asked(server, "GET", "/openapi.json")[1])["paths"]
    routes = [(method.upper(), path) for path, methods in described.items() for method in methods]
    assert len(routes) > 28
    body = json.dumps({"sql": f"SELECT {secret} FROM s", "to": "backups/x", "position": 1, "time": 5}).encode()
    for method, path in routes:
        place = path.replace("{name}", "s" if "/streams/" in path else "q").replace("{reader}", "r")
        place = place.replace("{id}", str(copy) if "/copies/" in path else "s")
        for token in ("", TOKEN[:-1], nobody):
            refused = 401
            if token == TOKEN[:-1] and path != "/v1/catalog":
                continue  # a wrong one takes time
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            connection.request(method, place, body, {"Authorization": f"Bearer {token}"} if token else {})
            answer = connection.getresponse()
            if token == nobody:
                # copies of others are not there
                refused = 200 if path in GENERAL else 404 if "/copies/{" in path else 403
            assert answer.status == refused, (method, place)
            told = answer.read()
            assert secret.encode() not in told and b"4711" not in told, (method, place)
    assert db.query("q").state == "running" and db.query("q").fetch().num_rows == 1


def test_a_connection_that_says_nothing_is_closed() -> None:
    """Slow loris: heads of requests that come letter by letter. Others are served meanwhile, and long answers stay."""

    class Hasty(PatientProtocol):
        seconds = 0.4

    async def attempt() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
        db = ms.connect()
        db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t")
        db.sql("SELECT v FROM s", name="q")
        accounts = Accounts(None)
        accounts.add("admin", "admin", TOKEN)
        config = uvicorn.Config(Service(db, accounts).app(), port=port, http=Hasty, log_level="critical")
        running = uvicorn.Server(config)
        serving = asyncio.ensure_future(running.serve())
        while not running.started:
            await asyncio.sleep(0.01)
        head = f"GET /v1/queries/q/rows HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
        subscribed, asking = await asyncio.open_connection("127.0.0.1", port)
        asking.write(head)
        assert b"200 OK" in await subscribed.readuntil(b"\r\n\r\n")

        async def slow(data: bytes) -> float:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            begun = time.monotonic()
            waiting = asyncio.ensure_future(reader.read())
            for letter in data:
                if waiting.done():
                    break
                writer.write(bytes((letter,)))
                await asyncio.sleep(0.05)
            with suppress(ConnectionError):
                assert await waiting == b""
            writer.close()
            return time.monotonic() - begun

        took = await asyncio.gather(slow(head), slow(b""), slow(b"GET"))
        assert min(took) > 0.3 and max(took) < 10
        await asyncio.to_thread(db.push, "s", [(1, 1)])
        assert b'{"v":1}' in await asyncio.wait_for(subscribed.readuntil(b"}"), 20)
        asking.close()
        running.should_exit = True
        await serving

    asyncio.run(attempt())


def test_a_token_does_not_open_another_server(tmp_path: Path) -> None:
    accounts = Accounts(tmp_path)
    token = accounts.add("x", "reader")
    assert accounts.with_token(token) is not None and Accounts(tmp_path / "other").with_token(token) is None
    assert token not in (tmp_path / "accounts.json").read_text()
