"""How kernels run is a matter of each session: several in one process do not influence each other."""

from __future__ import annotations

from threading import Thread

import pytest

import millstream as ms
from millstream.hosts.embedded.operators import RunKernel
from millstream.kernels import jit
from millstream.kernels.batch import Batch


def test_sessions_do_not_share_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int]] = []
    step = RunKernel.step

    def noted(self: RunKernel, batch: Batch) -> Batch:
        seen.append((jit.current().mode, jit.threads()))
        return step(self, batch)

    monkeypatch.setattr(RunKernel, "step", noted)
    before = jit.current()
    settings = [("off", 1), ("auto", 3)]
    sessions = [ms.connect(jit=mode, threads=threads) for mode, threads in settings]
    for db in sessions:
        db.execute("CREATE STREAM s (k BIGINT, t BIGINT) ORDER BY t")
        db.sql("SELECT k, count(*) AS n FROM s [RANGE 5] GROUP BY k")

    def work(db: ms.Database) -> None:
        db.push("s", [(1, 2)])
        db.advance("s", 9)
        db.query("q1").snapshot()
        db.finish()

    for db, own in zip(sessions, settings, strict=True):
        for run in (work, lambda db: db.close()):
            seen.clear()
            thread = Thread(target=run, args=(db,))
            thread.start()
            thread.join()
            assert set(seen) <= {own}
            assert bool(seen) == (run is work)
    assert jit.current() == before


def test_a_setting_changes_with_set(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    step = RunKernel.step
    monkeypatch.setattr(RunKernel, "step", lambda self, batch: seen.append(jit.current().mode) or step(self, batch))
    with ms.connect(jit="off") as db, ms.connect(jit="auto"):
        db.execute("CREATE STREAM s (k BIGINT, t BIGINT) ORDER BY t")
        db.push("s", [(1, 2)])
        db.execute("SET jit = 'auto'")
        db.push("s", [(1, 2)])
    assert seen == ["off", "auto"]
