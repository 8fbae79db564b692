"""What the machine for chains knows of its partitions, and how that is saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.batch import Ints
from millstream.kernels.jit import as_input, compile_kernel, source_of
from millstream.kernels.keys import ByteTable
from millstream.kernels.over import loops
from millstream.kernels.patterns.chain_layout import ChainLayout
from millstream.kernels.patterns.chain_plan import Plan
from millstream.kernels.patterns.log import RowLog, renumbered
from millstream.kernels.patterns.machine import Array, Positions, floors
from millstream.kernels.saving.lists import fixed, unfixed
from millstream.records import dataclass
from millstream.types import VARCHAR

_deal = compile_kernel(source_of(loops), "deal")
_TEXTS_AT_LEAST = 1_024
_ROOM_KEPT = 1 << 20
_NONE = as_input(np.zeros(0, dtype=np.int64))

Places = npt.NDArray[np.uint32]


@dataclass
class FoundMatches:
    """What one loop found: slots as places of records, times, arrival numbers, and the search's columns."""

    meta: Ints
    arrays: list[Array]


class ChainState:
    """A record for each slot."""

    def __init__(self, layout: ChainLayout) -> None:
        self.layout = layout
        self.record: Ints = np.zeros(0, dtype=np.int64)
        self.nulls = False
        """whether a column was ever NULL"""
        self.evaluations = 0
        self.texts = ByteTable(VARCHAR)
        """the text that lanes hold codes of, if they do; the log forgets text that its rows do not have"""
        self._texts_kept = 0
        self._codes: dict[str, Ints] = {}
        """text columns of the rows in the log"""
        self._rows: Places = np.zeros(0, dtype=np.uint32)
        self._dealt: dict[int, tuple[Places, Places]] = {}
        self._found: dict[tuple[int, tuple[str, ...]], list[Array]] = {}

    @property
    def records(self) -> Ints:
        """The records, one per row."""
        return self.record.reshape(-1, self.layout.width)

    def everything(self, since: int, slots: Array) -> tuple[Places, Places, int]:
        """All new rows, where the records of their slots begin, and how many they are."""
        rows = len(slots)
        if len(self._rows) < since + rows:
            self._rows = np.arange(2 * (since + rows), dtype=np.uint32)
        _, at = self._scratch(0, rows)
        np.multiply(slots, self.layout.width, out=at[:rows], casting="unsafe")
        return self._rows[since : since + rows], at, rows

    def dealt(self, shard: int, since: int, slots: Array, shards: int) -> tuple[Places, Places, int]:
        """The same for the rows of one shard: slots that leave its number when divided."""
        own, at = self._scratch(shard, len(slots))
        count = _deal(len(slots), slots, shards, 0, shard, self.layout.width, own, at)
        if since:
            own[:count] += np.uint32(since)
        return own, at, int(count)

    def _scratch(self, shard: int, rows: int) -> tuple[Places, Places]:
        if shard not in self._dealt or len(self._dealt[shard][0]) < rows:
            self._dealt[shard] = np.empty(rows, dtype=np.uint32), np.empty(rows, dtype=np.uint32)
        return self._dealt[shard]

    def room(self, shard: int, rows: int, kinds: tuple[str, ...]) -> list[Array]:
        """Arrays for what a shard finds, the same ones for every batch: fresh memory costs as much as the search."""
        held = self._found.get((shard, kinds))
        if held is None or len(held[0]) < rows:
            held = [np.empty(2 * rows, dtype=kind) for kind in kinds]
            if rows <= _ROOM_KEPT:
                self._found[shard, kinds] = held
        return held

    def prepare(self, log: RowLog, unasked: int) -> None:
        """Make the records fit a log: its slots, and whether it ever had a NULL."""
        self._hold(log.slots)
        if log.nulls and not self.nulls:
            self.nulls = True
            if unasked:
                self.records[:, self.layout.lanes["flags"]] |= unasked

    def columns(self, log: RowLog, since: int) -> list[Array]:
        """The columns that are read, with their validity; text in the codes that lanes hold. `since` is where the new
        rows begin."""
        arrays = []
        for name in self.layout.columns:
            values = log.values[name]
            if self.layout.texts and log.types[name].is_coded:
                values = self._recoded(name, log, since)
            arrays += [values, log.ok[name]]
        return arrays

    def _recoded(self, name: str, log: RowLog, since: int) -> Ints:
        seen = self._codes.get(name, _NONE)
        if len(seen) != since:
            seen, since = _NONE, 0
        codes = log.values[name][since:]
        present = np.zeros(int(codes.max(initial=-1)) + 1, dtype=np.bool_)
        present[codes] = True
        known = np.flatnonzero(present)
        own = np.zeros(len(present), dtype=np.int64)
        own[known] = self.texts.slots(log.texts.values(known), add=True)
        recoded = as_input(np.concatenate([seen, own[codes]]))
        if self.layout.logged:
            self._codes[name] = recoded
        return recoded

    def code_of(self, log: RowLog, texts: Sequence[str]) -> Ints:
        """The codes of constants, as the columns have them."""
        if not texts:
            return _NONE
        return as_input(self._table(log).slots(pa.array(list(texts), pa.string()), add=True).astype(np.int64))

    def labels(self, log: RowLog) -> Ints:
        """The codes of the variables' names."""
        return self.code_of(log, self.layout.search.variables) if self.layout.texts else log.labels

    def text_of(self, codes: Ints, ok: Array, log: RowLog) -> pa.Array:
        """The text of codes."""
        return self._table(log).values(np.where(ok, codes, -1))

    def _table(self, log: RowLog) -> ByteTable:
        return self.texts if self.layout.texts else log.texts

    def sweep(self) -> None:
        """Forget text that neither lanes nor rows hold, once that may be half of it."""
        if self.layout.texts and len(self.texts) > 2 * self._texts_kept + _TEXTS_AT_LEAST:
            used = [self.records[:, self.layout.lanes[name]] for name in self.layout.texts]
            self.texts.release(np.setdiff1d(self.texts.live(), np.concatenate([*used, *self._codes.values()])))
            self._texts_kept = len(self.texts)

    def _hold(self, slots: int) -> None:
        if slots * self.layout.width > len(self.record):
            longer = np.zeros(max(slots * self.layout.width, 2 * len(self.record)), dtype=np.int64)
            longer[: len(self.record)] = self.record
            self.record = longer

    def floors(self, log: RowLog, plan: Plan) -> Ints:
        """For each slot the oldest position that is needed: of the attempt under way, and what may be looked at before
        it or before the next one."""
        if not self.layout.logged:
            return np.full(log.slots, len(log), dtype=np.int64)
        records = self.records[: log.slots]
        state = records[:, self.layout.lanes["state"]]
        first, under_way = np.full(log.slots, -1), np.zeros(log.slots, dtype=np.bool_)
        under_way[: len(state)] = state != 0
        for number, (element, some) in enumerate(plan.states[1:], 1):
            run = plan.oldest_runs[element]
            if run is not None and (run < element or (run == element and some)):
                stands = np.flatnonzero(state == number)
                first[stands] = records[stands, self.layout.lanes[f"begin{run}"]]
        return floors(log, first, self.layout.search, under_way)

    def move(self, new: Ints) -> None:
        """Positions in the log have changed."""
        for name in self.layout.positions:
            lane = self.records[:, self.layout.lanes[name]]
            lane[:] = renumbered(lane, new)
        self._codes = {name: codes[new >= 0] for name, codes in self._codes.items() if len(codes) == len(new)}

    # -- saving ----------------------------------------------------------------------------------------------------

    def export(self, slots: Ints, place: Ints, unasked: int) -> dict[str, pa.Array]:
        """The records of some slots; positions p are written as place[p], text as itself."""
        self._hold(int(slots.max(initial=-1)) + 1)
        records = self.records[slots]
        lanes = self.layout.lanes
        if unasked and not self.nulls:
            records[:, lanes["flags"]] |= unasked
        places = np.append(place, -1)
        for name in self.layout.positions:
            records[:, lanes[name]] = places[np.clip(records[:, lanes[name]], -1, len(place))]
        columns = {"nulls": pa.array(np.full(len(slots), self.nulls)), "record": fixed(records)}
        for name in self.layout.texts:
            codes = records[:, lanes[name]]
            columns[f"text.{name}"] = self.texts.values(np.where(np.isin(codes, self.texts.live()), codes, -1))
        return columns

    @staticmethod
    def load(layout: ChainLayout, columns: Mapping[str, pa.Array], positions: Positions) -> ChainState:
        """A state with slots that were exported."""
        state = ChainState(layout)
        records = unfixed(columns["record"])
        slots = np.arange(len(records))
        for name in layout.positions:
            lane = records[:, layout.lanes[name]]
            lane[:] = positions.of(slots, lane)
        for name in layout.texts:
            records[:, layout.lanes[name]] = state.texts.slots(columns[f"text.{name}"].fill_null(""), add=True)
        state.record = records.reshape(-1)
        state.nulls = bool(columns["nulls"].to_numpy(zero_copy_only=False).any())
        return state
