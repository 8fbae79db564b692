"""Clients of a server: they go on after a lost connection, and have the calls of a session."""

from __future__ import annotations

import asyncio
import datetime as dt
import http.client
import json
import signal
from pathlib import Path

import pyarrow as pa
import pytest

import millstream as ms
from millstream.server.accounts import Accounts
from tests.server.conftest import TOKEN, ServerProcess

STREAM = "CREATE STREAM s (v INT, at TIMESTAMP) ORDER BY at"
START = dt.datetime(2026, 1, 1)


def rows(first: int, last: int) -> list[tuple[int, dt.datetime]]:
    return [(v, START + dt.timedelta(seconds=v)) for v in range(first, last)]


def test_a_named_reader_goes_on_after_the_server_was_killed(server: ServerProcess) -> None:
    db = server.client()
    db.execute(STREAM)
    q = db.sql("SELECT v, at FROM s", name="q")
    reader = q.subscribe(name="mine@home/1")
    assert (reader.position, reader.next(0.01)) == (0, None)
    db.push("s", rows(0, 3), once=("p/1", 1))
    seen = reader.next(20).to_pylist()
    assert seen[0] == {"v": 0, "at": START}  # typed as what fetch gives
    while len(seen) < 3:
        seen += reader.next(20).to_pylist()
    assert reader.position == 3
    reader.ack(2)
    server.kill()
    server.start()
    # both go on by themselves
    assert db.push("s", rows(3, 5), once=("p/1", 2)).accepted == 2
    db.push("s", rows(3, 5), once=("p/1", 2))
    while len(seen) < 5:
        seen += reader.next(60).to_pylist()
    assert [row["v"] for row in seen] == list(range(5)) and reader.dropped == 0
    reader.close()
    with q.subscribe(name="mine@home/1") as again:
        assert again.position == 2
        assert again.next(20)["v"].to_pylist() == [2, 3, 4]
    q.unsubscribe("mine@home/1")
    with pytest.raises(ms.DataError, match="no reader"):
        q.unsubscribe("mine@home/1")
    with pytest.raises(ms.DataError, match="position 99"):
        q.subscribe(since=99)


def test_queries_have_the_calls_of_a_session(server: ServerProcess) -> None:
    db = server.client()
    db.execute(f"{STREAM} KEEP ALL")
    assert "Scan s" in db.explain("SELECT v FROM s WHERE v > $x", params={"x": 1})
    q = db.sql("SELECT v FROM s", name="q")
    db.push("s", rows(0, 2))
    assert (q.state, q.metrics()["emitted"], q.counts) == ("running", 2, ms.Counts(2, 0, 0))
    q.pause()
    assert q.state == "paused"
    q.resume()
    assert q.state == "running"
    later = db.sql("SELECT v FROM s", name="later", history=True)
    assert later.fetch().num_rows == 2
    local = ms.connect()
    local.execute(f"{STREAM} KEEP ALL")
    local.push("s", rows(0, 2))
    assert later.coverage == local.sql("SELECT v FROM s", history=True).coverage
    reader, called = q.subscribe(), []
    q.subscribe(callback=called.append)
    db.push("s", rows(2, 3))
    assert reader.next(20)["v"].to_pylist() == [2]
    later.cancel()
    assert later.fetch()["v"].to_pylist() == [2]
    with pytest.raises(ms.CancelledError):
        later.fetch()
    q.stop()
    assert reader.next(20) is None and reader.ended
    assert [batch["v"].to_pylist() for batch in called] == [[2]]


def test_the_same_calls_from_asyncio(server: ServerProcess) -> None:
    server.client()

    async def work() -> tuple[list[int], list[str], pa.Schema]:
        async with ms.connect_async(server.address, token=TOKEN) as db:
            await db.execute(STREAM)
            q = await db.sql("SELECT v FROM s", name="q")
            reader, seen = await q.subscribe(), []
            await asyncio.gather(db.push("s", rows(0, 2)), db.queries())
            async with asyncio.timeout(30):
                async for batch in reader:
                    seen += batch["v"].to_pylist()
                    if len(seen) == 2:
                        break
            names = [each.name for each in await db.queries()]
            schema = await q.schema
            await q.stop()
            return seen, names, schema

    assert asyncio.run(work()) == ([0, 1], ["q"], pa.schema([("v", pa.int32())]))


def test_a_server_that_ends_tells_its_clients(server: ServerProcess) -> None:
    db = server.client()
    db.execute(STREAM)
    q = db.sql("SELECT v FROM s", name="q")
    reader = q.subscribe(name="r")

    def get(path: str, **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}", **headers})
        return connection.getresponse()

    assert get("/ready").status == 200
    events = get("/v1/queries/q/rows", Accept="text/event-stream")
    lines = get("/v1/queries/q/rows?positions=1")
    body = json.dumps([[v, str(at)] for v, at in rows(0, 50_000)]).encode()
    pushing = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    pushing.putrequest("POST", "/v1/streams/s/rows")
    for name, value in {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}.items():
        pushing.putheader(name, value)
    pushing.putheader("Content-Length", str(len(body)))
    pushing.putheader("Expect", "100-continue")
    pushing.endheaders()
    # now the server waits for the rows, and must not end without them
    assert pushing.sock.recv(100).startswith(b"HTTP/1.1 100 Continue")
    server.ask_to_end()
    assert events.read().endswith(b'event: end\ndata: {"reason": "server"}\n\n')
    assert b'"ended": "server"' in lines.read()
    # it answers a little longer, and says that it is not ready
    assert get("/ready").status == 503
    assert get("/v1/queries/q/rows").status == 503
    pushing.send(body)
    assert json.loads(pushing.getresponse().read()) == {"accepted": 50_000, "late": 0, "rejected": 0}
    assert server.ended() == -signal.SIGTERM
    server.start()
    seen: list[int] = []
    while len(seen) < 50_000:
        batch = reader.next(60)
        assert batch is not None
        seen += batch["v"].to_pylist()
    assert seen == list(range(50_000))


def test_accounts_take_effect_while_the_server_runs(server: ServerProcess) -> None:
    db = server.client()
    db.execute(STREAM)
    accounts = Accounts(server.directory)
    secret = accounts.add("rita", "reader")
    assert [entry.name for entry in ms.connect(server.address, token=secret).queries()] == []
    accounts.remove("rita")
    with pytest.raises(ms.MillstreamError, match="token"):
        ms.connect(server.address, token=secret)
    assert len(Accounts(server.directory)) == 0  # the operator's account is not in the file


def test_a_push_without_a_number_is_not_tried_again(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "kept")
    db = server.client()
    db.execute(STREAM)
    server.kill()
    with pytest.raises(ms.ConnectorError, match="cannot connect"):
        db.push("s", rows(0, 1))
