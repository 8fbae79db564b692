"""Which state an aggregate needs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from millstream.kernels.accumulators.edges import EdgeValue
from millstream.kernels.accumulators.extremes import Extreme
from millstream.kernels.accumulators.places import Argument, Place
from millstream.kernels.accumulators.sums import SPREADS, Sums
from millstream.plan.aggregates import BESIDE, HALVES, KNOWN
from millstream.records import dataclass
from millstream.types import SqlType

State = Sums | Extreme | EdgeValue


Given = tuple[str, str]
"""source of the value of an argument, and of whether it is one"""


@dataclass(frozen=True)
class Accumulator:
    """An aggregate over arguments (none: `count(*)`), whose result is of a type."""

    fn: str
    args: tuple[Argument, ...]
    type: SqlType

    @cached_property
    def state(self) -> State:
        """What it needs to know of the values; of one argument, those of equal class and, but for sums, equal function
        are the same."""
        if not self.args:
            return Sums(None)
        if self.fn in BESIDE:
            beside, by = self.args
            return Extreme(by, self.fn, beside)
        (arg,) = self.args
        if self.fn in ("min", "max") or self.fn in KNOWN:
            return Extreme(arg, self.fn)
        if self.fn in ("first_value", "last_value"):
            return EdgeValue(arg, self.fn)
        return Sums(arg, self.fn in ("sum", "avg") or self.fn in HALVES, self.fn in SPREADS)

    def result(self, at: Place, out: str, ok: str, overflow: str) -> Iterator[str]:
        """Lines that write what it comes to, and, but for `count`, whether that is a value and not NULL; `overflow` is
        a statement that runs if a sum is too large for its type, and does not go on."""
        return self.state.result(at, self.fn, self.type, out, ok, overflow)


def entered(state: State, at: Place, *values: Given) -> Iterator[str]:
    """Lines that take a row into a record, of which the arguments of a call have these values."""
    match values:
        case ():
            return state.enter(at, "")
        case ((value, known),):
            return state.enter(at, value, known)
        case (beside, (value, known)) if isinstance(state, Extreme):
            both = [each for each in (beside[1], known) if each != "True"]
            return state.enter(at, value, " and ".join(both) or "True", beside[0])
    raise ValueError(f"no aggregate of {len(values)} arguments")
