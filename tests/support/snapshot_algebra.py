"""The snapshot algebra, executable: what every operator on relations means, instant by instant.

A raw stream is a list of (value, time) in order of arrival. A logical stream says what is valid at each instant: a bag
of values, none for instants that are left out. A physical stream is a list of (value, start, end), valid from start
to before end; `FOREVER` is the end of what stays. Nothing here is fast; everything here is the definition.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from millstream.kernels.batch import FOREVER

Value = Any
Raw = list[tuple[Value, int]]
Bag = Counter[Value]
Logical = dict[int, Bag]
Physical = list[tuple[Value, int, int]]


# -- between the three kinds of streams ----------------------------------------------------------------------------


def logical_of_raw(stream: Raw) -> Logical:
    """Each value at its own instant (6.1)."""
    return logical_of(physical_of_raw(stream), FOREVER)


def physical_of_raw(stream: Raw) -> Physical:
    """Each value for one unit of time."""
    return [(value, time, time + 1) for value, time in stream]


def logical_of(stream: Physical, until: int) -> Logical:
    """What is valid at each instant before `until` (6.2), which matters to what stays."""
    result: Logical = defaultdict(Counter)
    for value, start, end in stream:
        for time in range(start, min(end, until)):
            result[time][value] += 1
    return dict(result)


def snapshot(stream: Physical, time: int) -> Bag:
    """What is valid at an instant."""
    return Counter(value for value, start, end in stream if start <= time < end)


def canonical(stream: Physical) -> list[tuple[Value, int, int, int]]:
    """(value, start, end, how often) in as few and long intervals as can be: equal for streams that mean the same."""
    changes: dict[Hashable, Counter[int]] = defaultdict(Counter)
    for value, start, end in stream:
        changes[value][start] += 1
        changes[value][end] -= 1
    result = []
    for value, by_time in changes.items():
        count, since = 0, 0
        for time in sorted(by_time):
            if by_time[time] == 0:
                continue
            if count:
                result.append((value, since, time, count))
            count, since = count + by_time[time], time
    return sorted(result, key=lambda row: (row[1], repr(row)))


def is_equivalent(one: Physical, other: Physical) -> bool:
    """Whether two streams have the same snapshot at every instant."""
    return canonical(one) == canonical(other)


def is_ordered(stream: Physical) -> bool:
    """Whether a physical stream is one: in order of start, no interval empty."""
    starts = [start for _, start, _ in stream]
    return starts == sorted(starts) and all(start < end for _, start, end in stream)


# -- operators that see one instant at a time ----------------------------------------------------------------------


def _each(function: Callable[..., Bag], *streams: Logical) -> Logical:
    """A relational operator at every instant."""
    instants = sorted(set().union(*streams))
    results = {time: function(*(stream.get(time, Counter()) for stream in streams)) for time in instants}
    return {time: +bag for time, bag in results.items() if +bag}


def select(stream: Logical, predicate: Callable[[Value], bool]) -> Logical:
    """σ (8.1)"""
    return _each(lambda bag: Counter({value: n for value, n in bag.items() if predicate(value)}), stream)


def transform(stream: Logical, function: Callable[[Value], Value]) -> Logical:
    """μ (8.2)"""
    return _each(lambda bag: Counter(function(value) for value in bag.elements()), stream)


def union(one: Logical, other: Logical) -> Logical:
    """∪ (8.3)"""
    return _each(lambda left, right: left + right, one, other)


def product(one: Logical, other: Logical, combine: Callable[[Value, Value], Value]) -> Logical:
    """× (8.4)"""
    return join(one, other, lambda left, right: True, combine)


def distinct(stream: Logical) -> Logical:
    """δ (8.5)"""
    return _each(lambda bag: Counter(bag.keys()), stream)


def difference(one: Logical, other: Logical) -> Logical:
    """- (8.6), EXCEPT ALL"""
    return _each(lambda left, right: left - right, one, other)


def groups(stream: Logical, key: Callable[[Value], Hashable]) -> dict[Hashable, Logical]:
    """γ (8.7, 8.8): the part of the stream for each key."""

    def having(each: Hashable) -> Logical:
        return select(stream, lambda value: key(value) == each)

    return {each: having(each) for each in {key(value) for bag in stream.values() for value in bag}}


def aggregate(stream: Logical, function: Callable[[Bag], Value]) -> Logical:
    """α (8.9): one value where there is any, none for an empty snapshot."""
    return _each(lambda bag: Counter([function(bag)]) if bag else Counter(), stream)


def group_aggregate(stream: Logical, key: Callable[[Value], Hashable], function: Callable[[Bag], Value]) -> Logical:
    """GROUP BY (8.15): (key, aggregate) of each group."""

    def named(each: Hashable, part: Logical) -> Logical:
        return transform(aggregate(part, function), lambda value: (each, value))

    result: Logical = {}
    for each, part in groups(stream, key).items():
        result = union(result, named(each, part))
    return result


def join(
    one: Logical,
    other: Logical,
    matches: Callable[[Value, Value], bool],
    combine: Callable[[Value, Value], Value] = lambda left, right: (left, right),
) -> Logical:
    """⋈ (8.10)"""

    def at(left: Bag, right: Bag) -> Bag:
        pairs = ((mine, theirs) for mine in left.elements() for theirs in right.elements())
        return Counter(combine(mine, theirs) for mine, theirs in pairs if matches(mine, theirs))

    return _each(at, one, other)


def semi_join(one: Logical, other: Logical, matches: Callable[[Value, Value], bool]) -> Logical:
    """⋉: values that match something, as often as they are there (8.11 would multiply by the matches)."""

    def at(left: Bag, right: Bag) -> Bag:
        return Counter({mine: n for mine, n in left.items() if any(matches(mine, theirs) for theirs in right)})

    return _each(at, one, other)


def anti_join(one: Logical, other: Logical, matches: Callable[[Value, Value], bool]) -> Logical:
    """▷ (8.16): values that match nothing."""
    return difference(one, semi_join(one, other, matches))


def outer_join(one: Logical, other: Logical, matches: Callable[[Value, Value], bool]) -> Logical:
    """Pairs, and (value, None) for what matches nothing on the right."""
    alone = transform(anti_join(one, other, matches), lambda value: (value, None))
    return union(join(one, other, matches), alone)


def intersection(one: Logical, other: Logical) -> Logical:
    """∩ (8.12), INTERSECT ALL"""
    return difference(one, difference(one, other))


def max_union(one: Logical, other: Logical) -> Logical:
    """Each value as often as on the side that has more of it (8.13)."""
    return union(union(difference(one, other), difference(other, one)), intersection(one, other))


def strict_difference(one: Logical, other: Logical) -> Logical:
    """Values that the other side does not have at all (8.14)."""
    return anti_join(one, other, lambda left, right: bool(left == right))


# -- operators that look back in time ------------------------------------------------------------------------------


def time_window(stream: Logical, size: int | None, slide: int = 1, until: int | None = None) -> Logical:
    """ω^time (8.17, 17.1): at t, what came in the `size` units up to the last window start before or at t."""
    if not stream:
        return {}
    last = max(stream) + (size or 0) + slide
    result: Logical = {}
    for time in range(min(stream), last if until is None else until):
        newest = (time + 1) // slide * slide - 1
        oldest = min(stream) if size is None else newest - size + 1
        bags = (stream.get(t, Counter()) for t in range(oldest, newest + 1))
        result[time] = sum(bags, Counter())
    return {time: bag for time, bag in result.items() if bag}


def count_window(stream: Raw, rows: int | None, slide: int, until: int) -> Logical:
    """ω^count (8.18, 17.2): at t, the last `rows` values of those in full slides, ties in order of arrival."""
    result: Logical = {}
    for time in range(min((t for _, t in stream), default=until), until):
        came = [value for value, t in stream if t <= time]
        newest = len(came) // slide * slide
        result[time] = Counter(came[0 if rows is None else max(newest - rows, 0) : newest])
    return {time: bag for time, bag in result.items() if bag}


def partitioned_window(
    stream: Raw, key: Callable[[Value], Hashable], rows: int | None, slide: int, until: int
) -> Logical:
    """ω^partition (8.19): a count window for each key."""
    result: Logical = {}
    for each in {key(value) for value, _ in stream}:
        part = [(value, time) for value, time in stream if key(value) == each]
        result = union(result, count_window(part, rows, slide, until))
    return result


def istream(stream: Logical) -> Logical:
    """What each snapshot has more than the one before it (17.3, as bags)."""
    return {time: more for time, bag in stream.items() if (more := bag - stream.get(time - 1, Counter()))}


def dstream(stream: Logical) -> Logical:
    """What each snapshot has less than the one before it, at the instant it is missing (17.4, as bags)."""
    return {time + 1: less for time, bag in stream.items() if (less := bag - stream.get(time + 1, Counter()))}


def coarsen(stream: Logical, granule: int) -> Logical:
    """Γ (20.1): the snapshots at multiples of `granule` only."""
    return {time: bag for time, bag in stream.items() if time % granule == 0}


# -- physical streams in two parts, for plans that change while they run -------------------------------------------


def fork(stream: Iterable[tuple[Value, int, int]], split: int) -> tuple[Physical, Physical]:
    """What is valid before an instant, and from it on."""
    before = [(value, start, min(end, split)) for value, start, end in stream if start < split]
    after = [(value, max(start, split), end) for value, start, end in stream if end > split]
    return before, after


def fuse(before: Physical, after: Physical, split: int) -> Physical:
    """Two parts as one stream: what goes on at `split` in equal values is one interval again."""
    begun: dict[Hashable, list[int]] = defaultdict(list)
    for value, start, end in before:
        if end == split:
            begun[value].append(start)
    result = [row for row in before if row[2] != split]
    for value, start, end in after:
        result.append((value, begun[value].pop(0) if start == split and begun[value] else start, end))
    result += [(value, start, split) for value, starts in begun.items() for start in starts]
    return sorted(result, key=lambda row: row[1])
