"""Relations against DuckDB: at every instant, a query's answer is that of the same SQL on what its windows hold then.

A query is written once, with `{name}` for each window on a stream. For us, that becomes the stream with its window;
for DuckDB, a table of the rows that the window holds at an instant, found here by the definition of windows. The name
of a stored table stands for that table with both.
`{nonempty}` stands behind an aggregate without GROUP BY: an empty snapshot has no row then, where SQL would count 0.

`python -m tests.support.snapshots --cases 1000 --seed 7` runs random ones.
"""

from __future__ import annotations

import argparse
import math
import random
import re
import sys
import time as clock
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Literal

import millstream as ms
from millstream.errors import MillstreamError
from millstream.kernels.batch import FOREVER
from millstream.plan.lengths import RowLength
from millstream.plan.relations import RangeWindow, RowsWindow

COLUMNS = (("k", "INT"), ("x", "INT"), ("v", "VARCHAR"))
"""What every stream has, besides its time, an integer `t`."""

Row = tuple[Any, ...]
Rows = Sequence[Row]
"""Rows of a stream in order of arrival: the values of COLUMNS, then the time."""

Result = list[tuple[Row, int, int]]
"""Rows of a relation with their start and end."""


@dataclass(frozen=True)
class Windowed:
    """A window on a stream, seen at multiples of `granule`, and how it is written."""

    stream: str
    window: RangeWindow | RowsWindow
    granule: int = 1
    spelling: Literal["window", "brackets", "bare"] = "window"
    """bare: a stream beside windows is one of the instant"""

    @property
    def sql(self) -> str:
        window = self.window
        if self.spelling == "bare":
            return self.stream
        slide = f" SLIDE {window.slide}" if window.slide > 1 else ""
        if isinstance(window, RangeWindow):
            text = f"RANGE {'UNBOUNDED' if window.size is None else window.size}{slide}"
        else:
            by = f"PARTITION BY {', '.join(window.by)} " if window.by else ""
            text = f"{by}ROWS {window.rows}{slide}"
        if self.spelling == "brackets":
            text = f"[{'NOW' if window == RangeWindow(1) else text}]"
        else:
            text = f"WINDOW({text})"
        return f"{self.stream} {text}" + (f" GRANULARITY({self.granule})" if self.granule > 1 else "")

    def holds(self, rows: Rows, time: int) -> tuple[int, ...]:
        """The numbers of the rows that the window holds at an instant."""
        window, time = self.window, time // self.granule * self.granule
        if isinstance(window, RangeWindow):
            newest = (time + 1) // window.slide * window.slide - 1
            oldest = -math.inf if window.size is None else newest - window.size + 1
            return tuple(i for i, row in enumerate(rows) if oldest <= row[-1] <= newest)
        assert not isinstance(window.rows, RowLength)
        names = [name for name, _ in COLUMNS]
        places = [names.index(name) for name in window.by]
        groups: dict[Row, list[int]] = {}
        for i, row in enumerate(rows):
            if row[-1] <= time:
                groups.setdefault(tuple(row[place] for place in places), []).append(i)
        held: list[int] = []
        for numbers in groups.values():
            newest = len(numbers) // window.slide * window.slide
            held += numbers[0 if window.rows is None else max(newest - window.rows, 0) : newest]
        return tuple(sorted(held))


@dataclass(frozen=True)
class Case:
    """A query with the windows that it names, and what comes on the streams."""

    sql: str
    windows: Mapping[str, Windowed]
    streams: Mapping[str, Rows]
    how: str | None = None
    """istream, dstream or rstream; None for the relation itself"""
    tables: Mapping[str, Rows] = field(default_factory=dict)
    """stored tables of COLUMNS, without a time"""

    @property
    def ours(self) -> str:
        """The query as we take it."""
        sql = self.sql.format(
            nonempty="",
            **{name: each.sql for name, each in self.windows.items()},
            **{name: name for name in self.tables},
        )
        return sql if self.how is None else f"{self.how.upper()}({sql})"

    def theirs(self, held: Mapping[str, tuple[int, ...]]) -> str:
        """The query as DuckDB takes it, when the windows hold these rows."""
        tables = {
            name: _table([self.streams[self.windows[name].stream][i] for i in numbers])
            for name, numbers in held.items()
        }
        tables |= {name: _table([(*row, None) for row in rows]) for name, rows in self.tables.items()}
        return self.sql.format(nonempty="HAVING count(*) > 0", **tables)


class MismatchError(AssertionError):
    """A snapshot that is not what SQL says."""


class UnansweredError(Exception):
    """A query that DuckDB cannot answer, for a fault of its own."""


class Oracle:
    """DuckDB's answers to a case."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self._known: dict[tuple[tuple[int, ...], ...], Counter[Any]] = {}

    def __len__(self) -> int:
        """How many different contents of the windows there were."""
        return len(self._known)

    def at(self, time: int) -> Counter[Any]:
        """The answer at an instant."""
        held = self._held(time)
        content = tuple(held.values())
        if content not in self._known:
            self._known[content] = _bag(_duckdb(self.case.theirs(held)))
        return self._known[content]

    def compare(self, time: int, got: Counter[Any], wanted: Counter[Any]) -> None:
        if got == wanted:
            return
        mine, their = (sorted(bag.elements(), key=repr) for bag in (got, wanted))
        texts = [self.case.ours, self.case.theirs(self._held(time)), str(dict(self.case.streams))]
        texts += [str(dict(self.case.tables))] if self.case.tables else []
        raise MismatchError("\n".join([f"at {time}: {mine} instead of {their}", *texts]))

    def _held(self, time: int) -> dict[str, tuple[int, ...]]:
        return {name: each.holds(self.case.streams[each.stream], time) for name, each in self.case.windows.items()}


def check(case: Case, result: Result) -> int:
    """Compare a relation with DuckDB's answer at every instant; how many answers there were, or MismatchError."""
    oracle = Oracle(case)
    for time in _instants(oracle.case, [bound for _, *bounds in result for bound in bounds]):
        oracle.compare(time, _bag(row for row, start, end in result if start <= time < end), oracle.at(time))
    return len(oracle)


def check_events(case: Case, events: Sequence[Row]) -> int:
    """Compare the events of a relation, in order, with what changes in DuckDB's answers from instant to instant."""
    oracle = Oracle(case)
    given = 0
    granule = max((each.granule for each in case.windows.values()), default=1)
    for time in _instants(case, []):
        if case.how == "rstream" and time % granule:
            continue
        before, now = oracle.at(time - 1), oracle.at(time)
        wanted = {"istream": now - before, "dstream": before - now}.get(case.how or "", now)
        oracle.compare(time, _bag(events[given : given + wanted.total()]), wanted)
        given += wanted.total()
    if given < len(events):
        raise MismatchError(f"{len(events) - given} events more than there are changes\n{case.ours}\n{case.streams}")
    return len(oracle)


def answer(case: Case, seed: int = 0, look: Callable[[ms.Query], None] | None = None, **options: Any) -> list[Row]:
    """Our answer as a query gives it, the rows pushed in random batches; `look` at it before the streams end."""
    chance = random.Random(seed)
    with ms.connect(**options) as db:
        for name in case.streams:
            columns = ", ".join(f"{column} {type_}" for column, type_ in (*COLUMNS, ("t", "BIGINT")))
            db.execute(f"CREATE STREAM {name} ({columns}) ORDER BY t")
        for name, rows in case.tables.items():
            columns = ", ".join(f"{column} {type_}" for column, type_ in COLUMNS)
            db.execute(f"CREATE TABLE {name} ({columns})")
            for row in rows:
                db.execute(f"INSERT INTO {name} VALUES ({', '.join(map(_literal, row))})")
        query = db.sql(case.ours)
        left = {name: list(rows) for name, rows in case.streams.items()}
        while any(left.values()):
            name = chance.choice([name for name, rows in left.items() if rows])
            size = chance.randint(1, 4)
            db.push(name, left[name][:size])
            left[name] = left[name][size:]
        if look is not None:
            assert isinstance(query, ms.Query)
            look(query)
        db.finish()
        table = query.fetch()
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def run(case: Case, seed: int = 0, **options: Any) -> int:
    """Check our answer to a case."""
    rows = answer(case, seed, **options)
    if case.how is not None:
        return check_events(case, rows)
    result = [(row[:-2], row[-2], FOREVER if row[-1] is None else row[-1]) for row in rows]
    return check(case, result)


def shrunk(case: Case, seed: int = 0, **options: Any) -> Case:
    """A case that fails still, with rows left out."""
    smaller = True
    while smaller:
        smaller = False
        for name, rows in case.streams.items():
            for i in range(len(rows)):
                streams = {**case.streams, name: [*rows[:i], *rows[i + 1 :]]}
                candidate = replace(case, streams=streams)
                if _fails(candidate, seed, options):
                    case, smaller = candidate, True
                    break
            if smaller:
                break
    return case


def _fails(case: Case, seed: int, options: Mapping[str, Any]) -> bool:
    try:
        run(case, seed, **options)
    except MismatchError:
        return True
    except (MillstreamError, UnansweredError):
        return False
    return False


def _instants(case: Case, bounds: Sequence[int]) -> range:
    """From before anything is there until after everything has happened."""
    known = [bound for bound in bounds if bound != FOREVER] + [
        row[-1] for rows in case.streams.values() for row in rows
    ]
    windows = [each.window for each in case.windows.values()]
    sizes = [window.size or 0 for window in windows if isinstance(window, RangeWindow)]
    granule = max((each.granule for each in case.windows.values()), default=1)
    reach = max(sizes, default=0) + max((window.slide for window in windows), default=0) + granule
    return range(min(known, default=0) - 1, max(known, default=0) + reach + 2)


def _table(rows: Rows) -> str:
    """Rows as a table in parentheses."""
    typed = ", ".join(f"CAST({name} AS {type_}) AS {name}" for name, type_ in COLUMNS)
    names = ", ".join(name for name, _ in COLUMNS)
    if not rows:
        return f"(SELECT {typed} FROM (VALUES ({', '.join('NULL' for _ in COLUMNS)})) AS c({names}) WHERE FALSE)"
    values = ", ".join(f"({', '.join(map(_literal, row[:-1]))})" for row in rows)
    return f"(SELECT {typed} FROM (VALUES {values}) AS c({names}))"


def _literal(value: Any) -> str:
    return "NULL" if value is None else repr(value)


def _duckdb(sql: str) -> list[Row]:
    import duckdb

    global _connection
    if _connection is None:
        _connection = duckdb.connect(":memory:", config={"threads": 1})
    try:
        return [tuple(row) for row in _connection.execute(sql).fetchall()]
    except (duckdb.InternalException, duckdb.NotImplementedException) as error:
        # after a fault of its own, DuckDB refuses everything on this connection
        _connection = None
        raise UnansweredError(str(error).splitlines()[0]) from None


_connection: Any = None


def _bag(rows: Iterable[Row]) -> Counter[Any]:
    return Counter(tuple(round(value, 6) if isinstance(value, float) else value for value in row) for row in rows)


_OPERATORS = {
    "inner join": r"(?<!LEFT )(?<!RIGHT )(?<!FULL )(?<!SEMI )(?<!ANTI )JOIN |CROSS JOIN|\] AS \w+,",
    "left join": "LEFT JOIN",
    "right join": "RIGHT JOIN",
    "full join": "FULL JOIN",
    "semi join": r"SEMI JOIN|(?<!NOT )EXISTS|(?<!NOT )IN \(|ANY \(",
    "anti join": r"ANTI JOIN|NOT EXISTS|NOT IN \(|ALL \(",
    "groups": "GROUP BY",
    "distinct": "DISTINCT",
    "union": "UNION",
    "except": "EXCEPT",
    "intersect": "INTERSECT",
    "scalar subquery": r"[=<>] \(SELECT",
    "stored table": r"\bt[01] AS",
    "nested subquery": r"\(SELECT [^()]*(\([^()]*\)[^()]*)*\(SELECT",
    "condition under OR or NOT": r"\) OR |OR (NOT )?EXISTS|OR i\d+\.\w (NOT )?IN \(SELECT|NOT \(",
    "first rows": "LIMIT",
    "over": r"OVER \(",
    "qualify": "QUALIFY",
    "groups frame": "GROUPS BETWEEN",
    "exclude": "EXCLUDE",
    "time window": "RANGE",
    "count window": "ROWS",
    "partitioned window": "PARTITION BY",
    "slide": "SLIDE",
    "granularity": "GRANULARITY",
    "istream": "ISTREAM",
    "dstream": "DSTREAM",
    "rstream": "RSTREAM",
}


def operators_in(query: str) -> list[str]:
    """The operators that a query of a random case names."""
    return [name for name, pattern in _OPERATORS.items() if re.search(pattern, query)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run random cases; 1 if one fails."""
    from tests.support.snapshot_queries import random_case

    parser = argparse.ArgumentParser(description="random queries on relations, compared with DuckDB at every instant")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--each", type=int, help="instead: until each operator has been met at so many snapshots")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--relations", choices=["auto", "intervals", "changes"], default="auto")
    chosen = parser.parse_args(arguments)
    began, snapshots, refused, unanswered, done = clock.monotonic(), 0, 0, 0, 0
    by_operator: Counter[str] = Counter()
    for number in count(chosen.seed):
        wanted = {name for name in _OPERATORS if chosen.each and by_operator[name] < chosen.each}
        if not wanted if chosen.each else done == chosen.cases:
            break
        case = random_case(number)
        if chosen.each and wanted.isdisjoint(operators_in(case.ours)):
            continue
        done += 1
        try:
            compared = run(case, number, relations=chosen.relations)
            snapshots += compared
            by_operator.update(dict.fromkeys(operators_in(case.ours), compared))
        except MismatchError:
            print(f"\ncase {number} fails", file=sys.stderr)
            run(shrunk(case, number, relations=chosen.relations), number, relations=chosen.relations)
            raise
        except UnansweredError:
            unanswered += 1
        except MillstreamError as error:
            refused += 1
            print(f"\ncase {number} is refused: {error}\n{case.ours}", file=sys.stderr)
        if done % 50 == 0:
            rate = done / (clock.monotonic() - began)
            print(f"\r{done} cases, {snapshots} snapshots, {rate:.0f} cases/s", end="", flush=True)
    print(
        f"\n{done} cases, {snapshots} snapshots, {refused} refused, {unanswered} unanswered; snapshots of queries with"
    )
    for operator, compared in by_operator.most_common():
        print(f"  {operator}: {compared}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
