"""Help, wrong usage and exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_tools import Invoke, Spawn

import millstream

HEAVY = ["pyarrow", "numpy", "numba", "duckdb", "sqlglot", "pyspark", "pandas", "prompt_toolkit"]


def test_help_lists_the_commands(invoke: Invoke) -> None:
    shown = invoke("--help")
    assert shown.exit_code == 0
    for word in ("run", "shell", "explain", "generate", "bench", "version", "Exit codes"):
        assert word in shown.stdout


@pytest.mark.parametrize("command", ["run", "shell", "explain", "generate", "bench"])
def test_every_command_shows_examples(invoke: Invoke, command: str) -> None:
    shown = invoke(command, "--help")
    assert shown.exit_code == 0
    assert f"millstream {command}" in shown.stdout.split("Examples")[1]


def test_help_is_quick() -> None:
    code = f"import sys; import millstream.cli.main; print([m for m in {HEAVY} if m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"
    before = os.times()
    subprocess.run([sys.executable, "-m", "millstream.cli", "--help"], capture_output=True, check=True)
    after = os.times()
    # of processor time: the machine may be busy with other tests
    assert after.children_user + after.children_system - before.children_user - before.children_system < 1.5


def test_bench_measures_every_query(invoke: Invoke) -> None:
    shown = invoke("bench", "--rows", "3000", "--repeat", "1")
    assert shown.exit_code == 0
    lines = [line.split("  ") for line in shown.stdout.splitlines() if "rows out" not in line and "  " in line.strip()]
    emitted = {line[0].strip(): [cell.strip() for cell in line[1:] if cell.strip()] for line in lines}
    assert emitted["average of the last 10 seconds, for each row"][0] == "3,000"
    assert len(emitted) == 5 and all(cells[0] != "0" and cells[1] != "0" for cells in emitted.values())


def test_version(invoke: Invoke) -> None:
    assert invoke("--version").stdout == f"millstream {millstream.__version__}\n"
    shown = invoke("version")
    assert shown.exit_code == 0
    assert "pyarrow" in shown.stdout
    assert "java" in shown.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["grind"],
        ["run"],
        ["run", "none.sql", "-e", "embedded"],
        ["run", "p.sql", "--engine", "flink"],
        ["run", "p.sql", "--limit", "-1"],
        ["run", "p.sql", "-e", "embedded", "--master", "local"],
        ["run", "p.sql", "-e", "embedded", "--streaming"],
        ["run", "p.sql", "-e", "embedded", "--conf", "spark.ui.enabled=false"],
        ["run", "p.sql", "-e", "embedded", "--var", "novalue"],
        ["explain", "p.sql", "--rules", "--verbose"],
        ["explain", "none.sql"],
        ["generate", "nexmark", "--out", "x"],
        ["generate", "weather", "--rows", "1", "--out", "x.csv"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_code_2(invoke: Invoke, tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "p.sql").write_text("SHOW STREAMS")
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr


def test_without_java_the_spark_engine_is_missing(spawn: Spawn, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    (tmp_path / "p.sql").write_text("SHOW STREAMS")
    process = spawn("run", "p.sql", env={"JAVA_HOME": str(tmp_path / "nothing")})
    out, err = process.communicate(timeout=300)
    assert process.returncode == 3
    assert out == ""
    assert "needs Java" in err
    assert "--engine embedded" in err
    assert "Traceback" not in err


def test_without_pyspark_the_spark_engine_is_missing(spawn: Spawn, tmp_path: Path) -> None:
    (tmp_path / "p.sql").write_text("SHOW STREAMS")
    (tmp_path / "broken" / "pyspark").mkdir(parents=True)
    (tmp_path / "broken" / "pyspark" / "__init__.py").write_text("raise ImportError('no pyspark')")
    process = spawn("run", "p.sql", env={"PYTHONPATH": str(tmp_path / "broken")})
    _, err = process.communicate(timeout=300)
    assert process.returncode == 3
    assert "pip install 'millstream[spark]'" in err
    assert "--engine embedded" in err
    assert "Traceback" not in err
