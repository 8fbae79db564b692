"""How thorough a run of the tests is: MILLSTREAM_TIER is quick, usual (if nothing is said) or thorough."""

from __future__ import annotations

import os

_TIERS = {"quick": 0.25, "usual": 1.0, "thorough": 20.0}
_FACTOR = _TIERS[os.environ.get("MILLSTREAM_TIER", "usual")]


def examples(usual: int) -> int:
    """How many random examples a property is tested on, where so many are usual."""
    return max(2, round(usual * _FACTOR))
