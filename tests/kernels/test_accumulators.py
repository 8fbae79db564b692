"""Laws of the aggregates: however values are divided between records, and compiled or not, they come to the same."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.kernels.accumulators import Accumulator, Argument, Place, entered, imports
from millstream.kernels.jit import Compiled, compile_kernel, using
from millstream.kernels.source.writer import indented
from millstream.plan.aggregates import BESIDE, result_type
from millstream.types import BIGINT, DECIMAL, DOUBLE, INTEGER, VARCHAR
from tiers import examples

_TYPES = {"int": INTEGER, "wide": BIGINT, "decimal": DECIMAL(18, 2), "float": DOUBLE, "text": VARCHAR}
_ANY = ("count", "min", "max", "first_value", "last_value", "first_known", "last_known", "max_by", "min_by")
_NUMERIC = ("sum", "avg", "var_samp", "var_pop", "stddev_samp", "stddev_pop")
_CASES = [(kind, fn) for kind in _TYPES for fn in (*_ANY, *(_NUMERIC if kind != "text" else ()))]

_WORDS = ["", "a", "ab", "b", "ba", "é", "zz", "z"]
_NEAR = st.floats(-1e6, 1e6).map(lambda x: round(x * 2**30) / 2**30)
"""floats whose sums are exact"""
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-(2**31), 2**31 - 1),
    "wide": st.integers(-(2**40), 2**40),
    "decimal": st.integers(-(10**12), 10**12),
    "float": _NEAR | st.sampled_from([math.nan, math.inf, -math.inf, 1e200, 1e16, -1e16]),
    "text": st.integers(0, len(_WORDS) - 1),
}


def _accumulator(kind: str, fn: str) -> Accumulator:
    if fn in BESIDE:
        return Accumulator(fn, (Argument("b", BIGINT), Argument("a", _TYPES[kind])), BIGINT)
    type_ = result_type(fn, False, _TYPES[kind])
    assert type_ is not None
    return Accumulator(fn, (Argument("a", _TYPES[kind]),), type_)


def _source(accumulators: tuple[Accumulator, ...]) -> str:
    """A loop that takes rows into the records of their parts, which are then merged in their order."""
    enter, merge, result, start = [], [], [], 0
    for i, of in enumerate(accumulators):
        first, own = (Place.numbered("ints", "floats", f"{base}{start}", of.state) for base in ("", "at + "))
        out = f"{'fout' if of.type == DOUBLE else 'out'}[{i}]"
        # beside a value is its place, every fifth one is NULL
        beside = [("i", "i % 5 != 3")] if of.fn in BESIDE else []
        enter += entered(of.state, own, *beside, ("values[i]", "known[i]"))
        merge += of.state.merge(first, own)
        result += of.result(first, out, f"ok[{i}]", f"too_large[{i}] = True")
        start += len(of.state.lanes)
    text = f"""\
def run(parts, values, known, ints, floats, out, fout, ok, too_large, a_starts, a_lengths, a_arena):
    for i in range(len(values)):
        at = parts[i] * {start}
{chr(10).join(indented(enter, 2))}
    for part in range(1, len(ints) // {start}):
        at = part * {start}
{chr(10).join(indented(merge, 2))}
{chr(10).join(indented(result))}
"""
    return f"{imports(text)}\n{text}"


@cache
def _loop(accumulators: tuple[Accumulator, ...]) -> Compiled:
    """It is kept, so that it is generated and loaded once for all examples."""
    return compile_kernel(_source(accumulators), "run")


def _run_all(accumulators: tuple[Accumulator, ...], parts: list[int], values: list[Any]) -> list[Any]:
    is_float = accumulators[0].args[-1].is_float
    numbers = np.array([0 if v is None else v for v in values], dtype=np.float64 if is_float else np.int64)
    known = np.array([v is not None for v in values], dtype=np.bool_)
    lanes = sum(len(of.state.lanes) for of in accumulators)
    ints = np.zeros((max(parts, default=0) + 1) * lanes, dtype=np.int64)
    out, ok, too_large = (np.zeros(len(accumulators), dtype=dtype) for dtype in (np.int64, np.bool_, np.bool_))
    ok[:] = True
    encoded = [word.encode() for word in _WORDS]
    lengths = np.array([len(word) for word in encoded], dtype=np.int64)
    texts = (np.cumsum(lengths) - lengths, lengths, np.frombuffer(b"".join(encoded), dtype=np.uint8).copy())
    _loop(accumulators)(
        len(values), np.array(parts, dtype=np.int64), numbers, known, ints, ints.view(np.float64), out,
        out.view(np.float64), ok, too_large, *texts,
    )  # fmt: skip
    results = (out.view(np.float64) if of.type == DOUBLE else out for of in accumulators)
    return ["too large" if too_large[i] else result[i].item() if ok[i] else None for i, result in enumerate(results)]


def _run(of: Accumulator, parts: list[int], values: list[Any]) -> Any:
    return _run_all((of,), parts, values)[0]


def _same(left: Any, right: Any) -> bool:
    return left == right or (left != left and right != right)


@pytest.mark.parametrize(("kind", "fn"), _CASES)
def test_merged_parts_are_one_pass(kind: str, fn: str) -> None:
    of = _accumulator(kind, fn)

    @settings(max_examples=examples(60), deadline=None)
    @given(values=st.lists(st.none() | _VALUES[kind], max_size=20), cuts=st.lists(st.integers(0, 3), max_size=20))
    def law(values: list[Any], cuts: list[int]) -> None:
        parts = sorted((cuts + [0] * len(values))[: len(values)])
        with using(mode="off"):
            assert _same(_run(of, parts, values), _run(of, [0] * len(values), values))

    law()


@pytest.mark.parametrize("kind", _TYPES)
def test_compiled_is_python(kind: str) -> None:
    accumulators = tuple(_accumulator(kind, fn) for other, fn in _CASES if other == kind)

    @settings(max_examples=examples(30), deadline=None)
    @given(values=st.lists(st.none() | _VALUES[kind], max_size=12))
    def law(values: list[Any]) -> None:
        parts = [i * 3 // max(1, len(values)) for i in range(len(values))]
        with using(mode="off"):
            plain = _run_all(accumulators, parts, values)
        with using(mode="on"):
            assert all(map(_same, _run_all(accumulators, parts, values), plain))

    law()


@pytest.mark.parametrize("kind", _TYPES)
@settings(max_examples=examples(30), deadline=None)
@given(data=st.data())
def test_the_value_beside_the_first_of_equal_ones(kind: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | _VALUES[kind], max_size=12).map(lambda drawn: [*drawn, *drawn]))
    places = [i for i, value in enumerate(values) if value is not None and i % 5 != 3]

    def key(i: int) -> Any:
        return _WORDS[values[i]].encode() if kind == "text" else (values[i] != values[i], values[i])

    with using(mode="off"):
        for fn, choose in (("max_by", max), ("min_by", min)):
            wanted = choose(places, key=key) if places else None
            assert _run(_accumulator(kind, fn), [0] * len(values), values) == wanted


def _exactly(fn: str, values: list[Fraction]) -> float | None:
    if fn in ("sum", "avg"):
        return float(sum(values) / (len(values) if fn == "avg" else 1)) if values else None
    if len(values) < (2 if fn.endswith("samp") else 1):
        return None
    variance = (statistics.variance if fn.endswith("samp") else statistics.pvariance)(values)
    return math.sqrt(variance) if fn.startswith("stddev") else float(variance)


@pytest.mark.parametrize("fn", _NUMERIC)
@settings(max_examples=examples(60), deadline=None)
@given(values=st.lists(st.none() | _NEAR, max_size=20))
def test_of_floats_is_exact(fn: str, values: list[Any]) -> None:
    with using(mode="off"):
        got = _run(_accumulator("float", fn), [0] * len(values), values)
    wanted = _exactly(fn, [Fraction(v) for v in values if v is not None])
    if wanted is None:
        assert got is None
    elif fn == "sum":
        assert got == wanted
    else:
        assert math.isclose(got, wanted, rel_tol=1e-14, abs_tol=1e-25)


def test_digits_that_a_large_value_hides_come_back() -> None:
    total = _accumulator("float", "sum")
    for values in ([1e16, 1.0, 1.0, -1e16], [1.0, 1e16, -1e16, 1.0], [1e300, 2.0, -1e300]):
        with using(mode="off"):
            assert _run(total, [0] * len(values), values) == 2.0
            assert _run(total, list(range(len(values))), values) == 2.0


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e250, max_value=1e250), max_size=15))
def test_any_floats_are_summed_as_closely_as_a_hundred_digits_allow(values: list[float]) -> None:
    with using(mode="off"):
        got = _run(_accumulator("float", "sum"), [0] * len(values), values)
    size = math.fsum(map(abs, values))
    assert got is None if not values else abs(got - math.fsum(values)) <= size * 2.0**-95 + abs(got) * 2.0**-52


def test_a_sum_too_large_for_its_type_is_noticed() -> None:
    with using(mode="off"):
        assert _run(_accumulator("wide", "sum"), [0, 0, 0], [2**62, 2**62, -1]) == 2**63 - 1
        assert _run(_accumulator("wide", "sum"), [0, 1], [2**62, 2**62]) == "too large"
        assert _run(_accumulator("decimal", "sum"), [0, 1], [10**17 * 9, 10**17]) == "too large"


@pytest.mark.parametrize("kind", ["int", "wide", "decimal", "float"])
@pytest.mark.parametrize("fn", ["count", *_NUMERIC])
def test_what_left_leaves_no_trace(kind: str, fn: str) -> None:
    of = _accumulator(kind, fn)
    at = Place.local("t_")
    text = f"""\
def run(values, entering):
    ok = True
    out = 0
{chr(10).join(indented(of.state.begin(at)))}
    for i in range(len(values)):
        if entering[i]:
{chr(10).join(indented(of.state.enter(at, "values[i]"), 3))}
        else:
{chr(10).join(indented(of.state.leave(at, "values[i]"), 3))}
{chr(10).join(indented(of.result(at, "out", "ok", "return 1, False")))}
    return out, ok
"""
    namespace: dict[str, Any] = {}
    exec(imports(text) + text, namespace)
    run: Callable[..., Any] = namespace["run"]
    rng = np.random.default_rng(7)
    for _ in range(20):
        kept, gone = (rng.integers(-(10**6), 10**6, size=count) for count in rng.integers(0, 6, size=2))
        if kind == "float":
            kept, gone = kept / 1024.0, gone / 1024.0
        together = np.concatenate([kept, gone, gone])
        entering = np.arange(len(together)) < len(kept) + len(gone)
        value, ok = run(together.tolist(), entering)
        wanted, known = run(kept.tolist(), entering[: len(kept)] | True)
        assert bool(ok) == bool(known)
        assert not ok or value == wanted
