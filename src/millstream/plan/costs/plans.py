"""What a plan costs: for each operator what its output is like, the rows it holds, and its processor time."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.plan.annotations import ends_in_order
from millstream.plan.costs import flows
from millstream.plan.costs import operators as operator_costs
from millstream.plan.costs.flows import RelationFlow
from millstream.plan.costs.operators import UNITS, UnitCosts
from millstream.plan.costs.selectivity import LEAST, buckets, groups, join_selectivity, selectivity
from millstream.plan.costs.statistics import UNKNOWN, Statistics
from millstream.plan.nodes import (
    AssignWindows,
    Distinct,
    Filter,
    JoinTable,
    Kind,
    Node,
    Over,
    Project,
    RowSlots,
    Scan,
    TableQuery,
    TableScan,
    Unary,
    Union,
    Yield,
)
from millstream.plan.relations import (
    Coarsen,
    Join,
    OwnRange,
    Periods,
    RangeWindow,
    SetOperation,
    Summarize,
    ToEvents,
    Validity,
    Window,
)
from millstream.plan.unnest import Unnest
from millstream.records import dataclass

DISTANCE = 1000.0
"""between rows of a stream that nobody has measured: a thousand a second where time is in µs"""

TABLE_ROWS = 1000.0
"""of a stored table, which nobody counts"""

ELEMENTS = 4.0
"""of an array, which nobody counts either"""

LONG = 86_400_000_000.0
"""how long rows of a window without end are taken to last: a day where time is in µs"""


@dataclass(frozen=True)
class Cost:
    """An operator's output, the rows it holds, its processor time in nanoseconds per unit of time; its inputs'."""

    node: Node
    flow: RelationFlow
    held: float
    cpu: float
    inputs: tuple[Cost, ...] = ()

    def walk(self) -> Iterator[Cost]:
        """This operator and those below it, in the order in which a plan prints."""
        yield self
        for below in self.inputs:
            yield from below.walk()

    @property
    def total_held(self) -> float:
        return sum(cost.held for cost in self.walk())

    @property
    def total_cpu(self) -> float:
        return sum(cost.cpu for cost in self.walk())


def estimate(plan: Node, known: Statistics = UNKNOWN, units: UnitCosts = UNITS) -> Cost:
    """The costs of a plan from what is known of its streams; what is not known is assumed."""
    inputs = tuple(estimate(below, known, units) for below in plan.inputs)
    flow, held, cpu = _operator(plan, tuple(cost.flow for cost in inputs), known, units)
    return Cost(plan, flow, held, cpu, inputs)


def _operator(
    node: Node, inputs: tuple[RelationFlow, ...], known: Statistics, u: UnitCosts
) -> tuple[RelationFlow, float, float]:
    """What one operator gives, holds and takes, from what its inputs give."""
    match node:
        case Scan(stream=stream):
            found = known.streams.get(stream.lower())
            return RelationFlow(DISTANCE if found is None else found.distance), 0.0, 0.0
        case TableScan() | TableQuery():
            return RelationFlow(1 / TABLE_ROWS), TABLE_ROWS, 0.0
        case Filter(input=below, predicate=predicate):
            kept = flows.filtered(inputs[0], selectivity(predicate, below, known))
            return kept, 0.0, operator_costs.filter_cpu(inputs[0], kept, u)
        case Project(columns=columns):
            return inputs[0], 0.0, operator_costs.project_cpu(inputs[0], len(columns), u)
        case Union():
            merged = flows.united(*inputs)
            return merged, 0.0, operator_costs.union_cpu(merged, u)
        case Join():
            left, right = inputs
            return _join(node, left, right, known, u)
        case JoinTable():
            # of a stored table, what counts is how many rows it has
            return _join_table(node, inputs[0], inputs[1].valid, known, u)
        case Window() | Coarsen():
            return _window(node, inputs[0], known, u)
        case Distinct() | Summarize() | SetOperation() if node.kind is Kind.RELATION:
            return _sweep(node, inputs, known, u)
        case Unnest():
            copies = RelationFlow(inputs[0].distance / ELEMENTS)
            return copies, 0.0, operator_costs.union_cpu(copies, u)
        case Over() | Yield() | RowSlots() | AssignWindows():
            return _over_events(node, inputs[0], known, u)
        case Validity():
            return inputs[0], 0.0, operator_costs.project_cpu(inputs[0], 2, u)
        case ToEvents(how="rstream", granule=granule):
            pieces = flows.split(inputs[0], granule)
            return pieces, inputs[0].valid, operator_costs.split_cpu(inputs[0], granule, u)
        case ToEvents():
            changes = RelationFlow(inputs[0].distance)
            return changes, inputs[0].valid, operator_costs.coalesce_cpu(inputs[0], changes, u)
    out = inputs[0] if inputs else RelationFlow(DISTANCE)
    return out, out.valid, operator_costs.events_cpu(out, u)


def _join(
    node: Join, left: RelationFlow, right: RelationFlow, known: Statistics, u: UnitCosts = UNITS
) -> tuple[RelationFlow, float, float]:
    matching = join_selectivity(node, known)
    pairs = flows.joined(left, right, matching)
    in_order = (ends_in_order(node.left), ends_in_order(node.right))
    cpu = operator_costs.join_cpu(left, right, matching, buckets(node, known), in_order, u)
    without_match = {"left": [(left, right)], "right": [(right, left)], "full": [(left, right), (right, left)]}
    if node.how == "anti":
        pairs = flows.uncovered(left, right, matching)
    elif node.how == "semi":
        pairs = flows.filtered(left, min(max(matching * right.valid, LEAST), 1.0))
    elif node.how in without_match:
        pairs = flows.united(pairs, *(flows.uncovered(*sides, matching) for sides in without_match[node.how]))
    return pairs, operator_costs.join_rows(left, right), cpu


def _join_table(
    node: JoinTable, flow: RelationFlow, rows: float, known: Statistics, u: UnitCosts
) -> tuple[RelationFlow, float, float]:
    matches = rows * join_selectivity(node, known)
    match node.how:
        case "inner":
            kept = max(matches, LEAST)
        case "left":
            kept = max(matches, 1.0)
        case "semi" | "gather":
            kept = min(max(matches, LEAST), 1.0)
        case "anti":
            kept = max(1.0 - matches, LEAST)
        case "single" | "mark":
            kept = 1.0
    out = flows.filtered(flow, kept)
    return out, 0.0, flow.rate * u.hash + out.rate * (u.build + u.append)


def _window(
    node: Window | Coarsen, flow: RelationFlow, known: Statistics, u: UnitCosts
) -> tuple[RelationFlow, float, float]:
    if isinstance(node, Coarsen):
        coarse = flows.coarsened(flow, max(float(node.granule), flow.granule))
        return coarse, 0.0, operator_costs.coarsen_cpu(flow, coarse, u)
    window = node.window
    if isinstance(window, Periods | OwnRange):
        return flows.range_window(flow, LONG), 0.0, operator_costs.range_window_cpu(flow, u)
    if isinstance(window, RangeWindow):
        shown = flows.range_window(flow, LONG if window.size is None else float(window.size))
        return (
            RelationFlow(shown.distance, shown.length, float(window.slide)),
            0.0,
            operator_costs.range_window_cpu(flow, u),
        )
    partitions = groups(window.by, node.input, known)
    rows = float(window.rows) if isinstance(window.rows, int) else LONG / (flow.distance * partitions)
    out = flows.rows_window(flow, rows, partitions)
    if window.by:
        return out, operator_costs.partitioned_rows(partitions, rows), operator_costs.partitioned_cpu(flow, u)
    return out, rows, operator_costs.rows_window_cpu(flow, u)


def _sweep(
    node: Distinct | Summarize | SetOperation, inputs: tuple[RelationFlow, ...], known: Statistics, u: UnitCosts
) -> tuple[RelationFlow, float, float]:
    """Operators that go through a relation instant by instant."""
    flow = inputs[0]
    match node:
        case Distinct(input=below):
            values = min(groups(below.schema.names, below, known), max(flow.valid, 1.0))
            once = flows.distinct(flow, values)
            return once, operator_costs.distinct_rows(flow), operator_costs.distinct_cpu(flow, values, u=u)
        case Summarize(input=below, keys=keys):
            many = min(groups(keys, below, known), max(flow.valid, 1.0))
            out = flows.grouped(flow, many) if keys else flows.summarized(flow)
            ordered = ends_in_order(below)
            return out, operator_costs.sweep_rows(flow, many), operator_costs.sweep_cpu(flow, out, ordered, u)
    left, right = inputs
    names = node.schema.names
    values = max(min(groups(names, node.left, known), left.valid), 1.0)
    if node.op == "except":
        out = flows.uncovered(left, right, 1 / values)
    else:
        out = flows.filtered(left, min(max(right.valid / values, LEAST), 1.0))
    return out, left.valid + right.valid, operator_costs.except_cpu(left, right, out, values, u)


def _over_events(node: Unary, flow: RelationFlow, known: Statistics, u: UnitCosts) -> tuple[RelationFlow, float, float]:
    """Operators over events that hold the rows of their frames."""
    match node:
        case Over(input=below, keys=keys, calls=calls):
            held = 0.0
            for frame in {call.frame for call in calls}:
                if frame.start is not None:
                    span = frame.start - min(frame.end, 0)
                    rows = span * groups(keys, below, known) if frame.unit != "range" else span / flow.distance
                    held = max(held, rows)
            return flow, held, len(calls) * operator_costs.events_cpu(flow, u)
        case Yield(input=below, keys=keys, unit=unit, every=every):
            apart = flow.distance * every if unit == "rows" else every / groups(keys, below, known)
            return RelationFlow(max(apart, flow.distance)), 0.0, operator_costs.events_cpu(flow, u)
        case RowSlots(keys=keys, calls=calls, every=every):
            cpu = len(calls) * operator_costs.events_cpu(flow, u)
            return RelationFlow(flow.distance * every), groups(keys, node.input, known), cpu
        case AssignWindows(windows=windows):
            copies = RelationFlow(flow.distance / windows.most)
            return copies, 0.0, operator_costs.union_cpu(copies, u)
    raise TypeError(f"no costs of {node.label()}")
