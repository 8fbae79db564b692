"""Rows held and processor time per unit of time of each operator, from what its inputs and its output are like.

Formulas follow the cost model of the interval algebra (equations 22.13 to 22.56), in steady state; the queues that put
results in order are left out where they are empty on average. Those for EXCEPT and coalescing are ours, in its manner.
"""

from __future__ import annotations

import math

from millstream.plan.costs.flows import RelationFlow, boundaries
from millstream.records import dataclass


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """Nanoseconds of processor time of each thing that operators do to one row.

    Measured on batches of a million rows of four columns, one core; ratios matter, not numbers.
    """

    predicate: float = 2.0
    """evaluate a condition on a row or a pair"""
    function: float = 2.0
    """compute one column"""
    remove: float = 2.0
    """look whether a row has ended"""
    hash: float = 15.0
    bucket: float = 5.0
    """insert into, or remove from, a hash table"""
    listed: float = 3.0
    """insert or remove where ends come in order"""
    heaped: float = 150.0
    """insert or remove where ends come in any order"""
    queue: float = 150.0
    """one operation on a priority queue"""
    look: float = 1.0
    """compare with the least of a queue"""
    empty: float = 1.0
    """ask whether a queue is empty"""
    merge: float = 3.0
    evaluate: float = 3.0
    insert: float = 5.0
    delete: float = 3.0
    build: float = 30.0
    """put a result together from two rows"""
    create: float = 5.0
    append: float = 25.0
    bound: float = 1.0
    """compute or round a bound of validity"""
    check: float = 1.0
    group: float = 15.0
    """which group a row is of"""
    find: float = 5.0
    """that group's state"""


UNITS = UnitCosts()


def filter_cpu(flow: RelationFlow, output: RelationFlow, u: UnitCosts = UNITS) -> float:
    return flow.rate * u.predicate + output.rate * u.append


def project_cpu(flow: RelationFlow, columns: int = 1, u: UnitCosts = UNITS) -> float:
    return flow.rate * (columns * u.function + u.create + u.append)


def union_cpu(output: RelationFlow, u: UnitCosts = UNITS) -> float:
    return output.rate * u.append


def join_rows(left: RelationFlow, right: RelationFlow) -> float:
    """Rows of both sides that may still match, and half an arrival of each that has not been removed yet."""
    late = right.distance / (2 * left.distance) + left.distance / (2 * right.distance)
    return left.valid + right.valid + late


def join_cpu(
    left: RelationFlow,
    right: RelationFlow,
    selectivity: float,
    buckets: float = 1.0,
    in_order: tuple[bool, bool] = (True, True),
    u: UnitCosts = UNITS,
) -> float:
    """A symmetric join: each row is inserted on its side and probes the other; one bucket is a nested loop."""
    hashing = u.hash if buckets > 1 else 0.0
    rates = left.rate + right.rate
    secondary = [u.listed if ordered else u.heaped for ordered in in_order]
    insert = rates * (hashing + u.bucket) + left.rate * secondary[0] + right.rate * secondary[1]
    pairs = left.rate * right.valid + right.rate * left.valid
    probe = pairs / buckets * u.predicate + rates * hashing
    result = selectivity * pairs * (u.build + u.append)
    purge = rates * (2 * u.remove + u.bucket) + left.rate * secondary[1] + right.rate * secondary[0]
    return insert + probe + result + purge


def distinct_rows(flow: RelationFlow) -> float:
    return flow.valid


def distinct_cpu(flow: RelationFlow, values: float, buckets: float | None = None, u: UnitCosts = UNITS) -> float:
    buckets = max(buckets or values, 1.0)
    if values * flow.distance <= flow.length:
        purge = u.remove
        probe = u.hash + u.predicate * values / buckets
        insert = u.hash + u.bucket + u.heaped + u.create + u.queue
        transfer = 2 * (u.empty + u.look) + u.queue + u.append
    else:
        purge = 2 * u.remove + u.bucket + u.listed
        probe = u.hash + u.predicate * flow.valid / buckets
        insert = u.hash + u.bucket + u.listed + u.append
        transfer = u.empty
    return flow.rate * (purge + probe + insert + transfer)


def summarize_rows(flow: RelationFlow) -> float:
    """Partial aggregates that are held: one for each stretch between two boundaries within a length."""
    if flow.distance >= flow.length:
        return 1.0
    return flow.length / flow.granule * boundaries(flow, flow.valid)


def split_cpu(flow: RelationFlow, longest: float, u: UnitCosts = UNITS) -> float:
    if longest >= flow.length:
        return flow.rate * (u.bound + u.append + u.remove)
    pieces = flow.length / longest * (u.bound + u.create + 2 * u.queue + u.empty + u.append)
    return flow.rate * (u.insert + u.bound + u.create + pieces + 2 * u.remove + u.delete)


def coarsen_cpu(flow: RelationFlow, output: RelationFlow, u: UnitCosts = UNITS) -> float:
    kept = flow.rate if flow.length >= output.granule else output.rate
    return flow.rate * (2 * u.bound + u.check) + kept * (u.create + u.append)


def range_window_cpu(flow: RelationFlow, u: UnitCosts = UNITS) -> float:
    return flow.rate * (u.bound + u.create + u.append)


def rows_window_cpu(flow: RelationFlow, u: UnitCosts = UNITS) -> float:
    return flow.rate * (u.remove + u.delete + u.create + u.append + u.insert)


def partitioned_rows(partitions: float, rows: float) -> float:
    """The rows of each partition's window, and for each an entry and the row that is about to leave."""
    return partitions * (rows + 2)


def partitioned_cpu(flow: RelationFlow, u: UnitCosts = UNITS) -> float:
    group = u.group + u.find
    extract = u.predicate + u.create + u.queue + u.delete
    insert = u.insert + u.queue
    transfer = 2 * (u.empty + u.look) + u.queue + u.append
    return flow.rate * (group + extract + insert + transfer)


def except_cpu(
    left: RelationFlow, right: RelationFlow, output: RelationFlow, buckets: float, u: UnitCosts = UNITS
) -> float:
    """Ours: both sides are inserted into and removed from one hash table, each row changes the state of its value, and
    results wait in a queue until their end is known."""
    rates = left.rate + right.rate
    matches = math.ceil((left.valid + right.valid) / max(buckets, 1.0))
    keep = 2 * (u.hash + u.bucket) + 2 * u.remove + matches * u.predicate
    return rates * keep + output.rate * (u.create + 2 * u.queue + u.append)


def coalesce_cpu(flow: RelationFlow, output: RelationFlow, u: UnitCosts = UNITS) -> float:
    """Ours: one hash probe for each row, one entry in order of ends for each run."""
    return flow.rate * (u.hash + u.bucket + u.remove) + output.rate * (2 * u.queue + u.append)


def sweep_rows(flow: RelationFlow, groups: float) -> float:
    """Ours: a sweep over instants holds a state for each group, and each row until its end."""
    return groups + flow.valid


def sweep_cpu(flow: RelationFlow, output: RelationFlow, in_order: bool, u: UnitCosts = UNITS) -> float:
    """Ours: each row changes the state of its group twice, when it starts and when it ends, for which it waits."""
    wait = 2 * (u.listed if in_order else u.heaped)
    change = 2 * (u.find + u.merge) + u.group + u.remove
    return flow.rate * (wait + change) + output.rate * (u.evaluate + u.create + u.append)


def events_cpu(flow: RelationFlow, u: UnitCosts = UNITS) -> float:
    """Ours, for operators over events that keep a state by key: find it, bring it up to date, give a row."""
    return flow.rate * (u.group + u.find + u.merge + u.evaluate + u.append)
