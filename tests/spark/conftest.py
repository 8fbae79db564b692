"""One Spark session for all tests here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from millstream.hosts.spark.session import get_session

    yield get_session("local[2]")
