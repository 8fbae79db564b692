"""Logical plan → physical plan: which operators become kernels, which stateless steps run together."""

from __future__ import annotations

from millstream.kernels.contract import KernelSpec
from millstream.kernels.over import AheadSpec, OverSpec
from millstream.kernels.patterns.spec import MatchSpec
from millstream.kernels.programs.spec import AggregateSpec, GroupSpec
from millstream.kernels.streams.distinct import DistinctSpec
from millstream.kernels.streams.hop import WindowStage
from millstream.kernels.streams.lateness import LatenessSpec
from millstream.kernels.streams.merge import MergeSpec
from millstream.kernels.streams.session import SessionSpec
from millstream.kernels.streams.ties import TieOrderSpec
from millstream.kernels.streams.unnest import UnnestStage
from millstream.kernels.streams.yields import YieldSpec
from millstream.physical.events import instants, plan_automaton, plan_since, plan_times, points
from millstream.physical.nested import refuse_nested
from millstream.physical.nodes import Apply, Physical, Source, Staged, TableJoin
from millstream.physical.scalars import filtered, projected
from millstream.physical.stored import stored_table
from millstream.physical.window_groups import plan_window_groups
from millstream.plan import event_joins as E
from millstream.plan import nodes as P
from millstream.plan import relations as R
from millstream.plan.events import algebra as A
from millstream.plan.events.automata import Automaton
from millstream.plan.events.construct import automaton_of
from millstream.plan.failed import FailedRows
from millstream.plan.lateness import AdmitLate
from millstream.plan.patterns.search import Match
from millstream.plan.ties import Ties
from millstream.plan.unnest import Unnest


def plan_physical(node: P.Node, forms: R.Forms = "auto") -> Physical:
    """The operators that run a logical plan. Equal subplans become equal operators, which a host runs once."""
    return points(_plan(node, forms))


def _plan(node: P.Node, forms: R.Forms) -> Physical:
    def planned(node: P.Node) -> Physical:
        return _plan(node, forms)

    def plan(node: P.Node) -> Physical:
        """What operators take that know events as points in time."""
        return plan_physical(node, forms)

    refuse_nested(node)
    match node:
        case A.Next() | A.Fold():
            return plan_automaton(automaton_of(node), planned)
        case Automaton():
            return plan_automaton(node, planned)
        case A.Times(input=below):
            return plan_times(node, planned(below))
        case A.Since(input=below):
            return plan_since(node, planned(below))
        case R.ToEvents():
            from millstream.physical.relations import plan_events

            return plan_events(node, forms, plan)
        case R.Validity():
            from millstream.physical.relations import plan_validity

            return plan_validity(node, forms, plan)
        case E.Starts():
            from millstream.physical.event_joins import plan_starts

            return plan_starts(node, plan)
        case E.AsofJoin():
            from millstream.physical.event_joins import plan_asof

            return plan_asof(node, plan)
        case FailedRows(operators=operators):
            assert isinstance(operators, Physical)
            return operators
        case P.Scan(stream=stream, side=side):
            return Source(node.schema, stream, side)
        case AdmitLate(left=left, right=right, time=time, length=length):
            return _apply((plan(left), plan(right)), LatenessSpec(node.schema, time, length))
        case P.Filter(input=below, predicate=predicate):
            return filtered(planned(below), predicate)
        case P.Project(input=below, columns=columns):
            return projected(planned(below), node.schema, columns)
        case P.Over(input=below, keys=keys, calls=calls, ends=ends):
            child = plan(below)
            kind = AheadSpec if any(call.frame.end < 0 for call in calls) else OverSpec
            return _apply((child,), kind(child.schema, keys, calls, ends))
        case P.Union(branches=branches):
            merged = tuple(map(planned, branches))
            last = any(child.lasts for child in merged)
            merged = tuple(map(instants, merged)) if last else merged
            return Apply(node.schema, merged, MergeSpec(node.schema, len(branches)), lasts=last)
        case P.Distinct(input=below):
            return _apply((plan(below),), DistinctSpec(node.schema))
        case P.AssignWindows(input=below, windows=windows, type=type_):
            child = plan(below)
            return Staged(node.schema, child, WindowStage(child.schema, windows, type_))
        case Unnest(input=below, array=array, name=name):
            child = plan(below)
            return Staged(node.schema, child, UnnestStage(child.schema, array, name))
        case P.Sessions(input=below, keys=keys, gap=gap, type=type_):
            child = plan(below)
            return _apply((child,), SessionSpec(child.schema, keys, gap, type_))
        case P.Aggregate(input=below, keys=keys, program=program, args=args, mode=mode, results=results):
            child = plan(below)
            return _apply((child,), AggregateSpec(child.schema, keys, program, args, mode, results))
        case Match(input=below, search=search):
            child = plan(below)
            return _apply((child,), MatchSpec(child.schema, search))
        case Ties(input=below, keys=keys, by=by):
            return _apply((plan(below),), TieOrderSpec(node.schema, keys, by))
        case P.Yield(input=below, keys=keys, unit=unit, every=every):
            child = plan(below)
            return _apply((child,), YieldSpec(child.schema, keys, unit, every))
        case P.RowSlots(input=below, keys=keys, calls=calls, every=every):
            from millstream.kernels.streams.row_slots import RowSlotSpec

            child = plan(below)
            return _apply((child,), RowSlotSpec(child.schema, keys, calls, every))
        case P.Group(input=below, keys=keys, ends=ends, calls=calls):
            by_panes = plan_window_groups(node, plan)
            if by_panes is not None:
                return by_panes
            child = plan(below)
            return _apply((child,), GroupSpec(child.schema, keys, calls, ends))
        case P.JoinTable(input=below, table=table, pairs=pairs, residual=residual, how=how, mark=mark):
            child = planned(below)
            return TableJoin(node.schema, child, stored_table(table), pairs, residual, how, mark, lasts=child.lasts)
    raise NotImplementedError(f"no physical form of {node.label()}")


def _apply(inputs: tuple[Physical, ...], spec: KernelSpec) -> Apply:
    return Apply(spec.output, inputs, spec)
