"""The golden files, the configurations they run under, and how a run is judged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.testing.slt import Script, SltConfig, SltError, load_configs, parse, run
from tiers import QUICK, THOROUGH

HERE = Path(__file__).parent
CONFIGS = load_configs(HERE / "configs.toml")
SCRIPTS = [parse(path) for path in sorted(HERE.rglob("*.slt"))]


_SHARES = {"plain": 0, "restarts": 1, "spark-streaming": 0}
"""Configurations that the quick run has for every second file, from this one on."""


def name_of(script: Script) -> str:
    return script.path.relative_to(HERE).with_suffix("").as_posix()


def cases(engine: str) -> Iterator[object]:
    """Each file under each configuration of an engine that it runs under."""
    for config in CONFIGS:
        if config.engine != engine or (config.name == "jit-thorough" and not THOROUGH):
            continue
        marks = [pytest.mark.spark] if engine == "spark" else []
        scripts = [script for script in SCRIPTS if config.runs(script)]
        if config.name in _SHARES and QUICK:
            scripts = scripts[_SHARES[config.name] :: 2]
        for script in scripts:
            yield pytest.param(script, config, id=f"{name_of(script)}-{config.name}", marks=marks)


def play(script: Script, config: SltConfig) -> None:
    """Run a file; what is marked as a gap must still be one."""
    try:
        run(script, config)
    except Exception as error:
        judge(script, config, error)
    else:
        judge(script, config, None)


def judge(script: Script, config: SltConfig, error: Exception | None) -> None:
    """Whether a run may have ended so."""
    gap = config.gap(script)
    if gap is None or isinstance(error, SltError):
        if error is not None:
            raise error
        return
    if error is None:
        pytest.fail(f"this runs on {config.name} now, remove the marker: notyet … {gap!r}")
    pytest.xfail(gap)
