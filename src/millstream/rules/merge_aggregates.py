"""Aggregates written in SQL over windows of the same rows run as one program, which keeps these rows once."""

from collections.abc import Callable

from millstream.plan.nodes import Aggregate, Node, walk
from millstream.plan.programs.facts import returns_one_row, tables_read
from millstream.plan.programs.modes import Sliding
from millstream.plan.programs.nodes import Insert, Program, Statement, sources_of
from millstream.plan.programs.product import leaves_window, sees_sqlcode, shared, window_product
from millstream.plan.programs.python import code_in
from millstream.rules.driver import WhySlow


def merge_aggregates(node: Node, why_slow: WhySlow) -> Node:
    """Put two aggregates over windows of the same rows into one program: the longest window keeps the rows, with one
    column for each argument that differs, and a shorter one is where it begins among them."""
    if isinstance(node, Aggregate) and isinstance(node.input, Aggregate) and _is_beside(node, node.input):
        together = _together(node.input, node, why_slow)
        return node if isinstance(together, str) else together
    return node


def windows_apart(plan: Node, why_slow: WhySlow) -> list[tuple[Aggregate, str]]:
    """The windows of a plan that keep rows which the one below keeps, too, and why."""
    pairs = ((node.input, node) for node in walk(plan) if isinstance(node, Aggregate))
    found = ((n, _together(b, n, why_slow)) for b, n in pairs if isinstance(b, Aggregate) and _is_beside(n, b))
    return [(node, why) for node, why in found if isinstance(why, str) and why]


def _together(below: Aggregate, node: Aggregate, why_slow: WhySlow) -> Aggregate | str:
    """Two aggregates as one, or why they are none; nothing if one of them has no window."""
    lower, upper = below.mode, node.mode
    if not (isinstance(lower, Sliding) and isinstance(upper, Sliding)):
        return ""
    if upper.unit != lower.unit:
        return "one window counts rows, the other one time"
    for call, own in ((node, upper), (below, lower)):
        why = why_alone(call.program, own)
        if why is not None:
            return f"{call.program.name} {why}"
    product = window_product((below.program, node.program), (lower.sizes, upper.sizes))
    program, args = shared(product, (*below.args, *node.args))
    size, *shorter = sorted({*lower.sizes, *upper.sizes}, reverse=True)
    mode = Sliding(upper.unit, size, shorter=tuple(shorter))
    if _words(mode, args) > _words(lower, below.args) + _words(upper, node.args):
        return "arguments of both in all rows of the longer window would be more"
    if any(why_slow(call.program, call.mode) is None for call in (below, node)):
        slow = why_slow(program, mode)
        if slow is not None:
            return f"together they would run row by row: {slow}"
    return Aggregate(below.input, below.keys, program, args, mode, (*below.results, *node.results))


def stacked(call: Aggregate, alike: Callable[[Aggregate], bool]) -> list[Aggregate]:
    """The aggregate and those below it that might stand beside it, as far as they are alike; the lowest first."""
    calls: list[Aggregate] = []
    below: Node = call
    while isinstance(below, Aggregate) and alike(below) and all(_is_beside(upper, below) for upper in calls):
        calls.insert(0, below)
        below = below.input
    return calls


def _is_beside(upper: Aggregate, lower: Aggregate) -> bool:
    return upper.keys == lower.keys and not {*upper.args, *upper.keys} & {*lower.results}


def why_alone(program: Program, mode: Sliding) -> str | None:
    """What keeps a program from sharing its window, if something does: it must leave the window as it is, and its row
    may be returned after its other statements."""
    if not leaves_window(program):
        return "deletes from its window" if code_in(program) is None else "is written in Python"
    if not returns_one_row(program, mode):
        return "may return no row or several"
    if any(expire and sees_sqlcode(expire[0]) for expire in program.expiries):
        return "begins EXPIRE with sqlcode"
    reasons = (_why_not_last(program, state) for state in (program.initialize, program.iterate))
    return next((reason for reason in reasons if reason is not None), None)


def _words(mode: Sliding, args: tuple[str, ...]) -> int:
    """How much a full window keeps, by its length: for each row the arguments, which of them are NULL, and its time.
    A short window with an argument of its own would make all rows of a long one wider."""
    return mode.size * (len(args) + (2 if mode.unit == "range" else 1))


def _why_not_last(program: Program, state: tuple[Statement, ...]) -> str | None:
    place = next(i for i, s in enumerate(state) if isinstance(s, Insert) and s.table is None)
    returned, before, after = state[place], state[:place], state[place + 1 :]
    changed = {s.table if isinstance(s, Insert) else s.range.table for s in after}
    (rows,) = sources_of(returned)
    if len(rows.columns) != len(program.result):
        return "returns what another aggregate returns"
    if changed & tables_read(returned):
        return "changes a table from which it has returned"
    if any(map(sees_sqlcode, (*before[:1], returned, *after[:1]))):
        return "returns the sqlcode, or begins with it"
    return None
