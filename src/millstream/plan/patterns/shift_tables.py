"""Where the search goes on when an attempt has failed: the rows passed are known, and tell which later attempts fail.

This is the optimised pattern search of SQL-TS, Knuth-Morris-Pratt for conditions and repetitions. The tables are made
once, from what follows from the conditions (`shift_analysis`); the naive search takes the next row after the failed
attempt's first and knows nothing.

An attempt has a run of rows for each element it came to: the run of element i began at row `first[i]` and ended before
row `first[i + 1]`, and may be empty where `least` is 0. When it fails, the row at hand is named by a run, too:

- `failed[j]`: the row at hand satisfies neither what element j needs nor what an element before it that could have gone
  on needs; element j has taken nothing, and the row at hand is `first[j]`;
- `checked[j]`: the row at hand, `first[j + 1]`, ended the run of element j, and then its check failed;
- `filled[j]`: element j took its last possible row, and then its check failed; the row behind it is `first[j + 1]`;
- `late[j]`: in element j, the row at hand comes too late for the attempt; it is `first[j + 1]` and has not been tested;
- `ended[j]`: in element j, there are no more rows; the first that is missing is `first[j + 1]`.
"""

from __future__ import annotations

from dataclasses import fields

from millstream.plan.patterns.chains import Chain
from millstream.records import dataclass


@dataclass(frozen=True, slots=True)
class RunPlace:
    """The row `first[run] + ahead`; with `ahead` -1, the last row of the run before."""

    run: int
    ahead: int = 0


@dataclass(frozen=True, slots=True)
class Start:
    """A later attempt, and how far it is known to get.

    The run of each of its elements up to the one it stands in begins at a row of `begins`; the attempt begins at the
    first of these. Row `at` is the next to be tested, by element `len(begins) - 1`, which has taken the rows from
    `begins[-1]` to before `at`. All earlier conditions are known to be true, and all earlier elements complete.
    If `run` is given, the attempt is possible only if that run has more than `begins[0].ahead` rows.
    """

    begins: tuple[RunPlace, ...]
    at: RunPlace
    run: int | None = None

    @property
    def element(self) -> int:
        return len(self.begins) - 1


Shift = tuple[Start, ...]
"""The attempts that may succeed, earliest first: the search goes on with the first that is possible. The last is."""


@dataclass(frozen=True, slots=True)
class Shifts:
    """For each way and element in which an attempt may fail, where the search goes on; None where it cannot fail so.

    `ender_begins` is false if the row that ended the last run of a match cannot begin another one. `rescans` says
    whether a row may be tested again after an attempt failed at a later one.
    """

    failed: tuple[Shift | None, ...]
    checked: tuple[Shift | None, ...]
    filled: tuple[Shift | None, ...]
    late: tuple[Shift | None, ...]
    ended: tuple[Shift | None, ...]
    ender_begins: bool
    rescans: bool

    def lines(self, chain: Chain) -> list[str]:
        """The tables as text, a line for each way to fail."""
        result = []
        for field in fields(self)[:3]:
            for j, shift in enumerate(getattr(self, field.name)):
                if shift is not None:
                    name = f"{chain.elements[j]}" + {"failed": "", "checked": " check", "filled": " check"}[field.name]
                    at_hand = j if field.name == "failed" else j + 1
                    result.append(f"{name}: " + ", or ".join(_start_text(start, chain, at_hand) for start in shift))
        return result


def _start_text(start: Start, chain: Chain, at_hand: int) -> str:
    begin = _place_text(start.begins[0], chain, at_hand)
    text = f"begin at {begin}" if start.run is None else f"begin at {begin} if there is one"
    if start.element == 0 and start.at == start.begins[0]:
        return text
    return f"{text}, test {_place_text(start.at, chain, at_hand)} for {chain.elements[start.element]}"


def _place_text(place: RunPlace, chain: Chain, at_hand: int) -> str:
    if place.ahead < 0:
        return f"the last row of {chain.elements[place.run - 1]}"
    if place.run == at_hand:
        return ("this row", "the next row")[place.ahead]
    element = chain.elements[place.run]
    if element.is_single:
        return f"{element}{f' + {place.ahead}' if place.ahead else ''}"
    return f"row {place.ahead + 1} of {element}"
