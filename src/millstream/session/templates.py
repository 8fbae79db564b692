"""Queries that `sql()` starts one by one and that differ only in constants: from the fourth on they run as one.

The plan of such a query is a filter on its number over the plan of its shape, which is the same for all of them: the
shape over the stream joined with a table of constants (`plan/templates.py`). Every row that an operator with state
takes in is of one query, so nobody can notice that the operator was there before. What a host keeps of such queries is
in `hosts/embedded/members.py`; a template is found again from any of its queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from typing import TYPE_CHECKING

from millstream import plan_form
from millstream.bind.queries.outputs import Bound
from millstream.catalog import FromHistory, SinkDef
from millstream.errors import MillstreamError
from millstream.expressions.functions import can_fail
from millstream.expressions.nodes import Call, Column, Expr, Literal, Parameter
from millstream.hosts.contract import MEMBER, Member, ReadyQuery
from millstream.hosts.filter_groups import LEAST_MEMBERS
from millstream.kernels.over.spec import AheadSpec
from millstream.kernels.programs.undoing import may_fail
from millstream.physical.nodes import Apply, Compute, Physical, Staged, TableJoin, walk
from millstream.physical.of_queries import common_streams
from millstream.physical.sums import in_halves
from millstream.plan import nodes as P
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.programs.nodes import Program
from millstream.plan.relations import Validity
from millstream.plan.shapes import in_shape, name_of, shape_of
from millstream.plan.templates import (
    CHANNELS,
    QUERY,
    SHARE,
    TEMPLATES,
    CannotShare,
    ConstantsTable,
    expressions_in,
    for_all,
    parameters_of,
    values_in,
)
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.session.planned import Planned, Planning, plan_query
from millstream.types import BIGINT, BOOLEAN

if TYPE_CHECKING:
    from millstream.session.database import Database

APART = LEAST_MEMBERS - 1
"""so many queries of a shape run by themselves before others run as one"""
_MOST_ENDED = 64
"""so many queries of a template, and as many as still run, may have ended before queries that come begin another one:
what they left in its operators may stay there"""
AS_ONE = "as one, over a table of their constants"


@dataclass(eq=False)
class Template:
    """The operators that queries of a shape share."""

    table: str
    plan: Physical
    changes: tuple[tuple[str, P.Node], ...]
    members: dict[str, Planned] = field(default_factory=dict)
    given: int = 0
    """how many queries it ever had"""


@dataclass(eq=False)
class _Known:
    """What is known of a shape."""

    apart: dict[str, Planned] = field(default_factory=dict)
    """the queries that run by themselves, by name"""
    templates: list[Template] = field(default_factory=list)
    """queries join the last one"""
    why: str | None = None
    """why its queries cannot run as one; empty if that would be of no use"""


class _Apart(Exception):
    """Queries of a shape cannot run as one; says why."""


class Templates:
    """The shapes of the running queries."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[tuple[str, frozenset[str], P.Node], _Known] = {}
        """by account, rules that are off, and plan"""
        self._of_query: dict[str, _Known] = {}

    def plan(
        self, name: str, bound: Bound, uses: frozenset[str], sink: SinkDef | None, text: str,
        history: FromHistory | None,
    ) -> Planned:  # fmt: skip
        """How a query runs that is about to start: as one with others of its shape, or by itself."""
        db = self._database
        shape = shape_of(bound.plan) if history is None and self._applies(bound.plan) else None
        if shape is None:
            return db.plan(name, bound, sink, uses, text, history=history)
        known = self._of(shape.plan, db.guard.account)
        template = self._template(known, shape.plan, bound)
        number = None if template is None else db._host.new_member()
        if template is None or number is None:
            planned = known.apart[name.lower()] = db.plan(name, bound, sink, uses, text)
            self._of_query[name.lower()] = known
            return planned
        member = Member(template.table, number, shape.values)
        planned = self._planned(name, bound, uses, sink, text, template, member)
        template.members[name.lower()] = planned
        template.given += 1
        self._of_query[name.lower()] = known
        return planned

    def altered(self, before: Planned, bound: Bound, uses: frozenset[str], text: str) -> Planned | None:
        """Another definition of a query that shares its operators: over the same constants, so that it can go on with
        its state; None if that cannot be."""
        program = before.program
        if program.member is None or not self._applies(bound.plan):
            return None
        own = program.member.alone
        plan = in_shape(bound.plan, own.constants)
        if not parameters_of(plan):
            return None
        try:
            template = self._made(plan, bound, own.table, own.schema)
        except _Apart:
            return None
        return self._planned(program.name, bound, uses, program.sink, text, template, own)

    def start(self, planned: Planned, start: Callable[[ReadyQuery], None]) -> None:
        """Start a query, or let it take the place of the one of its name, which is of its shape no more."""
        name = planned.program.name
        replaces = name.lower() in self._database._planned
        try:
            start(planned.program)
        except BaseException:
            if not replaces:
                self.ended(name)
            raise
        if replaces:
            self.ended(name)
        if name.lower() not in self._of_query:
            # it was saved, or is another definition
            self._adopt(planned)

    def ended(self, name: str) -> None:
        """A query has ended, or has another definition."""
        known = self._of_query.pop(name.lower(), None)
        if known is not None:
            known.apart.pop(name.lower(), None)
            for template in known.templates:
                template.members.pop(name.lower(), None)
            known.templates = [template for template in known.templates if template.members]

    def sharing(self) -> Iterator[tuple[str, list[str], str]]:
        """The shapes of which there are several queries: what they do, their names, and how they run."""
        for (*_, plan), known in self._known.items():
            for template in known.templates:
                if len(template.members) > 1:
                    yield _told(plan), _names(template.members), AS_ONE
            if len(known.apart) > 1 and (known.templates or known.why):
                why = known.why or f"the first {APART} of their shape"
                yield _told(plan), _names(known.apart), f"apart: {why}"

    # -- shapes ----------------------------------------------------------------------------------------------------

    def _applies(self, plan: P.Node) -> bool:
        config = self._database.config
        if not config.rules or config.on_error == "row" or not config.disabled_rules.isdisjoint((SHARE, TEMPLATES)):
            return False
        # the programs of sets share all they can
        return not any(isinstance(node, P.TableScan) and "$" in node.table for node in P.walk(plan))

    def _of(self, plan: P.Node, account: str) -> _Known:
        key = account, self._database.config.disabled_rules, plan
        known = self._known.get(key)
        if known is None:
            if len(self._known) > 2 * len(self._database._queries) + _MOST_ENDED:
                self._known = {other: each for other, each in self._known.items() if each.apart or each.templates}
            known = self._known[key] = _Known()
        return known

    def _adopt(self, planned: Planned) -> None:
        """A query that runs as it was planned before."""
        program = planned.program
        name, member = program.name.lower(), program.member
        if program.bound is None or program.view or program.history is not None or not self._applies(program.bound):
            return
        shape = shape_of(program.bound)
        if shape is None:
            return
        known = self._of_query[name] = self._of(shape.plan, planned.owner)
        if member is None or member.is_alone:
            known.apart[name] = planned
            return
        template = next((each for each in known.templates if each.table == member.table), None)
        if template is None:
            template = Template(member.table, program.plan.inputs[0], planned.changes)
            known.templates.append(template)
        template.members[name] = planned
        template.given += 1

    def _template(self, known: _Known, plan: P.Node, bound: Bound) -> Template | None:
        """Where one more query of a shape runs; None if by itself."""
        if known.why is not None:
            return None
        running = sum(len(template.members) for template in known.templates)
        if known.templates:
            template = known.templates[-1]
            if template.given - len(template.members) <= _MOST_ENDED + len(template.members):
                return template
        elif running + len(known.apart) < APART:
            return None
        number = self._database._host.new_member()
        if number is None:
            return None
        try:
            template = self._made(plan, bound, f"$template {number}", _schema_of(plan))
        except _Apart as error:
            known.why = str(error)
            return None
        known.templates.append(template)
        return template

    # -- plans -----------------------------------------------------------------------------------------------------

    def _made(self, plan: P.Node, bound: Bound, table: str, columns: Schema) -> Template:
        """The plan for all queries of a shape; raises `_Apart` if there is none that nobody can notice."""
        db = self._database
        if isinstance(plan, Validity):
            raise _Apart("rows of a relation come in order of their start, over all queries of a plan")
        constants = ConstantsTable(table, None, columns, MEMBER)
        without = db.config.disabled_rules
        try:
            if plan_form.python_in(bound.plan):
                raise _Apart("they compute with Python")
            # sums that overflow are an error of the query that has them; operators become automata later
            optimized = db.optimized(in_halves(plan), without=frozenset(["fuse_events"]))
            made = for_all(optimized, constants, without | {CHANNELS})
            how = Planning.of(db.config, db._host.statistics())
            planned = plan_query("template", Bound(made, made.schema.names), None, how, without)
        except CannotShare as error:
            raise _Apart(str(error)) from None
        except MillstreamError as error:
            raise _Apart(error.message) from None
        physical = planned.program.plan
        kernels = [node for node in walk(physical) if isinstance(node, Apply)]
        if not kernels:
            # their conditions are looked up together anyway
            raise _Apart("")
        if common_streams(physical, table) is None:
            raise _Apart("no constant chooses the rows of their windows, which those share that start together")
        for kernel in kernels:
            if isinstance(kernel.spec, AheadSpec) or getattr(kernel.spec, "form", "") == "intervals":
                raise _Apart(f"results would wait for those of other queries: {kernel.spec.describe()}")
        for node in walk(physical):
            if _may_fail(node):
                raise _Apart(f"an error of one would stop the others: {node.label()}")
        return Template(table, physical, planned.changes)

    def _planned(
        self, name: str, bound: Bound, uses: frozenset[str], sink: SinkDef | None, text: str,
        template: Template, member: Member,
    ) -> Planned:  # fmt: skip
        """A query as the rows of its number."""
        db, below = self._database, template.plan
        own = Schema(tuple(each for each in below.schema if each.name != QUERY))
        is_own = Call(BOOLEAN, "=", (Column(BIGINT, QUERY), Literal(BIGINT, member.number)))
        columns = tuple((each.name, Column(each.type, each.name)) for each in own)
        top = Compute(own, below, is_own, columns, spans=below.spans, lasts=below.lasts)
        sink = db.tables.found_by(sink)
        program = ReadyQuery(name, top, bound.names, sink, bound=bound.plan, member=member)
        owner = getattr(db._planned.get(name.lower()), "owner", "") or db.guard.account
        return Planned(program, text, uses, template.changes, owner)


def _schema_of(plan: P.Node) -> Schema:
    """The columns of the table of constants of a shape."""
    parts = (part for node in P.walk(plan) for part in expressions_in(node))
    types = {part.name: part.type for part in parts if isinstance(part, Parameter)}
    own = (Field(name_of(place), types[name_of(place)]) for place in range(len(types)))
    return Schema((Field(MEMBER, BIGINT), *own))


def _may_fail(node: Physical) -> bool:
    """Whether an operator may fail on the rows of one query in a way that concerns others. Filters and projections that
    know the query do not: hosts tell apart whose rows fail."""
    match node:
        case Compute():
            return QUERY not in node.input.schema and any(map(can_fail, node.expressions))
        case TableJoin():
            return node.how == "single" or any(map(can_fail, _compared(node)))
        case Apply(spec=spec):
            programs = values_in(spec, Program)
            calls = values_in(spec, AggregateCall)
            return (
                any(map(can_fail, values_in(spec, Expr)))
                or any(may_fail(program.statements) for program in programs)
                or any(call.arrangement is not None for call in calls)
            )
        case Staged(stage=stage):
            return any(map(can_fail, values_in(stage, Expr)))
    return False


def _compared(node: TableJoin) -> Iterator[Expr]:
    for pair in node.pairs:
        yield from pair
    if node.residual is not None:
        yield node.residual


def _told(plan: P.Node) -> str:
    """What the queries of a shape do, on one line."""
    return " ⟵ ".join(node.label() for node in P.walk(plan) if not isinstance(node, P.Project | P.Scan | Validity))


def _names(queries: dict[str, Planned]) -> list[str]:
    return [planned.program.name for planned in queries.values()]
