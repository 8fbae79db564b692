"""What a plan means, instant by instant, straight from the definitions: slow, small, and independent of the engine."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from typing import Any

from millstream.expressions.nodes import Call, Case, Cast, Column, Expr, Literal
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.nodes import Distinct, Filter, Kind, Node, Project, Scan, Union
from millstream.plan.relations import (
    Coarsen,
    Join,
    Periods,
    RangeWindow,
    SetOperation,
    Summarize,
    ToEvents,
    Window,
    WindowKind,
)
from millstream.schema import Schema

Row = tuple[Any, ...]
Events = list[tuple[int, Row]]
Relation = list[Counter[Row]]
"""the rows at each instant from 0 on"""

Data = dict[str, list[tuple[int, dict[str, Any]]]]
"""rows of streams with their times, in order of arrival"""

INSTANTS = 16

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": lambda a, b: int(a / b),
}  # fmt: skip


def meaning(plan: Node, data: Data) -> Relation:
    """The rows at each instant: those valid then, or the events that happened then."""
    if plan.kind is Kind.RELATION:
        return relation(plan, data)
    found: Relation = [Counter() for _ in range(INSTANTS)]
    for time, row in events(plan, data):
        if time < INSTANTS:
            found[time][row] += 1
    return found


def events(node: Node, data: Data) -> Events:
    match node:
        case Scan(stream=stream, columns=columns):
            return [(time, tuple(row[name] for name in columns.names)) for time, row in data[stream]]
        case Filter(input=below, predicate=predicate):
            return [(t, row) for t, row in events(below, data) if value(predicate, row, below.schema) is True]
        case Project(input=below, columns=columns):
            return [(t, tuple(value(e, row, below.schema) for _, e in columns)) for t, row in events(below, data)]
        case Union(branches=branches):
            return sorted((e for branch in branches for e in events(branch, data)), key=lambda event: event[0])
        case Distinct(input=below):
            return list(dict.fromkeys(events(below, data)))
        case ToEvents(input=below, how=how, granule=granule):
            at = relation(below, data)
            before = [Counter[Row](), *at[:-1]]
            match how:
                case "istream":
                    changes = [now - then for now, then in zip(at, before, strict=True)]
                case "dstream":
                    changes = [then - now for now, then in zip(at, before, strict=True)]
                case _:
                    changes = [rows if t % granule == 0 else Counter() for t, rows in enumerate(at)]
            return [(t, row) for t, rows in enumerate(changes) for row in rows.elements()]
    raise TypeError(node.label())


def relation(node: Node, data: Data) -> Relation:
    if isinstance(node, Window):
        return window(events(node.input, data), node.window, node.input.schema)
    if isinstance(node, Coarsen):
        below = relation(node.input, data)
        return [below[t // node.granule * node.granule] for t in range(INSTANTS)]
    inputs = [relation(below, data) for below in node.inputs]
    return [snapshot(node, [at[t] for at in inputs]) for t in range(INSTANTS)]


def window(rows: Events, spec: WindowKind, schema: Schema) -> Relation:
    found: Relation = [Counter() for _ in range(INSTANTS)]
    for t in range(INSTANTS):
        if isinstance(spec, Periods):
            end_at = schema.index(spec.until)
            found[t].update(row for time, row in rows if time <= t and (row[end_at] is None or t < row[end_at]))
            continue
        if isinstance(spec, RangeWindow):
            end = (t + 1) // spec.slide * spec.slide
            first = 0 if spec.size is None else end - spec.size
            found[t].update(row for time, row in rows if first <= time < end)
            continue
        keys = [schema.index(name) for name in spec.by]
        parts: dict[Row, list[Row]] = {}
        for time, row in rows:
            if time <= t:
                parts.setdefault(tuple(row[i] for i in keys), []).append(row)
        for part in parts.values():
            end = len(part) // spec.slide * spec.slide
            found[t].update(part[0 if spec.rows is None else max(end - spec.rows, 0) : end])
    return found


def snapshot(node: Node, inputs: list[Counter[Row]]) -> Counter[Row]:
    """What an operator on tables gives."""
    rows = inputs[0]
    match node:
        case Filter(input=below, predicate=predicate):
            return Counter({row: n for row, n in rows.items() if value(predicate, row, below.schema) is True})
        case Project(input=below, columns=columns):
            return Counter(tuple(value(e, row, below.schema) for _, e in columns) for row in rows.elements())
        case Union():
            return sum(inputs, Counter())
        case Distinct():
            return Counter(dict.fromkeys(rows, 1))
        case Join():
            return join(node, *inputs)
        case Summarize():
            return summarize(node, rows)
        case SetOperation(op=op, all=every):
            left, right = inputs if every else [Counter(dict.fromkeys(side, 1)) for side in inputs]
            return left - right if op == "except" else left & right
    raise TypeError(node.label())


def join(node: Join, left: Counter[Row], right: Counter[Row]) -> Counter[Row]:
    def matches(mine: Row, theirs: Row) -> bool:
        for one, two in node.pairs:
            a, b = value(one, mine, node.left.schema), value(two, theirs, node.right.schema)
            if a is None or b is None or a != b:
                return False
        return node.residual is None or value(node.residual, mine + theirs, node.both) is True

    if node.how in ("semi", "anti"):
        wanted = node.how == "semi"
        return Counter({row: n for row, n in left.items() if any(matches(row, other) for other in right) is wanted})
    found: Counter[Row] = Counter()
    for mine, n in left.items():
        for theirs, m in right.items():
            if matches(mine, theirs):
                found[mine + theirs] += n * m
    if node.how in ("left", "full"):
        none = (None,) * len(node.right.schema)
        found.update({row + none: n for row, n in left.items() if not any(matches(row, other) for other in right)})
    if node.how in ("right", "full"):
        none = (None,) * len(node.left.schema)
        found.update({none + row: n for row, n in right.items() if not any(matches(other, row) for other in left)})
    return found


def summarize(node: Summarize, rows: Counter[Row]) -> Counter[Row]:
    schema = node.input.schema
    groups: dict[Row, list[Row]] = {}
    for row in rows.elements():
        groups.setdefault(tuple(row[schema.index(key)] for key in node.keys), []).append(row)
    return Counter(
        key + tuple(aggregate(call, [row[schema.index(call.args[0])] for row in group] if call.args else group)
                    for call in node.calls)
        for key, group in groups.items()
    )  # fmt: skip


def aggregate(call: AggregateCall, values: list[Any]) -> Any:
    known = [each for each in values if each is not None]
    if call.distinct:
        known = list(dict.fromkeys(known))
    if call.fn == "count":
        return len(known)
    return {"sum": sum, "min": min, "max": max}[call.fn](known) if known else None


def value(expr: Expr, row: Row, schema: Schema) -> Any:
    """An expression on a row, NULL as None."""
    match expr:
        case Column(name=name):
            return row[schema.index(name)]
        case Literal(value=constant):
            return constant
        case Cast(arg=arg):
            return value(arg, row, schema)
        case Call(fn="is_null", args=(arg,)):
            return value(arg, row, schema) is None
        case Call(fn="and", args=args):
            parts = [value(arg, row, schema) for arg in args]
            return False if False in parts else None if None in parts else True
        case Call(fn="or", args=args):
            parts = [value(arg, row, schema) for arg in args]
            return True if True in parts else None if None in parts else False
        case Call(fn="not", args=(arg,)):
            inner = value(arg, row, schema)
            return None if inner is None else not inner
        case Case(whens=whens, default=default):
            chosen = next((then for when, then in whens if value(when, row, schema) is True), default)
            return value(chosen, row, schema)
        case Call(fn=fn, args=(one, two)):
            a, b = value(one, row, schema), value(two, row, schema)
            return None if a is None or b is None else _OPERATORS[fn](a, b)
    raise TypeError(str(expr))
