"""The process that Spark forks its Python workers from, with what they need already imported."""

from __future__ import annotations

import pandas  # noqa: F401
import pyarrow.compute
import pyspark.sql.streaming
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import millstream.hosts.spark.arrive
import millstream.hosts.spark.stateful
import millstream.hosts.spark.steps
import millstream.kernels.keys  # noqa: F401

if __name__ == "__main__":
    manager()
