"""The examples run as their comments say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cli_tools import ROOT


def run(example: str, directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / example)], cwd=directory, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_quickstart(tmp_path: Path) -> None:
    shown = run("quickstart.py", tmp_path)
    assert "12.5" in shown.splitlines()[-1]
    assert len((ROOT / "examples/quickstart.py").read_text().splitlines()) <= 25


@pytest.mark.spark
def test_spark_quickstart(tmp_path: Path) -> None:
    shown = run("spark_quickstart.py", tmp_path)
    assert [line.split("|")[1].strip() for line in shown.splitlines() if "|    S" in line] == ["S0", "S1", "S2"]
