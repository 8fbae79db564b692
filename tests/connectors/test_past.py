"""Streams whose history lies in files elsewhere than their live source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millstream as ms
from millstream.catalog import Clock, StreamDef
from millstream.connectors.past import DivisiblePastAndLive
from millstream.connectors.registry import make_source, source_of
from millstream.errors import BindError, ConnectorError
from millstream.schema import Schema
from millstream.types import BIGINT, DOUBLE, TIMESTAMP, VARCHAR

QUOTES = Schema.of(symbol=VARCHAR, price=DOUBLE, volume=BIGINT, ts=TIMESTAMP)

DECLARED = "CREATE STREAM quote (symbol VARCHAR, price DOUBLE, volume BIGINT, ts TIMESTAMP) ORDER BY ts "


def quotes_from(path: str, **options: Any) -> StreamDef:
    given = {"connector": "quotes", "rate": 10, "rows": 60, "start": "2026-01-31 12:00:00", "history": path, **options}
    return StreamDef("quote", QUOTES, Clock.EXTERNAL, "ts", source=given)


def archive(folder: Path, rows: int = 40, files: int = 3) -> list[tuple[Any, ...]]:
    """The first rows of the generator as Parquet files; what they hold."""
    live = make_source({"connector": "quotes", "rate": 10, "rows": rows, "start": "2026-01-31 12:00:00"}, QUOTES, "q")
    assert live is not None
    table = pa.Table.from_batches([chunk.rows for chunk in live.read({}, lambda: False)])
    folder.mkdir()
    for n in range(files):
        size = -(-rows // files)
        pq.write_table(table.slice(n * size, size), folder / f"{n}.parquet")
    return [tuple(row.values()) for row in table.to_pylist()]


def rows_of(chunks: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for chunk in chunks for row in chunk.rows.to_pylist()]


def test_files_come_first_and_no_row_twice(tmp_path: Path) -> None:
    archive(tmp_path / "old")
    source = source_of(quotes_from(f"{tmp_path}/old/*.parquet", history_until="2026-01-31 12:00:02"))
    alone = make_source({"connector": "quotes", "rate": 10, "rows": 60, "start": "2026-01-31 12:00:00"}, QUOTES, "q")
    assert source is not None and alone is not None
    expected = rows_of(alone.read({}, lambda: False))
    assert len(expected) == 60
    chunks = list(source.read({}, lambda: False, 7))
    assert rows_of(chunks) == expected
    for at in range(len(chunks)):
        # reading on from any offset gives the rest
        assert rows_of(chunks[: at + 1]) + rows_of(source.read(chunks[at].offset, lambda: False)) == expected


def test_parts_are_those_of_the_offset(tmp_path: Path) -> None:
    old = archive(tmp_path / "old")
    source = source_of(quotes_from(str(tmp_path / "old"), history_until="2026-01-31 12:00:02"))
    assert isinstance(source, DivisiblePastAndLive)
    first = source.latest(source.initial(), 20)
    assert first["past"] == [str(tmp_path / "old" / f"{n}.parquet") for n in range(3)]
    pq.write_table(pq.read_table(tmp_path / "old" / "0.parquet"), tmp_path / "old" / "later.parquet")
    read = [row for part in source.parts({}, first) for row in rows_of(source.read_part(part))]
    assert read == [row for row in old if str(row[3]) < "2026-01-31 12:00:02"]  # the live ones so far are the same rows
    then = source.latest(first, 1000)
    assert "past" not in then
    rest = [row for part in source.parts(first, then) for row in rows_of(source.read_part(part))]
    assert len(read) + len(rest) == 60 and len({row[3] for row in read + rest}) == 60


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"history": "/nowhere"}, "no file at /nowhere"),
        ({"history": None, "history_until": "2026-01-31"}, "history_until needs the option history"),
        ({"history_until": "soon"}, "history_until = 'soon' is not valid"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    archive(tmp_path / "old")
    stream = quotes_from(str(tmp_path / "old"), **options)
    given = {name: value for name, value in (stream.source or {}).items() if value is not None}
    with pytest.raises(ConnectorError, match=message):
        source_of(StreamDef("quote", QUOTES, Clock.EXTERNAL, "ts", source=given))
    with pytest.raises(ConnectorError, match="not ordered by a column"):
        source_of(StreamDef("quote", QUOTES, Clock.LATENT, source={**given, "history": str(tmp_path / "old")}))


def test_a_session_reads_both_also_after_a_restart(tmp_path: Path) -> None:
    archive(tmp_path / "old")
    text = (
        DECLARED + "KEEP ALL WITH (connector = 'quotes', rate = 10, rows = 60, start = '2026-01-31 12:00:00', "
        "history = '{}', history_until = '2026-01-31 12:00:02')"
    )
    with ms.connect(tmp_path / "session") as db:
        db.execute(text.format(tmp_path / "old"))
        query = db.sql("SELECT count(*) OVER (ROWS UNBOUNDED PRECEDING) AS n FROM quote", name="numbers")
        db.run()
        assert query.fetch()["n"].to_pylist() == list(range(1, 61))
        late = db.sql("SELECT count(*) OVER (ROWS UNBOUNDED PRECEDING) AS n FROM quote WITH HISTORY")
        assert late.fetch().num_rows == 60
    with ms.connect(tmp_path / "session") as db:
        assert db.sql("SELECT count(*) AS n FROM HISTORY(quote)").fetch()["n"].to_pylist() == [60]
    with ms.connect() as db, pytest.raises(ConnectorError, match="has no connector"):
        db.execute("CREATE STREAM s (a INT, t INT) ORDER BY t WITH (history = 'x.parquet')")


def test_history_lies_in_a_location_where_statements_are_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    archive(tmp_path / "lake" / "old")
    text = DECLARED + "WITH (connector = 'quotes', "
    db = ms.connect(profile="untrusted", locations={"lake": tmp_path / "lake"})
    with pytest.raises(BindError, match="a path without a location is not allowed"):
        db.execute(text + f"rows = 50, history = '{tmp_path}/lake/old')")
    with pytest.raises(ConnectorError, match="not a path inside a location"):
        db.execute(text + "rows = 50, location = 'lake', history = '../lake/old')")
    db.execute(text + "rows = 50, location = 'lake', history = 'old', history_until = '2026-01-31 12:00:02')")
    db.close()
