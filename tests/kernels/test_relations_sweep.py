"""Operators that sweep over relations, against SQL's answer at each instant and the papers' examples."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millstream.errors import DataError
from millstream.kernels import jit
from millstream.kernels.batch import BEGIN, FOREVER, Batch
from millstream.kernels.contract import Kernel, KernelSpec
from millstream.kernels.relations.bags import BagSpec, ToIntervalsSpec
from millstream.kernels.relations.convert import ToChangesSpec
from millstream.kernels.relations.summary import SummarySpec
from millstream.kernels.saving import states as saving
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.aggregates import result_type
from millstream.schema import Schema
from millstream.types import BIGINT, DECIMAL, DOUBLE, INTEGER, VARCHAR
from tests.support.builtin_programs import builtin_program
from tiers import examples

Row = tuple[Any, ...]
Valid = tuple[Row, int, int]
"""A row with its start and end."""

LETTERS = Schema.of(e=VARCHAR)
P1 = [("c", 1, 8), ("a", 5, 11), ("d", 6, 14), ("a", 9, 10), ("b", 12, 17)]
P2 = [("b", 1, 7), ("d", 3, 9), ("a", 4, 5), ("b", 7, 15), ("e", 10, 18)]


def letters(rows: Sequence[tuple[str, int, int]]) -> list[Valid]:
    return [((value,), start, end) for value, start, end in rows]


def relation(schema: Schema, rows: Sequence[Valid], upto: int = FOREVER, port: int = 0) -> Batch:
    columns = [pa.array([row[0][i] for row in rows], field.type.arrow) for i, field in enumerate(schema)]
    start, end = (np.array([row[i] for row in rows], dtype=np.int64) for i in (1, 2))
    zeros = np.zeros(len(rows), dtype=np.int64)
    return Batch(pa.RecordBatch.from_arrays(columns, schema=schema.arrow), start, zeros, upto, end, port)


def valid(outputs: Sequence[Batch]) -> list[Valid]:
    """What kernels gave; checks its order and that it holds no empty row."""
    found = []
    for batch in outputs:
        assert batch.other is not None
        rows = zip(*(column.to_pylist() for column in batch.rows.columns), strict=True)
        found += list(zip(rows, batch.time.tolist(), batch.other.tolist(), strict=True))
    assert [row[1] for row in found] == sorted(row[1] for row in found)
    assert all(start < end for _, start, end in found)
    return found


def run(spec: KernelSpec, *inputs: Batch) -> list[Valid]:
    kernel = spec.build()
    state = kernel.open()
    return valid([kernel.step(state, batch) for batch in inputs])


def run_as_changes(spec: KernelSpec, schema: Schema, *inputs: Batch) -> list[Valid]:
    """The same by way of changes."""
    outputs = []
    kernel = spec.build()
    state = kernel.open()
    for batch in inputs:
        converter = ToChangesSpec(schema).build()
        changes = converter.step(converter.open(), batch)
        outputs.append(kernel.step(state, changes.on_port(batch.port)))
    back = ToIntervalsSpec(Schema(spec.output.fields[:-1])).build()
    back_state = back.open()
    return valid([back.step(back_state, batch) for batch in outputs])


def snapshot(rows: Sequence[Valid], at: int) -> list[Row]:
    return [row for row, start, end in rows if start <= at < end]


def instants(*relations: Sequence[Valid]) -> list[int]:
    ends = {time for rows in relations for row in rows for time in row[1:] if time < FOREVER}
    return sorted(ends | {time - 1 for time in ends})


def same(left: Row, right: Row) -> bool:
    def equal(a: Any, b: Any) -> bool:
        if isinstance(a, float) and isinstance(b, float):
            return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9) or (math.isnan(a) and math.isnan(b))
        return bool(a == b)

    return all(map(equal, left, right))


def check(output: Sequence[Valid], meaning: Callable[..., list[Row]], *inputs: Sequence[Valid]) -> None:
    """At each instant the output is what `meaning` makes of the inputs."""
    for at in instants(output, *inputs):
        wanted = sorted(meaning(*(snapshot(rows, at) for rows in inputs)), key=repr)
        given = sorted(snapshot(output, at), key=repr)
        assert len(given) == len(wanted) and all(map(same, given, wanted)), (at, given, wanted)


def random_relation(chance: np.random.Generator, make: Callable[[], Row], size: int = 12) -> list[Valid]:
    """Ties, ends in any order, some open."""
    rows = []
    time = 0
    steady = chance.random() < 0.4
    for _ in range(chance.integers(0, size)):
        time += int(chance.choice([0, 0, 1, 2, 5]))
        length = 4 if steady else int(chance.choice([1, 2, 3, 7, 20, 0]))
        rows.append((make(), time, time + length if length else FOREVER))
    return rows


def bag(rows: Counter[Row]) -> list[Row]:
    return list(rows.elements())


MEANINGS: dict[tuple[str, bool], Callable[..., list[Row]]] = {
    ("distinct", False): lambda rows: list(set(rows)),
    ("except", True): lambda left, right: bag(Counter(left) - Counter(right)),
    ("except", False): lambda left, right: list(set(left) - set(right)),
    ("intersect", True): lambda left, right: bag(Counter(left) & Counter(right)),
    ("intersect", False): lambda left, right: list(set(left) & set(right)),
}


@pytest.mark.parametrize(("op", "every"), MEANINGS)
@pytest.mark.parametrize("form", ["intervals", "changes"])
def test_bags_mean_what_sql_says(op: Any, every: bool, form: Any) -> None:
    chance = np.random.default_rng(5)
    schema = Schema.of(x=BIGINT, s=VARCHAR)
    spec = BagSpec(schema, 1 if op == "distinct" else 2, op, every, form)

    def make() -> Row:
        return [(1, "a"), (1, None), (None, None), (2, "a")][chance.integers(4)]

    with jit.using("off"):
        for _ in range(examples(120)):
            inputs = [random_relation(chance, make) for _ in range(spec.ports)]
            batches = [relation(schema, rows, port=port) for port, rows in enumerate(inputs)]
            output = run(spec, *batches) if form == "intervals" else run_as_changes(spec, schema, *batches)
            check(output, MEANINGS[op, every], *inputs)


def spread(kind: str) -> Callable[[list[Any]], Any]:
    def compute(values: list[Any]) -> Any:
        if len(values) < (2 if kind.endswith("samp") else 1):
            return None
        known = {
            "var_pop": statistics.pvariance, "var_samp": statistics.variance, "stddev_pop": statistics.pstdev,
            "stddev_samp": statistics.stdev,
        }  # fmt: skip
        return float(known[kind]([float(value) for value in values]))

    return compute


AGGREGATES: dict[str, Callable[[list[Any]], Any]] = {
    "count": len,
    "sum": lambda values: sum(values) if values else None,
    "avg": lambda values: float(sum(values) / len(values)) if values else None,
    "min": lambda values: min(values, default=None),
    "max": lambda values: max(values, default=None),
    **{kind: spread(kind) for kind in ("var_pop", "var_samp", "stddev_pop", "stddev_samp")},
}
NUMBERS = Schema.of(k=BIGINT, i=INTEGER, b=BIGINT, f=DOUBLE, s=VARCHAR)


def call(schema: Schema, name: str, fn: str, arg: str | None = None, distinct: bool = False) -> AggregateCall:
    type_ = result_type(fn, distinct, None if arg is None else schema[arg].type)
    assert type_ is not None
    return AggregateCall((name,), fn, () if arg is None else (arg,), (type_,), distinct)


def calls_of(*given: Any) -> tuple[AggregateCall, ...]:
    return tuple(call(NUMBERS, f"c{i}", *one) for i, one in enumerate(given))


def summary(by: tuple[str, ...], calls: tuple[AggregateCall, ...]) -> Callable[[list[Row]], list[Row]]:
    def meaning(rows: list[Row]) -> list[Row]:
        groups: dict[Row, list[Row]] = {}
        for row in rows:
            groups.setdefault(tuple(row[NUMBERS.index(key)] for key in by), []).append(row)
        return [(*key, *(value(one, own) for one in calls)) for key, own in groups.items()]

    def value(one: AggregateCall, own: list[Row]) -> Any:
        if not one.args:
            return len(own)
        values = [row[NUMBERS.index(one.args[0])] for row in own]
        values = [item for item in values if item is not None]
        return AGGREGATES[one.fn](list(set(values)) if one.distinct else values)

    return meaning


def number_rows(chance: np.random.Generator) -> Callable[[], Row]:
    def make() -> Row:
        def maybe(value: Any) -> Any:
            return None if chance.random() < 0.2 else value

        small = int(chance.integers(-3, 4))
        return (
            [1, 2, None][chance.integers(3)], maybe(small), maybe(small << 40), maybe(small / 4),
            maybe("xyz"[chance.integers(3)]),
        )  # fmt: skip

    return make


CALLS = {
    "counts": [("count", None, False), ("count", "s", False), ("count", "i", True)],
    "sums": [("sum", "i", False), ("sum", "b", False), ("sum", "f", False), ("avg", "i", False), ("avg", "f", False)],
    "distinct sums": [("sum", "i", True), ("sum", "f", True), ("avg", "b", True)],
    "extremes": [("min", "i", False), ("max", "b", False), ("max", "f", False), ("min", "f", True)],
    "spreads": [("stddev_samp", "f", False), ("var_pop", "i", False), ("stddev_pop", "f", True)],
    "counts of text": [("count", "s", True), ("count", "i", True)],
    "text": [("max", "s", False), ("min", "s", False), ("count", "s", True), ("sum", "i", False)],
    "nothing": [],
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("form", ["intervals", "changes"])
def test_summaries_mean_what_sql_says(name: str, form: Any) -> None:
    chance = np.random.default_rng(6)
    calls = tuple(call(NUMBERS, f"c{i}", *given) for i, given in enumerate(CALLS[name]))
    with jit.using("off"):
        for by in [(), ("k",), ("k", "s")] if calls else [("k",)]:
            spec = SummarySpec(NUMBERS, by, calls, form)
            for _ in range(examples(25)):
                rows = random_relation(chance, number_rows(chance))
                batch = relation(NUMBERS, rows)
                output = run(spec, batch) if form == "intervals" else run_as_changes(spec, NUMBERS, batch)
                check(output, summary(by, calls), rows)


def test_which_calls_have_loops() -> None:
    def is_compiled(form: Any, *given: Any) -> bool:
        return SummarySpec(NUMBERS, ("k",), (call(NUMBERS, "c", *given),), form).is_compiled

    assert is_compiled("intervals", "max", "f")
    assert is_compiled("changes", "sum", "f", True)
    assert is_compiled("changes", "count", "s", True)
    assert is_compiled("intervals", "max", "s")
    assert is_compiled("changes", "max", "s")
    program = builtin_program("sum", INTEGER, BIGINT)
    assert not SummarySpec(NUMBERS, (), (AggregateCall(("c",), "mine", ("i",), (BIGINT,), False, program),)).is_compiled


@pytest.mark.parametrize("form", ["intervals", "changes"])
def test_programs_run_over_the_rows_of_an_instant(form: Any) -> None:
    chance = np.random.default_rng(7)
    program = builtin_program("sum", INTEGER, BIGINT)
    mine = AggregateCall(("c",), "mine", ("i",), (BIGINT,), False, program)
    meant = summary(("k",), (call(NUMBERS, "c", "sum", "i"),))
    spec = SummarySpec(NUMBERS, ("k",), (mine,), form)
    with jit.using("off"):
        for _ in range(examples(40)):
            rows = random_relation(chance, number_rows(chance))
            batch = relation(NUMBERS, rows)
            output = run(spec, batch) if form == "intervals" else run_as_changes(spec, NUMBERS, batch)
            check(output, meant, rows)


def test_converters_are_each_others_inverse() -> None:
    chance = np.random.default_rng(8)
    schema = Schema.of(x=BIGINT)
    with jit.using("off"):
        for _ in range(examples(100)):
            rows = random_relation(chance, lambda: (int(chance.integers(3)),))
            converter, back = ToChangesSpec(schema).build(), ToIntervalsSpec(schema).build()
            changes = converter.step(converter.open(), relation(schema, rows))
            check(valid([back.step(back.open(), changes)]), lambda now: now, rows)


# -- examples of the papers ---------------------------------------------------------------------------------------


def test_distinct_of_the_thesis() -> None:
    output = run(BagSpec(LETTERS, 1, "distinct"), relation(LETTERS, letters(P1)))
    assert output == letters([("c", 1, 8), ("a", 5, 11), ("d", 6, 14), ("b", 12, 17)])


def test_distinct_remembers_all_that_it_covered() -> None:
    output = run(BagSpec(LETTERS, 1, "distinct"), relation(LETTERS, letters([("b", 2, 8), ("b", 4, 9), ("b", 6, 7)])))
    assert output == letters([("b", 2, 8), ("b", 8, 9)])


def test_difference_of_the_thesis() -> None:
    one, other = relation(LETTERS, letters(P1)), relation(LETTERS, letters(P2), port=1)
    output = run(BagSpec(LETTERS, 2, "except", all=True), one, other)
    thesis = letters([("c", 1, 8), ("a", 5, 11), ("d", 9, 14), ("a", 9, 10), ("b", 15, 17)])
    check(output, lambda now: now, thesis)
    assert len(output) == len(thesis)


def test_aggregates_of_the_thesis() -> None:
    count = (call(LETTERS, "n", "count"),)
    scalar = run(SummarySpec(LETTERS, (), count), relation(LETTERS, letters(P1)))
    expected = [(1, 1, 5), (2, 5, 6), (3, 6, 8), (2, 8, 9), (3, 9, 10), (2, 10, 11), (1, 11, 12), (2, 12, 14)]
    assert scalar == [((n,), start, end) for n, start, end in [*expected, (1, 14, 17)]]
    grouped = run(SummarySpec(LETTERS, ("e",), count), relation(LETTERS, letters(P1)))
    assert grouped == [
        (("c", 1), 1, 8), (("a", 1), 5, 9), (("d", 1), 6, 14), (("a", 2), 9, 10), (("a", 1), 10, 11),
        (("b", 1), 12, 17),
    ]  # fmt: skip


def test_sums_of_the_thesis_with_numbers_for_letters() -> None:
    schema = Schema.of(e=BIGINT)
    values = {"a": 1, "b": 10, "c": 100, "d": 1000}
    rows = [((values[e],), start, end) for e, start, end in P1]
    output = run(SummarySpec(schema, (), (call(schema, "s", "sum", "e"),)), relation(schema, rows))
    assert output == [
        ((100,), 1, 5), ((101,), 5, 6), ((1101,), 6, 8), ((1001,), 8, 9), ((1002,), 9, 10), ((1001,), 10, 11),
        ((1000,), 11, 12), ((1010,), 12, 14), ((10,), 14, 17),
    ]  # fmt: skip


def test_changes_of_the_thesis() -> None:
    kernel = ToChangesSpec(LETTERS).build()
    made = kernel.step(kernel.open(), relation(LETTERS, letters(P1)))
    told = zip(*(column.to_pylist() for column in made.rows.columns), made.time.tolist(), strict=True)
    assert list(told) == [
        ("c", 1, 1), ("a", 1, 5), ("d", 1, 6), ("c", -1, 8), ("a", 1, 9), ("a", -1, 10), ("a", -1, 11), ("b", 1, 12),
        ("d", -1, 14), ("b", -1, 17),
    ]  # fmt: skip


def test_changes_of_one_instant_count_together() -> None:
    schema = Schema.of(x=BIGINT)
    spec = SummarySpec(schema, (), (call(schema, "s", "sum", "x"),), "changes")
    kernel = spec.build()
    state = kernel.open()
    rows = pa.RecordBatch.from_arrays(
        [pa.array([7, 7, -2]), pa.array([1, 1, 1], pa.int8())], schema=spec.inputs[0].arrow
    )
    zeros = np.zeros(3, dtype=np.int64)
    first = kernel.step(state, Batch(rows, np.array([0, 5, 5]), zeros, 5))
    assert first.rows.to_pylist() == [{"s": 7, "$sign": 1}]
    # 7 goes at the instant at which 7 and -2 come: nobody ever sees 14.
    gone = pa.RecordBatch.from_arrays([pa.array([7]), pa.array([-1], pa.int8())], schema=spec.inputs[0].arrow)
    second = kernel.step(state, Batch(gone, np.array([5]), zeros[:1], 6))
    assert [(row["s"], row["$sign"]) for row in second.rows.to_pylist()] == [(7, -1), (5, 1)]


# -- behaviour ----------------------------------------------------------------------------------------------------


def window(schema: Schema, columns: list[pa.Array], times: Any, size: int, parts: int) -> list[Batch]:
    """Rows as a time window makes them, in some batches."""
    rows = pa.RecordBatch.from_arrays(columns, schema=schema.arrow)
    zeros = np.zeros(len(times), dtype=np.int64)
    edges = [len(times) * part // parts for part in range(parts + 1)]
    batch = Batch(rows, times, zeros, FOREVER, times + size)
    cut = [batch.slice(a, b) for a, b in pairwise(edges)]
    return [part.with_upto(int(part.time[-1]) if i < parts - 1 else FOREVER) for i, part in enumerate(cut)]


def many(seed: int, size: int = 4_000) -> tuple[list[pa.Array], Any]:
    chance = np.random.default_rng(seed)
    numbers = chance.integers(-50, 50, size)
    nulls = chance.random(size) < 0.1
    columns = [
        pa.array(chance.integers(0, 20, size)),
        pa.array(numbers.astype(np.int32), mask=nulls),
        pa.array(numbers << 40),
        pa.array(np.where(chance.random(size) < 0.01, chance.choice([np.inf, np.nan, 1e200]), numbers / 8), mask=nulls),
        pa.array([f"v{n % 7}" for n in numbers]),
    ]
    return columns, np.cumsum(chance.integers(0, 3, size))


COMPILED: dict[str, KernelSpec] = {
    "summary": SummarySpec(NUMBERS, ("k",), calls_of(
        ("count", None), ("sum", "b"), ("avg", "f"), ("max", "f"), ("min", "i"), ("max", "s"), ("count", "s", True),
        ("stddev_samp", "f"),
    )),
    "summary as changes": SummarySpec(NUMBERS, ("k", "s"), calls_of(
        ("count", None), ("sum", "f"), ("avg", "i"), ("sum", "f", True), ("min", "f"), ("max", "f"), ("max", "b"),
    ), "changes"),
    "many extremes": SummarySpec(NUMBERS, ("k",), calls_of(
        ("min", "s"), ("max", "s"), ("max", "i"), ("min", "f"), ("max", "f"), ("min", "b"),
    )),
    "extremes as changes": SummarySpec(NUMBERS, ("k",), calls_of(
        ("min", "s"), ("max", "s"), ("max", "i"), ("min", "f"), ("count", "i"),
    ), "changes"),
    "distinct": BagSpec(Schema.of(k=BIGINT), 1, "distinct"),
    "except": BagSpec(Schema.of(k=BIGINT), 2, "except"),
    "intersect all": BagSpec(Schema.of(k=BIGINT), 2, "intersect", True),
    "except all as changes": BagSpec(Schema.of(k=BIGINT), 2, "except", True, "changes"),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_equals_python(name: str) -> None:
    spec = COMPILED[name]
    schema = NUMBERS if isinstance(spec, SummarySpec) else Schema.of(k=BIGINT)
    inputs = []
    for port in range(len(spec.inputs)):
        columns, times = many(port)
        inputs += [batch.on_port(port) for batch in window(schema, columns[: len(schema)], times, 40 + port, 3)]
    if spec.inputs[0] != schema:
        converters: dict[int, tuple[Kernel, Any]] = {}
        for i, batch in enumerate(inputs):
            if batch.port not in converters:
                converter = ToChangesSpec(schema).build()
                converters[batch.port] = (converter, converter.open())
            converter, state = converters[batch.port]
            inputs[i] = converter.step(state, batch.on_port(0)).on_port(batch.port)

    def outputs() -> list[Any]:
        kernel = spec.build()
        state = kernel.open()
        made = [kernel.step(state, batch) for batch in inputs]
        return [
            (batch.time.tolist(), None if batch.other is None else batch.other.tolist(), repr(batch.rows.to_pylist()))
            for batch in made
        ]

    with jit.using("off"):
        python = outputs()
    with jit.using("on"):
        assert outputs() == python


@pytest.mark.parametrize("form", ["intervals", "changes"])
@pytest.mark.parametrize("name", ["sums", "extremes", "distinct sums", "counts of text", "text"])
def test_state_holds_what_is_valid(name: str, form: Any) -> None:
    calls = tuple(call(NUMBERS, f"c{i}", *given) for i, given in enumerate(CALLS[name]))
    kernel = SummarySpec(NUMBERS, ("k",), calls, form).build()
    converter = ToChangesSpec(NUMBERS).build()
    state, changes = kernel.open(), converter.open()
    sizes = []
    columns, times = many(3, 1_000)
    # each key for some time only
    columns[0] = pa.array(times // 3)
    with jit.using("off"):
        for batch in window(NUMBERS, columns, times, 5, 20):
            kernel.step(state, batch if form == "intervals" else converter.step(changes, batch))
            sizes.append(len(saving.snapshot(kernel, state)))
    assert max(sizes) < 3 * np.median(sizes)


@pytest.mark.parametrize("form", ["intervals", "changes"])
@pytest.mark.parametrize("name", ["counts of text", "extremes", "distinct"])
def test_forgetting_changes_nothing(name: str, form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.kernels.relations.groups._KEYS_AT_LEAST", 0)
    monkeypatch.setattr("millstream.kernels.relations.summary_extras._TEXTS_AT_LEAST", 0)
    monkeypatch.setattr("millstream.kernels.relations.summary_rows._IDLE_ROWS", 0)
    chance = np.random.default_rng(9)
    spec: BagSpec | SummarySpec = BagSpec(NUMBERS, 1, "distinct", False, form)
    meaning = MEANINGS["distinct", False]
    if name in CALLS:
        calls = calls_of(*CALLS[name])
        spec, meaning = SummarySpec(NUMBERS, ("k",), calls, form), summary(("k",), calls)
    time = 0
    rows: list[Valid] = []
    for i in range(400):
        time += int(chance.integers(0, 2))
        # keys and strings that are never seen again after a while
        row = (time // 4, int(chance.integers(3)), None, i / 8, f"s{(time + int(chance.integers(4))) // 5}")
        rows.append((row, time, time + int(chance.integers(1, 9))))
    kernel, converter = spec.build(), ToChangesSpec(NUMBERS).build()
    back = ToIntervalsSpec(Schema(spec.output.fields[:-1])).build()
    state, changes, intervals = kernel.open(), converter.open(), back.open()
    outputs = []
    with jit.using("off"):
        for first in range(0, 400, 20):
            upto = rows[first + 20][1] if first + 20 < len(rows) else FOREVER
            batch = relation(NUMBERS, rows[first : first + 20], upto)
            if form == "intervals":
                outputs.append(kernel.step(state, batch))
            else:
                outputs.append(back.step(intervals, kernel.step(state, converter.step(changes, batch))))
    check(valid(outputs), meaning, rows)
    groups = getattr(state.groups, "keys", None)
    assert groups is not None and len(groups) < 100


def test_hot_values_do_not_hold_others_back() -> None:
    schema = Schema.of(x=BIGINT)
    # one value that is always there, and others that come and go
    times = np.arange(400, dtype=np.int64)
    values = np.where(times % 2 == 0, 0, times)
    for spec in [
        BagSpec(schema, 1, "distinct"),
        BagSpec(schema, 2, "except"),
        BagSpec(schema, 2, "except", True),
        SummarySpec(schema, ("x",), (call(schema, "m", "max", "x"),)),
        SummarySpec(schema, ("x",), (AggregateCall(("m",), "mine", ("x",), (BIGINT,), False,
                                                  builtin_program("max", BIGINT, BIGINT)),)),
    ]:  # fmt: skip
        kernel = spec.build()
        state = kernel.open()
        with jit.using("off"):
            for batch in window(schema, [pa.array(values)], times, 10, 40)[:-1]:
                made = kernel.step(state, batch)
                if len(spec.inputs) == 2:
                    made = kernel.step(state, Batch.empty(schema.arrow, batch.upto, port=1))
                assert made.upto >= batch.upto - 12


def test_distinct_is_told_at_once() -> None:
    schema = Schema.of(x=BIGINT)
    kernel = BagSpec(schema, 1, "distinct").build()
    made = kernel.step(kernel.open(), relation(schema, [((1,), 0, 100), ((2,), 3, 50)], upto=3))
    assert valid([made]) == [((1,), 0, 100)]
    assert made.upto == 3


def test_rows_wait_for_the_other_input() -> None:
    kernel = BagSpec(LETTERS, 2, "except").build()
    state = kernel.open()
    first = kernel.step(state, relation(LETTERS, letters(P1)))
    assert len(first) == 0 and first.upto == BEGIN
    second = kernel.step(state, relation(LETTERS, letters([("a", 6, 7)]), upto=9, port=1))
    assert valid([second]) == letters([("c", 1, 8), ("a", 5, 6)])
    assert second.upto == 6


def test_too_large_a_sum_is_told() -> None:
    schema = Schema.of(d=DECIMAL(18, 0))
    spec = SummarySpec(schema, (), (call(schema, "s", "sum", "d"),))
    rows = [((10**18 - 1,), 0, 5), ((10**18 - 1,), 1, 5)]
    with pytest.raises(DataError, match="sum overflows DECIMAL"):
        run(spec, relation(schema, rows))
