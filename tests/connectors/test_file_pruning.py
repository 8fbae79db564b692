"""Values that stand in paths, and files of which only what is wanted is read."""

from __future__ import annotations

import datetime as dt
import json
from functools import reduce
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from connector_data import read_all
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.connectors.files.binary_file import ParquetFile
from millstream.connectors.files.wanted import Wanted
from millstream.connectors.registry import make_source
from millstream.errors import ConnectorError
from millstream.expressions.evaluator import compile_filter
from millstream.expressions.nodes import Call, Cast, Column, Expr, Literal
from millstream.schema import Schema
from millstream.types import BIGINT, BOOLEAN, DATE, DECIMAL, DOUBLE, INTEGER, TIMESTAMP, VARCHAR
from tiers import examples

SCHEMA = Schema.of(
    place=VARCHAR, day=DATE, n=INTEGER, x=DOUBLE, word=VARCHAR, money=DECIMAL(8, 2), spare=BIGINT, ts=TIMESTAMP
)
PLACES = ("de", "fr", None, "a/b =ü%漢")
DAYS = (dt.date(2024, 1, 1), dt.date(2024, 1, 2))
MONDAY = dt.datetime(2024, 1, 1)


def source(path, schema=SCHEMA, **options):
    return make_source({"connector": "file", "path": str(path), **options}, schema, "s")


def escaped(value) -> str:
    return "__HIVE_DEFAULT_PARTITION__" if value is None else quote(str(value), safe="=ü漢 ")


def values(seed: int, count: int) -> list[dict]:
    return [
        {
            "n": None if (i + seed) % 9 == 4 else 10 * (i // 5) + (i * 7 + seed) % 6,
            "x": None if i % 8 == 3 else float("nan") if (i + seed) % 11 == 5 else (i * 5 + seed) % 9 - 4.5,
            "word": None if i // 5 == 1 else "abcdü漢"[(i + seed) % 6] * (i % 3),
            "money": (i * 31 + seed) % 97 / 4,
            "spare": i,
            "ts": MONDAY + dt.timedelta(seconds=10 * i + seed),
        }
        for i in range(count)
    ]


def table(rows: list[dict], names) -> pa.Table:
    schema = pa.schema([pa.field(name, SCHEMA[name].type.arrow) for name in names])
    columns = [[row[name] for row in rows] for name in names]
    return pa.table(
        [
            pa.array(v, pa.float64()).cast(f.type) if f.name == "money" else pa.array(v, f.type)
            for v, f in zip(columns, schema, strict=True)
        ],
        schema=schema,
    )


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Path:
    """Eight directories of one file with four row groups each, and a file beside them that has all columns itself."""
    base = tmp_path_factory.mktemp("data set")
    for i, place in enumerate(PLACES):
        for j, day in enumerate(DAYS):
            folder = base / f"place={escaped(place)}" / f"day={escaped(day)}"
            folder.mkdir(parents=True)
            rows = table(values(3 * i + j, 20), SCHEMA.names[2:])
            pq.write_table(rows, folder / "part.parquet", row_group_size=5)
    # what such a file says of itself is right, whatever its path says
    own = [{**row, "place": "fr", "day": DAYS[1]} for row in values(5, 10)]
    pq.write_table(table(own, SCHEMA.names), base / "place=de" / "own.parquet", row_group_size=5)
    return base


class Counter:
    def __init__(self, monkeypatch) -> None:
        self.groups = 0
        self.columns: set[str] = set()
        inner = ParquetFile._read_group

        def counting(reader, file, group, columns, *rest):
            self.groups += 1
            self.columns.update(columns)
            return inner(reader, file, group, columns, *rest)

        monkeypatch.setattr(ParquetFile, "_read_group", counting)


def call(fn: str, *args: Expr) -> Expr:
    return Call(BOOLEAN, fn, args)


def column(name: str) -> Expr:
    return Column(SCHEMA[name].type, name)


def literal(name: str, value) -> Expr:
    return Literal(SCHEMA[name].type, value)


def micros(moment: dt.datetime) -> int:
    return (moment - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)


CONSTANTS = {
    "place": st.sampled_from([*PLACES, "xx"]),
    "day": st.sampled_from([None, *[(day - dt.date(1970, 1, 1)).days for day in DAYS], 5]),
    "n": st.none() | st.integers(-3, 40),
    "x": st.none() | st.sampled_from([-4.5, -4.0, 0.0, 3.5, 9.0, float("nan"), float("inf")]),
    "word": st.sampled_from(["", "a", "bb", "ü", "漢漢", "zz", None]),
    "ts": st.integers(-10, 250).map(lambda s: micros(MONDAY + dt.timedelta(seconds=s))),
}


@st.composite
def conditions(draw) -> Expr:
    name = draw(st.sampled_from(sorted(CONSTANTS)))
    constant = CONSTANTS[name].map(lambda value: literal(name, value))
    kind = draw(st.sampled_from(["compare", "flipped", "in", "null", "not null", "not", "or", "cast"]))
    fn = draw(st.sampled_from(["=", "<", "<=", ">", ">=", "<>"]))
    if kind == "in":
        return call("in", column(name), *draw(st.lists(constant, min_size=1, max_size=3)))
    if kind in ("null", "not null"):
        test = call("is_null", column(name))
        return test if kind == "null" else call("not", test)
    if kind == "cast":
        return call(fn, Cast(DOUBLE, column("n")), Literal(DOUBLE, draw(st.sampled_from([-0.5, 12.5, 30.0]))))
    plain = call(fn, column(name), draw(constant))
    if kind == "flipped":
        return call(fn, draw(constant), column(name))
    if kind == "or":
        return call("or", plain, call("=", column("place"), literal("place", "fr")))
    return call("not", plain) if kind == "not" else plain


def kept(source_, predicate: Expr) -> tuple[list[str], list]:
    """The rows for which the predicate holds, as a host leaves them, and what was rejected."""
    rows, rejected = [], []
    holds = compile_filter(predicate, SCHEMA)
    for chunk in source_.read({}, lambda: False):
        rows += [str(row) for row in chunk.rows.filter(holds(chunk.rows)).to_pylist()]
        rejected += chunk.rejected
    return rows, rejected


@given(parts=st.lists(conditions(), min_size=1, max_size=3))
@settings(max_examples=examples(80))
def test_the_same_rows_are_kept_whatever_is_left_unread(dataset, parts):
    predicate = reduce(lambda a, b: call("and", a, b), parts)
    whole = source(dataset)
    narrow = whole.narrowed(Wanted(frozenset(SCHEMA.names), predicate, "ts"))
    assert kept(narrow, predicate) == kept(whole, predicate)


@pytest.mark.parametrize(
    ("predicate", "groups"),
    [
        (call("=", column("place"), literal("place", "a/b =ü%漢")), 8),
        (call("=", column("place"), literal("place", "fr")), 10),
        (call("is_null", column("place")), 8),
        (call("=", column("place"), literal("place", None)), 0),
        (call(">", column("day"), literal("day", (DAYS[0] - dt.date(1970, 1, 1)).days)), 18),
        (call("<", column("n"), literal("n", 10)), 9),
        (call(">=", literal("n", 8), Cast(DOUBLE, column("n"))), 9),
        (call("in", column("n"), literal("n", -1), literal("n", 99), literal("n", None)), 0),
        (call("not", call("is_null", column("word"))), 25),
        (call(">", column("word"), literal("word", "漢漢漢")), 0),
        (call("<", column("x"), literal("x", -9.0)), 0),
        (call(">", column("x"), literal("x", 9.0)), 34),
        (call("=", column("x"), literal("x", 9.0)), 0),
        (call(">", column("ts"), literal("ts", micros(MONDAY + dt.timedelta(seconds=300)))), 0),
        (call("is_null", column("ts")), 0),
    ],
    ids=str,
)
def test_what_is_not_wanted_is_not_read(dataset, monkeypatch, predicate, groups):
    counter = Counter(monkeypatch)
    kept(source(dataset).narrowed(Wanted(frozenset(SCHEMA.names), predicate, "ts")), predicate)
    assert counter.groups == groups


def test_a_file_that_has_the_column_itself_is_not_judged_by_its_path(dataset):
    predicate = call("=", column("place"), literal("place", "fr"))
    rows, _ = kept(source(dataset).narrowed(Wanted(frozenset(SCHEMA.names), predicate, "ts")), predicate)
    assert len(rows) == 2 * 20 + 10


def test_a_predicate_that_may_fail_leaves_nothing_out(dataset, monkeypatch):
    counter = Counter(monkeypatch)
    number = Cast(INTEGER, column("word"))
    predicate = call("and", call("<", column("n"), literal("n", -5)), call(">", number, literal("n", 1)))
    read_all(source(dataset).narrowed(Wanted(frozenset(SCHEMA.names), predicate, "ts")))
    assert counter.groups == 34


def test_columns_that_nobody_wants_are_not_read(dataset, monkeypatch):
    counter = Counter(monkeypatch)
    whole, _, _ = read_all(source(dataset))
    counter.columns.clear()
    rows, rejected, chunks = read_all(source(dataset).narrowed(Wanted.of(("x",), "ts")))
    # text, decimals and times of day may hold what is no value: they are looked at
    assert counter.columns == {"x", "ts", "word", "money", "place"} and not rejected
    used = [SCHEMA.index(name) for name in ("place", "x", "ts")]
    assert [[row[i] for i in used] for row in rows] == [[row[i] for i in used] for row in whole]
    assert all(chunk.rows.column("spare").null_count == chunk.rows.num_rows for chunk in chunks)


def test_rejections_stay_the_same(tmp_path, monkeypatch):
    schema = Schema.of(n=INTEGER, small=INTEGER, word=VARCHAR, ts=TIMESTAMP)
    times = pa.array([0, 1, None, 3], pa.timestamp("us"))
    wide = pa.table({"n": pa.array([1, 2, 3, 4], pa.int32()), "small": pa.array([1, 2**40, 3, 4]), "ts": times})
    pq.write_table(wide.append_column("word", pa.array(["a"] * 4)), tmp_path / "wide.parquet")
    broken = pa.array([b"ok", b"\xff"]).view(pa.string())
    other = pa.table({"n": pa.array([1, 2], pa.int32()), "small": pa.array([1, 2], pa.int32()), "word": broken})
    pq.write_table(other.append_column("ts", times[:2]), tmp_path / "word.parquet")
    _, rejected, _ = read_all(source(tmp_path, schema))
    assert len(rejected) == 2 and rejected[1].count == 2

    def told(entries):
        return [(entry.origin, entry.count) for entry in entries]

    narrowed = read_all(source(tmp_path, schema).narrowed(Wanted.of(("n",), "ts")))[1]
    assert told(narrowed) == told(rejected)
    # a row without a time is refused by the host, so that it must see it
    untimed = pa.table({"n": pa.array([1], pa.int32()), "small": pa.array([1], pa.int32()), "word": ["a"]})
    pq.write_table(untimed.append_column("ts", times[2:3]), tmp_path / "word.parquet")
    counter = Counter(monkeypatch)
    nothing = call(">", Column(INTEGER, "n"), Literal(INTEGER, 100))
    narrowed = read_all(source(tmp_path, schema).narrowed(Wanted(frozenset(("n",)), nothing, "ts")))[1]
    assert told(narrowed) == told(rejected[:1])
    assert counter.groups == 2


NUMBERED = Schema.of(region=VARCHAR, a=INTEGER, day=DATE)


def write_formats(base: Path, folder: str) -> None:
    (base / folder).mkdir(parents=True)
    (base / folder / "1.csv").write_text("a\n1\n2\n")
    (base / folder / "2.csv").write_text("3\n4\n")
    (base / folder / "3.csv").write_text("own,5,2020-02-02\n")
    (base / folder / "4.csv").write_text("a,region\n6,own\n")
    (base / folder / "5.jsonl").write_text('{"a": 7}\n{"a": 8, "region": "own"}\n')
    pq.write_table(pa.table({"a": pa.array([9, 10], pa.int32())}), base / folder / "6.parquet")
    with (
        pa.OSFile(str(base / folder / "7.arrow"), "wb") as file,
        pa.ipc.new_file(file, pa.schema({"a": pa.int32()})) as w,
    ):
        w.write(pa.record_batch([pa.array([11], pa.int32())], names=["a"]))


@pytest.mark.parametrize("pattern", ["", "*/*/*"])
def test_every_format_takes_what_it_lacks_from_its_path(tmp_path, pattern):
    write_formats(tmp_path, "Region=n%2Fö/day=2024-05-01")
    day, other = dt.date(2024, 5, 1), dt.date(2020, 2, 2)
    for limit in (1, None):
        made = source(tmp_path / pattern, NUMBERED)
        rows, rejected, _ = read_all(made, limit=limit)
        own = {5: ("own", 5, other), 6: ("own", 6, day), 8: ("own", 8, day)}
        assert rows == [own.get(i, ("n/ö", i, day)) for i in range(1, 12)]
        assert rejected == [] and made.warnings == []


def test_a_value_that_is_none_rejects_the_rows_that_need_it(tmp_path):
    write_formats(tmp_path, "region=x/day=yesterday")
    for limit in (1, None):
        rows, rejected, _ = read_all(source(tmp_path, NUMBERED), limit=limit)
        assert rows == [("own", 5, dt.date(2020, 2, 2))]
        assert sum(entry.count for entry in rejected) == 10
        assert {entry.error for entry in rejected} == {"day: 'yesterday' is not a valid DATE, in the path of the file"}


def test_only_directories_that_name_a_value_are_searched(tmp_path):
    for folder in ("region=a", "region=a/deep", "plain", ".region=b", "other=1/region="):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "x.csv").write_text("a,day\n1,\n")
    (tmp_path / "region=%ff").mkdir()
    (tmp_path / "region=%ff" / "x.csv").write_text("a,day\n1,\n")
    rows, rejected, _ = read_all(source(tmp_path, NUMBERED))
    assert rows == [(None, 1, None), ("a", 1, None)]
    assert [entry.error for entry in rejected] == ["region: '%ff' is not valid UTF-8, in the path of the file"]
    # the directory that is given itself says nothing, and a CSV header must name what the path does not
    with pytest.raises(ConnectorError, match="has no column region"):
        read_all(source(tmp_path / "region=a", NUMBERED))
    (tmp_path / "region=a" / "x.csv").rename(tmp_path / "region=a" / "x.txt")
    (tmp_path / "region=a" / "y.jsonl").write_text('{"a": 1}')
    assert read_all(source(tmp_path / "region=a", NUMBERED))[0] == [(None, 1, None)]


def test_text_files_are_left_unread_by_their_paths(tmp_path):
    for region in ("a", "b"):
        (tmp_path / f"region={region}").mkdir()
        (tmp_path / f"region={region}" / "x.csv").write_text("a,day\n1,\n")
        (tmp_path / f"region={region}" / "y.csv").write_text(f"a,day,region\n2,,{'b' if region == 'a' else 'a'}\n")
        (tmp_path / f"region={region}" / "z.jsonl").write_text(json.dumps({"a": 3}))
    is_a = call("=", Column(VARCHAR, "region"), Literal(VARCHAR, "a"))
    rows, _, _ = read_all(source(tmp_path, NUMBERED).narrowed(Wanted(frozenset(NUMBERED.names), is_a)))
    assert [row[:2] for row in rows] == [("a", 1), ("b", 2), ("a", 3), ("a", 2), ("b", 3)]


def test_followed_directories_grow(tmp_path):
    (tmp_path / "region=a").mkdir()
    (tmp_path / "region=a" / "x.csv").write_text("1")
    seen: list[tuple] = []
    made = source(tmp_path, Schema.of(region=VARCHAR, a=INTEGER), follow=True, poll_ms=1, header=False)

    def stop() -> bool:
        return len(seen) >= 3

    for chunk in made.read({}, stop):
        seen += [tuple(row.values()) for row in chunk.rows.to_pylist()]
        if not chunk.rows.num_rows and not seen:
            (tmp_path / "region=a" / "x.csv").write_text("12\n13\n")
            (tmp_path / "region=b").mkdir(exist_ok=True)
            (tmp_path / "region=b" / "y.csv").write_text("14\n")
    assert sorted(seen) == [("a", 12), ("a", 13), ("b", 14)]
