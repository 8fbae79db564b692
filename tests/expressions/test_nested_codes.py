"""Nested values as bytes: equal for equal values, and read back as they were."""

from __future__ import annotations

import random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from millstream.expressions.nested_codes import decode, encode, ordered
from millstream.types import ARRAY, DOUBLE, SqlType, parse_type

LETTERS = ["", "a", "é", "\0", "ab"]


def drawn(type_: SqlType, draw: random.Random, depth: int = 0) -> Any:
    """A value of a type, often NULL and often one that was drawn before."""
    if draw.random() < 0.2:
        return None
    few = range(draw.randrange(3))
    if type_.element is not None:
        return [drawn(type_.element, draw, depth + 1) for _ in few]
    if type_.is_map:
        return [(key, drawn(type_.parts[1], draw, depth + 1)) for key in LETTERS[: len(few)]]
    if type_.is_struct:
        return {name: drawn(part, draw, depth + 1) for name, part in type_.fields}
    plain: dict[str, list[Any]] = {"VARCHAR": LETTERS, "BLOB": [b"", b"a"], "BOOLEAN": [True, False]}
    values = plain.get(type_.name, [0, 1, -5])
    return draw.choice(values)


def assert_ordered(array: pa.Array, type_: SqlType) -> None:
    """Bytes are in DuckDB's order of the values."""
    rows = pa.table({"v": array, "o": ordered(array, type_)})
    by_value, by_bytes = (
        duckdb.from_arrow(rows).query("t", f"SELECT v FROM t ORDER BY {by}").fetchall() for by in ("v", "o")
    )
    assert [repr(v) for v in by_value] == [repr(v) for v in by_bytes]


@pytest.mark.parametrize(
    "text",
    [
        "int[]", "double[]", "varchar[]", "decimal(30, 2)[]", "boolean[]", "timestamp[]", "date[]", "blob[]",
        "struct(a int, b varchar)", "map(varchar, double)",
        "struct(a int[], b map(varchar, int)[], c struct(x varchar))",
        "struct(a uuid, b json, c ubigint)[]",
    ],
)  # fmt: skip
def test_there_and_back(text: str) -> None:
    type_ = parse_type(text)
    assert type_ is not None
    draw = random.Random(text)
    if "decimal" in text or "ubigint" in text:
        from decimal import Decimal

        values: list[Any] = [drawn(parse_type("int[]") or type_, draw) for _ in range(100)]
        if "ubigint" in text:
            values = [[{"a": None, "b": "1", "c": Decimal(2**64 - 1)}], None, [], [None]]
        else:
            values = [None if v is None else [None if x is None else Decimal(x) * 10**25 for x in v] for v in values]
    else:
        values = [drawn(type_, draw) for _ in range(200)]
    whole = pa.array(values, type_.arrow)
    for array in (whole, whole.slice(3, 50), whole.slice(0, 0)):
        codes = encode(array, type_)
        back = decode(codes, type_)
        back.validate(full=True)
        assert back.to_pylist() == array.to_pylist()
    codes, texts = encode(whole, type_).to_pylist(), [repr(value) for value in whole.to_pylist()]
    assert len({*zip(codes, texts, strict=True)}) == len(set(codes)) == len(set(texts))
    if "decimal" not in text and "ubigint" not in text:
        assert_ordered(whole, type_)
    halves = pa.concat_arrays([encode(whole.slice(0, 2), type_), encode(whole.slice(2), type_)])
    assert halves.to_pylist() == codes, "bytes do not depend on the rows beside"


def test_zero_and_nan_have_one_form() -> None:
    codes = encode(pa.array([[0.0], [-0.0], [float("nan")], [-float("nan")]]), ARRAY(DOUBLE)).to_pylist()
    assert codes[0] == codes[1] and codes[2] == codes[3] and codes[0] != codes[2]
    numbers = [0.0, 1e300, -1e-5, -3.5, float("inf"), float("nan"), -1e300]
    assert_ordered(pa.array([[number] for number in numbers]), ARRAY(DOUBLE))
