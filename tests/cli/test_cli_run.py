"""`millstream run` on the embedded engine."""

from __future__ import annotations

import os
import pty
import re
import sys
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from cli_tools import ROOT, Invoke, Spawn

QUOTES = """\
CREATE STREAM quotes (symbol VARCHAR, price DOUBLE, volume BIGINT, ts TIMESTAMP) ORDER BY ts
    WITH (connector = 'file', path = '${data:-quotes.csv}');
"""


def embedded(invoke: Invoke, text: str, *options: object) -> tuple[int, str, str]:
    result = invoke("run", "-", "--engine", "embedded", *options, input=text)
    return result.exit_code, result.stdout, result.stderr


def test_generate_then_run_into_a_sink(invoke: Invoke, tmp_path: Path) -> None:
    made = invoke("generate", "nexmark", "--rows", 5000, "--seed", 7, "--out", "data")
    assert made.exit_code == 0
    assert "data/bid.parquet: 4,600 rows" in made.stdout
    ran = invoke(
        "run", ROOT / "examples/auctions/pipeline.sql", "-e", "embedded", "--var", "data=data", "--var", "out=out"
    )
    assert ran.exit_code == 0, ran.stderr
    assert pq.read_table("out/item_prices").num_rows == 4600
    auctions = pq.read_table("data/auction.parquet")
    expensive = auctions.filter(pc.greater(auctions["initial_bid"], 1000))
    activity = pq.read_table("out/seller_activity")
    assert sorted(activity["id"].to_pylist()) == sorted(expensive["id"].to_pylist())
    assert re.search(r"in +Bid +4,600", ran.stderr)
    assert re.search(rf"out +q1 → seller_activity +{len(activity):,} .*out/seller_activity", ran.stderr)
    assert re.search(r"done after .* s, 0 late, 0 rejected", ran.stderr)


def test_generated_rows_depend_on_the_seed_alone(invoke: Invoke, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        invoke("generate", "quotes", "--rows", 100, "--seed", seed, "--out", f"{name}.csv", "--quiet")
    texts = [(tmp_path / f"{name}.csv").read_text() for name in "abc"]
    assert texts[0] == texts[1] != texts[2]


def test_rows_of_a_bare_select_are_printed_within_the_limit(invoke: Invoke) -> None:
    invoke("generate", "quotes", "--rows", 100, "--out", "quotes.csv")
    code, out, err = embedded(invoke, QUOTES + "SELECT symbol, price FROM quotes", "--limit", 3)
    assert code == 0
    assert out.splitlines()[0] == "symbol\tprice"
    assert len(out.splitlines()) == 4
    assert "3 shown (--limit)" in err
    _, everything, _ = embedded(invoke, QUOTES + "SELECT symbol, price FROM quotes", "--limit", 0)
    assert len(everything.splitlines()) == 101
    _, piped, _ = embedded(invoke, QUOTES + "SELECT symbol, price FROM quotes")
    assert piped == everything, "a pipe gets every row"


def test_rows_of_several_queries_are_told_apart(invoke: Invoke) -> None:
    invoke("generate", "quotes", "--rows", 10, "--out", "quotes.csv")
    _, out, _ = embedded(invoke, QUOTES + "SELECT 1 AS one FROM quotes; SELECT 2 AS two FROM quotes")
    assert "-- q1\none\n1\n" in out
    assert "-- q2\ntwo\n2\n" in out


def test_quiet_says_nothing_but_rows(invoke: Invoke) -> None:
    invoke("generate", "quotes", "--rows", 2, "--out", "quotes.csv")
    code, out, err = embedded(invoke, QUOTES + "SELECT volume > 0 AS traded FROM quotes", "--quiet")
    assert (code, out, err) == (0, "traded\ntrue\ntrue\n", "")


def test_results_that_are_there_at_once_are_shown(invoke: Invoke) -> None:
    code, out, _ = embedded(
        invoke, "CREATE TABLE t (a INT, b VARCHAR); INSERT INTO t VALUES (7, 'x'), (8, NULL); SELECT * FROM t"
    )
    assert code == 0
    assert re.search(r"7 +x", out)
    assert re.search(r"8 +NULL", out)


def test_bad_rows_are_counted_and_none_is_late_in_a_file(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "quotes.csv").write_text(
        "symbol,price,volume,ts\nA,1,1,2026-01-01 00:00:10\nA,dear,1,2026-01-01 00:00:11\nA,2,1,2026-01-01 00:00:01\n"
    )
    code, out, err = embedded(invoke, QUOTES + "SELECT price FROM quotes; SELECT error FROM ERRORS(quotes)")
    assert code == 0
    assert "0 late, 1 rejected" in err
    assert "dear" in out
    assert re.search(r"price\n2\n1\n", out)


@pytest.mark.parametrize(
    ("text", "line", "carets"),
    [
        ("CREATE STREAM s (a INT);\n\nSELECT b FROM s", "  3 | SELECT b FROM s", "    |        ^"),
        ("SHOW STREAMS;\nSELEC 1", "  2 | SELEC 1", "    | ^^^^^"),
        ("CREATE STREAM s (a INT);\nSELECT count(*) FROM s", "  2 | SELECT count(*) FROM s", "    |        ^^^^^^^^"),
        ("CREATE STREAM s (a INT);\n  SELECT ${x} FROM s", "  2 |   SELECT ${x} FROM s", "    |          ^^^^"),
        ("CREATE STREAM s (a INT);\nCREATE STREAM s (a INT)", "  2 | CREATE STREAM s (a INT)", "    | ^^^^^^"),
    ],
    ids=["column", "syntax", "blocking", "variable", "twice"],
)
def test_bad_sql_is_underlined_in_the_file(invoke: Invoke, text: str, line: str, carets: str) -> None:
    code, out, err = embedded(invoke, text)
    assert code == 1
    assert err.startswith("error: ")
    shown = err.splitlines()
    assert line in shown
    assert shown[shown.index(line) + 1].startswith(carets)
    assert "Traceback" not in err + out


def test_debug_shows_the_traceback_too(invoke: Invoke) -> None:
    code, _, err = embedded(invoke, "SELECT b FROM nowhere", "--debug")
    assert code == 1
    assert err.startswith("Traceback (most recent call last)")
    assert "\nerror: " in err


def test_a_source_that_is_not_there_is_an_error(invoke: Invoke) -> None:
    code, _, err = embedded(invoke, QUOTES + "SELECT price FROM quotes", "--var", "data=none.csv")
    assert code == 1
    assert "none.csv" in err
    assert "Traceback" not in err


def test_a_query_that_fails_on_the_way_is_an_error(invoke: Invoke) -> None:
    invoke("generate", "quotes", "--rows", 100, "--out", "quotes.csv")
    text = QUOTES + "CREATE SINK s WITH (connector = 'blackhole'); INSERT INTO s SELECT CAST(symbol AS INT) FROM quotes"
    code, _, err = embedded(invoke, text)
    assert code == 1
    assert "failed after" in err
    assert "error: " in err
    assert "Traceback" not in err


def test_settings(invoke: Invoke) -> None:
    invoke("generate", "quotes", "--rows", 10, "--out", "quotes.csv")
    text = QUOTES + "SELECT price FROM quotes"
    assert embedded(invoke, text, "--conf", "batch_rows=3", "--conf", "jit=off")[0] == 0
    code, _, err = embedded(invoke, text, "--conf", "batch_rows=none")
    assert code == 1
    assert "batch_rows" in err


def test_a_port_fed_by_another_process(spawn: Spawn, tmp_path: Path) -> None:
    import socket
    import subprocess

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    run = spawn(
        "run",
        ROOT / "examples/ports/pipeline.sql",
        "-e",
        "embedded",
        "--var",
        f"port={port}",
        "--var",
        "out=got",
        "-n",
        0,
    )
    feeder = subprocess.run([sys.executable, ROOT / "examples/ports/feed.py", str(port), "200", "0"], timeout=300)
    out, err = run.communicate(timeout=300)
    assert (feeder.returncode, run.returncode) == (0, 0), err
    rows = [line.split("\t") for line in out.splitlines()[1:]]
    assert len(rows) == 200
    assert all(float(price) <= float(highest) for _, _, price, highest in rows)
    written = "".join(path.read_text() for path in (tmp_path / "got" / "high_bids").glob("part-*"))
    assert len(written.splitlines()) == sum(price == highest for _, _, price, highest in rows)


def test_on_a_terminal_the_display_is_live(spawn: Spawn, invoke: Invoke) -> None:
    invoke("generate", "quotes", "--rows", 20_000, "--out", "quotes.csv")
    Path("p.sql").write_text(QUOTES + "SELECT symbol, price FROM quotes WHERE price > 400")
    screen, terminal = pty.openpty()
    env = {"TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    # small batches, so that there is something to look at before it is over
    slow = ("--conf", "batch_rows=20")
    run = spawn("run", "p.sql", "-e", "embedded", "-n", 2, *slow, stdout=terminal, stderr=terminal, env=env)
    os.close(terminal)
    seen = b""
    while True:
        try:
            part = os.read(screen, 65536)
        except OSError:
            break
        if not part:
            break
        seen += part
    os.close(screen)
    assert run.wait(timeout=300) == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    assert "p.sql" in text
    assert re.search(r"\d+%", text)
    assert re.search(r"q1: 2 rows of [\d,]+", text)
    assert "done after" in text
    assert b"\x1b[" in seen


def test_the_report_is_the_last_that_a_run_says(spawn: Spawn, tmp_path: Path) -> None:
    """Also libraries have nothing to say when the process ends."""
    (tmp_path / "quotes.csv").write_text("symbol,price,volume,ts\nACME,1.5,10,2026-01-01 00:00:00\n")
    kinds = "CREATE TABLE kinds (symbol VARCHAR, kind VARCHAR); INSERT INTO kinds VALUES ('ACME', 'shares');"
    query = "SELECT kind, price FROM quotes JOIN kinds ON quotes.symbol = kinds.symbol;"
    (tmp_path / "pipeline.sql").write_text(f"{QUOTES}{kinds}{query}")
    process = spawn("run", "pipeline.sql", "--engine", "embedded")
    rows, report = process.communicate(timeout=120)
    assert process.returncode == 0 and "shares" in rows
    assert report.rstrip().splitlines()[-1].startswith("done after"), report
