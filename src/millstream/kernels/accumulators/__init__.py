"""The built-in aggregates, each written once: what is kept of the values seen so far, and how that changes.

`Accumulator(fn, arguments, type)` is an aggregate over arguments. Its `state` says which lanes a record has and writes
the source text that changes them; `Sums` of one argument can be `joined`. Any driver can use them:
it says by a `Place` what the lanes of a record are called where its source stands, elements of arrays or plain
variables.

    total = Accumulator("sum", (Argument("a0", DOUBLE),), DOUBLE)
    at = Place.numbered("regs", "fregs", "base", total.state)       # or Place.named, or Place.local
    total.state.begin(at)                                           # nothing seen; a record of zeros is the same
    entered(total.state, at, ("value", "not null"))                 # a row comes, with a value for each argument,
    total.state.leave(at, "value", known="not null")                # or goes again (sums and counts alone),
    total.state.merge(at, Place.numbered("regs", "fregs", "next", total.state))    # or another record behind this one
    total.result(at, "out", "ok", overflow="return TOO_LARGE")      # what it comes to, and whether there is a value

All give lines of kernel source, the same text for plain Python and for the compiler. `imports(source)` has the lines
that such source begins with. Integer lanes are int64, float lanes float64. Booleans, times and decimals of up to 18
digits are integers; strings, and what 64 bits cannot hold, are codes, whose order takes the arrays `Argument.texts`.

`sum` of floats is exact over some hundred binary digits, so it depends neither on the order of values nor on how they
were divided between records.
"""

from millstream.kernels.accumulators.calls import Accumulator, Given, State, entered
from millstream.kernels.accumulators.edges import EdgeValue
from millstream.kernels.accumulators.extremes import Extreme
from millstream.kernels.accumulators.places import Argument, Lane, Place, imports
from millstream.kernels.accumulators.sums import Sums

__all__ = [
    "Accumulator",
    "Argument",
    "EdgeValue",
    "Extreme",
    "Given",
    "Lane",
    "Place",
    "State",
    "Sums",
    "entered",
    "imports",
]
