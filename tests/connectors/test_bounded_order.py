"""Bounded input in any order: sorted without a row lost, streamed where it lies in order."""

import datetime as dt
import json
import shutil
from random import Random

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

import millstream as ms
from millstream.hosts.embedded import ordering
from millstream.hosts.embedded.ordering import InOrder

START = dt.datetime(2026, 1, 1)


def at(seconds):
    return START + dt.timedelta(seconds=seconds)


def disordered(count, seed=0):
    """Rows (v, ts) with ties, numbered as they lie."""
    random = Random(seed)
    return [(number, at(random.randrange(count // 3 + 1))) for number in range(count)]


def table(rows):
    return pa.table({"v": pa.array([v for v, _ in rows], pa.int32()), "ts": pa.array([t for _, t in rows])})


def write(path, rows):
    data = table(rows).cast(pa.schema([("v", pa.int32()), ("ts", pa.timestamp("us"))]))
    match path.suffixes:
        case [".parquet"]:
            pq.write_table(data, path, row_group_size=100)
        case [".arrow"]:
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, data.schema) as writer:
                writer.write_table(data, max_chunksize=100)
        case [".csv", *compressed]:
            with pa.output_stream(str(path), compression="gzip" if compressed else None) as file:
                csv.write_csv(data, file)
        case _:
            path.write_text("".join(json.dumps({"v": v, "ts": str(t)}) + "\n" for v, t in rows))


FILES = ["f.csv", "f.csv.gz", "f.jsonl", "f.parquet", "f.arrow"]


def declared(db, path, slack=""):
    db.execute(f"CREATE STREAM s (v INT, ts TIMESTAMP) ORDER BY ts {slack} WITH (connector = 'file', path = '{path}')")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("slack", ["", "SLACK 1 SECOND"])
def test_a_file_in_any_order_gives_all_its_rows_in_order(tmp_path, name, slack):
    rows = disordered(1000)
    write(tmp_path / name, rows)
    with ms.connect() as db:
        declared(db, tmp_path / name, slack)
        query, late = db.sql("SELECT v, ts FROM s"), db.sql("SELECT v FROM LATE(s)")
        got = query.arrow()
        assert [tuple(row.values()) for row in got.to_pylist()] == sorted(rows, key=lambda row: row[1])
        assert late.arrow().num_rows == 0
        assert query.counts == ms.Counts(accepted=1000)


@pytest.mark.parametrize("name", FILES)
def test_a_file_in_order_is_not_sorted(tmp_path, name):
    rows = sorted(disordered(1000), key=lambda row: row[1])
    write(tmp_path / name, rows)
    with ms.connect() as db:
        declared(db, tmp_path / name)
        source = db._host.sources["s"]
        chunk = next(iter(source.read({}, lambda: False, 10)))
        assert chunk.rows.num_rows == 10
        assert ordering.DONE not in chunk.offset


def test_rows_within_the_slack_are_not_sorted_twice(tmp_path):
    write(tmp_path / "f.csv", [(1, at(2)), (2, at(1)), (3, at(3))])
    with ms.connect() as db:
        declared(db, tmp_path / "f.csv", "SLACK 1 SECOND")
        chunk = next(iter(db._host.sources["s"].read({}, lambda: False)))
        assert chunk.rows.column(0).to_pylist() == [1, 2, 3]
        assert db.sql("SELECT v FROM s").arrow()["v"].to_pylist() == [2, 1, 3]


def test_several_files_are_one_input(tmp_path):
    rows = disordered(300)
    for part in range(3):
        write(tmp_path / f"{part}.csv", sorted(rows[part * 100 : part * 100 + 100], key=lambda row: row[1]))
    with ms.connect() as db:
        declared(db, tmp_path)
        assert db.sql("SELECT ts FROM s").arrow()["ts"].to_pylist() == sorted(t for _, t in rows)


def test_rows_that_do_not_fit_are_told_and_the_others_sorted(tmp_path):
    (tmp_path / "f.csv").write_text("v,ts\n3,2026-01-03\nx,2026-01-01\n1,2026-01-01\n2,\n4,2026-01-02,9\n")
    with ms.connect() as db:
        declared(db, tmp_path / "f.csv")
        query, errors = db.sql("SELECT v FROM s"), db.sql("SELECT row FROM ERRORS(s)")
        db.run()
        assert query.fetch()["v"].to_pylist() == [1, 3]
        assert errors.fetch().num_rows == 3
        assert query.counts == ms.Counts(accepted=2, rejected=3)


@pytest.mark.parametrize("type_", [pa.int32(), pa.int64(), pa.date32(), pa.timestamp("ms"), pa.timestamp("us", "UTC")])
def test_times_of_all_types_are_seen(type_):
    numbers = pa.array([5, 3, 9, 3, 1], type_ if pa.types.is_integer(type_) else pa.int32())
    if not pa.types.is_integer(type_):
        numbers = numbers.cast(type_) if pa.types.is_date(type_) else numbers.cast(pa.int64()).cast(type_)
    with ms.connect() as db:
        db.register("s", pa.table({"v": [5, 3, 9, 4, 1], "t": numbers}), time="t")
        assert db.sql("SELECT v FROM s").arrow()["v"].to_pylist() == [1, 3, 4, 5, 9]


@pytest.mark.parametrize("spilled", [1, 3, 50])
def test_large_input_is_sorted_on_disk(monkeypatch, spilled):
    """Runs that are merged give what one sort gives, ties in the order they lie."""
    monkeypatch.setattr(ordering, "RUN_ROWS", 7)
    for seed in range(20):
        rows = disordered(200, seed)
        data = table(rows)
        monkeypatch.setattr(ordering, "SORT_BYTES", data.nbytes // spilled if spilled > 1 else 1 << 30)
        with ms.connect(batch_rows=13) as db:
            db.register("s", data, time="ts")
            got = db.sql("SELECT v, ts FROM s").arrow()
        assert [tuple(row.values()) for row in got.to_pylist()] == sorted(rows, key=lambda row: row[1])


def test_reading_goes_on_from_any_offset(monkeypatch):
    monkeypatch.setattr(ordering, "RUN_ROWS", 7)
    rows = disordered(50)
    rows[5] = (5, None)
    with ms.connect() as db:
        db.register("s", table(rows), time="ts")
        source = db._host.sources["s"]
        chunks = list(source.read({}, lambda: False, 4))
        whole = [v for chunk in chunks for v in chunk.rows.column(0).to_pylist()]
        assert whole == [v for v, _ in sorted((row for row in rows if row[1]), key=lambda row: row[1])]
        assert sum(len(chunk.rejected) for chunk in chunks) == 1
        read = 0
        for chunk in chunks:
            read += chunk.rows.num_rows
            rest = [v for more in source.read(chunk.offset, lambda: False) for v in more.rows.column(0).to_pylist()]
            assert rest == whole[read:]


def test_a_source_that_tells_nothing_is_sorted():
    class Silent:
        bounded = replayable = True

        def __init__(self, source):
            self.read, self.size = source.read, source.size

    with ms.connect() as db:
        db.register("r", table(disordered(100)), time="ts")
        stream = db.catalog.find("r")
        inner = db._host.sources["r"]._source
        rows = [row for chunk in InOrder(Silent(inner), stream).read({}, lambda: False) for row in chunk.rows["ts"]]
        assert rows == sorted(rows, key=lambda time: time.as_py())


def test_reading_does_not_go_on_in_other_rows(tmp_path):
    write(tmp_path / "1.csv", disordered(100))
    with ms.connect() as db:
        declared(db, tmp_path)
        source = db._host.sources["s"]
        chunk = next(iter(source.read({}, lambda: False, 10)))
        write(tmp_path / "2.csv", disordered(10))
        assert next(iter(source.read(chunk.offset, lambda: False, 10))).offset[ordering.DONE] == 20
        with pytest.raises(ms.MillstreamError, match="has changed: rows that were read before are missing"):
            list(source.read(chunk.offset, lambda: False))


def test_a_source_that_says_where_it_begins_goes_on_there():
    """As a topic does: the first chunk has no rows, only the place, which fixes also where a reading ends."""
    from millstream.connectors.contract import Chunk

    asked = []

    class Topic:
        bounded = replayable = True

        def read(self, offset, stop, limit=None):
            asked.append(offset)
            rows = table(disordered(20)).to_batches()[0]
            if not offset:
                yield Chunk(rows.slice(0, 0), {"end": 20})
            yield Chunk(rows, {"end": 20, "row": 20})

    with ms.connect() as db:
        db.register("r", table(disordered(20)), time="ts")
        chunks = list(InOrder(Topic(), db.catalog.find("r")).read({}, lambda: False, 8))
        assert [chunk.rows.num_rows for chunk in chunks] == [8, 8, 4]
        rest = list(InOrder(Topic(), db.catalog.find("r")).read(chunks[0].offset, lambda: False, 8))
        assert [chunk.rows for chunk in rest] == [chunk.rows for chunk in chunks[1:]]
        assert asked == [{}, {"end": 20}]


def test_a_stopped_reading_begins_again():
    with ms.connect() as db:
        db.register("s", table(disordered(100)), time="ts")
        source = db._host.sources["s"]
        assert list(source.read({}, lambda: True)) == []
        assert sum(chunk.rows.num_rows for chunk in source.read({}, lambda: False)) == 100


def test_a_persistent_run_goes_on_in_the_middle(tmp_path):
    """What was read before a crash is read again in the same order, and the rest follows."""
    rows = disordered(400)
    write(tmp_path / "f.csv", rows)
    with ms.connect(tmp_path / "db", batch_rows=50) as db:
        declared(db, tmp_path / "f.csv")
        query = db.sql("SELECT v FROM s", name="q")
        taken = []

        def report(progress):
            taken.append(progress)
            if len(taken) == 3:
                db.interrupt()

        db.run(report=report)
        assert 0 < query.counts.accepted < 400
        # the directory as a crash would leave it: checkpoint and journal without the end of the session
        shutil.copytree(tmp_path / "db", tmp_path / "crashed")
        (tmp_path / "crashed" / "lock").unlink()
    for place in ("crashed", "db"):
        with ms.connect(tmp_path / place, batch_rows=50) as db:
            got = db.query("q").arrow()["v"].to_pylist()
            assert got == [v for v, _ in sorted(rows, key=lambda row: row[1])]


def test_pushed_rows_keep_slack_and_late():
    with ms.connect() as db:
        db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t SLACK 2")
        said = db.push("s", [(1, 10), (2, 8), (3, 7), ("x", 1), (4, None)])
        assert (said.accepted, said.late, said.rejected) == (2, 1, 2)
        assert db.push("s", []) == ms.Counts()
        query = db.sql("SELECT v FROM s")
        assert query.counts == ms.Counts(2, 1, 2)


def test_generators_with_disorder_lose_nothing():
    with ms.connect() as db:
        db.execute(
            "CREATE STREAM quotes (symbol VARCHAR, price DOUBLE, ts TIMESTAMP) ORDER BY ts SLACK 1 SECOND "
            "WITH (connector = 'quotes', rows = 5000, disorder = '3 seconds', seed = 7)"
        )
        got = db.sql("SELECT ts FROM quotes").arrow()["ts"].to_pylist()
        assert len(got) == 5000
        assert got == sorted(got)
