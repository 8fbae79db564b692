"""Row patterns of other engines' test suites: each passes, or is listed with the reason why not."""

from __future__ import annotations

import pytest
from conformance_cases import HERE, Case, Exclusions, cases
from match_runs import outcome

CASES = cases("match_recognize.jsonl")
EXCLUDED = Exclusions.load("match_exclusions.toml")
RUN = [case for case in CASES if case.id not in EXCLUDED.reason]


@pytest.mark.parametrize("case", RUN, ids=lambda case: case.id)
def test_case(case: Case) -> None:
    wrong = outcome(case.id)
    assert wrong is None, wrong


@pytest.mark.parametrize("case", [case for case in CASES if case.id in EXCLUDED.reason], ids=lambda case: case.id)
def test_an_excluded_case_does_not_pass(case: Case) -> None:
    assert outcome(case.id) is not None, f"it passes: take it off the list ({EXCLUDED.reason[case.id]})"


def test_share_of_passing() -> None:
    passing = sum(outcome(case.id) is None for case in CASES if case.data["deterministic"])
    assert passing >= 0.95 * len(CASES), f"{passing} of {len(CASES)}"


def test_the_list_names_cases() -> None:
    assert set(EXCLUDED.reason) <= {case.id for case in CASES}
    assert all(case.data["deterministic"] for case in RUN)


def test_every_source_is_named() -> None:
    named = (HERE / "README.md").read_text(encoding="utf-8")
    for case in CASES:
        source = case.data["source"]
        assert f"| {source['repo']} | {source['path']} | {source['commit']} | {source['license']} |" in named
