"""Rows that the body of an aggregate fails on leave no trace, however rows are pushed."""

from __future__ import annotations

import json
import random
from collections import Counter
from threading import Lock

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


KEPT = """CREATE WINDOW AGGREGATE kept(next BIGINT) : BIGINT {
  TABLE state(n BIGINT, t BIGINT); TABLE inwindow(wnext);
  INITIALIZE: { INSERT INTO state VALUES (1, 0); INSERT INTO RETURN SELECT t FROM state; }
  ITERATE: { UPDATE state SET n = n + 1; INSERT INTO RETURN SELECT t FROM state; }
  EXPIRE: { UPDATE state SET n = n - 1; UPDATE state SET t = t + oldest().wnext * 2; }
}"""


class Kept:
    """The same in Python."""

    def initialize(self, x: int) -> int:
        self.total = 0
        return 0

    def iterate(self, x: int) -> int:
        return self.total

    def expire(self, x: int) -> None:
        self.total += 1
        if abs(2 * x) >= 2**62:
            raise ValueError("too large")
        self.total += 2 * x - 1


@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize("in_python", [False, True])
@pytest.mark.parametrize("kept", [3, 4_096])
def test_rows_whose_expire_fails_leave_the_window_without_it(
    kept: int, in_python: bool, active: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undoing, "_LEAST", kept)
    rng = random.Random(kept)
    db = ms.connect(on_error="row")
    db.execute("CREATE STREAM s (k INT, v BIGINT, ts BIGINT) ORDER BY ts")
    if in_python:
        db.register_aggregate(ms.aggregate("kept", parameters={"x": "BIGINT"}, returns="BIGINT", one_row=True)(Kept))
    else:
        db.execute(KEPT)
    frame = f"RANGE 5 PRECEDING{' ACTIVE EXPIRATION' * active}"
    q = db.sql(f"SELECT k, v, kept(v) OVER (PARTITION BY k {frame}) AS t FROM s", name="q")
    errors = db.sql("SELECT json_value(row, '$.v') AS v, json_value(row, '$.k') AS k FROM ERRORS(q)")
    rows = [(rng.randrange(3), rng.choice([1, -5, 7, 2**62, -(2**62) - 1]), i // 2) for i in range(90)]
    at = 0
    while at < len(rows):
        size = rng.choice([1, 2, 7, 40])
        db.push("s", rows[at : at + size])
        at += size
    db.finish()
    gone: dict[int, set[int]] = {0: set(), 1: set(), 2: set()}
    sums = {0: 0, 1: 0, 2: 0}
    expected, failed = [], []
    for i, (k, v, now) in enumerate(rows):
        for j, (other, value, then) in enumerate(rows[:i]):
            if other == k and j not in gone[k] and then < now - 5:
                gone[k].add(j)
                if abs(2 * value) < 2**62:
                    sums[k] += 2 * value
                else:
                    failed.append((str(value), str(k)))
        expected.append((k, v, sums[k]))
    found = [(row["v"], row["k"]) for row in errors.fetch().to_pylist()]
    assert [tuple(row.values()) for row in q.fetch().to_pylist()] == expected
    if active:  # at the end all rows have left
        failed = [(str(v), str(k)) for k, v, _ in rows if abs(2 * v) >= 2**62]
    assert sorted(found) == sorted(failed)
    assert failed


SCALED = """CREATE AGGREGATE scaled(next VARCHAR) : BIGINT {
  TABLE state(t BIGINT);
  INITIALIZE: { INSERT INTO state VALUES (CAST(next AS BIGINT)); }
  ITERATE: { UPDATE state SET t = t + CAST(next AS BIGINT); }
  TERMINATE: { INSERT INTO RETURN SELECT t * 2305843009213693952 FROM state; }
}"""
TOO_LARGE = 4


def _of(values: list[str]) -> int | None:
    """The sum of the values that are numbers, which may be too large to be scaled."""
    return sum(int(value) for value in values if value != "x") if any(value != "x" for value in values) else None


@pytest.mark.parametrize("form", ["intervals", "changes"])
def test_groups_and_relations_leave_out_what_fails(form: str) -> None:
    rng = random.Random(form)
    db = ms.connect(on_error="row", relations=form)
    db.execute("CREATE STREAM s (k INT, x VARCHAR, t BIGINT) ORDER BY t")
    db.execute(SCALED)
    groups = db.sql("SELECT k, window_end, scaled(x) AS v FROM TUMBLE(s, t, 4) GROUP BY k, window_end", name="groups")
    no_groups = db.sql("SELECT error, row FROM ERRORS(groups)")
    relation = db.sql("SELECT k, scaled(x) AS v FROM s [RANGE 3] GROUP BY k", name="relation")
    no_relation = db.sql("SELECT error, row FROM ERRORS(relation)")
    rows = [(rng.randrange(2), rng.choice("01112x"), 1 + i // 2) for i in range(60)]
    at = 0
    while at < len(rows):
        size = rng.choice([1, 3, 11])
        db.push("s", rows[at : at + size])
        at += size
    db.finish()

    def by_key(taken: list[tuple[int, str, int]]) -> dict[int, list[str]]:
        return {k: [x for key, x, _ in taken if key == k] for k in sorted({key for key, _, _ in taken})}

    expected, failed = [], []
    for end in range(4, 36, 4):
        taken = by_key([row for row in rows if end - 4 <= row[2] < end])
        sums = {k: _of(values) for k, values in taken.items()}
        expected += [(k, end, v << 61) for k, v in sums.items() if v is not None and v < TOO_LARGE]
        failed += [k for k, v in sums.items() if v is not None and v >= TOO_LARGE]
        failed += [k for k, values in taken.items() for x in values if x == "x"]
    assert sorted(tuple(row.values()) for row in groups.fetch().to_pylist()) == sorted(expected)
    assert sorted(json.loads(row)["k"] for row in no_groups.fetch()["row"].to_pylist()) == sorted(failed)

    found = relation.fetch().to_pylist()
    bad: Counter[tuple[int, bool]] = Counter()
    before: Counter[tuple[int, bool]] = Counter()
    for now in range(1, 40):
        taken = by_key([row for row in rows if row[2] <= now < row[2] + 3])
        sums = {k: _of(values) for k, values in taken.items()}
        there = [(r["k"], r["v"]) for r in found if r["valid_from"] <= now < r["valid_to"]]
        assert sorted(there) == [(k, v << 61) for k, v in sums.items() if v is not None and v < TOO_LARGE]
        fails = Counter({(k, False): values.count("x") for k, values in taken.items()})
        fails += Counter((k, True) for k, v in sums.items() if v is not None and v >= TOO_LARGE)
        bad += fails - before
        before = fails
    told = Counter((json.loads(r["row"])["k"], "x" not in r["row"]) for r in no_relation.fetch().to_pylist())
    assert told == +bad and len(told) > 2


class Locked:
    """Keeps what cannot be saved."""

    def initialize(self, x: int) -> int:
        self.lock = Lock()
        return x

    def iterate(self, x: int) -> int:
        return 10 // x


def test_without_a_way_back_the_query_stops_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undoing, "_LEAST", 3)
    made = ms.aggregate("locked", parameters={"x": "BIGINT"}, returns="BIGINT", one_row=True)(Locked)
    for rows, expected in (([1, 0], [1]), ([1, 5, 5, 5, 0], None)):
        db = ms.connect(on_error="row", aggregates=[made])
        db.execute("CREATE STREAM s (v BIGINT, ts BIGINT) ORDER BY ts")
        q = db.sql("SELECT locked(v) OVER (ROWS UNBOUNDED PRECEDING) AS x FROM s")
        for i, v in enumerate(rows):
            db.push("s", [(v, i)])
        if expected is None:
            with pytest.raises(ms.StateError, match="the state of locked cannot be saved"):
                while q.fetch().num_rows:
                    pass
        else:
            assert q.fetch()["x"].to_pylist() == expected
