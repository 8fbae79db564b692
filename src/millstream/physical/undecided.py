"""`on_error = 'row'` where several rows are computed with at once. NEXT and FOLD give out an event that a filter above
them fails on; in row patterns, a condition that fails does not hold."""

from __future__ import annotations

from dataclasses import replace

from millstream.expressions.functions import can_fail, resolve
from millstream.expressions.nodes import Call, Column, Expr, Literal, conjunction, conjuncts, told, transform, walk
from millstream.plan import nodes as P
from millstream.plan.events.algebra import DUR, LAST, Fold, Next, Times
from millstream.plan.patterns.expressions import changed_checks
from millstream.plan.patterns.search import Match
from millstream.types import BOOLEAN

_APART = "$apart"
_FLAG = "$failed"


def decided_above(node: P.Node) -> P.Node:
    """The plan in which no expression of NEXT, FOLD and DEFINE fails. Filters and projections that may fail stay
    outside of automata, which could not leave out a row."""
    return _decided(node, any(isinstance(part, Next | Fold) for part in P.walk(node)))


def together(expr: Expr) -> Expr:
    """The expression without the mark that keeps it out of automata."""
    return transform(expr, lambda part: part.args[0] if isinstance(part, Call) and part.fn == _APART else part)


def _decided(node: P.Node, has_events: bool) -> P.Node:
    inputs = tuple(_decided(below, has_events) for below in node.inputs)
    if inputs != node.inputs:
        node = node.with_inputs(inputs)
    match node:
        case P.Filter(predicate=predicate) if has_events and can_fail(predicate):
            return replace(node, predicate=conjunction(tuple(map(_apart, conjuncts(predicate)))))
        case P.Project(columns=columns) if has_events and any(can_fail(expr) for _, expr in columns):
            return replace(node, columns=tuple((name, _apart(expr)) for name, expr in columns))
        case Next(condition=Expr() as condition) if can_fail(condition):
            return _of_next(node, condition)
        case Fold():
            return _of_fold(node)
        case Match(search=search):
            conditions = tuple((name, _tried(condition)) for name, condition in search.conditions)
            pattern = changed_checks(search.pattern, _tried)
            return replace(node, search=replace(search, conditions=conditions, pattern=pattern))
    return node


def _apart(expr: Expr) -> Expr:
    return Call(expr.type, _APART, (expr,)) if can_fail(expr) else expr


def _of_next(node: Next, condition: Expr) -> P.Node:
    sure, doubtful = _divided(condition)
    made: P.Node = replace(node, condition=conjunction((*sure, *map(_maybe, doubtful))))
    durations = {part.type for each in doubtful for part in _columns(each) if part.name == DUR}
    if durations:
        made = Times(made, ((DUR, "duration"),), durations.pop())
    made = P.Filter(made, conjunction(tuple(_apart(_by_names(part, node)) for part in doubtful)))
    return P.Project(made, P.passthrough(node.schema)) if durations or made.schema != node.schema else made


def _of_fold(node: Fold) -> P.Node:
    """What was folded so far ends with the event that it cannot be computed with: that is given out with a flag, and
    the next event that could follow ends it."""
    sure, doubtful = ((), ()) if node.condition is None else _divided(node.condition)
    goes_on = [] if node.continues is None or not can_fail(node.continues) else [node.continues]
    changes = [becomes for _, _, becomes in node.updates if can_fail(becomes)]
    args = [arg for each in node.aggregates for arg in each.args if can_fail(arg)]
    failing = tuple(dict.fromkeys((*doubtful, *goes_on, *changes, *args)))
    if not failing:
        return node
    over = Column(BOOLEAN, LAST + _FLAG)
    condition = (*sure, *(_either(over, _maybe(part)) for part in doubtful))
    continues: Expr = Literal(BOOLEAN, True) if node.continues is None else _maybe(node.continues)
    continues = resolve("and", (resolve("not", (over,)), _either(*map(_fails, doubtful), continues)))
    flag = (_FLAG, Literal(BOOLEAN, False), _either(*map(_fails, failing)))
    made = replace(
        node,
        condition=conjunction(condition) if condition else None,
        continues=continues,
        updates=(*((name, begin, _passing(becomes)) for name, begin, becomes in node.updates), flag),
        aggregates=tuple(replace(each, args=tuple(map(_passing, each.args))) for each in node.aggregates),
    )
    said = Column(BOOLEAN, _FLAG, " or ".join(told(_by_names(expr, node)) for expr in failing))
    reading = (*failing, *condition, *(arg for each in node.aggregates for arg in each.args))
    read = {part for expr in reading for part in _columns(_by_names(expr, node)) if part.name in node.schema}
    sound = Call(BOOLEAN, "$sound", (said, *sorted(read, key=lambda column: column.name)))
    return P.Project(P.Filter(made, sound), P.passthrough(node.schema))


def _divided(condition: Expr) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    parts = conjuncts(condition)
    return tuple(part for part in parts if not can_fail(part)), tuple(filter(can_fail, parts))


def _by_names(expr: Expr, node: P.Node) -> Expr:
    """With columns as they are called in the result: both inputs may have called them the same."""
    if isinstance(expr, Column):
        return replace(
            expr,
            said="DUR"
            if expr.name == DUR
            else None
            if expr.name in node.schema or expr.name.startswith(LAST)
            else expr.said,
        )
    return expr.with_children(tuple(_by_names(part, node) for part in expr.children())) if expr.children() else expr


def _columns(expr: Expr) -> list[Column]:
    return [part for part in walk(expr) if isinstance(part, Column)]


def _tried(condition: Expr) -> Expr:
    """A condition that does not hold where it fails: the parts that cannot fail come first."""
    sure, doubtful = _divided(condition)
    return conjunction((*sure, *map(_passing, doubtful))) if doubtful else condition


def _passing(expr: Expr) -> Expr:
    return resolve("$passing", (expr,)) if can_fail(expr) else expr


def _fails(expr: Expr) -> Expr:
    return resolve("$failed", (expr,))


def _maybe(condition: Expr) -> Expr:
    """True where a condition holds and where it fails."""
    return resolve("coalesce", (_passing(condition), _fails(condition))) if can_fail(condition) else condition


def _either(*conditions: Expr) -> Expr:
    result, *rest = conditions
    for each in rest:
        result = resolve("or", (result, each))
    return result
