"""Records of several aggregates: loops that take rows, or other records, into them, and columns of results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.errors import DataError
from millstream.kernels.accumulators import Accumulator, Place, State, Sums, imports
from millstream.kernels.accumulators.columns import ArgumentColumn, argument_arrays, result_arrays, result_column
from millstream.kernels.batch import Ints
from millstream.kernels.jit import Compiled, as_input, compile_kernel
from millstream.kernels.keys import ByteTable
from millstream.kernels.keys.words import Bools, all_true
from millstream.kernels.source.writer import filled, indented
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.aggregates import KNOWN
from millstream.schema import Schema
from millstream.types import BIGINT, from_kernel

Records = npt.NDArray[np.int64]
"""one row of lanes for each record"""

Texts = Mapping[str, ByteTable]
"""the strings of a column by their codes"""

_TEXTS_AT_LEAST = 1_024
_EXTREMES_AND_EDGES = KNOWN | {"min", "max", "first_value", "last_value"}


class ArgumentRecord:
    """All that is kept of an argument, in the lanes of each record from `start` on: states, each under a name.

    Neither the argument's name nor the place in records is in the source of its loops, so that many queries share their
    compiled forms.
    """

    def __init__(self, arg: ArgumentColumn, states: Mapping[str, State], start: int) -> None:
        self.arg, self.states, self.start = arg, states, start
        lanes = [f"{name}_{lane.name}".upper() for name, state in states.items() for lane in state.lanes]
        self._lanes = {lane: i for i, lane in enumerate(lanes)}
        self.width = len(lanes)
        own = [("ints", "floats", f"at, {name.upper()}") for name in states]
        other = [("given", "fgiven", f"other, {name.upper()}") for name in states]
        self._places = [(Place.named(*one), Place.named(*two)) for one, two in zip(own, other, strict=True)]

    @property
    def code_lanes(self) -> list[int]:
        """The lanes that hold the code of a string if the one before it is not 0."""
        if self.arg.kind != "text":
            return []
        held = (name for name, state in self.states.items() if not isinstance(state, Sums))
        return [self.start + self._lanes[f"{name}_{self.states[name].lanes[1].name}".upper()] for name in held]

    def own(self, records: Records) -> tuple[Records, npt.NDArray[np.float64]]:
        """Its lanes of records, and the same as floats."""
        lanes = records[:, self.start : self.start + self.width]
        return lanes, lanes.view(np.float64)

    def arrays(self, column: pa.Array, texts: Texts) -> list[npt.NDArray[Any]]:
        """The arrays of its argument."""
        return argument_arrays(self.arg, column, {self.arg.name: texts[self.arg.column]} if self.code_lanes else {})

    @cached_property
    def take_rows(self) -> Compiled:
        """The loop that takes rows into the records at their places."""
        lines = ["at = places[i]", *self.arg.load("i")]
        for state, (own, _) in zip(self.states.values(), self._places, strict=True):
            lines += state.enter(own, "a_v", "a_in")
        return self._loop(["places", *self.arg.arrays, "ints", "floats"], "len(places)", lines)

    @cached_property
    def merge(self) -> Compiled:
        """The loop that takes records into others."""
        lines = ["at = targets[i]", "other = sources[i]"]
        for state, (own, other) in zip(self.states.values(), self._places, strict=True):
            lines += state.merge(own, other)
        texts = self.arg.texts.split(", ") if self.code_lanes else []
        given = ["targets", "sources", "given", "fgiven", *texts]
        return self._loop([*given, "ints", "floats"], "len(targets)", lines)

    def tell(self, call: AggregateCall[str]) -> Compiled:
        """The loop that writes what a call comes to for each record; it answers the number of one whose sum is too
        large, or -1."""
        own, _ = self._places[list(self.states).index(_state_name(call))]
        lines = Accumulator(call.fn, self.arg, call.type).result(own, "out[i]", "ok[i]", "return i")
        return self._loop(["ints", "floats", "out", "ok"], "len(out)", ["at = i", *lines], "return -1")

    def follow(self, call: AggregateCall[str]) -> Compiled:
        """The loop that takes rows into the records at their places, and writes what a call comes to after each; rows
        that are not `taken` only ask."""
        own, _ = self._places[list(self.states).index(_state_name(call))]
        lines = ["at = places[i]", *self.arg.load("i"), "if taken[i]:"]
        lines += indented(self.states[_state_name(call)].enter(own, "a_v", "a_in"))
        lines += Accumulator(call.fn, self.arg, call.type).result(own, "out[i]", "ok[i]", "return i")
        given = ["places", "taken", *self.arg.arrays, "ints", "floats", "out", "ok"]
        return self._loop(given, "len(places)", lines, "return -1")

    def _loop(self, parameters: list[str], rows: str, lines: Iterable[str], last: str = "return 0") -> Compiled:
        lanes = "".join(f"{lane} = {i}\n" for lane, i in self._lanes.items())
        head = f"{lanes}\n\ndef run({', '.join(parameters)}):\n    for i in range({rows}):\n"
        text = filled(f"{head}        <lines>\n    {last}\n", lines=lines)
        return compile_kernel(f"{imports(text)}\n{text}", "run")


class RecordLayout:
    """What calls of built-in aggregates need to know of rows, each once."""

    def __init__(self, rows: Schema, calls: Sequence[AggregateCall[str]]) -> None:
        self.rows, self.calls = rows, calls
        self.parts: dict[str, ArgumentRecord] = {}
        self.width = 0
        for column in dict.fromkeys(call.arg for call in calls if call.arg is not None):
            self.parts[column] = self._part(column, [call for call in calls if call.arg == column])
            self.width += self.parts[column].width
        self.text_lanes = {lane: part.arg.column for part in self.parts.values() for lane in part.code_lanes}
        """the lanes that have codes of strings, and the columns of these"""
        self._tell = {call: self.parts[call.arg].tell(call) for call in calls if call.arg is not None}

    def _part(self, column: str, calls: Sequence[AggregateCall[str]]) -> ArgumentRecord:
        arg = ArgumentColumn("a", self.rows[column].type, column, any(call.fn != "count" for call in calls))
        states: dict[str, State] = {}
        for call in calls:
            state, before = Accumulator(call.fn, arg, call.type).state, states.get(_state_name(call))
            states[_state_name(call)] = state.joined(before) if isinstance(state, Sums) and before else state
        return ArgumentRecord(arg, states, self.width)

    def new(self, length: int) -> Records:
        """Records that have seen nothing."""
        return np.zeros((length, self.width), dtype=np.int64)

    def take_rows(self, places: Ints, columns: Callable[[str], pa.Array], records: Records, texts: Texts) -> None:
        """Take rows, whose columns are told by name, into the records at their places."""
        at = _unsigned(places)
        for part in self.parts.values():
            part.take_rows(len(places), at, *part.arrays(columns(part.arg.column), texts), *part.own(records))

    def followed(self, places: Ints, column: pa.Array, taken: Bools | None = None) -> pa.Array:
        """What the only call comes to after each row, beginning with records of nothing: rows have places, and those
        that are not `taken` leave everything as it is."""
        (call,), (part,) = self.calls, self.parts.values()
        texts, records = self.tables(), self.new(int(places.max(initial=-1)) + 1)
        out, ok = result_arrays(call.type, len(places), call.fn != "count")
        answer = part.follow(call)(
            len(places), _unsigned(places), as_input(all_true(len(places)) if taken is None else taken),
            *part.arrays(column, texts), *part.own(records), out, ok,
        )  # fmt: skip
        _check(call, answer)
        return result_column(call.type, out, ok, texts.get(part.arg.column))

    def merge(self, targets: Ints, sources: Ints, given: Records, records: Records, texts: Texts) -> None:
        """Take records into others, one after the other."""
        pairs = _unsigned(targets), _unsigned(sources)
        given = as_input(given)
        for part in self.parts.values():
            strings = texts[part.arg.column].arrays if part.code_lanes else ()
            part.merge(len(targets), *pairs, *part.own(given), *map(as_input, strings), *part.own(records))

    def columns(self, rows: Ints, records: Records, texts: Texts) -> list[pa.Array]:
        """What the calls make of groups: `rows` counts theirs."""
        return [self._column(call, rows, records, texts) for call in self.calls]

    def _column(self, call: AggregateCall[str], rows: Ints, records: Records, texts: Texts) -> pa.Array:
        if call.arg is None:
            return from_kernel(rows, None, BIGINT)
        part = self.parts[call.arg]
        out, ok = result_arrays(call.type, len(rows), call.fn != "count")
        answer = self._tell[call](len(rows), *part.own(records), out, ok)
        _check(call, answer)
        return result_column(call.type, out, ok, texts.get(part.arg.column))

    # -- strings ---------------------------------------------------------------------------------------------------

    def _codes(self, records: Records, column: str) -> Ints:
        """The codes of a column's strings in records."""
        found = [records[records[:, lane - 1] != 0, lane] for lane, name in self.text_lanes.items() if name == column]
        return np.unique(np.concatenate(found))

    def tables(self) -> dict[str, ByteTable]:
        """Tables for the strings of columns whose codes are in records."""
        return {name: ByteTable(self.rows[name].type) for name in self.text_lanes.values()}

    def forget(self, records: Records, texts: Texts, kept: dict[str, int]) -> None:
        """Give up strings that no record has, once there may be as many of them as others; `kept` were there then."""
        for name, table in texts.items():
            if len(table) > 2 * kept.get(name, 0) + _TEXTS_AT_LEAST:
                table.release(np.setdiff1d(table.live(), self._codes(records, name)))
                kept[name] = len(table)

    def strings(self, records: Records, texts: Texts) -> list[pa.Array]:
        """The strings in records, a column for each lane that has their codes."""
        return [
            texts[name].values(np.where(records[:, lane - 1] == 1, records[:, lane], -1))
            for lane, name in self.text_lanes.items()
        ]

    def coded(self, records: Records, strings: Sequence[pa.Array], texts: Texts) -> Records:
        """The inverse: records with codes of these tables, which get to know the strings."""
        records = records.copy()
        for column, (lane, name) in zip(strings, self.text_lanes.items(), strict=True):
            records[:, lane] = texts[name].slots(column, add=True)
        return records


def _state_name(call: AggregateCall[str]) -> str:
    """The same for calls of one argument that share a state."""
    return call.fn if call.fn in _EXTREMES_AND_EDGES else "sums"


def _check(call: AggregateCall[str], answer: int) -> None:
    """What a loop that writes results answered."""
    if answer >= 0:
        raise DataError(f"sum overflows {call.type}", detail=call.told, hint="cast its argument to DOUBLE")


def _unsigned(places: Ints) -> npt.NDArray[np.uint64]:
    """Places as numbers that the compiler need not ask whether they count from the end."""
    return as_input(places).view(np.uint64)
