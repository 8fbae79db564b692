"""Many golden files on Spark at once: one job runs the queries of all of them."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from pathlib import Path

from millstream.testing.slt.configs import SltConfig
from millstream.testing.slt.player import FAILURE, Player
from millstream.testing.slt.records import Script
from millstream.testing.slt.runner import steps

FILES = 40
"""in a job"""


def run_together(scripts: Iterable[Script], config: SltConfig) -> dict[Path, Exception | None]:
    """Play files on Spark; by path, what was wrong with each.

    Files that expect failing queries run alone: a job that fails is divided until it is known which query fails.
    """
    alone: list[Script] = []
    others: list[Script] = []
    for script in scripts:
        (alone if _fails(script) else others).append(script)
    parts = [[script] for script in alone] + [others[first : first + FILES] for first in range(0, len(others), FILES)]
    return {path: error for part in parts for path, error in _run(part, config).items()}


def _fails(script: Script) -> bool:
    return any(FAILURE in line for record in script.records for line in record.expected or ())


def _run(scripts: list[Script], config: SltConfig) -> dict[Path, Exception | None]:
    from millstream.hosts.spark.host import SparkHost

    found: dict[Path, Exception | None] = {}
    ready: list[tuple[Script, Generator[Player, None, None], Player]] = []
    for script in scripts:
        found[script.path] = None
        play = steps(script, config)
        try:
            ready.append((script, play, next(play)))
        except StopIteration:
            pass
        except Exception as error:
            found[script.path] = error
    SparkHost.finish_together([player.host for _, _, player in ready])
    for script, play, _ in ready:
        try:
            for _ in play:
                pass
        except Exception as error:
            found[script.path] = error
    return found
