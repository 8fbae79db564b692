"""What a query gives to a sink of upserts: its rows as they come to be, and the keys that it no longer has."""

from __future__ import annotations

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.queries.outputs import Bound
from millstream.expressions.nodes import Column, Expr, Literal
from millstream.plan import nodes as P
from millstream.plan import relations as R
from millstream.types import VARCHAR

OP = "op"
"""the last column of what is written: 'u' for a row that replaces the one of its key, 'd' for a key that is gone"""


def upserts(bound: Bound, keys: tuple[str, ...], node: exp.Expr, context: Context) -> Bound:
    """A query's rows as changes by key. A row of a relation is an upsert when it comes to be; a key is deleted when the
    relation has no row of it any more. Events are upserts all of them."""
    plan, names = bound.plan, [name.lower() for name in bound.names]
    for key in keys:
        if key.lower() not in names:
            context.fail(
                f"the key {key} of the sink is not a column of the query", node,
                hint=f"its columns are {', '.join(bound.names)}",
            )  # fmt: skip
    if OP in names:
        context.fail(f"the sink adds a column {OP}, which the query has already", node, hint="give it another name")
    if plan.lasts:
        context.refuse("events that last cannot be upserts", node, hint="write them to a sink without mode")
    fields = plan.schema.fields
    came = plan if plan.kind is P.Kind.EVENTS else R.ToEvents(plan, "istream")
    written: P.Node = P.Project(came, (*P.passthrough(plan.schema), (OP, Literal(VARCHAR, "u"))))
    if plan.kind is P.Kind.RELATION:
        chosen = [fields[names.index(key.lower())] for key in keys]
        known = P.Distinct(P.Project(plan, tuple((field.name, Column(field.type, field.name)) for field in chosen)))
        rest: list[tuple[str, Expr]] = [
            (field.name, Column(field.type, field.name) if field in chosen else Literal(field.type, None))
            for field in fields
        ]
        gone = P.Project(R.ToEvents(known, "dstream"), (*rest, (OP, Literal(VARCHAR, "d"))))
        written = P.Union((written, gone))
    return Bound(written, (*bound.names, OP))
