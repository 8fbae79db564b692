"""Pieces of generated source: the greatest or least value of rows that end at known times.

Of each group only those values wait that will be the extreme at some time: in order of their ends they get worse. They
lie as steps in a pool that all groups share (`stair_loops` has their lanes), linked both ways; a group has the numbers
of its first and last one + 1. A value takes as long as it has steps to push away, or ends before the last ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from millstream.kernels.relations import stair_loops
from millstream.kernels.relations.summary_layout import Ranked

IMPORTS = (f"from {stair_loops.__name__} import EVER, FREE, GOES, NEXT, PREVIOUS, STEP, VALUE",)
"""What generated source with steps begins with."""

_FEW = 3
"""With more extremes than this, steps are put by functions, one for each kind, and not in place: a call costs some ten
nanoseconds, but the text is long for a compiler."""

TEXT_ARRAYS = ("starts", "lengths", "arena")
"""What tells the string of a code."""


def values_of(part: Ranked) -> str:
    """The array that has the values of an extreme's steps."""
    return "fsteps" if part.arg.kind == "float" else "steps"


def stair_functions(extremes: tuple[Ranked, ...]) -> str:
    """The functions by which steps are put, if there are many extremes."""
    text = ""
    for name, part in {_name(part): part for part in extremes}.items() if len(extremes) > _FEW else ():
        text += f"def {name}(slots, at, steps, values, pool, until, value{_texts(part, '')}):\n"
        lines = _put(part, "slots[at]", "slots[at + 1]", "value", "values", "")
        text += "\n".join(f"    {line}" for line in lines) + "\n\n\n"
    return text


def put_step(part: Ranked, extremes: tuple[Ranked, ...]) -> Iterator[str]:
    """The value that enters is the extreme from some time on, perhaps, until its row ends."""
    at, value, array = f"s + {part.name.upper()}_FIRST", f"{part.arg.name}_v", values_of(part)
    yield f"if {part.arg.name}_in:"
    if len(extremes) > _FEW:
        given = f"slots, {at}, steps, {array}, pool, cells[c + UNTIL], {value}{_texts(part, f'{part.arg.name}_')}"
        yield f"    {_name(part)}({given})"
        return
    yield "    until = cells[c + UNTIL]"
    last = f"slots[s + {part.name.upper()}_LAST]"
    for line in _put(part, f"slots[{at}]", last, value, array, f"{part.arg.name}_"):
        yield f"    {line}"


def _name(part: Ranked) -> str:
    return f"put_{part.fn}_{part.arg.kind}"


def _texts(part: Ranked, prefix: str) -> str:
    return "".join(f", {prefix}{array}" for array in TEXT_ARRAYS) if part.arg.kind == "text" else ""


def _put(part: Ranked, first: str, last: str, value: str, array: str, prefix: str) -> Iterator[str]:
    """Put a value among the steps from `first` to `last`; names of the arrays of its strings begin with `prefix`."""
    there = f"{array}[STEP * (before - 1) + VALUE]"
    behind = f"{array}[STEP * (after - 1) + VALUE]"
    yield from f"""\
after = 0
before = {last}
while before != 0 and steps[STEP * (before - 1) + GOES] > until:
    after = before
    before = steps[STEP * (before - 1) + PREVIOUS]
beaten = False
if after != 0:
    beaten = {_beats(part, behind, value, prefix)}
if not beaten and before != 0 and steps[STEP * (before - 1) + GOES] == until:
    beaten = {_beats(part, there, value, prefix)}
if not beaten:
    while before != 0 and {_beats(part, value, there, prefix)}:
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
        {last} = new""".split("\n")


def drop_steps(part: Ranked) -> Iterator[str]:
    """The values whose rows have ended by t leave the group."""
    first, last = f"slots[s + {part.name.upper()}_FIRST]", f"slots[s + {part.name.upper()}_LAST]"
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


def _beats(part: Ranked, left: str, right: str, prefix: str) -> str:
    """Whether a value is as near to the extreme as another or nearer; NaN is the greatest number."""
    if part.arg.kind == "text":
        one, other = (left, right) if part.fn == "max" else (right, left)
        return f"(not text_before({one}, {other}{_texts(part, prefix)}))"
    if part.fn == "max":
        return f"({left} >= {right} or {left} != {left})" if part.arg.kind == "float" else f"{left} >= {right}"
    return f"({left} <= {right} or {right} != {right})" if part.arg.kind == "float" else f"{left} <= {right}"
