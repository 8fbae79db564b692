"""How sweeps are saved: groups, valid rows and output each as rows of their own, which know each other by numbers that
last as long as they do."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.kernels import snapshots
from millstream.kernels.batch import Ints
from millstream.kernels.kept import Content, KeepsRows, Kept
from millstream.kernels.relations.back import Lanes
from millstream.kernels.relations.groups import DIED
from millstream.kernels.relations.place_loops import LINK
from millstream.kernels.relations.sweeping import PLACES, Portable, SweepState, owner_lane

_NUMBER, _LANES, _VALUE = "number", "lanes", "value"
_NO_NUMBERS = np.zeros(0, dtype=np.int64)


class KeepsSweep(KeepsRows):
    """A kernel that sweeps over time. `_widths` tells how many lanes what it keeps has, by name ("lanes" are those of a
    group), `_texts` the types of strings that stand in lanes as codes."""

    ports: int
    _has_links = False
    """whether places are linked, which is found again; otherwise LINK is a lane as others are"""

    @property
    def _widths(self) -> Mapping[str, int]:
        raise NotImplementedError

    @property
    def _texts(self) -> Mapping[str, pa.DataType]:
        return {}

    def _exported(self, state: SweepState) -> Portable:
        raise NotImplementedError

    def _state(self, portable: Portable) -> SweepState:
        raise NotImplementedError

    def _recode(self, portable: Portable, name: str, codes: Any) -> None:
        """Put what `codes` has for them in place of the codes of strings."""
        raise NotImplementedError

    def _content(self, state: SweepState) -> Content:
        portable = self._exported(state)
        groups = portable.numbers["groups"]
        for name in self._texts:
            numbers = portable.numbers[_text(name)]
            self._recode(portable, name, np.append(numbers, 0))
        for name, rows in portable.owned.items():
            rows[:, owner_lane(name)] = groups[rows[:, owner_lane(name)]]
        parts: dict[str, Any] = {"uptos": portable.uptos, "first": np.array([portable.first]), **portable.waiting}
        version = state.groups.version[state.groups.needed(portable.first)]
        order = np.argsort(groups, kind="stable")
        parts["groups"] = Kept(groups[order], partial(self._groups, portable, order), touched=version[order])
        for port in range(self.ports):
            name = f"ends{port}"
            order = np.argsort(portable.numbers[name], kind="stable")
            parts[name] = Kept(portable.numbers[name][order], partial(_lanes, portable.owned[name], order))
        places = portable.owned[PLACES]
        if self._has_links:
            places[:, LINK] = 0
        numbers = portable.first + np.arange(len(places))
        parts[PLACES] = Kept(
            numbers, partial(_lanes, numbers[:, None], np.arange(len(numbers))),
            {f"place{lane}": places[:, lane] for lane in range(places.shape[1])},
        )  # fmt: skip
        for name in self._texts:
            order = np.argsort(portable.numbers[_text(name)], kind="stable")
            numbers = portable.numbers[_text(name)][order]
            parts[_text(name)] = Kept(numbers, partial(_strings, portable.texts[name], order, numbers))
        return parts

    def _groups(self, portable: Portable, order: Ints, places: Ints) -> pa.RecordBatch:
        """Groups with all that belongs to them alone."""
        chosen = order[places]
        numbers = portable.numbers["groups"][chosen]
        lanes = portable.lanes[chosen]
        lanes[:, DIED] += portable.first
        columns = {_NUMBER: pa.array(numbers), _LANES: _fixed(lanes)}
        if portable.keys is not None:
            keys = portable.keys.take(pa.array(chosen))
            columns |= dict(zip(keys.schema.names, keys.columns, strict=True))
        columns |= {name: _of_each(portable.owned[name], numbers) for name in self._of_groups}
        return pa.RecordBatch.from_pydict(columns)

    @property
    def _of_groups(self) -> list[str]:
        return [name for name in self._widths if name not in (_LANES, PLACES) and not name.startswith("ends")]

    def _made_of(self, parts: snapshots.Saved) -> SweepState:
        first = int(parts.array("first")[0])
        uptos = parts.array("uptos")
        owned = {name: np.zeros((0, width), dtype=np.int64) for name, width in self._widths.items()}
        numbers, keys = {"groups": _NO_NUMBERS}, None
        if "groups" in parts:
            groups = parts.rows("groups")
            numbers["groups"] = groups.column(_NUMBER).to_numpy()
            owned[_LANES] = _unfixed(groups.column(_LANES))
            owned[_LANES][:, DIED] = np.maximum(owned[_LANES][:, DIED] - first, 0)
            own = [name for name in groups.schema.names if name not in (_NUMBER, _LANES, *self._of_groups)]
            keys = groups.select(own) if own else None
            owned |= {name: _of_all(groups.column(name), numbers["groups"], owned[name]) for name in self._of_groups}
        for name in (f"ends{port}" for port in range(self.ports)):
            if name in parts:
                owned[name] = _unfixed(parts.rows(name).column(_LANES))
                saved = parts.numbers(name)
                numbers |= {} if saved is None else {name: saved}
        if PLACES in parts:
            owned[PLACES] = np.stack([parts.array(f"place{i}") for i in range(self._widths[PLACES])], axis=1)
        lanes = owned.pop(_LANES)
        for name, rows in owned.items():
            rows[:, owner_lane(name)] = np.searchsorted(numbers["groups"], rows[:, owner_lane(name)])
        names = [f"waiting{port}" for port in range(self.ports)]
        waiting = {name: parts.batch(name, int(uptos[i]), i) for i, name in enumerate(names) if name in parts}
        portable = Portable(keys, lanes, owned, waiting, uptos, first=first, numbers=numbers)
        for name, type_ in self._texts.items():
            portable.texts[name], portable.numbers[_text(name)] = pa.array([], type_), _NO_NUMBERS
            if _text(name) in parts:
                rows = parts.rows(_text(name))
                portable.texts[name] = rows.column(_VALUE)
                portable.numbers[_text(name)] = rows.column(_NUMBER).to_numpy()
            self._recode(portable, name, _Places(portable.numbers[_text(name)]))
        return self._state(portable)


class _Places:
    """Where numbers are, among numbers that increase; what stands for nothing may be anywhere."""

    def __init__(self, numbers: Ints) -> None:
        self._numbers = numbers

    def __getitem__(self, numbers: Ints) -> Ints:
        places: Ints = np.searchsorted(self._numbers, numbers)
        return np.minimum(places, max(len(self._numbers) - 1, 0))


def _text(name: str) -> str:
    return f"text.{name}"


def _strings(texts: pa.Array, order: Ints, numbers: Ints, places: Ints) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({_NUMBER: pa.array(numbers[places]), _VALUE: texts.take(pa.array(order[places]))})


def _lanes(rows: Lanes, order: Ints, places: Ints) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({_LANES: _fixed(rows[order[places]])})


def _fixed(rows: Lanes) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])


def _unfixed(column: pa.Array) -> Lanes:
    return np.array(column.flatten().to_numpy()).reshape(-1, column.type.list_size)


def _of_each(rows: Lanes, numbers: Ints) -> pa.Array:
    """The rows of these groups, without their numbers, as lists."""
    order = np.argsort(rows[:, 0], kind="stable")
    first, stop = (np.searchsorted(rows[order, 0], numbers, side=side) for side in ("left", "right"))
    begins = np.concatenate([[0], np.cumsum(stop - first)])
    chosen = order[np.repeat(first - begins[:-1], stop - first) + np.arange(begins[-1])]
    return pa.LargeListArray.from_arrays(pa.array(begins), _fixed(rows[chosen, 1:]))


def _of_all(lists: pa.Array, numbers: Ints, nothing: Lanes) -> Lanes:
    """The inverse of `_of_each`."""
    rows = np.zeros((len(lists.flatten()), nothing.shape[1]), dtype=np.int64)
    rows[:, 0] = np.repeat(numbers, lists.value_lengths().to_numpy())
    if len(rows):
        rows[:, 1:] = _unfixed(lists.flatten())
    return rows
