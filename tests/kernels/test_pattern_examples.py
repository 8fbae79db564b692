"""The backtracking reference for row patterns, on worked examples."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from pattern_searches import (
    AFTER,
    FALLS,
    FALLS_OR_SAME,
    HERE,
    LABEL,
    RISES,
    A,
    B,
    C,
    N,
    answer,
    here,
    plus,
    search,
    seq,
    star,
    value,
)

from millstream.errors import DataError
from millstream.expressions.nodes import Column, Literal
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.patterns.expressions import Check, Edge, Either, Excluded, Pattern, Repeat, Sequence
from millstream.plan.patterns.search import CLASSIFIER, MATCH_NUMBER, TIMED_OUT, Given, Reach, Skip
from millstream.plan.programs.builder import call
from millstream.types import BIGINT, DOUBLE, VARCHAR

FALL_AND_RISE = seq(A, plus(B), plus(C))


def test_fall_and_rise() -> None:
    found = answer(search(FALL_AND_RISE, B=FALLS, C=RISES), 90, 80, 70, 80, 90, 50, 40, 60)
    assert found == [
        (1, 1, 90, "A"), (2, 1, 80, "B"), (3, 1, 70, "B"), (4, 1, 80, "C"), (5, 1, 90, "C"),
        (6, 2, 50, "A"), (7, 2, 40, "B"), (8, 2, 60, "C"),
    ]  # fmt: skip


def test_excluded_rows_belong_to_the_match() -> None:
    found = answer(search(seq(A, Excluded(plus(B)), plus(C)), (N, LABEL), B=FALLS, C=RISES), 90, 80, 70, 80, 90)
    assert found == [(1, 1, "A"), (4, 4, "C"), (5, 5, "C")]


STEPS = (90, 80, 70, 70)


@pytest.mark.parametrize(
    ("pattern", "labels"),
    [
        (star(B), [(1, None), (2, "B"), (2, "B"), (2, "B")]),
        (Repeat(B, 0, None, "reluctant"), [(1, None), (2, None), (3, None), (4, None)]),
        (Repeat(B, 0, 1), [(1, None), (2, "B"), (3, "B"), (4, "B")]),
        (Repeat(B, 2, None, "reluctant"), [(1, "B"), (1, "B")]),
        (Repeat(B, 1, 5, "reluctant"), [(1, "B"), (2, "B"), (3, "B")]),
        (Repeat(B, 5, 7), []),
        (Either((B, A)), [(1, "A"), (2, "B"), (3, "B"), (4, "B")]),
        (seq(Edge(end=False), A), [(1, "A")]),
        (seq(Edge(end=False), A, Edge(end=False)), []),
        (seq(A, Edge(end=True)), [(1, "A")]),
        (Either((star(Sequence()), B)), [(1, None), (2, None), (3, None), (4, None)]),
        (star(seq(B, star(Sequence()))), [(1, None), (2, "B"), (2, "B"), (2, "B")]),
        (Either((star(Edge(end=False)), B)), [(1, None), (2, None), (3, None), (4, None)]),
        (Repeat(Repeat(A, 0, 1), 2, None), [(1, "A"), (1, "A"), (1, "A"), (1, "A")]),
    ],
    ids=str,
)
def test_quantifiers(pattern: Pattern, labels: list[Any]) -> None:
    assert [row[1:] for row in answer(search(pattern, (MATCH_NUMBER, LABEL), B=FALLS_OR_SAME), *STEPS)] == labels


def test_a_possessive_repetition_gives_nothing_back() -> None:
    assert answer(search(seq(plus(A), B), (N,), rows="one"), 1, 1, 1) == [(3,)]
    assert answer(search(seq(Repeat(A, 1, None, "possessive"), B), (N,), rows="one"), 1, 1, 1) == []
    atomic = Repeat(seq(A, Repeat(B, 0, 1)), 1, None, "possessive")
    assert answer(search(seq(atomic, C), (N,), rows="one", A=here("=", 1), B=here("=", 2)), 1, 2, 1, 3) == [(4,)]


def test_what_a_condition_says_of_earlier_labels_decides_between_them() -> None:
    """The row of B is the one that X repeats, so the less preferred label is taken."""
    own = Reach("b", "x", BIGINT, ("B",))
    both = star(Either((A, B)))
    found = answer(search(seq(both, C), (LABEL,), (own,), C=here("=", own)), 1, 1)
    assert found == [(1, "B"), (2, "C")]


def test_aggregates_include_the_row_under_test() -> None:
    mean = AggregateCall.matched("mean", "avg", (Column(BIGINT, "x"),), DOUBLE, ("B",))
    five = call("=", value(mean), Literal(DOUBLE, 5.0))
    found = answer(search(star(Either((A, B))), (LABEL, mean), A=five), 4, 6, 0)
    assert found == [(1, "B", 4.0), (2, "B", 5.0), (3, "A", 5.0)]


def test_running_and_final() -> None:
    final = AggregateCall.matched("all", "sum", (Column(BIGINT, "x"),), BIGINT, final=True)
    running = AggregateCall.matched("some", "sum", (Column(BIGINT, "x"),), BIGINT)
    last = Reach("last", "x", BIGINT, offset=2, final=True)
    third = Reach("third", "x", BIGINT, first=True, offset=2)
    found = answer(search(plus(A), (running, final, last, third)), 10, 20, 30)
    assert found == [(1, 10, 60, 10, None), (2, 30, 60, 10, None), (3, 60, 60, 10, 30)]


def test_navigation_past_the_match() -> None:
    further = Reach("f", CLASSIFIER, VARCHAR, shift=1)
    beyond = Reach("b", "x", BIGINT, first=True, shift=3)
    found = answer(search(FALL_AND_RISE, (LABEL, further, beyond, AFTER), B=FALLS, C=RISES), 90, 80, 70, 80, 70)
    assert found == [(1, "A", "B", 80, 80), (2, "B", "B", 80, 70), (3, "B", "C", 80, 80), (4, "C", None, 80, 70)]


def test_skips() -> None:
    def ids(skip: Skip) -> list[tuple[int, int]]:
        numbered = search(FALL_AND_RISE, (MATCH_NUMBER,), skip=skip, B=FALLS, C=RISES)
        return answer(numbered, 90, 80, 70, 80, 70, 80)

    first = [(1, 1), (2, 1), (3, 1), (4, 1)]
    assert ids(Skip()) == first
    assert ids(Skip("next")) == [*first, (2, 2), (3, 2), (4, 2), (4, 3), (5, 3), (6, 3)]
    assert ids(Skip("first", ("C",))) == [*first, (4, 2), (5, 2), (6, 2)]
    assert ids(Skip("last", ("B",))) == [*first, (4, 2), (5, 2), (6, 2)]
    with pytest.raises(DataError, match="AFTER MATCH SKIP"):
        ids(Skip("first", ("A",)))
    with pytest.raises(DataError, match="AFTER MATCH SKIP"):
        ids(Skip("first", ("D",)))


def test_empty_and_unmatched_rows() -> None:
    numbers, pattern = (90, 80, 70, 70), star(B)
    shown = [(1, 1, None), (2, 2, "B"), (3, 2, "B"), (4, 3, None)]
    columns = (MATCH_NUMBER, LABEL)
    assert answer(search(pattern, columns, B=FALLS), *numbers) == shown
    assert answer(search(pattern, columns, rows=Given("all", empty=False), B=FALLS), *numbers) == shown[1:3]
    assert answer(search(pattern, columns, rows="one", B=FALLS), *numbers) == [(1, None), (2, "B"), (3, None)]
    falls = search(seq(A, B, B), columns, rows=Given("all", unmatched=True), skip=Skip("next"), B=FALLS)
    assert answer(falls, 100, 100, 90, 80, 70, 100) == [
        (1, None, None), (2, 1, "A"), (3, 1, "B"), (4, 1, "B"), (3, 2, "A"), (4, 2, "B"), (5, 2, "B"), (6, None, None),
    ]  # fmt: skip


def test_every_row_with_the_match_that_begins_there() -> None:
    each = Given("each")
    found = answer(search(seq(A, plus(B)), (HERE, LABEL), rows=each, B=FALLS_OR_SAME), 90, 80, 70, 70)
    assert found == [(1, 70, "B"), (2, None, None), (3, None, None), (4, None, None)]
    found = answer(search(star(B), (HERE, N), rows=each, B=FALLS), 90, 80)
    assert found == [(1, None, 0), (2, None, 0)], "the row before the first of the frame is not seen"


@pytest.mark.parametrize(
    ("most", "skip", "rows"),
    [
        (4, Skip(), {1: (None, 1, 2, 3, 4, 5, None, None)}),
        (2, Skip(), {2: (None, None, 2, 3, 4, None, None, None)}),
        (2, Skip("next"), {2: (None, None, 2, 3, 4, None, None, None), 3: (None, None, None, 3, 4, 5, None, None)}),
    ],
)
def test_a_search_sees_its_frame_only(most: int, skip: Skip, rows: dict[int, tuple[Any, ...]]) -> None:
    reaches = [Reach(f"row{i}", "x", BIGINT, ("B",), shift=i - 4) for i in range(8)]
    equal = call("=", call("%", value(HERE), Literal(BIGINT, 6)), Literal(BIGINT, 3))
    given = Given("each", most=most, seek=True)
    found = answer(search(seq(A, B), reaches, rows=given, skip=skip, A=equal), 1, 2, 3, 4, 5, 6)
    assert found == [(i, *rows.get(i, (None,) * 8)) for i in range(1, 7)]


def test_a_match_ends_within_its_time() -> None:
    run = search(plus(A), (N,), rows="one", within=2)
    assert answer(run, 1, 1, 1, 1, 1, times=(0, 1, 2, 5, 6)) == [(3,), (2,)]
    assert answer(run, 1, 1, 1, times=(0, 1, 2), upto=2) == []
    assert answer(run, 1, 1, 1, times=(0, 1, 2), upto=3) == [(3,)]


def test_beginnings_without_an_end_in_time() -> None:
    absent = search(seq(A, B, C), (HERE, N, TIMED_OUT), rows="one", within=3, timeouts=True,
                    A=here("=", 1), B=here("=", 2), C=here("=", 3))  # fmt: skip
    assert answer(absent, 1, 2, 9, 1, 2, times=(0, 1, 2, 5, 6), upto=8) == []
    assert answer(absent, 1, 2, 9, 1, 2, times=(0, 1, 2, 5, 6), upto=9) == [(2, 2, True)]
    assert answer(absent, 1, 2, 1, 2, 3, times=(0, 1, 4, 5, 6)) == [(2, 2, True), (3, 3, False)]


def test_a_check_stands_between_rows() -> None:
    few = Check(call("<", value(N), Literal(BIGINT, 3)))
    run = seq(Repeat(A, 1, None, "possessive"), few, B)
    found = search(run, (N,), rows="one", A=here("=", 0), B=here("=", 1))
    assert answer(found, 0, 0, 1) == [(3,)]
    assert answer(found, 0, 0, 0, 1) == [(3,)], "from the second row on"


@pytest.mark.parametrize(
    "pattern",
    [
        seq(A, B), seq(A, plus(B)), seq(A, Repeat(B, 1, None, "reluctant")), Either((seq(A, B, A, B), seq(A, B))),
        seq(A, star(B), A), seq(A, B, Edge(end=True)), star(A), Either((seq(A, B), A)),
        seq(Edge(end=False), A, star(B)), Repeat(seq(A, Repeat(B, 0, 1)), 2, 3),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("skip", [Skip(), Skip("next")], ids=str)
def test_certain_is_what_every_continuation_gives(pattern: Pattern, skip: Skip) -> None:
    """Neither early nor late: rows 1 are A, rows 2 are B, others nothing, so that what may come does come."""
    found = search(pattern, (MATCH_NUMBER, N, LABEL), skip=skip, rows="one", A=here("=", 1), B=here("=", 2))
    futures = [more for length in range(5) for more in product((0, 1, 2), repeat=length)]
    for length in range(1, 4):
        for numbers in product((0, 1, 2), repeat=length):
            every = [answer(found, *numbers, *more) for more in futures]
            common = 0
            while all(len(one) > common and one[common] == every[0][common] for one in every):
                common += 1
            assert answer(found, *numbers, upto=length) == every[0][:common], numbers
