"""Filters and projections that leave out the rows they cannot compute. No state, so no exchange."""

from __future__ import annotations

import json
import logging
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.arrays import to_numpy
from millstream.errors import DataError
from millstream.expressions.nodes import Call, Column, Expr, told, walk
from millstream.kernels.batch import BEGIN, Batch, Ints
from millstream.kernels.compute import Computation, ComputeStage
from millstream.kernels.relations.signs import SIGN
from millstream.plan.failed import FAILED_SCHEMA
from millstream.records import dataclass
from millstream.schema import Schema

log = logging.getLogger("millstream")


@dataclass(frozen=True)
class LenientStage:
    """A ComputeStage without the rows that it fails on; or with `failed` these rows, as text, with the reason."""

    compute: ComputeStage
    failed: bool = False

    by_instant = True
    most = 1

    @property
    def output(self) -> Schema:
        return FAILED_SCHEMA if self.failed else self.compute.output

    def numbered(self, spread: int) -> LenientStage:
        return self

    def describe(self) -> str:
        return f"{'Failed rows of' if self.failed else 'Without failing rows'}: {self.compute.describe()}"

    @cached_property
    def _computation(self) -> Computation:
        return self.compute.build()

    def step(self, batch: Batch) -> Batch:
        try:
            made = self._computation.step(batch)
        except DataError as error:
            failing = failing_places(self.compute, batch.rows)
            if not failing:
                raise
            failed = np.array(sorted(failing), np.int64)
            if self.failed:
                if SIGN.name in self.compute.input:
                    # of changes, those that a row comes with
                    failed = failed[to_numpy(batch.rows.column(SIGN.name))[failed] > 0]
                return _told(batch.take(failed), [failing[place] for place in failed])
            _warn(self, len(failed), error)
            return self._computation.step(batch.take(np.setdiff1d(np.arange(len(batch)), failed)))
        return Batch.empty(FAILED_SCHEMA.arrow, batch.upto, batch.port) if self.failed else made


def failing_places(compute: ComputeStage, rows: pa.RecordBatch) -> dict[int, Expr]:
    """The positions of rows that fail, and an expression that does. Columns count where the predicate holds."""
    from millstream.expressions.evaluator import compile_filter, failing_rows

    every = np.arange(rows.num_rows)
    found: dict[int, Expr] = {}

    def look(exprs: list[Expr], places: Ints) -> Ints:
        failing = failing_rows(exprs, rows.take(pa.array(places)), compute.input)
        for place, which in zip(*np.nonzero(failing.T), strict=True):
            found.setdefault(int(places[place]), exprs[which])
        return places[~failing.any(axis=0)]

    if compute.predicate is not None:
        every = look([compute.predicate], every)
        holds = compile_filter(compute.predicate, compute.input)
        every = every[to_numpy(holds(rows.take(pa.array(every)))).astype(bool)] if len(every) else every
    if compute.columns is not None and len(every):
        look([expr for _, expr in compute.columns], every)
    return found


def _told(batch: Batch, failing: list[Expr]) -> Batch:
    """Failed rows as what ERRORS(q) shows of them: the values that could not be computed with."""
    rows = batch.rows.to_pylist()
    reasons = [f"cannot evaluate {told(expr)}" for expr in failing]
    return failed_batch(batch, reasons, [_read(expr, row) for row, expr in zip(rows, failing, strict=True)])


def failed_batch(batch: Batch, reasons: list[str], values: list[dict[str, Any]]) -> Batch:
    """What ERRORS(q) shows of rows at their times."""
    return failed_rows(batch.time, batch.seq, reasons, values).with_upto(batch.upto)


def failed_rows(time: Ints, seq: Ints, reasons: list[str], values: list[dict[str, Any]]) -> Batch:
    """What ERRORS(q) shows of what could not be computed at these times."""
    columns = [pa.array(reasons, pa.string()), pa.array(list(map(as_text, values)), pa.string())]
    return Batch(pa.RecordBatch.from_arrays(columns, schema=FAILED_SCHEMA.arrow), time, seq, BEGIN)


def as_text(values: dict[str, Any]) -> str:
    """Values as they are shown: JSON."""
    return json.dumps(values, default=str, ensure_ascii=False)


def _read(expr: Expr, row: dict[str, Any]) -> dict[str, Any]:
    """The values that an expression reads, in the words of the query."""
    values: dict[str, Any] = {}
    flags: set[str] = set()
    for part in walk(expr):
        match part:
            case Call(fn="$total", args=(Column() as high, Column() as low, *_)):
                units = row[high.name] * 2**32 + row[low.name]
                values[told(high)] = str(Decimal(units).scaleb(-part.type.scale)) if part.type.scale else units
            case Call(fn="$sound", args=(Column() as flag, *_)):
                flags.add(flag.name)
            case Column(name=name) if name not in flags:
                values.setdefault(told(part), row[name])
    return dict(sorted(values.items()))


_warned: set[LenientStage] = set()


def _warn(stage: LenientStage, count: int, error: DataError) -> None:
    """Say once that rows are left out."""
    if stage not in _warned:
        _warned.add(stage)
        log.warning("%d row(s) left out: %s; ERRORS(query) has them", count, error.message)
