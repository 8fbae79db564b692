"""Arrays from and to Python, Arrow and JSON; `test_nested_values` writes them to files, too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import millstream


def test_json_elements_are_read_as_values_are(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(
        '{"a": ["2020-01-01T00:00:01", null], "d": [1.10], "t": 1}\n'
        '{"a": [], "d": null, "t": 2}\n'
        '{"a": "x", "d": [], "t": 3}\n'
        '{"a": null, "d": [0.001], "t": 4}\n'
    )
    with millstream.connect() as db:
        db.execute(f"CREATE STREAM s (a TIMESTAMP[], d DECIMAL(9, 2)[], t INT) ORDER BY t SOURCE '{path}'")
        query = db.sql("SELECT epoch(a[1]) AS e, d[1] AS d, len(a) AS n FROM s")
        errors = db.sql("SELECT error FROM ERRORS(s)")
        db.run()
        rows = query.fetch().to_pylist()
        assert [(row["e"], None if row["d"] is None else str(row["d"]), row["n"]) for row in rows] == [
            (1577836801.0, "1.10", 2),
            (None, None, 0),
        ]
        assert [row["error"] for row in errors.fetch().to_pylist()] == [
            "a: 'x' is not a valid TIMESTAMP[]",
            "d: in an array: 0.001 has more than 2 decimal places",
        ]


def test_lists_of_python_and_arrow_convert_without_loss() -> None:
    with millstream.connect() as db:
        db.execute("CREATE STREAM s (v BIGINT[], t INT) ORDER BY t")
        query = db.sql("SELECT v FROM s")
        errors = db.sql("SELECT error FROM ERRORS(s)")
        small = pa.array([[9], [1, 2], None, []], pa.list_(pa.int16()))[1:]
        db.push("s", pa.table({"v": small, "t": [1, 2, 3]}))
        db.push("s", pa.table({"v": pa.array([[1.0], [2.5]], pa.large_list(pa.float64())), "t": [4, 5]}))
        db.push("s", [((1, 2), 6), (np.array([3, 4]), 7), ([1, "x"], 8), (7, 9), ([], 10)])
        with pytest.raises(millstream.DataError, match="int64, which does not convert to BIGINT"):
            db.push("s", pa.table({"v": [3], "t": [11]}))
        db.finish()
        assert query.fetch().column("v").to_pylist() == [[1, 2], None, [], [1], [1, 2], [3, 4], []]
        assert [row["error"] for row in errors.fetch().to_pylist()] == [
            "v: in an array: 2.5 is not a valid BIGINT",
            "v: in an array: 'x' is not a valid BIGINT",
            "v: 7 is not a valid BIGINT[]",
        ]


def test_a_slice_of_a_batch_is_taken_apart_where_it_is() -> None:
    with millstream.connect() as db:
        db.execute("CREATE STREAM s (id INT, v INT[], t INT) ORDER BY t")
        query = db.sql("SELECT id, x FROM s, UNNEST(v) AS u(x)")
        rows = pa.table({"id": [1, 2, 3, 4], "v": [[1], [2, 3], None, [4]], "t": [1, 2, 3, 4]})
        db.push("s", rows.slice(1, 2))
        db.push("s", rows.slice(3))
        db.finish()
        assert query.fetch().to_pydict() == {"id": [2, 2, 4], "x": [2, 3, 4]}
