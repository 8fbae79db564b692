"""Where the values of instances and events are for the loop of an automaton."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from millstream.expressions.nodes import Column, Expr, columns_of
from millstream.kernels.events.loops import HEADER
from millstream.kernels.events.spec import AutomatonSpec
from millstream.plan.events.automata import EVENT, INSTANCE, START, AutomatonEdge
from millstream.schema import Field
from millstream.types import SqlType

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
    """The words of rows. Each instance has a header, words that tell which values are NULL, its values, and the codes
    of those values by which instances are found and that are no codes themselves."""

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
            first = self.values_begin + len(self.spec.states[number].columns)
            for place, name in enumerate(sorted(own)):
                own[name] = first + place

    def column(self, state: int, name: str) -> SqlType:
        return self.spec.states[state].columns[name].type

    @cached_property
    def values_begin(self) -> int:
        most = max(len(state.columns) for state in self.spec.states)
        return HEADER + max(1, -(-most // _BITS))

    @cached_property
    def width(self) -> int:
        return self.values_begin + max(
            len(state.columns) + len(own) for state, own in zip(self.spec.states, self.codes, strict=True)
        )

    def word(self, state: int, name: str) -> int:
        return self.values_begin + self.spec.states[state].columns.index(name)

    def null(self, state: int, name: str) -> tuple[int, int]:
        """The word and the bit that tell whether a value is NULL."""
        place = self.spec.states[state].columns.index(name)
        return HEADER + place // _BITS, place % _BITS

    def code_word(self, state: int, name: str) -> int:
        """The word that has the code of a value."""
        return self.word(state, name) if self.column(state, name).is_coded else self.codes[state][name]

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
