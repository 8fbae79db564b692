"""Damage to the files of sessions: it is noticed, or does no harm.

python -m tests.faults.damage --cases 1000 [--seed 7]
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import millstream as ms
from millstream.session.frames import DamagedError
from millstream.session.repair import repair

QUERIES = {
    "plain": "SELECT v FROM s",
    "sums": "SELECT sum(v) OVER (ROWS UNBOUNDED PRECEDING) AS n FROM s",
    "groups": "SELECT k, count(*) AS n FROM s [RANGE 5] GROUP BY k",
}
DIE = """
import os, sys
import millstream as ms
db = ms.connect(sys.argv[1], checkpoint_seconds=3600)
db.execute("CREATE STREAM s (k INT, v INT, t INT) ORDER BY t; CREATE TABLE names (k INT, name VARCHAR)")
for name, text in eval(sys.argv[2]).items():
    db.sql(text, name=name)
for i in range(10):
    db.push("s", [(i % 3, i, i)])
db.checkpoint()
for i in range(10, 25):
    db.push("s", [(i % 3, i, i)])
os._exit(0)
"""


def answers(home: Path) -> dict[str, list[dict[str, Any]]]:
    with ms.connect(home) as db:
        db.finish()
        return {name: db.query(name).fetch().to_pylist() for name in QUERIES}


def files_of(home: Path) -> list[Path]:
    """What the session wrote, without DuckDB's file, which has checksums of its own."""
    return sorted(path for path in home.rglob("*") if path.is_file() and not path.name.startswith(("lock", "tables")))


def hurt(path: Path, rng: random.Random) -> str:
    data = bytearray(path.read_bytes())
    kind = rng.choice(["flip", "flip", "zeros", "cut", "swap", "gone"])
    at = rng.randrange(len(data))
    match kind:
        case "flip":
            data[at] ^= 1 << rng.randrange(8)
        case "zeros":
            stop = min(len(data), at + rng.randrange(1, 200))
            data[at:stop] = bytes(stop - at)
        case "cut":
            del data[at : min(len(data), at + rng.randrange(1, 200))]
        case "swap":
            other = rng.randrange(len(data))
            data[at], data[other] = data[other], data[at]
    if kind == "gone":
        path.unlink()
    else:
        path.write_bytes(bytes(data))
    return kind


def damage(crashed: Path, expected: dict[str, Any], home: Path, rng: random.Random) -> bool:
    """Damage a copy, and see that it is noticed, or does no harm; whether it was noticed."""
    shutil.copytree(crashed, home)
    victim = rng.choice(files_of(home))
    whole = victim.read_bytes()
    kind = hurt(victim, rng)
    torn = victim.name.startswith("journal") and victim.exists() and is_torn(whole, victim.read_bytes())
    try:
        found = answers(home)
    except DamagedError as error:
        assert error.path.name == victim.name
        assert f"repair {home}`" in str(error.hint)
        repair(home)
        with ms.connect(home) as db:
            assert {query.name for query in db.queries()} <= set(QUERIES)
        return True
    else:
        if torn:
            rows = found["plain"]
            assert rows == expected["plain"][: len(rows)] and len(rows) >= len(expected["plain"]) - 1, (victim, kind)
        else:
            assert found == expected, (victim, kind)
        return False
    finally:
        shutil.rmtree(home)


def is_torn(whole: bytes, found: bytes) -> bool:
    """Whether a file is whole but for its last frame, which lacks bytes, as when its writer died."""
    place = whole.rfind(b'{"op":') - 28
    return len(found) < len(whole) and found.startswith(whole[:place])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    logging.getLogger("millstream").setLevel(logging.CRITICAL)
    rng = random.Random(given.seed)
    noticed = wrong = 0
    with tempfile.TemporaryDirectory(prefix="millstream-damage-") as name:
        home = Path(name) / "home"
        subprocess.run([sys.executable, "-c", DIE, str(home), repr(QUERIES)], check=True)
        shutil.copytree(home, Path(name) / "whole")
        expected = answers(Path(name) / "whole")
        for number in range(1, given.cases + 1):
            try:
                noticed += damage(home, expected, Path(name) / "case", rng)
            except Exception as error:
                wrong += 1
                print(f"case {number}: {type(error).__name__}: {error}", flush=True)
            if number % 100 == 0 or number == given.cases:
                print(f"{number} damaged directories: {noticed} noticed, {wrong} wrong", flush=True)
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
