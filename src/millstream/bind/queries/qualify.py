"""QUALIFY: a filter on the results of OVER."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.queries.outputs import Bound
from millstream.expressions.nodes import Column
from millstream.plan import nodes as P
from millstream.types import BOOLEAN

_QUALIFIED = "$qualified"


def bind_qualified(select: exp.Select, context: Context, bind: Callable[[exp.Select], Bound]) -> Bound:
    """A SELECT with QUALIFY: the rows of the same SELECT without it for which the condition is true."""
    condition = select.args["qualify"].this
    named = {item.alias.lower(): item.this for item in select.expressions if isinstance(item, exp.Alias)}
    asked = _spelled(condition, {name: expr for name, expr in named.items() if expr.find(exp.Window) is not None})
    if asked.find(exp.Window) is None:
        context.fail("QUALIFY needs OVER", condition, hint="use WHERE")
    if select.args.get("distinct") is not None:
        context.refuse(
            "DISTINCT with QUALIFY is not supported",
            condition,
            hint="SELECT DISTINCT … FROM (SELECT … QUALIFY …)",
        )
    whole = select.copy()
    whole.set("qualify", None)
    whole.append("expressions", exp.alias_(asked, _QUALIFIED, quoted=True))
    bound = bind(whole)
    *columns, flag = bound.plan.schema
    if flag.type != BOOLEAN:
        context.fail(f"a condition is needed here, this is {flag.type}", condition)
    chosen = P.Filter(bound.plan, Column(flag.type, flag.name))
    kept = tuple((column.name, Column(column.type, column.name)) for column in columns)
    return Bound(P.Project(chosen, kept), bound.names[:-1])


def _spelled(condition: exp.Expr, named: dict[str, exp.Expr]) -> exp.Expr:
    """The condition in which names of the select list that stand for windows are what they stand for."""

    def spell(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and not node.table and node.name.lower() in named:
            return exp.Paren(this=named[node.name.lower()].copy())
        return node

    return condition.copy().transform(spell)
