"""A window that slides on by at least its own length is computed from scratch in each slot."""

from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.aggregates import HALVES, KNOWN, NAMES
from millstream.plan.nodes import Aggregate, Node, Over, RowSlots, Yield
from millstream.plan.programs.facts import returns_one_row
from millstream.plan.programs.modes import Running, Sliding, Tumbling
from millstream.plan.programs.nodes import Program
from millstream.plan.programs.product import begins_with_sqlcode, product, shared
from millstream.plan.programs.python import code_in
from millstream.rules.merge_aggregates import stacked


def tumble_slides(node: Node) -> Node:
    """Run the version without a window over the last rows of each slot, and nothing over those before them: no window
    is kept, and only rows that yield are given."""
    match node:
        case Yield(input=Over(input=below, keys=keys, calls=calls), unit="rows", every=every) if node.keys == keys:
            if all(fits_slot(call, every) for call in calls):
                return RowSlots(below, keys, calls, every)
        case Yield(input=Aggregate(mode=Sliding(unit="rows", size=size, every=None)) as call, unit="rows", every=every):
            if node.keys == call.keys and size <= every and call.base is not None and ends_in_one_row(call.base):
                return _tumbled(call, Tumbling(size, every))
    return node


def fits_slot(call: AggregateCall[str], every: int) -> bool:
    """Whether an accumulator computes a call from the last rows of a slot of that many."""
    start, frame = call.frame.start, call.frame
    is_within = frame.unit == "rows" and frame.end == 0 and start is not None and start < every
    return is_within and call.has_lanes and call.fn in NAMES | HALVES | KNOWN


def _tumbled(call: Aggregate, mode: Tumbling) -> Aggregate:
    """The version without a window of an aggregate, and of those below over the same window, as one program."""
    calls = stacked(call, alike=lambda each: each.mode == call.mode and _can_multiply(each.base)) or [call]
    bases = [each.base for each in calls if each.base is not None]
    program, args = shared(product(bases), tuple(arg for each in calls for arg in each.args))
    results = tuple(result for each in calls for result in each.results)
    return Aggregate(calls[0].input, call.keys, program, args, mode, results)


def _can_multiply(base: Program | None) -> bool:
    """Whether an aggregate can be one of several in a program."""
    if base is None or not base.is_blocking or not ends_in_one_row(base):
        return False
    return not begins_with_sqlcode(base) and code_in(base) is None


def ends_in_one_row(base: Program) -> bool:
    """Whether an aggregate over some rows is exactly one row."""
    return returns_one_row(base, Running(total=base.is_blocking))
