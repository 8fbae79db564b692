"""Every golden file under every configuration in-process. `pytest tests/slt -k over` runs those below `over/`."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden_cases import CONFIGS, SCRIPTS, cases, name_of, play

from millstream.testing.slt import Mismatch, Script, SltConfig, SltError, parse, run
from millstream.testing.slt.runner import complete


@pytest.mark.parametrize(("script", "config"), cases("embedded"))
def test_slt(script: Script, config: SltConfig) -> None:
    play(script, config)


@pytest.mark.parametrize("script", [pytest.param(script, id=name_of(script)) for script in SCRIPTS])
def test_file_is_well_kept(script: Script) -> None:
    assert script.headers.get("name") == name_of(script)
    assert script.headers.get("description"), "say what the file shows"
    assert script.headers.get("group", "").startswith("["), "name its groups: # group: [over, null]"
    unknown = script.also - {config.name for config in CONFIGS if config.chosen}
    assert not unknown, f"# also: names {unknown}"
    if script.uses("push"):
        data = [record.verb for record in script.records if record.verb in ("push", "advance", "finish")]
        assert data[-1] == "finish", "a run on Spark is complete only at the end: end with finish"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


SMALL = """\
# name: small
# description: a filter
# group: [x]

statement ok
CREATE STREAM s (x INT, t TIMESTAMP) ORDER BY t

stream q
SELECT x FROM s WHERE x > 1
{schema}
push s
1, 10:00:00
2, 10:00:01
----
{first}
finish
----
"""


def test_a_wrong_expectation_fails(tmp_path: Path) -> None:
    path = write(tmp_path / "small.slt", SMALL.format(schema="", first="3\n"))
    with pytest.raises(Mismatch, match=r"small\.slt:11: push s"):
        run(parse(path))
    with pytest.raises(Mismatch, match="all rows of q"):
        run(parse(path), SltConfig(compare="total"))


def test_complete_fills_in_what_comes_out(tmp_path: Path) -> None:
    path = write(tmp_path / "small.slt", SMALL.format(schema="----\n", first=""))
    assert complete(path)
    assert path.read_text(encoding="utf-8") == SMALL.format(schema="----\nx INTEGER\n", first="2\n")
    assert not complete(path)
    run(parse(path))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("pull s\n", "no verb pull"),
        ("push s\n1\n", "push needs ----"),
        ("only spark\n", "write only host"),
        ("statement ok\nCREATE STREAM s (x INT)\n\npush s\nred\n----\n", "strings stand in quotes"),
        ("statement ok\nCREATE STREAM s (x INT)\n\nadvance s soon\n----\n", "not a literal"),
    ],
)
def test_a_broken_file_says_where(tmp_path: Path, text: str, error: str) -> None:
    path = write(tmp_path / "broken.slt", text)
    with pytest.raises(SltError, match=rf"broken\.slt:\d+: .*{error}"):
        run(parse(path))


def test_an_unexpected_success_or_error_fails(tmp_path: Path) -> None:
    accepted = write(tmp_path / "accepted.slt", "statement error no\nCREATE STREAM s (x INT)\n")
    with pytest.raises(AssertionError, match="the statement was accepted"):
        run(parse(accepted))
    refused = write(tmp_path / "refused.slt", "statement ok\nSELECT FROM\n")
    with pytest.raises(AssertionError, match=r"refused\.slt:1"):
        run(parse(refused))
    other = write(tmp_path / "other.slt", "statement error unlikely\nDROP STREAM s\n")
    with pytest.raises(AssertionError, match="does not say 'unlikely'"):
        run(parse(other))
