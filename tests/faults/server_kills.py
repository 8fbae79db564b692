"""A server is killed (SIGKILL) under load, again and again, and its clients go on by themselves.

    python -m tests.faults.server_kills --kills 100 [--seed 7]

Two producers number their pushes and try each again until it is acknowledged; a third does not number its pushes and
never tries one again. One reader has a name, one reads server-sent events and continues with Last-Event-ID, and psql
asks after every restart. In the end nothing that was acknowledged is missing, and no reader got a row twice.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import subprocess
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import millstream as ms
from tests.server.conftest import TOKEN, ServerProcess

ROWS = 25
"""rows of a push"""

PAUSE = 0.01
"""seconds between the pushes of a producer"""

RETRY = 300.0
"""seconds for which clients try to reach the server; machines may be busy"""


class Load:
    """The clients of a server, each a thread; what they have sent and got."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self._db = ms.connect(server.address, token=TOKEN, retry=RETRY)
        self._reader = self._db.query("q").subscribe(name="named")
        self.ending = threading.Event()
        """producers send no more"""
        self.sent = threading.Event()
        """all that they sent is acknowledged or lost"""
        self.acknowledged: set[int] = set()
        self.unsure: set[int] = set()
        """rows of pushes without a number of which nobody knows whether they arrived"""
        self.named = Counter[int]()
        self.events = Counter[int]()
        self.faults: list[str] = []
        self._next = 0
        self._lock = threading.Lock()

    def begin(self) -> None:
        producing = (lambda: self._numbered("one"), lambda: self._numbered("two"), self._once)
        self._producers = [threading.Thread(target=self._noting, args=(each,), daemon=True) for each in producing]
        reading = (self._read, self._listen)
        self._readers = [threading.Thread(target=self._noting, args=(each,), daemon=True) for each in reading]
        for each in self._producers + self._readers:
            each.start()

    def end(self) -> None:
        """Let producers finish what they send, then readers get what is left."""
        for event, threads in ((self.ending, self._producers), (self.sent, self._readers)):
            event.set()
            for each in threads:
                each.join(RETRY)
        assert not self.faults, self.faults
        assert not any(each.is_alive() for each in self._producers + self._readers), "a client waits in vain"

    def _noting(self, work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except Exception as error:
            self.faults.append(f"{type(error).__name__}: {error}")

    def _rows(self) -> list[tuple[int, int]]:
        with self._lock:
            first, self._next = self._next, self._next + ROWS
        return [(v, 0) for v in range(first, first + ROWS)]

    def _numbered(self, producer: str) -> None:
        number = 0
        while not self.ending.is_set():
            time.sleep(PAUSE)
            number, rows = number + 1, self._rows()
            self._db.push("s", rows, once=(producer, number))
            self.acknowledged.update(v for v, _ in rows)

    def _once(self) -> None:
        while not self.ending.is_set():
            rows = self._rows()
            try:
                self._db.push("s", rows)
                self.acknowledged.update(v for v, _ in rows)
            except ms.ConnectorError:
                self.unsure.update(v for v, _ in rows)
                time.sleep(0.2)

    def complete(self, seen: Counter[int]) -> bool:
        """Whether a reader has all that was acknowledged, and no more is sent."""
        return self.sent.is_set() and self.acknowledged <= seen.keys()

    def _read(self) -> None:
        """Every other batch is acknowledged, so that rows wait for the reader across a kill."""
        with self._reader as reader:
            while not self.complete(self.named):
                batch = reader.next(1)
                if batch is not None:
                    self.named.update(batch["v"].to_pylist())
                    if random.random() < 0.5:
                        reader.ack(reader.position)
            if reader.dropped:
                self.faults.append(f"{reader.dropped} rows were dropped")

    def _listen(self) -> None:
        """Server-sent events, as a browser reads them: the last id is sent after each lost connection.

        Only a reader with a name has its rows kept across a restart, so it has one, too."""
        last = "0"
        while not self.complete(self.events):
            connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
            headers = {"Authorization": f"Bearer {TOKEN}", "Accept": "text/event-stream", "Last-Event-ID": last}
            with suppress(OSError, http.client.HTTPException):
                connection.request("GET", "/v1/queries/q/rows?reader=browser", headers=headers)
                answer, told = connection.getresponse(), ""
                if answer.status != 200:
                    if answer.status != 503:
                        self.faults.append(f"events: {answer.status} {answer.read().decode()}")
                        return
                    continue
                while (line := answer.readline()) and not self.complete(self.events):
                    match line.decode().rstrip("\n").partition(": "):
                        case ("id", _, value):
                            told = value
                        case ("data", _, value) if told:
                            self.events.update(row["v"] for row in json.loads(value))
                            last, told = told, ""
            connection.close()
            time.sleep(0.1)


def psql(server: ServerProcess) -> int:
    """What psql sees, once the server is there: how many rows are kept."""
    place = ["-h", "127.0.0.1", "-p", str(server.postgres), "-U", "admin", "-d", "millstream", "-X", "-At"]
    asked = ["-c", "SELECT count(*) FROM HISTORY(s)"]
    environment = {**os.environ, "PGPASSWORD": TOKEN}
    told = subprocess.run(["psql", *place, *asked], env=environment, capture_output=True, text=True, timeout=60)
    assert told.returncode == 0, told.stderr
    return int(told.stdout)


def run(directory: Path, kills: int, seed: int = 7) -> dict[str, int]:
    """Kill a server so many times; what was found wrong is an error."""
    drawn, server = random.Random(seed), ServerProcess(directory / "kept")
    try:
        db = server.client()
        db.execute("CREATE STREAM s (v BIGINT, t BIGINT) ORDER BY t KEEP ALL")
        db.sql("SELECT v FROM s", name="q")
        load = Load(server)
        load.begin()
        kept, longest = 0, 0.0
        for _ in range(kills):
            time.sleep(drawn.choice((0.05, 0.3, 1.0)) * drawn.random())
            server.kill()
            server.start()
            begun = time.monotonic()
            server.client(patience=RETRY)
            longest = max(longest, time.monotonic() - begun)
            before, kept = kept, psql(server)
            assert kept >= before, f"{before} rows were kept, and after a kill {kept}"
        time.sleep(0.5)
        load.end()
        sent = load.acknowledged | load.unsure
        for name, seen in (("the named reader", load.named), ("server-sent events", load.events)):
            assert not (missing := load.acknowledged - seen.keys()), f"{name} missed {len(missing)} rows"
            assert not (doubled := [v for v, count in seen.items() if count > 1]), f"{name} got {len(doubled)} twice"
            assert seen.keys() <= sent, f"{name} got rows that nobody sent"
        stored = Counter(server.client().sql("SELECT v FROM HISTORY(s)").fetch()["v"].to_pylist())
        assert max(stored.values()) == 1 and load.acknowledged <= stored.keys() <= sent
        told = {"kills": kills, "acknowledged rows": len(load.acknowledged), "rows of lost pushes": len(load.unsure)}
        return {**told, "seconds for the longest start": round(longest)}
    finally:
        server.kill()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        begun = time.monotonic()
        told = run(Path(directory), given.kills, given.seed)
    print(
        ", ".join(f"{value:,} {name}" for name, value in told.items()), f"in {time.monotonic() - begun:.0f} s: 0 wrong"
    )


if __name__ == "__main__":
    main()
