"""Random pipelines over disordered files, run on both engines: they must deliver the same rows.

A pipeline declares two streams of files (CSV, JSON lines or Parquet, in one file or several, in no order at all, with
ties, NULLs and rows that do not fit), a table, and queries of all kinds. It is one text, executed as it is on both.
`python tests/spark/random_pipelines.py --cases 100` compares as many as wanted and tells the seed of one that differs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import millstream as ms

TIMES = 40
"""Times are 0 … 39, of some hundred rows: most are shared by several."""

AGGREGATES = ("count(*)", "count(v)", "sum(v)", "avg(v)", "min(v)", "max(v)", "min(x)", "max(x)", "count(DISTINCT v)")
CONDITIONS = (
    "v > 3",
    "v < 7 OR v IS NULL",
    "k <> 1",
    "x = 'b'",
    "v IS NOT NULL AND k < 3",
    "length(x) = 1",
    "v % 2 = 0",
)


@dataclass
class Pipeline:
    """The text of a pipeline, and the names of its queries with whether each delivers a relation."""

    text: str = ""
    queries: dict[str, bool] = field(default_factory=dict)


def pipeline(seed: int, directory: Path) -> Pipeline:
    """Write the input of a random pipeline below the directory, and make its text."""
    random = Random(seed)
    made = Pipeline()
    for stream in ("s", "r"):
        slack = random.choice(("", "SLACK 1", "SLACK 5"))
        place = directory / f"{seed}-{stream}"
        write_rows(random, place)
        made.text += (
            f"CREATE STREAM {stream} (k INT, v INT, x VARCHAR, t INT) ORDER BY t {slack} "
            f"WITH (connector = 'file', path = '{place}');\n"
        )
    made.text += "CREATE TABLE names (k INT, name VARCHAR);\n"
    made.text += "INSERT INTO names VALUES (0, 'zero'), (1, 'one'), (1, 'eins'), (NULL, 'none'), (7, 'seven');\n"
    made.text += f"CREATE STREAM chosen AS SELECT k, v, x, t FROM s WHERE {random.choice(CONDITIONS)};\n"
    for query in random.sample(QUERIES, 2):
        text, is_relation = query(random)
        made.text += text + ";\n"
        made.queries[text] = is_relation
    return made


def write_rows(random: Random, place: Path) -> None:
    """Files of rows in no order; some have no time, and in text some do not fit."""
    place.mkdir(parents=True)
    for part in range(random.choice((1, 1, 3))):
        rows: list[dict[str, Any]] = [
            {
                "k": random.choice((0, 1, 2, 3, None)),
                "v": random.choice((*range(10), None)),
                "x": random.choice(("a", "b", "c", "", None)),
                "t": random.randrange(TIMES) if random.random() < 0.97 else None,
            }
            for _ in range(random.randint(1, 120))
        ]
        match random.choice(("csv", "jsonl", "parquet")):
            case "parquet":
                types = {"k": pa.int32(), "v": pa.int32(), "x": pa.string(), "t": pa.int32()}
                columns = {name: pa.array([row[name] for row in rows], type_) for name, type_ in types.items()}
                pq.write_table(pa.table(columns), place / f"{part}.parquet", row_group_size=50)
            case "jsonl":
                rows[random.randrange(len(rows))]["v"] = "wrong"
                (place / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            case _:
                rows[random.randrange(len(rows))]["v"] = "wrong"
                lines = [",".join("" if value is None else str(value) for value in row.values()) for row in rows]
                (place / f"{part}.csv").write_text("\n".join(["k,v,x,t", *lines]) + "\n")


# -- kinds of queries: the text of one, and whether it delivers a relation ---------------------------------------------

Made = tuple[str, bool]


def stream(random: Random) -> str:
    return random.choice(("s", "s", "r", "chosen"))


def where(random: Random) -> str:
    return f" WHERE {random.choice(CONDITIONS)}" if random.random() < 0.5 else ""


def filters(random: Random) -> Made:
    return f"SELECT k, v * 2 + 1 AS w, upper(x) AS u, t FROM {stream(random)} WHERE {random.choice(CONDITIONS)}", False


def over(random: Random) -> Made:
    frame = random.choice(("ROWS 2 PRECEDING", "ROWS UNBOUNDED PRECEDING", "RANGE 3 PRECEDING", "RANGE 10 PRECEDING"))
    keys = random.choice(("PARTITION BY k ", "PARTITION BY k, x ", ""))
    calls = ", ".join(f"{call} OVER ({keys}{frame}) AS a{i}" for i, call in enumerate(random.sample(AGGREGATES[:8], 2)))
    return f"SELECT k, v, t, {calls} FROM {stream(random)}{where(random)}", False


def tumble(random: Random) -> Made:
    window = random.choice(("TUMBLE({}, t, 7)", "HOP({}, t, 3, 9)", "SESSION({}, t, 2)")).format(stream(random))
    key, named = random.choice((("k, ", "k, "), ("", "")))
    return (
        f"SELECT {named}window_start, window_end, {', '.join(f'{c} AS a{i}' for i, c in some(random))} "
        f"FROM {window}{where(random)} GROUP BY {key}window_start, window_end"
    ), False


def some(random: Random) -> list[tuple[int, str]]:
    return list(enumerate(random.sample(AGGREGATES, 2)))


def window(random: Random) -> str:
    return random.choice(("[RANGE 4]", "[RANGE 9]", "[RANGE 6 SLIDE 3]", "[ROWS 3]", "[PARTITION BY k ROWS 1]"))


def groups(random: Random) -> Made:
    calls = ", ".join(f"{call} AS a{i}" for i, call in some(random))
    return f"SELECT k, {calls} FROM {stream(random)} {window(random)}{where(random)} GROUP BY k", True


def distinct(random: Random) -> Made:
    return f"SELECT DISTINCT k, x FROM {stream(random)} {window(random)}{where(random)}", True


def changes(random: Random) -> Made:
    kind = random.choice(("ISTREAM", "DSTREAM"))
    return (
        f"SELECT {kind}(k, count(*) AS n, max(v) AS m) FROM {stream(random)} [RANGE 5]{where(random)} GROUP BY k",
        False,
    )


def windows_joined(random: Random) -> Made:
    how = random.choice(("JOIN", "LEFT JOIN", "FULL JOIN"))
    return (
        f"SELECT a.k, a.v AS av, b.v AS bv FROM {stream(random)} [RANGE 2] AS a {how} r [RANGE 3] AS b "
        f"ON a.k = b.k AND a.v > 5"
    ), True


def streams_joined(random: Random) -> Made:
    how = random.choice(("JOIN", "LEFT JOIN"))
    return (
        f"SELECT a.k, a.v AS av, b.v AS bv, a.t AS at, b.t AS bt FROM {stream(random)} AS a {how} r AS b "
        f"ON a.k = b.k AND b.t BETWEEN a.t AND a.t + 1"
    ), False


def table_joined(random: Random) -> Made:
    how = random.choice(("JOIN", "LEFT JOIN", "SEMI JOIN", "ANTI JOIN"))
    name = "" if how in ("SEMI JOIN", "ANTI JOIN") else ", n.name"
    return f"SELECT a.k, a.v{name} FROM {stream(random)} AS a {how} names AS n ON a.k = n.k WHERE a.v > 1", False


def union(random: Random) -> Made:
    one, two = stream(random), stream(random)
    return f"SELECT k, v, t FROM {one}{where(random)} UNION ALL SELECT k, v + 100, t FROM {two}{where(random)}", False


def recognized(random: Random) -> Made:
    pattern = random.choice(("A DOWN+ UP+", "A UP? DOWN", "A (UP | DOWN) UP*", "UP{1,2} DOWN"))
    skip = random.choice(("PAST LAST ROW", "TO NEXT ROW"))
    return (
        f"SELECT * FROM {stream(random)} MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES first(v) AS f, "
        f"last(v) AS l, count(*) AS n ONE ROW PER MATCH AFTER MATCH SKIP {skip} PATTERN ({pattern}) "
        f"DEFINE UP AS v > PREV(v), DOWN AS v < PREV(v)) AS m"
    ), False


def sequence(random: Random) -> Made:
    return (
        f"SELECT k, X.v, count(*Y) AS n FROM {stream(random)} PARTITION BY k AS (X, *Y, Z) "
        f"WHERE X.v > 5 AND Y.v <= 5 AND Z.v > {random.randrange(4, 8)}"
    ), False


def errors(random: Random) -> Made:
    return f"SELECT error, row FROM ERRORS({random.choice('sr')})", False


def late(random: Random) -> Made:
    return f"SELECT k, v, t FROM LATE({random.choice('sr')})", False


QUERIES: tuple[Callable[[Random], Made], ...] = (
    filters, over, tumble, groups, distinct, changes, windows_joined, streams_joined, table_joined, union, recognized,
    sequence, errors, late,
)  # fmt: skip


# -- running and comparing ---------------------------------------------------------------------------------------------

Rows = list[tuple[Any, ...]]


def in_process(made: Pipeline) -> list[Rows]:
    """What each query of a pipeline delivers."""
    with ms.connect() as database:
        database.execute(made.text)
        queries = database.queries()
        database.run()
        assert all(query.counts.late == 0 for query in queries)
        return [rows_of(query.fetch()) for query in queries]


def rows_of(table: pa.Table) -> Rows:
    return list(zip(*[column.to_pylist() for column in table.columns], strict=True)) if table.num_rows else []


def on_spark(pipelines: list[Pipeline], spark: Any) -> list[list[Rows]]:
    """The same for many pipelines in one job of Spark's, which would take a second for each query alone."""
    frames, counts = [], []
    databases = [ms.connect(spark=spark) for _ in pipelines]
    for database, made in zip(databases, pipelines, strict=True):
        database.execute(made.text)
        counts.append(len(database.queries()))
        for query in database.queries():
            host: Any = database._host
            rows = host.to_dataframe(database.prepare(query.sql, query.name))
            rows = rows.toDF(*[f"c{i}" for i in range(len(rows.columns))])
            frames.append(
                rows.selectExpr(
                    f"{len(frames)} AS q", "to_json(array(struct(*)), map('ignoreNullFields', 'false')) AS r"
                )
            )
    found: list[Rows] = [[] for _ in frames]
    for query, text in reduce(lambda one, two: one.unionAll(two), frames).collect():
        found[query].append(tuple(json.loads(text)[0].values()))
    for database in databases:
        database.close()
    results = iter(found)
    return [[next(results) for _ in range(count)] for count in counts]


def canonical(rows: Rows, is_relation: bool) -> Counter[Any]:
    """Rows as a bag; of a relation, which may be cut into intervals in several ways, what changes at which instant."""
    bag: Counter[Any] = Counter(map(repr, rows))
    if is_relation:
        bag = Counter()
        for *values, start, end in rows:
            bag[repr(values), start] += 1
            bag[repr(values), end] -= 1
    return Counter({row: count for row, count in bag.items() if count})


def differences(seeds: range, directory: Path, spark: Any) -> list[str]:
    """What the engines say differently of pipelines that are run together."""
    pipelines = [pipeline(seed, directory) for seed in seeds]
    told = []
    for seed, made, theirs in zip(seeds, pipelines, on_spark(pipelines, spark), strict=True):
        for (text, is_relation), ours, got in zip(made.queries.items(), in_process(made), theirs, strict=True):
            mine, other = canonical(ours, is_relation), canonical(got, is_relation)
            if mine != other:
                told.append(f"seed {seed}: {text}\nin-process: {mine - other}\nSpark: {other - mine}\n\n{made.text}")
    return told


def main() -> None:
    from millstream.hosts.spark.session import get_session

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--together", type=int, default=10, help="how many are one job on Spark")
    wishes = parser.parse_args()
    plain = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    spark = get_session("local[2]", plain)
    began, wrong, last = time.monotonic(), 0, wishes.first + wishes.cases
    with tempfile.TemporaryDirectory() as directory:
        for first in range(wishes.first, last, wishes.together):
            for told in differences(range(first, min(first + wishes.together, last)), Path(directory), spark):
                wrong += 1
                print(told, flush=True)
    print(f"{wishes.cases} pipelines, {wrong} queries different, {time.monotonic() - began:.0f} s")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
