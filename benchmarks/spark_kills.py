"""Kill a streaming pipeline on Spark again and again (SIGKILL to all its processes), and compare what it wrote.

    python benchmarks/spark_kills.py --runs 50

A run is one kill and the restart after it. Files go through two stages with different keys into part files; every few
kills the pipeline may finish, and its rows are compared with those of the in-process engine.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "spark"))

import kill_runs

from quick_java import environment

KILLS_PER_JOB = 10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=50, help="how many kills")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    os.environ.update(environment())
    lost = doubled = wrong = rows = done = 0
    begin = time.monotonic()
    while done < options.runs:
        count = min(KILLS_PER_JOB, options.runs - done)
        points = [kill_runs.POINTS[(done + i) % len(kill_runs.POINTS)] for i in range(count)]
        rng.shuffle(points)
        folder = Path(tempfile.mkdtemp(prefix="millstream-kills-"))
        found, written = kill_runs.run_job(folder, points, rng, files=32, rows=10, told=print)
        done += count
        lost, doubled, wrong, rows = lost + found.lost, doubled + found.doubled, wrong + found.wrong, rows + written
        if found == kill_runs.Difference(0, 0, 0):
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"{found}; all is left in {folder}")
        print(f"{done} runs after {time.monotonic() - begin:.0f} s: {lost} lost, {doubled} doubled, {wrong} wrong")
    print(f"{lost} lost, {doubled} doubled of {rows} rows in {done} runs" + (f"; {wrong} wrong" if wrong else ""))
    return 1 if lost or doubled or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
