"""`on_error = 'row'`: operators leave out rows they fail on, and a second plan gives these rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from millstream.expressions.functions import can_fail, resolve
from millstream.expressions.nodes import Call, Column, Expr, columns_of, conjunction, conjuncts, told
from millstream.kernels.compute import ComputeStage
from millstream.kernels.patterns.spec import MatchSpec
from millstream.kernels.programs.spec import AggregateSpec, GroupSpec
from millstream.kernels.programs.undoing import may_fail
from millstream.kernels.relations.convert import ToChangesSpec
from millstream.kernels.relations.events import ToEventsSpec
from millstream.kernels.relations.join import JoinSpec
from millstream.kernels.relations.signs import SIGN, signed
from millstream.kernels.relations.summary import ERROR, ROW, SummarySpec
from millstream.kernels.streams.failing import LenientStage
from millstream.kernels.streams.merge import MergeSpec
from millstream.physical.nodes import Apply, Compute, Physical, Staged, StoredTable, TableJoin, walk
from millstream.physical.scalars import projected
from millstream.physical.undecided import together
from millstream.plan.failed import FAILED_SCHEMA
from millstream.plan.patterns.expressions import Check, walk_pattern
from millstream.plan.patterns.search import Search
from millstream.schema import Schema

_PASSING = "$passing"
Bodies = TypeVar("Bodies", AggregateSpec, GroupSpec, SummarySpec, AggregateSpec | GroupSpec)


def without_failing_rows(node: Physical) -> Physical:
    """The plan with filters and projections that leave out the rows they cannot compute."""
    match node:
        case Compute(input=below):
            below = without_failing_rows(below)
            if not any(map(can_fail, node.expressions)):
                return replace(node, input=below)
            predicate = None if node.predicate is None else together(node.predicate)
            columns = node.columns and tuple((name, together(expr)) for name, expr in node.columns)
            stage = LenientStage(ComputeStage(below.schema, predicate, columns))
            return Staged(node.schema, below, stage, spans=node.spans, lasts=node.lasts)
        case Staged(input=below):
            return replace(node, input=without_failing_rows(below))
        case TableJoin(input=below, pairs=pairs, residual=residual):
            passing = tuple((_passing(mine), _passing(theirs)) for mine, theirs in pairs)
            rest = None if residual is None else _tried(residual)
            return replace(node, input=without_failing_rows(below), pairs=passing, residual=rest)
        case Apply(over=over, spec=JoinSpec(residual=Expr() as residual) as spec):
            over = tuple(without_failing_rows(_with_tried_keys(child, spec)) for child in over)
            return replace(node, over=over, spec=replace(spec, residual=_tried(residual)))
        case Apply(over=over, spec=JoinSpec() as spec):
            return replace(node, over=tuple(without_failing_rows(_with_tried_keys(child, spec)) for child in over))
        case Apply(over=over, spec=AggregateSpec() | GroupSpec() as spec):
            if spec.failing == "stop" and spec.program is not None and may_fail(spec.program.statements):
                spec = replace(spec, failing="skip")
            return replace(node, over=tuple(map(without_failing_rows, over)), spec=spec)
        case Apply(over=over, spec=MatchSpec(search=search) as spec):
            programs = [summary.program for summary in search.summaries if summary.program is not None]
            lenient = any(may_fail(program.statements) for program in programs)
            return replace(node, over=tuple(map(without_failing_rows, over)), spec=replace(spec, lenient=lenient))
        case Apply(over=over, spec=SummarySpec(calls=calls) as spec):
            programs = [call.program for call in calls if call.program is not None]
            if spec.failing == "stop" and any(may_fail(program.statements) for program in programs):
                spec = replace(spec, failing="skip")
            return replace(node, over=tuple(map(without_failing_rows, over)), spec=spec)
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
        if isinstance(node, Compute) or (isinstance(node, Staged) and isinstance(node.stage, LenientStage)):
            found |= dict.fromkeys(_failing_keys(node))
        if (
            isinstance(node, Apply)
            and isinstance(node.spec, MatchSpec)
            and (node.spec.lenient or _is_tried(node.spec.search))
        ):
            found[Apply(FAILED_SCHEMA, node.over, replace(node.spec, failed=True))] = None
        if isinstance(node, Apply) and isinstance(node.spec, AggregateSpec | GroupSpec) and node.spec.failing == "skip":
            over, spec = _in_words(node.over[0], node.spec)
            found[Apply(FAILED_SCHEMA, (over,), replace(spec, failing="report"))] = None
        if isinstance(node, Apply) and isinstance(node.spec, SummarySpec) and node.spec.failing == "skip":
            found[_failing_in_groups(node.over[0], node.spec)] = None
        if isinstance(node, TableJoin):
            found |= dict.fromkeys(_failing_matches(node))
    if len(found) < 2:
        return next(iter(found), None)
    return Apply(FAILED_SCHEMA, tuple(found), MergeSpec(FAILED_SCHEMA, len(found)))


def _failing_in_groups(below: Physical, spec: SummarySpec) -> Physical:
    """The rows that aggregates over groups of a relation begin to leave out."""
    below, spec = _in_words(below, spec)
    if spec.form == "intervals":
        # changes tell at once that a row is there
        below = Apply(signed(below.schema), (below,), ToChangesSpec(below.schema))
    report = replace(spec, failing="report", form="changes")
    rows = Apply(report.output, (below,), report)
    names = ("error", ERROR), ("row", ROW), (SIGN.name, SIGN.name)
    columns = tuple((name, Column(report.output[made].type, made)) for name, made in names)
    shown = projected(rows, signed(FAILED_SCHEMA), columns)
    return Apply(FAILED_SCHEMA, (shown,), ToEventsSpec(FAILED_SCHEMA, "istream", 1, "changes"))


def _in_words(below: Physical, spec: Bodies) -> tuple[Physical, Bodies]:
    """Aggregates over columns that are called as the query writes what they are."""
    said = {name: words for name in spec.input.names if (words := _said(below, name)) not in (None, *spec.input.names)}
    if not said:
        return below, spec

    def named(schema: Schema) -> Schema:
        return Schema(tuple(replace(field, name=said.get(field.name) or field.name) for field in schema))

    passed = tuple((said.get(field.name) or field.name, Column(field.type, field.name)) for field in below.schema)
    below = Compute(named(below.schema), below, None, passed, spans=below.spans, lasts=below.lasts)
    return below, spec.renamed(named(spec.input), lambda name: said.get(name) or name)


def _said(node: Physical, name: str) -> str | None:
    """What a column without a name of its own is, as the query writes it."""
    while name.startswith("$"):
        made = node.stage.compute if isinstance(node, Staged) and isinstance(node.stage, LenientStage) else node
        columns = dict(made.columns or ()) if isinstance(made, Compute | ComputeStage) else {}
        if name in columns and columns[name] != Column(columns[name].type, name):
            return told(columns[name])
        if len(node.inputs) != 1 or name not in node.inputs[0].schema:
            break
        node = node.inputs[0]
    return None


def _is_tried(search: Search) -> bool:
    checks = (part.condition for part in walk_pattern(search.pattern) if isinstance(part, Check))
    conditions = (*(condition for _, condition in search.conditions), *checks)
    return any(isinstance(part, Call) and part.fn == _PASSING for each in conditions for part in conjuncts(each))


def _passing(expr: Expr) -> Expr:
    """NULL where it cannot be computed."""
    return resolve(_PASSING, (expr,)) if can_fail(expr) else expr


def _with_tried_keys(node: Physical, spec: JoinSpec) -> Physical:
    """What a join reads, with NULL for keys that cannot be computed: they match nothing."""
    if not isinstance(node, Compute) or node.columns is None:
        return node
    others = {name for _, name in spec.columns} | (set() if spec.residual is None else columns_of(spec.residual))
    keys = set(spec.by) - others
    columns = tuple((name, _passing(expr) if name in keys else expr) for name, expr in node.columns)
    return replace(node, columns=columns)


def _failing_keys(node: Compute | Staged) -> list[Physical]:
    """The rows of which a join could not compute what it compares."""
    made = node.stage.compute if isinstance(node, Staged) and isinstance(node.stage, LenientStage) else node
    assert isinstance(made, Compute | ComputeStage)
    columns = made.columns or ()
    tried = tuple((name, expr.args[0]) for name, expr in columns if isinstance(expr, Call) and expr.fn == _PASSING)
    if not tried or isinstance(node.input, StoredTable):
        return []
    predicate = None if made.predicate is None else _tried(made.predicate)
    stage = LenientStage(ComputeStage(node.input.schema, predicate, tried), failed=True)
    return [Staged(FAILED_SCHEMA, node.input, stage)]


def _tried(condition: Expr) -> Expr:
    """A condition that does not hold where it cannot be computed: the parts that cannot fail, then all that can."""
    parts = conjuncts(condition)
    doubtful = tuple(filter(can_fail, parts))
    if not doubtful:
        return condition
    return conjunction((*(part for part in parts if part not in doubtful), _passing(conjunction(doubtful))))


def _divided(condition: Expr) -> tuple[Expr | None, Expr | None]:
    """What of such a condition is sure, and what is tried."""
    parts = conjuncts(condition)
    tried = [part for part in parts if isinstance(part, Call) and part.fn == _PASSING]
    sure = tuple(part for part in parts if part not in tried)
    return conjunction(sure) if sure else None, tried[0].args[0] if tried else None


def _failing_matches(node: TableJoin) -> list[Physical]:
    """The rows of which a join with a stored table could not compute what it compares, and the pairs of which it could
    not compute the rest of its condition."""
    found: list[Physical] = []
    keys = [mine.args[0] for mine, _ in node.pairs if isinstance(mine, Call) and mine.fn == _PASSING]
    tried = tuple((f"key{i}", key) for i, key in enumerate(keys))
    if tried:
        stage = LenientStage(ComputeStage(node.input.schema, None, tried), failed=True)
        found.append(Staged(FAILED_SCHEMA, node.input, stage))
    sure, doubtful = (None, None) if node.residual is None else _divided(node.residual)
    if doubtful is not None:
        pairs = replace(node, schema=node.both, residual=sure, how="inner", mark="", kept=None)
        stage = LenientStage(ComputeStage(pairs.schema, doubtful, None), failed=True)
        found.append(Staged(FAILED_SCHEMA, pairs, stage))
    return found


def _failing_pairs(node: Apply, spec: JoinSpec, condition: Expr) -> list[Physical]:
    """The pairs of rows that a join could not compute its condition of: an inner join by what is sure, tested again."""
    sure, tried = _divided(condition)
    if tried is None:
        return []
    read = sorted(columns_of(tried)) or list(spec.left.names[:1])
    pairs = replace(
        spec,
        how="inner",
        residual=sure,
        columns=tuple(("left" if name in spec.left else "right", name) for name in read),
    )
    joined = Apply(pairs.output, node.over, pairs, spans=node.spans)
    stage = LenientStage(ComputeStage(pairs.output, tried, None), failed=True)
    return [Staged(FAILED_SCHEMA, joined, stage)]
