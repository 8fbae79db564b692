"""The papers' workloads of many standing queries, as sets of queries: events/s as their number grows.

    python benchmarks/queries_workloads.py [--only linear_stat,…] [--counts 1000,10000,…] [--events 100000] [--plots]

Cayuga's five templates over three events (4 discrete attributes of 100 values, 4 continuous ones, constants by Zipf;
which attributes a template compares is fixed), RUMOR's workloads 1 to 3 and its hybrid queries, PSoup's ranges. Each
is compared with the same queries one by one (up to --alone of them), and with the rules over sets left out
(--ablations). Processor time of one thread. With --plots, curves are written to docs/images.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import millstream as ms
from aggregates_plots import draw
from queries import told

BATCH = 10_000
Random = np.random.Generator
EVENTS = "CREATE STREAM e (d0 INT, d1 INT, c0 DOUBLE, c1 DOUBLE, t BIGINT) ORDER BY t"
PAIRS = """CREATE STREAM s (a0 INT, a1 INT, t BIGINT) ORDER BY t;
           CREATE STREAM u (b0 INT, b1 INT, t BIGINT) ORDER BY t"""
CPU = "CREATE STREAM cpu (pid INT, load DOUBLE, t BIGINT) ORDER BY t"
RULES = ("index_constants", "lift_constants", "channel_events")


def zipf(draws: Random, count: int, values: int, skew: float) -> Any:
    """Numbers below `values`, the first ones more often."""
    weights = 1 / np.arange(1, values + 1) ** skew
    return draws.choice(values, size=count, p=weights / weights.sum())


# -- constants and events ----------------------------------------------------------------------------------------------


def cayuga_constants(count: int, draws: Random) -> pa.Table:
    """Of three conditions: a primary value that all share, an equality, and two of 25 ranges that hold for 0.7."""
    columns = {"id": np.arange(count), "k": zipf(draws, count, 100, 1.0).astype(np.int32)}
    for place, skew in enumerate((1.0, 1.0, 0.8), 1):
        columns[f"d{place}"] = zipf(draws, count, 100, skew).astype(np.int32)
        for name in "ab":
            columns[f"{name}{place}"] = zipf(draws, count, 25, skew) * 0.3 / 24
    return pa.table(columns)


def cayuga_events(count: int, draws: Random) -> list[tuple[str, pa.Table]]:
    made = []
    for begin in range(0, count, BATCH):
        discrete = {name: pa.array(draws.integers(0, 100, BATCH), pa.int32()) for name in ("d0", "d1")}
        continuous = {name: draws.uniform(0, 1, BATCH) for name in ("c0", "c1")}
        made.append(("e", pa.table({**discrete, **continuous, "t": np.arange(begin, begin + BATCH)})))
    return made


def rumor_constants(count: int, draws: Random) -> pa.Table:
    """Two constants, and lengths of windows of which long ones are more likely."""
    wanted = {name: zipf(draws, count, 1_000, 1.5).astype(np.int32) for name in ("c", "d")}
    lengths = (1_000 - zipf(draws, count, 1_000, 1.5)) * 2
    return pa.table({"id": np.arange(count), **wanted, "w": lengths, "low": draws.integers(0, 10, count)})


def rumor_events(count: int, draws: Random) -> list[tuple[str, pa.Table]]:
    made = []
    for begin in range(0, count // 2, BATCH):
        times = np.arange(begin, begin + BATCH) * 2
        for stream, names, late in (("s", ("a0", "a1"), 0), ("u", ("b0", "b1"), 1)):
            values = {name: pa.array(draws.integers(0, 1_000, BATCH), pa.int32()) for name in names}
            made.append((stream, pa.table({**values, "t": times + late})))
    return made


def cpu_constants(count: int, draws: Random) -> pa.Table:
    return pa.table({"id": np.arange(count), "low": draws.uniform(0, 20, count)})


def cpu_events(count: int, draws: Random) -> list[tuple[str, pa.Table]]:
    """Loads of 104 processes, each a bounded random walk, every second."""
    loads, made = np.full(104, 10.0), []
    for begin in range(0, count // 104, BATCH // 104):
        rows = []
        for _ in range(BATCH // 104):
            loads = np.clip(loads + draws.normal(0, 2, 104), 0, 100)
            rows.append(loads)
        seconds = len(rows)
        pids = pa.array(np.tile(np.arange(104), seconds), pa.int32())
        times = np.repeat(np.arange(begin, begin + seconds) * 1_000, 104)
        made.append(("cpu", pa.table({"pid": pids, "load": np.concatenate(rows), "t": times})))
    return made


def psoup_constants(count: int, draws: Random) -> pa.Table:
    """Ranges of which an event is in few, however many there are."""
    low = draws.uniform(0, 1, count)
    return pa.table({"id": np.arange(count), "low": low, "high": low + 5 / count})


# -- workloads ---------------------------------------------------------------------------------------------------------


def _theta(place: int) -> str:
    ranges = (f"{c} >= ${n}{place} AND {c} <= ${n}{place} + 0.7" for c, n in (("c0", "a"), ("c1", "b")))
    return " AND ".join((f"d0 = $k AND d1 = $d{place}", *ranges))


def _three(operator: str, dynamic: str = "", kept: str = "c0 AS x") -> str:
    """Three events, each of which meets a condition of its own."""
    first = f"(SELECT c0 AS p1, {kept} FROM FILTER{{{_theta(1)}}}(e))" if "FOLD" not in operator else ""
    if first:
        two = f"(SELECT x, c0 AS p2 FROM FILTER{{{_theta(2)}{dynamic % 'p1'}}}({first} {operator} e))"
        return f"SELECT x, p2, c0 AS p3 FROM FILTER{{{_theta(3)}{dynamic % 'p2'}}}({two} {operator} e)"
    one = f"(SELECT d0, d1, c0, c1 FROM FILTER{{{_theta(1)}}}(e))"
    two = f"(SELECT d0, d1, c0, c1 FROM FILTER{{{_theta(2)}}}({one} {operator} (SELECT d0, d1, c0, c1 FROM e)))"
    return f"SELECT * FROM FILTER{{{_theta(3)}}}({two} {operator} (SELECT d0, d1, c0, c1 FROM e))"


SMOOTHED = "(SELECT pid, avg(load) OVER (PARTITION BY pid ORDER BY t RANGE 60000 PRECEDING) AS load FROM cpu)"
Workload = tuple[str, str, Callable[[int, Random], pa.Table], Callable[[int, Random], list[tuple[str, pa.Table]]]]
WORKLOADS: dict[str, Workload] = {
    "linear_stat": (EVENTS, _three("NEXT", "%.0s"), cayuga_constants, cayuga_events),
    "linear_dyn": (EVENTS, _three("NEXT", " AND c0 > %s * 1.01"), cayuga_constants, cayuga_events),
    "filter": (EVENTS, _three("NEXT{$2.d0 = $k AND DUR <= 20}", "%.0s"), cayuga_constants, cayuga_events),
    "non_deterministic": (EVENTS, _three("FOLD{$2.d0 = $k AND DUR <= 20, , }"), cayuga_constants, cayuga_events),
    "non_deterministic_agg": (
        EVENTS,
        _three("FOLD{$2.d0 = $k AND DUR <= 20, , sum($2.c0) AS total}"),
        cayuga_constants,
        cayuga_events,
    ),
    "rumor_1": (
        PAIRS,
        "SELECT a0, b0 FROM FILTER{a0 = $c}(s) NEXT{$2.b0 = $d AND DUR <= $w} u",
        rumor_constants,
        rumor_events,
    ),
    "rumor_2": (PAIRS, "SELECT a0, b1 FROM s NEXT{$1.a0 = $2.b0 AND DUR <= $w} u", rumor_constants, rumor_events),
    "rumor_3": (PAIRS, "SELECT a0, b1 FROM FILTER{a1 >= $low}(s) NEXT{$1.a0 = $2.b0} u", rumor_constants, rumor_events),
    "hybrid": (
        CPU,
        f"SELECT pid, load FROM FILTER{{load > 18}}(FILTER{{load < $low}}({SMOOTHED}) "
        f"FOLD{{$2.pid = $.pid, $2.load > $.load, }} {SMOOTHED})",
        cpu_constants,
        cpu_events,
    ),
    "psoup": (EVENTS, "SELECT c0, t FROM e WHERE c0 BETWEEN $low AND $high", psoup_constants, cayuga_events),
}
LARGEST = {"rumor_2": 100, "rumor_3": 100, "hybrid": 100}
"""where every event is of interest to every query, the output is what limits"""


def needed(rows: pa.Table, text: str) -> pa.Table:
    return rows.select([name for name in rows.column_names if name == "id" or f"${name}" in text])


def measure(workload: Workload, rows: pa.Table, events: int, off: str = "", alone: bool = False) -> tuple[float, int]:
    """Events/s, and how many rows were found; the first fifth of the events is not counted."""
    ddl, text, _, make = workload
    with ms.connect(threads=1, jit="on") as db:
        db.execute(ddl + (f"; SET disable_rule = '{off}'" if off else ""))
        rows = needed(rows, text)
        if alone:
            given = ({name: value for name, value in row.items() if name != "id"} for row in rows.to_pylist())
            queries: list[Any] = [db.sql(text, params=params) for params in given]
        else:
            queries = [db.sql_many(text, rows, key="id")]
        data = make(events, np.random.default_rng(7))
        warm, found, counted, begun = len(data) // 5, 0, 0, 0.0
        for place, (stream, batch) in enumerate(data):
            if place == warm:
                begun = time.process_time()
            db.push(stream, batch)
            got = sum(query.fetch().num_rows for query in queries)
            if place >= warm:
                found, counted = found + got, counted + batch.num_rows
        return counted / (time.process_time() - begun), found


# -- windows of different lengths and groupings ------------------------------------------------------------------------

COPIES = 10
LENGTHS = 40_000
GROUPINGS = ("g", "g % 10", "0")
WINDOWS = (
    "SELECT window_end, {0} AS grouping, sum(v) AS total FROM TUMBLE(TABLE w, DESCRIPTOR(t), $length) "
    "WHERE k = $k GROUP BY window_start, window_end, {0}"
)


def windows(count: int, events: int) -> None:
    """So many windows: of each key ten, each of one of 40,000 lengths and one of three groupings; against one query
    that puts as many pairs of events and windows into as many groups."""
    keys, draws = max(count // COPIES, 1), np.random.default_rng(count)
    number = np.arange(count)
    rows = pa.table(
        {
            "id": number,
            "k": pa.array(number // COPIES, pa.int32()),
            "length": 20_000 + number * 7_919 % LENGTHS,
            "how": pa.array(number % len(GROUPINGS), pa.int32()),
        }
    )
    grouping = f"CASE WHEN $how = 0 THEN {GROUPINGS[0]} WHEN $how = 1 THEN {GROUPINGS[1]} ELSE {GROUPINGS[2]} END"
    data = []
    for begin in range(0, events, BATCH):
        columns = {"k": draws.integers(0, keys, BATCH), "g": draws.integers(0, 100, BATCH)}
        typed = {name: pa.array(values, pa.int32()) for name, values in columns.items()}
        data.append(pa.table({**typed, "v": draws.uniform(0, 1, BATCH), "t": np.arange(begin, begin + BATCH)}))
    rates = []
    for is_set in (True, False):
        with ms.connect(threads=1, jit="on") as db:
            db.execute("CREATE STREAM w (k INT, g INT, v DOUBLE, t BIGINT) ORDER BY t; CREATE TABLE copies (n INT)")
            if is_set:
                query: Any = db.sql_many(WINDOWS.format(grouping), rows, key="id")
            else:
                db.execute("INSERT INTO copies VALUES " + ", ".join(f"({n})" for n in range(COPIES)))
                pairs = "(SELECT n, k, g, v, t FROM w, copies)"
                query = db.sql(
                    f"SELECT window_end, n, k, g, sum(v) AS total FROM TUMBLE(TABLE {pairs}, DESCRIPTOR(t), 40000) "
                    "GROUP BY window_start, window_end, n, k, g"
                )
            spent, warm = 0.0, len(data) // 5
            for place, batch in enumerate(data):
                begun = time.process_time()
                db.push("w", batch)
                query.fetch()
                spent += time.process_time() - begun if place >= warm else 0.0
            rates.append(BATCH * (len(data) - warm) / spent)
    print(f"windows\n  {count:9,} queries {rates[0]:12,.0f} events/s", flush=True)
    told(f"{count:,} windows, throughput of one query with as many groups", rates[0] / rates[1], 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join([*WORKLOADS, "windows"]))
    parser.add_argument("--counts", default="100,1000,10000,100000,400000,1000000")
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--alone", type=int, default=100)
    parser.add_argument("--ablations", action="store_true")
    parser.add_argument("--plots", action="store_true")
    given = parser.parse_args()
    counts = tuple(map(int, given.counts.split(",")))
    curves: dict[str, list[float | None]] = {}
    for name in given.only.split(","):
        if name == "windows":
            windows(min(max(counts), 100_000), given.events)
            continue
        workload = WORKLOADS[name]
        print(name, flush=True)
        # what is compiled once is not measured
        measure(workload, workload[2](10, np.random.default_rng(1)), 2 * BATCH)
        curves[name], is_cayuga = [], workload[2] is cayuga_constants
        for count in counts:
            if count > LARGEST.get(name, count):
                curves[name].append(None)
                continue
            rate, found = measure(workload, workload[2](count, np.random.default_rng(count)), given.events)
            curves[name].append(rate)
            print(f"  {count:9,} queries {rate:12,.0f} events/s   {found:,} found", flush=True)
            if is_cayuga and count == 400_000:
                told(f"{name} at 400,000 queries, events/s", rate, 100_000)
        few = workload[2](given.alone, np.random.default_rng(given.alone))
        together, found = measure(workload, few, given.events)
        apart, same = measure(workload, few, given.events, alone=True)
        assert found == same, (found, same)
        print(f"  {given.alone:9,} queries {together / apart:12,.1f} times one by one", flush=True)
        for rule in RULES if given.ablations else ():
            without, same = measure(workload, few, given.events, off=rule)
            assert found == same, (rule, found, same)
            print(f"  without {rule}: {without / together:.2f} of that", flush=True)
    if given.plots:
        place = Path(__file__).parent.parent / "docs" / "images" / "many_queries.png"
        draw(place, "Standing queries of one shape", "queries", "events/s", counts, curves)


if __name__ == "__main__":
    main()
