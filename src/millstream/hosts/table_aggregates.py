"""Aggregates written in SQL or Python over the rows of stored tables."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.bind.programs import bind_program
from millstream.bind.tables.aggregates import RETURNED, TableAggregates, UntypedCall
from millstream.hosts.tables import TableStore
from millstream.kernels.keys import KeyTable
from millstream.kernels.programs.kernel import engine_of
from millstream.plan.programs.facts import returns_one_row
from millstream.plan.programs.modes import Closing, Running
from millstream.plan.programs.nodes import Program
from millstream.types import from_arrow

_BATCH = 1 << 18

Slots = npt.NDArray[np.int32]


def answer(query: TableAggregates, tables: TableStore) -> pa.Table:
    """The rows of a query."""
    programs, casts = _programs(query, tables)
    rows = tables.query(query.rows(casts)).combine_chunks()
    slots, count = _groups(query, rows)
    lent = {}
    for i, (call, program) in enumerate(zip(query.calls, programs, strict=True)):
        lent[f"{RETURNED}{i}"] = _returned(query, call, program, rows, slots, count)
    with tables.lent(lent):
        return tables.query(query.final.sql(dialect="duckdb"))


def _programs(query: TableAggregates, tables: TableStore) -> tuple[list[Program], dict[str, str]]:
    """The programs for the types of the arguments, and what the arguments are cast to."""
    schema = tables.schema_of(query.rows({}))
    programs: list[Program] = []
    casts: dict[str, str] = {}
    for call in query.calls:
        with query.context.blaming(call.node):
            program = bind_program(call.definition, tuple(schema[arg].type for arg in call.args), query.context)
        mode = Running(total=program.is_blocking)
        if len(query.calls) > 1 and not returns_one_row(program, mode):
            query.context.refuse(
                f"{program.name} is used together with other aggregates, but may return any number of rows",
                call.node,
                hint="use one query for each, or return exactly one row",
            )
        programs.append(program)
        casts |= {
            arg: parameter.type.duckdb
            for arg, parameter in zip(call.args, program.parameters, strict=True)
            if schema[arg].type != parameter.type
        }
    return programs, casts


def _groups(query: TableAggregates, rows: pa.Table) -> tuple[Slots, int]:
    """The group of each row, numbered in order of their first rows, and how many there are."""
    if not query.keys or not rows.num_rows:
        return np.zeros(rows.num_rows, dtype=np.int32), min(rows.num_rows, 1)
    columns = [_array(rows, key) for key in query.keys]
    table = KeyTable([type_ for column in columns if (type_ := from_arrow(column.type)) is not None])
    return table.encode(columns), table.size


def _returned(
    query: TableAggregates, call: UntypedCall, program: Program, rows: pa.Table, slots: Slots, count: int
) -> pa.Table:
    """What a call returned, beside the columns of the row that it was returned for."""
    engine = engine_of(program, Closing() if program.is_blocking else Running(), keyed=bool(query.keys))
    state = engine.open()
    args = [_array(rows, arg) for arg in call.args]
    origins, columns = [], []
    for start in range(0, rows.num_rows, _BATCH):
        end = min(start + _BATCH, rows.num_rows)
        ids = np.arange(start, end, dtype=np.int64)
        found = engine.arrive(state, slots[start:end], ids, ids, [arg.slice(start, end - start) for arg in args], start)
        origins.append(ids if found.origin is None else start + found.origin)
        columns.append(found.columns)
    if program.is_blocking and count:
        found = engine.close(state, np.arange(count, dtype=np.int64))
        assert found.origin is not None
        firsts = np.unique(slots, return_index=True)[1]
        origins.append(firsts[found.origin])
        columns.append(found.columns)
    origin = np.concatenate([np.zeros(0, dtype=np.int64), *origins])
    results = [
        pa.chunked_array([part[i] for part in columns], field.type.arrow) for i, field in enumerate(program.result)
    ]
    # groups one after the other, each as it returned
    order = np.argsort(slots[origin], kind="stable") if program.is_blocking else np.arange(len(origin))
    origin = origin[order]
    return pa.table(
        {
            "n": np.arange(len(origin)),
            "tuple": origin,
            **{name: rows.column(name).take(pa.array(origin)) for name in query.columns if name not in call.args},
            **{f"r{i}": result.take(pa.array(order)) for i, result in enumerate(results)},
        }
    )


def _array(rows: pa.Table, name: str) -> pa.Array:
    """A column in one piece."""
    chunks = rows.column(name).chunks
    return pa.concat_arrays(chunks) if chunks else pa.nulls(0, rows.column(name).type)
