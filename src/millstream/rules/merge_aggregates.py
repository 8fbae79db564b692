"""Aggregates written in SQL over the same window run as one program over one window."""

from collections.abc import Callable
from dataclasses import replace

from millstream.kernels.programs.layout import returns_one_row, tables_read
from millstream.plan.modes import Sliding
from millstream.plan.nodes import Aggregate, Node
from millstream.plan.program_product import sees_sqlcode, shared, window_product
from millstream.plan.programs import WINDOW, Delete, Insert, Program, Statement, sources_of
from millstream.plan.python import code_in


def merge_aggregates(node: Node) -> Node:
    """Put two aggregates of the same window into one program: the rows of the window are kept once, with one column for
    each argument that differs."""
    match node:
        case Aggregate(input=Aggregate() as below, mode=Sliding() as mode) if _is_beside(node, below):
            if mode != below.mode or not all(_can_share(call.program, mode) for call in (below, node)):
                return node
            product = window_product((below.program, node.program))
            program, args = shared(product, (*below.args, *node.args))
            if _would_slow(program, (below.program, node.program), mode):
                return node
            results = (*below.results, *node.results)
            return replace(below, program=program, args=args, results=results, base=None)
    return node


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


def _can_share(program: Program, mode: Sliding) -> bool:
    """Whether a program leaves the window as it is, and its row may be returned after its other statements."""
    if not returns_one_row(program, mode) or code_in(program) is not None:
        return False
    if any(isinstance(s, Delete) and s.range.table == WINDOW for s in program.statements):
        return False
    if program.expire and sees_sqlcode(program.expire[0]):
        return False
    return all(_can_return_last(program, state) for state in (program.initialize, program.iterate))


def _can_return_last(program: Program, state: tuple[Statement, ...]) -> bool:
    place = next(i for i, s in enumerate(state) if isinstance(s, Insert) and s.table is None)
    returned, before, after = state[place], state[:place], state[place + 1 :]
    changed = {s.table if isinstance(s, Insert) else s.range.table for s in after}
    (rows,) = sources_of(returned)
    if len(rows.columns) != len(program.result) or changed & tables_read(returned):
        return False
    return not any(map(sees_sqlcode, (*before[:1], returned, *after[:1])))


def _would_slow(product: Program, programs: tuple[Program, ...], mode: Sliding) -> bool:
    """Whether a program that compiles by itself would run row by row."""
    # the compiler's text is needed only where aggregates meet
    from millstream.kernels.programs.compiled import why_not_compiled

    return why_not_compiled(product, mode) is not None and any(why_not_compiled(p, mode) is None for p in programs)
