"""Many threads on one session, with random pauses where they could get in each other's way.

    python -m tests.faults.thread_stress --minutes 30 [--seed 7]

Threads push, start and stop queries, declare and drop streams, change tables, fetch, subscribe, look at snapshots and
save checkpoints. What took effect is written down in the order in which it did; a session in memory with one thread
does the same in that order, and every row that anybody got must be what it gets. Then the directory is copied as a
crash would leave it, opened, and compared again.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import millstream as ms
from millstream.bind import statements as act
from millstream.hosts.embedded.turns import Turns
from millstream.session.journal import Journal

Rows = list[tuple[Any, ...]]
STREAMS = ("s0", "s1")
TEMPLATES = (
    "SELECT k, v FROM {0} WHERE v % 3 = 0",
    "SELECT k, sum(v) OVER (PARTITION BY k ORDER BY t ROWS 5 PRECEDING) AS x FROM {0}",
    "SELECT k, count(*) AS n, max(v) AS m FROM {0} [RANGE 20] GROUP BY k",
    "SELECT {0}.v, names.name FROM {0} JOIN names ON {0}.k = names.k",
    "SELECT a.v, b.v AS w FROM s0 [RANGE 6] AS a, s1 [RANGE 6] AS b WHERE a.k = b.k",
)
SETTINGS: dict[str, Any] = {"jit": "off", "checkpoint_seconds": 0.05}


def rows_of(table: Any) -> Rows:
    columns = [column.to_pylist() for column in table.columns]
    return list(zip(*columns, strict=True))


@contextmanager
def pauses(rng: random.Random) -> Iterator[None]:
    """Threads lose their turn at bad moments: around locks, and before notes."""
    before = sys.getswitchinterval()
    enter, leave, note = Turns.__enter__, Turns.__exit__, Journal.note

    def pause() -> None:
        if rng.random() < 0.2:
            time.sleep(rng.random() * 0.002)

    def entering(self: Turns) -> None:
        pause()
        enter(self)

    def leaving(self: Turns, *error: object) -> None:
        leave(self, *error)
        pause()

    def noting(self: Journal, *args: Any) -> None:
        pause()
        note(self, *args)

    Turns.__enter__, Turns.__exit__, Journal.note = entering, leaving, noting  # type: ignore[method-assign]
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
        Turns.__enter__, Turns.__exit__, Journal.note = enter, leave, note  # type: ignore[method-assign]


class Twin:
    """A session in memory that does what was written down, and knows all rows that each query has ever had."""

    def __init__(self) -> None:
        self.db = ms.connect(jit="off")
        self.rows: dict[str, Rows] = {}
        self.fetched: dict[str, list[int]] = defaultdict(list)

    def do(self, what: tuple[Any, ...]) -> None:
        match what:
            case ("push", stream, rows):
                self.db.push(stream, rows)
            case ("start", name, text):
                self.db.sql(text, name=name)
                self.rows[name] = []
            case ("stop", name):
                self.collect(name)
                self.db.stop(name)
            case ("statement", text):
                self.db.execute(text)
            case ("fetch", name, upto):
                self.fetched[name].append(upto)

    def collect(self, name: str) -> Rows:
        self.rows[name] += rows_of(self.db.query(name).fetch())
        return self.rows[name]


class Stress:
    """One directory, one twin, and what threads saw."""

    def __init__(self, home: Path, seed: int) -> None:
        self.home = home
        self.rng = random.Random(seed)
        self.twin = Twin()
        self.done: list[tuple[Any, ...]] = []
        self.got: dict[str, Rows] = defaultdict(list)
        self.heard: list[tuple[str, int, Rows]] = []
        self.errors: list[BaseException] = []
        self.clock = dict.fromkeys(STREAMS, 0)
        self.made = 0
        self.calls = 0
        self.compared = 0

    # -- what threads do -------------------------------------------------------------------------------------------

    def open(self) -> ms.Database:
        db = ms.connect(self.home, **SETTINGS)
        listener: Any = db.listener
        host: Any = db._host
        note, before, after = host.journal, listener.before, listener.after
        text_now = [""]

        def noted(what: dict[str, Any], rows: Any) -> None:
            note(what, rows)
            if what["op"] == "push":
                self.done.append(("push", what["stream"], rows))
            elif what["op"] == "fetch":
                self.done.append(("fetch", what["name"], what["upto"]))

        def hears(action: Any, text: str, planned: Any) -> None:
            text_now[0] = text
            before(action, text, planned)

        def has_heard(action: Any, result: Any) -> None:
            after(action, result)
            match action:
                case act.StartQuery():
                    self.done.append(("start", result.name, text_now[0]))
                case act.StopQuery(name=name):
                    self.done.append(("stop", name))
                case act.Define() | act.Remove() | act.OnTables():
                    self.done.append(("statement", text_now[0]))

        host.journal, listener.before, listener.after = noted, hears, has_heard
        return db

    def round(self, calls: int, threads: int = 6) -> None:
        """All threads make so many calls each, then everything is compared, in a copy as a crash leaves it, too."""
        db = self.open()
        if not self.clock["s0"] and not self.done:
            for stream in STREAMS:
                db.execute(f"CREATE STREAM {stream} (k INT, v INT, t INT) ORDER BY t")
            db.execute("CREATE TABLE names (k INT, name VARCHAR)")
            self.start(db, self.rng)
        jobs: list[Callable[[ms.Database, random.Random, int], None]] = [
            self.push,
            self.push,
            self.manage,
            self.declare,
        ]
        jobs += [self.look] * max(1, threads - len(jobs))
        seeds = [self.rng.randrange(1 << 30) for _ in jobs]
        workers = [
            threading.Thread(target=self.work, args=(job, db, seed, place, calls), name=f"w{place}")
            for place, (job, seed) in enumerate(zip(jobs, seeds, strict=True))
        ]
        with pauses(random.Random(self.rng.randrange(1 << 30))):
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join(timeout=300)
                assert not worker.is_alive(), "a thread hangs"
        if self.errors:
            raise self.errors[0]
        crashed = self.home.with_name(f"{self.home.name}-crashed")
        shutil.rmtree(crashed, ignore_errors=True)
        host: Any = db._host
        with host.lock:
            shutil.copytree(self.home, crashed)
        self.calls += calls * len(jobs)
        self.compare(db, crashed)

    def work(self, job: Callable[..., None], db: ms.Database, seed: int, place: int, calls: int) -> None:
        rng = random.Random(seed)
        try:
            for _ in range(calls):
                job(db, rng, place)
        except BaseException as error:
            self.errors.append(error)

    def push(self, db: ms.Database, rng: random.Random, place: int) -> None:
        stream = STREAMS[place]
        rows = []
        for _ in range(rng.randrange(1, 6)):
            self.clock[stream] += rng.randrange(3)
            rows.append((rng.randrange(4), rng.randrange(100), self.clock[stream]))
        db.push(stream, rows)

    def start(self, db: ms.Database, rng: random.Random) -> str:
        self.made += 1
        name = f"n{self.made}"
        db.sql(rng.choice(TEMPLATES).format(rng.choice(STREAMS)), name=name)
        return name

    def manage(self, db: ms.Database, rng: random.Random, place: int) -> None:
        running = [query.name for query in db.queries() if query.name.startswith("n")]
        if len(running) < 4 or (len(running) < 12 and rng.random() < 0.6):
            self.start(db, rng)
        else:
            db.stop(rng.choice(running))

    def declare(self, db: ms.Database, rng: random.Random, place: int) -> None:
        match rng.randrange(4):
            case 0:
                db.execute(f"INSERT INTO names VALUES ({rng.randrange(4)}, 'n{rng.randrange(9)}')")
            case 1:
                db.execute(f"DELETE FROM names WHERE k = {rng.randrange(4)}")
            case 2:
                db.checkpoint()
            case 3:
                db.execute("CREATE STREAM x (v INT, t INT) ORDER BY t; CREATE STREAM y AS SELECT v + 1 AS w, t FROM x")
                db.sql("SELECT w FROM y", name="d")
                db.push("x", [(i, i) for i in range(3)])
                db.stop("d")
                db.execute("DROP STREAM y; DROP STREAM x")

    def look(self, db: ms.Database, rng: random.Random, place: int) -> None:
        try:
            query = rng.choice(db.queries())
            if query.name == "d":
                return
            match rng.randrange(3):
                case 0:
                    self.got[query.name].extend(rows_of(query.fetch()))
                case 1:
                    with query.subscribe(when_full="drop") as reader:
                        first, rows = reader.position, []
                        while (batch := reader.next(timeout=0.02)) is not None and len(rows) < 50:
                            rows += rows_of(batch)
                    self.heard.append((query.name, first, rows))
                case 2:
                    query.explain()
                    if "valid_from" in query.schema.names:
                        query.snapshot()
        except (ms.CatalogError, IndexError):
            pass  # it was stopped meanwhile

    # -- what must be so -------------------------------------------------------------------------------------------

    def compare(self, db: ms.Database, crashed: Path) -> None:
        for what in self.done:
            self.twin.do(what)
        self.done = [("kept", "")]
        running = {query.name for query in db.queries()}
        assert running == {query.name for query in self.twin.db.queries()}, "other queries run than should"
        left: dict[str, Rows] = {}
        with ms.connect(crashed, **SETTINGS) as again:
            assert {query.name for query in again.queries()} == running, "other queries run after a crash"
            for name in running:
                left[name] = rows_of(again.query(name).fetch())
            snapshots = {query.name: _snapshot(query) for query in again.queries()}
        for name in running:
            rows = self.twin.collect(name)
            start = self.twin.fetched[name][-1] if self.twin.fetched[name] else 0
            assert left[name] == rows[start:], f"{name} has other rows after a crash"
            assert snapshots[name] == _snapshot(self.twin.db.query(name)), f"{name} holds something else after a crash"
            self.compared += len(rows)
        for name, rows in self.got.items():
            upto = self.twin.fetched[name][-1] if self.twin.fetched[name] else 0
            assert sorted(map(repr, rows)) == sorted(map(repr, self.twin.rows[name][:upto])), (
                f"fetch() of {name} differs"
            )
        for name, first, rows in self.heard:
            assert rows == self.twin.rows[name][first : first + len(rows)], f"a reader of {name} got other rows"
        db.close()


def _snapshot(query: ms.Query) -> list[str] | None:
    return sorted(map(repr, rows_of(query.snapshot()))) if "valid_from" in query.schema.names else None


def run(home: Path, seed: int, *, minutes: float = 0, rounds: int = 1, calls: int = 20) -> Stress:
    stress, until = Stress(home, seed), time.monotonic() + 60 * minutes
    done = 0
    while done < rounds or time.monotonic() < until:
        stress.round(calls)
        done += 1
    return stress


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    until, seed, calls, compared = time.monotonic() + 60 * given.minutes, given.seed, 0, 0
    while time.monotonic() < until:
        with tempfile.TemporaryDirectory(prefix="millstream-stress-") as place:
            stress = run(Path(place) / "home", seed, minutes=min(1.0, (until - time.monotonic()) / 60))
        calls, compared, seed = calls + stress.calls, compared + stress.compared, seed + 1
        print(f"{calls} calls of 6 threads, {compared} rows compared, 0 differences (seeds to {seed - 1})", flush=True)


if __name__ == "__main__":
    main()
