"""Spark's Python workers on this machine: all are forked from one process that has imported what they need.

Spark's own daemon imports nothing before it forks, so that each worker takes a second to import the same modules, and
has them in memory a second time. Its worry is threads that a fork would lose: what is imported here starts none but
the allocators' own, which know about forks.
"""

from __future__ import annotations

import pandas  # noqa: F401
import pyarrow.compute  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import millstream.hosts.spark.one_value
import millstream.hosts.spark.stateful  # noqa: F401

if __name__ == "__main__":
    manager()
