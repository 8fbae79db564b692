"""ASOF joins: each row of a stream with the nearest row of another; and stored tables as they are at this moment."""

from __future__ import annotations

from typing import NoReturn

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.expressions import ExpressionBinder
from millstream.bind.queries.joins import FromEntry, prefixed
from millstream.bind.relations.windows import as_relation, check_clocks
from millstream.bind.scope import Scope
from millstream.expressions.nodes import Call, Expr, conjuncts
from millstream.plan import nodes as P
from millstream.plan.event_joins import AsofJoin, Comparison
from millstream.plan.joins import split_condition
from millstream.plan.proofs.time_bounds import linear

_EXAMPLE = "trades t ASOF JOIN quotes q ON t.symbol = q.symbol AND t.ts >= q.ts"
_TURNED: dict[str, Comparison] = {">=": "<=", ">": "<", "<=": ">=", "<": ">"}


def is_asof(sources: list[FromEntry]) -> bool:
    """Whether an ASOF join stands among the entries of FROM."""
    return any(_method(source) == "ASOF" for source in sources)


def join_asof(sources: list[FromEntry], context: Context) -> tuple[P.Node, Scope]:
    """The plan of two streams joined by ASOF, and the names they bring into scope."""
    join = next(source.join for source in sources if _method(source) == "ASOF")
    assert join is not None
    if len(sources) != 2:
        context.refuse("an ASOF JOIN together with other joins", join, hint="put the ASOF JOIN into a subquery")
    for source in sources:
        if source.plan.kind is not P.Kind.EVENTS:
            what = "a stored table" if source.plan.kind is P.Kind.TABLE else "a relation"
            context.refuse(
                f"ASOF JOIN takes two streams, not {what}",
                source.node,
                detail="it finds the row that is nearest in time",
                hint=_EXAMPLE,
            )
    check_clocks([as_relation(source.plan) for source in sources], "a join", sources[1].node, context)
    side, kind = (str(join.args.get(key) or "").upper() for key in ("side", "kind"))
    if side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER"):
        context.refuse(f"ASOF {f'{side} {kind}'.strip()} JOIN is not supported", join, hint="ASOF JOIN, ASOF LEFT JOIN")
    if (on := join.args.get("on")) is None:
        context.refuse("ASOF JOIN needs ON", join, hint=_EXAMPLE)
    items = tuple(source.item(source.prefix(place)) for place, source in enumerate(sources))
    left, right = (prefixed(source, item) for source, item in zip(sources, items, strict=True))
    scope = Scope(context, items)
    pairs, rest = split_condition(ExpressionBinder(context, scope).condition(on), left.schema, right.schema)
    times = tuple(tuple(sorted(context.time_columns(plan))) for plan in (left, right))
    op = _comparison(conjuncts(rest) if rest is not None else (), times, on, context)
    outer = side == "LEFT"
    own = times[0] if op in (">=", ">") else () if outer else times[1]
    return AsofJoin(left, right, pairs, op, outer, own), scope


def check_moment(node: exp.Table, plan: P.Node, context: Context) -> None:
    """FOR SYSTEM_TIME AS OF this moment is how stored tables are looked up anyway; other moments are not kept."""
    version = node.args.get("version")
    if version is None:
        return
    if plan.kind is not P.Kind.TABLE:
        context.refuse(
            "FOR SYSTEM_TIME AS OF needs a stored table", node, hint=f"for two streams there is ASOF JOIN: {_EXAMPLE}"
        )
    moment = version.expression
    if not (isinstance(moment, exp.CurrentTimestamp) or moment.sql().upper() == "PROCTIME()"):
        context.refuse(
            "a stored table cannot be read as of another time",
            node,
            detail="a row joins the table as it is when the row arrives",
            hint="FOR SYSTEM_TIME AS OF PROCTIME(), or declare its changes as a stream and use ASOF JOIN",
        )


def _method(source: FromEntry) -> str:
    return "" if source.join is None else str(source.join.args.get("method") or "").upper()


def _comparison(
    rest: tuple[Expr, ...], times: tuple[tuple[str, ...], ...], on: exp.Expr, context: Context
) -> Comparison:
    """The one comparison of the two times, left time first."""
    if len(rest) != 1 or not isinstance(rest[0], Call) or rest[0].fn not in _TURNED:
        _refuse(on, context)
    sides = [linear(arg) for arg in rest[0].args]
    names = [next(iter(side[0])) if side is not None and len(side[0]) == 1 and not side[1] else "" for side in sides]
    if names[0] in times[0] and names[1] in times[1]:
        return rest[0].fn  # type: ignore[return-value]
    if names[0] in times[1] and names[1] in times[0]:
        return _TURNED[rest[0].fn]
    return _refuse(on, context)


def _refuse(on: exp.Expr, context: Context) -> NoReturn:
    context.refuse(
        "ASOF JOIN takes equalities and one comparison of the two times",
        on,
        detail="the times are the columns that the streams are ordered by, compared by >=, >, <= or <",
        hint=f"{_EXAMPLE}; filter a side in a subquery, or the result in WHERE",
    )
