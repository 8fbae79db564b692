"""`millstream shell`, as a script and on a terminal."""

from __future__ import annotations

import os
import pty
import re
import select
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli_tools import Invoke, Spawn

import millstream
from millstream.cli.commands.shell import _names

SCRIPT = """\
-- a remark; with a semicolon
CREATE STREAM s (a INT, b VARCHAR, ts TIMESTAMP)
    ORDER BY ts;
SELECT a, b,
       sum(a) OVER (PARTITION BY b RANGE 10 SECONDS PRECEDING) AS total
FROM s;
\\push s {"a": 1, "b": "x", "ts": "2026-01-01 00:00:00"} [2, "x", "2026-01-01 00:00:05"]
\\push s [{"a": 3, "b": "y", "ts": "2026-01-01 00:00:06"}, {"a": 4, "b": "y", "ts": "2026-01-01 00:00:07"}]
\\fetch q1
\\advance s 2026-01-01 00:01:00
\\fetch
\\finish
"""


def rows(text: str) -> list[list[str]]:
    """The cells of lines that look like rows of numbers and words."""
    return [line.split() for line in text.splitlines() if re.match(r"\s+\d", line)]


def test_a_script(invoke: Invoke) -> None:
    result = invoke("shell", input=SCRIPT)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    assert "query q1 is running" in result.stdout
    assert rows(result.stdout) == [["1", "x", "1"], ["2", "x", "3"], ["3", "y", "3"], ["4", "y", "7"]]
    assert "millstream>" not in result.stdout


def test_times_are_shown_in_the_zone_of_the_session(invoke: Invoke) -> None:
    script = """\
CREATE TABLE t (at TIMESTAMPTZ);
INSERT INTO t VALUES ('2026-01-01 00:00:00+00');
SET timezone = 'Europe/Berlin';
SELECT at, CAST(at AS VARCHAR) AS text FROM t;
"""
    result = invoke("shell", input=script)
    assert "2026-01-01 01:00:00+01:00" in result.stdout, result.stdout
    assert "2026-01-01 01:00:00+01 " in result.stdout.replace("\n", " \n")


def test_lists_and_descriptions(invoke: Invoke) -> None:
    script = """\
CREATE STREAM s (a INT, ts TIMESTAMP) ORDER BY ts SLACK 5 SECONDS;
CREATE STREAM big AS SELECT a FROM s WHERE a > 10;
CREATE TABLE t (k BIGINT, v VARCHAR);
CREATE SINK o WITH (connector = 'blackhole');
CREATE FUNCTION twice(x INT) AS x * 2;
INSERT INTO o SELECT a FROM big;
\\d
\\d s
\\d big
\\d t
\\d o
\\d twice
\\d q1
"""
    result = invoke("shell", input=script)
    assert (result.exit_code, result.stderr) == (0, "")
    listed, _, described = result.stdout.partition("stream s\n")
    for words in (
        "stream +s ",
        "stream +big ",
        "table +t ",
        "sink +o +connector = blackhole",
        "function +twice",
        "query +q1",
    ):
        assert re.search(words, listed), words
    assert "ordered by ts, slack 0:00:05" in described
    assert re.search(r"v +VARCHAR", described)
    assert "used by: big" in described
    assert "used by: q1" in described
    assert "sink o: connector = blackhole" in described
    assert "INSERT INTO o SELECT a FROM big" in described


def test_errors_do_not_end_a_script_unless_asked(invoke: Invoke) -> None:
    script = "SELEC 1;\nCREATE TABLE t (a INT);\nINSERT INTO t VALUES (42);\n\\nonsense\nSELECT a FROM t;\n"
    result = invoke("shell", input=script)
    assert result.exit_code == 1
    assert "42" in result.stdout
    assert "did you mean SELECT?" in result.stderr
    assert "    | ^^^^^" in result.stderr
    assert "no command \\nonsense" in result.stderr
    stopped = invoke("shell", "--stop-on-error", input=script)
    assert stopped.exit_code == 1
    assert "42" not in stopped.stdout
    assert "nonsense" not in stopped.stderr
    assert "Traceback" not in result.stderr + stopped.stderr


def test_wrong_commands_say_what_is_right(invoke: Invoke) -> None:
    script = """\
CREATE STREAM s (a INT, ts TIMESTAMP) ORDER BY ts;
\\push s
\\push nowhere {"a": 1}
\\push s {"a": 1
\\push s 7
\\advance s yesterday
\\fetch
\\fetch q9
\\d nothing
\\i nofile.sql
"""
    result = invoke("shell", input=script)
    said = result.stderr.splitlines()
    assert [line for line in said if line.startswith("error")] == [
        "error: \\push takes a stream and rows",
        "error: no stream nowhere",
        "error: this is not JSON",
        "error: 7 is not a row",
        "error: 'yesterday' is not a time",
        "error: no query is running",
        "error: no query q9",
        "error: nothing is named nothing",
        "error: cannot read nofile.sql",
    ]


def test_sources_files_and_timing(invoke: Invoke, tmp_path: Path) -> None:
    invoke("generate", "quotes", "--rows", 50, "--out", "quotes.csv")
    (tmp_path / "declare.sql").write_text(
        "CREATE STREAM quotes (symbol VARCHAR, price DOUBLE, ts TIMESTAMP) ORDER BY ts SOURCE 'quotes.csv';\n"
        "SELECT count(*) OVER (ROWS UNBOUNDED PRECEDING) AS n FROM quotes"
    )
    result = invoke("shell", input="\\timing\n\\i declare.sql\n\\run\n\\timing\n\\q\nSELEC never;\n")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "q1: 50 rows" in result.stdout
    assert result.stdout.count("time: ") >= 3
    assert "timing is off" in result.stdout


def test_help_and_explain(invoke: Invoke) -> None:
    result = invoke("shell", input="\\?\nCREATE STREAM s (a INT); EXPLAIN SELECT a FROM s;\n")
    assert "\\push stream JSON" in result.stdout
    assert "physical plan:" in result.stdout


def test_a_directory_keeps_everything(invoke: Invoke) -> None:
    first = "CREATE STREAM s (a INT);\nSELECT sum(a) OVER (ROWS UNBOUNDED PRECEDING) AS t FROM s;\n\\push s [1] [2]\n"
    assert invoke("shell", "home", input=first).exit_code == 0
    result = invoke("shell", "home", input="\\push s [10]\n\\fetch\n")
    assert (result.exit_code, result.stderr) == (0, "")
    assert rows(result.stdout) == [["1"], ["3"], ["13"]]


def test_on_a_terminal_there_is_a_prompt_and_a_history(spawn: Spawn, tmp_path: Path) -> None:
    screen, terminal = pty.openpty()
    env = {"TERM": "dumb", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    shell = spawn("shell", stdin=terminal, stdout=terminal, stderr=terminal, env=env)
    os.close(terminal)
    seen = ""

    def answer(wanted: str, reply: str) -> None:
        nonlocal seen
        while wanted not in seen:
            assert select.select([screen], [], [], 60)[0], seen
            seen += os.read(screen, 4096).decode()
        seen = seen.partition(wanted)[2]
        os.write(screen, reply.encode() + b"\r")

    answer("millstream> ", "CREATE TABLE t (a INT);")
    answer("millstream> ", "SELECT count(*) AS n")
    answer("...> ", "FROM t;")
    answer(" n ", "SELEC 2;")
    answer("did you mean SELECT?", "\\q")
    assert shell.wait(timeout=300) == 0
    os.close(screen)
    assert "CREATE TABLE t" in (tmp_path / "cache" / "millstream" / "history").read_text()


def test_late_and_rejected_rows_are_told(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("v,t\n2,2\nx,3\n1,1\n")
    result = invoke(
        "shell",
        input="""\
CREATE STREAM s (v INT, t INT) ORDER BY t;
CREATE STREAM f (v INT, t INT) ORDER BY t WITH (connector = 'file', path = 'f.csv');
SELECT v FROM s;
SELECT v FROM f;
\\push s [1, 1]
\\push s [2, 5] [3, 4] [4, "x"] [5, 6]
\\run q2
\\d q1
""",
    )
    assert result.exit_code == 0, result.stderr
    assert "1 accepted" not in result.stdout
    assert "2 accepted, 1 late, 1 rejected" in result.stdout
    assert "q2: 2 accepted, 0 late, 1 rejected" in result.stdout
    assert "input: 3 accepted, 1 late, 1 rejected" in result.stdout


def test_unterminated_text_is_an_error(invoke: Invoke) -> None:
    result = invoke("shell", input="CREATE TABLE t (a VARCHAR);\nINSERT INTO t VALUES ('never closed);\n")
    assert result.exit_code == 1
    assert "expected a closing '" in result.stderr


def test_a_file_is_not_a_session(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "script.sql").write_text("SHOW STREAMS;")
    result = invoke("shell", "script.sql")
    assert result.exit_code == 2
    assert "is a file, not the directory of a session" in " ".join(result.stderr.split())


def test_words_without_a_backslash(invoke: Invoke) -> None:
    result = invoke("shell", input="help\nEXIT;\nSELEC never;\n")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "\\snapshot name [time]" in result.stdout


def test_push_says_what_was_rejected(invoke: Invoke) -> None:
    script = 'CREATE STREAM s (a INT, t INT) ORDER BY t;\n\\push s {"a": "x", "t": 1} {"a": 2, "t": 2}\n'
    result = invoke("shell", input=script)
    assert "1 accepted, 0 late, 1 rejected" in result.stdout
    assert "rejected: a: 'x' is not a valid INTEGER" in result.stdout


def test_fetch_names_a_failed_query_and_goes_on(invoke: Invoke) -> None:
    script = """\
CREATE STREAM s (a VARCHAR, t INT) ORDER BY t;
SELECT CAST(a AS INT) AS bad FROM s;
SELECT a AS good FROM s;
\\push s ["x", 1]
\\fetch
"""
    result = invoke("shell", input=script)
    assert result.exit_code == 1
    assert "error: query q1 failed: cannot evaluate CAST(a AS INTEGER)" in result.stderr
    assert "q2: 1 row" in result.stdout


def test_snapshot_shows_what_a_view_holds(invoke: Invoke) -> None:
    script = """\
CREATE STREAM s (a INT, t INT) ORDER BY t;
CREATE VIEW w AS SELECT count(*) AS n FROM s [RANGE 10];
INSERT INTO s VALUES (1, 1), (2, 5);
\\snapshot w
\\snapshot w 12
"""
    result = invoke("shell", input=script)
    assert (result.exit_code, result.stderr) == (0, "")
    assert re.findall(r"w: 1 row\s+n\s+─\s+(\d)", result.stdout) == ["2", "1"]


def test_watch_fetches_until_interrupted(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            raise KeyboardInterrupt

    # not time.sleep itself, which other threads call
    monkeypatch.setattr("millstream.cli.shell.backslash.time", SimpleNamespace(sleep=sleep))
    script = "CREATE STREAM s (a INT, t INT) ORDER BY t;\nSELECT a FROM s;\n\\watch q1 0.5\n"
    result = invoke("shell", input=script)
    assert (result.exit_code, waits) == (0, [0.5, 0.5])
    assert result.stdout.count("q1: 0 rows") == 2


def test_functions_can_be_completed() -> None:
    with millstream.connect() as database:
        words = _names(database)
    assert {"date_trunc", "string_agg", "avg", "CREATE STREAM"} <= set(words)
