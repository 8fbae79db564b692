"""A sink that fails ends its own query: others get every row once, and a push is never half done."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import millstream as ms


@pytest.mark.parametrize("kept", [False, True])
def test_others_get_every_row_once(tmp_path: Path, kept: bool) -> None:
    out = tmp_path / "out"
    db = ms.connect(tmp_path / "home") if kept else ms.connect()
    db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t")
    db.execute(f"CREATE SINK w WITH (connector = 'file', path = '{out}', format = 'jsonl')")
    before = db.sql("SELECT v FROM s", name="before")
    sink = db.sql("INSERT INTO w SELECT v FROM s", name="sink")
    after = db.sql("SELECT v FROM s", name="after")
    assert isinstance(before, ms.Query) and isinstance(after, ms.Query) and isinstance(sink, ms.Query)
    db.push("s", [(1, 1)])
    if kept:
        db.checkpoint()
    else:
        db.push("s", [(2, 2)])
    shutil.rmtree(out)
    for v in (3, 4, 5):
        db.push("s", [(v, v)])
    db.finish()
    expected = [1, 3, 4, 5] if kept else [1, 2, 3, 4, 5]
    assert before.fetch()["v"].to_pylist() == after.fetch()["v"].to_pylist() == expected
    with pytest.raises(ms.ConnectorError, match=r"cannot (write|commit) to"):
        sink.fetch()
    db.close()


def test_a_run_whose_only_sink_fails_ends_with_its_error(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("".join(f'{{"v": {i}, "t": {i}}}\n' for i in range(1000)))
    (tmp_path / "out").mkdir()
    with ms.connect(batch_rows=10) as db:
        db.execute(
            f"CREATE STREAM s (v INT, t INT) ORDER BY t WITH (connector = 'file', path = '{tmp_path / 'in.jsonl'}');"
            f"CREATE SINK w WITH (connector = 'file', path = '{tmp_path / 'out'}', format = 'jsonl');"
            "INSERT INTO w SELECT v FROM s"
        )
        shutil.rmtree(tmp_path / "out")
        (tmp_path / "out").write_text("a file where a directory should be")
        with pytest.raises(ms.ConnectorError, match="cannot write"):
            db.run()
