"""Sums that may overflow, under `on_error = 'row'`: sums of halves, and one value of a row that puts them together."""

from __future__ import annotations

from dataclasses import replace

from millstream.expressions.functions import resolve
from millstream.expressions.nodes import Column, Expr, Literal, told
from millstream.plan import nodes as P
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.keyed_nodes import Calling
from millstream.types import BIGINT

_HALF = Literal(BIGINT, 1 << 32)


def in_halves(node: P.Node) -> P.Node:
    """The plan in which no sum of BIGINTs overflows below the projection that gives its result."""
    inputs = tuple(map(in_halves, node.inputs))
    if inputs != node.inputs:
        node = node.with_inputs(inputs)
    if not isinstance(node, Calling):
        return node
    halves: dict[str, Expr] = {}
    results: dict[str, Expr] = {}
    calls: list[AggregateCall[str]] = []
    for call in node.calls:
        if not _may_overflow(call, node):
            calls.append(call)
            continue
        (arg,) = call.args
        parts = []
        for half, fn in (("high", "//"), ("low", "%")):
            halves[f"${arg}.{half}"] = resolve(fn, (Column(BIGINT, arg), _HALF))
            calls.append(replace(call, names=(f"{call.name}.{half}",), args=(f"${arg}.{half}",)))
            parts.append(Column(BIGINT, f"{call.name}.{half}", f"sum({_told(arg, node.input)})"))
        keys = (Column(node.input.schema[key].type, key) for key in node.keys)
        results[call.name] = resolve("$total", (*parts, *keys))
    if not results:
        return node
    below = P.Project(node.input, (*P.passthrough(node.input.schema), *halves.items()))
    columns = ((field.name, results.get(field.name, Column(field.type, field.name))) for field in node.schema)
    return P.Project(replace(node, input=below, calls=tuple(calls)), tuple(columns))


def _may_overflow(call: AggregateCall[str], node: Calling) -> bool:
    is_plain = call.fn == "sum" and call.program is None and call.arrangement is None and not call.distinct
    return is_plain and node.input.schema[call.args[0]].type == BIGINT


def _told(column: str, node: P.Node) -> str:
    made = dict(node.columns) if isinstance(node, P.Project) else {}
    return told(made[column]) if column in made else column
