"""The select list: which columns a query delivers, and under which names."""

from __future__ import annotations

from sqlglot import exp

from millstream.bind.expressions import ExpressionBinder, call_of
from millstream.bind.queries.stars import star_of, starred
from millstream.bind.scope import Scope
from millstream.expressions.nodes import Expr
from millstream.plan import nodes as P
from millstream.records import dataclass
from millstream.schema import unique_names


@dataclass(frozen=True)
class Bound:
    """A bound query: its plan (unique column names) and the names its columns are delivered under (may repeat)."""

    plan: P.Node
    names: tuple[str, ...]


def deliver(plan: P.Node, outputs: list[tuple[str, Expr]]) -> Bound:
    """The query that gives these columns."""
    names = tuple(name for name, _ in outputs)
    columns = zip(unique_names(names), (expr for _, expr in outputs), strict=True)
    return Bound(P.Project(plan, tuple(columns)), names)


def alias_columns(node: exp.Expr) -> tuple[str, ...] | None:
    """The names that an alias gives to columns, as in `AS u (a, b)`; None if there is none that does."""
    alias = node.args.get("alias")
    names = tuple(str(column.name) for column in alias.columns) if isinstance(alias, exp.TableAlias) else ()
    return names or None


def outputs_of(node: exp.Expr, scope: Scope, expressions: ExpressionBinder) -> list[tuple[str, Expr]]:
    """The columns that an item of a select list stands for."""
    if (star := star_of(node)) is not None:
        return starred(node, star, scope, expressions)
    if isinstance(node, exp.Alias):
        return [(node.alias, expressions.bind(node.this))]
    if (columns := expressions.several(node)) is not None:
        return columns
    return [(output_name(node), expressions.bind(node))]


def output_name(node: exp.Expr) -> str:
    """The name of the column that an expression becomes."""
    if isinstance(node, exp.Alias):
        return str(node.alias)
    if isinstance(node, exp.Column | exp.Dot):
        return str(node.name)
    if isinstance(node, exp.Window | exp.Filter):
        return output_name(node.this)
    if isinstance(node, exp.Anonymous):
        return str(node.this)
    if isinstance(node, exp.Func) and not isinstance(node, (exp.Cast, exp.Case)):
        return call_of(node)[0]
    if isinstance(node, exp.Cast | exp.Paren):
        return output_name(node.this)
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Select):
        return output_name(node.this.expressions[0])
    return "expr"
