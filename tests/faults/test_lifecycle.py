"""The disk fails, or the process dies, at any step: what was acknowledged is there, once, and nothing else is.

`python -m tests.faults.lifecycle --every` tries each step of the scenario, `--cases N` random lifecycles.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.failing_disk import Crash
from tests.faults.lifecycle import SMALL, Lifecycle, every_case, fail_once, random_life
from tiers import examples


def test_steps_of_a_small_scenario(tmp_path: Path) -> None:
    cases = every_case(tmp_path)
    assert len(cases) > 500
    assert {call for _, call, _, _ in cases} == {-1, *range(len(SMALL))}, "every call writes something"
    met: Counter[str] = Counter()
    for number, case in enumerate(cases[:: max(1, len(cases) // examples(40))]):
        met += fail_once(tmp_path / str(number), *case)
    assert met["error"] > met["crash"] > 0


def test_a_first_opening_that_fails_can_be_repeated(tmp_path: Path) -> None:
    steps = sorted({step for durability, call, step, _ in every_case(tmp_path) if call < 0 and durability == "process"})
    assert len(steps) > 5
    for step in steps:
        assert fail_once(tmp_path / str(step), "process", -1, step, "crash" if step % 2 else "eio")


@pytest.mark.parametrize("seed", range(examples(6)))
def test_random_lifecycles(tmp_path: Path, seed: int) -> None:
    assert random_life(tmp_path / "life", seed)


def test_the_disk_fails_when_it_is_told_to(tmp_path: Path) -> None:
    """A dead process writes nothing more, and half of what it was writing."""
    life = Lifecycle(tmp_path / "life")
    with life.disk:
        path = life.home.parent / "file"
        with path.open("wb") as file:
            file.write(b"whole")
            life.disk.arm(0, "crash")
            with pytest.raises(Crash):
                file.write(b"half")
            with pytest.raises(Crash):
                file.write(b"more")
        life.disk.heal()
        life.disk.arm(0, "full")
        for _ in range(2):
            with pytest.raises(OSError, match="No space left"), path.open("wb"):
                pass
        life.disk.heal()
        assert path.read_bytes() == b"wholeha"
    life.close()


def test_processes_that_are_killed_lose_nothing(tmp_path: Path) -> None:
    """In a process of its own, which forks those that are killed."""
    program = "import sys; from pathlib import Path; from tests.faults import kills; kills.run(Path(sys.argv[1]), 3, 6)"
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, cwd=Path(__file__).parents[2])
