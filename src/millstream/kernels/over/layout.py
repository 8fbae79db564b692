"""Where an OVER operator keeps what: the lanes of a key's record and of a row's cell, derived from the calls.

A slot record is a run of 64-bit lanes with everything known about one key. Rows that some frame still holds lie as
cells in the key's ring, a power-of-two region that all bounded frames share; the row at position p of a key lies in
cell p modulo the ring's capacity. Frames that begin at the first row keep no cells, unless they end before the current
row: then their rows wait in cells to enter.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from millstream.kernels.accumulators import Accumulator, Argument, Extreme, Place, State, Sums
from millstream.kernels.accumulators.columns import ArgumentColumn
from millstream.kernels.over.spec import Frame, OverSpec
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.aggregates import RANKS
from millstream.records import dataclass


@dataclass(frozen=True)
class NamedFrame:
    name: str
    frame: Frame

    @property
    def is_bounded(self) -> bool:
        return self.frame.start is not None or self.is_own

    @property
    def is_own(self) -> bool:
        """Whether each row says how far back it begins."""
        return self.frame.own is not None

    @property
    def is_delayed(self) -> bool:
        """Whether rows enter it only some time after they came."""
        return self.frame.end > 0

    @property
    def is_range(self) -> bool:
        """Whether rows enter or leave it by their time, or by the number of their time, not one for one."""
        return self.frame.unit != "rows"

    @property
    def is_earlier(self) -> bool:
        """Whether rows leave it by their position and enter it by that and their time."""
        return self.frame.unit == "earlier"

    @property
    def is_later(self) -> bool:
        """Whether rows enter it by their position and leave it by that and their time."""
        return self.frame.unit == "later"

    @property
    def place(self) -> str:
        """What it measures by: the time of a row, or the number of that time in its partition."""
        return "group" if self.frame.unit == "groups" else "t"

    @property
    def cell_place(self) -> str:
        """The lane of a cell that has it."""
        return "CELL_GROUP" if self.frame.unit == "groups" else "CELL_TIME"

    @property
    def preceding(self) -> int:
        assert self.frame.start is not None
        return self.frame.start


@dataclass(frozen=True)
class Held:
    """What an accumulator keeps of the values in a frame; with `distinct`, each value counts once."""

    frame: NamedFrame
    state: State
    distinct: bool = False
    args: tuple[ArgumentColumn, ...] = ()

    @property
    def arg(self) -> ArgumentColumn | None:
        """The only argument; None: it counts rows."""
        return self.args[0] if self.args else None

    @property
    def name(self) -> str:
        name = "_".join([self.frame.name, *([arg.name for arg in self.args] or ["rows"])])
        if isinstance(self.state, Sums):
            return f"{name}_distinct" if self.distinct else name
        return f"{name}_{self.state.fn.removesuffix('_value')}"

    @property
    def lanes(self) -> tuple[str, ...]:
        return tuple(lane.name for lane in self.state.lanes)

    @property
    def holds(self) -> dict[str, Argument]:
        """The lanes that hold a value if the first one is 1."""
        return self.state.holds

    @property
    def place(self) -> Place:
        """Where its lanes are in the record at s."""
        return Place.named("slots", "sums", f"s + {self.name.upper()}")

    def joined(self, other: Held) -> Held:
        """What serves the calls of both, which have the same name."""
        return replace(self, state=self.state.joined(other.state)) if isinstance(self.state, Sums) else self


@dataclass(frozen=True)
class Queue:
    """The candidates for the least, greatest, first known or last known value in a bounded frame, by position."""

    lanes = ("queue_head", "queue_tail")

    frame: NamedFrame
    args: tuple[ArgumentColumn, ...]
    fn: str

    @property
    def arg(self) -> ArgumentColumn:
        """The argument whose values are compared."""
        return self.args[-1]

    @property
    def name(self) -> str:
        return "_".join([self.frame.name, *(arg.name for arg in self.args), self.fn])


@dataclass(frozen=True)
class Rank:
    """The number of the last row's time among the times so far: how many rows were before it, or how many times."""

    lanes = ("rows", "last", "value")

    frame: NamedFrame
    fn: str

    @property
    def name(self) -> str:
        return f"{self.frame.name}_{self.fn}"


@dataclass(frozen=True)
class Nth:
    """How many rows have entered a frame that none leaves, and the value of the row with a number."""

    lanes = ("known", "value", "rows")

    frame: NamedFrame
    arg: ArgumentColumn
    number: int
    """the place of the number in what the loop gets, not the number itself"""

    @property
    def name(self) -> str:
        return f"{self.frame.name}_{self.arg.name}_nth{self.number}"

    @property
    def args(self) -> tuple[ArgumentColumn, ...]:
        return (self.arg,)

    @property
    def holds(self) -> dict[str, Argument]:
        """The lanes that hold a value if the first one is 1."""
        return {"value": self.arg}


Part = Held | Queue | Rank | Nth


@dataclass(frozen=True)
class OverLayout:
    """All parts of the state of a spec, and the lane of each."""

    spec: OverSpec

    @cached_property
    def args(self) -> tuple[ArgumentColumn, ...]:
        columns = list(dict.fromkeys(arg.lower() for call in self.spec.calls for arg in call.args))
        result = []
        for i, column in enumerate(columns):
            uses = [call for call in self.spec.calls if column in map(str.lower, call.args)]
            valued = any(call.fn != "count" or call.distinct for call in uses)
            field = self.spec.input[column]
            result.append(ArgumentColumn(f"a{i}", field.type, field.name, valued))
        return tuple(result)

    @cached_property
    def frames(self) -> tuple[NamedFrame, ...]:
        distinct = dict.fromkeys(call.frame for call in self.spec.calls)
        return tuple(NamedFrame(f"f{i}", frame) for i, frame in enumerate(distinct))

    @cached_property
    def own(self) -> tuple[NamedFrame, ...]:
        """The frames that begin as far back as each row says."""
        return tuple(frame for frame in self.frames if frame.is_own)

    @cached_property
    def numbers(self) -> tuple[int | None, ...]:
        """Which rows of their frames calls of nth_value ask for."""
        return tuple(dict.fromkeys(call.number for call in self.spec.calls if call.number is not None))

    @cached_property
    def counts_groups(self) -> bool:
        return any(frame.place == "group" for frame in self.logged)

    def arg(self, call: AggregateCall[str]) -> ArgumentColumn:
        """The first argument of a call: what its result is of."""
        return self.args_of(call)[0]

    def args_of(self, call: AggregateCall[str]) -> tuple[ArgumentColumn, ...]:
        by_name = {arg.column.lower(): arg for arg in self.args}
        return tuple(by_name[arg.lower()] for arg in call.args)

    def frame(self, call: AggregateCall[str]) -> NamedFrame:
        return next(named for named in self.frames if named.frame == call.frame)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        parts: dict[str, Part] = {}
        for call in self.spec.calls:
            part = self.part(call)
            if part is None:
                continue
            before = parts.get(part.name)
            if isinstance(part, Held) and isinstance(before, Held):
                part = part.joined(before)
            parts[part.name] = part
        return tuple(parts.values())

    def part(self, call: AggregateCall[str]) -> Part | None:
        """The part of the state that a call reads, as far as this call needs it; None if cells or the row suffice."""
        frame = self.frame(call)
        if call.fn in RANKS:
            return Rank(frame, call.fn)
        args = self.args_of(call)
        if not args:
            return None if frame.is_bounded else Held(frame, self.accumulator(call).state)
        if call.fn == "nth_value":
            return None if frame.is_bounded else Nth(frame, self.arg(call), self.numbers.index(call.number))
        state = self.accumulator(call).state
        if isinstance(state, Extreme) and frame.is_bounded:
            return Queue(frame, args, call.fn)
        if call.fn == "first_value" and frame.is_bounded:
            return None
        if call.fn == "last_value" and not (frame.is_range if not frame.is_delayed else not frame.is_bounded):
            return None
        if call.fn == "lag":
            return None
        return Held(frame, state, call.distinct, args)

    def accumulator(self, call: AggregateCall[str]) -> Accumulator:
        return Accumulator(call.fn, self.args_of(call), call.type)

    def part_named(self, name: str) -> Part:
        return next(part for part in self.parts if part.name == name)

    @cached_property
    def logged(self) -> tuple[NamedFrame, ...]:
        """The frames that need cells."""
        return tuple(
            frame
            for frame in self.frames
            if frame.is_delayed or (frame.is_bounded and not self._only_last_values(frame))
        )

    @cached_property
    def delayed(self) -> tuple[NamedFrame, ...]:
        """The frames that rows enter from their cells."""
        return tuple(frame for frame in self.frames if frame.is_delayed)

    def _only_last_values(self, frame: NamedFrame) -> bool:
        return all(call.fn == "last_value" for call in self.spec.calls if call.frame == frame.frame)

    @cached_property
    def logged_args(self) -> tuple[ArgumentColumn, ...]:
        """The arguments that cells hold."""
        frames = {frame.frame for frame in self.logged}
        needed = {
            arg.name
            for call in self.spec.calls
            if call.frame in frames and (call.fn != "last_value" or call.frame.end)
            for arg in self.args_of(call)
        }
        return tuple(arg for arg in self.args if arg.name in needed)

    @cached_property
    def queues(self) -> tuple[Queue, ...]:
        return tuple(part for part in self.parts if isinstance(part, Queue))

    @cached_property
    def tables(self) -> tuple[Held, ...]:
        """The parts that count equal values, one table each."""
        return tuple(part for part in self.parts if isinstance(part, Held) and part.distinct)

    @cached_property
    def slot_lanes(self) -> dict[str, int]:
        names = ["base", "capacity", "tail"] if self.logged else []
        names += [f"{frame.name}_head" for frame in self.logged if frame.is_range and frame.is_bounded]
        names += [f"{frame.name}_end" for frame in self.delayed if frame.is_range]
        names += [f"{frame.name}_width" for frame in self.logged if frame.is_own]
        names += ["group_number", "group_time"] if self.counts_groups else []
        names += [f"{part.name}_{lane}" for part in self.parts for lane in part.lanes]
        return {name: lane for lane, name in enumerate(names or ["nothing"])}

    @cached_property
    def cell_lanes(self) -> dict[str, int]:
        if not self.logged:
            return {}
        names = ["time"] if any(frame.is_range and frame.place == "t" for frame in self.logged) else []
        names += ["group"] if self.counts_groups else []
        if any(arg.flagged for arg in self.logged_args):
            names.append("flags")
        names += [arg.name for arg in self.logged_args if arg.valued]
        names += [f"{queue.name}_queue" for queue in self.queues]
        # A frame of rows that only counts still has its ring.
        return {name: lane for lane, name in enumerate(names or ["nothing"])}

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """What moving a ring needs to know: the width of a cell; of each queue its head, its tail and its entries."""
        lanes = self.slot_lanes
        queues = [
            (lanes[f"{q.name}_queue_head"], lanes[f"{q.name}_queue_tail"], self.cell_lanes[f"{q.name}_queue"])
            for q in self.queues
        ]
        return (len(self.cell_lanes), *(lane for queue in queues for lane in queue))

    def flag_bit(self, arg: ArgumentColumn) -> int:
        return [other.name for other in self.logged_args if other.flagged].index(arg.name)

    @cached_property
    def texts(self) -> tuple[ArgumentColumn, ...]:
        """The arguments whose values are strings, seen as codes."""
        return tuple(arg for arg in self.args if arg.kind == "text" and arg.valued)

    def text_lanes(self, arg: ArgumentColumn) -> list[tuple[int, int]]:
        """The slot lanes that hold codes of a text argument, each with the lane that is 1 if it holds one."""
        lanes = self.slot_lanes
        return [
            (lanes[f"{part.name}_{part.lanes[0]}"], lanes[f"{part.name}_{lane}"])
            for part in self.parts
            if isinstance(part, Held | Nth)
            for lane, own in part.holds.items()
            if own == arg
        ]

    @cached_property
    def expires(self) -> int | None:
        """How long after its last row a key may be forgotten, apart from what rows say themselves; None if never."""
        if self.spec.ends is not None:
            return 0
        if self.spec.keys and all(frame.frame.unit == "range" and frame.is_bounded for frame in self.frames):
            return max(0 if frame.is_own else frame.preceding for frame in self.frames)
        return None
