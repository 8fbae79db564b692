"""Random well-typed expressions give the same rows in Arrow, in DuckDB and as kernel source."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest
from expression_cases import outcomes
from expression_kernels import run, source_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.errors import DataError
from millstream.expressions import duckdb_batch
from millstream.expressions.evaluator import Evaluator, compile_arrow, compile_filter
from millstream.expressions.nodes import Expr, Literal, walk
from millstream.types import BOOLEAN
from tests.support.expressions import KERNEL_SCHEMA, SCHEMA, batches, expressions, is_exact, same
from tiers import examples

BROAD = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=examples(150))


@pytest.fixture(scope="module", autouse=True)
def literal_duckdb() -> Iterator[None]:
    """DuckDB as an oracle evaluates all that is written, also what cannot matter to the result."""
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("PRAGMA disable_optimizer")
    duckdb_batch._local.connection = connection
    yield
    del duckdb_batch._local.connection
    connection.close()


def outcome(evaluate: Evaluator | duckdb_batch.DuckBatch, rows: pa.RecordBatch) -> pa.Array | DataError:
    try:
        (array,) = evaluate(rows)
    except DataError as error:
        return error
    return array


def check_against_duckdb(expr: Expr, rows: pa.RecordBatch) -> None:
    ours = outcome(compile_arrow([expr], SCHEMA), rows)
    theirs = outcome(duckdb_batch.DuckBatch([expr]), rows)
    if isinstance(ours, DataError) and any(isinstance(part, Literal) and part.value is None for part in walk(expr)):
        return  # DuckDB does not compute what stands beside a written NULL, so it may miss an error in it
    if isinstance(ours, DataError) or isinstance(theirs, DataError):
        assert isinstance(ours, DataError) and isinstance(theirs, DataError), f"{expr}\n{ours!s}\n{theirs!s}"
        return
    assert ours.type == expr.type.arrow
    assert len(ours) == rows.num_rows
    assert same(ours, theirs, is_exact(expr)), f"{expr}\n{ours}\n{theirs}"


@given(st.data())
@settings(BROAD)
def test_single_operations(data: st.DataObject) -> None:
    check_against_duckdb(data.draw(expressions(depth=1)), data.draw(batches()))


@given(st.data())
@settings(BROAD)
def test_nested_expressions(data: st.DataObject) -> None:
    check_against_duckdb(data.draw(expressions(depth=4)), data.draw(batches()))


@given(st.data())
@settings(BROAD)
def test_kernel_source(data: st.DataObject) -> None:
    expr, rows = data.draw(expressions(KERNEL_SCHEMA, depth=3)), data.draw(batches(KERNEL_SCHEMA, max_rows=4))
    kernel = source_of(expr, KERNEL_SCHEMA)
    if kernel is None or rows.num_rows == 0:
        return
    ours, our_errors = run(kernel, rows, KERNEL_SCHEMA)
    theirs, their_errors = outcomes(compile_arrow([expr], KERNEL_SCHEMA), rows, expr.type)
    for i in range(rows.num_rows):
        # A kernel does not compute a value that is NULL for another reason, so it may miss an error in it.
        missed = their_errors[i] and not our_errors[i] and not ours[i].is_valid
        assert missed or our_errors[i] == their_errors[i], f"{expr}: {kernel}"
        assert same(ours.slice(i, 1), theirs.slice(i, 1), is_exact(expr)), f"{expr}: {kernel}\n{ours[i]} {theirs[i]}"


@given(st.data())
@settings(BROAD, max_examples=examples(60))
def test_a_filter_keeps_what_is_true(data: st.DataObject) -> None:
    predicate, rows = data.draw(expressions(type_=BOOLEAN, depth=2)), data.draw(batches())
    values = outcome(compile_arrow([predicate], SCHEMA), rows)
    if not isinstance(values, DataError):
        mask = compile_filter(predicate, SCHEMA)(rows)
        assert mask.to_pylist() == [value is True for value in values.to_pylist()]


@given(st.data())
@settings(BROAD, max_examples=examples(60))
def test_rows_do_not_depend_on_their_batch(data: st.DataObject) -> None:
    """Any split of a batch gives the same rows, whatever an evaluator has met before."""
    expr, rows = data.draw(expressions(depth=3)), data.draw(batches())
    evaluate, at = compile_arrow([expr], SCHEMA), data.draw(st.integers(0, rows.num_rows))
    whole = outcome(evaluate, rows)
    parts = [outcome(evaluate, part) for part in (rows.slice(0, at), rows.slice(at))]
    if any(isinstance(part, DataError) for part in parts):
        assert isinstance(whole, DataError)
    else:
        assert same(whole, pa.concat_arrays(parts))
