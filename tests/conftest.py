"""All tests share a Spark session, and start Java the same way also where they run programs that start it."""

from __future__ import annotations

import gc
import os
from collections import Counter
from typing import Any

import pytest

import tiers  # noqa: F401  (before any test: it says which examples are drawn)
from quick_java import PLAIN, environment

os.environ.update(environment())
# programs that tests start keep what Python compiled: 0.6 s to the first row instead of 1.7
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.fixture(scope="session")
def spark() -> Any:
    pytest.importorskip("pyspark")
    from millstream.hosts.spark.session import get_session

    return get_session("local[2]", PLAIN)


def pytest_collection_finish() -> None:
    """What was collected lives as long as the process: no need to look through it for garbage again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def pytest_unconfigure() -> None:
    gc.unfreeze()


def _unit(nodeid: str) -> str:
    """What one worker runs without a break: a file, or all that share a broker."""
    file = nodeid.split("::")[0]
    folder = file.rpartition("/")[0]
    return folder if folder.endswith("tests/kafka") else file


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with tests on Spark and other slow ones first, then those with most tests: what is left at the end is
    short, so that workers who take file after file end together."""
    sizes = Counter(_unit(item.nodeid) for item in items)
    slow = {_unit(item.nodeid) for item in items if item.get_closest_marker("spark") or item.get_closest_marker("slow")}
    items.sort(key=lambda item: (_unit(item.nodeid) not in slow, -sizes[_unit(item.nodeid)], _unit(item.nodeid)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Units(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _unit(nodeid)

    return Units(config, log)
