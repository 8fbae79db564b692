"""Sums that may overflow, under `on_error = 'row'`: sums of halves, and one value of a row that puts them together."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from millstream.expressions.nodes import Call, Column, Expr, told
from millstream.plan import nodes as P
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.aggregates import MOST_DIGITS
from millstream.plan.keyed_nodes import Calling
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
    """Measures; a sum that conditions read stays as it is beside them."""
    search = node.search
    wanted = {
        each.name: each
        for each in search.summaries
        if each.name in search.columns and _may_overflow(each, tuple(arg.type for arg in each.args))
    }
    if not wanted:
        return node
    keys = tuple(Column(node.input.schema[key].type, key) for key in search.keys)
    totals = {name: _total(call, _said(call, told(call.args[0])), keys) for name, call in wanted.items()}
    summaries = (*search.summaries, *(half for call in wanted.values() for half in _halves(call)))
    told_ = [
        half for name in search.columns for half in (_names(wanted[name]) if name in wanted else (name,))
    ]
    made = replace(search, summaries=summaries, columns=tuple(told_))
    below = Match(node.input, made.telling(set(told_)))
    columns = ((field.name, totals.get(field.name, Column(field.type, field.name))) for field in node.schema)
    return P.Project(below, tuple(columns))


def _may_overflow(call: AggregateCall[Arg], types: tuple[SqlType, ...]) -> bool:
    if call.fn != "sum" or call.program is not None or call.arrangement is not None:
        return False
    return types[0] == BIGINT or (types[0].name == "DECIMAL" and types[0].precision <= MOST_DIGITS)


def _names(call: AggregateCall[Arg]) -> tuple[str, str]:
    return f"{call.name}.high", f"{call.name}.low"


def _halves(call: AggregateCall[Arg]) -> list[AggregateCall[Arg]]:
    high, low = _names(call)
    return [
        replace(call, names=(name,), fn=fn, types=(BIGINT,)) for name, fn in ((high, "sum_high"), (low, "sum_low"))
    ]


def _total(call: AggregateCall[Arg], said: str, keys: tuple[Expr, ...]) -> Expr:
    high, low = (Column(BIGINT, name, said) for name in _names(call))
    return Call(call.type, "$total", (high, low, *keys))


def _said(call: AggregateCall[Arg], arg: str) -> str:
    return f"sum({'DISTINCT ' if call.distinct else ''}{arg})"


def _made(column: str, node: P.Node) -> str:
    made = dict(node.columns) if isinstance(node, P.Project) else {}
    return told(made[column]) if column in made else column
