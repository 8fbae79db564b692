"""Searches for row patterns: what is found, when it is certain, and what is told of it."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from itertools import pairwise, permutations
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pattern_scenarios import events_of, is_supported

from millstream.errors import DataError, UnsupportedError
from millstream.expressions.nodes import Column, Expr, Literal
from millstream.kernels import jit
from millstream.kernels.batch import FOREVER, Batch
from millstream.kernels.patterns import threads
from millstream.kernels.patterns.kernel import MatchKernel, describe_machine
from millstream.kernels.patterns.machine import END
from millstream.kernels.patterns.program import MOST, TAKE, WIDTH, instructions
from millstream.kernels.patterns.spec import MatchSpec
from millstream.kernels.saving import states as saving
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.patterns.expressions import (
    Check,
    Edge,
    Either,
    Excluded,
    Pattern,
    Permute,
    Repeat,
    Sequence,
    Variable,
)
from millstream.plan.patterns.search import (
    CLASSIFIER,
    MATCH_NUMBER,
    TIMED_OUT,
    Given,
    Reach,
    Search,
    Skip,
)
from millstream.plan.programs.builder import call
from millstream.schema import Schema
from millstream.types import BIGINT, BLOB, BOOLEAN, DECIMAL, DOUBLE, VARCHAR, SqlType
from tests.support.pattern_strategies import COLUMNS, Arrival, arrivals, searches
from tests.support.patterns import told_when
from tiers import examples

INPUT = Schema.of(k=BIGINT, x=BIGINT, s=VARCHAR)

A, B, C, D = (Variable(name) for name in "ABCD")
LABEL = Reach("label", CLASSIFIER, VARCHAR)
LAST = Reach("last", "x", BIGINT)
FIRST = Reach("first", "x", BIGINT, first=True)
COUNT = AggregateCall.matched("n", "count", (), BIGINT)


def seq(*items: Pattern) -> Pattern:
    return Sequence(items)


def some(body: Pattern, least: int = 0, most: int | None = None, greed: Any = "greedy") -> Pattern:
    return Repeat(body, least, most, greed)


def is_letter(variable: str) -> Expr:
    """The row's s is the variable's name."""
    return call("=", Column(VARCHAR, "s"), Literal(VARCHAR, variable.lower()))


S = Reach("s", "s", VARCHAR)


def letters(pattern: Pattern, *told: Reach | AggregateCall[Expr] | str, **more: Any) -> Search:
    """A search in which a variable takes the rows whose s is its name, and others (upper case later) any."""
    reaches = tuple(one for one in told if isinstance(one, Reach))
    summaries = tuple(one for one in told if isinstance(one, AggregateCall))
    names = tuple(one if isinstance(one, str) else one.name for one in told)
    search = Search((), pattern, (), (*reaches, S), summaries, names, **more)
    conditions = tuple((name, is_letter(name)) for name in search.variables if name in "ABC")
    return replace(search, conditions=conditions)


def rows_of(text: str, times: list[int] | None = None) -> Batch:
    """A row for each letter, x counting up from 1."""
    size = len(text)
    rows = pa.RecordBatch.from_arrays(
        [pa.array([1] * size), pa.array(range(1, size + 1)), pa.array(list(text))], schema=INPUT.arrow
    )
    return Batch(rows, np.array(times or range(size), dtype=np.int64), np.arange(size), FOREVER)


def found(search: Search, text: str, times: list[int] | None = None) -> list[tuple[Any, ...]]:
    """The told columns of each output row."""
    return [row[-len(search.columns) :] for _, row in output(search, rows_of(text, times))]


def output(search: Search, batch: Batch, input_: Schema = INPUT) -> list[tuple[int, tuple[Any, ...]]]:
    """Output rows with their times, from batches of one row, and checked to be the same from one."""
    spec = MatchSpec(input_, search)
    one_by_one = run(spec, [batch.slice(i, i + 1).with_upto(int(batch.time[i])) for i in range(len(batch))])
    assert one_by_one == run(spec, [batch.with_upto(int(batch.time[-1]))])
    return one_by_one


def run(spec: MatchSpec, batches: list[Batch]) -> list[tuple[int, tuple[Any, ...]]]:
    kernel = MatchKernel(spec, general=True)
    state = kernel.open()
    results = [kernel.step(state, batch) for batch in (*batches, Batch.empty(spec.input.arrow, FOREVER))]
    return [
        (time, tuple(row.values()))
        for result in results
        for time, row in zip(result.time.tolist(), result.rows.to_pylist(), strict=True)
    ]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (seq(A, some(B), C), [(1, 4), (5, 6)]),
        (seq(A, some(B, 3), C), []),
        (seq(A, some(B, 0, 2, "reluctant"), C), [(1, 4), (5, 6)]),
        (seq(some(B, 1, None, "reluctant")), [(2, 2), (3, 3)]),
        (seq(some(B, 1)), [(2, 3)]),
        (Either((seq(A, C), seq(A, B), seq(B, B, C))), [(1, 2), (5, 6)]),
        (seq(Edge(False), A, B), [(1, 2)]),
        (seq(A, C, Edge(True)), [(5, 6)]),
        (seq(some(Either((B, seq(B, C))), 1), A), [(2, 5)]),
        (Either((seq(A, B, B, C), seq(B, B), seq(B))), [(1, 4)]),
        (seq(some(seq(some(A), some(B)), 1), C), [(1, 4), (5, 6)]),
        (seq(some(D, 1, None, "possessive"), C), []),
        (seq(A, some(Either((B, C)), 1, None, "possessive"), A), [(1, 5)]),
        (seq(A, some(B, 2, 2, "possessive"), C), [(1, 4)]),
    ],
    ids=str,
)
def test_the_preferred_match_counts(pattern: Pattern, expected: list[tuple[int, int]]) -> None:
    assert found(letters(pattern, FIRST, LAST), "abbcac") == expected


def test_matches_of_which_nothing_is_told() -> None:
    kernel = MatchSpec(INPUT, letters(seq(A, B))).build()
    assert len(kernel.step(kernel.open(), rows_of("abab"))) == 2


def test_matches_with_no_row() -> None:
    search = letters(some(A), MATCH_NUMBER, COUNT, LAST)
    assert found(search, "baab") == [(1, 0, None), (2, 2, 3), (3, 0, None)]
    assert found(replace(search, given=Given(empty=False)), "baab") == [(2, 2, 3)]


@pytest.mark.parametrize(
    ("skip", "expected"),
    [
        (Skip(), [(1, 3)]),
        (Skip("next"), [(1, 3), (2, 4), (3, 5)]),
        (Skip("last", ("B",)), [(1, 3), (2, 4), (3, 5)]),
        (Skip("first", ("C",)), [(1, 3), (3, 5)]),
    ],
    ids=str,
)
def test_where_the_search_goes_on(skip: Skip, expected: list[tuple[int, int]]) -> None:
    search = letters(seq(A, B, C), FIRST, LAST, skip=skip)
    grows = call(">", Column(BIGINT, "last"), 0)
    search = replace(search, conditions=tuple((name, grows) for name in "ABC"))
    assert found(search, "aaaaa") == expected


def test_skips_that_lead_nowhere() -> None:
    with pytest.raises(DataError, match="a row that the match does not have"):
        found(letters(seq(A, some(B)), LAST, skip=Skip("last", ("B",))), "aa")
    with pytest.raises(DataError, match="the first row of the match"):
        found(letters(seq(A, some(B)), LAST, skip=Skip("first", ("A",))), "aa")


def test_a_match_is_certain_once_nothing_preferred_can_come() -> None:
    greedy = output(letters(seq(A, some(B)), LAST), rows_of("abba"))
    assert greedy == [(3, (3,)), (END, (4,))]
    assert output(letters(seq(A, some(B, 0, None, "reluctant")), LAST), rows_of("abba")) == [(0, (1,)), (3, (4,))]
    assert output(letters(seq(A, some(B, 0, 2)), LAST), rows_of("abba"))[0] == (2, (3,))
    assert output(letters(seq(A, Edge(True)), LAST), rows_of("aba")) == [(END, (3,))]


def test_deadlines_pass_without_rows() -> None:
    search = letters(seq(A, some(B)), FIRST, LAST, within=10)
    assert output(search, rows_of("abbab", [0, 10, 11, 40, 41])) == [(11, (1, 2)), (51, (4, 5))]
    kernel = MatchKernel(MatchSpec(INPUT, search), general=True)
    state = kernel.open()
    kernel.step(state, rows_of("ab", [0, 3]).with_upto(3))
    assert len(kernel.step(state, Batch.empty(INPUT.arrow, 10))) == 0
    told = kernel.step(state, Batch.empty(INPUT.arrow, 11))
    assert (told.time.tolist(), told.seq.tolist(), told.rows.to_pylist()) == ([11], [1], [{"first": 1, "last": 2}])


def test_timeouts() -> None:
    search = letters(seq(A, B, C), MATCH_NUMBER, TIMED_OUT, COUNT, LAST, within=5, timeouts=True)
    told = output(search, rows_of("abcabab", [0, 1, 2, 10, 11, 30, 31]))
    assert told == [
        (2, (1, False, 3, 3)), (16, (None, True, 2, 5)), (36, (None, True, 2, 7)),
    ]  # fmt: skip


def test_rows_further_on_are_waited_for() -> None:
    after = Reach("after", "s", VARCHAR, shift=1)
    search = letters(A, LAST, after)
    search = replace(search, conditions=(("A", call("=", Column(VARCHAR, "after"), Literal(VARCHAR, "b"))),))
    assert output(search, rows_of("abab")) == [(1, (1, "b")), (3, (3, "b"))]
    none = replace(search, conditions=(("A", call("is_null", Column(VARCHAR, "after"))),))
    assert output(none, rows_of("ab")) == [(END, (2, None))]


def test_rows_before_a_match_are_seen() -> None:
    search = letters(seq(B, B), LAST, Reach("before", "x", BIGINT, ("B",), first=True, shift=-1))
    assert found(search, "bbabbb") == [(2, None), (5, 3)]


def test_values_of_first_and_last_rows() -> None:
    told = [
        Reach("b0", "x", BIGINT, ("B",), first=True), Reach("b1", "x", BIGINT, ("B",), first=True, offset=1),
        Reach("b9", "x", BIGINT, ("B",), first=True, offset=9), Reach("l1", "x", BIGINT, ("B",), offset=1),
        Reach("ab", "x", BIGINT, ("A", "B")), Reach("was", CLASSIFIER, VARCHAR, shift=-1),
    ]  # fmt: skip
    assert found(letters(seq(A, some(B), C), *told), "abbbc") == [(2, 3, None, 3, 4, "B")]


def test_conditions_on_rows_taken_before() -> None:
    first_a, last_b = Reach("fa", "x", BIGINT, ("A",), first=True), Reach("lb", "x", BIGINT, ("B",), offset=1)
    search = letters(seq(some(A, 1), some(B, 1), D), FIRST, LAST, first_a, last_b)
    # The last row is twice as far as the first, and some B came before the last B.
    condition = call(
        "and", call("=", Column(BIGINT, "last"), call("*", Column(BIGINT, "fa"), 3)),
        call("not", call("is_null", Column(BIGINT, "lb"))),
    )  # fmt: skip
    search = replace(search, conditions=(*search.conditions, ("D", condition)))
    assert [one[:2] for one in found(search, "aabbbb")] == [(2, 6)]


def test_aggregates_in_conditions_tell_ways_apart() -> None:
    """A preferred way with a larger sum fails later, so the others must not be dropped before."""
    total = AggregateCall.matched("total", "sum", (Column(BIGINT, "x"),), BIGINT, ("A",))
    search = letters(seq(some(Either((A, B)), 1), C), FIRST, LAST, total)
    any_row = call(">", Column(BIGINT, "last"), 0)
    is_seven = call("and", is_letter("C"), call("=", Column(BIGINT, "total"), 7))
    search = replace(search, conditions=(("A", any_row), ("B", any_row), ("C", is_seven)))
    assert found(search, "aaaac") == [(1, 5, 7)]


def test_checks_are_asked_behind_a_run() -> None:
    size = AggregateCall.matched("size", "count", (), BIGINT, ("A",))
    long = Check(call(">=", Column(BIGINT, "size"), 2))
    search = letters(seq(some(A, 1, None, "possessive"), long, B), FIRST, LAST, size)
    assert found(search, "abaab") == [(3, 5, 2)]


@pytest.mark.parametrize(
    ("fn", "type_", "expected"),
    [
        ("count", BIGINT, 3), ("sum", BIGINT, 9), ("avg", DOUBLE, 3.0), ("min", BIGINT, 2), ("max", BIGINT, 4),
        ("first_value", BIGINT, 2), ("last_value", BIGINT, 4), ("var_pop", DOUBLE, 2 / 3), ("stddev_samp", DOUBLE, 1.0),
    ],
)  # fmt: skip
def test_aggregates(fn: str, type_: SqlType, expected: Any) -> None:
    over_b = AggregateCall.matched("of", fn, (Column(BIGINT, "x"),), type_, ("B",))
    over_none = AggregateCall.matched("none", fn, (Column(BIGINT, "x"),), type_, ("C",))
    nothing = 0 if fn == "count" else None
    assert found(letters(seq(A, some(B), some(C)), over_b, over_none), "abbb") == [(pytest.approx(expected), nothing)]


def test_aggregates_that_see_the_rows_again() -> None:
    distinct = AggregateCall.matched("kinds", "count", (Column(VARCHAR, "s"),), BIGINT, distinct=True)
    least = AggregateCall.matched("least", "min", (Column(VARCHAR, "s"),), VARCHAR, ("B", "C"))
    labels = AggregateCall.matched("labels", "max", (Column(VARCHAR, CLASSIFIER),), VARCHAR)
    search = letters(seq(A, some(Either((B, C)))), LAST, distinct, least, labels, given=Given("all"))
    assert found(search, "abcb") == [(1, 1, None, "A"), (2, 2, "b", "B"), (3, 3, "b", "C"), (4, 3, "b", "C")]
    asked = replace(search, conditions=(*search.conditions[:2], ("C", call("=", Column(BIGINT, "kinds"), 3))))
    assert found(asked, "abcc")[-1] == (4, 3, "b", "C")
    assert found(asked, "acc") == [(1, 1, None, "A")]
    assert "row by row" in describe_machine(asked)


def test_all_rows() -> None:
    final = Reach("end", "x", BIGINT, final=True)
    search = letters(seq(A, Excluded(some(B)), C), LABEL, COUNT, final, MATCH_NUMBER, given=Given("all"))
    assert found(search, "abbcbac") == [("A", 1, 4, 1), ("C", 4, 4, 1), ("A", 1, 7, 2), ("C", 2, 7, 2)]
    unmatched = replace(search, given=Given("all", unmatched=True))
    assert found(unmatched, "abbcbac")[2] == (None, None, None, None)
    assert [row[2] for _, row in output(unmatched, rows_of("bac"))] == ["b", "a", "c"]


def test_all_rows_of_matches_with_no_row() -> None:
    search = letters(some(A), LABEL, MATCH_NUMBER, given=Given("all"))
    assert found(search, "ab") == [("A", 1), (None, 2)]
    assert found(replace(search, given=Given("all", empty=False)), "bab") == [("A", 2)]


def test_each_row_once() -> None:
    search = letters(seq(A, some(B, 1)), LAST, COUNT, given=Given("each"))
    assert found(search, "abbcab") == [(3, 3), (None, None), (None, None), (None, None), (6, 2), (None, None)]
    assert found(replace(search, given=Given("each", most=1)), "abbcab")[0] == (2, 2)
    assert found(replace(search, skip=Skip("next")), "abb") == [(3, 3), (None, None), (None, None)]
    seeking = replace(search, given=Given("each", seek=True), skip=Skip("next"))
    assert found(seeking, "cabb") == [(4, 3), (4, 3), (None, None), (None, None)]
    near = replace(search, given=Given("each", seek=True, most=2), skip=Skip("next"))
    assert found(near, "ccab") == [(None, None), (4, 2), (4, 2), (None, None)]


def test_partitions_are_apart_and_come_in_order_of_certainty() -> None:
    search = replace(letters(seq(A, B), FIRST, MATCH_NUMBER), keys=("k",))
    batch = Batch(
        pa.record_batch({"k": [1, 2, 2, 1, None, None], "x": [1, 2, 3, 4, 5, 6], "s": list("aabbab")}),
        np.arange(6), np.arange(6), FOREVER,
    )  # fmt: skip
    assert output(search, batch) == [(2, (2, 2, 1)), (3, (1, 1, 1)), (5, (None, 5, 1))]


def test_types_without_a_form_in_kernels() -> None:
    wide = DECIMAL(30, 2)
    input_ = Schema.of(raw=BLOB, d=wide, e=DECIMAL(9, 2))
    reaches = (
        Reach("raw", "raw", BLOB), Reach("d", "d", wide, first=True), Reach("e", "e", DECIMAL(9, 2)),
        Reach("before", "e", DECIMAL(9, 2), shift=-1), Reach("old", "raw", BLOB, ("A",), first=True),
    )  # fmt: skip
    grows = call(">", Column(DECIMAL(9, 2), "e"), Column(DECIMAL(9, 2), "before"))
    search = Search((), seq(A, some(B)), (("B", grows),), reaches, (), ("raw", "d", "e", "old"))
    rows = pa.RecordBatch.from_pylist(
        [
            {"raw": b"\x00", "d": Decimal("1e20"), "e": Decimal("1.50")},
            {"raw": None, "d": None, "e": Decimal("2.50")},
            {"raw": b"\xff", "d": Decimal(3), "e": Decimal("2.75")},
        ],
        schema=input_.arrow,
    )
    told = output(search, Batch(rows, np.arange(3), np.arange(3), FOREVER), input_)
    assert told == [(END, (b"\xff", Decimal("1e20").quantize(Decimal("0.01")), Decimal("2.75"), b"\x00"))]


def test_conditions_that_need_the_text_itself() -> None:
    search = letters(seq(A, D), LAST)
    longer = call(">", call("length", Column(VARCHAR, "s")), 1)
    search = replace(search, conditions=(*search.conditions, ("D", longer)))
    batch = rows_of("aab")
    texts = pa.array(["a", "a", "bcd"])
    batch = batch.with_rows(pa.RecordBatch.from_arrays([*batch.rows.columns[:2], texts], schema=INPUT.arrow))
    assert output(search, batch) == [(2, (3,))]
    assert "row by row" in describe_machine(search)


def test_sums_that_do_not_fit() -> None:
    total = AggregateCall.matched("total", "sum", (Column(BIGINT, "x"),), BIGINT)
    search = letters(some(D, 2, 2), total)
    batch = rows_of("dd")
    big = pa.array([2**62, 2**62])
    batch = batch.with_rows(pa.RecordBatch.from_arrays([batch.rows.column(0), big, batch.rows.column(2)], names="kxs"))
    with pytest.raises(DataError, match="does not fit"):
        output(search, batch.with_rows(batch.rows.cast(INPUT.arrow)))


def test_alternatives_that_begin_alike_are_a_tree() -> None:
    orders = Either(tuple(Sequence(order) for order in permutations((A, B, C, D))))
    program = instructions(orders, tuple("ABCD"))
    assert np.count_nonzero(program.code.reshape(-1, WIDTH)[:, 0] == TAKE) == 4 + 4 * 3 + 4 * 3 * 2 + 4 * 3 * 2
    assert found(letters(orders, FIRST), "dcbabcda") == [(1,), (5,)]


def test_the_states_of_a_permutation_are_the_sets_that_may_still_come() -> None:
    whole = Permute((A, B, C, D))
    program = instructions(whole, tuple("ABCD"))
    assert np.count_nonzero(program.code.reshape(-1, WIDTH)[:, 0] == TAKE) == 4 * 2**3
    assert found(letters(whole, FIRST), "dcbabcda") == [(1,), (5,)]
    names = tuple("ABCDEFGHIJ")
    assert len(instructions(Permute(tuple(map(Variable, names))), names)) < MOST


def test_long_patterns_are_refused() -> None:
    assert len(instructions(some(A, 1000, 1000), ("A",))) == 1001
    with pytest.raises(UnsupportedError, match="too long"):
        instructions(some(some(A, MOST // 100, MOST // 100), 200, 200), ("A",))
    with pytest.raises(UnsupportedError, match="cannot be a possessive repetition"):
        instructions(some(seq(A, B), 1, None, "possessive"), ("A", "B"))


def test_many_ways_do_not_take_for_ever() -> None:
    pattern = seq(*[some(A, 0, 1)] * 30, *[A] * 30)
    assert found(letters(pattern, LAST), "a" * 30) == [(30,)]
    nested = seq(some(some(some(A), 1), 1), B)
    assert found(letters(nested, LAST), "a" * 40 + "c") == []


SUM_OF_A = AggregateCall.matched("total", "sum", (Column(BIGINT, "x"),), BIGINT, ("A",))


def with_sum_of_a(total: int) -> Search:
    """Rows are called A or B up to a C, when the As are so much: three ways to go on for each sum that is possible."""
    any_row = call(">", Column(BIGINT, "last"), 0)
    is_end = call("and", is_letter("C"), call("=", Column(BIGINT, "total"), total))
    search = letters(seq(some(Either((A, B)), 1), C), LAST, SUM_OF_A)
    return replace(search, conditions=(("A", any_row), ("B", any_row), ("C", is_end)))


def test_too_many_ways_are_refused() -> None:
    """Tgot 56 sums of some of the numbers 1 to 10, and 211 of 1 to 20."""
    with patch.object(threads, "MOST_WAYS", 256):
        assert found(with_sum_of_a(50), "a" * 10 + "c") == [(11, 50)]
        with pytest.raises(DataError, match="more than 256 ways to match the rows"):
            found(with_sum_of_a(50), "a" * 20 + "c")


def test_many_ways_count_as_many_rows_when_it_is_time_to_compile() -> None:
    work: list[int] = []

    def form(self: jit.Compiled, rows: int) -> Any:
        work.append(rows if self.name == "run" else 0)
        return self._python()

    with patch.object(jit.Compiled, "form", form):
        assert found(with_sum_of_a(50), "a" * 20 + "c") == [(21, 50)]
    assert sum(work) > 500 > 21


def test_attempts_that_could_last_for_ever_run_at_the_same_time() -> None:
    """One attempt after the other would look at every row thousands of times when the input ends."""
    search = letters(seq(A, some(D), B), FIRST, LAST)
    assert "one pass" in describe_machine(search)
    spec = MatchSpec(INPUT, search)
    with jit.using("off"):
        assert run(spec, [rows_of("a" * 2_000).with_upto(0)]) == []
        assert run(spec, [rows_of("c" + "a" * 1_000 + "b" + "a" * 1_000).with_upto(0)]) == [(END, (2, 1_002))]


def test_partitions_that_wait_for_nothing_are_forgotten() -> None:
    search = replace(letters(seq(A, B), LAST), keys=("k",))
    kernel = MatchKernel(MatchSpec(INPUT, search), general=True)
    state = kernel.open()
    with jit.using("off"), patch.multiple("millstream.kernels.patterns.kernel", KEPT_ROWS=100, IDLE_KEYS=100):
        for start in range(0, 6_000, 600):
            keys = np.arange(start, start + 600)
            rows = pa.RecordBatch.from_arrays(
                [pa.array(keys), pa.array(keys), pa.array(["a" if key % 100 == 0 else "c" for key in keys])],
                schema=INPUT.arrow,
            )
            kernel.step(state, Batch(rows, keys, keys, start))
    assert state.keys is not None and 60 <= len(state.keys) < 1_500
    assert 60 <= len(state.log) < 800


@pytest.mark.parametrize("general", [False, True], ids=["chain", "threads"])
@pytest.mark.parametrize(("shift", "stays"), [(-1, False), (-2, True)], ids=["inside", "before"])
def test_partitions_whose_time_is_over_are_forgotten(general: bool, shift: int, stays: bool) -> None:
    """Unless their last row may be looked at from the next match: its second row looks two rows back."""
    before = Reach("before", "x", BIGINT, shift=shift)
    falls = call("<", Column(BIGINT, "at"), Column(BIGINT, "before"))
    search = Search(
        ("k",), seq(A, B, C), (("B", falls),), (Reach("at", "x", BIGINT), before), columns=("at",), within=5
    )
    kernel = MatchKernel(MatchSpec(Schema.of(k=BIGINT, x=BIGINT), search), general)
    state = kernel.open()
    with jit.using("off"), patch.multiple("millstream.kernels.patterns.kernel", KEPT_ROWS=100, IDLE_KEYS=100):
        for start in range(0, 6_000, 600):
            keys = np.arange(start, start + 600)
            rows = pa.RecordBatch.from_arrays([pa.array(keys), pa.array(keys)], schema=kernel.spec.input.arrow)
            kernel.step(state, Batch(rows, keys, keys, start))
    assert state.keys is not None
    assert (len(state.keys) == 6_000) if stays else (len(state.keys) < 1_500 and len(state.log) < 800)


def content(results: list[Batch]) -> list[Any]:
    return [
        (int(time), int(seq_), tuple(row.values()))
        for batch in results
        for time, seq_, row in zip(batch.time, batch.seq, batch.rows.to_pylist(), strict=True)
    ]


def expected(search: Search, rows: list[Arrival]) -> Any:
    """What the reference says."""
    told = []
    for key in {row["k"] for _, row in rows}:
        own = [i for i, (_, row) in enumerate(rows) if row["k"] == key]
        try:
            entries = told_when(search, [rows[i][1] for i in own], [rows[i][0] for i in own])
        except DataError:
            return "error"
        for order, (time, last, one) in enumerate(entries):
            given = (key,) if one.row is None else tuple(rows[own[one.row]][1][name] for name in COLUMNS.names)
            told.append(((time, own[last], order), (*given, *one.values)))
    return [(time, seq_, row) for (time, seq_, _), row in sorted(told, key=lambda one: one[0])]


@settings(
    phases=[Phase.generate],
    deadline=None,
    max_examples=examples(120),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(searches(ahead=False).filter(is_supported), arrivals(), st.data())
def test_the_reference_agrees(search: Search, rows: list[Arrival], data: st.DataObject) -> None:
    """Whatever the batches, and however little room and patience there is."""
    batch = events_of(rows)
    cuts = sorted({0, len(rows), *data.draw(st.lists(st.integers(0, len(rows)), max_size=8))})
    parts = [batch.slice(a, b).with_upto(rows[b - 1][0]) for a, b in pairwise(cuts)]

    def told() -> Any:
        kernel = MatchKernel(MatchSpec(COLUMNS, search), general=True)
        state = kernel.open()
        results = []
        for part in (*parts, Batch.empty(COLUMNS.arrow, FOREVER)):
            results.append(kernel.step(state, part))
            if data.draw(st.booleans()):
                state = saving.restore(kernel, saving.snapshot(kernel, state))
        return content(results)

    wanted = expected(search, rows)
    with (
        patch.multiple("millstream.kernels.patterns.kernel", KEPT_ROWS=0, IDLE_KEYS=0),
        patch.multiple("millstream.kernels.patterns.thread_state", FIRST_ROOM=1),
        jit.using("off"),
    ):
        if wanted == "error":
            with pytest.raises(DataError):
                told()
        else:
            assert told() == approximately(wanted)


def approximately(rows: list[Any]) -> list[Any]:
    def near(value: Any) -> Any:
        return pytest.approx(value) if isinstance(value, float) else value

    return [(time, seq_, tuple(map(near, row))) for time, seq_, row in rows]


def many(size: int, keys: int) -> Batch:
    chance = np.random.default_rng(5)
    walk = np.cumsum(chance.integers(-2, 3, size))
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(chance.integers(0, keys, size)), pa.array(walk, mask=chance.random(size) < 0.02),
            pa.array(chance.choice(list("abc"), size)),
        ],
        schema=INPUT.arrow,
    )  # fmt: skip
    return Batch(rows, np.arange(size), np.arange(size), FOREVER)


def compiled_searches() -> list[Search]:
    """Few, since each takes the compiler seconds, that together have every part of the generated source."""
    x, before = Column(BIGINT, "x"), Column(BIGINT, "before")
    reaches = (
        Reach("x", "x", BIGINT), Reach("before", "x", BIGINT, shift=-1), Reach("after", "x", BIGINT, shift=1),
        Reach("first", "x", BIGINT, ("A",), first=True), Reach("l1", "x", BIGINT, ("B", "C"), offset=1),
        LABEL, Reach("was", CLASSIFIER, VARCHAR, offset=1), S, Reach("fin", "x", BIGINT, ("B",), final=True),
    )  # fmt: skip
    summaries = (
        COUNT, AggregateCall.matched("total", "sum", (x,), BIGINT, ("B",)),
        AggregateCall.matched("mean", "avg", (x,), DOUBLE),
        AggregateCall.matched("low", "min", (x,), BIGINT, ("B", "C")),
        AggregateCall.matched("kinds", "count", (Column(VARCHAR, "s"),), BIGINT, distinct=True),
        AggregateCall.matched("spread", "stddev_pop", (x,), DOUBLE),
    )  # fmt: skip
    falls, rises = call("<", x, before), call("or", call(">", x, before), call("=", Column(BIGINT, "total"), 3))
    told = ("first", "l1", "n", "total", "mean", "low", "spread", MATCH_NUMBER)
    pattern = seq(A, some(Either((B, C)), 1, 20), D)
    near = call("and", call(">", x, Column(BIGINT, "first")), call("<>", Column(VARCHAR, "was"), Literal(VARCHAR, "A")))
    general = Search(
        ("k",), pattern, (("B", falls), ("C", rises), ("D", near)), (*reaches[:2], *reaches[3:]), summaries, told,
        within=3_000, timeouts=True,
    )  # fmt: skip
    every = Search(
        ("k",), seq(A, Excluded(some(B, 1, None, "possessive")), Check(call(">", Column(BIGINT, "n"), 2)), some(C)),
        (("A", is_letter("A")), ("B", call("<>", Column(VARCHAR, "s"), Literal(VARCHAR, "b"))), ("C", falls)),
        reaches, summaries, ("label", "was", "fin", "n", "kinds", "after"), Given("all", unmatched=True),
        Skip("last", ("B",)),
    )  # fmt: skip
    one_pass = Search(
        ("k",), seq(A, some(Either((B, C)), 0, None, "reluctant"), D), (("B", falls), ("D", is_letter("C"))),
        (*reaches[:2], S), (COUNT,), ("x", "n"), skip=Skip("next"),
    )  # fmt: skip
    return [general, every, one_pass]


@pytest.mark.parametrize("search", compiled_searches(), ids=["one", "all", "one pass"])
def test_compiled_equals_python(search: Search) -> None:
    batch = many(2_500, 7)
    cuts = [*range(0, 2_500, 600), 2_500]
    parts = [batch.slice(a, b).with_upto(b - 1) for a, b in pairwise(cuts)]
    spec = MatchSpec(INPUT, search)
    with jit.using("off"):
        python = run(spec, parts)
    with jit.using("on"):
        assert run(spec, parts) == python
    assert len(python) > 100


def test_the_output_has_the_types_it_promises() -> None:
    search = letters(seq(A, B), TIMED_OUT, LABEL, COUNT, MATCH_NUMBER)
    kernel = MatchSpec(INPUT, search).build()
    told = kernel.step(kernel.open(), rows_of("ab"))
    assert told.rows.schema.equals(search.output(INPUT).arrow)
    assert search.values[TIMED_OUT] == BOOLEAN
