"""Vectors of plans that are replaced while they run: what goes wrong, and what does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from physical_vectors import count, difference, distinct, equi_join, same_meaning
from vector_data import VECTORS, Check, Vector, physical

from tests.support import snapshot_algebra as algebra

Physical = algebra.Physical
Plan = Callable[..., Physical]


def _twice(stream: Physical) -> Physical:
    """Times doubled, so that an instant between two others is a number, too."""
    return [(value, 2 * start, 2 * end) for value, start, end in stream]


def _migrated(old: Plan, new: Plan, split: float, *inputs: Physical) -> tuple[Physical, Physical, Physical]:
    """What the old plan gives of what is valid before `split`, the new one of the rest, and both together; in doubled
    time."""
    at = int(2 * split)
    parts = [algebra.fork(_twice(stream), at) for stream in inputs]
    before = old(*(part for part, _ in parts))
    after = new(*(part for _, part in parts))
    return before, after, algebra.fuse(before, after, at)


def _by_reference_point(plan: Plan, split: float, *inputs: Physical) -> tuple[Physical, Physical]:
    """The old plan on whole rows, the new one on what is valid from `split` on without what begins there."""
    at = int(2 * split)
    old = plan(*([row for row in _twice(stream) if row[1] < at] for stream in inputs))
    new = plan(*(algebra.fork(_twice(stream), at)[1] for stream in inputs))
    return old, [row for row in new if row[1] != at]


def _joined_then_distinct(one: Physical, other: Physical) -> Physical:
    return distinct(equi_join(one, other))


def _distinct_then_joined(one: Physical, other: Physical) -> Physical:
    return equi_join(distinct(one), distinct(other))


def _parallel_track(vector: Vector) -> None:
    one, other = physical(vector.given["A"]), physical(vector.given["B"])
    began = vector.params["migration_start"]
    joined = equi_join(one, other)
    assert Counter(joined) == Counter(physical(vector.out["old join"]))
    old = _joined_then_distinct(one, other)
    same_meaning(old, physical(vector.out["old dupelim"]))
    new = _distinct_then_joined(*([row for row in stream if row[1] > began] for stream in (one, other)))
    same_meaning(new, physical(vector.out["new join' (only elements after start)"]))
    first, last = vector.out["PT wrong: a twice at"]
    for time in range(first, last + 1):
        assert algebra.snapshot(old, time) == Counter("a")
        assert algebra.snapshot(old + new, time) == Counter("aa")


def _forked_and_fused(vector: Vector) -> None:
    given = VECTORS["TV-M01"].given
    inputs = physical(given["A"]), physical(given["B"])
    split = vector.params["T_split"]
    assert split == max(vector.params["monitored tS"]) + vector.params["w"] + 0.5
    before, after, fused = _migrated(_joined_then_distinct, _distinct_then_joined, split, *inputs)
    for part, name in ((before, "old box out"), (after, "new box out"), (fused, "fused")):
        same_meaning(part, [(value, int(2 * start), int(2 * end)) for value, start, end in vector.out[name]])
    same_meaning(fused, _twice(_joined_then_distinct(*inputs)))


def _reference_point(plan: Plan) -> Check:
    def check(vector: Vector) -> None:
        given = vector.given
        inputs = [physical(given[name]) for name in "AB"] if isinstance(given, dict) else [physical(given)]
        split = vector.params["T_split"]
        correct = _twice(physical(vector.out["correct"]))
        same_meaning(_twice(plan(*inputs)), correct)
        old, new = _by_reference_point(plan, split, *inputs)
        same_meaning(old, _twice(physical(vector.out["RPM old box"])))
        same_meaning(new, _twice(physical(vector.out["RPM new box kept"])))
        assert not algebra.is_equivalent(old + new, correct)
        same_meaning(_migrated(plan, plan, split, *inputs)[2], correct)

    return check


def _reference_point_of_distinct(vector: Vector) -> None:
    stream = physical(vector.given)
    split = vector.params["T_split"]
    correct = _twice(physical(vector.out["correct"]))
    same_meaning(_twice(distinct(stream)), correct)
    # rows cut where the thesis cuts them: both boxes tell of what begins after the split
    old, new = (_twice(physical(vector.out[f"RPM {name}"])) for name in ("old box (full intervals)", "new box kept"))
    same_meaning(_by_reference_point(distinct, split, stream)[0], old)
    assert not algebra.is_equivalent(old + new, correct)
    same_meaning([row for row in old if row[1] < 2 * split] + new, correct)
    same_meaning(_migrated(distinct, distinct, split, stream)[2], correct)


CHECKS: dict[str, Check] = {
    "TV-M01": _parallel_track,
    "TV-M02": _forked_and_fused,
    "TV-D17": _reference_point(count),
    "TV-D18": _reference_point_of_distinct,
    "TV-D19": _reference_point(difference),
}
