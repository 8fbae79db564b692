"""Pieces of generated source: the greatest or least value of rows that end at known times.

Of each group only those values wait that will be the extreme at some time: in order of their ends they get worse. They
lie as steps in a pool that all groups share (`stair_loops` has their lanes), linked both ways; a group has the numbers
of its first and last one + 1. A value takes as long as it has steps to push away, or ends before the last ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from millstream.kernels.over.layout import Extreme

TEXT_ARRAYS = ("starts", "lengths", "arena")
"""What tells the string of a code."""


def values_of(part: Extreme) -> str:
    """The array that has the values of an extreme's steps."""
    return "fsteps" if part.arg.kind == "float" else "steps"


def put_step(part: Extreme) -> Iterator[str]:
    """The value that enters is the extreme from some time on, perhaps, until its row ends."""
    first, last = f"slots[s + {part.name.upper()}_ANY]", f"slots[s + {part.name.upper()}_BEST]"
    value, array = f"{part.arg.name}_v", values_of(part)
    there = f"{array}[STEP * (before - 1) + VALUE]"
    yield f"if {part.arg.name}_in:"
    lines = f"""\
until = cells[c + UNTIL]
after = 0
before = {last}
while before != 0 and steps[STEP * (before - 1) + GOES] > until:
    after = before
    before = steps[STEP * (before - 1) + PREVIOUS]
beaten = False
if after != 0:
    beaten = {_beats(part, f"{array}[STEP * (after - 1) + VALUE]", value)}
if not beaten and before != 0 and steps[STEP * (before - 1) + GOES] == until:
    beaten = {_beats(part, there, value)}
if not beaten:
    while before != 0 and {_beats(part, value, there)}:
        worse = before
        before = steps[STEP * (worse - 1) + PREVIOUS]
        steps[STEP * (worse - 1) + NEXT] = pool[FREE]
        pool[FREE] = worse
    new = pool[FREE]
    if new != 0:
        pool[FREE] = steps[STEP * (new - 1) + NEXT]
    else:
        pool[EVER] += 1
        new = pool[EVER]
    steps[STEP * (new - 1) + GOES] = until
    {array}[STEP * (new - 1) + VALUE] = {value}
    steps[STEP * (new - 1) + PREVIOUS] = before
    steps[STEP * (new - 1) + NEXT] = after
    if before != 0:
        steps[STEP * (before - 1) + NEXT] = new
    else:
        {first} = new
    if after != 0:
        steps[STEP * (after - 1) + PREVIOUS] = new
    else:
        {last} = new"""
    for line in lines.split("\n"):
        yield f"    {line}"


def drop_steps(part: Extreme) -> Iterator[str]:
    """The values whose rows have ended by t leave the group."""
    first, last = f"slots[s + {part.name.upper()}_ANY]", f"slots[s + {part.name.upper()}_BEST]"
    yield from f"""\
best = {first}
if best != 0 and steps[STEP * (best - 1) + GOES] <= t:
    while best != 0 and steps[STEP * (best - 1) + GOES] <= t:
        after = steps[STEP * (best - 1) + NEXT]
        steps[STEP * (best - 1) + NEXT] = pool[FREE]
        pool[FREE] = best
        best = after
    {first} = best
    if best == 0:
        {last} = 0
    else:
        steps[STEP * (best - 1) + PREVIOUS] = 0""".split("\n")


def _beats(part: Extreme, left: str, right: str) -> str:
    """Whether a value is as near to the extreme as another or nearer; NaN is the greatest number."""
    if part.arg.kind == "text":
        one, other = (left, right) if part.fn == "max" else (right, left)
        return f"(not text_before({one}, {other}, {', '.join(f'{part.arg.name}_{a}' for a in TEXT_ARRAYS)}))"
    if part.fn == "max":
        return f"({left} >= {right} or {left} != {left})" if part.arg.kind == "float" else f"{left} >= {right}"
    return f"({left} <= {right} or {right} != {right})" if part.arg.kind == "float" else f"{left} <= {right}"
