"""Spark's Python workers on this machine: all are forked from one process that has imported what they need.

Spark's own daemon imports nothing before it forks, so that each worker takes a second to import the same modules, and
has them in memory a second time; and another second before it runs machine code. Its worry is threads that a fork would
lose: what is imported here starts none but the allocators' own, which know about forks.
"""

from __future__ import annotations

from typing import Any

import pandas  # noqa: F401
import pyarrow.compute
import pyarrow.parquet  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark import daemon

import millstream.hosts.spark.file_state
import millstream.hosts.spark.job.clock
import millstream.hosts.spark.job.levels
import millstream.hosts.spark.job.outlets
import millstream.hosts.spark.one_value
import millstream.hosts.spark.stateful  # noqa: F401
from millstream.kernels import jit

_work = daemon.worker


def work(connection: Any, authenticated: bool) -> int:
    """What a worker does until its connection ends. Spark closes those of workers that had nothing to do for a minute;
    what Spark's own daemon then cannot send would come to standard error as a traceback."""
    try:
        return int(_work(connection, authenticated))
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    jit.make_ready()
    daemon.worker = work
    daemon.manager()
