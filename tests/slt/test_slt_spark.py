"""Every golden file on Spark. They stand apart so that test runs can do both kinds at the same time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from golden_cases import CONFIGS, cases, judge, play

from millstream.testing.slt import Script, SltConfig
from tests.support.golden_together import run_together

BOUNDED = next(config for config in CONFIGS if config.host == "spark")


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, spark: Any) -> dict[Path, Exception | None]:
    """What was wrong with each file that was chosen: all of them run in a few jobs."""
    chosen = [
        item.callspec.params["script"]
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.function is test_slt_on_spark
        and item.callspec.params["config"] is BOUNDED
    ]
    return run_together([script for script in chosen if BOUNDED.gap(script) is None], BOUNDED)


@pytest.mark.parametrize(("script", "config"), cases("spark"))
def test_slt_on_spark(script: Script, config: SltConfig, outcomes: dict[Path, Exception | None]) -> None:
    if config is BOUNDED and script.path in outcomes:
        judge(script, config, outcomes[script.path])
    else:
        play(script, config)
