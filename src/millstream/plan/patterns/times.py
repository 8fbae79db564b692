"""Which columns of matches hold the time at which they are emitted."""

from __future__ import annotations

from millstream.expressions.nodes import columns_of
from millstream.plan.patterns.expressions import (
    Check,
    Edge,
    Either,
    Excluded,
    Pattern,
    Permute,
    Repeat,
    Sequence,
    Variable,
)
from millstream.plan.patterns.search import Search


def timely_reaches(search: Search, times: frozenset[str]) -> frozenset[str]:
    """The columns that hold the time of a match's last row, if matches come out as that row comes.

    That is so where all matches have the same number of rows: with the last one nothing else can be preferred. It is
    so, too, where a pattern never gives rows back, ends in a single row, and is never looked for again in rows that
    have been seen.
    """
    if search.given.rows != "one" or search.timeouts or _looks_ahead(search):
        return frozenset()
    ends = _last_at_once(search) if length(search.pattern) is None else last_variables(search.pattern)
    if not ends:
        return frozenset()
    return frozenset(
        reach.name
        for reach in search.reaches
        if reach.name in search.columns
        and reach.column in times
        and not (reach.first or reach.offset or reach.shift)
        and (reach.variables is None or ends <= set(reach.variables))
    )


def _last_at_once(search: Search) -> frozenset[str]:
    """The variable of the last row, if the match is certain with it."""
    if search.within is not None or search.skip.to != "past last":
        return frozenset()
    # Reasoning about conditions is for patterns only: whoever has none need not wait for it to be imported.
    from millstream.plan.patterns.chains import NoChain, chain_of
    from millstream.plan.patterns.shifts import shifts_of

    chain = chain_of(search)
    if isinstance(chain, NoChain) or not chain.elements or not chain.elements[-1].is_single:
        return frozenset()
    return frozenset() if shifts_of(chain, search).rescans else frozenset([chain.elements[-1].variable])


def length(pattern: Pattern) -> int | None:
    """How many rows every match of a pattern has; None if that differs, or depends on where the input ends."""
    match pattern:
        case Variable():
            return 1
        case Edge(end=end):
            return None if end else 0
        case Check():
            return 0
        case Repeat(body=body, least=least, most=most):
            inner = length(body)
            return None if inner is None or (least != most and inner) else inner * least
        case Sequence() | Either() | Permute() | Excluded():
            lengths = [length(part) for part in pattern.parts()]
            known = [each for each in lengths if each is not None]
            if len(known) < len(lengths):
                return None
            if isinstance(pattern, Either):
                return known[0] if len(set(known)) == 1 else None
            return sum(known)
    return None


def last_variables(pattern: Pattern) -> frozenset[str]:
    """The variables that the last row of a match of a fixed length may have."""
    match pattern:
        case Variable(name=name):
            return frozenset([name])
        case Sequence(items=items):
            ends = [item for item in items if length(item)]
            return last_variables(ends[-1]) if ends else frozenset()
        case Either() | Permute():
            return frozenset().union(*map(last_variables, pattern.parts()))
        case Repeat(body=body) | Excluded(body=body):
            return last_variables(body)
    return frozenset()


def _looks_ahead(search: Search) -> bool:
    """Whether rows behind a match are looked at before it comes out."""
    told = set(search.columns).union(*(columns_of(condition) for _, condition in search.conditions))
    return any(reach.shift > 0 and reach.name in told for reach in search.reaches)
