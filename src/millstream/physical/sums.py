"""Sums that may overflow, under `on_error = 'row'`: sums of halves, and one value of a row that puts them together."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from millstream.expressions.nodes import Call, Column, Expr, substitute, told
from millstream.plan import nodes as P
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.aggregates import MOST_DIGITS
from millstream.plan.events.algebra import Fold
from millstream.plan.keyed_nodes import Calling
from millstream.plan.patterns.expressions import changed_checks
from millstream.plan.patterns.search import Match
from millstream.types import BIGINT, SqlType

Arg = TypeVar("Arg", bound=str | Expr)


def in_halves(node: P.Node) -> P.Node:
    """The plan in which no sum overflows below the projection that gives its result."""
    inputs = tuple(map(in_halves, node.inputs))
    if inputs != node.inputs:
        node = node.with_inputs(inputs)
    match node:
        case Calling():
            return _of_groups(node)
        case Match():
            return _of_matches(node)
        case Fold():
            return _of_fold(node)
    return node


def _of_groups(node: Calling) -> P.Node:
    results: dict[str, Expr] = {}
    calls: list[AggregateCall[str]] = []
    keys = tuple(Column(node.input.schema[key].type, key) for key in node.keys)
    for call in node.calls:
        if not _may_overflow(call, tuple(node.input.schema[arg].type for arg in call.args)):
            calls.append(call)
            continue
        calls += _halves(call)
        results[call.name] = _total(call, _said(call, _made(call.args[0], node.input)), keys)
    if not results:
        return node
    columns = ((field.name, results.get(field.name, Column(field.type, field.name))) for field in node.schema)
    return P.Project(replace(node, calls=tuple(calls)), tuple(columns))


def _of_matches(node: Match) -> P.Node:
    """Sums of matches, in measures and in conditions."""
    search = node.search
    wanted = {each.name: each for each in search.summaries if _may_overflow(each, tuple(arg.type for arg in each.args))}
    if not wanted:
        return node
    said = {name: _said(call, told(call.args[0])) for name, call in wanted.items()}
    totals = {name: _total(call, said[name], ()) for name, call in wanted.items()}
    columns = tuple(half for name in search.columns for half in (_names(wanted[name]) if name in wanted else (name,)))
    made = replace(
        search,
        conditions=tuple((name, substitute(condition, totals)) for name, condition in search.conditions),
        pattern=changed_checks(search.pattern, lambda condition: substitute(condition, totals)),
        summaries=(*search.summaries, *(half for call in wanted.values() for half in _halves(call))),
        columns=columns,
    )
    below = Match(node.input, made.telling(set(columns)))
    if columns == search.columns:
        return below
    keys = tuple(Column(node.input.schema[key].type, key) for key in search.keys)
    results = {name: _total(call, said[name], keys) for name, call in wanted.items()}
    return P.Project(
        below, tuple((field.name, results.get(field.name) or Column(field.type, field.name)) for field in node.schema)
    )


def _of_fold(node: Fold) -> Fold:
    wanted = {each.name: each for each in node.aggregates if _may_overflow(each, tuple(arg.type for arg in each.args))}
    totals = {name: _total(call, _said(call, told(call.args[0])), ()) for name, call in wanted.items()}
    aggregates = (half for call in node.aggregates for half in (_halves(call) if call.name in wanted else [call]))
    updates = tuple((name, begin, substitute(becomes, totals)) for name, begin, becomes in node.updates)
    return replace(node, aggregates=tuple(aggregates), updates=updates) if wanted else node


def _may_overflow(call: AggregateCall[Arg], types: tuple[SqlType, ...]) -> bool:
    if call.fn != "sum" or call.program is not None or call.arrangement is not None:
        return False
    return types[0] == BIGINT or (types[0].name == "DECIMAL" and types[0].precision <= MOST_DIGITS)


def _names(call: AggregateCall[Arg]) -> tuple[str, str]:
    return f"{call.name}.high", f"{call.name}.low"


def _halves(call: AggregateCall[Arg]) -> list[AggregateCall[Arg]]:
    high, low = _names(call)
    return [replace(call, names=(name,), fn=fn, types=(BIGINT,)) for name, fn in ((high, "sum_high"), (low, "sum_low"))]


def _total(call: AggregateCall[Arg], said: str, keys: tuple[Expr, ...]) -> Expr:
    high, low = (Column(BIGINT, name, said) for name in _names(call))
    return Call(call.type, "$total", (high, low, *keys))


def _said(call: AggregateCall[Arg], arg: str) -> str:
    return f"sum({'DISTINCT ' if call.distinct else ''}{arg})"


def _made(column: str, node: P.Node) -> str:
    made = dict(node.columns) if isinstance(node, P.Project) else {}
    return told(made[column]) if column in made else column
