"""Programs to test engines with: the papers' aggregates, random ones, a reference, and what compares them."""

from __future__ import annotations

from millstream.plan.programs.builder import Builder, call
from tests.support.paper_programs import (
    BASE_PROGRAMS,
    WINDOW_PROGRAMS,
    algebraic_max,
    bidder_wcount,
    cum_avg,
    decay_online_avg,
    find_pattern,
    item_alarm,
    myavg,
    naive_avg,
    tumble_avg,
    window_avg,
    window_max,
)
from tests.support.program_reference import run_reference
from tests.support.program_runs import run_engine, same_results
from tests.support.program_strategies import modes_for, programs, tuples_for

__all__ = [
    "BASE_PROGRAMS",
    "WINDOW_PROGRAMS",
    "Builder",
    "algebraic_max",
    "bidder_wcount",
    "call",
    "cum_avg",
    "decay_online_avg",
    "find_pattern",
    "item_alarm",
    "modes_for",
    "myavg",
    "naive_avg",
    "programs",
    "run_engine",
    "run_reference",
    "same_results",
    "tumble_avg",
    "tuples_for",
    "window_avg",
    "window_max",
]
