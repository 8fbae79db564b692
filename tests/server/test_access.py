"""Who may do what, results that a client goes on with, and pushes that take effect once."""

from __future__ import annotations

import http.client
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import millstream as ms
from millstream.cli.main import app as cli
from millstream.server.access import Caller, Clients, ForbiddenError, QuotaError, TooFastError, names_of
from millstream.server.accounts import Account, Accounts, Quota
from millstream.server.postgres.catalog import SystemCatalog
from millstream.server.postgres.messages import failure
from millstream.server.postgres.statements import ClientStatements, Live
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
        assert reader.read_next_batch().num_rows == 0  # where it begins is known at once
        batch, about = reader.read_next_batch_with_custom_metadata()
        assert batch.to_pylist() == [{"v": 2}, {"v": 3}]
        assert json.loads(about["millstream"]) == {"position": 3, "dropped": 0}
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
    accounts.limit("writer", Quota(queries=1, rows_a_second=1_000_000))
    accounts.add("slow", "writer", "slow secret", quota=Quota(rows_a_second=10))
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
    for body, credit in (("", "10"), (rows, "0")):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        connection.request("POST", PUSH, body, {**given, "Content-Type": "application/x-ndjson"})
        answer = connection.getresponse()
        assert answer.status == 200 and answer.headers["X-RateLimit-Remaining"] == credit
    assert pushed(server, rows, **given)[0] == 429
    body = json.dumps({"sql": "SELECT v + 1 FROM s"}).encode()
    status, told = raw(server, "POST", "/v1/sql", body, **given)
    assert status == 429 and b"has 1 queries running" in told
    # a running server needs no restart
    accounts.limit("writer", Quota(queries=2, statements_a_second=1))
    assert [raw(server, "POST", "/v1/sql", body, **given)[0] for _ in range(3)][-1] == 429
    status, told = raw(server, "POST", "/v1/finish", b"{}", **given)
    assert status == 403 and b"needs the role admin" in told


def test_grants_count_for_what_is_replaced_and_changed_and_not_for_what_follows_from_a_statement() -> None:
    def allowed(account: Account, text: str) -> bool:
        caller = Caller(account, "here", Clients())
        try:
            with caller.at_work(db, text):
                db.execute(text)
        except ForbiddenError:
            return False
        return True

    with ms.connect() as db:
        db.execute("""
            CREATE STREAM s (v INT, t INT) ORDER BY t; CREATE STREAM other (v INT, t INT) ORDER BY t;
            CREATE TABLE limits (who VARCHAR PRIMARY KEY, least INT); INSERT INTO limits VALUES ('ann', 1);
            CREATE QUERIES above AS SELECT s.v FROM limits AS l, s WHERE s.v > l.least;
            CREATE AGGREGATE same(x INT) : INT { INITIALIZE: ITERATE: { INSERT INTO RETURN VALUES (x); } };
            CREATE VIEW busy AS SELECT count(*) AS n FROM other [RANGE 5]
        """)
        db.sql("SELECT v FROM other", name="theirs")
        own = db.sql("SELECT same(v) FROM s", name="own")
        writer, some = Account("w", "writer"), Account("some", "writer", frozenset({"s"}))
        looking = Account("looking", "reader", frozenset({"busy"}))

        # a table whose rows are queries: what its queries need is no statement of the client's
        assert allowed(writer, "INSERT INTO limits VALUES ('eve', 3)")
        assert allowed(writer, "DELETE FROM limits WHERE who = 'ann'")
        db.push("s", [(2, 1), (4, 2)])
        assert db.query_set("above").fetch().to_pylist() == [{"query": "eve", "v": 4}]

        texts = (
            "CREATE OR REPLACE VIEW busy AS SELECT count(*) AS n FROM s [RANGE 5]",
            "ALTER QUERY theirs AS SELECT v FROM s",
            "EXPLAIN ALTER QUERY theirs AS SELECT v FROM s",
            "PAUSE QUERY theirs",
            "STOP theirs",
        )
        assert not any(allowed(some, text) for text in texts)
        assert all(allowed(writer, text) for text in texts)
        assert allowed(some, "CREATE VIEW mine AS SELECT count(*) AS n FROM s [RANGE 5]")
        assert allowed(some, "ALTER QUERY own AS SELECT same(v) + 1 FROM s")
        # a set of which no query runs yet
        db.execute("CREATE TABLE sizes (who VARCHAR PRIMARY KEY, n INT)")
        db.execute("CREATE QUERIES sums AS SELECT sum(v) OVER (ROWS z.n PRECEDING) AS v FROM sizes AS z, s")
        assert allowed(writer, "STOP sums") and allowed(some, "STOP above") and not db.query_sets()
        # an aggregate is no stream, and who may use a view may read its rows
        assert names_of(own, db) == {"s"} and names_of(db.query("busy"), db) == {"busy"}
        assert looking.may_use("busy") and not looking.may_use("other")


def test_a_subscription_to_a_query_of_its_own_counts_among_the_queries_of_an_account() -> None:
    with ms.connect() as db:
        db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t")
        caller = Caller(Account("one", "writer", quota=Quota(queries=1)), "here", Clients())
        statements = ClientStatements(db, caller, SystemCatalog(db.catalog), "pg_1")
        first = statements.perform("SUBSCRIBE TO (SELECT v FROM s)")
        assert isinstance(first, Live)
        with pytest.raises(ms.LimitError, match="1 queries running"):
            statements.perform("SUBSCRIBE TO (SELECT v + 1 FROM s)")
        first.close()
        again = statements.perform("SUBSCRIBE TO (SELECT v + 1 FROM s)")
        assert isinstance(again, Live)
        again.close()


def test_an_account_keeps_only_so_much_state() -> None:
    """Its views and queries together; the largest end, with the reason, and those of others go on."""
    with ms.connect() as db:
        db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t")
        clients, small = Clients(), Account("small", "writer", quota=Quota(state_bytes=1 << 20))
        caller = Caller(small, "here", clients)
        with caller.at_work(db, ""):
            db.execute("CREATE VIEW mine AS SELECT v, count(*) AS n FROM s [RANGE 1000000000] GROUP BY v")
            db.sql("SELECT sum(v) OVER (ROWS 1 PRECEDING) AS v FROM s", name="little")
        db.sql("SELECT v, count(*) AS n FROM s [RANGE 1000000000] GROUP BY v", name="theirs")
        clients.bound_state(small, db)
        assert set(clients.state(small, db)) == {"mine", "little"}
        db.push("s", pa.table({"v": range(100_000), "t": range(100_000)}))
        with pytest.raises(ms.LimitError, match="keep more than 1,048,576 bytes of state"), caller.at_work(db, ""):
            db.sql("SELECT v FROM s")
        clients.bound_state(small, db)
        assert {query.name: query.state for query in db.queries()} == {
            "mine": "failed", "little": "running", "theirs": "running",
        }  # fmt: skip
        with pytest.raises(ms.LimitError, match="the queries of account small keep more than"):
            db.sql("SELECT * FROM mine").fetch()
        with caller.at_work(db, ""):
            db.sql("SELECT v FROM s")


def test_queries_belong_to_who_started_them_also_after_a_restart(tmp_path: Path) -> None:
    one, other = (Account(name, "writer", quota=Quota(queries=4)) for name in ("one", "other"))

    def run(db: Any, account: Account, *texts: str) -> None:
        for text in texts:
            with (caller := Caller(account, "here", Clients())).at_work(db, text):
                assert caller.account is account
                db.execute(text)

    def owned(db: Any) -> list[set[str]]:
        return [Clients().running(account, db) for account in (one, other)]

    with ms.connect(tmp_path) as db:
        db.execute("""
            CREATE STREAM s (v INT, t INT) ORDER BY t KEEP ALL; CREATE TABLE least (who VARCHAR PRIMARY KEY, n INT);
            CREATE QUERIES above AS SELECT s.v FROM least AS l, s WHERE s.v > l.n
        """)
        db.sql("SELECT v FROM s", name="nobodys")
        run(db, one, "CREATE VIEW a AS SELECT count(*) AS n FROM s [RANGE 5]", "SELECT v AS b FROM s WITH HISTORY")
        db.checkpoint()
        run(db, one, "CREATE VIEW c AS SELECT sum(v) AS n FROM s [RANGE 9]", "SELECT v + 1 AS d FROM s")
        # whoever changes a query, it stays whose it was; queries of a set are nobody's
        run(db, other, "CREATE OR REPLACE VIEW a AS SELECT count(*) AS n FROM s [RANGE 6]", "STOP q2")
        run(db, other, "ALTER QUERY q1 AS SELECT v + 2 AS b FROM s", "INSERT INTO least VALUES ('ann', 1)")
        run(db, other, "SELECT v + 3 AS e FROM s")
        before = owned(db)
        assert before == [{"a", "c", "q1"}, {"q3"}] and db.query("nobodys").owner == ""
        run(db, one, "SELECT v + 4 AS f FROM s")
        # what a client of PostgreSQL subscribes to ends with its connection, or with the process
        statements = ClientStatements(db, Caller(other, "here", Clients()), SystemCatalog(db.catalog), "pg1")
        assert isinstance(statements.perform("SUBSCRIBE TO (SELECT v FROM s)"), Live) and "pg1_1" in owned(db)[1]
        db.push("s", [(1, 1)])
        shutil.copytree(tmp_path, tmp_path.with_name("killed"), ignore=shutil.ignore_patterns("lock"))
    for directory in (tmp_path, tmp_path.with_name("killed")):  # the second without its last checkpoint
        with ms.connect(directory) as db:
            assert owned(db) == [before[0] | {"q4"}, before[1]]
            with pytest.raises(ms.LimitError, match="account one has 4 queries running"):
                run(db, one, "SELECT v + 5 AS g FROM s")
            run(db, one, "STOP q4", "SELECT v + 5 AS g FROM s")


def test_limits_are_told_to_postgresql_clients() -> None:
    assert all(b"\0C53400\0" in failure(error) for error in (TooFastError("too fast"), QuotaError("too many")))


def test_accounts_have_the_limits_of_their_role(tmp_path: Path) -> None:
    accounts = Accounts(tmp_path)
    accounts.add("own", "reader", "some secret", quota=Quota(queries=7))
    accounts.add("other", "reader", "some secret")
    accounts.limit("reader", Quota(queries=1, statements_a_second=5))
    again = Accounts(tmp_path)
    assert [(each.name, each.quota) for each in again] == [
        ("other", Quota(queries=1, statements_a_second=5)), ("own", Quota(queries=7, statements_a_second=5)),
    ]  # fmt: skip
    again.limit("reader", Quota())
    assert [each.quota.queries for each in accounts] == [None, 7] and accounts.limits() == {}
    with pytest.raises(ms.BindError, match="no role boss"):
        accounts.limit("boss", Quota())
    listed = CliRunner().invoke(
        cli, ["account", "limit", str(tmp_path), "writer", "--state-mb", "64", "--queries", "3"]
    )
    assert listed.exit_code == 0 and accounts.limits() == {"writer": Quota(queries=3, state_bytes=64 << 20)}
    shown = CliRunner().invoke(cli, ["account", "list", str(tmp_path)]).output
    assert "each writer" in shown and "64" in shown
    # a file of an older version
    told = json.loads((tmp_path / "accounts.json").read_text())
    del told["roles"]
    for each in told["accounts"]:
        del each["state_bytes"], each["statements_a_second"]
    (tmp_path / "accounts.json").write_text(json.dumps(told))
    assert [each.quota.queries for each in Accounts(tmp_path)] == [None, 7]


def test_clients_only_read_the_system_catalog() -> None:
    with ms.connect() as db:
        db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t")
        catalog, admin = SystemCatalog(db.catalog), Caller(Account("a", "admin"), "here", Clients())
        known = "SELECT count(*) AS n FROM pg_catalog.pg_type"
        before = catalog.query(known, [], admin)
        for text in (
            "DELETE FROM pg_catalog.pg_type",
            "UPDATE pg_catalog.pg_type SET typname = 'x'",
            "CREATE TABLE pgc.more AS SELECT 1 AS pg_catalog",
            "SELECT 1 FROM pg_catalog.pg_am; DROP TABLE pg_catalog.pg_type",
        ):
            with pytest.raises(ms.UnsupportedError, match="can only be read"):
                catalog.query(text, [], admin)
        assert catalog.query(known, [], admin) == before and before["n"][0].as_py() > 20
        catalog.close()


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


def test_operators_rows_and_copies_over_http(server: ServerProcess) -> None:
    db = server.client()
    db.execute(
        "CREATE STREAM s (v INT, t TIMESTAMP) ORDER BY t KEEP ALL; CREATE STREAM other (v INT, t INT) ORDER BY t"
    )
    db.execute("CREATE VIEW busy AS SELECT count(*) AS n FROM s [RANGE 5 SECONDS]")
    db.sql("SELECT CAST('Infinity' AS DOUBLE) AS v FROM s WHERE v > 1", name="big")

    def asked(path: str, method: str = "GET", body: object = None, token: str = TOKEN) -> tuple[int, Any]:
        status, answer = raw(
            server,
            method,
            path,
            json.dumps(body).encode() if body is not None else b"",
            Authorization=f"Bearer {token}",
        )
        return status, [json.loads(line) for line in answer.decode().splitlines()]

    operators = asked("/v1/queries/big/operators")[1][0]["operators"]
    assert [each["label"].split()[0] for each in operators] == ["Stream", "Source", "Compute"]
    top = operators[-1]["id"]
    assert asked(f"/v1/queries/big/operators/{top}/peek") == (200, [])
    assert asked("/v1/streams/s/peek?side=late") == (200, [])
    copy = asked("/v1/queries/big/copies", "POST")[1][0]["copy"]
    db.push("s", [(1, "2026-01-01 00:00:05"), (2, "2026-01-01 00:00:05.5"), (3, "2020-01-01")])
    # JSON has no number for it, and browsers take no other
    assert asked(f"/v1/queries/big/operators/{top}/peek") == (200, [{"v": "Infinity"}])
    assert asked("/v1/streams/s/peek?side=late") == (200, [{"v": 3, "t": "2020-01-01T00:00:00"}])
    assert asked("/v1/streams/s")[1][0]["latest"] == "2026-01-01 00:00:05.500000"
    told = asked("/v1/operators")[1][0]["operators"]
    assert {each["upto"] for each in told if each["id"] in ("s", top)} == {"2026-01-01 00:00:05.500000"}
    assert asked(f"/v1/copies/{copy}/step", "POST", {})[1][0]["waiting"] == 1
    assert asked(f"/v1/copies/{copy}/step", "POST", {})[1][0]["passed"][top] == [{"v": "Infinity"}]
    row = {"v": 7, "t": "2026-01-02"}
    assert top in asked(f"/v1/copies/{copy}/step", "POST", {"stream": "s", "row": row})[1][0]["passed"]
    assert asked(f"/v1/copies/{copy}/step", "POST", {"stream": "s", "row": {"v": "x"}})[0] == 400
    assert asked(f"/v1/copies/{copy}/step", "POST", {"stream": "none", "row": row})[0] == 404

    # what flows inside a view needs access to what the view reads
    for name, streams in (("viewer", ["busy"]), ("elsewhere", ["other"])):
        token = Accounts(server.directory).add(name, "reader", streams=streams)
        assert asked("/v1/queries/busy/operators", token=token)[0] == (200 if name == "viewer" else 403)
        assert asked("/v1/queries/busy/operators/s/peek", token=token)[0] == 403
        assert asked("/v1/queries/busy/copies", "POST", token=token)[0] == 403
        assert asked("/v1/operators", token=token)[0] == 403
        assert asked("/v1/streams/s", token=token)[0] == asked("/v1/streams/s/peek", token=token)[0] == 403
        assert asked(f"/v1/copies/{copy}/step", "POST", {}, token)[0] == 404
        assert asked("/v1/explain", "POST", {"sql": "SELECT v FROM s"}, token)[0] == 403
        assert asked("/v1/explain", "POST", {"sql": "SELECT v FROM other"}, token)[0] == (
            200 if name == "elsewhere" else 403
        )
    assert asked("/v1/explain", "POST", {"sql": "ALTER QUERY big AS SELECT v FROM s WHERE v > 2"})[0] == 200
    assert asked(f"/v1/copies/{copy}", "DELETE")[0] == 200
    assert asked(f"/v1/copies/{copy}/step", "POST", {})[0] == 404
