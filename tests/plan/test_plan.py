"""Golden plans: one file per rule says what the rule does and where it keeps its hands off."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.rules import RULE_NAMES
from millstream.testing.slt import Mismatch
from tests.support.plans import ARROW, UNCHANGED, check, complete, read

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*.plan"))


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in FILES])
def test_plan(path: Path) -> None:
    check(path)


@pytest.mark.parametrize("rule", RULE_NAMES)
def test_every_rule_has_cases_for_and_against(rule: str) -> None:
    cases = [record.expected or () for record in read(HERE / f"{rule}.plan").records if record.verb == "case"]
    changed = [case for case in cases if case[-1] != UNCHANGED]
    assert all(ARROW in case for case in cases)
    assert changed
    assert len(changed) < len(cases)


def test_every_file_is_of_a_rule() -> None:
    assert {path.stem for path in FILES} == {*RULE_NAMES, "pipeline"}


def test_a_wrong_plan_fails_and_complete_mends_it(tmp_path: Path) -> None:
    path = tmp_path / "eliminate_filter.plan"
    text = "setup\nCREATE STREAM s (v INT)\n\ncase\nSELECT v FROM s WHERE TRUE\n----\nProject v\n"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(Mismatch, match=r"eliminate_filter\.plan:4"):
        check(path)
    assert complete(path)
    assert path.read_text(encoding="utf-8") == text + "└ Filter TRUE\n  └ Scan s v\n====\nProject v\n└ Scan s v\n"
    check(path)
