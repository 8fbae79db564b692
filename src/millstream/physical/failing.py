"""`on_error = 'row'`: operators that may fail on a row go on without it, and what they leave out is a plan as well."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import field, replace

from millstream.expressions.functions import can_fail, case, resolve
from millstream.expressions.nodes import (
    CATCHING,
    Call,
    Case,
    Column,
    Expr,
    Literal,
    columns_of,
    conjunction,
    conjuncts,
    substitute,
    told,
)  # fmt: skip
from millstream.kernels.compute import ComputeStage
from millstream.kernels.relations.join import JoinSpec
from millstream.kernels.streams.failing import LenientStage
from millstream.kernels.streams.merge import MergeSpec
from millstream.physical.nodes import Apply, Compute, Physical, Staged, StoredTable, TableJoin, walk
from millstream.plan import nodes as P
from millstream.plan.events.algebra import Fold, Next
from millstream.plan.failed import FAILED_SCHEMA
from millstream.plan.patterns.row_conditions import distance_of, is_null_of_nulls
from millstream.plan.patterns.search import CLASSIFIER, Match, Reach
from millstream.records import dataclass
from millstream.types import BIGINT

_PASSING = "$passing"
_GUARDING = CATCHING | {"and", "or", "coalesce", "if"}
"""functions that may not evaluate all of their arguments"""


@dataclass
class _Before:
    """Columns to compute before an operator: what its conditions compute of one row, where that may fail.

    `place_of` says of a column of a condition which row it is read at (None: it is of several), and `at_row` what an
    expression over columns read there is over the columns of that row; None if it is not the same.
    """

    place_of: Callable[[str], Hashable | None]
    at_row: Callable[[Hashable, Expr], Expr | None]
    made: dict[tuple[Hashable, Expr], str] = field(default_factory=dict)

    def of(self, condition: Expr) -> Expr:
        """A condition that reads such columns. Those of the same row in front of a part guard it."""
        guards: dict[Hashable, tuple[Expr, ...]] = {}
        parts = []
        for part in conjuncts(condition):
            parts.append(self._changed(part, guards))
            place = self._place(part)
            if place is not None:
                guards[place] = (*guards.get(place, ()), part)
        return conjunction(tuple(parts))

    def _place(self, expr: Expr) -> Hashable | None:
        places = set(map(self.place_of, columns_of(expr)))
        return next(iter(places)) if len(places) == 1 else None

    def _changed(self, expr: Expr, guards: dict[Hashable, tuple[Expr, ...]]) -> Expr:
        if not can_fail(expr):
            return expr
        place = self._place(expr)
        if place is not None and (own := self.at_row(place, expr)) is not None:
            guarding = tuple(self.at_row(place, guard) for guard in guards.get(place, ()))
            if guarding and None not in guarding:
                own = case(((conjunction(guarding), own),), Literal(own.type, None))  # type: ignore[arg-type]
            return Column(expr.type, self.made.setdefault((place, own), f"$before{len(self.made) + 1}"))
        if isinstance(expr, Case) or (isinstance(expr, Call) and expr.fn in _GUARDING):
            return expr
        return expr.with_children(tuple(self._changed(child, guards) for child in expr.children()))

    def below(self, node: P.Node, *places: Hashable) -> P.Node:
        """The input of the operator, with the columns for these places."""
        made = {name: expr for (place, expr), name in self.made.items() if not places or place in places}
        return P.Project(node, (*P.passthrough(node.schema), *made.items())) if made else node


def computed_before(node: P.Node) -> P.Node:
    """The plan in which what patterns, NEXT and FOLD compute of one row, and may fail, is a column computed before: a
    row that cannot be computed is left out there."""
    inputs = tuple(map(computed_before, node.inputs))
    if inputs != node.inputs:
        node = node.with_inputs(inputs)
    match node:
        case Match():
            made = _of_match(node)
        case Next() | Fold():
            made = _of_events(node)
        case _:
            return node
    return made if made.schema == node.schema else P.Project(made, P.passthrough(node.schema))


def _of_match(node: Match) -> P.Node:
    search = node.search
    reaches = {reach.name: reach for reach in search.reaches if reach.column != CLASSIFIER}
    said = {name: told(expr) for name, expr in search.made}
    own: dict[str, Expr] = {
        name: Column(reach.type, reach.column, said.get(reach.column)) for name, reach in reaches.items()
    }
    variable = ""

    def place_of(name: str) -> Reach | None:
        return replace(reaches[name], name="", column="", type=BIGINT) if name in reaches else None

    def at_row(place: Hashable, expr: Expr) -> Expr | None:
        assert isinstance(place, Reach)
        if distance_of(place, variable, None) != 0 and not is_null_of_nulls(expr):
            return None  # there may be no such row
        return substitute(expr, own)

    before = _Before(place_of, at_row)
    conditions = []
    for variable, condition in search.conditions:
        conditions.append((variable, before.of(condition)))
    if not before.made:
        return node
    more = [
        replace(place, name=name, column=name, type=expr.type)
        for (place, expr), name in before.made.items()
        if isinstance(place, Reach)
    ]
    search = replace(search, conditions=tuple(conditions), reaches=(*search.reaches, *more))
    return Match(before.below(node.input), search)


def _of_events(node: Next | Fold) -> P.Node:
    sides = {name: side for side, below in enumerate(node.inputs) for name in below.schema.names}
    before = _Before(sides.get, lambda _, expr: expr)
    condition = None if node.condition is None else before.of(node.condition)
    if isinstance(node, Next):
        left, right = (before.below(below, side) for side, below in enumerate(node.inputs))
        return replace(node, left=left, right=right, condition=condition)
    continues = None if node.continues is None else before.of(node.continues)
    updates = tuple((name, begin, before.of(becomes)) for name, begin, becomes in node.updates)
    left, right = (before.below(below, side) for side, below in enumerate(node.inputs))
    return replace(node, left=left, right=right, condition=condition, continues=continues, updates=updates)


def without_failing_rows(node: Physical) -> Physical:
    """The plan with filters and projections that leave out the rows they cannot compute."""
    match node:
        case Compute(input=below):
            below = without_failing_rows(below)
            if not any(map(can_fail, node.expressions)):
                return replace(node, input=below)
            stage = LenientStage(ComputeStage(below.schema, node.predicate, node.columns))
            return Staged(node.schema, below, stage, spans=node.spans, lasts=node.lasts)
        case Staged(input=below) | TableJoin(input=below):
            return replace(node, input=without_failing_rows(below))
        case Apply(over=over, spec=JoinSpec(residual=Expr() as residual) as spec):
            sure, doubtful = _divided(residual)
            if doubtful:
                residual = conjunction((*sure, resolve(_PASSING, (conjunction(doubtful),))))
            return replace(node, over=tuple(map(without_failing_rows, over)), spec=replace(spec, residual=residual))
        case Apply(over=over):
            return replace(node, over=tuple(map(without_failing_rows, over)))
    return node


def failed_rows(plan: Physical) -> Physical | None:
    """The rows that such a plan leaves out; None if it computes nothing that could fail."""
    found: dict[Physical, None] = {}
    for node in walk(plan):
        if (
            isinstance(node, Staged)
            and isinstance(node.stage, LenientStage)
            and not isinstance(node.input, StoredTable)
        ):
            found[Staged(FAILED_SCHEMA, node.input, replace(node.stage, failed=True))] = None
        if isinstance(node, Apply) and isinstance(node.spec, JoinSpec) and node.spec.residual is not None:
            found |= dict.fromkeys(_failing_pairs(node, node.spec, node.spec.residual))
    if len(found) < 2:
        return next(iter(found), None)
    return Apply(FAILED_SCHEMA, tuple(found), MergeSpec(FAILED_SCHEMA, len(found)))


def _divided(condition: Expr) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The parts of a condition that cannot fail, and those that can."""
    parts = conjuncts(condition)
    return tuple(part for part in parts if not can_fail(part)), tuple(part for part in parts if can_fail(part))


def _failing_pairs(node: Apply, spec: JoinSpec, condition: Expr) -> list[Physical]:
    """The pairs of rows that a join could not compute its condition of: an inner join by what is sure, tested again."""
    parts = conjuncts(condition)
    tried = next((part.args[0] for part in parts if isinstance(part, Call) and part.fn == _PASSING), None)
    if tried is None:
        return []
    sure = tuple(part for part in parts if not (isinstance(part, Call) and part.fn == _PASSING))
    read = sorted(columns_of(tried)) or list(spec.left.names[:1])
    pairs = replace(
        spec,
        how="inner",
        residual=conjunction(sure) if sure else None,
        columns=tuple(("left" if name in spec.left else "right", name) for name in read),
    )
    joined = Apply(pairs.output, node.over, pairs, spans=node.spans)
    stage = LenientStage(ComputeStage(pairs.output, tried, None), failed=True)
    return [Staged(FAILED_SCHEMA, joined, stage)]
