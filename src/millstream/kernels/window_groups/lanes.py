"""What is kept of an argument in each entry, how rows and entries are taken into it, and what calls make of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.errors import DataError
from millstream.kernels.batch import Ints
from millstream.kernels.jit import as_input, compile_kernel, source_of
from millstream.kernels.keys.words import NO_MASK, Bools, from_words, plain, to_words, validity
from millstream.kernels.window_groups import loops
from millstream.kernels.window_groups.spec import GroupedCall, WindowGroupSpec
from millstream.types import BIGINT, DOUBLE, SqlType, from_kernel, to_kernel

Lane = npt.NDArray[Any]
Lanes = Sequence[Lane]

_UPDATES = {
    name: compile_kernel(source_of(loops), name)
    for name in ("count_known", "add_values", "add_halves", "keep_least", "keep_greatest", "add_spread")
}
_merge_spread = compile_kernel(source_of(loops), "merge_spread")


@dataclass(frozen=True)
class Part:
    """Some lanes that the loop `update` keeps of an argument."""

    update: str
    arg: str
    fresh: tuple[int | float, ...]
    """what each lane holds before the first row; its type is the lane's"""

    def new(self, length: int) -> list[Lane]:
        """Lanes for entries that have seen nothing."""
        return [np.full(length, value) for value in self.fresh]

    def take_rows(self, places: Ints, argument: Argument, lanes: Lanes) -> None:
        """Take rows into the lanes of their entries."""
        mask = (as_input(NO_MASK if argument.valid is None else argument.valid), argument.valid is not None)
        values = () if self.update == "count_known" else (argument.values,)
        _UPDATES[self.update](len(places), as_input(places), *values, *mask, *lanes)

    def take_entries(self, targets: Ints, sources: Ints, given: Lanes, lanes: Lanes) -> None:
        """Take entries into the lanes of other entries."""
        targets = as_input(targets)
        if self.update == "add_spread":
            _merge_spread(len(targets), targets, as_input(sources), *map(as_input, given), *lanes)
            return
        # Counts and halves are added like sums.
        update = _UPDATES[self.update if self.update.startswith("keep") else "add_values"]
        for one, lane in zip(given, lanes, strict=True):
            update(len(targets), targets, as_input(one[sources]), as_input(NO_MASK), False, lane)


def merged_counts(targets: Ints, sources: Ints, counts: Ints, groups: int) -> Ints:
    """How many rows there are in the entries of each group."""
    rows = np.zeros(groups, dtype=np.int64)
    given = as_input(counts[sources])
    _UPDATES["add_values"](len(targets), as_input(targets), given, as_input(NO_MASK), False, rows)
    return rows


@dataclass(frozen=True)
class Argument:
    """A column as the loops see it; `valid` is None if nothing is NULL."""

    values: Lane
    valid: Bools | None

    @staticmethod
    def of(column: pa.Array, type_: SqlType) -> Argument:
        if type_.is_coded or type_.name == "NULL" or (type_.name == "DECIMAL" and type_.precision > 18):
            # only counted
            return Argument(as_input(np.zeros(0, dtype=np.int64)), validity(column))
        column = plain(column, type_)
        values = to_kernel(column, type_) if type_ == DOUBLE else to_words(column, type_)[0]
        return Argument(as_input(values), validity(column))

    def as_floats(self) -> Argument:
        return Argument(as_input(self.values.astype(np.float64, copy=False)), self.valid)


class Layout:
    """The parts that the calls of a spec need, each once."""

    def __init__(self, spec: WindowGroupSpec) -> None:
        self.spec = spec
        self.parts: tuple[Part, ...] = tuple(
            dict.fromkeys(part for call in spec.calls for part in _parts(call, self._type(call)))
        )
        self.width = sum(len(part.fresh) for part in self.parts)

    def divided(self, lanes: Lanes) -> dict[Part, Lanes]:
        """The lanes of each part."""
        found, start = {}, 0
        for part in self.parts:
            found[part] = lanes[start : start + len(part.fresh)]
            start += len(part.fresh)
        return found

    def new(self, length: int) -> list[Lane]:
        return [lane for part in self.parts for lane in part.new(length)]

    def take_rows(self, places: Ints, rows: pa.RecordBatch, lanes: Lanes) -> None:
        """Take rows into the entries at their places."""
        arguments: dict[str, Argument] = {}
        for part, own in self.divided(lanes).items():
            if part.arg not in arguments:
                type_ = self.spec.input[part.arg].type
                arguments[part.arg] = Argument.of(rows.column(self.spec.input.index(part.arg)), type_)
            argument = arguments[part.arg]
            part.take_rows(places, argument.as_floats() if part.update == "add_spread" else argument, own)

    def columns(self, rows: Ints, lanes: Lanes) -> list[pa.Array]:
        """What the calls make of groups: `rows` counts theirs."""
        parts = {(part.update, part.arg): own for part, own in self.divided(lanes).items()}
        return [_result(call, self._type(call), rows, parts) for call in self.spec.calls]

    def _type(self, call: GroupedCall) -> SqlType | None:
        return None if call.arg is None else self.spec.input[call.arg].type


_LEAST, _GREATEST = -(2**63), 2**63 - 1


def _parts(call: GroupedCall, type_: SqlType | None) -> list[Part]:
    if call.arg is None or type_ is None:
        return []
    floats = type_ == DOUBLE
    if call.fn.startswith(("var_", "stddev_")):
        return [Part("add_spread", call.arg, (0, 0.0, 0.0))]
    known = Part("count_known", call.arg, (0,))
    match call.fn:
        case "count":
            return [known]
        case "min":
            return [known, Part("keep_least", call.arg, (np.nan if floats else _GREATEST,))]
        case "max":
            return [known, Part("keep_greatest", call.arg, (-np.inf if floats else _LEAST,))]
    if _in_halves(type_):
        return [known, Part("add_halves", call.arg, (0, 0))]
    # Only minus zero leaves every number as it is, minus zero too.
    return [known, Part("add_values", call.arg, (-0.0 if floats else 0,))]


def _in_halves(type_: SqlType) -> bool:
    return type_ == BIGINT or type_.name == "DECIMAL"


def _result(call: GroupedCall, type_: SqlType | None, rows: Ints, parts: Mapping[tuple[str, str], Lanes]) -> pa.Array:
    if call.arg is None or type_ is None:
        return from_kernel(rows, None, BIGINT)
    if call.fn.startswith(("var_", "stddev_")):
        return _spread(call, *parts["add_spread", call.arg])
    (known,) = parts["count_known", call.arg]
    if call.fn == "count":
        return from_kernel(known, None, BIGINT)
    valid: Bools = known > 0
    if call.fn in ("min", "max"):
        (values,) = parts["keep_least" if call.fn == "min" else "keep_greatest", call.arg]
    elif _in_halves(type_):
        high, low = parts["add_halves", call.arg]
        values = _whole(call, high, low, valid) if call.fn == "sum" else high * 2.0**32 + low
    else:
        (values,) = parts["add_values", call.arg]
    if call.fn == "avg":
        values = values / np.maximum(known, 1)
    if call.type == DOUBLE:
        return from_kernel(values, valid, call.type)
    return from_words([np.where(valid, values, 0)], None if valid.all() else valid, call.type)


def _whole(call: GroupedCall, high: Ints, low: Ints, valid: Bools) -> Ints:
    """The numbers of two halves."""
    high = high + (low >> 32)
    values = (high << 32) | (low & loops.LOW_HALF)
    fits = (high >> 31 == 0) | (high >> 31 == -1)
    if call.type.name == "DECIMAL":
        fits &= (values < 10**call.type.precision) & (values > -(10**call.type.precision))
    if not bool((fits | ~valid).all()):
        raise DataError(f"sum overflows {call.type}", detail=str(call), hint="cast its argument to DOUBLE")
    return values


def _spread(call: GroupedCall, known: Ints, _: Lane, squares: Lane) -> pa.Array:
    lost = 1 if call.fn.endswith("samp") else 0
    values = squares / np.maximum(known - lost, 1)
    if call.fn.startswith("stddev"):
        values = np.sqrt(values)
    return from_kernel(values, known > lost, call.type)
