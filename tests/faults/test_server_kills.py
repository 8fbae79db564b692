"""A server that is killed twice under load; `server_kills.py` kills it as often as you like."""

from __future__ import annotations

from pathlib import Path

from tests.faults.server_kills import run


def test_nothing_acknowledged_is_lost_and_nothing_is_doubled(tmp_path: Path) -> None:
    assert run(tmp_path, kills=2)["acknowledged rows"] > 100
