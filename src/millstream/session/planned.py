"""A query with everything that planning made of it: data that can be saved and continued with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from millstream.bind.queries.outputs import Bound
from millstream.catalog import FromHistory, SinkDef
from millstream.config import Config
from millstream.errors import Span
from millstream.hosts.contract import ReadyQuery
from millstream.kernels.programs.spec import why_slow
from millstream.physical.before import computed_before
from millstream.physical.failing import failed_rows, without_failing_rows
from millstream.physical.nested import NestedError, with_codes
from millstream.physical.nodes import streams_of
from millstream.physical.planner import plan_physical
from millstream.physical.sums import in_halves
from millstream.physical.undecided import decided_above
from millstream.plan.costs.statistics import UNKNOWN, Statistics
from millstream.plan.failed import FailedRows
from millstream.plan.nodes import Node
from millstream.plan.relations import Forms, Validity
from millstream.records import dataclass
from millstream.rules import OPTIMIZE, run_rules


@dataclass(frozen=True)
class Planning:
    """What decides about a plan: whether rules change it, the form of relations, what is known of streams."""

    rules: bool
    relations: Forms
    known: Statistics
    lenient: bool = False
    """whether rows that cannot be computed are left out, and do not stop the query"""

    @classmethod
    def of(cls, config: Config, known: Statistics) -> Planning:
        """As the settings say."""
        return cls(config.rules, config.relations, known, config.on_error == "row")


def ways_to_plan(now: Planning) -> Iterator[Planning]:
    """All ways in which a query may have been planned, the present one first."""
    ways = product(
        dict.fromkeys((now.rules, not now.rules)),
        dict.fromkeys((now.relations, "auto", "intervals", "changes")),
        dict.fromkeys((bool(now.known), False)),
    )
    for by_rules, form, measured in ways:
        yield Planning(by_rules, form, now.known if measured else UNKNOWN, now.lenient)


@dataclass(frozen=True)
class Planned:
    """A program, the text it came from and the names that it uses."""

    program: ReadyQuery
    text: str
    uses: frozenset[str] = frozenset()
    changes: tuple[tuple[str, Node], ...] = ()
    """the rules that changed it, each with the plan it left"""
    owner: str = ""
    """the account of a server that it belongs to"""


def plan_query(
    name: str, bound: Bound, sink: SinkDef | None, how: Planning, disabled: frozenset[str],
    *, uses: frozenset[str] = frozenset(), text: str = "", view: bool = False,
    history: FromHistory | None = None, owner: str = "",
) -> Planned:  # fmt: skip
    """The way from a bound query to what runs: rules, then the physical plan."""
    whole = computed_before(in_halves(bound.plan) if how.lenient else bound.plan, how.lenient)
    plan, trace = run_rules(
        decided_above(whole) if how.lenient else whole,
        OPTIMIZE if how.rules else (),
        # of several windows that share their rows, one could not do without an EXPIRE
        disabled | {"merge_aggregates"} if how.lenient else disabled,
        how.known,
        why_slow,
    )
    try:
        physical = plan_physical(with_codes(plan), how.relations)
    except NestedError as error:
        error.span, error.sql = error.span or _place_of(error.column, text), text
        raise
    if how.lenient:
        physical = without_failing_rows(physical)
    program = ReadyQuery(name, physical, bound.names, sink, isinstance(bound.plan, Validity), view, bound.plan, history)
    return Planned(program, text, uses, tuple(trace.changes), owner)


def _place_of(column: str, text: str) -> Span:
    """Where a query names a column that planning cannot place: last, or by a star, or all of it."""
    for pattern in (rf"\b{re.escape(column)}\b", r"\*"):
        if found := list(re.finditer(pattern, text, re.IGNORECASE)):
            return Span(*found[-1].span())
    return Span(0, len(text))


def errors_of(program: ReadyQuery) -> FailedRows | None:
    """What ERRORS(q) reads: the rows that a query leaves out, if there may be any."""
    rows = failed_rows(program.plan)
    return None if rows is None else FailedRows(program.name, tuple(streams_of(program.plan)), rows)
