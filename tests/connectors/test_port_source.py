"""Ports: several clients at a time, abrupt ends, prompt delivery, and what goes wrong with ports."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time

import pytest
from connector_data import plain

from millstream.connectors.ports.lines import CUT_OFF
from millstream.connectors.registry import make_source
from millstream.errors import ConnectorError
from millstream.schema import Schema
from millstream.types import INTEGER, VARCHAR

PAIR = Schema.of(a=INTEGER, b=VARCHAR)


class Reading:
    """A port source read on a thread, and what it has delivered."""

    def __init__(self, limit=None, **options):
        self.source = make_source({"connector": "port", "port": 0, **options}, PAIR, "s")
        if "mode" not in options:
            self.source.listen()
        self.rows, self.rejected, self.chunks = [], [], 0
        self.stopped = threading.Event()
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self._run, args=(limit,), daemon=True)
        self.thread.start()

    def _run(self, limit):
        for chunk in self.source.read({}, self.stopped.is_set, limit):
            with self.changed:
                assert limit is None or chunk.rows.num_rows <= limit
                self.rows += plain(chunk.rows)
                self.rejected += chunk.rejected
                self.chunks += 1
                self.changed.notify_all()

    def wait(self, rows=0, rejected=0):
        with self.changed:
            ready = self.changed.wait_for(lambda: len(self.rows) >= rows and len(self.rejected) >= rejected, 15)
        assert ready, (self.rows, self.rejected)

    def stop(self):
        self.stopped.set()
        self.thread.join(10)
        assert not self.thread.is_alive()

    def join(self):
        self.thread.join(60)
        assert not self.thread.is_alive()

    def client(self):
        return socket.create_connection(("127.0.0.1", self.source.bound_port))


@pytest.fixture
def reading(request):
    opened = []

    def start(*args, **options):
        opened.append(Reading(*args, **options))
        return opened[-1]

    yield start
    for one in opened:
        one.stop()


def line(a, b="x"):
    return json.dumps({"a": a, "b": b}).encode() + b"\n"


def test_one_row_comes_promptly(reading):
    port = reading()
    with port.client() as client:
        client.sendall(line(1))
        port.wait(rows=1)
        delays = []
        for n in range(2, 8):
            started = time.perf_counter()
            client.sendall(line(n))
            port.wait(rows=n)
            delays.append(time.perf_counter() - started)
    assert sorted(delays)[len(delays) // 2] < 0.1
    assert [row[0] for row in port.rows] == list(range(1, 8))


@pytest.mark.parametrize("limit", [None, 7])
def test_many_clients_at_once(reading, limit):
    port = reading(limit, until="disconnect")
    assert port.source.bounded and not port.source.replayable
    gate = threading.Barrier(5)

    def send(number):
        with port.client() as client:
            gate.wait()
            for n in range(200):
                data = line(number * 1000 + n)
                client.sendall(data[:9])
                client.sendall(data[9:] + (b"not json\n" if n % 50 == 0 else b""))

    threads = [threading.Thread(target=send, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    port.join()
    assert sorted(row[0] for row in port.rows) == sorted(c * 1000 + n for c in range(5) for n in range(200))
    for client in range(5):
        own = [row[0] for row in port.rows if row[0] // 1000 == client]
        assert own == sorted(own)
    assert [entry.row for entry in port.rejected] == ["not json"] * 20
    assert sorted(int(entry.origin.rsplit(":", 1)[1]) for entry in port.rejected) == sorted([2, 53, 104, 155] * 5)


@pytest.mark.parametrize("reset", [False, True])
def test_a_client_that_goes_inside_a_row_harms_only_that_row(reading, reset):
    port = reading(until="disconnect")
    steady = port.client()
    steady.sendall(line(1))
    port.wait(rows=1)
    rude = port.client()
    rude.sendall(line(2) + b'{"a": 3, "b')
    port.wait(rows=2)
    if reset:
        rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    rude.close()
    port.wait(rejected=1)
    steady.sendall(line(4))
    steady.close()
    port.join()
    assert [row[0] for row in port.rows] == [1, 2, 4]
    assert [(entry.error, entry.row) for entry in port.rejected] == [(CUT_OFF, '{"a": 3, "b')]


def test_a_complete_last_line_needs_no_line_end_in_json(reading):
    port = reading(until="disconnect")
    with port.client() as client:
        client.sendall(b'{"a": 1}\n[2, "y"]')
    port.join()
    assert port.rows == [(1, None), (2, "y")] and port.rejected == []


def test_a_last_csv_line_without_end_may_be_cut(reading):
    port = reading(until="disconnect", format="csv")
    with port.client() as client:
        client.sendall(b"1,x\n2,yy")
    port.join()
    assert port.rows == [(1, "x")]
    assert [(entry.error, entry.row) for entry in port.rejected] == [(CUT_OFF, "2,yy")]


def test_csv_clients_with_and_without_header(reading):
    port = reading(format="csv")
    with port.client() as plain_client, port.client() as named:
        plain_client.sendall(b"1,x\nbad\n")
        port.wait(rows=1, rejected=1)
        named.sendall(b'b,A\nup,2\n"q ""r""",3\n"open,4\n')
        port.wait(rows=3, rejected=2)
    assert port.rows == [(1, "x"), (2, "up"), (3, 'q "r"')]
    assert [entry.row for entry in port.rejected] == ["bad", '"open,4']
    assert port.rejected[1].origin.endswith(":4")


def test_the_format_can_be_told_by_the_first_line(reading):
    port = reading(format="auto")
    with port.client() as one, port.client() as two:
        one.sendall(b"1,x\n")
        two.sendall(line(2))
        port.wait(rows=2)
    assert sorted(port.rows) == [(1, "x"), (2, "x")]


def test_rows_under_load_come_in_large_chunks(reading):
    port = reading(until="disconnect")
    with port.client() as client:
        client.sendall(b"".join(line(n) for n in range(50_000)))
    port.join()
    assert [row[0] for row in port.rows] == list(range(50_000))
    assert port.chunks < 500


def test_an_endless_line_is_dropped(reading, monkeypatch):
    import millstream.connectors.ports.lines as lines

    monkeypatch.setattr(lines, "MAX_ROW_BYTES", 1000)
    port = reading(until="disconnect")
    with port.client() as client:
        for _ in range(30):
            client.sendall(b"x" * 100)
            time.sleep(0.002)
        client.sendall(b"\n" + line(1))
    port.join()
    assert port.rows == [(1, "x")]
    assert len(port.rejected) == 1 and "longer than" in port.rejected[0].error


def test_a_port_in_use(reading):
    port = reading()
    other = make_source({"connector": "port", "port": port.source.bound_port}, PAIR, "s")
    with pytest.raises(ConnectorError, match="cannot listen"):
        next(other.read({}, lambda: False))


def test_the_port_is_free_again_after_reading(reading):
    port = reading()
    number = port.source.bound_port
    with port.client() as client:
        client.sendall(line(1))
        port.wait(rows=1)
    port.stop()
    again = make_source({"connector": "socket", "port": number}, PAIR, "s")
    assert again.listen() == number
    again.close()


def test_connecting_to_a_server(reading):
    with socket.create_server(("127.0.0.1", 0)) as server:
        number = server.getsockname()[1]
        port = reading(mode="connect", port=number, until="disconnect")
        connection, _ = server.accept()
        connection.sendall(line(1) + line(2))
        connection.close()
        port.join()
        assert [row[0] for row in port.rows] == [1, 2]
        again = reading(mode="connect", port=number)
        for n in (3, 4):
            connection, _ = server.accept()
            connection.sendall(line(n))
            again.wait(rows=n - 2)
            connection.close()
    refused = make_source({"connector": "port", "mode": "connect", "port": number}, PAIR, "s")
    again.stop()
    with pytest.raises(ConnectorError, match="cannot connect"):
        next(refused.read({}, lambda: False))


def test_an_idle_port_yields_empty_chunks_and_stops():
    source = make_source({"connector": "port", "port": 0}, PAIR, "s")
    started = time.monotonic()
    chunks = list(source.read({}, lambda: time.monotonic() - started > 0.15))
    assert chunks and all(chunk.rows.num_rows == 0 for chunk in chunks)
