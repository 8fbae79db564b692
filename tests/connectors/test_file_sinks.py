"""File sinks: exactly the committed rows after a crash at any point, in every format."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from connector_data import EVERY_TYPE, plain, read_all, rows_of_every_type, to_record_batch
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.connectors.registry import make_sink, make_source
from millstream.errors import ConnectorError
from millstream.schema import Schema, unique_names
from millstream.types import INTEGER, VARCHAR
from tiers import examples

PAIR = Schema.of(a=INTEGER, b=VARCHAR)


def sink(path: Path, form: str, **options):
    return make_sink({"connector": "file", "path": str(path), "format": form, **options}, "out")


def read_back(path: Path, schema: Schema = PAIR) -> list[tuple]:
    if not any(entry for entry in path.parent.glob(path.name)) or (path.is_dir() and not any(path.glob("part-*"))):
        return []
    rows, rejected, _ = read_all(make_source({"connector": "file", "path": str(path)}, schema, "s"))
    assert rejected == []
    return rows


STEPS = st.lists(st.sampled_from(["write", "write", "write", "commit", "crash"]), max_size=14)


@pytest.mark.parametrize(
    ("form", "options"),
    [("parquet", {}), ("csv", {}), ("jsonl", {}), ("arrow", {}), ("csv", {"single_file": True}),
     ("jsonl", {"single_file": True})],
)  # fmt: skip
@given(steps=STEPS, rows_per_file=st.sampled_from([2, 5, 1000]), forget=st.booleans())
@settings(max_examples=examples(25))
def test_a_crash_anywhere_leaves_exactly_the_committed_rows(
    tmp_path_factory, form, options, steps, rows_per_file, forget
):
    """`forget`: the crash also takes the offset of the last commit, so that commit must be undone."""
    path = tmp_path_factory.mktemp("sink") / f"out.{form}"
    if not options:
        options = {"rows_per_file": rows_per_file}
    number, pending, committed = 0, [], []
    out = sink(path, form, **options)
    out.open(PAIR, {})
    history = [(json.loads(json.dumps(out.prepare())), [])]
    for step in [*steps, "crash"]:
        if step == "write":
            rows = [(number + k, f'w"{number},\n') for k in range(3)]
            number += 3
            out.write(to_record_batch(rows, PAIR))
            pending += rows
        elif step == "commit":
            offset = json.loads(json.dumps(out.commit()))
            committed = committed + pending
            pending = []
            history.append((offset, committed))
            if not options.get("single_file"):
                assert read_back(path) == committed
        else:
            if forget and len(history) > 1:
                history.pop()
            offset, committed = history[-1]
            pending = []
            out = sink(path, form, **options)
            out.open(PAIR, offset)
            assert read_back(path) == committed
    out.write(to_record_batch([(-1, None)], PAIR))
    out.close()
    assert read_back(path) == [*committed, (-1, None)]
    assert path.is_file() or not list(path.glob(".*"))


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl", "arrow"])
@given(rows=rows_of_every_type(max_size=8))
@settings(max_examples=examples(15))
def test_every_type_in_every_format(tmp_path_factory, form, rows):
    path = tmp_path_factory.mktemp("sink") / "out"
    batch = to_record_batch(rows, EVERY_TYPE)
    out = sink(path, form)
    out.open(EVERY_TYPE, {})
    out.write(batch)
    out.close()
    assert read_back(path, EVERY_TYPE) == plain(batch)


def test_parts_roll_and_stay_hidden_until_committed(tmp_path):
    out = sink(tmp_path, "parquet", rows_per_file=10)
    out.open(PAIR, {})
    out.write(to_record_batch([(n, "x") for n in range(25)], PAIR))
    assert {entry.name for entry in tmp_path.iterdir()} == {
        ".part-00000.parquet.inprogress", ".part-00001.parquet.inprogress",
    }  # fmt: skip
    assert out.commit() == {"parts": 3, "rows": 25}
    assert out.commit() == {"parts": 3, "rows": 25}
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [f"part-0000{n}.parquet" for n in range(3)]
    assert ds.dataset(tmp_path).to_table().num_rows == 25


def test_other_files_in_the_directory_are_left_alone(tmp_path):
    (tmp_path / "mine.parquet").write_text("keep")
    (tmp_path / "part-00007.parquet").write_text("old run")
    sink(tmp_path, "parquet", overwrite=True).open(PAIR, {})
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine.parquet"]


@pytest.mark.parametrize("single", [False, True])
def test_results_that_are_there_are_kept(tmp_path, single):
    """Refused, appended to, or replaced: what is there goes only if that is asked for."""
    path = tmp_path / "out.csv"

    def write(number, **options):
        out = sink(path, "csv", single_file=single, **options)
        out.open(PAIR, {})
        offset = out.prepare()
        out.write(to_record_batch([(number, "x")], PAIR))
        out.close()
        return offset

    write(1)
    with pytest.raises(ConnectorError, match="already has results") as caught:
        write(2)
    assert "overwrite = true" in caught.value.hint
    assert read_back(path) == [(1, "x")]
    began = write(3, append=True)
    assert read_back(path) == [(1, "x"), (3, "x")]
    # one that began there goes on from there, whatever its own rows were
    again = sink(path, "csv", single_file=single, append=True)
    again.open(PAIR, began)
    again.close()
    assert read_back(path) == [(1, "x")]
    write(4, overwrite=True)
    assert read_back(path) == [(4, "x")]
    with pytest.raises(ConnectorError, match="cannot both be set"):
        sink(path, "csv", overwrite=True, append=True)


def test_a_part_is_seen_after_its_offset_is_kept(tmp_path):
    out = sink(tmp_path, "jsonl")
    out.open(PAIR, {})
    out.write(to_record_batch([(1, "x")], PAIR))
    offset = out.prepare()
    assert not list(tmp_path.glob("part-*"))
    # the host kept the offset and died: its successor publishes
    again = sink(tmp_path, "jsonl")
    again.open(PAIR, offset)
    assert read_back(tmp_path) == [(1, "x")]


def test_committed_data_that_is_gone_is_noticed(tmp_path):
    with pytest.raises(ConnectorError, match="committed but is missing"):
        sink(tmp_path, "parquet").open(PAIR, {"parts": 1, "rows": 5})
    with pytest.raises(ConnectorError, match="were committed"):
        sink(tmp_path / "x.csv", "csv", single_file=True).open(PAIR, {"bytes": 9, "rows": 1})


def test_how_values_look(tmp_path):
    rows = [
        (
            True,
            1,
            2,
            3,
            1.0,
            "1.50",
            'say "hi"',
            b"\x00\x01",
            "2024-01-01T00:00:00",
            "2024-01-01T00:00:00",
            None,
            None,
            None,
        ),
        (None, None, None, None, float("nan"), None, "", None, None, None, None, None, None),
    ]
    import datetime as dt
    from decimal import Decimal

    at = dt.datetime(2024, 1, 1, 0, 0, 0, 250)
    rows[0] = (*rows[0][:5], Decimal("1.50"), *rows[0][6:8], dt.datetime(2024, 1, 1), at.replace(tzinfo=dt.UTC),
               dt.date(2024, 1, 2), dt.time(1, 2, 3), dt.timedelta(seconds=-1.5))  # fmt: skip
    batch = to_record_batch(rows, EVERY_TYPE)
    for form in ("csv", "jsonl"):
        out = sink(tmp_path / form, form)
        out.open(EVERY_TYPE, {})
        out.write(batch)
        out.close()
    assert (tmp_path / "csv" / "part-00000.csv").read_text().splitlines()[1:] == [
        'true,1,2,3,1.0,1.50,"say ""hi""",AAE=,2024-01-01T00:00:00,2024-01-01T00:00:00.000250Z,2024-01-02,01:02:03,'
        "-PT1.500000S",
        ',,,,nan,,"",,,,,,',
    ]
    first, second = map(json.loads, (tmp_path / "jsonl" / "part-00000.jsonl").read_text().splitlines())
    assert first["word"] == 'say "hi"' and first["money"] == 1.5 and first["real"] == 1.0
    assert second["real"] == "NaN" and second["word"] == "" and second["flag"] is None


class TwinColumns:
    """What a query with two columns of the same name delivers: fields, though no Schema would take them."""

    fields = (*PAIR.fields, PAIR.fields[0])
    arrow = None


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl", "arrow"])
def test_columns_of_the_same_name_are_numbered(tmp_path, form):
    import pyarrow as pa

    out = sink(tmp_path, form)
    out.open(TwinColumns(), {})
    out.write(
        pa.RecordBatch.from_arrays(
            [pa.array([1], pa.int32()), pa.array(["x"]), pa.array([2], pa.int32())], names=["a", "b", "a"]
        )
    )
    out.close()
    assert read_back(tmp_path, Schema.of(a=INTEGER, b=VARCHAR, a_2=INTEGER)) == [(1, "x", 2)]


def test_unique_names():
    assert unique_names(["a", "A", "a_2", "b", "a"]) == ["a", "A_2", "a_2_2", "b", "a_3"]


def test_wrong_options(tmp_path):
    for options, message in (
        ({}, "needs the option path"),
        ({"path": str(tmp_path), "format": "xml"}, "format = 'xml'"),
        ({"path": str(tmp_path), "single_file": True}, "single_file is not supported"),
        ({"path": str(tmp_path), "rows_per_file": 0}, "rows_per_file = 0"),
        ({"path": str(tmp_path), "delimiter": "||"}, "delimiter"),
        ({"path": str(tmp_path), "compresion": "zstd"}, "no option compresion"),
    ):
        with pytest.raises(ConnectorError, match=message) as caught:
            make_sink({"connector": "file", **options}, "out")
        assert caught.value.hint
    (tmp_path / "file").write_text("")
    with pytest.raises(ConnectorError, match="cannot write"):
        sink(tmp_path / "file" / "sub", "csv").open(PAIR, {})
