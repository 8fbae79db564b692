"""How thorough a run of the tests is: MILLSTREAM_TIER is quick, usual (if nothing is said) or thorough."""

from __future__ import annotations

import os

from hypothesis import settings

_TIERS = {"quick": 0.25, "usual": 0.5, "thorough": 20.0}
_TIER = os.environ.get("MILLSTREAM_TIER", "usual")
_FACTOR = _TIERS[_TIER]

# The same examples in every run, so that a run that passed passes again; a thorough one looks for others.
settings.register_profile("millstream", derandomize=_TIER != "thorough")
settings.load_profile("millstream")


THOROUGH = _TIER == "thorough"


def examples(count: int) -> int:
    """How many random examples a property is tested on: half as many as it names, twenty times as many if thorough."""
    return max(2, round(count * _FACTOR))
