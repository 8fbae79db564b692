"""Random searches for row patterns, and rows for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from kernel_scenarios import Scenario

from millstream.errors import UnsupportedError
from millstream.kernels.batch import FOREVER, Batch
from millstream.kernels.patterns.kernel import machine_for
from millstream.kernels.patterns.spec import MatchSpec
from millstream.plan.patterns.search import Search
from tests.support.pattern_strategies import COLUMNS, Arrival, arrivals, searches


def is_supported(search: Search) -> bool:
    """Whether a machine runs it: not if more than single rows are repeated without giving back."""
    try:
        machine_for(search)
    except UnsupportedError:
        return False
    return True


def events_of(rows: list[Arrival]) -> Batch:
    """All rows in one batch."""
    batch = pa.RecordBatch.from_pylist([row for _, row in rows], schema=COLUMNS.arrow)
    return Batch(batch, np.array([time for time, _ in rows], dtype=np.int64), np.arange(len(rows)), FOREVER)


@st.composite
def match_scenarios(draw: st.DrawFn) -> Scenario:
    search = draw(searches().filter(is_supported))
    keys = draw(st.sampled_from([("k",), ("k",), ("k", "s"), ()]))
    return Scenario(MatchSpec(COLUMNS, replace(search, keys=keys)), (events_of(draw(arrivals(max_size=20))),))


PATTERN_SCENARIOS: dict[str, st.SearchStrategy[Scenario]] = {"MatchSpec": match_scenarios()}
