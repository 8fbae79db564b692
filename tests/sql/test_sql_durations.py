"""The microseconds of constant time spans."""

import pytest
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
