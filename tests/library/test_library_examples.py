"""The programs under examples/ that show aggregates written in SQL."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

PRINTED = {
    "rfid_grouping": [
        "reader 1, case 1: soap",
        "reader 1, case 1: comb",
        "reader 2, case 1: lamp",
        "reader 1, case 2: milk",
        "reader 2, case 2: bulb",
    ],
    "theft_alarm": ["so far: 0 alarms", "larceny alarm: camera, seen at 09:00:20"],
}


@pytest.mark.parametrize("name", PRINTED)
def test_example(name: str) -> None:
    done = subprocess.run([sys.executable, EXAMPLES / f"{name}.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == PRINTED[name]
