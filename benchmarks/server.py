"""The server on loopback: rows a second in and out, many subscriptions, and how long an event takes to its readers.

    python benchmarks/server.py [--only push,copy,subscriptions,latency]

The server is a process of its own, as users start it, with durability "disk". Rows are (v INT, price DOUBLE, t BIGINT).
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import adbc_driver_postgresql.dbapi as adbc
import numpy as np
import psycopg
import pyarrow as pa

import millstream as ms
from millstream.wire import ARROW, JSON_LINES, to_arrow_bytes

TOKEN = "benchmark"
STREAM = "CREATE STREAM s (v INT, price DOUBLE, t BIGINT) ORDER BY t KEEP ALL"


class Server:
    """`millstream serve` in a temporary directory."""

    def __init__(self, directory: str) -> None:
        self.port, self.postgres = free_port(), free_port()
        command = [sys.executable, "-m", "millstream", "serve", f"{directory}/state", "--port", str(self.port)]
        environment = {**os.environ, "MILLSTREAM_TOKEN": TOKEN}
        self._process = subprocess.Popen([*command, "--postgres", str(self.postgres)], env=environment)
        while True:
            try:
                self.db = ms.connect(f"http://127.0.0.1:{self.port}", token=TOKEN)
                return
            except ms.ConnectorError:
                assert self._process.poll() is None
                time.sleep(0.1)

    def push(self, connection: http.client.HTTPConnection, body: bytes, kind: str) -> int:
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind}
        connection.request("POST", "/v1/streams/s/rows", body, headers)
        return int(json.loads(connection.getresponse().read())["accepted"])

    def cpu_seconds(self) -> float:
        """The processor time that it has used (Linux)."""
        told = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        self._process.terminate()
        self._process.wait()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def rows(count: int, start: int = 0) -> pa.Table:
    numbers = np.arange(start, start + count)
    return pa.table({"v": pa.array(numbers % 1000, pa.int32()), "price": numbers * 0.5, "t": numbers})


def pushes(server: Server) -> None:
    server.db.execute(STREAM)
    server.db.sql("SELECT v, price FROM s WHERE v = 1", name="one")
    connection, start = http.client.HTTPConnection("127.0.0.1", server.port), 0
    as_lines: Callable[[pa.Table], bytes] = lambda table: "".join(  # noqa: E731
        json.dumps(row) + "\n" for row in table.to_pylist()
    ).encode()
    for name, kind, encode, size, times in (
        ("Arrow", ARROW, to_arrow_bytes, 100_000, 40),
        ("JSON lines", JSON_LINES, as_lines, 10_000, 40),
    ):
        bodies = []
        for _ in range(times + 2):
            bodies.append(encode(rows(size, start)))
            start += size
        for body in bodies[:2]:
            server.push(connection, body, kind)
        begun = time.perf_counter()
        accepted = sum(server.push(connection, body, kind) for body in bodies[2:])
        took = time.perf_counter() - begun
        print(f"pushed as {name:10} in requests of {size:>7,} rows: {accepted / took / 1e6:.2f} M rows/s")


def copies(server: Server) -> None:
    """A result of a million rows, which is what the server allows: binary COPY read by ADBC, text by psycopg."""
    asked = "SELECT v, price, t FROM HISTORY(s) WHERE t < 1000000"
    place = f"127.0.0.1:{server.postgres}/millstream"
    with adbc.connect(f"postgresql://admin:{TOKEN}@{place}") as db, db.cursor() as cursor:
        for _ in range(2):
            begun = time.perf_counter()
            cursor.execute(asked)
            count = cursor.fetch_arrow_table().num_rows
            took = time.perf_counter() - begun
    print(f"binary COPY into Arrow (ADBC): {count / took / 1e6:.2f} M rows/s")
    command = ["psql", f"postgresql://admin:{TOKEN}@{place}", "-c", f"COPY ({asked}) TO STDOUT (FORMAT binary)"]
    before, begun = server.cpu_seconds(), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    took, spent = time.perf_counter() - begun, server.cpu_seconds() - before
    print(f"binary COPY read by psql: {count / took / 1e6:.2f} M rows/s; {spent:.2f} s of the server's processor time")
    with psycopg.connect(f"postgresql://admin:{TOKEN}@{place}", autocommit=True) as db, db.cursor() as cursor:
        begun, size = time.perf_counter(), 0
        with cursor.copy(f"COPY ({asked}) TO STDOUT") as copy:
            while data := copy.read():
                size += len(data)
        took = time.perf_counter() - begun
    print(f"text COPY (psycopg, row by row): {count / took / 1e6:.2f} M rows/s, {size / took / 1e6:.0f} MB/s")


async def subscriptions(server: Server, count: int) -> None:
    """Many readers of one query: how long until all of them have a row."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    request = f"GET /v1/queries/many/rows HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    server.db.sql("SELECT v FROM s WHERE v = -1", name="many")
    readers = []
    begun = time.perf_counter()
    for at in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(request)
        readers.append((reader, writer))
        if at % 200 == 199:
            await asyncio.gather(*(each.readuntil(b"\r\n\r\n") for each, _ in readers[-200:]))
    print(f"{count:,} subscriptions were opened in {time.perf_counter() - begun:.1f} s")
    begun = time.perf_counter()
    await asyncio.to_thread(server.db.push, "s", [(-1, 0.0, 10**12)])
    await asyncio.gather(*(each.readuntil(b"}") for each, _ in readers))
    print(f"one row reached all {count:,} of them in {time.perf_counter() - begun:.2f} s")
    for _, writer in readers:
        writer.close()


async def latency(server: Server, rate: int, seconds: int) -> None:
    """Events at a fixed rate, in pushes of 100: from the push to a reader of server-sent events."""
    server.db.execute("CREATE STREAM ticks (sent DOUBLE, t BIGINT) ORDER BY t")
    server.db.sql("SELECT sent FROM ticks", name="ticking")
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(
        f"GET /v1/queries/ticking/rows HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n"
        f"Authorization: Bearer {TOKEN}\r\n\r\n".encode()
    )
    await reader.readuntil(b"\r\n\r\n")
    waited: list[float] = []

    async def listen() -> None:
        with suppress(asyncio.IncompleteReadError):
            while len(waited) < rate * seconds:
                line = await reader.readline()
                if line.startswith(b"data: ["):
                    now = time.time()
                    waited.extend(now - row["sent"] for row in json.loads(line[6:]))

    listening = asyncio.ensure_future(listen())
    client, number = ms.connect(f"http://127.0.0.1:{server.port}", token=TOKEN), 0
    begun = time.perf_counter()
    for push in range(rate * seconds // 100):
        await asyncio.sleep(max(0.0, begun + push * 100 / rate - time.perf_counter()))
        now = time.time()
        batch = pa.table({"sent": [now] * 100, "t": list(range(number, number + 100))})
        number += 100
        await asyncio.to_thread(client.push, "ticks", batch)
    await asyncio.wait_for(listening, 30)
    p50, p99, most = np.percentile(np.array(waited) * 1000, [50, 99, 100])
    print(f"{rate:,} events/s for {seconds} s, from push to reader: p50 {p50:.1f} ms, p99 {p99:.1f}, most {most:.0f}")
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="push,copy,subscriptions,latency")
    parser.add_argument("--subscriptions", type=int, default=10_000)
    given = parser.parse_args()
    wanted = given.only.split(",")
    with tempfile.TemporaryDirectory() as directory:
        server = Server(str(Path(directory)))
        try:
            if {"push", "copy", "subscriptions"} & set(wanted):
                pushes(server)
            if "copy" in wanted:
                copies(server)
            if "subscriptions" in wanted:
                asyncio.run(subscriptions(server, given.subscriptions))
            if "latency" in wanted:
                asyncio.run(latency(server, 10_000, 20))
        finally:
            server.end()


if __name__ == "__main__":
    main()
