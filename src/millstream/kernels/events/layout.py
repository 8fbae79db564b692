"""Where the values of instances and events are for the loop of an automaton."""

from __future__ import annotations

from dataclasses import field
from functools import cached_property

from millstream.expressions.nodes import Column, Expr, columns_of
from millstream.kernels.accumulators import Accumulator, Argument, Extreme, Lane
from millstream.kernels.events.loops import HEADER
from millstream.kernels.events.spec import AutomatonSpec
from millstream.plan.aggregates import KNOWN
from millstream.plan.events.automata import EVENT, INSTANCE, START, AutomatonEdge
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import BIGINT, DOUBLE, SqlType

_BITS = 62
"""NULLs that a word tells of"""


@dataclass(frozen=True)
class OutputColumn:
    """Where a column of the result is: a word of what the loop writes, or a column of the event that was last."""

    field: Field
    word: int | None
    event: str | None


@dataclass
class AutomatonLayout:
    """The words of rows. Each instance has a header, words that tell which values are NULL, its values, the lanes of
    its aggregates, and the codes of those values by which instances are found and that are no codes themselves."""

    spec: AutomatonSpec
    codes: list[dict[str, int]] = field(default_factory=list)
    """for each state, the words that have the codes of columns"""

    def __post_init__(self) -> None:
        self.codes = [{} for _ in self.spec.states]
        waiting = [
            (number, pair[1])
            for number, pair in enumerate(self.spec.indexes)
            if pair is not None and not self.column(number, pair[1]).is_coded
        ]
        while waiting:
            number, name = waiting.pop()
            if name in self.codes[number]:
                continue
            self.codes[number][name] = -1
            for edge in self.spec.edges:
                if edge.target == number:
                    value = dict(edge.values)[name]
                    assert isinstance(value, Column)
                    if value.name.startswith(INSTANCE):
                        waiting.append((edge.source, value.name[2:]))
        for number, own in enumerate(self.codes):
            first = self.values_begin + len(self.stored[number])
            for place, name in enumerate(sorted(own)):
                own[name] = first + place

    def column(self, state: int, name: str) -> SqlType:
        return self.stored[state][name].type

    @cached_property
    def accumulators(self) -> tuple[tuple[Accumulator, ...], ...]:
        """For each state those of its aggregates."""
        return tuple(
            tuple(
                Accumulator(
                    each.fn,
                    tuple(Argument(argument_name(number, place, i), arg.type) for i, arg in enumerate(each.args)),
                    each.type,
                )
                for place, each in enumerate(state.aggregates)
            )
            for number, state in enumerate(self.spec.states)
        )

    def lanes(self, state: int, place: int) -> list[tuple[Lane, Field]]:
        """The lanes of an aggregate, and the columns that hold them."""
        accumulator, name = self.accumulators[state][place], self.spec.states[state].aggregates[place].name
        found = []
        for lane in accumulator.state.lanes:
            arg = accumulator.state.holds.get(lane.name)
            is_code = arg is not None and arg.type.is_coded
            type_ = arg.type if arg is not None and is_code else DOUBLE if lane.is_float else BIGINT
            found.append((lane, Field(f"{name}.{lane.name}", type_)))
        return found

    @cached_property
    def stored(self) -> tuple[Schema, ...]:
        """What instances of each state hold: their columns, and the lanes of aggregates."""
        return tuple(
            Schema(
                state.columns.fields
                + tuple(own for place in range(len(state.aggregates)) for _, own in self.lanes(number, place))
            )
            for number, state in enumerate(self.spec.states)
        )

    @cached_property
    def compares_texts(self) -> bool:
        """Whether an aggregate asks for the order of texts."""
        return bool(self.compared_texts)

    @cached_property
    def compared_texts(self) -> tuple[Argument, ...]:
        """The arguments whose texts aggregates ask for the order of."""
        states = (each.state for own in self.accumulators for each in own)
        extremes = (state for state in states if isinstance(state, Extreme) and state.fn not in KNOWN)
        return tuple(state.arg for state in extremes if state.arg.type.is_coded)

    @cached_property
    def values_begin(self) -> int:
        most = max(map(len, self.stored))
        return HEADER + max(1, -(-most // _BITS))

    @cached_property
    def width(self) -> int:
        return self.values_begin + max(
            len(columns) + len(own) for columns, own in zip(self.stored, self.codes, strict=True)
        )

    def word(self, state: int, name: str) -> int:
        return self.values_begin + self.stored[state].index(name)

    def null(self, state: int, name: str) -> tuple[int, int]:
        """The word and the bit that tell whether a value is NULL."""
        place = self.stored[state].index(name)
        return HEADER + place // _BITS, place % _BITS

    def code_word(self, state: int, name: str) -> int:
        """The word that has the code of a value."""
        return self.word(state, name) if self.column(state, name).is_coded else self.codes[state][name]

    @property
    def code_words(self) -> list[int]:
        """For each state the word of the code by which its instances are found; -1: all are looked at."""
        return [
            -1 if pair is None else self.code_word(number, pair[1]) for number, pair in enumerate(self.spec.indexes)
        ]

    # -- events ----------------------------------------------------------------------------------------------------

    @cached_property
    def looked_at(self) -> tuple[tuple[str, ...], ...]:
        """For each stream the columns that the loop reads."""
        read: list[dict[str, None]] = [{} for _ in self.spec.inputs]

        def note(port: int, expr: Expr) -> None:
            for name in sorted(columns_of(expr)):
                if name.startswith(EVENT):
                    read[port][name[2:]] = None

        for state, pair in zip(self.spec.states, self.spec.indexes, strict=True):
            for condition in state.conditions:
                if not is_pair(condition, pair):
                    note(state.port, condition)
            for aggregate in state.aggregates:
                for arg in aggregate.args:
                    note(state.port, arg)
            if pair is not None and self.spec.inputs[state.port][pair[0]].type.is_coded:
                read[state.port][pair[0]] = None
        for edge in self.spec.edges:
            for condition in edge.conditions:
                note(edge.port, condition)
            for place, (_, value) in enumerate(edge.values):
                if edge.target < self.spec.end or self.outputs[place].word is not None:
                    note(edge.port, value)
        return tuple(map(tuple, read))

    @cached_property
    def coded(self) -> tuple[tuple[str, ...], ...]:
        """For each stream the columns that are no text and whose codes the loop reads."""
        read: list[dict[str, None]] = [{} for _ in self.spec.inputs]
        for number, (state, pair) in enumerate(zip(self.spec.states, self.spec.indexes, strict=True)):
            if pair is not None and not self.spec.inputs[state.port][pair[0]].type.is_coded:
                read[state.port][pair[0]] = None
            for edge in self.spec.edges:
                if edge.target == number:
                    for name in self.codes[number]:
                        value = dict(edge.values)[name]
                        if _is_of_event(value):
                            read[edge.port][value.name[2:]] = None  # type: ignore[attr-defined]
        return tuple(map(tuple, read))

    # -- results ---------------------------------------------------------------------------------------------------

    @cached_property
    def ends(self) -> list[AutomatonEdge]:
        return [edge for edge in self.spec.edges if edge.target == self.spec.end]

    @cached_property
    def outputs(self) -> tuple[OutputColumn, ...]:
        """Columns of the result; those that every edge takes from an event of the same stream are not written."""
        found = []
        word = 2 + max(1, -(-len(self.spec.output) // _BITS))
        for place, own in enumerate(self.spec.output):
            values = {edge.values[place][1] for edge in self.ends}
            only = next(iter(values))
            if len(values) == 1 and len({edge.port for edge in self.ends}) == 1 and _is_of_event(only):
                found.append(OutputColumn(own, None, only.name[2:]))  # type: ignore[attr-defined]
            else:
                found.append(OutputColumn(own, word, None))
                word += 1
        return tuple(found)

    @cached_property
    def output_width(self) -> int:
        return max((out.word + 1 for out in self.outputs if out.word is not None), default=2 + self.output_nulls)

    @cached_property
    def output_nulls(self) -> int:
        return max(1, -(-len(self.spec.output) // _BITS))

    def output_null(self, place: int) -> tuple[int, int]:
        return 2 + place // _BITS, place % _BITS

    @property
    def starts(self) -> list[AutomatonEdge]:
        return [edge for edge in self.spec.edges if edge.source == START]


def argument_name(state: int, place: int, number: int) -> str:
    """What variables begin with that concern an argument of an aggregate."""
    return f"t{state}_{place}" if number == 0 else f"t{state}_{place}_{number}"


def is_pair(condition: Expr, pair: tuple[str, str] | None) -> bool:
    """Whether a condition is the equality by which instances are found."""
    return pair is not None and _same(condition, (EVENT + pair[0], INSTANCE + pair[1]))


def _same(condition: Expr, names: tuple[str, str]) -> bool:
    if getattr(condition, "fn", None) != "=":
        return False
    args = condition.children()
    return all(isinstance(arg, Column) for arg in args) and sorted(a.name for a in args) == sorted(names)  # type: ignore[attr-defined]


def _is_of_event(value: Expr) -> bool:
    return isinstance(value, Column) and value.name.startswith(EVENT)
