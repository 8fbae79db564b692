"""The console in a real browser: a walk through what users do with it.

It needs Chromium and Playwright (`make browser`); screenshots are written to a directory that pytest names.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.conftest import TOKEN, ServerProcess

playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
BEGIN = dt.datetime(2026, 1, 1)
PRICES = [20, 18, 15, 17, 21, 24, 22, 19, 23, 25]
VEES = """SELECT * FROM quotes MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts
  MEASURES MATCH_NUMBER() AS m, CLASSIFIER() AS v ALL ROWS PER MATCH
  PATTERN (A DOWN+ UP+) DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price))"""


def quotes(first: int, prices: list[int]) -> list[tuple[str, float, dt.datetime]]:
    return [("ACME", float(price), BEGIN + dt.timedelta(seconds=first + i)) for i, price in enumerate(prices)]


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, Any, Path]]:
    server = ServerProcess(tmp_path_factory.mktemp("console") / "kept")
    shots = tmp_path_factory.mktemp("screenshots")
    server.client()
    try:
        with playwright.sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            yield server, browser, shots
            browser.close()
    finally:
        server.kill()


@pytest.fixture(scope="module")
def page(console: tuple[ServerProcess, Any, Path]) -> Iterator[Any]:
    server, browser, _ = console
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(10_000)
    failures: list[str] = []
    page.on("pageerror", lambda error: failures.append(str(error)))
    page.goto(server.address)
    page.get_by_label("Token of your account").fill(TOKEN)
    page.keyboard.press("Enter")
    page.get_by_text("Nothing yet").wait_for()
    yield page
    assert failures == []


def editor(page: Any) -> Any:
    return page.get_by_label("SQL", exact=True).first


def run(page: Any, text: str) -> None:
    editor(page).fill(text)
    editor(page).press("Control+Enter")


def complete(page: Any, typed: str, offered: str) -> None:
    """Type with the keyboard, and take what is offered by Tab."""
    editor(page).fill("")
    editor(page).press_sequentially(typed)
    page.get_by_role("option", name=offered).first.wait_for()
    page.wait_for_timeout(150)  # offers that have just appeared are not taken, for they may surprise
    editor(page).press("Tab")


def test_a_first_query_is_plotted_live(console: tuple[ServerProcess, Any, Path], page: Any) -> None:
    server = console[0]
    page.keyboard.press("2")  # pages are opened by number
    run(page, "CREATE STREAM quotes (symbol VARCHAR, price DOUBLE, ts TIMESTAMP) ORDER BY ts KEEP 1 DAY")
    page.get_by_text("Done.").wait_for()
    complete(page, "SELECT symbol, pri", "price")
    assert editor(page).inner_text() == "SELECT symbol, price"
    complete(page, "SELECT * FROM quo", "quotes")
    assert editor(page).inner_text() == "SELECT * FROM quotes"
    complete(page, "SELECT * FROM quotes AS q WHERE q.sym", "symbol")
    assert editor(page).inner_text() == "SELECT * FROM quotes AS q WHERE q.symbol"
    editor(page).press("Tab")  # without offers it leaves the editor, as it leaves other fields
    assert page.get_by_role("button", name="Run").evaluate("each => each === document.activeElement")
    run(page, "SELECT symbol, prize FROM quotes")
    page.get_by_text("did you mean price?").wait_for()
    assert page.locator(".cm-lintRange-error").inner_text() == "prize"
    run(page, "SELECT symbol, '😀', prize\nFROM quotes")  # as many lines and characters as there are
    page.get_by_text("did you mean price?").wait_for()
    assert page.locator(".cm-lintRange-error").inner_text() == "prize"
    page.locator(".cm-lintRange-error").hover()
    page.locator(".cm-tooltip", has_text="did you mean price?").wait_for()
    editor(page).fill("SELECT symbol, price, ts FROM quotes WHERE price > 10")
    page.get_by_role("button", name="Explain").click()
    page.get_by_label("the plan as boxes and arrows").first.get_by_text("Compute", exact=True).wait_for()
    assert page.get_by_alt_text("the automaton of this query").count() == 0
    editor(page).fill(VEES)
    page.get_by_role("button", name="Explain").click()
    page.get_by_alt_text("the automaton of this query").wait_for()
    run(page, "SELECT symbol, price, ts FROM quotes WHERE price > 10")
    page.get_by_text("waiting for rows").wait_for()
    server.client().push("quotes", quotes(0, PRICES))
    page.get_by_text("10 since you look").wait_for()
    page.locator(".plot canvas").wait_for()
    assert page.locator(".scroll tbody tr").count() == 10


def test_matches_are_marked_and_operators_have_monitors(console: tuple[ServerProcess, Any, Path], page: Any) -> None:
    server = console[0]
    db = server.client()
    db.sql(VEES, name="vees")
    page.goto(f"{server.address}/#/queries/vees")
    page.get_by_text("waiting for rows").first.wait_for()
    page.locator("g.arrow").first.wait_for()
    page.locator("g.arrow").first.focus()  # arrows are reached by keyboard
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Stream quotes").get_by_text("waiting for rows").wait_for()
    db.push("quotes", quotes(100, PRICES))
    db.push("quotes", quotes(110, [20]))
    page.get_by_text("2 matches marked").wait_for()
    page.get_by_alt_text("the automaton of this query").wait_for()
    page.get_by_text("the latest 11").wait_for()
    page.screenshot(path=console[2] / "matches.png", full_page=True)


def test_a_copy_is_stepped_row_by_row(console: tuple[ServerProcess, Any, Path], page: Any) -> None:
    server = console[0]
    page.get_by_role("button", name="Step through a copy").click()
    page.get_by_text("steps take rows that arrive from now on").wait_for()
    server.client().push("quotes", quotes(200, [30, 29]))
    page.get_by_role("button", name="Next row").click()
    page.get_by_text("1 more rows have arrived").wait_for()
    page.get_by_label("row as JSON").fill('{"symbol": "ACME", "price": "x", "ts": "2026-01-01 01:00:00"}')
    page.keyboard.press("Enter")
    page.get_by_text("is not a valid DOUBLE").wait_for()
    page.get_by_label("row as JSON").fill('{"symbol": "ACME", "price": 77, "ts": "2026-01-01 01:00:00"}')
    page.keyboard.press("Enter")
    page.locator("td", has_text="77").first.wait_for()
    assert server.client().query("vees").metrics()["accepted"] == 10 + 11 + 2  # that row was given to the copy alone


def test_a_query_is_altered_with_history(console: tuple[ServerProcess, Any, Path], page: Any) -> None:
    server = console[0]
    server.client().sql("SELECT symbol, count(*) AS n FROM quotes [RANGE 1 MINUTE] GROUP BY symbol", name="busy")
    page.goto(f"{server.address}/#/queries/busy")
    page.get_by_role("button", name="Change…").click()
    editor(page).fill("SELECT symbol, count(*) AS n FROM quotes [RANGE 1 HOUR] GROUP BY symbol")
    page.get_by_role("button", name="Dry run").click()
    page.get_by_text("computed again from 23 kept rows").wait_for()
    page.get_by_role("button", name="Change it").click()
    page.locator("pre", has_text="'1' HOUR").wait_for()  # as SQL is printed
    page.get_by_role("button", name="Snapshot").click()
    page.get_by_role("heading", name="Current content").wait_for()
    assert page.locator("section", has_text="Current content").locator("td.number").inner_text() == "23"
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume").click()
    page.locator(".badge.running").wait_for()


def test_history_late_and_rejected_rows(console: tuple[ServerProcess, Any, Path], page: Any) -> None:
    server = console[0]
    page.goto(f"{server.address}/#/streams/quotes")
    for button, rows, seen in (
        ("Late rows", [("LATE", 1.0, BEGIN)], "LATE"),
        ("Rejected rows", [("ACME", "no number", BEGIN)], "no number"),
    ):
        page.get_by_role("button", name=button).click()
        page.get_by_role("heading", name=button).get_by_text("waiting for rows").wait_for()
        server.client().push("quotes", rows)
        page.locator("td", has_text=seen).first.wait_for()
    page.get_by_label("from").fill("2026-01-01 00:03:00")
    page.get_by_role("button", name="Show").click()
    page.locator("section", has_text="History").locator("canvas").wait_for()
    assert page.locator("section", has_text="History").locator(".scroll tbody tr").count() == 2


def test_the_console_connects_again(console: tuple[ServerProcess, Any, Path], page: Any) -> None:
    server = console[0]
    page.goto(f"{server.address}/#/queries/vees")
    page.get_by_text("waiting for rows").first.wait_for()
    server.kill()
    page.get_by_text("not connected, trying again").wait_for()
    server.start()
    db = server.client()
    page.get_by_text("as admin (admin)").wait_for()
    db.push("quotes", quotes(4000, PRICES))
    db.push("quotes", quotes(4020, [1]))
    page.get_by_text("since you look").wait_for()


def test_many_queries_are_one_template(console: tuple[ServerProcess, Any, Path], page: Any) -> None:
    server = console[0]
    db = server.client()
    db.execute("CREATE TABLE limits (id INT PRIMARY KEY, symbol VARCHAR, most DOUBLE)")
    db.execute("INSERT INTO limits SELECT i, 'S' || i, i FROM range(10000) r(i)")
    db.execute(
        "CREATE QUERIES too_high AS "
        "SELECT l.id, price FROM limits l, quotes q WHERE q.symbol = l.symbol AND price > l.most"
    )
    for at in range(20):
        db.sql(f"SELECT symbol, price FROM quotes WHERE symbol = 'T{at}'", name=f"t{at}")
    page.goto(f"{server.address}/#/sharing")
    page.get_by_text("10,000 queries").wait_for()
    page.get_by_text("20 queries").first.wait_for()
    page.screenshot(path=console[2] / "sharing.png", full_page=True)
    page.keyboard.press("1")
    page.locator("g.group", has_text="queries").first.click()  # groups are zoomed into
    page.get_by_role("button", name="All queries").wait_for()
    page.get_by_role("link", name="t19").wait_for()
    page.get_by_role("button", name="Show all operators").click()
    page.get_by_label("operators; open one to see its rows").first.wait_for()


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_screenshots(console: tuple[ServerProcess, Any, Path], page: Any, size: str, colours: str) -> None:
    server, browser, shots = console
    width, height = (1280, 900) if size == "desktop" else (390, 844)
    with browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=colours, is_mobile=size == "phone", has_touch=True
    ) as context:
        context.add_init_script(f"sessionStorage.setItem('millstream-token', {TOKEN!r})")
        page = context.new_page()
        for name in ("", "queries/vees", "streams/quotes", "sharing", "sql"):
            page.goto(f"{server.address}/#/{name}")
            page.locator(".figures, .shared, .cm-editor").first.wait_for()
            if name == "queries/vees":
                page.locator("svg.graph").wait_for()
                page.get_by_text("waiting for rows").first.wait_for()
                begin = 5000 + 100 * (2 * (size == "phone") + (colours == "dark"))
                server.client().push("quotes", quotes(begin, [*PRICES, 1]))
                page.locator(".plot canvas").wait_for()
            page.wait_for_function("document.documentElement.scrollWidth <= window.innerWidth")  # nothing sticks out
            page.screenshot(path=shots / f"{size}-{colours}-{name.partition('/')[0] or 'overview'}.png")
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (dark == "rgb(20, 25, 28)") == (colours == "dark")
