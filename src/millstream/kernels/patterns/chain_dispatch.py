"""The states of a chain's loop: what a row does to an attempt, by the element that it stands in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field

from millstream.expressions.kernel.forms import and_
from millstream.kernels.patterns.chain_layout import is_counted
from millstream.kernels.patterns.chain_moves import Moves
from millstream.kernels.patterns.chain_plan import Plan
from millstream.records import dataclass


@dataclass
class _Outcomes:
    """The ways in which a row leaves the state it met, numbered."""

    failures: list[tuple[str, int]] = field(default_factory=list)
    TAKEN, NOT_BEGUN, WITH, BEFORE, FAILED = range(5)

    def number(self, kind: str, element: int) -> int:
        if (kind, element) not in self.failures:
            self.failures.append((kind, element))
        return self.FAILED + self.failures.index((kind, element))


class Dispatch(Moves):
    """Writes the tests of a row, and what follows from them."""

    def __init__(self, plan: Plan, nulls: bool, asked: frozenset[str], counted: bool) -> None:
        super().__init__(plan, nulls, asked)
        self.counted = counted
        self._outcomes = _Outcomes()
        self._over, self._kind, self._origin = "False", "failed", 0

    def dispatch(self, over: str, kind: str) -> None:
        """What the row at hand does to the state, as `how`; if it is `over`, it comes too late for the attempt."""
        self._over, self._kind = over, kind
        self._outcomes = _Outcomes()
        self.write(f"how = {_Outcomes.TAKEN}")
        for number, (element, some) in enumerate(self.plan.states):
            with self.write.block(f"{'if' if number == 0 else 'elif'} state == {number}:"):
                self._origin = element
                self._test(element, some, fresh=number == 0)

    def _test(self, element: int, some: bool, fresh: bool) -> None:
        write, one = self.write, self.layout.elements[element]
        if fresh and element == 0 and self._over != "True":
            write(*self.values.begin())
            self.begin_at("p")
        if not some and f"begin{element}" in self.layout.lanes:
            write(f"record[s + BEGIN{element}] = q")
        if self._over == "True":
            self._pass_on(element, some, fresh)
            return
        holds = "True"
        if one.condition is not None:
            if self.counted:
                with write.when("True" if self._over == "False" else f"not {self._over}"):
                    write("evaluations += 1")
            lines, holds = self.values.condition(one.condition, element, some, True)
            write(*lines)
        if self._over != "False":
            holds = and_(f"(not {self._over})", holds)
        if holds == "True":
            self._take(element, some)
            return
        with write.block(f"if {holds}:"):
            self._take(element, some)
        with write.block("else:"):
            self._pass_on(element, some, fresh)

    def _take(self, element: int, some: bool) -> None:
        write, one = self.write, self.layout.elements[element]
        write(*self.take_lines(element, some, one.condition))
        if one.most == 1:
            self._complete_with(element)
        elif is_counted(one):
            if some:
                most = self.values.constants.number(("most", element), one.most or 0)
                with write.block(f"if record[s + COUNT] == v_i{most}:"):
                    self._complete_with(element)
            else:
                write(f"state = {self.plan.state(element, True)}")
        elif not some:
            write(f"state = {self.plan.state(element, True)}")

    def _complete_with(self, element: int) -> None:
        """The row at hand was the last that an element takes."""
        with self._checked(element, "filled"):
            if element + 1 == len(self.layout.elements):
                self.write(f"how = {_Outcomes.WITH}")
            else:
                self.write(f"state = {self.plan.state(element + 1, False)}")

    def _pass_on(self, element: int, some: bool, fresh: bool) -> None:
        """An element does not take the row at hand."""
        one = self.layout.elements[element]
        if not some and one.least:
            self.write(f"how = {_Outcomes.NOT_BEGUN}" if fresh else self._failed("failed", element))
            return
        with self._checked(element, "checked"):
            if element + 1 == len(self.layout.elements):
                self.write(f"how = {_Outcomes.BEFORE}")
            else:
                self._test(element + 1, False, fresh and not some)

    def _failed(self, kind: str, element: int) -> str:
        """The attempt fails; one that is over does so in the element where it stood."""
        if kind == "filled" or self._over == "False":
            return f"how = {self._outcomes.number(kind, element)}"
        late = self._outcomes.number(self._kind, self._origin)
        if self._over == "True":
            return f"how = {late}"
        return f"how = {late} if over else {self._outcomes.number(kind, element)}"

    @contextmanager
    def _checked(self, element: int, kind: str) -> Iterator[None]:
        """What is written inside runs where the check behind an element holds; elsewhere, the attempt fails."""
        check = self.layout.elements[element].check
        if check is None:
            yield
            return
        if self.counted:
            self.write("evaluations += 1")
        lines, holds = self.values.condition(check, element + 1, False, False)
        self.write(*lines)
        with self.write.block(f"if {holds}:"):
            yield
        with self.write.block("else:"):
            self.write(self._failed(kind, element))

    def outcome(self, again: str) -> None:
        """What follows from `how`; `again` goes on to the next row."""
        write = self.write
        with write.block(f"if how == {_Outcomes.TAKEN}:"):
            write(again)
        with write.block(f"elif how == {_Outcomes.NOT_BEGUN}:"):
            write("state = 0", again)
        with write.block(f"elif how == {_Outcomes.WITH}:"):
            self.emit()
            write("state = 0")
            self.resume(again)
        with write.block(f"elif how == {_Outcomes.BEFORE}:"):
            self.emit()
            write("state = 0")
            useless = not self.plan.shifts.ender_begins and self._over == "False"
            self.resume(again if useless else "pass")
        for kind, element in self._outcomes.failures:
            with write.block(f"elif how == {self._outcomes.number(kind, element)}:"):
                self.fail(kind, element, again)
