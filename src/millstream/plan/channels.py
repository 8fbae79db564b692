"""One operator for all queries of a set: NEXT and FOLD over events that each query selects differently.

An event of the first stream looks for what follows it whatever others there are. So what the queries choose by their
constants may as well be chosen behind the operator, by the columns that the event brought along: RUMOR's channel, in
which a tuple belongs to many streams. An instance is kept once, however many queries want it, and the index of the
join with the constants tells them when something was found. Events that no query wants are left out before.

A query sees the events that come after it. Queries have numbers in the order in which they were added, so an event
takes along the number of the newest query there was: those with higher numbers came later, and what was found is not
for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from millstream.expressions.nodes import (
    Call,
    Cast,
    Column,
    Expr,
    Literal,
    Parameter,
    columns_of,
    conjunction,
    conjuncts,
    substitute,
    transform,
)
from millstream.plan.events.algebra import DUR, Fold, Next, Since, Times
from millstream.plan.node import Node
from millstream.plan.nodes import Filter, JoinTable, Project, Scan
from millstream.records import dataclass

CHANNEL = "$member"
"""begins the names of columns that only the conditions of queries read"""

DURATION = f"{CHANNEL}.duration"
"""how long an event lasted that was found"""

NEWEST = f"{CHANNEL}.newest"
"""the number of the newest query when the first event came"""


@dataclass(frozen=True)
class Channel:
    """A stream without what queries choose of it, and these conditions over its columns."""

    plan: Node
    asked: tuple[Expr, ...]


def channel_of(node: Node, has_parameters: Callable[[Expr], bool]) -> Channel | None:
    """A stream that all queries share, if they differ only in filters over it; None if they differ in more."""
    match node:
        case Filter(input=below, predicate=predicate):
            inner = channel_of(below, has_parameters)
            if inner is None:
                return None
            parts = conjuncts(predicate)
            same = tuple(part for part in parts if not has_parameters(part))
            asked = tuple(part for part in parts if has_parameters(part))
            plan = Filter(inner.plan, conjunction(same)) if same else inner.plan
            return Channel(plan, (*inner.asked, *asked))
        case Project(input=below, columns=columns):
            inner = channel_of(below, has_parameters)
            if inner is None or any(has_parameters(expr) for _, expr in columns):
                return None
            if not inner.asked:
                return Channel(node.with_inputs((inner.plan,)), ())
            return _projected(inner, columns)
    return Channel(node, ())


def _projected(inner: Channel, columns: tuple[tuple[str, Expr], ...]) -> Channel:
    """A projection that keeps what conditions read, under names of their own where it has none for it."""
    named: dict[str, Expr] = {expr.name: Column(expr.type, name) for name, expr in columns if isinstance(expr, Column)}
    read = sorted(frozenset().union(*map(columns_of, inner.asked)) & set(inner.plan.schema.names))
    more: list[tuple[str, Expr]] = []
    for name in read:
        if name not in named:
            own = f"{CHANNEL}{len(more)}.{name}"
            type_ = inner.plan.schema[name].type
            more.append((own, Column(type_, name)))
            named[name] = Column(type_, own)
    kept = {name: named[name] for name in read}
    plan = Project(inner.plan, (*columns, *more))
    return Channel(plan, tuple(substitute(condition, kept) for condition in inner.asked))


def keeps_nothing(node: Node) -> bool:
    """Whether the rows of a stream pass at once and one by one, so that those from before a moment are all gone."""
    match node:
        case (
            Filter(input=below)
            | Project(input=below)
            | JoinTable(input=below)
            | Times(input=below)
            | Since(input=below)
        ):
            return keeps_nothing(below)
    return isinstance(node, Scan)


@dataclass(frozen=True)
class Widest:
    """An operator with the longest duration that queries allow, and their own as conditions on what it finds."""

    node: Next | Fold
    asked: tuple[Expr, ...]


def widest_duration(node: Next | Fold, longest: Mapping[str, int]) -> Widest | None:
    """NEXT and FOLD for queries that allow durations of different lengths, by a parameter.

    An event waits for the first that meets the other conditions. What is found later lasts longer, so a query that
    does not allow that one allows none after it either: it may as well leave it out behind the operator.
    """
    asked: list[Expr] = []
    kept: list[Expr] = []
    for part in () if node.condition is None else conjuncts(node.condition):
        parameter = _longest(part)
        if parameter is None or parameter.name not in longest:
            kept.append(part)
            continue
        assert isinstance(part, Call)
        duration, length = part.args
        most = Literal(parameter.type, longest[parameter.name])
        asked.append(replace(part, args=(Column(duration.type, DURATION), length)))
        kept.append(replace(part, args=(duration, _with(length, most))))
    return Widest(replace(node, condition=conjunction(tuple(kept))), tuple(asked)) if asked else None


def durations_of(plan: Node) -> frozenset[str]:
    """The parameters that are the longest durations of NEXT and FOLD in a plan."""
    parts = conjuncts(plan.condition) if isinstance(plan, Next | Fold) and plan.condition is not None else ()
    own = frozenset(parameter.name for part in parts if (parameter := _longest(part)) is not None)
    return own.union(*map(durations_of, plan.inputs))


def _longest(part: Expr) -> Parameter | None:
    """The parameter that a condition says is the longest duration."""
    match part:
        case Call(fn="<=" | "<", args=(Column(name=name), (Cast(arg=Parameter() as made) | (Parameter() as made)))):
            return made if name == DUR else None
    return None


def _with(length: Expr, most: Literal) -> Expr:
    """A length with a value for its parameter."""
    return transform(length, lambda part: most if isinstance(part, Parameter) else part)
