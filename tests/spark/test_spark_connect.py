"""DataFrames of Millstream's in PySpark programs, on a classic session and on one of Spark Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from citizen import CHECKS
from java_processes import environment, free_port, running

from quick_java import PLAIN, spark_home

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What went wrong in a client of a Connect server, each in a process of its own."""
    for package in ("grpc", "grpc_status", "google.rpc", "zstandard"):
        pytest.importorskip(package, reason=f"Spark Connect needs the package {package}, which is not installed")
    folder, port = tmp_path_factory.mktemp("connect"), free_port()
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        **PLAIN,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    command = [str(spark_home() / "bin" / "spark-submit"), "--master", "local[2]", "--driver-memory", "1g"]
    for name, value in conf.items():
        command += ["--conf", f"{name}={value}"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    path = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
    with running(command, folder / "server.log", "Spark Connect server started at", environment(**path)):
        client = [sys.executable, str(Path(__file__).with_name("citizen.py")), f"sc://127.0.0.1:{port}"]
        done = subprocess.run(client, env=environment(**path), capture_output=True, text=True, timeout=900, check=False)
        if done.returncode != 0:
            pytest.fail(done.stdout + done.stderr)
        yield json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("check", CHECKS)
def test_classic(check: str, spark: Any, tmp_path: Path) -> None:
    CHECKS[check](spark, tmp_path)


@pytest.mark.parametrize("check", CHECKS)
def test_connect(check: str, failures: dict[str, str]) -> None:
    assert check not in failures, failures[check]
