"""What a query costs must not depend on how many others run."""

from __future__ import annotations

from collections import Counter

import pytest

import millstream as ms
from millstream.hosts.embedded.operators import RunKernel
from millstream.kernels.batch import Batch

WINDOW = "SELECT k, sum(v) OVER (PARTITION BY k ORDER BY t ROWS {} PRECEDING) AS s FROM s"


def test_a_new_query_wakes_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: Counter[RunKernel] = Counter()
    step = RunKernel.step

    def counted(self: RunKernel, batch: Batch) -> Batch:
        steps[self] += 1
        return step(self, batch)

    with ms.connect(jit="off") as db:
        db.execute("CREATE STREAM s (k BIGINT, v BIGINT, t BIGINT) ORDER BY t")
        for size in range(5):
            db.sql(WINDOW.format(size))
        db.push("s", [(1, 2, 3)])
        # a small push waits until somebody looks
        assert [query.fetch().num_rows for query in db.queries()] == [1] * 5
        monkeypatch.setattr(RunKernel, "step", counted)
        db.sql(WINDOW.format(9))
        assert len(steps) == 1


def test_a_new_query_knows_how_far_its_streams_have_come() -> None:
    with ms.connect(jit="off") as db:
        db.execute("CREATE STREAM s (k BIGINT, t BIGINT) ORDER BY t; CREATE STREAM r (k BIGINT, t BIGINT) ORDER BY t")
        db.push("s", [(1, 10)])
        db.advance("r", 20)
        query = db.sql("SELECT a.k FROM s [RANGE 5] AS a, r [RANGE 5] AS b WHERE a.k = b.k")
        again = db.sql("SELECT a.k FROM s [RANGE 5] AS a, r [RANGE 5] AS b WHERE a.k = b.k")
        db.push("s", [(2, 18)])
        db.push("r", [(2, 20)])
        db.push("s", [(3, 30)])
        assert query.fetch().to_pylist() == again.fetch().to_pylist() == [{"k": 2, "valid_from": 20, "valid_to": 23}]
