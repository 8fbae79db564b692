"""Random well-typed expressions give the same rows in Arrow and in DuckDB."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from millstream.errors import DataError
from millstream.physical.expressions import compile_arrow
from millstream.physical.expressions.duckdb_batch import DuckBatch
from millstream.plan.expr import Expr
from millstream.testing.expressions import SCHEMA, batches, expressions, is_exact, same

SLOW = settings(deadline=None, suppress_health_check=list(HealthCheck))


def outcome(evaluate, rows):
    try:
        (array,) = evaluate(rows)
    except DataError as error:
        return error
    return array


def check(expr: Expr, rows: pa.RecordBatch) -> None:
    evaluator = compile_arrow([expr], SCHEMA)
    assume(evaluator.paths == ("arrow",))
    ours, theirs = outcome(evaluator, rows), outcome(DuckBatch([expr]), rows)
    if isinstance(ours, DataError) or isinstance(theirs, DataError):
        assert isinstance(ours, DataError) and isinstance(theirs, DataError), f"{expr}\n{ours!s}\n{theirs!s}"
        return
    assert ours.type == expr.type.arrow
    assert same(ours, theirs, is_exact(expr)), f"{expr}\n{ours.to_pylist()}\n{theirs.to_pylist()}"


@given(st.data())
@settings(SLOW, max_examples=600)
def test_one_operation(data: st.DataObject) -> None:
    check(data.draw(expressions(depth=1)), data.draw(batches()))
