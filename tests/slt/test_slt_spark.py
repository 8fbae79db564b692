"""Every golden file on Spark. They stand apart so that test runs can do both kinds at the same time."""

from __future__ import annotations

import pytest
from golden_cases import cases, play

from millstream.testing.slt import Script, SltConfig


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("script", "config"), cases("spark"))
def test_slt_on_spark(script: Script, config: SltConfig) -> None:
    play(script, config)
