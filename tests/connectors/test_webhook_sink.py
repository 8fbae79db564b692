"""Rows in POST requests, against a real HTTP server."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from webhook_receiver import Receiver, receiver

import millstream as ms

STREAM = "CREATE STREAM s (v INT, name VARCHAR, t INT) ORDER BY t"


@pytest.fixture
def got() -> Iterator[Receiver]:
    with receiver() as running:
        yield running


def sink(url: str, more: str = "") -> str:
    return f"CREATE SINK w WITH (connector = 'webhook', url = '{url}', retry_ms = 1{more})"


def until(happened: object) -> None:
    end = time.monotonic() + 30
    while not happened():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.01)


def rows(*numbers: int) -> list[tuple[int, str, int]]:
    return [(n, f'"{n}"\n', n) for n in numbers]


def test_rows_come_in_parts_with_position_and_key(got: Receiver) -> None:
    with ms.connect() as db:
        more = ", batch_rows = 4, \"header.Authorization\" = 'Bearer secret'"
        db.execute(f"{STREAM}; {sink(got.url, more)}; INSERT INTO w SELECT v, name FROM s")
        assert "secret" not in str(db.execute("SHOW SINKS"))
        db.push("s", rows(*range(10)))
        db.finish()
    assert got.rows == [{"v": n, "name": f'"{n}"\n'} for n in range(10)]
    assert [len(lines) for _, _, lines in got.requests] == [4, 4, 2]
    for number, (path, headers, lines) in enumerate(got.requests):
        assert path == "/rows?to=1" and headers["authorization"] == "Bearer secret"
        assert headers["idempotency-key"] == f"{headers['millstream-query']}/{4 * number + len(lines)}"
        assert int(headers["millstream-position"]) == 4 * number


def test_rows_do_not_wait_for_the_end(got: Receiver) -> None:
    with ms.connect() as db:
        db.execute(f"{STREAM}; {sink(got.url, ', flush_ms = 10')}; INSERT INTO w SELECT v FROM s")
        db.push("s", rows(1, 2))
        until(lambda: got.rows == [{"v": 1}, {"v": 2}])


def test_what_fails_is_tried_again_with_the_same_key(got: Receiver) -> None:
    # the third is taken, but its answer is a failure: the receiver sees it twice and drops it
    got.fail = lambda number: {1: 503, 2: 429, 3: -500}.get(number)
    with ms.connect() as db:
        db.execute(f"{STREAM}; {sink(got.url)}; INSERT INTO w SELECT v FROM s")
        db.push("s", rows(1, 2))
        db.finish()
    assert got.asked == 4 and len(got.requests) == 2
    assert got.requests[0][1]["idempotency-key"] == got.requests[1][1]["idempotency-key"]
    assert got.rows == [{"v": 1}, {"v": 2}]


@pytest.mark.parametrize(
    ("status", "asked", "message"),
    [(500, 3, r"answered 500: no room here \(tried 3 times\)"), (400, 1, "answered 400"), (302, 1, "answered 302")],
)
def test_a_failing_receiver_stops_its_query_alone(got: Receiver, status: int, asked: int, message: str) -> None:
    got.fail = lambda _: status
    with ms.connect() as db:
        db.execute(f"{STREAM}; {sink(got.url, ', retries = 2, flush_ms = 1')}")
        failing = db.sql("INSERT INTO w SELECT v FROM s", name="failing")
        other = db.sql("SELECT v FROM s")
        assert isinstance(failing, ms.Query) and isinstance(other, ms.Query)
        db.push("s", rows(1))
        until(lambda: got.asked == asked)
        db.push("s", rows(2))
        db.finish()
        assert other.fetch()["v"].to_pylist() == [1, 2]
        with pytest.raises(ms.ConnectorError, match=f"cannot write to http://{got.address}/rows.*{message}"):
            failing.fetch()
    assert got.asked == asked


def test_nobody_there_and_nobody_answers() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with ms.connect() as db:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}"
            db.execute(f"{STREAM}; {sink(url, ', retries = 1, timeout_ms = 50')}")
            query = db.sql("INSERT INTO w SELECT v FROM s", name="q")
            db.push("s", rows(1))
            db.finish()
            with pytest.raises(ms.ConnectorError, match=r"timed out \(tried 2 times\)"):
                query.fetch()  # type: ignore[union-attr]


def test_after_a_crash_positions_tell_what_is_there(got: Receiver, tmp_path: Path) -> None:
    db = ms.connect(tmp_path / "0", checkpoint_seconds=3600)
    more = ", batch_rows = 3, flush_ms = 1"
    db.execute(f"{STREAM}; {sink(got.url, more)}; INSERT INTO w SELECT v FROM s")
    for turn in range(4):
        db.push("s", rows(*range(10 * turn, 10 * turn + 7)))
        if turn % 2:
            db.checkpoint()
        db.push("s", rows(*range(10 * turn + 7, 10 * turn + 10)))
        until(lambda reached=10 * turn + 10: [*got.positions.values()] == [reached])
        # the process dies here: what it has on disk is all that is left
        shutil.copytree(tmp_path / str(turn), tmp_path / str(turn + 1))
        dead, db = db, ms.connect(tmp_path / str(turn + 1), checkpoint_seconds=3600)
        dead.close()
    db.finish()
    db.close()
    assert got.rows == [{"v": n} for n in range(40)]
    assert len(got.positions) == 1, "a query keeps its name through crashes"
    assert sum(len(lines) for _, _, lines in got.requests) > 40, "some were sent again"


def test_certificates_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [
        "-keyout",
        "key.pem",
        "-out",
        "cert.pem",
        "-days",
        "2",
        "-subj",
        "/CN=x",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
    ]
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *made]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    with receiver(tls) as got:
        for trusted in (False, True):
            if trusted:
                monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
            with ms.connect() as db:
                db.execute(f"{STREAM}; {sink(got.url.replace('http:', 'https:'))}")
                query = db.sql("INSERT INTO w SELECT v FROM s", name="q")
                db.push("s", rows(1))
                db.finish()
                if not trusted:
                    with pytest.raises(ms.ConnectorError, match=r"CERTIFICATE_VERIFY_FAILED(?!.*tried)"):
                        query.fetch()  # type: ignore[union-attr]
            assert got.rows == [{"v": 1}] * trusted


def test_upserts_are_changes(got: Receiver) -> None:
    with ms.connect() as db:
        db.execute(f"{STREAM}; {sink(got.url, ', mode = ' + repr('upsert') + ', key = ' + repr('v'))}")
        db.execute("INSERT INTO w SELECT v, count(*) AS n FROM s [RANGE 2] GROUP BY v")
        db.push("s", rows(1, 9))
        db.finish()
    assert got.rows[:2] == [{"v": 1, "n": 1, "op": "u"}, {"v": 1, "n": None, "op": "d"}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("url = 'ftp://h/x'", "not one of http or https"), ("url = 'http:///x'", "with a host"),
        ("url = 'http://h:99999/'", "url is not valid"), ("url = 'http://h/a b'", "not allowed in a URL"),
        ("url = 'http://me:pass@h/'", "cannot contain a user"), ("batch_rows = 3", "needs the option url"),
        ("url = 'http://h/', \"header.Host\" = 'x'", "header host"),
        ("url = 'http://h/', retry = 1", "no option retry"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(options: str, message: str) -> None:
    with ms.connect() as db, pytest.raises(ms.ConnectorError, match=message):
        db.execute(f"CREATE SINK w WITH (connector = 'webhook', {options})")


def test_untrusted_sessions_reach_allowed_hosts(got: Receiver) -> None:
    with ms.connect(profile="untrusted", hosts=[got.address]) as db:
        db.execute(f"{STREAM}; {sink(got.url)}; INSERT INTO w SELECT v FROM s")
        db.push("s", rows(1))
        db.finish()
        assert got.rows == [{"v": 1}]
        port = got.address.partition(":")[2]
        for url in (f"http://localhost:{port}/", "http://127.0.0.1/", f"http://{got.address}@other/",
                    f"http://other#@{got.address}/", f"https://127.0.0.1:{int(port) - 1}/"):  # fmt: skip
            with pytest.raises(ms.MillstreamError, match=r"not allowed here|with a host"):
                db.execute(f"CREATE SINK x WITH (connector = 'webhook', url = '{url}')")
