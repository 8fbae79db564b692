"""The parts of the command line that need no engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from millstream.cli.directory import RunDirectory
from millstream.cli.meter import Meter
from millstream.cli.options import pairs
from millstream.cli.pipeline import fill_in, read_text
from millstream.cli.terminal import duration
from millstream.cli.watch import Signals, watch
from millstream.errors import BindError, StateError
from millstream.hosts.contract import Progress
from millstream.sql.complete import is_blank, split_complete


@pytest.mark.parametrize(
    ("text", "complete", "rest"),
    [
        ("SELECT 1", [], "SELECT 1"),
        ("SELECT 1; SELECT 2;", ["SELECT 1", "SELECT 2"], ""),
        ("SELECT ';' ;", ["SELECT ';'"], ""),
        ("SELECT 'it''s; fine' FROM s; x", ["SELECT 'it''s; fine' FROM s"], " x"),
        ('SELECT "a;b";', ['SELECT "a;b"'], ""),
        ("SELECT 'open; still", [], "SELECT 'open; still"),
        ("SELECT 1 -- no; end\n;", ["SELECT 1 -- no; end"], ""),
        ("SELECT /* ; */ 1;", ["SELECT /* ; */ 1"], ""),
        ("SELECT /* ; ", [], "SELECT /* ; "),
        ("-- it's a remark\nSELECT 1;", ["-- it's a remark\nSELECT 1"], ""),
        (
            "AGGREGATE a(x) { TABLE t(x); INITIALIZE: { y; } };",
            ["AGGREGATE a(x) { TABLE t(x); INITIALIZE: { y; } }"],
            "",
        ),
        (";;  ;", [], ""),
    ],
)
def test_a_statement_ends_at_a_semicolon_that_counts(text: str, complete: list[str], rest: str) -> None:
    assert split_complete(text) == (complete, rest)


def test_blank_is_space_and_comments() -> None:
    assert is_blank(" \n-- hello\n/* more */ ")
    assert not is_blank("-- hello\nx")


def test_variables_are_filled_in() -> None:
    assert fill_in("${a}/${ b }/${c:-three}/${d:-}", {"a": "1", "b": "2"}) == "1/2/three/"


def test_a_variable_without_a_value_is_underlined() -> None:
    with pytest.raises(BindError) as caught:
        fill_in("SELECT 1;\nSELECT ${day}", {})
    assert "  2 | SELECT ${day}\n    |        ^^^^^^" in str(caught.value)
    assert "--var day=" in str(caught.value)


def test_pairs() -> None:
    assert pairs(["a=1", "b=x=y", "c="], "--var") == {"a": "1", "b": "x=y", "c": ""}
    for wrong in ("a", "=1"):
        with pytest.raises(typer.BadParameter):
            pairs([wrong], "--var")


def test_a_file_that_cannot_be_read_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "none.sql", tmp_path, tmp_path / "binary"):
        with pytest.raises(typer.BadParameter):
            read_text(str(path))


def test_durations() -> None:
    assert [duration(s) for s in (0, 59.96, 60, 3599, 7265)] == [
        "0.0 s",
        "60.0 s",
        "1 min 0 s",
        "59 min 59 s",
        "2 h 1 min",
    ]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_rates_are_recent_while_running_and_of_the_whole_run_at_the_end() -> None:
    clock = Clock()
    meter = Meter(clock=clock)
    for second, rows in ((1, 100), (2, 200), (3, 300), (4, 400), (5, 400), (6, 400), (7, 400), (8, 400)):
        clock.now = second
        meter.add(Progress({"s": rows}, {"q": rows // 2}, total=800, rejected=40))
        if second == 4:
            assert meter.rate_in("s") == pytest.approx(100)
            assert meter.rate_out("q") == pytest.approx(50)
    assert meter.rate_in("s") == 0
    assert meter.fraction == pytest.approx(440 / 800)
    meter.end()
    assert meter.rate_in("s") == pytest.approx(50)
    assert meter.rate() == pytest.approx(50)
    assert meter.elapsed == 8


def test_a_resumed_run_does_not_count_earlier_rows_into_its_rate() -> None:
    clock = Clock()
    meter = Meter(resumed=True, clock=clock)
    clock.now = 1
    meter.add(Progress({"s": 1000}))
    clock.now = 2
    meter.add(Progress({"s": 1100}))
    meter.end()
    assert meter.rate_in("s") == pytest.approx(50)
    assert meter.latest.rows_in == {"s": 1100}


def test_a_directory_knows_its_pipeline(tmp_path: Path) -> None:
    home = tmp_path / "state"
    assert RunDirectory(home, "SELECT 1").prepare() is False
    RunDirectory(home, "SELECT 1").started()
    assert RunDirectory(home, "SELECT 1").prepare() is True
    assert (home / "pipeline.sql").read_text() == "SELECT 1"
    same, edited = RunDirectory(home, "SELECT 1"), RunDirectory(home, "SELECT 2")
    assert (same.prepare(), same.is_edited) == (True, False)
    assert (edited.prepare(), edited.is_edited) == (True, True)
    assert (home / "pipeline.sql").read_text() == "SELECT 1"
    edited.started()
    assert (home / "pipeline.sql").read_text() == "SELECT 2"
    assert RunDirectory(home, "SELECT 1").prepare() is True


def test_a_start_that_was_cut_short_is_forgotten(tmp_path: Path) -> None:
    assert RunDirectory(tmp_path, "SELECT 1").prepare() is False
    (tmp_path / "journal-0").write_text("half")
    (tmp_path / "checkpoint-1").mkdir()
    (tmp_path / "checkpoint-1" / "manifest.json").write_text("{}")
    assert RunDirectory(tmp_path, "SELECT 1").prepare() is False
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "pipeline.json", "pipeline.sql"]


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(StateError, match="is not the directory of a pipeline run"):
        RunDirectory(tmp_path, "SELECT 1").prepare()
    (tmp_path / "pipeline.json").write_text("{not json")
    with pytest.raises(StateError, match="cannot read"):
        RunDirectory(tmp_path, "SELECT 1").prepare()
    assert (tmp_path / "letter.txt").read_text() == "dear"


def test_the_mark_is_plain_json(tmp_path: Path) -> None:
    RunDirectory(tmp_path, "SELECT 1").prepare()
    assert json.loads((tmp_path / "pipeline.json").read_text())["started"] is False


def test_a_signal_asks_the_work_to_end_and_gives_the_code() -> None:
    asked: list[bool] = []

    def work() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        while not asked:
            pass

    before = signal.getsignal(signal.SIGTERM)
    with Signals().caught() as signals:
        watch(work, lambda: asked.append(True), lambda: None, signals)
    assert signals.exit_code == 143
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_the_work_raises_is_raised() -> None:
    def work() -> None:
        raise StateError("no")

    with Signals().caught() as signals, pytest.raises(StateError):
        watch(work, lambda: None, lambda: None, signals)
    assert signals.exit_code == 0


def test_the_same_signal_sent_twice_at_once_is_one_signal() -> None:
    with Signals().caught() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
    assert signals.exit_code == 143


def test_a_second_signal_ends_the_process_at_once() -> None:
    # work that does not care about being interrupted
    code = (
        "import time; from millstream.cli.watch import *\n"
        "with Signals().caught() as signals:\n"
        "    print('ready', flush=True)\n"
        "    watch(lambda: time.sleep(60), lambda: print('asked', flush=True), lambda: None, signals)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "asked\n"
    time.sleep(0.6)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=300) == 130
    process.stdout.close()
