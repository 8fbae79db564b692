"""Queries that begin late on Spark, with and without history, beside the same queries in-process.

    python -m tests.support.spark_histories --cases 200

In each case the same rows are pushed to both. A query starts between them: WITH HISTORY, with SINCE, or with none. In
some cases it is stopped before the end. Both give the same rows. A hundred cases are one job of Spark's.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import millstream as ms
from millstream.hosts.spark.host import SparkHost
from tests.support.histories import FAMILIES, Rows, declared, told

IN_A_JOB = 100


@dataclass
class LateCase:
    """A query on both hosts, before the end of its inputs."""

    title: str
    sessions: tuple[ms.Database, ms.Database]
    queries: tuple[ms.Query, ms.Query]
    stopped: bool

    @staticmethod
    def of(seed: int, on_spark: Callable[[], ms.Database]) -> LateCase:
        chance = random.Random(seed)
        family = chance.choice(sorted(FAMILIES))
        sessions = tuple(declared(made(), "ALL") for made in (on_spark, lambda: ms.connect(jit="off")))
        rows = Rows(chance)
        for _ in range(chance.randint(0, 9)):
            rows.push(*sessions)
        how = chance.choice(
            (" WITH HISTORY", " WITH HISTORY", f" WITH HISTORY SINCE {chance.randint(0, rows.time + 1)}", "")
        )
        queries = tuple(session.sql(FAMILIES[family] + how, name="late") for session in sessions)
        for _ in range(chance.randint(0, 5)):
            rows.push(*sessions)
        stopped = chance.random() < 0.2
        if stopped:
            for query in queries:
                query.stop()
            rows.push(*sessions)
        title = f"seed {seed}, {family}{how}{', stopped' if stopped else ''}"
        return LateCase(title, sessions, queries, stopped)  # type: ignore[arg-type]

    def difference(self) -> str | None:
        """What is wrong after all inputs have ended."""
        ours, theirs = map(_rows, self.queries)
        for session in self.sessions:
            session.close()
        return None if ours == theirs else f"{self.title}:\n{ours}\nis not\n{theirs}"


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
    return [found for case in cases if (found := case.difference()) is not None], met


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    met, wrong = Counter[str](), 0
    for first in range(0, given.cases, IN_A_JOB):
        seeds = range(given.seed + first, given.seed + min(first + IN_A_JOB, given.cases))
        found, kinds = late_cases(seeds, lambda: ms.connect(engine="spark"))
        wrong, met = wrong + len(found), met + kinds
        for line in found:
            print(line, flush=True)
        print(f"{sum(met.values())} of {given.cases} cases: {wrong} wrong; {dict(met)}", flush=True)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
