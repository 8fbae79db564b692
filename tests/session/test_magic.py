"""`%%millstream` in a real IPython shell."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import millstream as ms

pytest.importorskip("IPython")

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    made = InteractiveShell.instance()
    made.run_line_magic("load_ext", "millstream.magic")
    yield made
    made.run_line_magic("millstream", "").close()
    InteractiveShell.clear_instance()


def run(shell: InteractiveShell, cell: str) -> Any:
    done = shell.run_cell(cell)
    done.raise_error()
    return done.result


def test_cells_run_sql(shell: InteractiveShell) -> None:
    run(
        shell,
        "%%millstream\nCREATE STREAM s (v INT, t INT) ORDER BY t;\n"
        "CREATE TABLE k (a INT); INSERT INTO k VALUES (1), (2)",
    )
    result = run(shell, "%%millstream\nSELECT a FROM k ORDER BY a")
    assert "<table" in result._repr_html_() and result.arrow()["a"].to_pylist() == [1, 2]
    run(shell, "low = 1")
    query = run(shell, "%%millstream high\nSELECT v FROM s WHERE v > $low")
    db = run(shell, "%millstream")
    db.push("s", [(1, 1), (2, 2)])
    assert query.name == "high" and query.fetch()["v"].to_pylist() == [2]
    # the same cell again starts the query anew, with the variable as it is now
    run(shell, "low = 5\nnothing = 3")
    run(shell, "%%millstream high\nSELECT v FROM s WHERE v > $low")
    db.push("s", [(3, 3), (6, 6)])
    assert [(each.name, each.fetch()["v"].to_pylist()) for each in db.queries()] == [("high", [6])]
    for wrong in ("SELECT vv FROM s", "SELECT v FROM s WHERE v > $unknown"):
        with capture_output(), pytest.raises(ms.MillstreamError):
            run(shell, f"%%millstream\n{wrong}")
    for line in ("--live soon", "a b"):
        with capture_output(), pytest.raises(ms.BindError, match="%%millstream"):
            run(shell, f"%%millstream {line}\nSELECT v FROM s")
    with capture_output(), pytest.raises(ms.BindError, match="not a session"):
        run(shell, "%millstream low")


def test_a_cell_shows_rows_as_they_come(shell: InteractiveShell) -> None:
    run(shell, "import millstream as ms; mine = ms.connect()")
    db = run(shell, "%millstream mine")
    assert db is shell.user_ns["mine"]
    db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t")

    def push() -> None:
        while not db.queries() or not db._host.results("q").has_readers:
            time.sleep(0.01)
        for v in range(30):
            db.push("s", [(1000 + v, v)])
        db.stop("q")

    pushing = threading.Timer(0.2, push)
    pushing.start()
    with capture_output() as told:
        run(shell, "%%millstream q --live 20\nSELECT v FROM s")
    pushing.join()
    pages = [output.data["text/html"] for output in told.outputs if "text/html" in output.data]
    assert "waiting" in pages[0] and len(pages) > 1
    assert "1029" in pages[-1] and "1010" in pages[-1] and "1009" not in pages[-1]
