"""What the texts of a chain's loops have in common, and where the search goes on after a match and after a failure."""

from __future__ import annotations

from contextlib import ExitStack

from millstream.expressions.nodes import Expr
from millstream.kernels.patterns.chain_layout import is_counted
from millstream.kernels.patterns.chain_plan import Plan, at_hand
from millstream.kernels.patterns.chain_values import ChainValues
from millstream.kernels.source.writer import Writer
from millstream.plan.patterns.chains import Element
from millstream.plan.patterns.shift_tables import RunPlace, Start


class Moves:
    """Writes what a loop does when an attempt is over.

    In its text, `s` is where the record of the partition begins, `state` its state, and `p` the row at hand. Where rows
    may be looked at again, `q` is the position of the row at hand, and the search goes on at the row that it is set to.
    """

    def __init__(self, plan: Plan, nulls: bool, asked: frozenset[str]) -> None:
        self.plan, self.layout = plan, plan.layout
        self.values = ChainValues(plan.layout, nulls, asked)
        self.outputs = [
            self.values.named(name, len(self.layout.elements), False, False) for name in plan.search.columns
        ]
        self.write = Writer()

    def look_at(self, position: str) -> None:
        """A row of the log becomes the one at hand."""
        self.write(f"p = place({position})")
        for i, back in enumerate(self.layout.backs, 1):
            self.write(f"p{i} = {'prev' if back == 1 else f'back{i}'}[p]")

    def begin_at(self, row: str) -> None:
        if self.layout.search.within is not None:
            self.write(f"record[s + DEADLINE] = time[{row}] + within if time[{row}] < END - within else FOREVER")
        if self.plan.resumes:
            self.write("record[s + RESUME] = -1")

    def take_lines(self, element: int, some: bool, tested: Expr | None) -> list[str]:
        """What is kept of a row that an element takes after testing a condition."""
        one = self.layout.elements[element]
        lines = list(self.values.take(element, some, tested))
        if is_counted(one):
            lines.append("record[s + COUNT] += 1" if some else "record[s + COUNT] = 1")
        if self.plan.resumes and one.variable in self.plan.search.skip.variables:
            if self.plan.search.skip.to == "last":
                lines.append("record[s + RESUME] = q")
            else:
                lines += ["if record[s + RESUME] < 0:", "    record[s + RESUME] = q"]
        return lines

    def resume(self, past_last: str) -> None:
        """Where the search goes on after a match."""
        write = self.write
        match self.layout.search.skip.to:
            case "past last":
                write(past_last)
            case "next":
                write("q = next[place(record[s + BEGIN0])]")
            case _:
                with write.block("if record[s + RESUME] < 0:"):
                    write("meta[TROUBLE] = NO_ROW", "break")
                with write.block("if record[s + RESUME] == record[s + BEGIN0]:"):
                    write("meta[TROUBLE] = FIRST_ROW", "break")
                write("q = record[s + RESUME]")

    def emit(self) -> None:
        write = self.write
        write(*self.values.summed(self.layout.search.columns, None))
        write("out_slot[found] = s", "out_time[found] = now", "out_seq[found] = by")
        for i, (value, null) in enumerate(self.outputs):
            write(f"out{i}[found] = {value}")
            if null != "False":
                write(f"valid{i}[found] = not {null}")
        write("found += 1")
        if self.layout.is_numbered:
            write("record[s + NUMBER] += 1")

    def fail(self, kind: str, element: int, again: str) -> None:
        """Go on with the first attempt that is possible."""
        if not self.layout.logged:
            (start,) = self.plan.shift(kind, element)
            self._start_here(start, kind, element, again)
            return
        self.write("here = next[p]" if kind == "filled" else "here = q")
        if any(start.begins[0] == RunPlace(at_hand(kind, element), -1) for start in self.plan.shift(kind, element)):
            self.write("before = p" if kind == "filled" else "before = prev[p]")
        with ExitStack() as stack:
            for start in self.plan.shift(kind, element):
                if start.run is None:
                    self._start(start, at_hand(kind, element))
                    break
                self._look_for(start, at_hand(kind, element))
                with self.write.block("if b0 != end:"):
                    self._start(start, at_hand(kind, element))
                stack.enter_context(self.write.block("else:"))

    def _start_here(self, start: Start, kind: str, element: int, again: str) -> None:
        """Where no row is looked at twice: the row at hand begins a new attempt, or does not."""
        here, write = at_hand(kind, element), self.write
        write("state = 0")
        if kind in ("filled", "late", "ended") or start.begins[0] != RunPlace(here):
            write(again)
        elif start.at != RunPlace(here):
            write(*self.values.begin())
            self.begin_at("p")
            write(*self.take_lines(0, False, None))
            write(f"state = {self.plan.state(start.element, start.element == 0)}", again)

    def _position(self, place: RunPlace, here: int) -> str:
        """The row at a place; behind the row at hand there is at most one that is known."""
        text = "here" if place.run == here else f"record[s + BEGIN{place.run}]"
        if place.ahead < 0:
            # An element that took its last row has no row behind it yet, but that one is the row at hand.
            return "before" if text == "here" else f"prev[place({text})]"
        for _ in range(place.ahead):
            text = "(stop if q == stop else next[place(q)])" if text == "here" else f"next[place({text})]"
        return text

    def _look_for(self, start: Start, here: int) -> None:
        """The first row of an attempt, if a run has so many rows."""
        assert start.run is not None
        self.write(f"b0 = {self._position(RunPlace(start.run), here)}")
        self.write(f"end = {self._position(RunPlace(start.run + 1), here)}")
        for _ in range(start.begins[0].ahead):
            self.write("if b0 != end:", "    b0 = next[place(b0)]")

    def _start(self, start: Start, here: int) -> None:
        """Go on with an attempt: what is known of its rows is kept as if they had been tested."""
        write = self.write
        if start.element == 0 and start.at == start.begins[0]:
            write(f"q = {self._position(start.at, here)}", "state = 0")
            return
        write(*(f"b{i} = {self._position(place, here)}" for i, place in enumerate(start.begins)))
        write(f"b{start.element + 1} = {self._position(start.at, here)}")
        write(*self.values.begin())
        self.begin_at("place(b0)")
        for i, element in enumerate(self.layout.elements[: start.element + 1]):
            if f"begin{i}" in self.layout.lanes:
                write(f"record[s + BEGIN{i}] = b{i}")
            self._replay(i, element)
        write(f"q = b{start.element + 1}")
        zero = self.plan.state(start.element, False)
        if start.at == start.begins[-1]:
            write(f"state = {zero}")
        else:
            some = self.plan.state(start.element, True)
            write(f"state = {some} if b{start.element} != q else {zero}")

    def _replay(self, i: int, element: Element) -> None:
        """An element takes the rows that it is known to take."""
        first, others = (self.take_lines(i, some, None) for some in (False, True))
        if not first and (not others or element.most == 1):
            return
        write = self.write
        write(f"q = b{i}")
        with write.block(f"if q != b{i + 1}:"):
            self.look_at("q")
            write(*first)
            write("q = next[p]")
        if element.most != 1:
            with write.block(f"while q != b{i + 1}:"):
                self.look_at("q")
                write(*others)
                write("q = next[p]")
