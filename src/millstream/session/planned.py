"""A query with everything that planning made of it: data that can be saved and continued with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from millstream.bind.queries.outputs import Bound
from millstream.catalog import SinkDef
from millstream.hosts.contract import ReadyQuery
from millstream.kernels.programs.spec import why_slow
from millstream.physical.planner import plan_physical
from millstream.plan.costs.statistics import UNKNOWN, Statistics
from millstream.plan.nodes import Node
from millstream.plan.relations import Forms, Validity
from millstream.rules import OPTIMIZE, run_rules


@dataclass(frozen=True)
class Planning:
    """What decides about a plan: whether rules change it, the form of relations, what is known of streams."""

    rules: bool
    relations: Forms
    known: Statistics


def ways_to_plan(rules: bool, relations: Forms, known: Statistics) -> Iterator[Planning]:
    """All ways in which a query may have been planned, the present one first."""
    ways = product(
        dict.fromkeys((rules, not rules)),
        dict.fromkeys((relations, "auto", "intervals", "changes")),
        dict.fromkeys((bool(known), False)),
    )
    for by_rules, form, measured in ways:
        yield Planning(by_rules, form, known if measured else UNKNOWN)


@dataclass(frozen=True)
class Planned:
    """A program, the text it came from and the names that it uses."""

    program: ReadyQuery
    text: str
    uses: frozenset[str] = frozenset()
    changes: tuple[tuple[str, Node], ...] = ()
    """the rules that changed it, each with the plan it left"""


def plan_query(
    name: str, bound: Bound, sink: SinkDef | None, how: Planning, disabled: frozenset[str],
    *, uses: frozenset[str] = frozenset(), text: str = "", view: bool = False,
) -> Planned:  # fmt: skip
    """The way from a bound query to what runs: rules, then the physical plan."""
    plan, trace = run_rules(bound.plan, OPTIMIZE if how.rules else (), disabled, how.known, why_slow)
    physical = plan_physical(plan, how.relations)
    program = ReadyQuery(name, physical, bound.names, sink, isinstance(bound.plan, Validity), view, bound.plan)
    return Planned(program, text, uses, tuple(trace.changes))
