"""Joins of relations against SQL's join of what both hold at an instant."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from join_scenarios import BOTH, HOWS, LEFT, LESS, OWN, RIGHT, Rows, inputs_of, relation, relations, spec_of, specs
from kernel_scenarios import Scenario, batches

from millstream.expressions.nodes import Call, Column
from millstream.kernels import jit
from millstream.kernels.batch import BEGIN, FOREVER, Batch
from millstream.kernels.relations import join_bags, join_changes, join_intervals, join_state
from millstream.kernels.relations.join import JoinSpec
from millstream.kernels.saving import states as saving
from millstream.schema import Schema
from millstream.types import BIGINT, BOOLEAN, DOUBLE, VARCHAR
from tiers import examples


def holds(spec: JoinSpec, left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    if spec.by and (left[0] is None or left[0] != right[1]):
        return False
    return spec.residual is None or (right[0] is not None and left[1] <= right[0])


def at(rows: Rows, instant: int) -> list[tuple[Any, ...]]:
    return [values for values, start, end in rows if start <= instant < end]


def joined(spec: JoinSpec, left: list[Any], right: list[Any]) -> Counter[tuple[Any, ...]]:
    """SQL's join of two tables."""

    def result(mine: Any, theirs: Any) -> tuple[Any, ...]:
        mine, theirs = mine or (None,) * len(spec.left), theirs or (None,) * len(spec.right)
        values = {("left", field.name): value for field, value in zip(spec.left, mine, strict=True)}
        values |= {("right", field.name): value for field, value in zip(spec.right, theirs, strict=True)}
        return tuple(values[column] for column in spec.columns)

    if spec.how in ("semi", "anti"):
        chosen = [mine for mine in left if any(holds(spec, mine, r) for r in right) == (spec.how == "semi")]
        return Counter(result(mine, None) for mine in chosen)
    rows = [result(mine, theirs) for mine in left for theirs in right if holds(spec, mine, theirs)]
    if spec.how in ("left", "full"):
        rows += [result(mine, None) for mine in left if not any(holds(spec, mine, r) for r in right)]
    if spec.how in ("right", "full"):
        rows += [result(None, theirs) for theirs in right if not any(holds(spec, mine, theirs) for mine in left)]
    return Counter(rows)


def run(spec: JoinSpec, inputs: list[Batch]) -> Rows:
    """All results; they must be in order and keep their promises."""
    kernel = spec.build()
    state = kernel.open()
    rows: Rows = []
    upto, last = BEGIN, BEGIN
    for batch in inputs:
        out = kernel.step(state, batch)
        assert out.rows.schema.equals(spec.output.arrow)
        ends = out.time if out.other is None else out.other
        for values, start, end in zip(out.rows.to_pylist(), out.time.tolist(), ends.tolist(), strict=True):
            assert start >= max(upto, last)
            last = start
            rows.append((tuple(values.values()), start, end))
        assert out.upto >= upto
        upto = out.upto
    assert upto == FOREVER
    return rows


def snapshot(spec: JoinSpec, results: Rows, instant: int) -> Counter[tuple[Any, ...]]:
    """What the results say is there at an instant."""
    if spec.form == "intervals":
        return Counter(at(results, instant))
    there: Counter[tuple[Any, ...]] = Counter()
    for values, time, _ in results:
        if time <= instant:
            there[values[:-1]] += values[-1]
    return Counter({values: count for values, count in there.items() if count})


@settings(deadline=None, max_examples=examples(60))
@pytest.mark.parametrize("form", ["intervals", "changes"])
@pytest.mark.parametrize("how", HOWS)
@given(data=st.data())
def test_every_instant_is_a_join(how: str, form: str, data: st.DataObject) -> None:
    spec = data.draw(specs(how, form))
    left, right = data.draw(relations(LEFT)), data.draw(relations(RIGHT))
    inputs = data.draw(batches(Scenario(spec, inputs_of(spec, left, right, data.draw(st.booleans())))))
    with jit.using("off"), pytest.MonkeyPatch.context() as patch:
        # Few pairs at once, so that the loops stop and go on.
        for module in (join_intervals, join_changes):
            patch.setattr(module, "_PAIRS_AT_ONCE", data.draw(st.sampled_from([1, 3, 1000])))
        results = run(spec, inputs)
    assert all(start < end for _, start, end in results) or form == "changes"
    for instant in [*range(18), FOREVER - 1]:
        assert snapshot(spec, results, instant) == joined(spec, at(left, instant), at(right, instant)), instant


def many(schema: Schema, size: int, seed: int) -> Rows:
    """Rows that are valid for a while, a few at once, over so long a time that most are forgotten."""
    chance = np.random.default_rng(seed)
    rows = []
    for start in np.sort(chance.integers(0, 130, size)).tolist():
        value = {"k": int(chance.integers(0, 6)) or None, "a": int(chance.integers(0, 3)), "s": "p" * (start % 3)}
        value |= {"b": int(chance.integers(0, 3)), "u": f"q{start}"}
        rows.append((tuple(value[name] for name in schema.names), start, start + int(chance.integers(1, 5))))
    return rows


def in_turn(inputs: tuple[Batch, Batch], size: int) -> list[Batch]:
    """Batches of both inputs that promise what they can."""
    parts = []
    for batch in inputs:
        for start in range(0, len(batch), size):
            stop = min(start + size, len(batch))
            upto = int(batch.time[stop]) if stop < len(batch) else FOREVER
            parts.append((int(batch.time[start]), batch.slice(start, stop).with_upto(upto)))
    return [part for _, part in sorted(parts, key=lambda part: part[0])]


@pytest.mark.parametrize("form", ["intervals", "changes"])
@pytest.mark.parametrize("how", HOWS)
def test_long_inputs_compiled_and_restarted(how: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (join_bags, join_state):
        monkeypatch.setattr(module, "_FEW", 32)
    spec = spec_of(how, residual=LESS, form=form)
    left, right = many(LEFT, 500, 1), many(RIGHT, 500, 2)
    inputs = in_turn(inputs_of(spec, left, right), 30)
    with jit.using("off"):
        results = run(spec, inputs)
    for instant in range(0, 140, 3):
        assert snapshot(spec, results, instant) == joined(spec, at(left, instant), at(right, instant)), instant
    with jit.using("on"):
        assert Counter(run(spec, inputs)) == Counter(results)
        kernel = spec.build()
        state = kernel.open()
        again: Rows = []
        for i, batch in enumerate(inputs):
            if i % 3 == 0:
                state = saving.merge(
                    kernel, saving.split(kernel, saving.restore(kernel, saving.snapshot(kernel, state)), 3)
                )
            out = kernel.step(state, batch)
            ends = out.time if out.other is None else out.other
            values = [tuple(row.values()) for row in out.rows.to_pylist()]
            again += zip(values, out.time.tolist(), ends.tolist(), strict=True)
        assert Counter(again) == Counter(results)


@pytest.mark.parametrize("form", ["intervals", "changes"])
@pytest.mark.parametrize("how", ["inner", "full"])
def test_state_holds_what_is_valid(how: str, form: str) -> None:
    """After 30,000 rows with ever new keys, of which some 20 are valid at a time."""
    spec = spec_of(how, form=form)
    rows: list[Rows] = [[], []]
    for start in range(15_000):
        rows[0].append(((start, 1, "p"), start, start + 10))
        rows[1].append(((2, start, "q"), start + 1, start + 11))
    inputs = in_turn(inputs_of(spec, *rows), 500)
    kernel = spec.build()
    state = kernel.open()
    stored, saved, results = 0, 0, 0
    with jit.using("on"):
        for i, batch in enumerate(inputs[:-2]):
            results += len(kernel.step(state, batch))
            sides = [side.count if form == "intervals" else len(side.values) for side in state.sides]
            stored = max(stored, *sides, len(state.keys))
            if i % 10 == 0:
                saved = max(saved, len(saving.snapshot(kernel, state)))
        assert stored < 4_000
        assert saved < 200_000
        results += sum(len(kernel.step(state, batch)) for batch in inputs[-2:])
    # Each pair, and for a full join each row alone for the one instant before or after.
    pairs, alone = 15_000, 30_000
    each = 1 if form == "intervals" else 2
    assert results == each * (pairs + (alone if how == "full" else 0))
    assert sum(side.count if form == "intervals" else len(side.present()) for side in state.sides) == 0


WORD = Schema.of(w=VARCHAR)
P1 = [("c", 1, 8), ("a", 5, 11), ("d", 6, 14), ("a", 9, 10), ("b", 12, 17)]
P2 = [("b", 1, 7), ("d", 3, 9), ("a", 4, 5), ("b", 7, 15), ("e", 10, 18)]
S1 = {1: "c", 2: "aaa", 3: "aaab", 4: "aaabc", 5: "bb", 6: "bb"}
S2 = {2: "bb", 3: "bb", 4: "abc", 5: "aab", 6: "acc"}


def words(how: str) -> JoinSpec:
    return JoinSpec(WORD, WORD, ("w",), (("left", "w"),), how)


def of_instants(stream: dict[int, str], port: int, schema: Schema = WORD) -> Batch:
    """Rows of one instant each."""
    rows: Rows = [((word,), instant, instant + 1) for instant, each in stream.items() for word in each]
    return relation(schema, rows, port)


def by_instant(results: Rows) -> dict[int, str]:
    instants = {start for _, start, _ in results}
    return {instant: "".join(sorted(values[0] for values in at(results, instant))) for instant in sorted(instants)}


def test_equijoin_of_the_thesis() -> None:
    """TV-P05."""
    inputs = [relation(WORD, [((w,), s, e) for w, s, e in rows], port) for port, rows in enumerate((P1, P2))]
    assert run(words("inner"), inputs) == [(("d",), 6, 9), (("b",), 12, 15)]


@pytest.mark.parametrize(
    ("how", "expected"),
    [("semi", {3: "b", 4: "aaabc", 5: "bb"}), ("anti", {1: "c", 2: "aaa", 3: "aaa", 6: "bb"})],
)
def test_semi_and_anti_join_of_the_thesis(how: str, expected: dict[int, str]) -> None:
    """TV-D03."""
    assert by_instant(run(words(how), [of_instants(S1, 0), of_instants(S2, 1)])) == expected


def test_semi_join_does_not_multiply() -> None:
    """TV-D15: a row that two others match is there once."""
    other = Schema.of(v=VARCHAR)
    less = Call(BOOLEAN, "<=", (Column(VARCHAR, "w"), Column(VARCHAR, "v")))
    spec = JoinSpec(WORD, other, (), (("left", "w"),), "semi", less)
    assert run(spec, [of_instants({3: "a"}, 0), of_instants({3: "ab"}, 1, other)]) == [(("a",), 3, 4)]


def test_unmatched_time_is_not_cut_where_nothing_changes() -> None:
    """A row that meets two others is alone before, between and after, in one piece each, whatever batches there are."""
    left: Rows = [((1, 0, "p"), 0, 20)]
    right: Rows = [
        ((5, 1, "q"), 3, 6),
        ((5, 1, "r"), 5, 8),
        ((7, 1, "q"), 8, 9),
        ((5, 2, "q"), 10, 11),
        ((5, 1, "q"), 12, 13),
    ]
    spec = spec_of("anti")
    inputs = inputs_of(spec, left, right)
    beats = [replace(inputs[0].slice(0, 0), upto=time) for time in range(1, 20)]
    ones = [inputs[1].slice(i, i + 1).with_upto(right[i][1]) for i in range(5)]
    ends = [replace(batch.slice(0, 0), upto=FOREVER) for batch in inputs]
    results = run(spec, [inputs[0].with_upto(0), *ones[:2], *beats, *ones[2:], *ends])
    assert results == [(("p", 0), 0, 3), (("p", 0), 9, 12), (("p", 0), 13, 20)]


def test_matched_time_to_the_end_of_a_row_is_given_at_once() -> None:
    spec = spec_of("semi")
    left, right = inputs_of(spec, [((1, 0, "p"), 0, 20)], [((5, 1, "q"), 3, 30)])
    kernel = spec.build()
    state = kernel.open()
    assert len(kernel.step(state, left.with_upto(3))) == 0
    out = kernel.step(state, right.with_upto(3))
    assert (out.time.tolist(), out.other.tolist(), out.upto) == ([3], [20], 3)


def test_columns_that_no_one_reads_are_not_kept() -> None:
    spec = JoinSpec(LEFT, RIGHT, ("k",), (("right", "u"),), "inner", LESS)
    kernel = spec.build()
    state = kernel.open()
    kernel.step(state, relation(LEFT, [((1, 2, "a long text " * 1000), 0, 10)], 0))
    assert len(saving.snapshot(kernel, state)) < 8_000
    out = kernel.step(state, relation(RIGHT, [((2, 1, "q"), 4, 12)], 1))
    assert (out.rows.to_pylist(), out.time.tolist(), out.other.tolist()) == ([{"u": "q"}], [4], [10])


def test_keys_of_several_columns() -> None:
    left, right = Schema.of(k1=VARCHAR, k2=DOUBLE, a=BIGINT), Schema.of(k1=VARCHAR, k2=DOUBLE, b=BIGINT)
    spec = JoinSpec(left, right, ("k1", "k2"), (("left", "a"), ("right", "b")))
    mine: Rows = [(("x", 0.0, 1), 0, 9), (("x", None, 2), 0, 9), ((None, 1.0, 3), 0, 9), (("y", 1.0, 4), 0, 9)]
    theirs: Rows = [(("x", -0.0, 1), 1, 9), (("x", None, 2), 1, 9), ((None, 1.0, 3), 1, 9), (("y", 2.0, 4), 1, 9)]
    assert run(spec, [relation(left, mine, 0), relation(right, theirs, 1)]) == [((1, 1), 1, 9)]


def test_specs_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="not of one type"):
        JoinSpec(LEFT, Schema.of(k=VARCHAR), ("k",), OWN)
    with pytest.raises(ValueError, match="without columns"):
        JoinSpec(LEFT, RIGHT, ("k",), ())
    with pytest.raises(ValueError, match="right side of semi join"):
        JoinSpec(LEFT, RIGHT, ("k",), BOTH, "semi")
    with pytest.raises(ValueError, match="no column z"):
        JoinSpec(LEFT, RIGHT, ("k",), BOTH, residual=Call(BOOLEAN, "is_null", (Column(BIGINT, "z"),)))
