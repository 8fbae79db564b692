"""A real cluster on loopback: a standalone master and two workers, and a job whose package is shipped as a zip."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from java_processes import environment, free_port, running
from spark_cases import SECOND, random_trades, trades

import millstream
from quick_java import QUICK, spark_home

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a master with two workers, one core each."""
    folder, port = tmp_path_factory.mktemp("cluster"), free_port()
    start = str(spark_home() / "bin" / "spark-class")
    env = environment(SPARK_DAEMON_MEMORY="256m", SPARK_LOG_DIR=str(folder))
    address = f"spark://127.0.0.1:{port}"
    package = "org.apache.spark.deploy"
    master = [start, f"{package}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    worker = [start, f"{package}.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "-c", "1", "-m", "700m"]
    with ExitStack() as stack:
        stack.enter_context(running(master, folder / "master.log", "I have been elected leader", env))
        for number in (1, 2):
            command = [*worker, "--work-dir", str(folder / f"worker{number}"), address]
            stack.enter_context(running(command, folder / f"worker{number}.log", "Successfully registered", env))
        yield address


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as --py-files takes it."""
    source = Path(str(millstream.__file__)).parent
    target = tmp_path_factory.mktemp("package") / "millstream.zip"
    with ZipFile(target, "w") as archive:
        for path in sorted(source.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                archive.write(path, path.relative_to(source.parent))
    return target


def test_a_job_with_the_package_as_a_zip(cluster: str, package: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = random_trades(600, 3, disorder=SECOND)
    for number in range(3):
        table = pa.Table.from_batches([trades(rows[number * 200 : (number + 1) * 200])])
        pq.write_table(table, tmp_path / "in" / f"{number}.parquet")
    conf = {
        "spark.executor.extraJavaOptions": QUICK,
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.millstream.filesPerTrigger": "2",
        "spark.executorEnv.MILLSTREAM_JIT_THRESHOLD": "50",
        "spark.ui.enabled": "false",
    }
    command = [str(spark_home() / "bin" / "spark-submit"), "--master", cluster, "--py-files", str(package)]
    for name, value in conf.items():
        command += ["--conf", f"{name}={value}"]
    command += [str(Path(__file__).with_name("cluster_job.py")), str(tmp_path)]
    done = subprocess.run(
        command, env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-6000:]
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["driver"] == f"{package}/millstream/__init__.py"
    executors = set()
    for file, _ in told["workers"]:
        place, found, rest = file.partition("/millstream.zip/")
        assert found and rest == "millstream/__init__.py", file
        executors.add(place)
    assert len(executors) == 2, "one executor did all the work"
    assert any(compiled for _, compiled in told["workers"])
    assert told["bounded"] == told["expected"] and len(told["expected"]) == len(rows)
    streamed = {json.dumps(row) for row in told["streamed"]}
    assert len(streamed) == len(told["streamed"]) > 500
    assert streamed < {json.dumps(row) for row in told["expected"]}
