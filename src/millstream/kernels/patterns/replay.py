"""Aggregates that see the rows of a match one after the other, computed when the match is certain."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.expressions.nodes import Expr, columns_of, told
from millstream.expressions.object_values import to_values
from millstream.kernels.accumulators.distinct import SeenValues
from millstream.kernels.accumulators.records import RecordLayout
from millstream.kernels.batch import Ints
from millstream.kernels.patterns import cell_loops as loops
from millstream.kernels.patterns.log import RowLog
from millstream.kernels.programs.engine import Engine, Running
from millstream.kernels.programs.kernel import engine_of
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.patterns.search import CLASSIFIER, MATCH_NUMBER, Search
from millstream.plan.programs.nodes import Program
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import BIGINT, VARCHAR, SqlType


@dataclass(frozen=True)
class Matches:
    """What was found, the rows of each match with their labels from `begins` on, and what comes out: of which match,
    and which row of the input (-1: none)."""

    found: Ints
    begins: Ints
    rows: Ints
    labels: Ints
    of: Ints
    at: Ints

    def chosen(self, numbers: Ints) -> Matches:
        """Some of the matches."""
        sizes = np.diff(self.begins)[numbers]
        ends = np.cumsum(sizes)
        places = np.repeat(self.begins[:-1][numbers] - (ends - sizes), sizes) + np.arange(sizes.sum())
        new = np.full(len(self.found), -1, dtype=np.int64)
        new[numbers] = np.arange(len(numbers))
        of = new[self.of]
        return Matches(
            self.found[numbers],
            np.append(0, ends),
            self.rows[places],
            self.labels[places],
            of[of >= 0],
            self.at[of >= 0],
        )


def replayed(search: Search, summary: AggregateCall[Expr], log: RowLog, matches: Matches) -> pa.Array:
    """An aggregate of each output row."""
    last = matches.begins[matches.of + 1] - 1
    if search.given.rows == "all" and not summary.final:
        last = _upto(matches)
    values = _as_of(search, summary, log, matches, last)
    if summary.program is not None or summary.fn != "count":
        return values
    is_told = matches.found[matches.of, loops.M_KIND] != loops.NO_MATCH
    return pa.compute.if_else(pa.array(is_told), values.fill_null(0), pa.scalar(None, values.type))


def summed(search: Search, summary: AggregateCall[Expr], log: RowLog, rows: Ints, labels: Ints, number: int) -> Any:
    """An aggregate over rows that have been taken so far, as a Python value."""
    found = np.zeros((1, loops.FOUND), dtype=np.int64)
    found[0, [loops.M_NUMBER, loops.M_KIND]] = number, loops.MATCH
    one = np.zeros(1, dtype=np.int64)
    matches = Matches(found, np.array([0, len(rows)]), rows, labels, one, one - 1)
    values = _as_of(search, summary, log, matches, one + len(rows) - 1)
    if summary.program is None and summary.fn == "count":
        values = values.fill_null(0)
    return to_values(values, summary.type)[0]


def read_last(search: Search, summary: AggregateCall[Expr], log: RowLog, rows: Ints) -> dict[str, Any]:
    """What an aggregate reads of the last of some rows, as it is written."""
    said = {name: told(expr) for name, expr in search.made}
    read = sorted({name for arg in summary.args for name in columns_of(arg)} & log.values.keys())
    last = rows[-1:]
    values = {said.get(name, name): log.decode(name, log.values[name][last], log.ok[name][last]) for name in read}
    return {name: column[0].as_py() for name, column in values.items() if len(column)}


def _as_of(search: Search, summary: AggregateCall[Expr], log: RowLog, matches: Matches, last: Ints) -> pa.Array:
    """Of each output row, the last value returned up to the row of the match that it goes by."""
    counts = np.diff(matches.begins)
    owner = np.repeat(np.arange(len(counts)), counts)
    member = np.ones(len(owner), dtype=np.bool_)
    if summary.variables is not None:
        numbers = [search.variables.index(one) for one in summary.variables if one in search.variables]
        member = np.isin(matches.labels >> 1, numbers)
    places = np.flatnonzero(member)
    args = _arguments(search, summary, log, matches, places, owner)
    if summary.program is None:
        values = _followed(summary, owner[places], args)
    else:
        engine = _engine(summary.program)
        none = np.zeros(len(places), dtype=np.int64)
        returned = engine.arrive(engine.open(), owner[places].astype(np.int32), none, np.arange(len(places)), args, 0)
        (values, *_) = returned.columns
        places = places if returned.origin is None else places[returned.origin]
    chosen = np.searchsorted(places, last, side="right") - 1
    known = chosen >= 0
    known[known] = places[chosen[known]] >= matches.begins[matches.of[known]]
    return values.take(pa.array(np.where(known, chosen, 0), mask=~known))


def _followed(summary: AggregateCall[Expr], owner: Ints, columns: list[pa.Array]) -> pa.Array:
    """What a built-in aggregate comes to after each row."""
    taken = None
    if summary.distinct:
        taken = np.zeros(len(owner), dtype=np.bool_)
        taken[SeenValues(summary.args[0].type).fresh(owner, columns[0])] = True
    return _layout(summary.fn, tuple(arg.type for arg in summary.args), summary.type).followed(owner, columns, taken)


@lru_cache(maxsize=64)
def _layout(fn: str, args: tuple[SqlType, ...], type_: SqlType) -> RecordLayout:
    rows = Schema(tuple(Field(f"x{i}", arg) for i, arg in enumerate(args)))
    return RecordLayout(rows, [AggregateCall((fn,), fn, rows.names, (type_,))])


def _upto(matches: Matches) -> Ints:
    """For each output row of ALL ROWS PER MATCH, its place among the rows of matches."""
    last = matches.begins[matches.of + 1] - 1
    size = len(matches.rows)
    if not size:
        return last
    # Within a match, positions rise, so that match and position together are in order.
    width = int(matches.rows.max()) + 2
    owner = np.repeat(np.arange(len(matches.begins) - 1), np.diff(matches.begins))
    found = np.searchsorted(owner * width + matches.rows, matches.of * width + matches.at)
    inside = matches.begins[matches.of + 1] > matches.begins[matches.of]
    return np.where(inside, found, last)


@lru_cache(maxsize=64)
def _engine(program: Program) -> Engine:
    """What runs an aggregate; kept, since making it takes longer than the rows of a match, and conditions ask for each
    row anew."""
    return engine_of(program, Running(bool(program.terminate)), keyed=True)


def _arguments(
    search: Search, summary: AggregateCall[Expr], log: RowLog, matches: Matches, places: Ints, owner: Ints
) -> list[pa.Array]:
    from millstream.expressions.evaluator import compile_arrow

    if not summary.args:
        return []
    read = sorted({name for arg in summary.args for name in columns_of(arg)})
    columns: list[pa.Array] = []
    fields: list[Field] = []
    rows = matches.rows[places]
    for name in read:
        if name == CLASSIFIER:
            codes = log.labels[matches.labels[places] >> 1]
            columns.append(log.texts.values(codes))
            fields.append(Field(name, VARCHAR))
        elif name == MATCH_NUMBER:
            found = matches.found[owner[places]]
            is_match = found[:, loops.M_KIND] == loops.MATCH
            columns.append(pa.array(found[:, loops.M_NUMBER], mask=~is_match))
            fields.append(Field(name, BIGINT))
        else:
            columns.append(log.decode(name, log.values[name][rows], log.ok[name][rows]))
            fields.append(Field(name, log.types[name]))
    schema = Schema(tuple(fields))
    batch = pa.RecordBatch.from_arrays(columns, schema=schema.arrow)
    if not columns:
        batch = pa.record_batch([pa.nulls(len(places), pa.bool_())], names=["row"])
    return compile_arrow(summary.args, schema)(batch)
