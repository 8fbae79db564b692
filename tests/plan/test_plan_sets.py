"""Golden plans over sets of queries: one file for each of RUMOR's m-rules, which says what is shared with the rule of
ours that does it, and without.

    python -m tests.plan.test_plan_sets        writes the files again
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import millstream as ms
from millstream.plan.templates import SHARING

HERE = Path(__file__).parent / "sets"
FILES = sorted(HERE.glob("*.plan"))
ARROW, UNCHANGED = "====", "unchanged"
SETUP = """
    CREATE STREAM s (k INT, name VARCHAR, v DOUBLE, t INT) ORDER BY t;
    CREATE STREAM r (k INT, w INT, t INT) ORDER BY t
"""


def shown(kind: str, texts: list[str], off: str) -> str:
    """What runs for queries: the plan of a set, or what queries of `sql()` share, a rule left out."""
    with ms.connect() as db:
        db.execute(SETUP + (f"; SET disable_rule = '{off}'" if off else ""))
        if kind == "queries":
            for text in texts:
                db.sql(text)
            found = db.sql("SHOW SHARING").arrow().to_pylist()
            return "\n".join(f"{row['queries']} queries: {row['operator']}" for row in found) or "nothing is shared"
        used = sorted(set(re.findall(r"\$([a-z]\w*)", texts[0])))
        rows = [{"id": i, **{name: {"name": f"n{i}", "length": i + 1}.get(name, i) for name in used}} for i in range(5)]
        many = db.sql_many(texts[0], rows, key="id", name="many", merged=kind == "merged")
        plan = many.explain().partition("physical plan")[2]
        return "\n".join(line[2:] for line in plan.splitlines()[1:] if line.strip())


def written(text: str) -> str:
    """A file with the plans that there are now."""
    made = []
    for block in text.strip().split("\n\n"):
        given, _, _ = block.partition("\n----\n")
        lines = [line for line in given.splitlines() if not line.startswith("#")]
        rule, kind, texts = lines[0].removeprefix("rule "), lines[1], lines[2:]
        with_rule, without = shown(kind, texts, ""), shown(kind, texts, rule)
        made.append(f"{given}\n----\n{with_rule}\n{ARROW}\n{UNCHANGED if with_rule == without else without}")
    return "\n\n".join(made) + "\n"


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in FILES])
def test_plans_over_sets(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert written(text) == text
    # each rule is shown where it applies, and where its precondition does not hold
    outcomes = [block.rstrip().endswith(f"{ARROW}\n{UNCHANGED}") for block in text.strip().split("\n\n")]
    assert set(outcomes) == {True, False}


def test_every_rule_over_sets_is_shown() -> None:
    texts = [path.read_text(encoding="utf-8") for path in FILES]
    rules = {line.removeprefix("rule ") for text in texts for line in text.splitlines() if line.startswith("rule ")}
    assert rules == {*SHARING}
    assert [path.stem for path in FILES] == sorted(
        ["s_select", "s_aggregate", "s_join", "s_sequence", "s_iterate"]
        + ["default", "c_select", "c_project", "c_aggregate", "c_join", "c_sequence", "c_iterate"]
    )


if __name__ == "__main__":
    for golden in FILES:
        golden.write_text(written(golden.read_text(encoding="utf-8")), encoding="utf-8")
