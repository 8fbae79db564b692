"""The cases as they are stored, and the list of those that are not expected to pass."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SUITES = {"flink": "Apache Flink", "risingwave": "RisingWave", "trino": "Trino"}


@dataclass(frozen=True)
class Case:
    """A query, its inputs and what another engine answers."""

    id: str
    data: dict[str, Any]

    @property
    def dialect(self) -> str:
        return str(self.data["dialect"])

    @property
    def suite(self) -> str:
        return SUITES[self.dialect]

    @property
    def inputs(self) -> list[dict[str, Any]]:
        return list(self.data["inputs"])

    @property
    def has_window_table(self) -> bool:
        return not {"tumble", "hop", "cumulate", "session"}.isdisjoint(self.data["features"])

    @property
    def runs_on_tables(self) -> bool:
        """Whether the question is about stored rows: only then is a table, and no stream, asked."""
        return self.data["mode"] == "batch" and not self.has_window_table

    @property
    def is_final_when_closed(self) -> bool:
        """Whether the answer is what was final when the last row had come, rather than at the end of the input."""
        return "emit_on_window_close" in self.data["features"]

    @property
    def view(self) -> str:
        """The statement that runs while rows arrive."""
        views = self.data.get("views")
        return str(views[0]["sql"] if views else self.data["query"])

    @property
    def view_names(self) -> list[str]:
        """What its result is called; a view over a view gives the same rows."""
        own = [self.data["view_name"]] if self.data.get("view_name") else []
        return [str(view["name"]) for view in self.data.get("views") or []] or own

    @property
    def only_inserts(self) -> bool:
        """Whether a view is asked over rows that come and stay."""
        steps = self.data.get("steps") or []
        return bool(self.view_names) and all(step["op"] in ("create_table", "create_view", "insert") for step in steps)

    @property
    def expected_rows(self) -> list[list[Any]]:
        expected = self.data["expected"]
        return list(expected.get("final_rows_if_no_upsert") or expected["rows"])

    @property
    def expects_error(self) -> bool:
        return "expected_error" in self.data


def cases(file: str = "windows.jsonl") -> list[Case]:
    """All cases in the order of the file."""
    lines = (HERE / file).read_text(encoding="utf-8").splitlines()
    return [Case(data["id"], data) for data in map(json.loads, lines)]


@dataclass(frozen=True)
class Exclusions:
    """Why cases do not pass: what each class of reasons means, which of them streams could answer, and the class of
    each case."""

    meaning: dict[str, str]
    in_reach: frozenset[str]
    reason: dict[str, str]

    @staticmethod
    def load(file: str = "exclusions.toml") -> Exclusions:
        stored = tomllib.loads((HERE / file).read_text(encoding="utf-8"))
        reason = {case: name for name, entry in stored.items() for case in entry["cases"]}
        in_reach = frozenset(name for name, entry in stored.items() if entry.get("in_reach"))
        return Exclusions({name: entry["meaning"] for name, entry in stored.items()}, in_reach, reason)
