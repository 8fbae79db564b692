"""Logical plan → physical plan: which operators become kernels, which stateless steps run together."""

from __future__ import annotations

from dataclasses import replace

from millstream.kernels.ahead import AheadSpec
from millstream.kernels.contract import KernelSpec
from millstream.kernels.distinct import DistinctSpec
from millstream.kernels.hop import WindowStage
from millstream.kernels.merge import MergeSpec
from millstream.kernels.over import OverSpec
from millstream.kernels.programs.engine import Closing
from millstream.kernels.programs.spec import AggregateSpec
from millstream.kernels.session import SessionSpec
from millstream.kernels.yields import YieldSpec
from millstream.physical.nodes import AddWindows, Apply, Compute, Physical, Source, StoredTable, TableJoin
from millstream.plan import nodes as P
from millstream.plan.expr import Expr, conjunction, conjuncts, substitute


def plan_physical(node: P.Node) -> Physical:
    """The operators that run a logical plan. Equal subplans become equal operators, which a host runs once."""
    match node:
        case P.Scan(stream=stream, side=side):
            return Source(node.schema, stream, side)
        case P.Filter(input=below, predicate=predicate):
            return _filtered(plan_physical(below), predicate)
        case P.Project(input=below, columns=columns):
            return _projected(plan_physical(below), node, columns)
        case P.Over(input=below, keys=keys, calls=calls, ends=ends):
            child = plan_physical(below)
            kind = AheadSpec if any(call.frame.end < 0 for call in calls) else OverSpec
            return _apply((child,), kind(child.schema, keys, calls, ends))
        case P.Union(branches=branches):
            return _apply(tuple(map(plan_physical, branches)), MergeSpec(node.schema, len(branches)))
        case P.Distinct(input=below):
            return _apply((plan_physical(below),), DistinctSpec(node.schema))
        case P.AssignWindows(input=below, windows=windows, type=type_):
            child = plan_physical(below)
            return AddWindows(node.schema, child, WindowStage(child.schema, windows, type_))
        case P.Sessions(input=below, keys=keys, gap=gap, type=type_):
            child = plan_physical(below)
            return _apply((child,), SessionSpec(child.schema, keys, gap, type_))
        case P.Aggregate(input=below, keys=keys, program=program, args=args, mode=mode, results=results):
            child = plan_physical(below)
            return _apply((child,), AggregateSpec(child.schema, keys, program, args, mode, results))
        case P.Yield(input=below, keys=keys, unit=unit, every=every):
            child = plan_physical(below)
            return _apply((child,), YieldSpec(child.schema, keys, unit, every))
        case P.Group(input=below, keys=keys, ends=ends, program=program, args=args, results=results):
            child = plan_physical(below)
            return _apply((child,), AggregateSpec(child.schema, keys, program, args, Closing(), results, ends))
        case P.JoinTable(input=below, table=table, pairs=pairs, residual=residual, outer=outer):
            return TableJoin(node.schema, plan_physical(below), _stored(table), pairs, residual, outer)
    raise NotImplementedError(f"no physical form of {node.label()}")


def _apply(inputs: tuple[Physical, ...], spec: KernelSpec) -> Apply:
    return Apply(spec.output, inputs, spec)


def _filtered(child: Physical, predicate: Expr) -> Physical:
    if isinstance(child, Compute) and child.columns is None and child.predicate is not None:
        return replace(child, predicate=conjunction((*conjuncts(child.predicate), *conjuncts(predicate))))
    return Compute(child.schema, child, predicate, None)


def _projected(child: Physical, node: P.Project, columns: tuple[tuple[str, Expr], ...]) -> Physical:
    if isinstance(child, Compute) and child.columns is None:
        return Compute(node.schema, child.input, child.predicate, columns)
    return Compute(node.schema, child, None, columns)


def _stored(node: P.Node) -> StoredTable:
    """The filters and projections over a stored table, folded into how it is read."""
    match node:
        case P.TableScan(table=table):
            return StoredTable(node.schema, table, None, P.passthrough(node.schema))
        case P.Filter(input=below, predicate=predicate):
            inner = _stored(below)
            own = substitute(predicate, dict(inner.columns))
            both = own if inner.predicate is None else conjunction((inner.predicate, own))
            return replace(inner, predicate=both)
        case P.Project(input=below, columns=columns):
            inner = _stored(below)
            known = dict(inner.columns)
            return replace(
                inner,
                schema=node.schema,
                columns=tuple((name, substitute(expr, known)) for name, expr in columns),
            )
    raise NotImplementedError(f"{node.label()} on a stored table")
