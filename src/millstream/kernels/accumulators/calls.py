"""Which state an aggregate needs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from millstream.kernels.accumulators.edges import EdgeValue
from millstream.kernels.accumulators.extremes import Extreme
from millstream.kernels.accumulators.places import Argument, Place
from millstream.kernels.accumulators.sums import SPREADS, Sums
from millstream.plan.aggregates import KNOWN
from millstream.records import dataclass
from millstream.types import SqlType

State = Sums | Extreme | EdgeValue


@dataclass(frozen=True)
class Accumulator:
    """An aggregate over an argument (None: `count(*)`), whose result is of a type."""

    fn: str
    arg: Argument | None
    type: SqlType

    @cached_property
    def state(self) -> State:
        """What it needs to know of the values; of one argument, those of equal class and, but for sums, equal function
        are the same."""
        if self.arg is None:
            return Sums(None)
        if self.fn in ("min", "max") or self.fn in KNOWN:
            return Extreme(self.arg, self.fn)
        if self.fn in ("first_value", "last_value"):
            return EdgeValue(self.arg, self.fn)
        return Sums(self.arg, self.fn in ("sum", "avg"), self.fn in SPREADS)

    def result(self, at: Place, out: str, ok: str, overflow: str) -> Iterator[str]:
        """Lines that write what it comes to, and, but for `count`, whether that is a value and not NULL; `overflow` is
        a statement that runs if a sum is too large for its type, and does not go on."""
        return self.state.result(at, self.fn, self.type, out, ok, overflow)
