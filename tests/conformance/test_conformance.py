"""Window queries of other engines' test suites: each passes, or is listed with the reason why not."""

from __future__ import annotations

import pytest
from conformance_cases import HERE, Case, Exclusions, cases
from conformance_report import PAGE, page
from conformance_runs import outcome

CASES = cases()
EXCLUDED = Exclusions.load()
RUN = [case for case in CASES if case.id not in EXCLUDED.reason]


@pytest.mark.parametrize("case", RUN, ids=lambda case: case.id)
def test_case(case: Case) -> None:
    wrong = outcome(case.id)
    assert wrong is None, wrong


@pytest.mark.parametrize("case", [case for case in CASES if case.id in EXCLUDED.reason], ids=lambda case: case.id)
def test_an_excluded_case_does_not_pass(case: Case) -> None:
    assert outcome(case.id) is not None, f"it passes: take it off the list ({EXCLUDED.reason[case.id]})"


@pytest.mark.parametrize("on_tables", [False, True], ids=["streams", "tables"])
def test_share_of_passing(on_tables: bool) -> None:
    own = [case for case in RUN if case.runs_on_tables == on_tables]
    passing = sum(outcome(case.id) is None for case in own)
    assert passing >= 0.95 * len(own), f"{passing} of {len(own)}"


def test_the_list_names_cases() -> None:
    assert set(EXCLUDED.reason) <= {case.id for case in CASES}
    assert all(case.data["deterministic"] for case in RUN)


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python tests/conformance/conformance_report.py"


def test_every_source_is_named() -> None:
    named = (HERE / "README.md").read_text(encoding="utf-8")
    for case in CASES:
        source = case.data["source"]
        assert f"| {source['repo']} | {source['path']} | {source['commit']} | {source['license']} |" in named
