"""Random queries on relations: at every instant, what DuckDB says of what the windows hold then."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.plan.relations import RangeWindow, RowsWindow
from tests.support.snapshot_queries import random_case
from tests.support.snapshots import (
    Case,
    MismatchError,
    Row,
    UnansweredError,
    Windowed,
    answer,
    check,
    check_events,
    main,
    run,
    shrunk,
)
from tiers import examples

_BLOCK = 50


def _run_block(first: int, count: int = _BLOCK, **settings: Any) -> None:
    unanswered = 0
    for seed in range(first, first + count):
        case = random_case(seed)
        try:
            run(case, seed, **settings)
        except UnansweredError:
            unanswered += 1
        except MismatchError:
            run(shrunk(case, seed, **settings), seed, **settings)
            raise
    assert unanswered < count / 5


@pytest.mark.parametrize("block", range(examples(14)))
def test_snapshots(block: int) -> None:
    _run_block(block * _BLOCK)


@pytest.mark.parametrize(
    "settings",
    [{"relations": "changes"}, {"relations": "intervals"}, {"rules": "off"}, {"batch_rows": 1}],
    ids=lambda settings: "-".join(f"{name}={value}" for name, value in settings.items()),
)
def test_snapshots_whatever_is_set(settings: dict[str, Any]) -> None:
    _run_block(1000, examples(60), **settings)


@pytest.mark.parametrize("form", ["auto", "intervals", "changes"])
def test_what_a_relation_holds_before_its_streams_end(form: str) -> None:
    """The content at an instant is what the rows delivered in the end say, however far each stream has come."""
    looked = 0
    for seed in range(2000, 2000 + examples(2 * _BLOCK)):
        chance = random.Random(seed)
        case = random_case(seed)
        streams = {name: rows[: chance.randint(0, len(rows))] for name, rows in case.streams.items()}
        if case.how is None and any(streams.values()):
            at = max(row[-1] for rows in streams.values() for row in rows) + chance.randint(0, 2)
            held: list[Row] = []

            def look(query: ms.Query, at: int = at, held: list[Row] = held) -> None:
                held += _rows(query.snapshot(at))

            found = answer(replace(case, streams=streams), seed, look, relations=form)
            wanted = [row[:-2] for row in found if row[-2] <= at and (row[-1] is None or at < row[-1])]
            assert sorted(map(repr, held)) == sorted(map(repr, wanted)), (case.ours, streams, at)
            looked += bool(wanted)
    assert looked > 3


def _rows(table: pa.Table) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


WINDOWS = {"w": Windowed("s", RangeWindow(3)), "n": Windowed("s", RowsWindow(1, ("k",)))}
ROWS = [(1, 10, "a", 0), (1, 20, "a", 1), (2, 5, None, 1)]


def test_the_oracle_sees_a_wrong_snapshot() -> None:
    sql = "SELECT k, count(*) AS n FROM {w} AS a GROUP BY k"
    right = [((1, 1), 0, 1), ((1, 2), 1, 3), ((1, 1), 3, 4), ((2, 1), 1, 4)]
    windows = {"w": WINDOWS["w"]}
    case = Case(sql, windows, {"s": ROWS})
    assert check(case, right) == 4
    for wrong in (right[1:], [*right, ((3, 1), 0, 1)], [((1, 1), 0, 2), *right[1:]], [*right[:3], ((2, 1), 1, 5)]):
        with pytest.raises(MismatchError):
            check(case, wrong)


def test_the_oracle_sees_a_wrong_event() -> None:
    case = Case("SELECT x FROM {n} AS a", {"n": WINDOWS["n"]}, {"s": ROWS}, "istream")
    check_events(case, [(10,), (20,), (5,)])
    check_events(case, [(10,), (5,), (20,)])
    for wrong in ([(10,), (20,)], [(5,), (10,), (20,)], [(10,), (20,), (5,), (5,)]):
        with pytest.raises(MismatchError):
            check_events(case, wrong)


def test_windows_hold_what_their_definitions_say() -> None:
    assert WINDOWS["w"].holds(ROWS, 2) == (0, 1, 2)
    assert WINDOWS["w"].holds(ROWS, 3) == (1, 2)
    assert WINDOWS["n"].holds(ROWS, 5) == (1, 2)
    assert Windowed("s", RangeWindow(4, 4)).holds(ROWS, 2) == ()
    assert Windowed("s", RangeWindow(4, 4)).holds(ROWS, 3) == (0, 1, 2)
    assert Windowed("s", RowsWindow(2, (), 2)).holds(ROWS, 0) == ()
    assert Windowed("s", RowsWindow(2, (), 2)).holds(ROWS, 1) == (0, 1)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cases", "2", "--seed", "3"]) == 0
    assert "2 cases" in capsys.readouterr().out
