"""The source of the loop that computes the output of matches from their rows and labels."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from millstream.kernels.patterns.registers import (
    Group,
    MatchRegisters,
    Numbered,
    guarded,
    is_incremental,
    shifted,
)
from millstream.kernels.patterns.thread_parts import ENV
from millstream.kernels.source.writer import indented
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.patterns.search import CLASSIFIER, MATCH_NUMBER, TIMED_OUT, Reach, Search
from millstream.records import dataclass
from millstream.types import BOOLEAN


@dataclass(frozen=True)
class Tell:
    """Source with a function `tell`, and whether it matters how rows are labelled."""

    source: str
    needs_labels: bool
    width: int
    """the lanes of aggregates"""
    groups: int
    """of how many groups of variables it notes which rows have them"""


def told_by_loop(search: Search) -> list[str]:
    """Those of the search's columns that the loop computes."""
    return [name for name in search.columns if not is_replayed(search, name)]


def is_replayed(search: Search, name: str) -> bool:
    """Whether a column is an aggregate that has to see the rows of a match one after the other."""
    value = search.named.get(name)
    return isinstance(value, AggregateCall) and not is_incremental(value)


def tell_source(search: Search, columns: dict[str, int], number: Numbered) -> Tell:
    """The loop for a search over columns whose arrays are at these places."""
    writer = _Writer(search, columns, number)
    return Tell(writer.source(), writer.needs_labels(), writer.registers.width, len(writer.groups))


class _Writer:
    def __init__(self, search: Search, columns: dict[str, int], number: Numbered) -> None:
        self._search, self._columns, self._number = search, columns, number
        self._names = told_by_loop(search)
        values = [search.named[name] for name in self._names if name in search.named]
        self.registers = MatchRegisters(search, [value.name for value in values if isinstance(value, AggregateCall)])
        reached = [value.variables for value in values if isinstance(value, Reach)]
        self.groups = [group for group in dict.fromkeys(reached) if group is not None]
        """rows are noted for each one: which of the match's rows have its labels, one after the other"""

    def needs_labels(self) -> bool:
        search = self._search
        values = [search.named[name] for name in search.columns if name in search.named]
        return (
            any(value.variables is not None for value in values)
            or any(isinstance(value, Reach) and value.column == CLASSIFIER for value in values)
            or any(is_replayed(search, name) for name in search.columns)
            or search.given.rows == "all"
        )

    def source(self) -> str:
        outs = "".join(f", v{i}, ok{i}" for i in range(len(self._names)))
        lines = [
            f"def tell(found, count, begins, rows, labels, env, marks, regs, fregs, of, at{outs}):",
            f"    {', '.join(ENV)} = env",
            "    r = 0",
            "    for f in range(count):",
            "        m = f * FOUND",
            "        kind = found[m + M_KIND]",
            "        begin = begins[f]",
            "        size = begins[f + 1] - begin",
        ]
        if self._search.given.rows == "each":
            lines += ["        low = found[m + M_ROW]"]
        lines += [f"        {line}" for line in self._match()]
        return "\n".join([*lines, "    return r", ""])

    def _match(self) -> Iterator[str]:
        given = self._search.given.rows
        yield "if kind == NO_MATCH:"
        yield from indented(self._row("found[m + M_ROW]", [f"ok{i}[r] = False" for i in range(len(self._names))]))
        yield "    continue"
        yield from self._reset()
        if given != "all":
            yield from self._loop([])
            yield "i = size - 1"
            place = "found[m + M_ROW]" if given == "each" else "-1"
            yield from self._row(place, [*chain(*(self._value(i, name) for i, name in enumerate(self._names)))])
            return
        final = [i for i, name in enumerate(self._names) if name in self._finals()]
        running = [i for i in range(len(self._names)) if i not in final]
        yield "if size == 0:"
        yield "    i = -1"
        values = chain(*(self._value(i, name) for i, name in enumerate(self._names)))
        yield from indented(self._row("found[m + M_ROW]", [*values]))
        yield "    continue"
        yield "begun = r"
        each = [*chain(*(self._value(i, self._names[i]) for i in running))]
        yield from self._loop(["if labels[begin + i] & 1 == 0:", *indented(self._row("rows[begin + i]", each))])
        if final:
            # What is final is known behind the last row, and stands in all of them.
            yield "stop = r"
            yield "r = begun"
            yield "i = size - 1"
            for i in final:
                yield "if begun < stop:"
                yield from indented(self._value(i, self._names[i]))
                yield "for j in range(begun, stop):"
                yield f"    v{i}[j] = v{i}[begun]"
                yield f"    ok{i}[j] = ok{i}[begun]"
            yield "r = stop"

    def _finals(self) -> set[str]:
        named = self._search.named
        return {name for name in self._names if name in named and named[name].final}

    def _reset(self) -> Iterator[str]:
        if self.registers.width:
            yield f"for i in range({self.registers.width}):"
            yield "    regs[i] = 0"
        yield from (f"n{g} = 0" for g in range(len(self.groups)))

    def _loop(self, then: list[str]) -> Iterator[str]:
        def within(group: Group) -> str:
            if group is None:
                return "True"
            numbers = [self._search.variables.index(name) for name in group if name in self._search.variables]
            return " or ".join(f"label == {number}" for number in numbers) or "False"

        update = [*self.registers.update(within, "regs", self._columns.__getitem__, self._number)]
        for g, group in enumerate(self.groups):
            update += guarded(within(group), [f"marks[{self._noted(g)} + n{g}] = i", f"n{g} += 1"])
        if not update and not then:
            return
        yield "for i in range(size):"
        if update:
            yield "    p = rows[begin + i]"
            yield "    label = labels[begin + i] >> 1"
        yield from indented([*update, *then])

    @staticmethod
    def _row(place: str, values: list[str]) -> list[str]:
        return ["of[r] = f", f"at[r] = {place}", *values, "r += 1"]

    def _value(self, i: int, name: str) -> list[str]:
        if name == MATCH_NUMBER:
            return [f"v{i}[r] = found[m + M_NUMBER]", f"ok{i}[r] = kind == MATCH"]
        if name == TIMED_OUT:
            return [f"v{i}[r] = kind == TIMEOUT", f"ok{i}[r] = True"]
        value = self._search.named[name]
        if isinstance(value, AggregateCall):
            ok = "True" if value.fn == "count" else f"known{i}"
            lines = self.registers.summed(
                value, lambda lane: f"regs[{lane}]", lambda lane: f"fregs[{lane}]", f"sum{i}", ok
            )
            is_truth = " != 0" if value.type == BOOLEAN else ""
            return [*lines, f"v{i}[r] = sum{i}{is_truth}", f"ok{i}[r] = {ok}"]
        return [*self._reached(i, value)]

    def _noted(self, group: int) -> str:
        """Source of where the rows of a group are noted."""
        return f"{group} * len(rows) + begin" if group else "begin"

    def _place(self, reach: Reach) -> str:
        """Source of the number within the match of the row that a reach goes by, below 0 if there is none."""
        offset = self._number(reach.offset) if reach.offset else "0"
        if reach.variables is None:
            return f"({offset} if {offset} <= i else -1)" if reach.first else f"i - {offset}"
        group = self.groups.index(reach.variables)
        place = offset if reach.first else f"n{group} - 1 - {offset}"
        return f"(marks[{self._noted(group)} + {place}] if {offset} < n{group} else -1)"

    def _reached(self, i: int, value: Reach) -> Iterator[str]:
        shift, column = value.shift, value.column
        yield f"j = {self._place(value)}"
        yield f"ok{i}[r] = False"
        yield "if j >= 0:"
        if shift:
            yield f"    k = j + {self._number(shift)}"
            yield "    if 0 <= k < size:"
            yield "        q = rows[begin + k]"
            yield "        label = labels[begin + k] >> 1"
            yield "    else:"
            yield "        q = rows[begin + j]"
            yield "        label = -1"
            for line in shifted(shift, self._search):
                yield f"        {line}"
        else:
            yield "    q = rows[begin + j]"
            yield "    label = labels[begin + j] >> 1"
        if column == CLASSIFIER:
            yield "    if label >= 0:"
            yield f"        v{i}[r] = codes[label]"
            yield f"        ok{i}[r] = True"
            return
        place = self._columns[column]
        if self._search.given.rows == "each" and shift:
            yield "    if q < low:"
            yield "        q = -1"
            if shift > 0 and self._search.given.most is not None:
                yield "    high = low"
                yield f"    for _ in range({self._number(self._search.given.most)}):"
                yield "        if next_[high] >= 0:"
                yield "            high = next_[high]"
                yield "    if q > high:"
                yield "        q = -1"
        yield f"    if q >= 0 and cols[{place + 1}][q]:"
        yield f"        v{i}[r] = cols[{place}][q]"
        yield f"        ok{i}[r] = True"
