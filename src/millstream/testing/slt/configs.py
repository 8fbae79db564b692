"""The ways in which every golden file is run."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from millstream.records import dataclass
from millstream.testing.slt.records import Script


@dataclass(frozen=True)
class SltConfig:
    """A host and its settings.

    `compare`: every step's rows, or each query's rows over the whole file. `explains`: EXPLAIN prints what the files
    say, which it does only under default settings. `chosen`: runs only files that ask for it with `# also:`.
    """

    name: str = "default"
    host: Literal["embedded", "spark", "spark-streaming"] = "embedded"
    settings: Mapping[str, Any] = field(default_factory=dict)
    compare: Literal["steps", "total"] = "steps"
    restarts: bool = False
    explains: bool = True
    chosen: bool = False

    @property
    def engine(self) -> str:
        return "embedded" if self.host == "embedded" else "spark"

    def runs(self, script: Script) -> bool:
        """Whether a file runs at all under this configuration."""
        if self.chosen and self.name not in script.also:
            return False
        return all(self.concerns(m.host) for m in script.markers if m.verb == "only")

    def gap(self, script: Script) -> str | None:
        """Why the file is known to fail here, if it is."""
        reasons = [m.reason for m in script.markers if m.verb == "notyet" and self.concerns(m.host)]
        return "; ".join(reasons) or None

    def concerns(self, host: str) -> bool:
        """Whether a marker for `host` means this configuration."""
        return host in (self.name, self.host, self.engine)


DEFAULT = SltConfig()


def load_configs(path: Path) -> list[SltConfig]:
    """The configurations of a TOML file: one table each, named by its key."""
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    return [SltConfig(name=name, **table) for name, table in tables.items()]
