"""Key tables and buckets: equal keys get equal numbers, whatever their types, batches and processes."""

from __future__ import annotations

import math
import subprocess
import sys
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.kernels import jit
from millstream.kernels.keys import ByteTable, KeyTable, bucket_of
from millstream.types import (
    BIGINT,
    BLOB,
    BOOLEAN,
    DATE,
    DECIMAL,
    DOUBLE,
    INTEGER,
    NULL,
    TIME,
    TIMESTAMP,
    VARCHAR,
    SqlType,
    from_arrow,
)
from tiers import examples

VALUES: dict[SqlType, st.SearchStrategy[Any]] = {
    BIGINT: st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3),
    INTEGER: st.integers(-3, 3),
    DOUBLE: st.floats() | st.sampled_from([0.0, -0.0]),
    BOOLEAN: st.booleans(),
    VARCHAR: st.text(max_size=20) | st.sampled_from(["", "a", "12345678", "123456789"]),
    BLOB: st.binary(max_size=12),
    DATE: st.dates(),
    TIMESTAMP: st.datetimes(),
    TIME: st.times(),
    DECIMAL(9, 2): st.integers(-(10**8), 10**8).map(lambda v: Decimal(v).scaleb(-2)),
    DECIMAL(38, 2): st.integers(-(10**30), 10**30).map(lambda v: Decimal(v).scaleb(-2)),
    NULL: st.none(),
}


def plain(value: Any) -> Any:
    """A value such that equal keys are equal Python values."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


@st.composite
def key_columns(draw: st.DrawFn, types: list[SqlType], max_size: int = 30) -> list[pa.Array]:
    size = draw(st.integers(0, max_size))
    return [
        pa.array(draw(st.lists(st.none() | VALUES[type_], min_size=size, max_size=size)), type_.arrow)
        for type_ in types
    ]


def tuples(columns: list[pa.Array]) -> list[tuple[Any, ...]]:
    return [tuple(map(plain, row)) for row in zip(*(column.to_pylist() for column in columns), strict=True)]


@settings(deadline=None, max_examples=examples(80))
@given(data=st.data())
def test_slots_are_a_bijection(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    batches = data.draw(st.lists(key_columns(types), min_size=1, max_size=3))
    with jit.using("off"):
        table = KeyTable(types)
        slot_of: dict[tuple[Any, ...], int] = {}
        for columns in batches:
            before = table.lookup(columns).tolist()
            assert before == [slot_of.get(key, -1) for key in tuples(columns)]
            for key, slot in zip(tuples(columns), table.encode(columns).tolist(), strict=True):
                assert slot_of.setdefault(key, slot) == slot
        assert sorted(slot_of.values()) == list(range(len(table))) == table.live().tolist()
        found = tuples(table.keys().columns)
        assert found == [key for key, _ in sorted(slot_of.items(), key=lambda item: item[1])]
        assert [column.type for column in table.keys().columns] == [type_.arrow for type_ in types]


@settings(deadline=None, max_examples=examples(60))
@given(data=st.data())
def test_released_slots_are_used_again(data: st.DataObject) -> None:
    types = data.draw(st.sampled_from([[BIGINT], [VARCHAR], [VARCHAR, BIGINT], [DOUBLE, VARCHAR, BLOB]]))
    with jit.using("off"):
        table = KeyTable(types)
        table.encode(data.draw(key_columns(types)))
        live = table.live()
        dropped = live[np.array(data.draw(st.lists(st.booleans(), min_size=len(live), max_size=len(live))), dtype=bool)]
        kept = np.setdiff1d(live, dropped)
        kept_keys, dropped_keys = tuples(table.keys(kept).columns), table.keys(dropped).columns
        table.release(dropped)
        assert table.lookup(dropped_keys).tolist() == [-1] * len(dropped)
        assert table.live().tolist() == kept.tolist()
        assert tuples(table.keys().columns) == kept_keys
        size, count = table.size, len(table)
        table.encode(data.draw(key_columns(types, 8)))
        assert table.size == max(size, len(table)), f"{count} keys before"
        assert table.lookup(table.keys(kept).columns).tolist() == kept.tolist()
        assert tuples(table.keys(kept).columns) == kept_keys


@pytest.mark.parametrize("types", [[BIGINT], [VARCHAR], [BIGINT, VARCHAR]], ids=str)
def test_keys_come_and_go_a_few_at_a_time(types: list[SqlType]) -> None:
    """Many stay, so the index is not built anew; NULL is one of the keys."""
    chance, slot_of = np.random.default_rng(1), dict[tuple[Any, ...], int]()
    with jit.using("off"):
        table = KeyTable(types)
        for step in range(60):
            numbers = chance.integers(0, 900, 400 if step < 2 else 20)
            columns = [pa.array(numbers, mask=numbers % 300 == 0).cast(type_.arrow) for type_ in types]
            if step % 2:
                numbers = chance.choice(table.live(), 25, replace=False)
                table.release(numbers)
                slot_of = {key: slot for key, slot in slot_of.items() if slot not in numbers}
            for key, slot in zip(tuples(columns), table.encode(columns).tolist(), strict=True):
                assert slot_of.setdefault(key, slot) == slot
            assert sorted(slot_of.values()) == table.live().tolist()
            every = pa.array(range(900), mask=np.arange(900) % 300 == 0)
            columns = [every.cast(type_.arrow) for type_ in types]
            assert table.lookup(columns).tolist() == [slot_of.get(key, -1) for key in tuples(columns)]
            assert tuples(table.keys().columns) == [key for key, _ in sorted(slot_of.items(), key=lambda item: item[1])]


@pytest.mark.parametrize("types", [[BIGINT], [VARCHAR], [BIGINT, VARCHAR]], ids=str)
def test_compiled_and_parallel_equal_python(types: list[SqlType]) -> None:
    chance = np.random.default_rng(3)
    ids = pa.array(chance.integers(0, 700, 40_000), mask=chance.random(40_000) < 0.01)
    columns = [ids if type_ == BIGINT else ids.cast(pa.string()) for type_ in types]
    with jit.using("off"):
        python = KeyTable(types).encode([column.slice(0, 3_000) for column in columns])
        buckets = bucket_of([column.slice(0, 3_000) for column in columns], 7)
    for threads in (1, 4):
        with jit.using("on", threads=threads):
            table = KeyTable(types)
            assert table.encode([column.slice(0, 3_000) for column in columns]).tolist() == python.tolist()
            slots = table.encode(columns)
            assert slots.tolist() == table.lookup(columns).tolist()
            assert table.keys().take(pa.array(slots)).columns == columns
            assert bucket_of([column.slice(0, 3_000) for column in columns], 7).tolist() == buckets.tolist()


@settings(deadline=None, max_examples=examples(60))
@given(data=st.data())
def test_buckets_depend_on_values_alone(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    columns = data.draw(key_columns(types))
    count = data.draw(st.integers(1, 10))
    with jit.using("off"):
        buckets = bucket_of(columns, count).tolist()
        bucket_by_key: dict[tuple[Any, ...], int] = {}
        for i, (key, bucket) in enumerate(zip(tuples(columns), buckets, strict=True)):
            assert 0 <= bucket < count
            assert bucket_by_key.setdefault(key, bucket) == bucket
            assert bucket_of([column.slice(i, 1) for column in columns], count).tolist() == [bucket]


def test_buckets_are_the_same_in_every_process() -> None:
    program = (
        "import pyarrow as pa; from millstream.kernels.keys import bucket_of; "
        "print(bucket_of([pa.array([1, 2, None]), pa.array(['x', 'a longer text', ''])], 1000).tolist())"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[698, 720, 819]"


def test_buckets_are_even() -> None:
    for column in (pa.array(range(10_000)), pa.array([f"key-{i}" for i in range(10_000)])):
        sizes = np.bincount(bucket_of([column], 16), minlength=16)
        assert sizes.min() > 500
        assert sizes.max() < 750


@pytest.mark.parametrize(
    "column",
    [
        pa.array([i << 48 for i in range(10_000)]),
        pa.array([i << 32 for i in range(10_000)]),
        pa.array([float(i) for i in range(10_000)]),
        pa.array([f"symbol-{i:05}" for i in range(10_000)]),
        pa.array([f"{i:08}-and-a-common-end" for i in range(10_000)]),
    ],
    ids=["high bits", "middle bits", "floats", "common beginning", "common end"],
)
def test_regular_keys_do_not_crowd_the_index(column: pa.Array) -> None:
    type_ = from_arrow(column.type)
    assert type_ is not None
    table = KeyTable([type_])
    table.encode([column])
    index = table._index
    wanted = index._hash_of[: len(table)] & (len(index._index_slot) - 1)
    assert len(np.unique(wanted)) > 7_000


def test_other_encodings_of_strings_are_accepted() -> None:
    words = ["a", None, "b", "a"]
    table = KeyTable([VARCHAR])
    slots = table.encode([pa.array(words)]).tolist()
    for type_ in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        assert table.lookup([pa.array(words, type_)]).tolist() == slots


def test_string_codes_give_their_strings_back() -> None:
    table = ByteTable(VARCHAR)
    words = pa.array(["", "é", None, "𝄞 and more", "é"])
    codes = table.slots(words, add=True)
    assert table.values(codes).to_pylist() == words.to_pylist()
    assert table.values(np.array([-1, int(codes[1])])).to_pylist() == [None, "é"]
