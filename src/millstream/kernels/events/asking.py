"""What has no form in loops, evaluated in columns: loops ask about many pairs of instances and events at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.errors import DataError
from millstream.expressions.evaluator import compile_arrow
from millstream.expressions.nodes import Column, Expr
from millstream.expressions.object_values import to_arrow, to_values
from millstream.expressions.python_calls import calls_python
from millstream.kernels.batch import Ints
from millstream.kernels.events import questions as Q
from millstream.kernels.events.instances import Codes
from millstream.kernels.patterns.coding import decode, encode, is_odd
from millstream.kernels.source.objects import compile_objects
from millstream.schema import Field, Schema
from millstream.types import BIGINT, SqlType

Asked = tuple[Expr, tuple[Column, ...]]
"""an expression, and the columns that it reads"""

_ROWS, _MOST_ROWS = 1_024, 65_536
"""of the table, at first, and at most unless one event asks more"""

_FIRST, _FURTHEST = 64, 4_096
"""how many events ahead loops ask, at first and at most"""

_FEW = 256
"""Fewer questions than that are answered faster one by one than by a query of DuckDB."""


class Asking:
    """What an automaton asks, compiled."""

    def __init__(self, asked: Sequence[Asked]) -> None:
        self._answers = [_answers(expr, read) for expr, read in asked]
        self._types = [[column.type for column in read] for _, read in asked]
        self._results = [expr.type for expr, _ in asked]
        self.width = Q.ARGUMENTS + max(1, *(len(read) for _, read in asked))

    def answered(self, number: int, rows: Ints, codes: Codes) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """The values of an expression for questions about it, and which are not NULL."""
        columns = []
        for place, type_ in enumerate(self._types[number] or [BIGINT]):
            words = rows[:, Q.ARGUMENTS + place]
            values = words.view(np.float64) if type_.kernel == "float64" else words
            ok = (rows[:, Q.NULLS] >> place) & 1 == 0
            values = values != 0 if type_.kernel == "bool" else values
            columns.append(decode(values, ok, type_, codes.texts, _table(type_, codes)))
        type_ = self._results[number]
        return encode(self._answers[number](columns), type_, codes.texts, _table(type_, codes))


class Answers:
    """The questions of one call of a loop, with their answers."""

    def __init__(self, asking: Asking, codes: Codes) -> None:
        self._asking = asking
        self._codes = codes
        self._counts: Ints = np.zeros(Q.COUNTS, dtype=np.int64)
        self._furthest = _FURTHEST
        self._ahead, self._until, self._stops, self._cleared_at = _FIRST, -1, 0, -1
        self._clear(_ROWS)

    def _clear(self, rows: int) -> None:
        self._table: Ints = np.zeros((rows + 1, self._asking.width), dtype=np.int64)
        self._opened: Ints = np.zeros(rows, dtype=np.int64)
        self._counts[:] = 0

    @property
    def arrays(self) -> tuple[Any, ...]:
        """What loops take besides everything else."""
        return self._table, self._table.view(np.float64), self._opened, self._counts

    @property
    def are_wanted(self) -> bool:
        """Whether a loop stopped because there is an answer that it does not have."""
        return bool(self._counts[Q.OPENED] or self._counts[Q.FULL])

    def give(self, look: Callable[..., int], given: tuple[Any, ...], at: int, stop: int) -> None:
        """Answer what is asked about the event at which a loop stopped, and what will be asked about events behind it
        by the instances that there are: a few if only new instances can ask more, else many."""
        if self._counts[Q.FULL]:
            rows = len(self._table) - 1
            self._clear(2 * rows if rows < _MOST_ROWS or self._cleared_at == at else rows)
            self._cleared_at = self._until = at
        ahead = min(_FIRST, self._ahead)
        if at < self._until:
            self._stops += 1
        else:
            # where instances change often, what is asked ahead is of little use
            useful = 4 * self._stops <= self._ahead
            self._ahead = max(1, min(2 * self._ahead if useful else self._ahead // 2, self._furthest))
            ahead, self._stops = self._ahead, 0
        try:
            self._ask(look, given, at, min(at + ahead, stop))
        except DataError:
            # instances may never meet the event for which a condition fails
            self._clear(len(self._table) - 1)
            self._furthest = self._ahead = 1
            self._until = at
            self._ask(look, given, at, at + 1)

    def _ask(self, look: Callable[..., int], given: tuple[Any, ...], at: int, stop: int) -> None:
        self._until = max(self._until, look(at, stop, *given, *self.arrays))
        opened = self._opened[: int(self._counts[Q.OPENED])]
        numbers = self._table[opened, Q.NUMBER]
        for number in np.unique(numbers).tolist():
            rows = opened[numbers == number]
            values, ok = self._asking.answered(number, self._table[rows], self._codes)
            told = values.astype(np.float64).view(np.int64) if values.dtype == np.float64 else values
            self._table[rows, Q.ANSWER] = told
            self._table[rows, Q.TOLD] = np.where(ok, Q.KNOWN, Q.IS_NULL)
        self._counts[Q.OPENED] = self._counts[Q.FULL] = 0


def _table(type_: SqlType, codes: Codes) -> Any:
    return codes.table(type_) if is_odd(type_) else None


def _answers(expr: Expr, read: tuple[Column, ...]) -> Callable[[list[pa.Array]], pa.Array]:
    """An expression as a function of columns."""
    read = read or (Column(BIGINT, ""),)
    schema = Schema(tuple(Field(column.name, column.type) for column in read))
    evaluate = compile_arrow((expr,), schema)
    row = {column.name: place for place, column in enumerate(read)}
    one = None
    if "duckdb" in evaluate.paths and not calls_python(expr):
        one = compile_objects(expr, lambda _, part: f"row[{row[part.name]}]")

    def answers(columns: list[pa.Array]) -> pa.Array:
        if one is not None and len(columns[0]) < _FEW:
            values = [to_values(column, given.type) for column, given in zip(columns, read, strict=True)]
            return to_arrow([one(each) for each in zip(*values, strict=True)], expr.type)
        return evaluate(pa.RecordBatch.from_arrays(columns, schema=schema.arrow))[0]

    return answers
