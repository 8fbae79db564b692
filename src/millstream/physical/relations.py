"""Physical plans of relations, in one of two forms: rows with intervals, or the changes from instant to instant.

Intervals need no state for windows of time and half as many rows; changes are known as soon as they happen, where an
interval waits for its end. So relations of windows of time run on intervals. What asks for the changes themselves runs
on changes if something below would wait, and so does what holds rows that time alone does not end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal as OneOf

from millstream.expressions.nodes import Column, Expr
from millstream.kernels.contract import KernelSpec
from millstream.kernels.relations.at_window_end import AtWindowEndSpec
from millstream.kernels.relations.bags import BagSpec
from millstream.kernels.relations.convert import ToChangesSpec
from millstream.kernels.relations.deliver import DeliverSpec
from millstream.kernels.relations.events import ToEventsSpec
from millstream.kernels.relations.join import JoinSpec
from millstream.kernels.relations.rows_window import RowsWindowSpec
from millstream.kernels.relations.signs import SIGN, signed
from millstream.kernels.relations.stages import CoarsenStage, OwnRangeStage, PeriodStage, RangeStage, ValidityStage
from millstream.kernels.relations.summary import SummarySpec
from millstream.kernels.relations.time_changes import RangeChangesSpec
from millstream.kernels.streams.merge import MergeSpec
from millstream.physical.nested import refuse_nested
from millstream.physical.nodes import Apply, Physical, Staged, TableJoin
from millstream.physical.scalars import filtered, projected
from millstream.physical.stored import stored_table
from millstream.plan import nodes as P
from millstream.plan import relations as R
from millstream.plan.annotations import may_stay
from millstream.plan.event_joins import AtWindowEnd
from millstream.plan.joins import key_names
from millstream.plan.relations import arranged_call
from millstream.schema import Field, Schema


def plan_events(node: R.ToEvents, forms: R.Forms, below: Callable[[P.Node], Physical]) -> Physical:
    """The events of a relation; `below` plans what is no relation."""
    form: R.Form = ("changes" if waits(node.input) else "intervals") if forms == "auto" else forms
    if node.how == "rstream":
        # a row is there at every instant of its interval, which is what intervals say
        form = "intervals"
    child = RelationPlanner(form, below).plan(node.input)
    spec = ToEventsSpec(node.schema, node.how, node.granule, form)
    return Apply(node.schema, (child,), spec)


def plan_validity(node: R.Validity, forms: R.Forms, below: Callable[[P.Node], Physical]) -> Physical:
    """A relation's rows with the bounds of their validity, in order of their start if they all end some time, else as
    soon as they have ended: what stays for ever would let others wait for ever."""
    relation = node.input
    form: R.Form = ("changes" if may_stay(relation) else "intervals") if forms == "auto" else forms
    child = RelationPlanner(form, below).plan(relation)
    if form == "changes":
        return Apply(node.schema, (child,), DeliverSpec(relation.schema, node.schema, node.type))
    return Staged(node.schema, child, ValidityStage(child.schema, node.schema, node.type))


def waits(relation: P.Node) -> bool:
    """Whether rows of a relation, as intervals, come later than they begin to be valid."""
    match relation:
        case R.Window(window=R.RowsWindow()) | R.Summarize() | R.Arrange() | R.SetOperation():
            return True
        case R.Join(how="left" | "right" | "full" | "anti"):
            return True
    return any(waits(child) for child in relation.inputs if child.kind is P.Kind.RELATION)


class RelationPlanner:
    """Plans relations in one form, and converts where an operator has only the other."""

    def __init__(self, form: R.Form, below: Callable[[P.Node], Physical]) -> None:
        self.form: R.Form = form
        self._below = below

    def plan(self, node: P.Node) -> Physical:
        """The operators of a relation in this planner's form."""
        refuse_nested(node)
        match node:
            case R.Window(input=events, window=window):
                return self._window(self._below(events), window)
            case P.Filter(input=relation, predicate=predicate):
                return filtered(self.plan(relation), predicate)
            case P.Project(input=R.Join() as join, columns=columns) if read := _only_columns(columns):
                joined = self._join(join, read)
                return self._projected(joined, node.schema, columns) if node.schema.names != read else joined
            case P.Project(input=relation, columns=columns):
                return self._projected(self.plan(relation), node.schema, columns)
            case R.Join():
                return self._join(node, node.schema.names)
            case P.Union(branches=branches):
                return self._merged(node.schema, tuple(map(self.plan, branches)))
            case P.Distinct(input=relation):
                spec = BagSpec(node.schema, 1, "distinct", False, self.form)
                return self._apply(node.schema, (self.plan(relation),), spec)
            case R.SetOperation(left=left, right=right, op=op, all=all_):
                spec = BagSpec(node.schema, 2, op, all_, self.form)
                return self._apply(node.schema, (self.plan(left), self.plan(right)), spec)
            case R.Summarize(input=relation, keys=keys, calls=calls):
                groups = SummarySpec(relation.schema, keys, calls, self.form)
                return self._apply(node.schema, (self.plan(relation),), groups)
            case R.Arrange(input=relation, keys=keys, arrangement=arrangement):
                calls = (arranged_call(relation.schema, keys, arrangement),)
                groups = SummarySpec(relation.schema, keys, calls, self.form)
                arranged = self._apply(groups.made, (self.plan(relation),), groups)
                return self._projected(arranged, node.schema, P.passthrough(node.schema))
        return self._of_intervals(node)

    def _merged(self, schema: Schema, inputs: tuple[Physical, ...]) -> Physical:
        """The rows of all inputs. Those of equal time have no order here, so merges may stand above merges."""
        while len(inputs) > P.MOST_INPUTS:
            parts = [inputs[begin : begin + P.MOST_INPUTS] for begin in range(0, len(inputs), P.MOST_INPUTS)]
            inputs = tuple(self._merged(schema, part) if len(part) > 1 else part[0] for part in parts)
        return self._apply(schema, inputs, MergeSpec(self._formed(schema), len(inputs)))

    def _of_intervals(self, node: P.Node) -> Physical:
        """What is done to intervals, whatever the form around it."""
        inner = RelationPlanner("intervals", self._below)
        match node:
            case AtWindowEnd(input=events, end=end, after=after):
                child = self._below(events)
                made: Physical = Apply(node.schema, (child,), AtWindowEndSpec(child.schema, end, after), spans=True)
            case R.Coarsen(input=relation, granule=granule):
                child = inner.plan(relation)
                made = Staged(node.schema, child, CoarsenStage(child.schema, granule), spans=True)
            case P.JoinTable(input=relation, table=table, pairs=pairs, residual=residual, how=how, mark=mark):
                made = TableJoin(
                    node.schema, inner.plan(relation), stored_table(table), pairs, residual, how, mark, spans=True
                )
            case _:
                raise NotImplementedError(f"no physical form of {node.label()}")
        return self._as_formed(made)

    def _as_formed(self, made: Physical) -> Physical:
        """What was made as intervals, in this planner's form."""
        if self.form == "intervals":
            return made
        return Apply(self._formed(made.schema), (made,), ToChangesSpec(made.schema))

    # -- operators -------------------------------------------------------------------------------------------------

    def _window(self, events: Physical, window: R.WindowKind) -> Physical:
        schema = events.schema
        if isinstance(window, R.RowsWindow):
            return self._apply(schema, (events,), RowsWindowSpec(schema, window, self.form))
        if isinstance(window, R.Periods):
            return self._as_formed(Staged(schema, events, PeriodStage(schema, window.until), spans=True))
        if isinstance(window, R.OwnRange):
            return self._as_formed(Staged(schema, events, OwnRangeStage(schema, window.length), spans=True))
        if self.form == "changes":
            return self._apply(schema, (events,), RangeChangesSpec(schema, window))
        return Staged(schema, events, RangeStage(schema, window), spans=True)

    def _projected(self, child: Physical, schema: Schema, columns: tuple[tuple[str, Expr], ...]) -> Physical:
        if self.form == "changes":
            columns = (*columns, (SIGN.name, Column(SIGN.type, SIGN.name)))
        return projected(child, self._formed(schema), columns)

    def _join(self, node: R.Join, columns: tuple[str, ...]) -> Physical:
        """A join that gives these columns of either side."""
        by = key_names(node.pairs, node.left.schema, node.right.schema)
        left, left_schema = self._keyed(node.left, tuple(zip(by, (mine for mine, _ in node.pairs), strict=True)))
        right, right_schema = self._keyed(node.right, tuple(zip(by, (theirs for _, theirs in node.pairs), strict=True)))
        sides: tuple[tuple[OneOf["left", "right"], str], ...] = tuple(
            ("left" if name in node.left.schema else "right", name) for name in columns
        )
        spec = JoinSpec(left_schema, right_schema, by, sides, node.how, node.residual, self.form)
        return self._apply(Schema(tuple(node.schema[name] for name in columns)), (left, right), spec)

    def _keyed(self, side: P.Node, keys: tuple[tuple[str, Expr], ...]) -> tuple[Physical, Schema]:
        """One side of a join with the values that must be equal as columns, which both sides call the same."""
        child = self.plan(side)
        if not keys:
            return child, side.schema
        schema = Schema((*side.schema.fields, *(Field(name, expr.type) for name, expr in keys)))
        return self._projected(child, schema, (*P.passthrough(side.schema), *keys)), schema

    def _apply(self, schema: Schema, inputs: tuple[Physical, ...], spec: KernelSpec) -> Physical:
        return Apply(self._formed(schema), inputs, spec, spans=self.form == "intervals")

    def _formed(self, schema: Schema) -> Schema:
        return signed(schema) if self.form == "changes" else schema


def _only_columns(columns: tuple[tuple[str, Expr], ...]) -> tuple[str, ...]:
    """The columns that a projection reads, each once, if it computes nothing; else none."""
    names = [expr.name for _, expr in columns if isinstance(expr, Column)]
    return tuple(dict.fromkeys(names)) if len(names) == len(columns) else ()
