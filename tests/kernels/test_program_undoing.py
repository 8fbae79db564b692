"""Rows that the body of an aggregate fails on leave no trace, however rows are pushed."""

from __future__ import annotations

import random

import pytest

import millstream as ms
from millstream.kernels.programs import undoing

TOTAL = """CREATE AGGREGATE total(next BIGINT) : BIGINT {
  TABLE state(n BIGINT, t BIGINT);
  INITIALIZE: { INSERT INTO state VALUES (1, next * 2); }
  ITERATE: { UPDATE state SET n = n + 1; UPDATE state SET t = t + next * 2; }
  TERMINATE: { INSERT INTO RETURN SELECT t FROM state WHERE n > 0; }
}"""


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kept", [3, 4_096])
def test_rows_that_fail_leave_no_trace(seed: int, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undoing, "_LEAST", kept)
    rng = random.Random(seed)
    db = ms.connect(on_error="row")
    db.execute("CREATE STREAM s (k INT, v BIGINT, ts TIMESTAMP) ORDER BY ts")
    db.execute(TOTAL)
    totals = db.sql("SELECT k, v, total(v) OVER (PARTITION BY k ROWS UNBOUNDED PRECEDING) AS t FROM s", name="totals")
    errors = db.sql("SELECT json_value(row, '$.v') AS v FROM ERRORS(totals)")
    rows = [(rng.randrange(3), rng.choice([1, -5, 2**61, -(2**61), 2**62])) for _ in range(120)]
    at = 0
    while at < len(rows):
        size = rng.choice([1, 2, 7, 40])
        db.push("s", [(k, v, f"2026-01-01 10:{at // 60:02}:{at % 60:02}") for k, v in rows[at : at + size]])
        at += size
    sums: dict[int, int] = {}
    expected, failed = [], []
    for k, v in rows:
        total = sums.get(k, 0) + 2 * v
        if 2 * v < 2**63 and -(2**63) <= total < 2**63:
            sums[k] = total
            expected.append((k, v, total))
        else:
            failed.append(str(v))
    assert [tuple(row.values()) for row in totals.fetch().to_pylist()] == expected
    assert [row["v"] for row in errors.fetch().to_pylist()] == failed
    assert failed
