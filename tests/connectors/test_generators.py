"""Generators: the same rows whatever the chunks, the promised shapes, and files written from them."""

from __future__ import annotations

import time
from collections import Counter

import numpy as np
import pyarrow.compute as pc
import pytest
from connector_data import never, plain, read_all
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.connectors.generators.catalog import TABLES, choose_table
from millstream.connectors.generators.quotes import symbol_name
from millstream.connectors.generators.table import schema_of
from millstream.connectors.generators.write import write_generated
from millstream.connectors.registry import make_source
from millstream.errors import ConnectorError
from millstream.schema import Schema
from millstream.types import BIGINT, DATE, DECIMAL, DOUBLE, INTEGER, TIMESTAMP, TIMESTAMPTZ, VARCHAR
from tiers import examples

ALL = [(kind, table) for kind, tables in TABLES.items() for table in tables]


def source(kind, table=None, schema=None, **options):
    chosen = schema or schema_of(TABLES[kind][table or kind])
    named = {"table": table} if table else {}
    return make_source({"connector": kind, **named, **options}, chosen, "s")


def table_of(generator, **options):
    import pyarrow as pa

    return pa.Table.from_batches([chunk.rows for chunk in generator.read({}, never, **options)])


@pytest.mark.parametrize(("kind", "table"), ALL)
@given(seed=st.integers(0, 3), start=st.integers(0, 3000), sizes=st.lists(st.integers(1, 700), min_size=1, max_size=4))
@settings(max_examples=examples(15))
def test_chunks_and_offsets_change_nothing(kind, table, seed, start, sizes):
    total = start + sum(sizes)
    for extra in ({}, {"disorder": "700 ms"}):
        whole = source(kind, table, rows=total, seed=seed, **extra)
        expected = whole.make(0, total).slice(start)
        place = start
        for size in sizes:
            part = source(kind, table, rows=total, seed=seed, **extra).make(place, place + size)
            assert part.equals(expected.slice(place - start, size))
            place += size


@pytest.mark.parametrize(("kind", "table"), ALL)
def test_seeds_differ_and_repeat(kind, table):
    first, again, other = (source(kind, table, rows=500, seed=seed).make(0, 500) for seed in (1, 1, 2))
    assert first.equals(again) and not first.equals(other)


@pytest.mark.parametrize(("kind", "table"), ALL)
def test_reading_resumes_at_every_offset(kind, table):
    generator = source(kind, table, rows=100)
    rows, _, chunks = read_all(generator, limit=17)
    assert len(rows) == 100 and generator.bounded and generator.replayable and generator.size() == 100
    done = 0
    for chunk in chunks:
        done += chunk.rows.num_rows
        assert read_all(source(kind, table, rows=100), chunk.offset)[0] == rows[done:]


@pytest.mark.parametrize(("kind", "table"), ALL)
def test_event_time_never_goes_back(kind, table):
    column = next(name for name, col in TABLES[kind][table].columns.items() if col.type == TIMESTAMP)
    for rate in (1000, 7, 333.3):
        times = table_of(source(kind, table, rows=2000, rate=rate)).column(column).to_numpy()
        assert (np.diff(times).astype(np.int64) >= 0).all()


def test_nexmark_events_are_one_three_and_forty_six_of_fifty():
    counts = {name: table.rows_of_events(50_000) for name, table in TABLES["nexmark"].items()}
    assert counts["person"] == 1000 and counts["auction"] == 3000 and counts["bid"] == 46_000
    times = Counter()
    for name in ("person", "auction", "bid"):
        rows = table_of(source("nexmark", name, events=1000, rate=1000, start="2024-01-01"))
        times.update(rows.column("date_time").to_pylist())
    assert len(times) == 1000 and set(times.values()) == {1}


def test_nexmark_tells_one_story():
    bids = table_of(source("nexmark", "bid", events=20_000)).to_pandas()
    auctions = table_of(source("nexmark", "auction", events=20_000)).to_pandas().set_index("id")
    people = table_of(source("nexmark", "person", events=20_000)).to_pandas().set_index("id")
    closed = table_of(source("nexmark", "closed", events=20_000)).to_pandas()
    joined = bids.join(auctions, on="auction", rsuffix="_opened")
    assert joined.initial_bid.notna().all()
    assert (joined.date_time > joined.date_time_opened).all() and (joined.date_time < joined.expires).all()
    assert (joined.price >= joined.initial_bid).all()
    assert bids.bidder.isin(people.index).all() and auctions.seller.isin(people.index).all()
    assert len(closed) > 900
    best = bids.sort_values(["price", "date_time"], ascending=[False, True]).groupby("auction").first()
    sold = closed[closed.buyer.notna()].join(best, on="id", rsuffix="_best")
    assert (sold.buyer == sold.bidder).all() and (sold.price == sold.price_best).all()
    assert (closed.set_index("id").date_time == auctions.expires.reindex(closed.id)).all()


def test_nexmark_has_hot_keys():
    bids = table_of(source("nexmark", "bid", rows=46_000))
    for column, share in (("auction", 0.01), ("bidder", 0.03)):
        counts = pc.value_counts(bids.column(column)).field(1).to_pylist()
        assert max(counts) > share * bids.num_rows and len(counts) > 500


def test_declarations_of_the_papers():
    opened = Schema.of(itemID=INTEGER, sellerID=VARCHAR, price=DOUBLE, start_time=TIMESTAMP)
    bid = Schema.of(itemID=INTEGER, bid_price=DECIMAL(10, 2), bidderID=INTEGER, timestamp=TIMESTAMPTZ)
    closed = Schema.of(current_time=TIMESTAMP, buyerID=VARCHAR, itemID=INTEGER, price=BIGINT)
    clicks = Schema.of(SessNo=INTEGER, ClickTime=TIMESTAMP, PageNo=INTEGER, PageType=VARCHAR)
    for stream, schema, kind in (
        ("OpenAuction", opened, "nexmark"), ("Bid", bid, "nexmark"), ("ClosedAuction", closed, "nexmark"),
        ("Sessions", clicks, "clicks"), ("quote", Schema.of(name=VARCHAR, date=DATE, price=DOUBLE), "quotes"),
    ):  # fmt: skip
        generator = make_source({"connector": kind, "rows": 50}, schema, stream)
        batch = next(generator.read({}, never)).rows
        assert batch.schema == schema.arrow and batch.num_rows == 50
    generic = make_source({"connector": "generator", "kind": "quotes", "rows": 5}, Schema.of(price=DOUBLE), "s")
    assert next(generic.read({}, never)).rows.num_rows == 5


def test_disorder_is_as_large_as_declared_and_no_larger():
    for kind, table, column in (
        ("nexmark", "bid", "date_time"),
        ("quotes", "quotes", "ts"),
        ("nexmark", "closed", "date_time"),
    ):
        calm = table_of(source(kind, table, rows=5000, rate=500)).column(column).to_numpy().astype(np.int64)
        times = (
            table_of(source(kind, table, rows=5000, rate=500, disorder="2 seconds"))
            .column(column)
            .to_numpy()
            .astype(np.int64)
        )
        lateness = np.maximum.accumulate(times) - times
        assert 1_000_000 < lateness.max() <= 2_000_000
        assert (np.sort(times) == calm).all()


def test_quotes_walk_and_clicks_make_sessions():
    quotes = table_of(source("quotes", rows=50_000, symbols=5)).to_pandas()
    assert sorted(quotes.symbol.unique()) == sorted(symbol_name(rank) for rank in range(5))
    for _, walk in quotes.groupby("symbol"):
        steps = walk.price.pct_change().abs().dropna()
        assert steps.median() < 0.01 and walk.price.max() / walk.price.min() > 1.05
    clicks = table_of(source("clicks", rows=50_000)).to_pandas()
    lengths = clicks.groupby("SessNo").size()
    assert lengths.max() <= 64 and 5 < lengths.mean() < 20
    assert (clicks.groupby("SessNo").user_id.nunique() == 1).all()
    assert (clicks.groupby("PageNo").PageType.nunique() == 1).all()
    assert set(clicks.PageType) >= {"a", "d", "p"}
    assert len({symbol_name(rank) for rank in range(40_000)}) == 40_000


def test_realtime_paces_by_event_time():
    started = time.monotonic()
    generator = source("nexmark", "bid", rate=2000, realtime=True, start="now")
    count, last = 0, None
    for chunk in generator.read({}, lambda: time.monotonic() - started > 0.5):
        count += chunk.rows.num_rows
        last = chunk.rows.column("date_time")[-1].as_py() if chunk.rows.num_rows else last
    elapsed = time.monotonic() - started
    assert 0.3 * elapsed * 2000 * 0.92 < count <= elapsed * 2000 * 0.92 + 50
    assert abs(last.timestamp() - time.timezone - time.time()) < 86_400
    assert not generator.bounded and generator.size() is None
    resumed = next(generator.read(chunk.offset, never))
    assert resumed.offset["start"] == chunk.offset["start"]


@pytest.mark.parametrize(
    ("options", "schema", "message"),
    [
        ({"connector": "nexmark"}, Schema.of(a=INTEGER), "needs the option table"),
        ({"connector": "nexmark", "table": "bids!"}, Schema.of(a=INTEGER), "no table"),
        ({"connector": "nexmark", "table": "bid"}, Schema.of(colour=VARCHAR), "has no column colour"),
        ({"connector": "nexmark", "table": "bid"}, Schema.of(price=TIMESTAMP), "price is generated as DOUBLE"),
        ({"connector": "nexmark", "table": "bid", "rate": 0}, Schema.of(price=DOUBLE), "rate = 0"),
        ({"connector": "quotes", "start": "yesterday"}, Schema.of(price=DOUBLE), "start = 'yesterday'"),
        ({"connector": "quotes", "disorder": "two"}, Schema.of(price=DOUBLE), "disorder = 'two'"),
        ({"connector": "quotes", "disorder": "9 days", "rate": 10**6}, Schema.of(price=DOUBLE), "disorder spans"),
        ({"connector": "generator"}, Schema.of(price=DOUBLE), "needs the option kind"),
        ({"connector": "quotes", "symbol": 5}, Schema.of(price=DOUBLE), "no option symbol"),
    ],
)
def test_wrong_declarations(options, schema, message):
    with pytest.raises(ConnectorError, match=message) as caught:
        make_source(options, schema, "s")
    assert caught.value.hint


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl", "arrow"])
def test_written_files_hold_the_generated_rows(tmp_path, suffix):
    steps = []
    files = write_generated(
        "quotes", None, 1000, tmp_path / f"q.{suffix}", seed=7, progress=lambda done, total: steps.append((done, total))
    )
    assert files == {tmp_path / f"q.{suffix}": 1000} and steps[-1] == (1000, 1000)
    schema = schema_of(choose_table("quotes", None, ""))
    read = make_source({"connector": "file", "path": str(tmp_path / f"q.{suffix}")}, schema, "q")
    assert read_all(read)[0] == plain(source("quotes", rows=1000, seed=7).make(0, 1000))
    assert [entry.name for entry in tmp_path.iterdir()] == [f"q.{suffix}"]


def test_all_tables_of_nexmark_go_to_a_directory(tmp_path):
    files = write_generated("nexmark", None, 5000, tmp_path / "auctions", "csv")
    assert {path.name: count for path, count in files.items()} == {
        "person.csv": 100, "auction.csv": 300, "bid.csv": 4600, "closed.csv": 199,
    }  # fmt: skip
    assert (tmp_path / "auctions" / "bid.csv").read_text().count("\n") == 4601
    with pytest.raises(ConnectorError, match="no generator"):
        write_generated("nexmrk", None, 1, tmp_path / "x")
    with pytest.raises(ConnectorError, match="format of"):
        write_generated("quotes", None, 1, tmp_path / "x")
