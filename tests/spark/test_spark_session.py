"""Starting Spark, or saying clearly why it does not start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

START = "from millstream.hosts.spark.session import get_session; get_session('local[1]')"


def start_in(environment: dict[str, str]) -> str:
    inherited = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PATH")}
    code = f"try:\n    {START}\nexcept Exception as error:\n    print(type(error).__name__, error)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**inherited, **environment}, capture_output=True, text=True, check=True
    )
    assert "Traceback" not in done.stderr
    return done.stdout


def test_without_java_there_is_a_hint(tmp_path: Path) -> None:
    said = start_in({"PATH": str(tmp_path)})
    assert said.startswith("EngineError the Spark engine needs Java")
    assert "install Java 17" in said and "ms.connect()" in said


def test_a_wrong_java_home_is_named(tmp_path: Path) -> None:
    assert f"JAVA_HOME is {tmp_path}" in start_in({"PATH": os.environ["PATH"], "JAVA_HOME": str(tmp_path)})


def test_a_java_that_dies_is_told_with_its_words(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'too old for this' >&2\nexit 1\n")
    java.chmod(0o755)
    said = start_in({"PATH": os.environ["PATH"], "JAVA_HOME": str(tmp_path)})
    assert said.startswith("EngineError Spark did not start") and "too old for this" in said


def test_without_pyspark_there_is_a_hint() -> None:
    code = f"import sys; sys.modules['pyspark'] = None\ntry:\n    {START}\nexcept Exception as error:\n    print(error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "needs pyspark" in done.stdout and "pip install" in done.stdout


def test_importing_the_host_does_not_import_pyspark() -> None:
    code = "import sys, millstream.spark, millstream.hosts.spark.host; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


_IDLE = """
import socket, sys
from millstream.hosts.spark import workers
sys.argv[1:] = ["pyspark.worker"]
spark, own = socket.socketpair()
spark.close()
print(workers.work(own, True))
"""


@pytest.mark.spark
def test_a_worker_that_spark_lets_go_says_nothing() -> None:
    told = {**os.environ, "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1"}  # as Spark does
    done = subprocess.run([sys.executable, "-c", _IDLE], env=told, capture_output=True, text=True, timeout=120)
    # what its daemon takes for a worker that is done
    said = "1\n" if tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 1) else "-1\n"
    assert (done.stdout, done.returncode) == (said, 0)
    assert "BrokenPipeError" not in done.stderr, done.stderr


@pytest.mark.spark
def test_the_session_is_set_up_and_reused(spark: Any) -> None:
    from millstream.hosts.spark.session import get_session

    assert get_session() is spark
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == str(spark.sparkContext.defaultParallelism)
    assert spark.sparkContext.pythonExec == sys.executable
