"""A sink that fails ends its own query: others get every row once, and a push is never half done."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize("options", ["", ", single_file = true"])
def test_what_was_seen_stays(tmp_path: Path, options: str) -> None:
    """A copy of everything at each moment is what a crash leaves; what a reader saw of the output is there again."""
    home, out, crashes = tmp_path / "home", tmp_path / "out.jsonl", []

    def seen(place: Path) -> str:
        parts = sorted(place.glob("part-*")) if place.is_dir() else [place] if place.exists() else []
        return "".join(part.read_text() for part in parts)

    def crash() -> None:
        crashes.append((tmp_path / f"crash-{len(crashes)}", seen(out)))
        shutil.copytree(home, crashes[-1][0] / "home")
        if out.is_dir():
            shutil.copytree(out, crashes[-1][0] / "out.jsonl")
        elif out.exists():
            shutil.copy(out, crashes[-1][0])

    from millstream.session import journal

    def crashing_write(real: Any) -> Any:
        def write(*args: Any) -> None:
            crash()
            real(*args)
            crash()

        return write

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "write_durably", crashing_write(journal.write_durably))
        with ms.connect(home, checkpoint_seconds=3600) as db:
            db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t")
            db.execute(f"CREATE SINK w WITH (connector = 'file', path = '{out}', format = 'jsonl'{options})")
            db.sql("INSERT INTO w SELECT v FROM s", name="q")
            for i in range(6):
                db.push("s", [(i, i)])
                if i % 3 == 2:
                    db.checkpoint()
                crash()
            db.finish()
            crash()
    assert len(crashes) > 20
    for place, before in crashes:
        if not (place / "home" / "CURRENT").exists():
            continue
        out.unlink() if out.is_file() else shutil.rmtree(out, ignore_errors=True)
        if (place / "out.jsonl").exists():
            shutil.move(place / "out.jsonl", out)
        with ms.connect(place / "home") as db:
            if options == "":
                assert seen(out).startswith(before), "what was seen is gone"
            db.finish()
            assert seen(out).startswith(before)
            count = db._host.streams["s"].rows if "s" in db._host.streams else 0  # type: ignore[attr-defined]
            if db.queries():
                assert seen(out) == "".join(f'{{"v":{i}}}\n' for i in range(count))
