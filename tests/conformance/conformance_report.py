"""The page on conformance, written from the cases and the lists of exclusions: `python conformance_report.py`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from conformance_cases import SUITES, Case, Exclusions, cases

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"

_INTRODUCTION = """\
# Conformance

Window queries and row patterns with their inputs and answers from the test suites of other engines, taken as data, run
here: in `tests/conformance`, which also says where each comes from. What is about streams runs as a standing query, its
rows pushed in order of time, within the slack that the case's watermark allows; a stream without a watermark is ordered
by what the query orders by. What is about stored rows runs on a stored table, which DuckDB answers.

Every case that is not listed below gives the expected rows; a listed one that begins to pass fails the tests until it
is taken off the list.
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
    lines += [_row("together", every, excluded), ""]
    kinds = Counter(_kind(case) for case in run if not case.runs_on_tables)
    lines += ["## Streams", "", "| what | cases that pass |", "|---|---|"]
    lines += [f"| {kind} | {count} |" for kind, count in kinds.most_common()]
    passing = sum(kinds.values())
    reachable = passing + sum(excluded.reason[case] in excluded.in_reach for case in excluded.reason)
    names = " and ".join(f"“{_title(name).lower()}”" for name in excluded.meaning if name in excluded.in_reach)
    lines += ["", f"Streams could answer what is listed under {names} too, were they built so: with these it is"]
    lines += [f"{passing} of {reachable}, {passing / reachable:.0%}.", "", "## What does not pass, and why", ""]
    lines += _listed(every, excluded)
    return "\n".join([*lines, *_row_patterns()])


_ROW_PATTERNS = """\
## Row patterns

`MATCH_RECOGNIZE`, and patterns in a `WINDOW` clause, from the same suites. Rows of a case with a watermark are pushed
as they come there, and what is compared is what is certain before the input ends.

| suite | cases | pass | listed below |
|---|---|---|---|"""


def _row_patterns() -> list[str]:
    excluded = Exclusions.load("match_exclusions.toml")
    every = cases("match_recognize.jsonl")
    lines = [_ROW_PATTERNS]
    for title in (*SUITES.values(), "together"):
        own = [case for case in every if title in (case.suite, "together")]
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
    "interval_join": "join of rows near in time",
    "watermark_join": "join of rows of one instant",
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
        return "OVER" if "over" in features else "rows as they are"
    return f"OVER inside {windows.upper()}" if "over" in features and windows != "session" else windows.upper()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
