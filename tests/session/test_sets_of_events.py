"""Sets of NEXT and FOLD to which queries are added while they run: one automaton for all, and each query gives what it
gives alone."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from tests.tiers import one_seed_each

STREAMS = """
    CREATE STREAM s (k INT, name VARCHAR, v DOUBLE, t INT) ORDER BY t;
    CREATE STREAM r (k INT, w DOUBLE, t INT) ORDER BY t;
"""
SHAPES = {
    "next": "SELECT v_1, v FROM FILTER{v > $low}(s) NEXT{$1.name = $2.name} s",
    "next of two": "SELECT v, w FROM FILTER{v > $low}((SELECT k AS a, v FROM s)) NEXT{$1.a = $2.k} r",
    "next of an equality": "SELECT v, w FROM FILTER{a = $k}((SELECT k AS a, v FROM s)) NEXT{$2.w > $1.v} r",
    "next of lengths": "SELECT v, w FROM FILTER{v > $low}((SELECT k AS a, v FROM s)) "
    "NEXT{$1.a = $2.k AND DUR <= $length} r",
    "next of only lengths": "SELECT v_1, v FROM s NEXT{$1.name = $2.name AND DUR <= $length} s",
    "next of constants": "SELECT v, w FROM (SELECT v FROM s) NEXT{$2.w > $1.v + $low} r",
    "next of a choice": "SELECT v, w FROM FILTER{v > $low}((SELECT v FROM s)) NEXT{$2.w <> $1.v} (FILTER{k = $k}(r))",
    "fold": "SELECT v_1, v, n FROM FILTER{v >= $low}(s) FOLD{$2.name = $.name, $2.v <= $.v + 2, count(*) AS n} s",
    "fold of two": "SELECT v, w, n FROM FILTER{v >= $low}((SELECT k AS a, v, v AS w, k FROM s)) "
    "FOLD{$2.k = $.a AND DUR < 9, $2.w >= $.w, count(*) AS n} (SELECT k, w FROM r)",
    "fold of lengths": "SELECT v_1, v FROM s FOLD{$2.name = $.name AND DUR < $length, $2.v >= $.v, } s",
    "chain": "SELECT v, w, x FROM (FILTER{v > $low}((SELECT k AS a, v FROM s)) NEXT{$1.a = $2.k} r) "
    "NEXT{$1.a = $2.b} (SELECT k AS b, v AS x FROM s)",
    "chain of choices": "SELECT v, w, x FROM FILTER{w > v + $low}(FILTER{a = $k}((SELECT k AS a, v FROM s)) "
    "NEXT{$1.a <> $2.k} r) NEXT{$1.w <> $2.x} (SELECT v AS x FROM s)",
    "over windows": "SELECT m, w FROM FILTER{m > $low}((SELECT k AS a, avg(v) OVER (ROWS 2 PRECEDING) AS m FROM s)) "
    "NEXT{$1.a = $2.k} r",
    "of windows": "SELECT v, m FROM FILTER{v > $low}((SELECT v FROM s)) "
    "NEXT{$2.m > $1.v} (SELECT max(w) OVER (ROWS 1 PRECEDING) AS m FROM r)",
    "of sequences": "SELECT a, b, w FROM FILTER{a > $low}((SELECT v AS a FROM s)) "
    "NEXT{$1.a <> $2.b} ((SELECT v AS b FROM s) NEXT{$2.w > $1.b} r)",
    "after sequences": "SELECT b, w, c FROM FILTER{b > $low}((SELECT v AS b FROM s) NEXT{$2.w > $1.b} r) "
    "NEXT{$1.b <> $2.c} (SELECT v AS c FROM s)",
}
ONE_STREAM = ("next", "fold")
"""shapes of which all queries run as one program, whatever rows came before them"""


class Both:
    """A set, and each of its queries by itself, over rows of two streams of which either may be ahead."""

    def __init__(self, shape: str, draw: random.Random, home: Path | None, followed: bool, merged: bool) -> None:
        self.text, self.draw, self.home, self.followed = SHAPES[shape], draw, home, followed
        self.columns = sorted(set(re.findall(r"\$([a-z]\w*)", self.text)))
        self.db = ms.connect(home)
        self.db.execute(STREAMS)
        self.fresh, self.times = 0, {"s": 0, "r": 0}
        self.alone: set[int] = set()
        self.got: dict[int, list[tuple[Any, ...]]] = {}
        self.want: dict[int, list[tuple[Any, ...]]] = {}
        if followed:
            types = {"low": "DOUBLE"}
            columns = "".join(f", {name} {types.get(name, 'INT')}" for name in self.columns)
            text = re.sub(r"\$([a-z]\w*)", r"c.\1", self.text).replace(" FROM ", " FROM c, ", 1)
            self.db.execute(f"CREATE TABLE c (id INT PRIMARY KEY{columns})")
            if draw.random() < 0.5:
                self.add(2)
            self.db.execute(f"CREATE QUERIES many AS {text}")
        else:
            rows = self._rows(2)
            self.db.sql_many(self.text, rows, key="id", name="many", merged=merged)
            self._start_alone(rows)

    @property
    def many(self) -> Any:
        return self.db.query_set("many")

    def _rows(self, count: int) -> list[dict[str, Any]]:
        draw, self.fresh = self.draw, self.fresh + count
        drawn = [
            {"k": draw.randint(0, 2), "length": draw.randint(1, 9), "low": draw.choice([-1.0, 0.0, 1.0, 2.0])}
            for _ in range(count)
        ]
        return [
            {"id": self.fresh - count + i, **{name: row[name] for name in self.columns}} for i, row in enumerate(drawn)
        ]

    def _start_alone(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            text = re.sub(r"\$([a-z]\w*)", lambda found, row=row: f"({row[found[1]]!r})", self.text)
            self.db.sql(text, name=f"alone{row['id']}")
            self.alone.add(row["id"])

    def add(self, count: int) -> None:
        rows = self._rows(count)
        if self.followed:
            values = ", ".join(f"({', '.join(map(repr, row.values()))})" for row in rows)
            self.db.execute(f"INSERT INTO c VALUES {values}")
        else:
            self.many.add(rows)
        self._start_alone(rows)

    def drop(self) -> None:
        self.look()
        gone = self.draw.sample(sorted(self.alone), self.draw.randint(1, len(self.alone)))
        if self.followed:
            self.db.execute(f"DELETE FROM c WHERE id IN ({', '.join(map(str, gone))})")
        else:
            self.many.drop(gone)
        for key in gone:
            self.db.query(f"alone{key}").stop()
            self.alone.remove(key)

    def push(self) -> None:
        stream, draw = self.draw.choice("sr"), self.draw
        rows: list[tuple[Any, ...]] = []
        for _ in range(draw.randint(1, 6)):
            self.times[stream] += draw.choice([0, 0, 1, 1, 2])
            name = [draw.choice("ab")] if stream == "s" else []
            rows.append((draw.randint(0, 2), *name, draw.choice([0.0, 1.0, 2.0, 3.0]), self.times[stream]))
        self.db.push(stream, rows)

    def look(self) -> None:
        for row in self.many.fetch().to_pylist():
            queries, *values = row.values()
            for query in queries if isinstance(queries, list) else [queries]:
                self.got.setdefault(query, []).append(tuple(values))
        for key in self.alone:
            rows = self.db.query(f"alone{key}").fetch().to_pylist()
            self.want.setdefault(key, []).extend(tuple(row.values()) for row in rows)

    def restart(self) -> None:
        if self.home is not None:
            self.db.close()
            self.db = ms.connect(self.home)

    def compare(self) -> int:
        """How many rows were compared."""
        self.db.finish()
        self.look()
        got, want = ({key: sorted(rows) for key, rows in each.items() if rows} for each in (self.got, self.want))
        assert got == want
        return sum(map(len, want.values()))


@pytest.mark.parametrize(
    ("case", "seed"), one_seed_each([(shape, how) for shape in SHAPES for how in ("add", "insert", "saved")], 3)
)
def test_queries_that_come_and_go_give_what_they_give_alone(case: tuple[str, str], seed: int, tmp_path: Path) -> None:
    shape, how = case
    draw = random.Random(f"{shape} {how} {seed}")
    followed = how == "insert" or (how == "saved" and draw.random() < 0.5)
    both = Both(shape, draw, tmp_path if how == "saved" else None, followed, merged=draw.random() < 0.3)
    for _ in range(30):
        act = draw.random()
        if act < 0.6:
            both.push()
        elif act < 0.8:
            both.add(draw.randint(1, 2))
        elif act < 0.85 and both.alone:
            both.drop()
        elif act < 0.93:
            both.look()
        else:
            both.restart()
    both.add(2)
    for _ in range(200):
        both.push()
        both.look()
        if any(both.want.values()):
            break
    if shape in ONE_STREAM:
        assert len(both.many.sharing()) == 1
    assert both.compare() > 0
    both.db.close()


def test_a_program_takes_in_queries_as_long_as_they_can_see_no_rows_from_before() -> None:
    text = "SELECT v, w FROM FILTER{v > $low}((SELECT k AS a, v FROM s)) NEXT{$1.a = $2.k AND DUR <= $length} r"
    with ms.connect() as db:
        db.execute(STREAMS)
        many = db.sql_many(text, [{"id": 0, "low": 0.0, "length": 5}], key="id", name="many")
        db.push("s", [(1, "a", 1.0, 1)])
        many.add([{"id": 1, "low": 0.0, "length": 4}])
        assert many.sharing() == [("many", 2, "")]
        many.add([{"id": 2, "low": 0.0, "length": 9}])
        assert many.sharing()[1:] == [("many$2", 1, "durations up to $length = 9")]
        db.push("s", [(2, "a", 1.0, 2)])
        # an event of `r` that waits for those of `s`: queries that come now do not see it
        db.push("r", [(1, 1.0, 3), (2, 1.0, 5)])
        many.add([{"id": 3, "low": 0.0, "length": 5}])
        assert many.sharing()[2:] == [("many$3", 1, "the older program has rows from before these queries")]
        db.push("s", [(2, "a", 2.0, 4), (2, "a", 2.0, 5)])
        # it has been taken in
        many.add([{"id": 4, "low": 0.0, "length": 5}])
        assert [size for _, size, _ in many.sharing()] == [3, 1, 1]
        db.push("r", [(2, 2.0, 6)])
        db.finish()
        found = sorted((row["query"], row["v"], row["w"]) for row in many.fetch().to_pylist())
        assert found == [
            (0, 1.0, 1.0), (0, 1.0, 1.0), (0, 2.0, 1.0), (0, 2.0, 2.0), (1, 1.0, 1.0), (1, 2.0, 1.0), (1, 2.0, 2.0),
            (2, 1.0, 1.0), (2, 2.0, 1.0), (2, 2.0, 2.0), (3, 2.0, 2.0), (3, 2.0, 2.0),
        ]  # fmt: skip
        # programs that are empty end, if an older one takes queries in
        many.drop([2, 3])
        assert many.fetch().num_rows == 0
        assert many.sharing() == [("many", 3, "")]
