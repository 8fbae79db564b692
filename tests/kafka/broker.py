"""A real Kafka broker for tests: one node in KRaft mode on loopback, made from Maven artefacts."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VERSION = "4.3.1"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "millstream" / f"kafka-{VERSION}"
_DOWNLOAD_SECONDS = 300
_START_SECONDS = 300
_JAVA = [
    "java", "-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
]  # fmt: skip
_POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>millstream</groupId><artifactId>broker</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={logs}
num.partitions=1
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.segment.bytes=67108864
log.cleaner.enable=false
# messages keep their place whatever time they tell
log.retention.ms=-1
"""


class Unavailable(Exception):
    """Why there is no broker on this machine."""


def artefacts() -> Path:
    """The directory with the broker's jars, fetched by Maven once and kept."""
    if any(CACHE.glob("kafka_2.13-*.jar")):
        return CACHE
    if shutil.which("mvn") is None:
        raise Unavailable(f"a Kafka broker needs mvn to fetch org.apache.kafka:kafka_2.13:{VERSION}, or {CACHE}")
    CACHE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE.parent) as scratch:
        (Path(scratch) / "pom.xml").write_text(_POM)
        command = [
            "mvn",
            "-q",
            "-B",
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            "-DoutputDirectory=jars",
        ]
        try:
            done = subprocess.run(
                command, cwd=scratch, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"mvn did not fetch kafka_2.13:{VERSION} within {_DOWNLOAD_SECONDS} s") from None
        if done.returncode != 0:
            raise Unavailable(f"mvn cannot fetch kafka_2.13:{VERSION}: {(done.stdout + done.stderr).strip()[:600]}")
        try:
            (Path(scratch) / "jars").rename(CACHE)
        except OSError:
            # Another test process was faster; its jars are as good.
            if not any(CACHE.glob("kafka_2.13-*.jar")):
                raise
    return CACHE


class Broker:
    """A running broker; `address` is where clients find it."""

    def __init__(self, home: Path, jars: Path) -> None:
        self._home = home
        self._jars = jars
        self._process: subprocess.Popen[bytes] | None = None
        self.port, controller = _free_ports(2)
        self.address = f"127.0.0.1:{self.port}"
        self._config = home / "server.properties"
        self._config.write_text(_PROPERTIES.format(port=self.port, controller=controller, logs=home / "logs"))
        cluster = uuid.uuid4().hex[:22]
        self._run("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._config))

    def start(self) -> None:
        """Start it, also after `stop`: the data is kept."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*_JAVA, "-cp", f"{self._jars}/*", "kafka.Kafka", str(self._config)], stdout=log, stderr=log
            )
        until = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise Unavailable(f"the Kafka broker did not start: {self._log.read_text()[-2000:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        """End it at once; nothing of a test's data is worth a slow goodbye."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def _log(self) -> Path:
        return self._home / "broker.log"

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                pass
            admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
            return bool(admin.list_topics(timeout=2).brokers)
        except (OSError, KafkaException):
            return False

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(
            [*_JAVA, "-cp", f"{self._jars}/*", *arguments], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise Unavailable(f"{arguments[0]} failed: {(done.stdout + done.stderr)[-600:]}")


@contextmanager
def running_broker() -> Iterator[Broker]:
    """A broker with its data in a temporary directory, gone afterwards."""
    if shutil.which("java") is None:
        raise Unavailable("a Kafka broker needs java")
    jars = artefacts()
    home = Path(tempfile.mkdtemp(prefix="millstream-kafka-"))
    broker = Broker(home, jars)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
        shutil.rmtree(home, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(server.getsockname()[1]) for server in sockets]
    for server in sockets:
        server.close()
    return ports
