"""A session in a directory beside a twin in memory, while its disk fails and its process dies.

    python -m tests.faults.lifecycle --every          # each step of a small scenario fails in each way
    python -m tests.faults.lifecycle --cases 1000     # random lifecycles with random failures

A call that raises an error has had no effect, and can be made again. A call during which the process died has had its
effect or none. Everything else is as in the twin: rows, positions, readers, tables, settings, and what sinks wrote.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import millstream as ms
from tests.faults.failing_disk import KINDS, Crash, FailingDisk, Kind

SINK = "w"


@dataclass(frozen=True)
class Call:
    """Something that is done to a session; `own` calls are about its directory, and the twin has nothing to do."""

    name: str
    do: Callable[[ms.Database, str], Any]
    own: bool = False


def statement(text: str) -> Call:
    return Call(text, lambda db, out: db.execute(text.replace("{out}", out)))


def query(name: str, text: str) -> Call:
    return Call(f"{name}: {text}", lambda db, out: bool(db.sql(text, name=name)))


def push(stream: str, rows: list[tuple[Any, ...]]) -> Call:
    return Call(f"push {stream} {rows}", lambda db, out: db.push(stream, rows))


def fetch(name: str) -> Call:
    return Call(f"fetch {name}", lambda db, out: db.query(name).fetch().to_pylist())


def reader(name: str) -> Call:
    return Call(f"reader of {name}", lambda db, out: db.query(name).subscribe(name="r").close())


def acknowledge(name: str) -> Call:
    def do(db: ms.Database, out: str) -> Any:
        with db.query(name).subscribe(name="r") as found:
            rows = found.next(timeout=0.0)
            found.ack()
            return None if rows is None else rows.to_pylist()

    return Call(f"acknowledge {name}", do)


CHECKPOINT = Call("checkpoint", lambda db, out: db.checkpoint(), own=True)
CLOSE = Call("close", lambda db, out: db.close(), own=True)
STREAM = "CREATE STREAM s (k INT, v INT, t INT) ORDER BY t KEEP ALL"
SMALL = (
    statement(STREAM),
    statement("CREATE STREAM d KEEP ALL AS SELECT k, v, t FROM s WHERE v <> 11"),
    query("sums", "SELECT k, sum(v) OVER (PARTITION BY k ROWS 2 PRECEDING) AS n FROM s"),
    push("s", [(1, 10, 1), (2, 20, 2)]),
    fetch("sums"),
    statement("SET batch_rows = 7"),
    CHECKPOINT,
    push("s", [(1, 11, 3), (2, 21, 4)]),
    statement("CREATE SINK w WITH (connector = 'file', path = '{out}', format = 'jsonl')"),
    query(SINK, "INSERT INTO w SELECT k, v FROM s"),
    push("s", [(1, 12, 5)]),
    CHECKPOINT,
    push("s", [(2, 22, 6)]),
    CLOSE,
    push("s", [(1, 13, 7), (2, 23, 8)]),
)
"""create, query, push, fetch, SET, checkpoint, push, sink, checkpoint, push, close, push"""


class Lifecycle:
    """The session, its disk and its twin."""

    def __init__(self, place: Path, durability: str = "process") -> None:
        place.mkdir(parents=True)
        self.place, self.home, self.out = place, place / "kept" / "home", place / "kept" / "out"
        self.home.parent.mkdir()
        self.settings: dict[str, Any] = {"jit": "off", "checkpoint_seconds": 3600, "durability": durability}
        self.disk = FailingDisk(self.home.parent)
        self.twin = ms.connect(jit="off")
        self.seen = ""
        self.db: ms.Database | None = None
        self.met: Counter[str] = Counter()
        self.dies_soon = False
        """whether the process is killed after a call that failed was repeated"""

    # -- one call --------------------------------------------------------------------------------------------------

    def run(self, call: Call, at: int = -1, kind: Kind = "eio") -> None:
        """Make a call, during which the disk may fail; and again, if it had no effect."""
        before = self.state(self.twin)
        expected = None if call.own else call.do(self.twin, str(self.place / "twin"))
        after = self.state(self.twin)
        self.disk.arm(at, kind)
        try:
            found = call.do(self.session, str(self.out))
        except Crash:
            self.met["crash"] += 1
            self.abandon()
            if self._is(after, before, call) is before and not call.own:
                self.again(call, expected)
        except ms.MillstreamError as error:
            assert self.disk.failed_at is not None, f"{call.name}: {error}"
            self.met["error"] += 1
            self.disk.heal()
            # with an error on top of an error, it may not be possible to take back what was noted
            known = self._is(before, after if kind == "dies" else before, call, reopen=call is CLOSE or kind == "dies")
            if known is before and not call.own:
                self.again(call, expected)
            if self.dies_soon:
                # what it has written since the error counts, not what it has in memory
                self.abandon()
        else:
            self.disk.heal()
            if not call.own:
                assert found == expected, f"{call.name}: {found}, not {expected}"
        self.disk.heal()
        if call is CLOSE:
            self.reopen()
        self._is(after, after, call)

    def again(self, call: Call, expected: Any) -> None:
        try:
            found = call.do(self.session, str(self.out))
        except ms.StateError as error:
            # after a failure of which nobody knows what is on the disk
            assert "close the session" in str(error), f"{call.name}, once more: {error}"
            self.met["reopened"] += 1
            self.reopen()
            found = call.do(self.session, str(self.out))
        assert found == expected, f"{call.name}, once more: {found}, not {expected}"

    def _is(self, first: Any, second: Any, call: Call, *, reopen: bool = False) -> Any:
        """Which of two states the session is in."""
        if reopen:
            self.reopen()
        now = self.state(self.session)
        for state in (first, second):
            if now == state:
                return state
        raise AssertionError(f"{call.name} at {self.disk.failed_at}:\n{now}\nis neither\n{first}\nnor\n{second}")

    # -- the session -----------------------------------------------------------------------------------------------

    @property
    def session(self) -> ms.Database:
        if self.db is None:
            self.db = ms.connect(self.home, **self.settings)
            seen = written(self.out)
            assert seen.startswith(self.seen), "what was seen of the output is gone"
        return self.db

    def open(self, at: int, kind: Kind) -> None:
        """Open it for the first time on a disk that fails."""
        self.disk.arm(at, kind)
        try:
            _ = self.session
        except (Crash, ms.MillstreamError) as error:
            assert self.disk.failed_at is not None, error
            self.met["crash" if isinstance(error, Crash) else "error"] += 1
        self.disk.heal()
        _ = self.session

    def reopen(self) -> None:
        self.seen = written(self.out)
        if self.db is not None:
            try:
                self.db.close()
            except ms.MillstreamError:
                self.abandon()
        self.db = None
        _ = self.session

    def abandon(self) -> None:
        """The process is gone: nothing more is written, and its locks are free."""
        self.disk.heal()
        self.seen = written(self.out)
        db: Any = self.db
        self.db = None
        if db is not None:
            db.listener._journal.close()
            db.tables.close()

    def end(self) -> None:
        """All inputs end; what the sinks wrote is compared."""
        self.session.finish()
        self.twin.finish()
        last = Call("finish", lambda db, out: None)
        self._is(self.state(self.twin), self.state(self.twin), last)
        host: Any = self.session._host
        sink = host.queries.get(SINK)
        expected = written(self.place / "twin")
        if sink is not None and sink.error is not None:
            self.met["sink failed"] += 1
            assert expected.startswith(written(self.out)), "a sink that failed wrote something else"
        else:
            self.session.close()
            assert written(self.out) == expected, "the sink wrote something else"

    def close(self) -> None:
        self.disk.heal()
        if self.db is not None:
            self.abandon()
        self.twin.close()
        shutil.rmtree(self.place)

    def state(self, db: ms.Database) -> Any:
        """All that can be seen of a session, without changing it."""
        host: Any = db._host
        host.settle()
        streams = {
            name: (each.rows, each.rejected, each.late, db.sql(f"SELECT * FROM HISTORY({name})").fetch().to_pylist())
            for name, each in host.streams.items()
        }
        queries = {}
        for each in db.queries():
            running = host.queries[each.name.lower()]
            if running.sink is not None:
                queries[each.name] = "a sink"
                continue
            log = host.results(each.name)
            rows = [row for batch in log.unfetched() for row in batch.to_pylist()]
            held = sorted(map(repr, each.snapshot().to_pylist())) if "valid_from" in each.schema.names else None
            error = None if running.error is None else running.error.message
            queries[each.name] = (
                log.end,
                log.fetched_to,
                log.acknowledged(),
                rows,
                held,
                error,
                each.state,
                each.coverage,
            )
        tables = {
            row["name"]: sorted(map(repr, db.sql(f"SELECT * FROM {row['name']}").fetch().to_pylist()))
            for row in db.sql("SHOW TABLES").fetch().to_pylist()
        }
        return streams, queries, tables, sorted(entry.name for entry in db.catalog.entries()), db.config.batch_rows


def written(out: Path) -> str:
    """What a reader of an output sees."""
    parts = sorted(out.glob("part-*")) if out.exists() else []
    return "".join(part.read_text() for part in parts)


# -- each step of a small scenario ---------------------------------------------------------------------------------


def steps_of(place: Path, durability: str) -> list[tuple[int, int, str]]:
    """Every step of the scenario: its call (-1: opening), its number in it, and what it is."""
    found = []
    life = Lifecycle(place, durability)
    with life.disk:
        life.disk.arm(-1)
        _ = life.session
        found += [(-1, number, what) for number, (what, _) in enumerate(life.disk.steps)]
        for at, call in enumerate(SMALL):
            life.disk.arm(-1)
            if call is CLOSE:
                life.session.close()
                found += [(at, number, what) for number, (what, _) in enumerate(life.disk.steps)]
                life.db = None
                continue
            life.run(call)
            found += [(at, number, what) for number, (what, _) in enumerate(life.disk.steps)]
        life.end()
        life.close()
    return found


def every_case(place: Path) -> list[tuple[str, int, int, Kind]]:
    """Each step with each way to fail that makes a difference there."""
    return [
        (durability, call, step, kind)
        for durability in ("process", "disk")
        for call, step, what in steps_of(place / f"steps-{durability}", durability)
        for kind in KINDS
        if kind not in ("full", "short") or what in ("create", "write", "mkdir", "link")
        if kind != "short" or what == "write"
    ]


def fail_once(place: Path, durability: str, at: int, step: int, kind: Kind) -> Counter[str]:
    """The scenario, in which one step of one call fails; then it goes on to its end."""
    life = Lifecycle(place, durability)
    life.dies_soon = (step + KINDS.index(kind)) % 2 == (1 if durability == "process" else 0)
    try:
        with life.disk:
            life.open(step if at < 0 else -1, kind)
            for number, call in enumerate(SMALL):
                life.run(call, step if number == at else -1, kind)
            life.end()
    finally:
        life.close()
    return life.met


# -- random lifecycles ---------------------------------------------------------------------------------------------

TEMPLATES = (
    "SELECT k, v FROM s WHERE v % 3 = 0",
    "SELECT k, sum(v) OVER (PARTITION BY k ORDER BY t ROWS 5 PRECEDING) AS x FROM s",
    "SELECT k, count(*) AS n, max(v) AS m FROM s [RANGE 20] GROUP BY k",
    "SELECT s.v, names.name FROM s JOIN names ON s.k = names.k",
    "SELECT DISTINCT k FROM s [RANGE 7]",
    "SELECT k, sum(v) OVER (PARTITION BY k ROWS 3 PRECEDING) AS x FROM d",
    "SELECT v FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES LAST(b.v) AS v PATTERN (a b+ c)"
    " DEFINE b AS b.v > PREV(b.v), c AS c.v < PREV(c.v))",
)


def random_call(rng: random.Random, life: Lifecycle, made: list[int]) -> Call:
    running = [each.name for each in life.twin.queries() if each.name not in (SINK, "d")]
    match rng.choices(("push", "start", "stop", "fetch", "reader", "ack", "table", "set", "sink", "save", "close",
                       "pause"), (10, 4, 2, 4, 1, 2, 2, 1, 1, 3, 2, 2))[0]:  # fmt: skip
        case "start" if len(running) < 5:
            made[0] += 1
            return query(f"q{made[0]}", rng.choice(TEMPLATES) + rng.choice(("", " WITH HISTORY")))
        case "pause" if running:
            return statement(f"{rng.choice(('PAUSE', 'RESUME'))} {rng.choice(running)}")
        case "stop" if running:
            name = rng.choice(running)
            return Call(f"stop {name}", lambda db, out: db.stop(name))
        case "fetch" if running:
            return fetch(rng.choice(running))
        case "reader" if running:
            return reader(rng.choice(running))
        case "ack" if running:
            host: Any = life.twin._host
            named = [name for name in running if "r" in host.results(name).acknowledged()]
            return acknowledge(rng.choice(named)) if named else CHECKPOINT
        case "table":
            k, text = rng.randrange(4), ("INSERT INTO names VALUES ({}, 'n{}')", "DELETE FROM names WHERE k = {}")
            return statement(rng.choice(text).format(k, rng.randrange(9)))
        case "set":
            return statement(f"SET batch_rows = {rng.randrange(1, 100)}")
        case "sink" if SINK not in {each.name for each in life.twin.queries()}:
            return query(SINK, "INSERT INTO w SELECT k, v FROM s")
        case "save":
            return CHECKPOINT
        case "close":
            return CLOSE
    rows = []
    for _ in range(rng.randrange(1, 6)):
        made[1] += rng.randrange(-2, 4)
        rows.append((rng.randrange(4), rng.randrange(100), made[1]))
    return push("s", rows)


def random_life(place: Path, seed: int, calls: int = 25) -> Counter[str]:
    """A random lifecycle in which a third of the calls meet a failure somewhere."""
    rng = random.Random(seed)
    life = Lifecycle(place, rng.choice(("process", "disk")))
    life.settings["checkpoint_seconds"] = rng.choice((0, 3600))
    made = [0, 0]
    try:
        with life.disk:
            life.open(rng.randrange(-6, 12), rng.choice(KINDS))
            for text in (
                "CREATE STREAM s (k INT, v INT, t INT) ORDER BY t SLACK 2 KEEP ALL",
                "CREATE STREAM d KEEP ALL AS SELECT k, t, max(v) OVER (PARTITION BY k ROWS 1 PRECEDING) AS v FROM s",
                "CREATE TABLE names (k INT, name VARCHAR)",
                "CREATE SINK w WITH (connector = 'file', path = '{out}', format = 'jsonl')",
            ):
                life.run(statement(text))
            for _ in range(calls):
                life.dies_soon = rng.random() < 0.5
                call = random_call(rng, life, made)
                most = 40 if call.own or call.name.startswith(("INSERT", "DELETE")) else 4
                at = rng.randrange(most) if rng.random() < 0.35 else -1
                life.run(call, at, rng.choice(KINDS))
            life.end()
    finally:
        life.close()
    return life.met


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--cases", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    logging.getLogger("millstream").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="millstream-faults-") as name:
        place, met, wrong = Path(name), Counter[str](), 0
        jobs: list[tuple[str, Callable[[], Counter[str]]]] = []
        if given.every:
            jobs += [
                (repr(case), lambda case=case: fail_once(place / "case", *case))  # type: ignore[misc]
                for case in every_case(place)
            ]
        for seed in range(given.seed, given.seed + given.cases):
            jobs.append((f"seed {seed}", lambda seed=seed: random_life(place / "case", seed)))  # type: ignore[misc]
        for number, (which, job) in enumerate(jobs, 1):
            try:
                met += job()
            except Exception as error:
                wrong += 1
                print(f"{which}: {type(error).__name__}: {error}", flush=True)
            if number % 100 == 0 or number == len(jobs):
                print(f"{number} of {len(jobs)} cases: {wrong} wrong; {dict(met)}", flush=True)
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
