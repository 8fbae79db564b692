"""`%%millstream` in a real IPython shell."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
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


def test_a_cell_shows_rows_as_they_come(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without anywidget."""
    monkeypatch.setitem(sys.modules, "millstream.live_table", None)
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


def waited(done: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not done():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_table_goes_on_while_other_cells_run(shell: InteractiveShell) -> None:
    pytest.importorskip("anywidget")
    db = run(shell, "%millstream")
    db.execute("CREATE STREAM s (v INT, name VARCHAR, t INT) ORDER BY t")
    table = run(shell, "%%millstream q --live\nSELECT v, name FROM s")
    assert table.query.name == "q" and (table.columns, table.numbers) == (["v", "name"], [True, False])
    assert (table.rows, table.state) == ([], "waiting for rows")
    db.push("s", [(v, "<b>" if v else None, v) for v in range(30)])
    waited(lambda: table.count == 30)
    assert len(table.rows) == 20 and table.rows[-1] == ["29", "<b>"] and table.state == "running"
    table.paused = True
    db.push("s", [(30, "x", 30)])
    time.sleep(0.5)
    assert table.count == 30
    table.paused = False
    waited(lambda: table.count == 31)
    again = run(shell, "%%millstream short --live 0.1\nSELECT v FROM s WHERE v > 100")
    again.wait(10)
    assert (again.state, again.stopped) == ("stopped", True)
    db.stop("q")
    table.wait(10)
    assert (table.state, table.stopped) == ("the query has ended", True)
    # the query of a table that was ended goes on
    other = run(shell, "%%millstream other --live\nSELECT v FROM s")
    other.close()
    other.wait(10)
    assert db.query("other").state == "running"
    failing = run(shell, "%%millstream wrong --live\nSELECT CAST(name AS INT) AS v FROM s")
    db.push("s", [(40, "no number", 40)])
    failing.wait(10)
    assert failing.state == "cannot evaluate CAST(name AS INTEGER)" and failing.stopped


def test_the_table_in_a_browser() -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    pytest.importorskip("anywidget")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium")
    from millstream.live_table import LiveTable

    page_text = """<div id="here"></div><script type="module">
      const told = { columns: ["v", "name"], numbers: [true, false], rows: [["1", "<b>x</b>"]], count: 1234,
                     state: "running", paused: false, stopped: false };
      let listener;
      window.model = { get: (name) => told[name], set: (name, value) => { told[name] = value; listener(); },
                       save_changes: () => {}, on: (_, call) => { listener = call; }, off: () => {} };
      const code = CODE;
      const widget = (await import(URL.createObjectURL(new Blob([code], { type: "text/javascript" })))).default;
      widget.render({ model, el: document.getElementById("here") });
    </script>""".replace("CODE", json.dumps(LiveTable._esm))
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=flags)
        page = browser.new_page()
        page.set_content(page_text)
        page.get_by_role("cell", name="<b>x</b>").wait_for()
        assert page.get_by_role("status").inner_text() == "running · 1,234 rows"
        page.get_by_role("button", name="Pause").click()
        page.get_by_role("button", name="Resume").wait_for()
        page.evaluate("model.set('rows', [['2', 'y'], ['3', 'z']])")
        assert page.get_by_role("row").count() == 3
        page.get_by_role("button", name="Stop").click()
        assert page.get_by_role("button").count() == 0 and page.evaluate("model.get('stopped')")
        browser.close()
