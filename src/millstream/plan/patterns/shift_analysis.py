"""Which attempts that begin after a failed one must fail, too, and how far the others are known to get.

The rows that a failed attempt has passed fall into classes: of each run the first row, and the later ones. Of each
class it is known which conditions held, and which did not. A later attempt is played through on classes instead of
rows, along all ways that what is known leaves open; if none of them leads behind the known rows, it fails.

What a condition reads at a fixed distance is the same for every attempt. What depends on how the match went before is
unknown in another attempt, but for one rule: an attempt that comes to an element at the same row as the failed one, and
reads from there on nothing of what differs before, goes on in the same way and fails in the same place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal as OneOf

from millstream.expressions.nodes import Call, Column, Expr, columns_of, transform
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.patterns.chains import Chain
from millstream.plan.patterns.row_conditions import Views, distance_of
from millstream.plan.patterns.search import CLASSIFIER, MATCH_NUMBER, Reach, Search, spelled
from millstream.plan.proofs.implication import contradictory
from millstream.records import dataclass
from millstream.types import BOOLEAN

Way = OneOf["failed", "checked", "filled", "late", "ended", "matched"]


@dataclass(frozen=True, slots=True)
class RowClass:
    """Rows of a run: its first, or the later ones; its last, or those before. `before` is the run of the row before it,
    None if not known."""

    run: int
    is_later: bool
    before: int | None
    is_last: bool = True


class Knowledge:
    """What is known about the conditions of a search at rows."""

    def __init__(self, chain: Chain, search: Search) -> None:
        self.chain, self.search = chain, search
        self._views = Views(search)
        self._seen_so: dict[tuple[int, int | None, str], Expr | None] = {}
        shifts = {reach.shift for reach in search.reaches}
        self._givens = self._views.givens(frozenset({0, *shifts, *(shift - 1 for shift in shifts)}))

    def old(self, element: int, before: int | None) -> Expr | None:
        """The condition of an element, in the failed attempt."""
        return self._seen(element, before, "old: ")

    def _seen(self, element: int, before: int | None, tag: str) -> Expr | None:
        key = (element, before, tag)
        if key not in self._seen_so:
            one = self.chain.elements[element]
            label = None if before is None else self.chain.elements[before].variable
            seen = None if one.condition is None else self._views.seen(one.condition, one.variable, label, tag)
            self._seen_so[key] = seen
        return self._seen_so[key]

    def verdict(self, held: tuple[Expr, ...], failed: tuple[Expr, ...], element: int, taken: bool) -> bool | None:
        """Whether a row satisfies an element in a later attempt, by what is known of it; None if that is open."""
        before = element if taken else element - 1 if element and self.chain.elements[element - 1].least else None
        wanted = self._seen(element, before, "new: ")
        if wanted is None:
            return True
        if contradictory((*held, wanted, *self._givens), failed):
            return False
        return True if contradictory((*held, *self._givens), (*failed, wanted)) else None

    def is_same_from(self, entry: int, last: int, with_last_check: bool) -> bool:
        """Whether elements from `entry` to `last` read nothing that another way to that entry would change."""
        for index in range(entry, last + 1):
            element = self.chain.elements[index]
            checks = (element.check,) if index < last or with_last_check else ()
            for condition in (element.condition, *checks):
                if condition is not None and not all(
                    self._is_same(name, element.variable, entry) for name in columns_of(condition)
                ):
                    return False
        return True

    def _is_same(self, name: str, variable: str, entry: int) -> bool:
        value = self.search.named.get(name)
        if value is None:
            return name == MATCH_NUMBER
        if isinstance(value, Reach):
            if distance_of(value, variable, None) is not None:
                return True
            if value.column == CLASSIFIER and value.shift:
                return False
            # The row before the entry is the same in both.
            before = self.chain.elements[entry - 1] if entry else None
            is_last = not value.first and not value.offset
            if is_last and before and before.least and before.variable in (value.variables or (before.variable,)):
                return True
        elif any(CLASSIFIER in columns_of(arg) for arg in value.args):
            return False
        early = self.chain.elements[:entry]
        return not any(value.variables is None or one.variable in value.variables for one in early)

    def check_verdict(self, index: int, run: int, held: bool, is_whole: bool) -> bool | None:
        """Whether the check of an element holds of rows that were a run of the failed attempt, or were the last ones of
        that run, by whether the check of that run's element held; None if that is open."""
        related: list[Expr] = []
        new = self._of_run(index, "new: ", is_whole, related)
        old = self._of_run(run, "old: ", is_whole, related)
        if new is None or old is None:
            return True if new is None else None
        known = (*related, old) if held else tuple(related)
        failed = () if held else (old,)
        if contradictory((*known, new), failed):
            return False
        return True if contradictory(known, (*failed, new)) else None

    def _of_run(self, index: int, tag: str, is_whole: bool, related: list[Expr]) -> Expr | None:
        """The check of an element, in which the same values of the same run have the same name."""
        element = self.chain.elements[index]
        is_only = sum(one.variable == element.variable for one in self.chain.elements) == 1

        def named(part: Expr) -> Expr:
            value = self.search.named.get(part.name) if isinstance(part, Column) else None
            if value is None:
                return part
            name = Column(part.type, tag + spelled(value))
            if not is_only or value.variables != (element.variable,):
                return name
            run = Column(part.type, spelled(value, ("run",)))
            if isinstance(value, Reach):
                is_same = is_whole or not (value.first or value.offset)
                return run if is_same and value.column != CLASSIFIER else name
            if value.program is not None or any(CLASSIFIER in columns_of(arg) for arg in value.args):
                return name
            if is_whole:
                return run
            related.extend(_fewer(value, run))
            return Column(part.type, tag + run.name)

        return None if element.check is None else transform(element.check, named)


def _fewer(value: AggregateCall[Expr], run: Column) -> list[Expr]:
    """How an aggregate over the last rows of a run compares with that over all of them."""
    compare = {"count": "<=", "max": "<=", "min": ">="}.get(value.fn)
    if compare is None:
        return []
    new, old = (Column(run.type, tag + run.name) for tag in ("new: ", "old: "))
    known = Call(BOOLEAN, compare, (new, old))
    return [Call(BOOLEAN, "or", (Call(BOOLEAN, "is_null", (new,)), known))]


class History:
    """The rows that an attempt has passed when it fails in one way at one element.

    `hand` is the number of the run that the row at hand would begin.
    """

    def __init__(self, knowledge: Knowledge, way: Way, at: int) -> None:
        self.knowledge, self.way, self.at = knowledge, way, at
        self.elements = knowledge.chain.elements
        self.hand = at if way == "failed" else at + 1
        self._verdicts: dict[tuple[RowClass, int, bool], bool | None] = {}
        self._seen: set[tuple[RowClass, int, RowClass | None]] = set()

    def firsts(self, run: int) -> list[RowClass]:
        """The classes of first rows of a run, or of the row at hand, that is not the first row of the attempt."""
        befores = []
        for before in range(run - 1, -1, -1):
            if self._follows(before, run):
                befores += self._first(run, before)
            if self.least(before):
                break
        return befores

    def _first(self, run: int, before: int) -> list[RowClass]:
        alone = RowClass(run, False, before)
        is_longer = run < self.hand and self.elements[run].most != 1
        return [alone, replace(alone, is_last=False)] if is_longer else [alone]

    def later(self, run: int) -> tuple[RowClass, RowClass]:
        """The classes of later rows of a run: those before the last, and the last."""
        return RowClass(run, True, run, False), RowClass(run, True, run)

    def least(self, run: int) -> int:
        """The least number of rows of a run; the last may have none yet when the attempt is over too soon."""
        return 0 if self.way in ("late", "ended") and run == self.at else self.elements[run].least

    def has_rows(self, run: int) -> bool:
        """Whether a run may have rows: an element that takes one is left as soon as it has it."""
        return not (self.way in ("late", "ended") and run == self.at and self.elements[run].most == 1)

    def may_be_first(self, run: int) -> bool:
        """Whether a run, or the row at hand, may begin where the attempt did."""
        return all(element.least == 0 for element in self.elements[:run])

    def _follows(self, before: int, run: int) -> bool:
        if run < self.hand:
            return self.has_rows(run)
        if self.way in ("failed", "checked", "matched"):
            return True
        if before == self.at:
            return True
        return self.way != "filled" and before == self.at - 1 and self.elements[before].most is not None

    def _next(self, row: RowClass) -> list[RowClass]:
        """The classes of the row behind."""
        if not row.is_last:
            return list(self.later(row.run))
        result = []
        for run in range(row.run + 1, self.hand + 1):
            if self._follows(row.run, run):
                result += self._first(run, row.run)
            if run < self.hand and self.least(run):
                break
        return result

    def _facts(self, row: RowClass) -> tuple[tuple[Expr, ...], tuple[Expr, ...]] | None:
        """The conditions that held and those that failed at rows of a class; None if there are no such rows."""
        held: list[Expr] = []
        failed: list[Expr | None] = []
        old = self.knowledge.old
        if row.run < self.hand:
            condition = old(row.run, row.before)
            held += [] if condition is None else [condition]
        elif self.way in ("late", "filled", "ended"):
            return (), ()
        elif self.way == "failed" or row.before != self.at:
            failed += [old(self.at, row.before)] if self.at < len(self.elements) else []
        else:
            failed += [old(self.at, self.at)]
        if not row.is_later:
            last = row.run - 1
            nearest = last if row.before is None else row.before
            # Runs between are empty because this row failed them; a run without limit ended because it did.
            if row.before is not None:
                failed += [old(index, row.before) for index in range(nearest + 1, row.run)]
            if nearest >= 0 and self.elements[nearest].most is None:
                failed.append(old(nearest, nearest if row.before is not None else None))
        kept = tuple(condition for condition in failed if condition is not None)
        return None if len(kept) < len(failed) else (tuple(held), kept)

    def verdict(self, row: RowClass, element: int, taken: bool) -> bool | None:
        """Whether a row satisfies an element in a later attempt; None if that is open."""
        key = (replace(row, is_last=True), element, taken)
        if key not in self._verdicts:
            known = self._facts(row)
            self._verdicts[key] = False if known is None else self.knowledge.verdict(*known, element, taken)
        return self._verdicts[key]

    def may_succeed(self, row: RowClass) -> bool:
        """Whether an attempt that begins at a row of a class may be more than another failure."""
        self._seen = set()
        return self._alive(row, 0, None)

    def check_verdict(self, element: int, entry: RowClass, row: RowClass) -> bool | None:
        """Whether the check of an element holds in a later attempt, in which it took the rows from one of a class to
        before one of another."""
        if self.elements[element].check is None:
            return True
        run = entry.run
        if row.before != run or row.is_later or (run == self.at and self.way != "checked"):
            return None
        return self.knowledge.check_verdict(element, run, run != self.at, not entry.is_later)

    def _alive(self, row: RowClass, element: int, entry: RowClass | None) -> bool:
        """Whether an attempt may succeed that comes to a row in an element, which has taken the rows since `entry`."""
        if element == len(self.elements):
            return True
        one, taken = self.elements[element], entry is not None
        if row.run == self.hand and self.way == "ended":
            return (taken or one.least == 0) and self.knowledge.chain.ends_at(element + 1)
        if (row, element, entry) in self._seen or (not taken and self._is_same_entry(row, element)):
            return False
        self._seen.add((row, element, entry))
        holds = self.verdict(row, element, taken)
        if holds is not False and self._alive_with(row, element, entry or row):
            return True
        if holds is True or not (taken or one.least == 0):
            return False
        if entry is not None and self.check_verdict(element, entry, row) is False:
            return False
        return self._alive(row, element + 1, None)

    def _alive_with(self, row: RowClass, element: int, entry: RowClass) -> bool:
        """Whether an attempt may succeed in which an element takes the row."""
        most = self.elements[element].most
        if row.run == self.hand or (most == 1 and element + 1 == len(self.elements)):
            return True
        for following in self._next(row):
            if most != 1 and self._alive(following, element, entry):
                return True
            if most is not None and self._alive(following, element + 1, None):
                return True
        return False

    def _is_same_entry(self, row: RowClass, element: int) -> bool:
        """Whether the failed attempt came to the element at the same row, and this one must fail as it did."""
        if row.is_later or row.before is None or self.way in ("late", "matched"):
            return False
        if not row.before < element <= min(row.run, self.at):
            return False
        # At the end of all rows, the elements that may be empty are asked their checks, too.
        last = len(self.elements) - 1 if self.way == "ended" else self.at
        return self.knowledge.is_same_from(element, last, self.way != "failed")
