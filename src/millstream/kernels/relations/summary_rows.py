"""Any aggregates over relations: programs run again over the rows of each group that changed.

What an instant costs grows with the rows of the groups that it touches. ORDER BY … LIMIT is an exception: groups keep
their rows in order (`top_rows.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import field

import numpy as np
import pyarrow as pa

from millstream.expressions.nested_codes import decode, encode
from millstream.kernels.batch import BEGIN, FOREVER, Batch, Ints, concat
from millstream.kernels.keys import KeyTable
from millstream.kernels.programs.kernel import engine_of_calls
from millstream.kernels.programs.undoing import LeftOut, UndoingEngine
from millstream.kernels.relations.front import Front
from millstream.kernels.relations.groups import GROUP_LANES, SweptGroups
from millstream.kernels.relations.held_rows import HeldRows
from millstream.kernels.relations.signs import apart, with_signs
from millstream.kernels.relations.summary import SummarySpec
from millstream.kernels.relations.top_rows import OrderedRows, TopRows
from millstream.kernels.saving import states as saving
from millstream.kernels.saving.content import Content, Few, KeptRows, Ledger
from millstream.kernels.saving.signatures import signature_of
from millstream.kernels.saving.snapshots import Saved
from millstream.kernels.streams.failing import as_text
from millstream.records import dataclass

_MOST_ROWS = 100_000
"""How many rows programs work on at once."""

_IDLE_ROWS = 4_096


@dataclass(eq=False, slots=True)
class _Shown:
    """A row that a group gives, by number: since when, and how long at most before it is given again."""

    code: int
    start: int
    horizon: int
    end: int | None = None


@dataclass
class RowSummaryState:
    """The valid rows of each group by number, and what its output says."""

    groups: SweptGroups
    held: HeldRows
    results: KeyTable | None
    values: KeyTable | None
    front: Front = field(default_factory=lambda: Front(3))
    live: dict[int, dict[int, int]] = field(default_factory=dict)
    """by group: the numbers of its rows in the order they came, each with its end"""
    until: dict[int, int] = field(default_factory=dict)
    """by group: when the last of its rows ends"""
    ordered: dict[int, OrderedRows] = field(default_factory=dict)
    """if only the first rows of a group are wanted: its rows in order"""
    sort_keys: dict[int, bytes] = field(default_factory=dict)
    """then, what each row is sorted by"""
    copies: dict[int, deque[int]] = field(default_factory=dict)
    """changes: by value the numbers of equal rows"""
    shown: dict[int, list[_Shown]] = field(default_factory=dict)
    """by group: what it gives now, in order of numbers"""
    waiting: deque[tuple[int, _Shown]] = field(default_factory=deque)
    """intervals: output in order of start, each with its group"""
    ledger: Ledger = field(default_factory=Ledger)


_OPEN = BEGIN
_HORIZON = "$horizon"
_Flush = tuple[int, int, list[int], int]
"""An instant, a group, the rows that it has then, and how long they last."""


class RowSummaryKernel:
    """Runs a SummarySpec with any calls."""

    def __init__(self, spec: SummarySpec) -> None:
        self.spec = spec
        self.top = TopRows.of(spec)
        runs = spec.calls and self.top is None
        engine = engine_of_calls(spec.calls, spec.input, keyed=True) if runs else None
        self.engine = engine if spec.failing == "stop" or engine is None else UndoingEngine(engine)
        self._keys = [spec.input.index(key) for key in spec.by]
        self._args = [spec.input.index(arg) for call in spec.calls for arg in call.args]
        self._made = [field.type for field in spec.made.fields[len(spec.by) :]]
        # programs take and return nested values, which rows of relations have as bytes
        self._taken = [
            field.type if call.program is not None else None
            for call in spec.calls
            for field in (
                call.program.parameters if call.program is not None else map(spec.input.__getitem__, call.args)
            )
        ]
        self._returned = [
            type_
            for call in spec.calls
            for type_ in (call.types if call.program is None else tuple(field.type for field in call.program.result))
        ]

    def open(self) -> RowSummaryState:
        spec = self.spec
        groups = SweptGroups([spec.input[key].type for key in spec.by], [0] * GROUP_LANES)
        values = KeyTable([field.type for field in spec.input]) if spec.form == "changes" else None
        results = KeyTable(self._made) if self._made else None
        return RowSummaryState(groups, HeldRows(spec.input.arrow), results, values)

    def step(self, state: RowSummaryState, batch: Batch) -> Batch:
        state.front.add(batch)
        upto = state.front.upto
        out: list[tuple[int, int, int, int]] = []
        flushes: list[_Flush] = []
        rows = 0
        for flush in self._events(state, upto):
            flushes.append(flush)
            rows += len(flush[2])
            if rows >= _MOST_ROWS:
                self._show(state, flushes, out)
                flushes, rows = [], 0
        self._show(state, flushes, out)
        made = self._changes(state, out) if self.spec.form == "changes" else self._released(state)
        if len(state.held) > 2 * sum(map(len, state.live.values())) + _IDLE_ROWS:
            state.__dict__.update({**saving.copy(self, state).__dict__, "ledger": state.ledger})
        return made

    # -- rows of groups --------------------------------------------------------------------------------------------

    def _events(self, state: RowSummaryState, upto: int) -> Iterator[_Flush]:
        """Let rows come and go, and tell at each instant which groups changed.

        Whatever ends or goes is there: a row with an interval ends after it begins, and a change that takes a row away
        comes no earlier than the one that brought it. All kernels of relations give such rows (`check_relation` in
        their laws), and a state that was saved in between has every row that is live, with its end.
        """
        batches = state.front.ready(upto)
        time, slots, numbers, signs, codes = [], [], [], [], []
        keys: Sequence[bytes] = []
        if batches:
            ready = concat(batches, upto)
            rows, ends = (ready.rows, ready.other) if ready.other is not None else apart(ready.rows)
            first = len(state.held)
            own = state.groups.slots([rows.column(index) for index in self._keys], len(ready))
            state.held.add(rows)
            time, slots, signs = ready.time.tolist(), own.tolist(), ends.tolist()
            numbers = list(range(first, first + len(ready)))
            keys = [] if self.top is None else self.top.keys(rows)
            if state.values is not None:
                codes = state.values.encode(rows.columns).tolist()
            else:
                lanes = np.stack([own, ends, np.arange(first, first + len(ready))], axis=1)
                state.front.ends.add(ends, lanes)
        gone_time, gone = (array.tolist() for array in state.front.ends.take(upto))
        i = j = 0
        while i < len(time) or j < len(gone_time):
            now = min(time[i] if i < len(time) else FOREVER, gone_time[j] if j < len(gone_time) else FOREVER)
            touched: dict[int, None] = {}
            while j < len(gone_time) and gone_time[j] == now:
                slot, _, number = gone[j]
                _go(state, slot, number)
                touched[slot] = None
                j += 1
            leaving = []
            while i < len(time) and time[i] == now:
                touched[slots[i]] = None
                if state.values is None or signs[i] > 0:
                    end = FOREVER if state.values is not None else signs[i]
                    _come(state, slots[i], numbers[i], end, keys[i] if keys else None)
                    if state.values is not None:
                        state.copies.setdefault(codes[i], deque()).append(numbers[i])
                else:
                    leaving.append(i)
                i += 1
            # What comes first, so that nothing goes that is not there.
            for k in leaving:
                equal = state.copies[codes[k]]
                _go(state, slots[k], equal.popleft())
                if not equal:
                    del state.copies[codes[k]]
            for slot in touched:
                own_rows = state.live[slot]
                chosen = list(own_rows) if self.top is None else self._first(state, slot)
                yield now, slot, chosen, state.until[slot] if own_rows else now
                if not own_rows:
                    del state.live[slot], state.until[slot]
                    state.ordered.pop(slot, None)

    def _first(self, state: RowSummaryState, slot: int) -> list[int]:
        assert self.top is not None
        return state.ordered[slot].numbers(self.top.skip, self.top.count)

    # -- results ---------------------------------------------------------------------------------------------------

    def _show(self, state: RowSummaryState, flushes: list[_Flush], out: list[tuple[int, int, int, int]]) -> None:
        """Take what the groups say now into the output."""
        for (now, slot, _, horizon), codes in zip(flushes, self._results(state, flushes), strict=True):
            before = state.shown.pop(slot, [])
            now_shown: list[_Shown] = []
            i = 0
            # Both are in order of numbers. What is given on goes on, unless nothing is left of what it began with.
            for code in codes:
                while i < len(before) and before[i].code < code:
                    self._end(before[i], slot, now, out)
                    i += 1
                if i < len(before) and before[i].code == code:
                    i += 1
                    if now < before[i - 1].horizon:
                        now_shown.append(before[i - 1])
                        continue
                    self._end(before[i - 1], slot, now, out)
                shown = _Shown(code, now, horizon)
                now_shown.append(shown)
                out.append((now, 1, slot, code))
                if self.spec.form == "intervals":
                    state.waiting.append((slot, shown))
            for shown in before[i:]:
                self._end(shown, slot, now, out)
            if now_shown:
                state.shown[slot] = now_shown

    def _end(self, shown: _Shown, slot: int, now: int, out: list[tuple[int, int, int, int]]) -> None:
        shown.end = now
        out.append((now, -1, slot, shown.code))

    def _results(self, state: RowSummaryState, flushes: list[_Flush]) -> list[list[int]]:
        """The result rows of groups as numbers, in order."""
        there = [place for place, flush in enumerate(flushes) if flush[2]]
        results: list[list[int]] = [[] for _ in flushes]
        if self.top is not None and there:
            numbers = np.concatenate([np.array(flushes[place][2], dtype=np.int64) for place in there])
            assert state.results is not None
            codes = state.results.encode(state.held.columns(numbers, self.top.given)).tolist()
            begin = 0
            for place in there:
                end = begin + len(flushes[place][2])
                results[place], begin = sorted(codes[begin:end]), end
            return results
        if self.engine is None or not there:
            for place in there:
                results[place] = [0]
            return results
        numbers = np.concatenate([np.array(flushes[place][2], dtype=np.int64) for place in there])
        counts = [len(flushes[place][2]) for place in there]
        slots = np.repeat(np.arange(len(there), dtype=np.int32), counts)
        rows = state.held.take(numbers)
        # A row of the state has no place in a program's window, so neither its time nor its number matters.
        none = np.zeros(len(slots), dtype=np.int64)
        ids = np.arange(len(slots)) if self.engine.numbers_tuples else none[:0]
        groups = self.engine.open()
        args = [
            decode(rows.column(index), type_) if type_ is not None and type_.is_nested else rows.column(index)
            for index, type_ in zip(self._args, self._taken, strict=True)
        ]
        self.engine.arrive(groups, slots, none, ids, args, BEGIN)
        failed = list(groups.failed) if self.spec.failing == "report" else []
        returned = self.engine.close(groups, np.arange(len(there), dtype=np.int64))
        assert returned.origin is not None and state.results is not None
        if self.spec.failing == "report":
            for slot, code in self._failed(state, rows, args, failed, groups.failed, np.cumsum([0, *counts])):
                results[there[slot]].append(code)
            for codes_of in results:
                codes_of.sort()
            return results
        if len(returned.origin):
            columns = [
                encode(column, type_) if type_.is_nested else column
                for column, type_ in zip(returned.columns, self._returned, strict=True)
            ]
            codes = state.results.encode(columns).tolist()
            for place, code in zip(returned.origin.tolist(), codes, strict=True):
                results[there[place]].append(code)
            for codes_of in results:
                codes_of.sort()
        return results

    def _failed(
        self, state: RowSummaryState, rows: pa.RecordBatch, args: list[pa.Array], left_out: list[LeftOut],
        ended: list[LeftOut], firsts: Ints,
    ) -> list[tuple[int, int]]:  # fmt: skip
        """What was left out, each with the slot of its group and the number of what is said of it."""
        if not left_out and not ended:
            return []
        names = [arg for call in self.spec.calls for arg in call.args]
        columns = {name: rows.column(index) for name, index in zip(self.spec.by, self._keys, strict=True)}
        said = []
        for each in left_out:
            values = {**columns, **dict(zip(names, args, strict=True))}
            said.append((each, values, each.place))
        said += [(each, columns, int(firsts[each.slot])) for each in ended]
        texts = [as_text({name: values[name][place].as_py() for name in sorted(values)}) for _, values, place in said]
        assert state.results is not None
        whys = [each.why for each, _, _ in said]
        codes = state.results.encode([pa.array(whys, pa.string()), pa.array(texts, pa.string())]).tolist()
        return [(each.slot, code) for (each, _, _), code in zip(said, codes, strict=True)]

    def _changes(self, state: RowSummaryState, out: list[tuple[int, int, int, int]]) -> Batch:
        lanes = np.array(out, dtype=np.int64).reshape(-1, 4)
        rows = self._columns(state, lanes[:, 2], lanes[:, 3])
        made = with_signs(rows, lanes[:, 1], self.spec.output)
        return Batch(made, lanes[:, 0].copy(), np.zeros(len(lanes), dtype=np.int64), state.front.upto)

    def _released(self, state: RowSummaryState) -> Batch:
        upto = state.front.upto
        out: list[tuple[int, int, int, int]] = []
        while state.waiting and (state.waiting[0][1].end is not None or upto == FOREVER):
            slot, shown = state.waiting.popleft()
            end = FOREVER if shown.end is None else shown.end
            out.append((shown.start, end, slot, shown.code))
        lanes = np.array(out, dtype=np.int64).reshape(-1, 4)
        if state.waiting:
            upto = min(upto, state.waiting[0][1].start)
        rows = self._columns(state, lanes[:, 2], lanes[:, 3])
        return Batch(rows, lanes[:, 0].copy(), np.zeros(len(lanes), dtype=np.int64), upto, lanes[:, 1].copy())

    def _columns(self, state: RowSummaryState, slots: Ints, codes: Ints) -> pa.RecordBatch:
        columns = state.groups.columns(slots)
        columns += [] if state.results is None else state.results.keys(codes).columns
        return pa.RecordBatch.from_arrays(columns, schema=self.spec.made.arrow)

    # -- saving ----------------------------------------------------------------------------------------------------

    def export(self, state: RowSummaryState) -> Content:
        valid = sorted((number, end) for own in state.live.values() for number, end in own.items())
        numbers, ends = (np.array([pair[i] for pair in valid], dtype=np.int64) for i in (0, 1))
        live = KeptRows(state.held.lasting[numbers], lambda places: state.held.take(numbers[places]), {"end": ends})
        by = tuple(map(signature_of(self.spec).place, self.spec.made.names[: len(self._keys)]))
        shown = Few(self._shown(state), by)
        content: dict[str, Ints | Few | KeptRows] = {"upto": np.array([state.front.upto]), "live": live, "shown": shown}
        return content if state.front.waiting is None else {**content, "waiting": Few(state.front.waiting)}

    def _shown(self, state: RowSummaryState) -> Batch:
        """What groups give, with start and end (or OPEN)."""
        if self.spec.form == "intervals":
            given = list(state.waiting)
        else:
            given = [(slot, shown) for slot, own in state.shown.items() for shown in own]
        times = [
            (one.start, _OPEN if one.end is None else one.end, one.horizon, number, slot, one.code)
            for number, (slot, one) in enumerate(given)
        ]
        lanes = np.array(times, dtype=np.int64).reshape(-1, 6).T.copy()
        rows = self._columns(state, lanes[4], lanes[5]).append_column(_HORIZON, pa.array(lanes[2]))
        return Batch(rows, lanes[0], lanes[3], BEGIN, lanes[1])

    def load(self, parts: Saved) -> RowSummaryState:
        state = self.open()
        state.front.upto = int(parts.array("upto")[0])
        if "live" in parts:
            self._load_rows(state, parts.rows("live"), parts.array("end"), parts.numbers("live"))
        if "shown" in parts:
            shown = self._load_shown(state, parts.batch("shown", BEGIN))
            if self.spec.form == "intervals":
                state.waiting = deque(sorted(shown, key=lambda pair: pair[1].start))
            for slot, one in sorted(shown, key=lambda pair: pair[1].code):
                if one.end is None:
                    state.shown.setdefault(slot, []).append(one)
        if "waiting" in parts:
            state.front.add(parts.batch("waiting", state.front.upto))
        return state

    def _load_rows(self, state: RowSummaryState, rows: pa.RecordBatch, ends: Ints, lasting: Ints | None) -> None:
        slots = state.groups.slots([rows.column(index) for index in self._keys], len(rows))
        state.held.add(rows, lasting)
        numbers = np.arange(len(rows))
        keys = [None] * len(rows) if self.top is None else self.top.keys(rows)
        for slot, number, end, key in zip(slots.tolist(), numbers.tolist(), ends.tolist(), keys, strict=True):
            _come(state, slot, number, end, key)
        if state.values is None:
            state.front.ends.add(ends, np.stack([slots, ends, numbers], axis=1))
            return
        for code, number in zip(state.values.encode(rows.columns).tolist(), numbers.tolist(), strict=True):
            state.copies.setdefault(code, deque()).append(number)

    def _load_shown(self, state: RowSummaryState, saved: Batch) -> list[tuple[int, _Shown]]:
        keys = len(self._keys)
        *columns, horizons = saved.rows.columns
        slots = state.groups.slots(columns[:keys], len(saved)).tolist()
        codes = [0] * len(saved) if state.results is None else state.results.encode(columns[keys:]).tolist()
        assert saved.other is not None
        times = zip(saved.time.tolist(), saved.other.tolist(), horizons.to_pylist(), strict=True)
        return [
            (slot, _Shown(code, start, horizon, None if end == _OPEN else end))
            for (start, end, horizon), slot, code in zip(times, slots, codes, strict=True)
        ]


def _come(state: RowSummaryState, slot: int, number: int, end: int, key: bytes | None) -> None:
    """A row of a group begins; with `key`, its place among the others."""
    state.live.setdefault(slot, {})[number] = end
    # rows go when they end, so the latest end of all that came is that of one that is there
    state.until[slot] = max(state.until.get(slot, end), end)
    if key is not None:
        state.sort_keys[number] = key
        state.ordered.setdefault(slot, OrderedRows()).add((key, number))


def _go(state: RowSummaryState, slot: int, number: int) -> None:
    del state.live[slot][number]
    if slot in state.ordered:
        state.ordered[slot].remove((state.sort_keys.pop(number), number))
