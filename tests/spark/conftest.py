"""One Spark session for all tests here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from millstream.hosts.spark.session import get_session

    # a JVM that lives for seconds spends most of its time compiling; the quick compiler is enough here
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    yield get_session("local[2]", {"spark.driver.extraJavaOptions": options})
