"""Nested values from and to Python, Arrow, and the formats of files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millstream

ARRAYS = (
    "(id INT, tags VARCHAR[], x DOUBLE[], t INT) ORDER BY t",
    [(1, ["a", 'say "b", é'], [1.5, None], 1), (2, [], None, 2), (3, None, [], 3)],
)
STRUCTS_AND_MAPS = (
    "(id INT, s STRUCT(a INT, b STRUCT(c VARCHAR, d DOUBLE[])), m MAP(VARCHAR, INT), t INT) ORDER BY t",
    [
        (1, {"a": 1, "b": {"c": 'say "x", é', "d": [1.5, None]}}, [("k", 1), ('"', None)], 1),
        (2, {"a": None, "b": None}, [], 2),
        (3, None, None, 3),
    ],
)


@pytest.mark.parametrize("format_", ["csv", "jsonl", "parquet", "arrow"])
@pytest.mark.parametrize(("schema", "rows"), [ARRAYS, STRUCTS_AND_MAPS], ids=["arrays", "structs and maps"])
def test_a_file_that_was_written_is_read_back(schema: str, rows: list[Any], format_: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with millstream.connect() as db:
        db.execute(f"CREATE STREAM s {schema}")
        db.execute(f"CREATE SINK o WITH (connector = 'file', path = '{out}', format = '{format_}')")
        db.execute("INSERT INTO o SELECT * FROM s")
        db.push("s", rows)
        db.finish()
    with millstream.connect() as db:
        db.execute(f"CREATE STREAM s {schema} SOURCE '{out}'")
        query = db.sql("SELECT * FROM s")
        db.run()
        assert [tuple(row.values()) for row in query.fetch().to_pylist()] == rows


def test_json_objects_are_structs_or_maps_as_declared(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(
        '{"s": {"at": "2020-01-01T00:00:01", "other": 1, "N": 7}, "m": {"1.10": 1}, "t": 1}\n'
        '{"s": {}, "m": {}, "t": 2}\n'
        '{"s": "x", "m": null, "t": 3}\n'
        '{"s": {"n": "x"}, "m": null, "t": 4}\n'
        '{"s": null, "m": {"y": 1}, "t": 5}\n'
    )
    with millstream.connect() as db:
        columns = "(s STRUCT(at TIMESTAMP, n INT), m MAP(DECIMAL(9, 2), INT), t INT)"
        db.execute(f"CREATE STREAM s {columns} ORDER BY t SOURCE '{path}'")
        query = db.sql("SELECT epoch(s.at) AS e, s.n, map_values(m) AS v FROM s")
        errors = db.sql("SELECT error FROM ERRORS(s)")
        db.run()
        assert [tuple(row.values()) for row in query.fetch().to_pylist()] == [
            (1577836801.0, 7, [1]),
            (None, None, []),
        ]
        assert [row["error"] for row in errors.fetch().to_pylist()] == [
            "s: 'x' is not a valid STRUCT(at TIMESTAMP, n INTEGER)",
            "s: n: 'x' is not a valid INTEGER",
            "m: in a map: 'y' is not a valid DECIMAL(9, 2)",
        ]


def test_dicts_tuples_and_arrow_convert_without_loss() -> None:
    with millstream.connect() as db:
        db.execute("CREATE STREAM s (p STRUCT(a BIGINT, b VARCHAR), m MAP(VARCHAR, BIGINT), t INT) ORDER BY t")
        query = db.sql("SELECT p, m FROM s")
        errors = db.sql("SELECT error FROM ERRORS(s)")
        structs = pa.array([{"b": "-", "a": 0}, {"b": "x", "a": 1}, None, {"b": None, "a": 300}])
        maps = pa.array([None, [("k", 1)], [], None], pa.map_(pa.string(), pa.int16()))
        db.push("s", pa.table({"p": structs[1:], "m": maps[1:], "t": [1, 2, 3]}))
        halves = pa.array([{"a": 1.5}, {"a": 2.0}], pa.struct([("a", pa.float64())]))
        db.push("s", pa.table({"p": halves, "t": [4, 5]}))
        db.push("s", [((1, "y"), {"k": 2}, 6), ({"B": "z"}, [("k", 3)], 7), ({"c": 1}, None, 8), ((1,), None, 9)])
        db.push("s", [(None, {None: 1}, 10), (None, {"k": "x"}, 11), (None, 5, 12)])
        with pytest.raises(millstream.DataError, match="int64, which does not convert to STRUCT"):
            db.push("s", pa.table({"p": [3], "t": [13]}))
        db.finish()
        assert [tuple(row.values()) for row in query.fetch().to_pylist()] == [
            ({"a": 1, "b": "x"}, [("k", 1)]),
            (None, []),
            ({"a": 300, "b": None}, None),
            ({"a": 2, "b": None}, None),
            ({"a": 1, "b": "y"}, [("k", 2)]),
            ({"a": None, "b": "z"}, [("k", 3)]),
        ]
        assert [row["error"] for row in errors.fetch().to_pylist()] == [
            "p: a: 1.5 is not a valid BIGINT",
            "p: {'c': 1} is not a valid STRUCT(a BIGINT, b VARCHAR)",
            "p: (1,) is not a valid STRUCT(a BIGINT, b VARCHAR)",
            "m: in a map: a key is NULL",
            "m: in a map: 'x' is not a valid BIGINT",
            "m: 5 is not a valid MAP(VARCHAR, BIGINT)",
        ]


def test_registered_data_keeps_its_structs_and_maps() -> None:
    with millstream.connect() as db:
        rows = pa.table(
            {
                "p": [{"x": {"y": 1}}, None],
                "m": pa.array([{"k": 1}, {}], pa.map_(pa.string(), pa.int64())),
                "t": [1, 2],
            }
        )
        db.register("s", rows, time="t")
        db.register("kept", rows)
        query = db.sql("SELECT p.x.y, m['k'] AS k FROM s")
        assert query.arrow().to_pydict() == {"y": [1, None], "k": [1, None]}
        joined = db.sql("SELECT kept.p.x.y, kept.m FROM s JOIN kept ON s.t = kept.t")
        assert joined.arrow().to_pydict() == {"y": [1, None], "m": [[("k", 1)], []]}
