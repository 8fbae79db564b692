"""Small pushes wait to enter the graph together; nobody can tell."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import pytest

import millstream as ms

DECLARED = """
    CREATE STREAM a (k INT, v DOUBLE, name VARCHAR, t INT) ORDER BY t SLACK 3;
    CREATE STREAM b (k INT, ts TIMESTAMP) ORDER BY ts;
    CREATE STREAM c (k BIGINT);
    CREATE TABLE names (k INT, title VARCHAR);
    INSERT INTO names VALUES (0, 'zero')
"""
QUERIES = {
    "filtered": "SELECT k, v, name FROM a WHERE v > 0.3",
    "windowed": "SELECT k, sum(v) OVER (PARTITION BY k RANGE 4 PRECEDING) AS s FROM a",
    "joined": "SELECT a.k, n.title FROM a LEFT JOIN names AS n ON a.k = n.k",
    "late": "SELECT k, t FROM LATE(a)",
    "wrong": "SELECT error FROM ERRORS(a)",
    "busy": "SELECT k, count(*) AS n FROM a [RANGE 5] GROUP BY k",
    "counted": "SELECT k, count(*) OVER (ROWS 2 PRECEDING) AS n FROM c",
    "seen": "SELECT k, ts FROM b",
}
ODD = [("x", 1.0, "n"), (1, 2, "n"), (1, 1.0, "ä"), (2**40, 1.0, "n"), (1, None, None), (True, 1.0, "n")]
"""rows that do not fit, or only after a conversion"""
START = dt.datetime(2026, 1, 1)


def steps(seed: int) -> list[tuple[str, Any]]:
    """What somebody does with a session: mostly small pushes, and looks now and then."""
    chance = random.Random(seed)
    time, result = 0, []
    for _ in range(150):
        time += chance.randrange(3)
        match chance.randrange(20):
            case 0:
                result.append(("fetch", chance.choice(list(QUERIES))))
            case 1:
                result.append(("snapshot", None))
            case 2:
                result.append(("table", f"INSERT INTO names VALUES ({chance.randrange(4)}, 'at {time}')"))
            case 3:
                result.append(("advance", time))
            case 4 | 5:
                result.append(("b", [(chance.randrange(4), START + dt.timedelta(seconds=time))]))
            case 6:
                result.append(("c", [(chance.randrange(4),), (None,)]))
            case 7:
                result.append(("a", [(*chance.choice(ODD), time)]))
            case 8:
                result.append(("counts", "filtered"))
            case _:
                count = chance.randrange(1, 4)
                rows = [
                    (chance.randrange(4), chance.random(), chance.choice(["x", None]), time - chance.randrange(6))
                    for _ in range(count)
                ]
                result.append(("a", rows))
    return result


def play(seed: int, waiting: bool) -> list[Any]:
    """All that somebody sees."""
    seen: list[Any] = []
    with ms.connect() as db:
        db.execute(DECLARED)
        queries = {name: db.sql(text, name=name) for name, text in QUERIES.items()}
        db._host.is_watched = not waiting  # type: ignore[attr-defined]
        for what, given in steps(seed):
            match what:
                case "fetch":
                    seen.append(queries[given].fetch().to_pylist())
                case "snapshot":
                    seen.append(sorted(map(str, queries["busy"].snapshot().to_pylist())))
                case "table":
                    db.execute(given)
                case "advance":
                    db.advance("a", given)
                case "counts":
                    seen.append(queries[given].counts)
                case stream:
                    seen.append(db.push(stream, given))
        db.finish()
        seen += [query.fetch().to_pylist() for query in queries.values()]
    return seen


@pytest.mark.parametrize("seed", range(12))
def test_nobody_can_tell(seed: int) -> None:
    assert play(seed, waiting=True) == play(seed, waiting=False)


def test_small_pushes_do_wait() -> None:
    with ms.connect() as db:
        db.execute("CREATE STREAM s (k INT, t INT) ORDER BY t")
        query = db.sql("SELECT k FROM s")
        for i in range(10):
            assert db.push("s", [(i, i)]).accepted == 1
        assert db._host.queries[query.name].rows == 0  # type: ignore[attr-defined]
        assert query.fetch()["k"].to_pylist() == list(range(10))


def test_readers_get_rows_at_once() -> None:
    with ms.connect() as db:
        db.execute("CREATE STREAM s (k INT, t INT) ORDER BY t")
        reader = db.sql("SELECT k FROM s").subscribe()
        db.push("s", [(1, 1)])
        rows = reader.next(timeout=5.0)
        assert rows is not None and rows.to_pylist() == [{"k": 1}]


def test_a_stream_that_has_ended_takes_no_rows() -> None:
    with ms.connect() as db:
        db.execute("CREATE STREAM s (k INT, t INT) ORDER BY t")
        db.push("s", [(1, 1)])
        db.finish()
        with pytest.raises(ms.MillstreamError, match="has ended"):
            db.push("s", [(2, 2)])
