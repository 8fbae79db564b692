"""UNION, EXCEPT and INTERSECT → logical plan."""

from __future__ import annotations

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.expressions import coerce
from millstream.bind.queries.outputs import Bound
from millstream.bind.relations.over import bind_first_rows, limits_rows
from millstream.bind.relations.windows import as_relation, check_clocks
from millstream.expressions.nodes import Column, Expr, Literal
from millstream.plan import nodes as P
from millstream.plan import relations as R
from millstream.schema import Field
from millstream.types import SqlType, common_type


def bind_set_operation(node: exp.SetOperation, context: Context) -> Bound:
    """The plan of queries whose rows are brought together as bags or as sets."""
    from millstream.bind.queries.select import bind_query

    if limits_rows(node):
        plain = node.copy()
        for clause in ("order", "limit", "offset"):
            plain.set(clause, None)
        if bind_set_operation(plain, context).plan.kind is P.Kind.RELATION:
            return bind_first_rows(node, context, lambda whole: bind_query(whole, context))
    parts = _flatten(node) if isinstance(node, exp.Union) else [node.this, node.expression]
    return combined(node, [bind_query(part, context) for part in parts], context)


def combined(node: exp.SetOperation, branches: list[Bound], context: Context) -> Bound:
    """The plan of a set operation whose branches are bound already."""
    word = type(node).__name__.upper()
    if node.args.get("by_name"):
        branches = _by_name(branches, word, node, context)
    _check_widths(branches, word, node, context)
    plans = _of_one_kind([branch.plan for branch in branches], word, node, context)
    check_clocks(plans, word, node, context)
    _refuse_clauses(node, plans, context)
    first = branches[0]
    types = [_common_type(place, name, plans, word, node, context) for place, name in enumerate(first.names)]
    plans = [_projected(plan, plans[0].schema.names, types) for plan in plans]
    is_set = bool(node.args.get("distinct"))
    match node:
        case exp.Union():
            union = P.Union(tuple(plans))
            if union.kind is P.Kind.EVENTS and len(plans) > P.MOST_INPUTS:
                context.refuse(
                    f"{word} of {len(plans)} streams; at most {P.MOST_INPUTS} are possible",
                    node,
                    hint="combine some of them first: CREATE STREAM … AS",
                )
            return Bound(P.Distinct(union) if is_set else union, first.names)
        case exp.Except():
            return Bound(R.SetOperation(plans[0], plans[1], "except", not is_set), first.names)
    return Bound(R.SetOperation(plans[0], plans[1], "intersect", not is_set), first.names)


def _flatten(node: exp.Expr) -> list[exp.Expr]:
    """The branches of nested unions of the same kind: UNION ALL is associative, and so is UNION."""
    if not isinstance(node, exp.Union):
        return [node]
    parts: list[exp.Expr] = []
    for side in (node.this, node.expression):
        inner = side.this if isinstance(side, exp.Subquery) and not side.alias else side
        same = isinstance(inner, exp.Union) and all(
            bool(inner.args.get(key)) == bool(node.args.get(key)) for key in ("distinct", "by_name")
        )
        is_plain = not any(part.args.get("stream_of") or part.args.get("with_") for part in (side, inner))
        parts += _flatten(inner) if same and is_plain else [side]
    return parts


def _by_name(branches: list[Bound], word: str, node: exp.Expr, context: Context) -> list[Bound]:
    """The branches with the columns of all of them, each in one place; where a branch has none of a name it is NULL."""
    if not isinstance(node, exp.Union):
        context.refuse(f"{word} BY NAME is not supported", node, hint="select the same columns in the same order")
    columns: dict[str, Field] = {}
    for branch in branches:
        if len({name.lower() for name in branch.names}) < len(branch.names):
            context.fail("two columns have the same name", node, hint="rename one with AS")
        for name, field in zip(branch.names, branch.plan.schema, strict=True):
            columns.setdefault(name.lower(), Field(name, field.type))
    return [_with_all(branch, columns) for branch in branches]


def _with_all(branch: Bound, columns: dict[str, Field]) -> Bound:
    own = {name.lower(): field for name, field in zip(branch.names, branch.plan.schema, strict=True)}
    values: list[tuple[str, Expr]] = []
    for key, column in columns.items():
        found = own.get(key)
        value = Literal(column.type, None) if found is None else Column(found.type, found.name)
        values.append((column.name, value))
    return Bound(P.Project(branch.plan, tuple(values)), tuple(name for name, _ in values))


def _check_widths(branches: list[Bound], word: str, node: exp.Expr, context: Context) -> None:
    width = len(branches[0].names)
    for branch in branches[1:]:
        if len(branch.names) != width:
            context.fail(
                f"{word} of {width} and {len(branch.names)} columns",
                node,
                hint="every branch selects the same number of columns",
            )


def _of_one_kind(plans: list[P.Node], word: str, node: exp.Expr, context: Context) -> list[P.Node]:
    kinds = {plan.kind for plan in plans}
    if P.Kind.TABLE in kinds:
        context.refuse(
            f"{word} of a stream and a table",
            node,
            detail="a table's rows have no time, so they cannot be merged into a stream",
            hint="push the table's rows into a stream, or join with the table",
        )
    if P.Kind.RELATION in kinds:
        return [as_relation(plan) for plan in plans]
    if not isinstance(node, exp.Union):
        context.refuse(
            f"{word} does not apply to streams",
            node,
            detail="whether a row is missing from the other stream is known only when both have ended",
            hint="compare within windows: FROM s WINDOW(RANGE 1 MINUTE), or use stored tables",
        )
    return plans


def _refuse_clauses(node: exp.SetOperation, plans: list[P.Node], context: Context) -> None:
    from millstream.bind.queries.select import check_order
    from millstream.bind.relations import snapshots

    if plans[0].kind is P.Kind.RELATION:
        snapshots.refuse_clauses(node, context)
        for plan in plans:
            snapshots.check_order(node, plan, context)
        return
    for key in ("limit", "offset"):
        if (clause := node.args.get(key)) is not None:
            context.refuse(f"{key.upper()} is not supported on a stream", clause)
    times = frozenset.intersection(*map(context.time_columns, plans))
    check_order(node, context, {name.lower() for name in times})


def _common_type(place: int, name: str, plans: list[P.Node], word: str, node: exp.Expr, context: Context) -> SqlType:
    type_ = plans[0].schema.fields[place].type
    for plan in plans[1:]:
        other = plan.schema.fields[place].type
        wider = common_type(type_, other)
        if wider is None:
            context.fail(f"column {name}: {word} of {type_} and {other}", node, hint="CAST one")
        type_ = wider
    return type_


def _projected(plan: P.Node, names: tuple[str, ...], types: list[SqlType]) -> P.Node:
    columns = zip(names, plan.schema, types, strict=True)
    return P.Project(plan, tuple((name, coerce(Column(each.type, each.name), type_)) for name, each, type_ in columns))
