"""Who may do what, results that a client goes on with, and pushes that take effect once."""

from __future__ import annotations

import http.client
import json
import re
from typing import Any

import millstream as ms
from tests.server.conftest import TOKEN, ServerProcess
from tests.server.test_server import STREAM, raw

PUSH = "/v1/streams/s/rows"


def pushed(server: ServerProcess, rows: str, **headers: str) -> Any:
    status, body = raw(server, "POST", PUSH, rows.encode(), **{"Content-Type": "application/x-ndjson", **headers})
    return status, json.loads(body)


def test_a_push_with_a_number_takes_effect_once_even_across_a_crash(server: ServerProcess) -> None:
    db = server.client()
    db.execute(STREAM)
    db.sql("SELECT v FROM s", name="q")
    row = '{"v": %d, "name": "a", "t": %d}\n'
    first = {"accepted": 2, "late": 0, "rejected": 0}
    for _ in range(2):
        assert pushed(server, row % (1, 1) + row % (2, 2), **{"Idempotency-Key": "p/1"}) == (200, first)
    server.kill()
    server.start()
    db = server.client()
    assert pushed(server, row % (1, 1) + row % (2, 2), **{"Idempotency-Key": "p/1"}) == (200, first)
    assert pushed(server, row % (3, 3), **{"Idempotency-Key": "p/2"})[1]["accepted"] == 1
    db.execute("CREATE TABLE checkpointed (a INT)")
    server.kill()
    server.start()
    db = server.client()
    assert pushed(server, row % (3, 3), **{"Idempotency-Key": "p/2"})[1]["accepted"] == 1
    assert pushed(server, row % (1, 1), **{"Idempotency-Key": "p/1"})[1]["accepted"] == 0
    assert db.query("q").fetch().column("v").to_pylist() == [1, 2, 3]
    assert pushed(server, row % (1, 1), **{"Idempotency-Key": "no number"})[0] == 400


def events(answer: http.client.HTTPResponse, count: int) -> list[tuple[int, Any]]:
    """The next events of rows, with their ids."""
    found, number = [], 0
    while len(found) < count:
        line = answer.readline().decode()
        if line.startswith("id: "):
            number = int(line[4:])
        elif line.startswith("data: "):
            found += [(number, row) for row in json.loads(line[6:])]
    return found


def stream(server: ServerProcess, path: str, **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}", **headers})
    return connection.getresponse()


def test_a_reader_goes_on_where_it_was_in_every_form(server: ServerProcess) -> None:
    db = server.client()
    db.execute(STREAM)
    db.sql("SELECT v FROM s", name="q")
    rows = "/v1/queries/q/rows?reader=me"
    sse = stream(server, rows, Accept="text/event-stream")
    db.push("s", [(1, "a", 1), (2, "b", 2)])
    assert [row["v"] for _, row in events(sse, 2)] == [1, 2]
    sse.close()
    db.push("s", [(3, "c", 3)])
    again = stream(server, rows, Accept="text/event-stream", **{"Last-Event-ID": "2"})
    assert events(again, 1) == [(3, {"v": 3})]
    again.close()
    assert raw(server, "POST", "/v1/queries/q/readers/me/ack", b'{"position": 1}')[0] == 200
    assert raw(server, "POST", "/v1/queries/q/readers/me/ack", b'{"position": 9}')[0] == 400
    server.kill()
    server.start()
    db = server.client()
    lines = stream(server, rows + "&positions=1")
    told = [json.loads(lines.readline()) for _ in range(3)]
    assert told == [{"v": 2}, {"v": 3}, {"position": 3, "dropped": 0}]
    lines.close()
    arrow = stream(server, "/v1/queries/q/rows?since=1", Accept="application/vnd.apache.arrow.stream")
    import pyarrow as pa

    with pa.ipc.open_stream(arrow) as reader:
        assert reader.read_next_batch().to_pylist() == [{"v": 2}, {"v": 3}]
    arrow.close()
    from websockets.sync.client import connect

    with connect(f"ws://127.0.0.1:{server.port}/v1/queries/q/socket?reader=me&token={TOKEN}".replace(" ", "%20")) as ws:
        assert json.loads(ws.recv(10)) == {"position": 3, "dropped": 0, "rows": [{"v": 2}, {"v": 3}]}
        ws.send('{"ack": 3}')
    with connect(f"ws://127.0.0.1:{server.port}/v1/queries/q/socket?token=wrong") as ws:
        assert json.loads(ws.recv(10))["message"] == "a valid token is needed"
    assert raw(server, "DELETE", "/v1/queries/q/readers/me")[0] == 200


def test_the_server_describes_itself(server: ServerProcess) -> None:
    db = server.client()
    db.execute(STREAM)
    db.sql("SELECT v FROM s", name='a "b"')
    db.push("s", [(1, "a", 1), (2, "late", 0)])
    status, told = raw(server, "GET", "/metrics")
    assert status == 200 and 'millstream_query_rows_total{query="a \\"b\\""} 1' in told.decode()
    assert re.search(r"^millstream_rows_late_total 1$", told.decode(), re.M)
    described = json.loads(raw(server, "GET", "/openapi.json")[1])
    assert "post" in described["paths"]["/v1/streams/{name}/rows"] and described["openapi"] == "3.1.0"
    assert json.loads(raw(server, "GET", "/ready")[1]) == {"status": "ready"}
    assert json.loads(raw(server, "GET", "/v1/catalog")[1])[0]["columns"][0] == {"name": "v", "type": "INTEGER"}
    assert json.loads(raw(server, "GET", "/v1/queries/a%20%22b%22")[1])["state"] == "running"


def test_limits_of_an_account(server: ServerProcess) -> None:
    from millstream.server.accounts import Accounts

    server.client().execute(STREAM)
    server.end()
    accounts = Accounts(server.directory)
    accounts.add("slow", "writer", "slow secret", rows_a_second=10, most_queries=1)
    server.start()
    slow = server.client("slow secret")
    slow.sql("SELECT v FROM s", name="one")
    try:
        slow.sql("SELECT name FROM s", name="two")
    except ms.LimitError as error:
        assert "1 queries running" in error.message
    else:
        raise AssertionError("a second query was started")
    rows = "".join(f'{{"v": 1, "name": "a", "t": {t}}}\n' for t in range(30))
    given = {"Authorization": "Bearer slow secret"}
    assert pushed(server, rows, **given)[0] == 200
    assert pushed(server, rows, **given)[0] == 429
    status, told = raw(server, "POST", "/v1/finish", b"{}", **given)
    assert status == 403 and b"needs the role admin" in told


def test_the_console_and_its_files_are_served_and_nothing_else(server: ServerProcess) -> None:
    db = server.client()
    db.execute(STREAM)
    db.sql("SELECT v FROM s", name="q")
    status, page = raw(server, "GET", "/")
    assert status == 200
    for name in re.findall(r'(?:src|href)="(/console/[^"]+)"', page.decode()):
        assert raw(server, "GET", name)[0] == 200, name
    for name in (
        "/console/../app.py",
        "/console/%2e%2e/app.py",
        "/console/..%2fapp.py",
        "/console/",
        "/console/vendor",
    ):
        assert raw(server, "GET", name)[0] in (404, 405), name
    told = json.loads(raw(server, "GET", "/v1/overview")[1])
    assert told["streams"] == [{"name": "s", "rows": 0}] and told["queries"][0]["uses"] == ["s"]
