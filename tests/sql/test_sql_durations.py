"""The microseconds of constant time spans."""

import pytest
from sql_texts import check_mistake
from sqlglot import exp

from millstream.sql import duration_us, parse

SECOND = 1_000_000


def measured(text: str) -> int | None:
    [statement] = parse(f"SELECT {text}")
    assert isinstance(statement.ast, exp.Select)
    return duration_us(statement.ast.selects[0])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("INTERVAL '1' MICROSECOND", 1),
        ("INTERVAL 3 MILLISECONDS", 3_000),
        ("INTERVAL '10' SECOND", 10 * SECOND),
        ("INTERVAL 0.5 SECONDS", SECOND // 2),
        ("INTERVAL '1.5' minutes", 90 * SECOND),
        ("INTERVAL '2 hours'", 7200 * SECOND),
        ("INTERVAL '1 day 2 hours 3 seconds'", (86_400 + 7_203) * SECOND),
        ("INTERVAL '01:30:00.25'", 5_400_250_000),
        ("INTERVAL 1 WEEK", 7 * 86_400 * SECOND),
        ("INTERVAL -3 SECONDS", -3 * SECOND),
        ("-INTERVAL '3' SECOND", -3 * SECOND),
        ("INTERVAL (2) DAYS", 2 * 86_400 * SECOND),
        ("INTERVAL (-2) DAYS", -2 * 86_400 * SECOND),
        ("INTERVAL '1' DAY + INTERVAL '1' HOUR", 90_000 * SECOND),
        ("(INTERVAL '1' DAY - INTERVAL '1' HOUR)", 82_800 * SECOND),
        ("'90 seconds'::interval", 90 * SECOND),
        ("INTERVAL '1e-3' SECOND", 1_000),
        ("INTERVAL '0.0000001' SECOND", 0),
        ("INTERVAL '1:30' MINUTE TO SECOND", 90 * SECOND),
        ("INTERVAL '90:00.5' minutes to seconds", 5_400_500_000),
        ("INTERVAL '-1:30' HOUR TO MINUTE", -5_400 * SECOND),
        ("INTERVAL -'1:30' HOUR TO MINUTE", -5_400 * SECOND),
        ("INTERVAL '25:00:01' HOUR TO SECOND", 90_001 * SECOND),
        ("INTERVAL '2 03' DAY TO HOUR", 51 * 3_600 * SECOND),
        ("INTERVAL '2 03:04' DAY TO MINUTE", (51 * 3_600 + 240) * SECOND),
        ("INTERVAL ' +2  3:04:05.25 ' DAY TO SECOND", (51 * 3_600 + 245) * SECOND + SECOND // 4),
        ("INTERVAL '1-2' YEAR TO MONTH", None),
        ("INTERVAL '1' MONTH", None),
        ("INTERVAL '1 year 2 days'", None),
        ("INTERVAL x SECONDS", None),
        ("INTERVAL '1e999999999' SECOND", None),
        ("5", None),
        ("x", None),
    ],
)
def test_duration(text: str, expected: int | None) -> None:
    assert measured(text) == expected


@pytest.mark.parametrize("unit", ["MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK"])
def test_units_in_both_numbers_and_any_case(unit: str) -> None:
    spellings = [unit, unit + "S", unit.lower(), unit.title() + "s"]
    values = {measured(f"INTERVAL '7' {spelling}") for spelling in spellings}
    assert len(values) == 1 and None not in values


def test_a_column_called_interval() -> None:
    [statement] = parse(
        "SELECT interval, interval - 5, interval * 2, -interval, interval > 3 FROM s WHERE interval = 1"
    )
    assert not statement.ast.find(exp.Interval)
    assert len(list(statement.ast.find_all(exp.Column))) == 6


TWO = "YEAR TO MONTH, or from DAY, HOUR or MINUTE to a smaller one, down to SECOND"


@pytest.mark.parametrize(
    ("marked", "message", "hint"),
    [
        ("'1:30' ⟨MINUTE TO HOUR⟩", "no interval goes from MINUTE to HOUR", TWO),
        ("'1:30' ⟨SECOND TO SECOND⟩", "no interval goes from SECOND to SECOND", TWO),
        ("'1 1' ⟨WEEK TO DAY⟩", "no interval goes from WEEK to DAY", TWO),
        ("'1-1' ⟨MONTH TO DAY⟩", "no interval goes from MONTH to DAY", TWO),
        ("⟨'1:60'⟩ MINUTE TO SECOND", "cannot read '1:60' as MINUTE TO SECOND", "write it like '3:02'"),
        ("⟨'1:1.5'⟩ HOUR TO MINUTE", "cannot read '1:1.5' as HOUR TO MINUTE", "write it like '3:02'"),
        ("⟨'1:1:1'⟩ HOUR TO MINUTE", "cannot read '1:1:1' as HOUR TO MINUTE", "write it like '3:02'"),
        ("⟨'24:00'⟩ DAY TO HOUR", "cannot read '24:00' as DAY TO HOUR", "write it like '3 02'"),
        ("⟨'1-12'⟩ YEAR TO MONTH", "cannot read '1-12' as YEAR TO MONTH", "write it like '3-02'"),
        ("'1:30' MINUTE TO ⟨SECNDS⟩", "expected a unit of time, found 'SECNDS'", "did you mean SECONDS?"),
    ],
)
def test_mistakes_in_two_fields(marked: str, message: str, hint: str) -> None:
    check_mistake(f"SELECT INTERVAL {marked} FROM s", message, hint)
