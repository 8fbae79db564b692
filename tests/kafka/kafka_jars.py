"""Spark's own Kafka source, fetched by Maven once and kept.

There is no release of it for the newest Spark; this mix of versions works there. Their dependencies are left out: Spark
brings those it needs, and others would get in their way.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

ARTEFACTS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.0"),
)
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "millstream" / "spark-kafka-4.2.0"
_DOWNLOAD_SECONDS = 120
_DEPENDENCY = """
    <dependency>
      <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>"""
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>millstream</groupId><artifactId>spark-kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{}
  </dependencies>
</project>
"""


class Unavailable(Exception):
    """Why the jars cannot be had on this machine."""


def spark_kafka_jars() -> list[Path]:
    """The jars for spark.jars."""
    if len(found := sorted(CACHE.glob("*.jar"))) >= len(ARTEFACTS):
        return found
    if shutil.which("mvn") is None:
        raise Unavailable(f"Spark's Kafka source needs mvn to fetch it, or {CACHE}")
    CACHE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE.parent) as scratch:
        Path(scratch, "pom.xml").write_text(_POM.format("".join(_DEPENDENCY.format(*one) for one in ARTEFACTS)))
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"]
        try:
            done = subprocess.run(
                command, cwd=scratch, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"mvn did not fetch Spark's Kafka source within {_DOWNLOAD_SECONDS} s") from None
        if done.returncode != 0:
            raise Unavailable(f"mvn cannot fetch Spark's Kafka source: {(done.stdout + done.stderr).strip()[:600]}")
        try:
            Path(scratch, "jars").rename(CACHE)
        except OSError:
            # another test process was faster; its jars are as good
            if not any(CACHE.glob("*.jar")):
                raise
    return sorted(CACHE.glob("*.jar"))
