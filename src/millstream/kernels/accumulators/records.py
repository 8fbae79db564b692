"""Records of several aggregates: loops that take rows, or other records, into them, and columns of results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.errors import DataError
from millstream.kernels.accumulators import Accumulator, Place, State, Sums, entered, imports
from millstream.kernels.accumulators.columns import (
    ArgumentColumn,
    argument_arrays,
    code_table,
    result_arrays,
    result_column,
)
from millstream.kernels.batch import Ints
from millstream.kernels.jit import Compiled, as_input, compile_kernel
from millstream.kernels.keys import ByteTable
from millstream.kernels.keys.words import Bools, all_true
from millstream.kernels.source.writer import filled, indented
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.aggregates import BESIDE, KNOWN
from millstream.schema import Schema
from millstream.types import BIGINT, from_kernel

Records = npt.NDArray[np.int64]
"""one row of lanes for each record"""

Texts = Mapping[str, ByteTable]
"""the strings of a column by their codes"""

_TEXTS_AT_LEAST = 1_024
_EXTREMES_AND_EDGES = KNOWN | BESIDE | {"min", "max", "first_value", "last_value"}


class ArgumentRecord:
    """All that is kept of a call's arguments, in the lanes of each record from `start` on: states, each under a name.

    Neither the arguments' names nor the place in records is in the source of its loops, so that many queries share
    their compiled forms.
    """

    def __init__(self, args: Sequence[ArgumentColumn], states: Mapping[str, State], start: int) -> None:
        self.args, self.states, self.start = args, states, start
        lanes = [f"{name}_{lane.name}".upper() for name, state in states.items() for lane in state.lanes]
        self._lanes = {lane: i for i, lane in enumerate(lanes)}
        self.width = len(lanes)
        own = [("ints", "floats", f"at, {name.upper()}") for name in states]
        other = [("given", "fgiven", f"other, {name.upper()}") for name in states]
        self._places = [(Place.named(*one), Place.named(*two)) for one, two in zip(own, other, strict=True)]

    @cached_property
    def code_lanes(self) -> dict[int, tuple[int, ArgumentColumn]]:
        """The lanes that hold the code of an argument's string, each with the lane that is 0 as long as it does not."""
        lanes = {}
        for name, state in self.states.items():
            known = self.start + self._lanes[f"{name}_{state.lanes[0].name}".upper()]
            for lane, arg in state.holds.items():
                if isinstance(arg, ArgumentColumn) and arg.kind == "text":
                    lanes[self.start + self._lanes[f"{name}_{lane}".upper()]] = known, arg
        return lanes

    def place(self, state: str, ints: str, floats: str, base: str) -> Place:
        """Where a state is in a record that begins at `base`."""
        return Place(
            lambda lane, is_float: (
                f"{floats if is_float else ints}[{base} + {self.start + self._lanes[f'{state}_{lane}'.upper()]}]"
            )
        )

    def own(self, records: Records) -> tuple[Records, npt.NDArray[np.float64]]:
        """Its lanes of records, and the same as floats."""
        lanes = records[:, self.start : self.start + self.width]
        return lanes, lanes.view(np.float64)

    def arrays(self, columns: Sequence[pa.Array], texts: Texts) -> list[npt.NDArray[Any]]:
        """The arrays of its arguments."""
        own = {arg.name: texts[arg.column] for _, arg in self.code_lanes.values()}
        return [
            array for arg, column in zip(self.args, columns, strict=True) for array in argument_arrays(arg, column, own)
        ]

    @property
    def _array_names(self) -> list[str]:
        return [name for arg in self.args for name in arg.arrays]

    def _load(self) -> list[str]:
        return [line for arg in self.args for line in arg.load("i")]

    def _enter(self, state: State, own: Place) -> Iterable[str]:
        return entered(state, own, *((f"{arg.name}_v", f"{arg.name}_in") for arg in self.args))

    def _accumulator(self, call: AggregateCall[str]) -> Accumulator:
        return Accumulator(call.fn, tuple(self.args), call.type)

    @cached_property
    def take_rows(self) -> Compiled:
        """The loop that takes rows into the records at their places."""
        lines = ["at = places[i]", *self._load()]
        for state, (own, _) in zip(self.states.values(), self._places, strict=True):
            lines += self._enter(state, own)
        return self._loop(["places", *self._array_names, "ints", "floats"], "len(places)", lines)

    @cached_property
    def merge(self) -> Compiled:
        """The loop that takes records into others."""
        lines = ["at = targets[i]", "other = sources[i]"]
        for state, (own, other) in zip(self.states.values(), self._places, strict=True):
            lines += state.merge(own, other)
        texts = [name for arg in self.compared for name in arg.texts.split(", ")]
        given = ["targets", "sources", "given", "fgiven", *texts]
        return self._loop([*given, "ints", "floats"], "len(targets)", lines)

    @cached_property
    def compared(self) -> list[ArgumentColumn]:
        """The arguments whose strings records have."""
        return list(dict.fromkeys(arg for _, arg in self.code_lanes.values()))

    def tell(self, call: AggregateCall[str]) -> Compiled:
        """The loop that writes what a call comes to for each record; it answers the number of one whose sum is too
        large, or -1."""
        own, _ = self._places[list(self.states).index(_state_name(call))]
        lines = self._accumulator(call).result(own, "out[i]", "ok[i]", "return i")
        return self._loop(["ints", "floats", "out", "ok"], "len(out)", ["at = i", *lines], "return -1")

    def follow(self, call: AggregateCall[str]) -> Compiled:
        """The loop that takes rows into the records at their places, and writes what a call comes to after each; rows
        that are not `taken` only ask."""
        own, _ = self._places[list(self.states).index(_state_name(call))]
        lines = ["at = places[i]", *self._load(), "if taken[i]:"]
        lines += indented(self._enter(self.states[_state_name(call)], own))
        lines += self._accumulator(call).result(own, "out[i]", "ok[i]", "return i")
        given = ["places", "taken", *self._array_names, "ints", "floats", "out", "ok"]
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
        self.parts: dict[tuple[str, ...], ArgumentRecord] = {}
        self.width = 0
        for columns in dict.fromkeys(call.args for call in calls if call.args):
            self.parts[columns] = self._part(columns, [call for call in calls if call.args == columns])
            self.width += self.parts[columns].width
        self.text_lanes = {
            lane: (known, arg.column) for part in self.parts.values() for lane, (known, arg) in part.code_lanes.items()
        }
        """the lanes that have codes of strings, each with the one that is 0 as long as it has none, and the columns"""
        self._tell = {call: self.parts[call.args].tell(call) for call in calls if call.args}

    def _part(self, columns: Sequence[str], calls: Sequence[AggregateCall[str]]) -> ArgumentRecord:
        valued = any(call.fn != "count" for call in calls)
        args = tuple(
            ArgumentColumn(name, self.rows[column].type, column, valued)
            for name, column in zip(("a", "b"), columns, strict=False)
        )
        states: dict[str, State] = {}
        for call in calls:
            state, before = Accumulator(call.fn, args, call.type).state, states.get(_state_name(call))
            states[_state_name(call)] = state.joined(before) if isinstance(state, Sums) and before else state
        return ArgumentRecord(args, states, self.width)

    def new(self, length: int) -> Records:
        """Records that have seen nothing."""
        return np.zeros((length, self.width), dtype=np.int64)

    def take_rows(self, places: Ints, columns: Callable[[str], pa.Array], records: Records, texts: Texts) -> None:
        """Take rows, whose columns are told by name, into the records at their places."""
        at = _unsigned(places)
        for part in self.parts.values():
            arrays = part.arrays([columns(arg.column) for arg in part.args], texts)
            part.take_rows(len(places), at, *arrays, *part.own(records))

    def followed(self, places: Ints, columns: Sequence[pa.Array], taken: Bools | None = None) -> pa.Array:
        """What the only call comes to after each row, beginning with records of nothing: rows have places, and those
        that are not `taken` leave everything as it is."""
        (call,), (part,) = self.calls, self.parts.values()
        texts, records = self.tables(), self.new(int(places.max(initial=-1)) + 1)
        out, ok = result_arrays(call.type, len(places), call.fn != "count")
        answer = part.follow(call)(
            len(places), _unsigned(places), as_input(all_true(len(places)) if taken is None else taken),
            *part.arrays(columns, texts), *part.own(records), out, ok,
        )  # fmt: skip
        _check(call, answer)
        return result_column(call.type, out, ok, texts.get(part.args[0].column))

    def merge(self, targets: Ints, sources: Ints, given: Records, records: Records, texts: Texts) -> None:
        """Take records into others, one after the other."""
        pairs = _unsigned(targets), _unsigned(sources)
        given = as_input(given)
        for part in self.parts.values():
            strings = [array for arg in part.compared for array in texts[arg.column].arrays]
            part.merge(len(targets), *pairs, *part.own(given), *map(as_input, strings), *part.own(records))

    def columns(self, rows: Ints, records: Records, texts: Texts) -> list[pa.Array]:
        """What the calls make of groups: `rows` counts theirs."""
        return [self._column(call, rows, records, texts) for call in self.calls]

    def _column(self, call: AggregateCall[str], rows: Ints, records: Records, texts: Texts) -> pa.Array:
        if not call.args:
            return from_kernel(rows, None, BIGINT)
        part = self.parts[call.args]
        out, ok = result_arrays(call.type, len(rows), call.fn != "count")
        answer = self._tell[call](len(rows), *part.own(records), out, ok)
        _check(call, answer)
        return result_column(call.type, out, ok, texts.get(part.args[0].column))

    # -- strings ---------------------------------------------------------------------------------------------------

    def _codes(self, records: Records, column: str) -> Ints:
        """The codes of a column's strings in records."""
        lanes = ((lane, known) for lane, (known, name) in self.text_lanes.items() if name == column)
        found = [records[records[:, known] != 0, lane] for lane, known in lanes]
        return np.unique(np.concatenate(found))

    def tables(self) -> dict[str, ByteTable]:
        """Tables for the strings of columns whose codes are in records."""
        return {name: code_table(self.rows[name].type) for _, name in self.text_lanes.values()}

    def forget(self, records: Records, texts: Texts, kept: dict[str, int]) -> None:
        """Give up strings that no record has, once there may be as many of them as others; `kept` were there then."""
        for name, table in texts.items():
            if len(table) > 2 * kept.get(name, 0) + _TEXTS_AT_LEAST:
                table.release(np.setdiff1d(table.live(), self._codes(records, name)))
                kept[name] = len(table)

    def strings(self, records: Records, texts: Texts) -> list[pa.Array]:
        """The strings in records, a column for each lane that has their codes."""
        return [
            texts[name].values(np.where(records[:, known] == 1, records[:, lane], -1))
            for lane, (known, name) in self.text_lanes.items()
        ]

    def coded(self, records: Records, strings: Sequence[pa.Array], texts: Texts) -> Records:
        """The inverse: records with codes of these tables, which get to know the strings."""
        records = records.copy()
        for column, (lane, (_, name)) in zip(strings, self.text_lanes.items(), strict=True):
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
