"""How thorough a run of the tests is: MILLSTREAM_TIER is quick, usual (if nothing is said) or thorough."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

from hypothesis import settings

_Case = TypeVar("_Case")

_TIERS = {"quick": 0.25, "usual": 1.0, "thorough": 20.0}
_TIER = os.environ.get("MILLSTREAM_TIER", "usual")
_FACTOR = _TIERS[_TIER]

# The same examples in every run, so that a run that passed passes again; a thorough one looks for others.
settings.register_profile("millstream", derandomize=_TIER != "thorough")
settings.load_profile("millstream")


THOROUGH = _TIER == "thorough"
QUICK = _TIER == "quick"


def examples(count: int) -> int:
    """How many random examples a property is tested on: what it names, a quarter of that, or twenty times as many."""
    return max(2, round(count * _FACTOR))


def one_seed_each(cases: Iterable[_Case], seeds: int) -> list[tuple[_Case, int]]:
    """Each case with one of some seeds, in turn; with twenty times as many if thorough."""
    if THOROUGH:
        return [(case, seed) for case in cases for seed in range(20 * seeds)]
    return [(case, number % seeds) for number, case in enumerate(cases)]
