"""Queries that begin late, change, rest and restart, beside the same queries started before the first row.

    python -m tests.support.histories --cases 10000    # late queries with history
    python -m tests.support.histories --lives 1000     # add, drop, alter, pause, restart

A query that starts late with all its history gives the rows of one that was always there. One with less gives the same
from the instant on that its coverage tells. In half of the cases, the stream that keeps rows is derived from another.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from typing import Any

import millstream as ms
from millstream.hosts import history

FAMILIES = {
    "filter": "SELECT k, v, t FROM s WHERE v % 2 = 0",
    "over rows": "SELECT k, v, t, sum(v) OVER (PARTITION BY k ROWS 2 PRECEDING) AS x FROM s",
    "over range": "SELECT k, v, t, sum(v) OVER (PARTITION BY k RANGE 5 PRECEDING) AS x FROM s",
    "over all": "SELECT k, v, t, count(*) OVER (ROWS UNBOUNDED PRECEDING) AS x FROM s",
    "over slide": "SELECT k, v, t, max(v) OVER (PARTITION BY k ROWS 3 PRECEDING SLIDE 2) AS x FROM s",
    "lag": "SELECT k, v, t, lag(v) OVER (PARTITION BY k ORDER BY t) AS x FROM s",
    "group": "SELECT k, count(*) AS n, sum(v) AS x FROM s [RANGE 6] GROUP BY k",
    "sliding group": "SELECT count(*) AS n, min(v) AS x FROM s [RANGE 6 SLIDE 3]",
    "distinct": "SELECT DISTINCT k FROM s [RANGE 4]",
    "rows window": "SELECT k, max(v) AS x FROM s [ROWS 4] GROUP BY k",
    "latest": "SELECT k, v FROM s [PARTITION BY k ROWS 1]",
    "join": "SELECT s.v AS a, r.v AS b FROM s [RANGE 5], r [RANGE 3] WHERE s.k = r.k",
    "outer join": "SELECT s.v AS a, r.v AS b FROM s [RANGE 5] LEFT JOIN r [RANGE 3] ON s.k = r.k",
    "except": "SELECT k FROM s [RANGE 5] EXCEPT SELECT k FROM r [RANGE 5]",
    "semi join": "SELECT v FROM s [RANGE 6] WHERE k IN (SELECT k FROM r [RANGE 4])",
    "istream": "SELECT ISTREAM(k, count(*) AS n) FROM s [RANGE 5] GROUP BY k",
    "dstream": "SELECT DSTREAM(v) FROM s [RANGE 5] WHERE v > 3",
    "union": "SELECT k, v, t FROM s UNION ALL SELECT k, v, t FROM r",
    "near": "SELECT s.v AS a, r.v AS b FROM s JOIN r ON s.k = r.k AND r.t BETWEEN s.t - 3 AND s.t + 2",
    "asof": "SELECT s.v AS a, r.v AS b FROM s ASOF JOIN r ON s.k = r.k AND s.t >= r.t",
    "table": "SELECT s.v, names.name FROM s JOIN names ON s.k = names.k",
    "tumble": "SELECT k, window_end, sum(v) AS x FROM TUMBLE(s, t, 5) GROUP BY k, window_start, window_end",
    "hop": "SELECT window_end, count(*) AS n FROM HOP(s, t, 3, 6) GROUP BY window_start, window_end",
    "session": "SELECT k, count(*) AS n FROM SESSION(s PARTITION BY k, t, 3) GROUP BY k, window_start, window_end",
    "pattern": "SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES LAST(b.v) AS v, LAST(b.t) AS u"
    " PATTERN (a b+) DEFINE b AS b.v > PREV(b.v))",
    "next": "SELECT * FROM FILTER{v > 2} s NEXT{$1.k = $2.k} r",
    "late": "SELECT v FROM s WHERE v NOT IN (SELECT v FROM r [RANGE 3])",
}
DECLARED = (
    "CREATE STREAM s (k INT, v INT, t INT) ORDER BY t SLACK 2 KEEP {keep}",
    "CREATE STREAM r (k INT, v INT, t INT) ORDER BY t KEEP {keep}",
    "CREATE TABLE names (k INT, name VARCHAR)",
    "INSERT INTO names VALUES (0, 'zero'), (2, 'two')",
)


DERIVED = (
    "CREATE STREAM raw (v INT, k INT, t INT) ORDER BY t SLACK 2",
    "CREATE STREAM s KEEP {keep} AS SELECT k, v, t FROM raw",
)


@dataclass
class Rows:
    """Random rows for the streams, roughly in order of time."""

    chance: random.Random
    derived: bool = False
    time: int = 0

    def push(self, *sessions: ms.Database) -> None:
        stream = self.chance.choice("ssr")
        rows = []
        for _ in range(self.chance.randint(1, 5)):
            self.time += self.chance.choice((0, 0, 1, 1, 2, 4))
            late = self.chance.choice((0, 0, 1, 2)) if stream == "s" else 0
            rows.append((self.chance.randrange(3), self.chance.randrange(8), self.time - late))
        ahead = self.time + 1 if self.chance.random() < 0.2 else None
        for session in sessions:
            if stream == "s" and self.derived:
                session.push("raw", [(v, k, t) for k, v, t in rows])
            else:
                session.push(stream, rows)
            if ahead is not None:
                session.advance("r" if stream == "s" else "raw" if self.derived else "s", self.time)


def declared(session: ms.Database, keep: str, derived: bool = False) -> ms.Database:
    for text in (*DERIVED, *DECLARED[1:]) if derived else DECLARED:
        session.execute(text.format(keep=keep))
    return session


def told(query: ms.Query) -> list[str]:
    """The rows that a query has given; which of one instant comes first is not defined for all of them."""
    return sorted(repr(tuple(row.values())) for row in query.fetch().to_pylist())


def late_case(seed: int) -> str:
    """One query from the first row on, and one that starts later with history; what kind of case it was."""
    chance = random.Random(seed)
    family = chance.choice(sorted(FAMILIES))
    keep = chance.choice(("ALL", "ALL", "ALL", "12", "20 ROWS"))
    before = history.CHUNK_ROWS, history.MOST_PARTS
    history.CHUNK_ROWS, history.MOST_PARTS = chance.choice(((4, 2), before))
    try:
        return f"{family}, {_late_case(chance, FAMILIES[family], keep)}"
    except Exception as error:
        raise AssertionError(f"seed {seed}, {family}, KEEP {keep}: {error}") from error
    finally:
        history.CHUNK_ROWS, history.MOST_PARTS = before


def _late_case(chance: random.Random, text: str, keep: str) -> str:
    derived = chance.random() < 0.5
    with declared(ms.connect(jit="off", batch_rows=chance.choice((3, 1000))), keep, derived) as db:
        first = db.sql(text, name="first")
        rows = Rows(chance, derived)
        for _ in range(chance.randint(0, 9)):
            rows.push(db)
        since = f" SINCE {chance.randint(0, rows.time + 1)}" if chance.random() < 0.25 else ""
        late = db.sql(f"{text} WITH HISTORY{since}", name="late")
        assert late.state == "running"
        for _ in range(chance.randint(0, 5)):
            rows.push(db)
        known = late.coverage
        relation = "valid_from" in late.schema.names
        if known.is_complete:
            if relation and rows.time:
                assert _content(late) == _content(first)
            db.finish()
            found, expected = told(late), told(first)
            assert found == expected, f"\n{found}\nis not\n{expected}"
            return "complete"
        if known.complete_from is None:
            return "never complete"
        now = db._host.queries["late"].now  # type: ignore[attr-defined]
        if relation and now >= known.complete_from:
            assert _content(late) == _content(first), f"at {now}, {known}"
            return "covered relation"
        if relation or "t" not in late.schema.names:
            return "not comparable"
        db.finish()
        ours, theirs = (
            [row for row in query.fetch().to_pylist() if row["t"] >= known.complete_from] for query in (late, first)
        )
        assert ours == theirs, f"{known}\n{ours}\nis not\n{theirs}"
        return "covered events"


def _content(query: ms.Query) -> list[str]:
    return sorted(map(repr, query.snapshot().to_pylist()))


# -- lives of queries ----------------------------------------------------------------------------------------------


@dataclass
class Alive:
    """A query of the session: which definition it has, and up to where its rows are known."""

    family: str
    position: int
    rests: bool = False


class Life:
    """A session whose queries come, go, change, rest and restart; and one in which all definitions always ran."""

    def __init__(self, chance: random.Random, directory: str | None) -> None:
        self.chance, self.directory = chance, directory
        derived = chance.random() < 0.5
        self.db = declared(
            ms.connect(directory, jit="off") if directory else ms.connect(jit="off"), "ALL BY k", derived
        )
        self.twin = declared(ms.connect(jit="off"), "ALL", derived)
        self.given: dict[str, list[str]] = {family: [] for family in FAMILIES}
        for family, text in FAMILIES.items():
            self.twin.sql(text, name=family.replace(" ", "_"))
        self.queries: dict[str, Alive] = {}
        self.rows, self.made, self.met = Rows(chance, derived), 0, Counter[str]()

    def step(self) -> None:
        what = self.chance.choices(
            ("push", "add", "drop", "alter", "pause", "resume", "restart"), (12, 4, 1, 4, 3, 3, 2)
        )[0]
        name = self.chance.choice(sorted(self.queries)) if self.queries else ""
        self.met[what] += 1
        match what:
            case "add":
                self.made += 1
                self.queries[f"q{self.made}"] = Alive(family := self.chance.choice(sorted(FAMILIES)), 0)
                self.db.sql(FAMILIES[family] + " WITH HISTORY", name=f"q{self.made}")
            case "drop" if name:
                self.db.execute(f"DROP QUERY {name}")
                del self.queries[name]
            case "alter" if name and not self.queries[name].rests:
                self.alter(name)
            case "pause" if name:
                self.db.execute(f"PAUSE {name}")
                self.queries[name].rests = True
            case "resume" if name:
                self.db.query(name).resume()
                self.queries[name].rests = False
            case "restart" if self.directory is not None:
                self.db.close()
                self.db = ms.connect(self.directory, jit="off")
            case _:
                self.rows.push(self.db, self.twin)
        self.check()

    def alter(self, name: str) -> None:
        """Another definition of the same columns, or of any if nobody has seen the old ones."""
        query = self.queries[name]
        family = self.chance.choice(sorted(FAMILIES))
        self.check()
        self.db.execute(f"ALTER QUERY {name} AS {FAMILIES[family]}")
        query.family, query.position = family, len(self.given[family])

    def check(self) -> None:
        """Every query has given what its definition gives from the first row on, since it has it."""
        for family in FAMILIES:
            self.given[family] += told(self.twin.query(family.replace(" ", "_")))
        for name, query in self.queries.items():
            found = told(self.db.query(name))
            if query.rests:
                assert not found, f"{name} rests, and gives {found}"
                continue
            expected = sorted(self.given[query.family][query.position :])
            query.position = len(self.given[query.family])
            assert found == expected, f"{name}, {query.family}:\n{found}\nis not\n{expected}"

    def end(self) -> None:
        for name, query in self.queries.items():
            self.db.query(name).resume()
            query.rests = False
        self.check()
        for session in (self.db, self.twin):
            session.finish()
        self.check()
        self.db.close()
        self.twin.close()


def random_life(seed: int, steps: int = 25) -> Counter[str]:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="millstream-life-") as directory:
        life = Life(chance, directory if chance.random() < 0.5 else None)
        try:
            for _ in range(steps):
                life.step()
            life.end()
        except Exception as error:
            raise AssertionError(f"seed {seed}, after {dict(life.met)}: {error}") from error
    return life.met


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=0)
    parser.add_argument("--lives", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    met, wrong = Counter[str](), 0
    jobs: list[tuple[Any, int]] = [(late_case, given.seed + n) for n in range(given.cases)]
    jobs += [(random_life, given.seed + n) for n in range(given.lives)]
    for number, (job, seed) in enumerate(jobs, 1):
        try:
            found = job(seed)
            met.update([found.rpartition(", ")[2]] if isinstance(found, str) else found)
        except AssertionError as error:
            wrong += 1
            print(error, flush=True)
        if number % 500 == 0 or number == len(jobs):
            print(f"{number} of {len(jobs)} cases: {wrong} wrong; {dict(met)}", flush=True)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
