"""Spark's own servers on loopback, started and stopped by tests."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from quick_java import COMPILER, QUICK, spark_home

START_SECONDS = 300
"""Enough for a machine that does ten other things."""


def environment(**more: str) -> dict[str, str]:
    """What Spark's processes see: this interpreter, loopback only, and no path to packages beside it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "SPARK_"))}
    own = {"SPARK_HOME": str(spark_home()), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
    own |= {"SPARK_SUBMIT_OPTS": QUICK, "SPARK_DAEMON_JAVA_OPTS": QUICK, "SPARK_LAUNCHER_OPTS": COMPILER}
    return {**kept, **own, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, **more}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def running(command: list[str], log: Path, until: str, env: Mapping[str, str]) -> Iterator[re.Match[str]]:
    """A process that has said `until`, with all of its children gone afterwards."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env=env, cwd=log.parent, start_new_session=True
        )
    try:
        end = time.monotonic() + START_SECONDS
        while (found := re.search(until, log.read_text(errors="replace"))) is None:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{command[0]} did not start:\n{log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.1)
        yield found
    finally:
        # a group of its own: the Python workers of a server go with it
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
