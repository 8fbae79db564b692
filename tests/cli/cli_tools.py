"""What the tests of the command line share."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from typer.testing import Result

ROOT = Path(__file__).parents[2]
Invoke = Callable[..., Result]
Spawn = Callable[..., "subprocess.Popen[str]"]
