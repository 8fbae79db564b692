"""Write docs/conformance.md from the cases and the exclusion lists: `python conformance_report.py`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from conformance_cases import SUITES, Case, Exclusions, cases

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"

_INTRODUCTION = """\
# Conformance

`tests/conformance` runs window queries and row patterns from the test suites of other engines, with their inputs and
expected answers, and names the source of each. A case about streams runs as a continuous query: its rows are pushed in
time order, within the slack that the case's watermark allows. A stream without a watermark is ordered
by the query's ORDER BY. A case about stored rows runs on a stored table, which DuckDB answers.

Every case that is not listed below gives the expected rows. A listed case that starts to pass fails the tests until it
is removed from the list.
"""


def page() -> str:
    """The whole page."""
    excluded = Exclusions.load()
    every = cases()
    run = [case for case in every if case.id not in excluded.reason]
    lines = [
        _INTRODUCTION,
        "| suite | cases | pass as streams | pass on stored tables | listed below |",
        "|---|---|---|---|---|",
    ]
    lines += [_row(suite, [case for case in every if case.suite == suite], excluded) for suite in SUITES.values()]
    lines += [_row("all", every, excluded), ""]
    kinds = Counter(_kind(case) for case in run if not case.runs_on_tables)
    lines += ["## Streams", "", "| what | cases that pass |", "|---|---|"]
    lines += [f"| {kind} | {count} |" for kind, count in kinds.most_common()]
    passing = sum(kinds.values())
    reachable = passing + sum(excluded.reason[case] in excluded.in_reach for case in excluded.reason)
    names = " and ".join(f"“{_title(name).lower()}”" for name in excluded.meaning if name in excluded.in_reach)
    lines += [
        "",
        f"The cases listed under {names} are not supported yet, but possible on streams. Including them, it is",
    ]
    lines += [f"{passing} of {reachable}, {passing / reachable:.0%}.", "", "## What does not pass, and why", ""]
    lines += _listed(every, excluded)
    return "\n".join([*lines, *_row_patterns()])


_ROW_PATTERNS = """\
## Row patterns

`MATCH_RECOGNIZE`, and patterns in a `WINDOW` clause, from the same suites. Rows of a case with a watermark are pushed
in their original order, and the rows emitted before the input ends are compared.

| suite | cases | pass | listed below |
|---|---|---|---|"""


def _row_patterns() -> list[str]:
    excluded = Exclusions.load("match_exclusions.toml")
    every = cases("match_recognize.jsonl")
    lines = [_ROW_PATTERNS]
    for title in (*SUITES.values(), "all"):
        own = [case for case in every if title in (case.suite, "all")]
        listed = sum(case.id in excluded.reason for case in own)
        lines.append(f"| {title} | {len(own)} | {len(own) - listed} | {listed} |")
    return [*lines, "", *_listed(every, excluded)]


def _listed(every: list[Case], excluded: Exclusions) -> list[str]:
    """The cases that do not pass, by reason."""
    lines = []
    for name, meaning in excluded.meaning.items():
        own = [case for case in every if excluded.reason.get(case.id) == name]
        lines += [
            f"### {_title(name)} ({len(own)})",
            "",
            f"{meaning[0].upper()}{meaning[1:]}.",
            "",
        ]
        lines += [f"- `{case.id}`" for case in own]
        lines += [""]
    return lines


_JOINS = {
    "window_join": "join of windows",
    "interval_join": "join within a time bound",
    "watermark_join": "join of rows with equal times",
    "asof_join": "ASOF join",
    "temporal_join": "join with a stored table",
}


def _title(name: str) -> str:
    return name.replace("-", " ").capitalize()


def _row(title: str, own: list[Case], excluded: Exclusions) -> str:
    run = [case for case in own if case.id not in excluded.reason]
    tables = sum(case.runs_on_tables for case in run)
    return f"| {title} | {len(own)} | {len(run) - tables} | {tables} | {len(own) - len(run)} |"


def _kind(case: Case) -> str:
    features = case.data["features"]
    if "join" in features:
        return _JOINS[case.data["kind"]]
    windows = next((name for name in ("tumble", "hop", "cumulate", "session") if name in features), None)
    if windows is None:
        return "OVER" if "over" in features else "filter and projection"
    return f"OVER inside {windows.upper()}" if "over" in features and windows != "session" else windows.upper()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
