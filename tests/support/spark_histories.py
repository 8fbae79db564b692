"""Queries that begin late on Spark, with and without history, beside the same queries in-process.

    python -m tests.support.spark_histories --cases 200
    python -m tests.support.spark_histories --jobs 20     # streaming jobs whose queries are altered

In each case the same rows are pushed to both. A query starts between them: WITH HISTORY, with SINCE, or with none. In
some cases it is stopped before the end, or gets another definition; in some, its stream is derived and keeps its rows.
Both give the same rows. A hundred cases are one job of Spark's.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import millstream as ms
from millstream.hosts.spark.host import SparkHost
from millstream.hosts.spark.session import get_session
from millstream.spark import Millstream
from tests.support.histories import DECLARED, FAMILIES, Rows, declared, told

IN_A_JOB = 100


@dataclass
class LateCase:
    """A query on both hosts, before the end of its inputs."""

    title: str
    sessions: tuple[ms.Database, ms.Database]
    queries: tuple[ms.Query, ms.Query]
    stopped: bool
    altered: bool
    derived: bool

    @staticmethod
    def of(seed: int, on_spark: Callable[[], ms.Database]) -> LateCase:
        chance = random.Random(seed)
        family = chance.choice(sorted(FAMILIES))
        also = random.Random(f"{seed}, also")
        derived = also.random() < 0.2
        sessions = tuple(declared(made(), "ALL", derived) for made in (on_spark, lambda: ms.connect(jit="off")))
        rows = Rows(chance, derived)
        for _ in range(chance.randint(0, 9)):
            rows.push(*sessions)
        how = chance.choice(
            (" WITH HISTORY", " WITH HISTORY", f" WITH HISTORY SINCE {chance.randint(0, rows.time + 1)}", "")
        )
        queries = tuple(session.sql(FAMILIES[family] + how, name="late") for session in sessions)
        for _ in range(chance.randint(0, 5)):
            rows.push(*sessions)
        stopped, altered = chance.random() < 0.2, ""
        if also.random() < 0.3:
            others = also.sample([other for other in sorted(FAMILIES) if other != family], len(FAMILIES) - 1)
            for other in (each for each in others if _alter(f"ALTER QUERY late AS {FAMILIES[each]}", *sessions)):
                altered = f", then {other}"
                break
            for _ in range(chance.randint(0, 5)):
                rows.push(*sessions)
        if stopped:
            for query in queries:
                query.stop()
            rows.push(*sessions)
        title = f"seed {seed}, {family}{how}{altered}{', derived' if derived else ''}{', stopped' if stopped else ''}"
        return LateCase(title, sessions, queries, stopped, bool(altered), derived)  # type: ignore[arg-type]

    def difference(self) -> str | None:
        """What is wrong after all inputs have ended."""
        ours, theirs = map(_rows, self.queries)
        for session in self.sessions:
            session.close()
        return None if ours == theirs else f"{self.title}:\n{ours}\nis not\n{theirs}"


def _alter(text: str, on_spark: ms.Database, alone: ms.Database) -> bool:
    """Change a query in both sessions; whether Spark can."""
    try:
        on_spark.execute(text)
    except ms.UnsupportedError:
        return False
    alone.execute(text)
    return True


def _rows(query: ms.Query) -> list[str]:
    try:
        return told(query)
    except ms.CatalogError:
        return []  # it was stopped, and has left nothing


def late_cases(seeds: Sequence[int], on_spark: Callable[[], ms.Database]) -> tuple[list[str], Counter[str]]:
    """The cases that came out otherwise on Spark, and how many there were of each kind."""
    cases = [LateCase.of(seed, on_spark) for seed in seeds]
    SparkHost.finish_together([case.sessions[0]._host for case in cases])  # type: ignore[misc]
    for case in cases:
        case.sessions[1].finish()
    met = Counter("stopped" if case.stopped else "to the end" for case in cases)
    met += Counter(altered=sum(case.altered for case in cases), derived=sum(case.derived for case in cases))
    return [found for case in cases if (found := case.difference()) is not None], met


# -- streaming jobs ------------------------------------------------------------------------------------------------


class AlteredJob:
    """Queries of random families over files that are followed; and the same queries in-process, over rows."""

    def __init__(self, seed: int, spark: Any, place: Path) -> None:
        self.chance, self.place = random.Random(seed), place
        self.m, self.db = Millstream(spark), declared(ms.connect(jit="off"), "ALL")
        for text in DECLARED[2:]:
            self.m.execute(text)
        for stream in "sr":
            (place / stream).mkdir()
            self.m.execute(
                f"CREATE STREAM {stream} (k INT, v INT, t INT) ORDER BY t WITH (connector = 'file', "
                f"path = '{place}/{stream}', format = 'parquet', follow = true)"
            )
        self.time = self.files = 0

    def push(self) -> None:
        """Rows of both streams in order, and then a heartbeat that makes all their results final."""
        for stream in "sr":
            time, rows = self.time, []
            for _ in range(self.chance.randint(1, 6)):
                time += self.chance.choice((1, 1, 2, 4))
                rows.append((self.chance.randrange(3), self.chance.randrange(8), time))
            self.db.push(stream, rows)
            self.files += 1
            hidden = self.place / stream / f".{self.files}"
            columns = zip("kvt", zip(*rows, strict=True), strict=True)
            pq.write_table(pa.table({name: pa.array(values, pa.int32()) for name, values in columns}), hidden)
            hidden.rename(hidden.with_name(f"{self.files:04}.parquet"))
        self.time += 30
        for session in (self.m, self.db):
            session.advance("s", self.time)
            session.advance("r", self.time)

    def differences(self, families: Sequence[str], altered: Sequence[str] = ()) -> list[str]:
        """Run the job over what is new; the queries whose rows are not those of in-process."""
        names = [f"q{number}" for number in range(len(families))]
        found: dict[str, list[str]] = {name: [] for name in names}

        def take(name: str) -> Callable[[Any, int], None]:
            return lambda df, batch: found[name].extend(repr(tuple(row)) for row in df.collect())

        self.m.start(
            {name: FAMILIES[family] for name, family in zip(names, families, strict=True)},
            checkpoint=f"{self.place}/checkpoint",
            trigger={"availableNow": True},
            foreach_batch={name: take(name) for name in names},
            altered=altered,
        ).wait()
        expected = {name: told(self.db.query(name)) for name in names}
        return [
            f"{family}: {sorted(found[name])}, not {expected[name]}"
            for name, family in zip(names, families, strict=True)
            if sorted(found[name]) != expected[name]
        ]


def altered_job(seed: int, spark: Any, queries: int = 8) -> list[str]:
    """A job whose queries get definitions of other shapes; what was different from in-process."""
    with tempfile.TemporaryDirectory(prefix="millstream-altered-") as place:
        job = AlteredJob(seed, spark, Path(place))
        # the job reads both streams in any case, and one query stays what it is
        families = [*job.chance.sample(sorted(FAMILIES), queries), "union"]
        others = [*job.chance.sample(sorted(FAMILIES), queries), "union"]
        for number, family in enumerate(families):
            job.db.sql(FAMILIES[family], name=f"q{number}")
        job.push()
        wrong = job.differences(families)
        changed = [number for number, (old, new) in enumerate(zip(families, others, strict=True)) if old != new]
        for number in changed:
            job.db.execute(f"ALTER QUERY q{number} AS {FAMILIES[others[number]]}")
        for altered in ([f"q{number}" for number in changed], []):
            job.push()
            wrong += job.differences(others, altered)
        job.m.close()
        job.db.close()
        return [f"seed {seed}, {families} to {others}: {line}" for line in wrong]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    met, wrong = Counter[str](), 0
    for seed in range(given.seed, given.seed + given.jobs):
        differences = altered_job(seed, get_session())
        wrong += bool(differences)
        print(*differences, f"{seed + 1 - given.seed} of {given.jobs} jobs: {wrong} wrong", sep="\n", flush=True)
    for first in range(0, given.cases, IN_A_JOB):
        seeds = range(given.seed + first, given.seed + min(first + IN_A_JOB, given.cases))
        found, kinds = late_cases(seeds, lambda: ms.connect(engine="spark"))
        wrong, met = wrong + len(found), met + kinds
        for line in found:
            print(line, flush=True)
        print(f"{first + len(seeds)} of {given.cases} cases: {wrong} wrong; {dict(met)}", flush=True)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
