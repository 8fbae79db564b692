"""Ways to run the command line: in this process for speed, as a process where signals and streams matter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_tools import Invoke
from typer.testing import CliRunner, Result

from millstream.cli.main import app


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Run a command in this process, in an empty directory."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object, input: str | None = None) -> Result:
        return CliRunner().invoke(app, [str(argument) for argument in arguments], input=input)

    return call


@pytest.fixture
def spawn(tmp_path: Path) -> Any:
    """Start a command as a process in an empty directory; what is still running at the end of the test is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object, env: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "millstream.cli", *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, **(env or {})},
            text=True,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
