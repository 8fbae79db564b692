"""A process with a session in a directory is killed (SIGKILL) at random moments, again and again.

    python -m tests.faults.kills --kills 1000 [--seed 7]

The process pushes, fetches, changes a table and saves checkpoints; a query writes part files. After each kill another
process goes on where the session says that it is. Once all rows are in, results, the table and the part files must be
those of a session in memory that nobody killed. Processes are forked, so that none spends its life with imports.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import millstream as ms

ROWS, STEP, PER_SESSION = 400, 4, 40
QUERIES = {
    "plain": "SELECT k, v FROM s WHERE v % 3 = 0",
    "sums": "SELECT k, sum(v) OVER (PARTITION BY k ORDER BY t ROWS 5 PRECEDING) AS n FROM s",
    "groups": "SELECT k, count(*) AS n, max(v) AS m FROM s [RANGE 20] GROUP BY k",
    "named": "SELECT s.v, names.name FROM s JOIN names ON s.k = names.k",
    "seen": "SELECT count(*) OVER (ROWS UNBOUNDED PRECEDING) AS n FROM s",
}


def rows_from(start: int) -> list[tuple[int, int, int]]:
    """Times are out of order by up to 2."""
    return [(i % 4, i * 7 % 101, i + (i * 5 % 3)) for i in range(start, min(start + STEP, ROWS))]


def go_on(db: ms.Database, out: Path) -> None:
    """Do what is left to do, by what the session knows."""
    host: Any = db._host
    if db.catalog.find("names") is None:
        db.execute("CREATE TABLE names (k INT PRIMARY KEY, name VARCHAR)")
    if not len(db.sql("SELECT k FROM names").fetch()):
        db.execute("INSERT INTO names VALUES (0, 'a'), (1, 'b'), (2, 'c')")
    if db.catalog.find("s") is None:
        db.execute("CREATE STREAM s (k INT, v INT, t INT) ORDER BY t SLACK 2")
    if db.catalog.find("w") is None:
        db.execute(f"CREATE SINK w WITH (connector = 'file', path = '{out}', format = 'jsonl')")
    running = {query.name for query in db.queries()}
    for name, text in QUERIES.items():
        if name not in running:
            db.sql(text, name=name)
    if "written" not in running:
        db.sql("INSERT INTO w SELECT k, v FROM s", name="written")
    while (done := host.streams["s"].rows) < ROWS:
        db.push("s", rows_from(done))
        if done % 40 == 0:
            db.execute("UPDATE names SET name = 'd' WHERE k = 3")
        if done % 28 == 0:
            db.checkpoint()


def answers(db: ms.Database, out: Path) -> dict[str, Any]:
    db.finish()
    found: dict[str, Any] = {name: db.query(name).fetch().to_pylist() for name in QUERIES}
    found["names"] = sorted(map(repr, db.sql("SELECT * FROM names").fetch().to_pylist()))
    db.close()
    found["written"] = "".join(part.read_text() for part in sorted(out.glob("part-*")))
    return found


def live(home: Path, out: Path, seed: int) -> None:
    """One process: it goes on until it is done or killed."""
    # what is done after how many rows must not depend on when it was killed
    durability = ("process", "disk")[seed % 2]
    with ms.connect(home, jit="off", checkpoint_seconds=0.05, durability=durability) as db:
        go_on(db, out)


def killed_until_done(place: Path, rng: random.Random, left: int) -> int:
    """Kill processes that work on a session, until one is done; how many were killed."""
    home, out, kills = place / "home", place / "out", 0
    while True:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                live(home, out, kills)
                code = 0
            except BaseException as error:
                print(f"after {kills} kills: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            finally:
                os._exit(code)
        if kills < left:
            time.sleep(rng.choice((0.05, 0.3, 1.0)) * rng.random())
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0, "a process failed"
            return kills
        kills += 1


def run(place: Path, seed: int, most: int) -> int:
    """A session whose processes are killed; its answers are compared. How many kills that were."""
    kills = killed_until_done(place, random.Random(seed), most)
    with_kills = answers(ms.connect(place / "home", jit="off"), place / "out")
    twin = ms.connect(jit="off")
    go_on(_without_checkpoints(twin), place / "twin")
    expected = answers(twin, place / "twin")
    for name, rows in expected.items():
        assert with_kills[name] == rows, f"{name} after {kills} kills: {with_kills[name]}, not {rows}"
    return kills


def _without_checkpoints(db: ms.Database) -> ms.Database:
    db.checkpoint = lambda: None  # type: ignore[method-assign]
    return db


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    kills = sessions = wrong = 0
    while kills < given.kills:
        with tempfile.TemporaryDirectory(prefix="millstream-kills-") as name:
            # in a process of its own: nothing that DuckDB has started may be forked
            reading, writing = os.pipe()
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    os.write(
                        writing,
                        str(run(Path(name), given.seed + sessions, min(PER_SESSION, given.kills - kills))).encode(),
                    )
                    code = 0
                except BaseException as error:
                    print(f"seed {given.seed + sessions}: {type(error).__name__}: {error}", flush=True)
                finally:
                    os._exit(code)
            _, status = os.waitpid(pid, 0)
            os.close(writing)
            told = os.read(reading, 100)
            os.close(reading)
        sessions += 1
        wrong += status != 0
        kills += int(told or 0)
        print(f"{kills} kills of {sessions} sessions: {wrong} wrong", flush=True)
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
