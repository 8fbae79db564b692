"""What navigations and aggregates of a pattern compute at one row."""

from __future__ import annotations

from sqlglot import exp

from millstream.bind.aggregates.groups import is_aggregate
from millstream.bind.context import Context
from millstream.bind.expressions import ExpressionBinder, call_of
from millstream.bind.patterns.names import Variables
from millstream.bind.patterns.values import LABEL, NUMBER
from millstream.bind.queries.stars import star_of
from millstream.bind.scope import Scope
from millstream.expressions.nodes import Expr
from millstream.sql import to_sql
from millstream.sql.patterns import Final, RunningExtent

LOGICAL = ("first", "last")
PHYSICAL = ("prev", "next")
OF_MATCH = ("classifier", "match_number", "match_rowtime", "timed_out")


def name_of(node: exp.Expr) -> str:
    """The name of a call in lower case; empty for other nodes."""
    return call_of(node)[0] if isinstance(node, exp.Func) else ""


class RowExpressions(ExpressionBinder):
    """What is computed at one row of a match: over its columns, its label and the number of the match."""

    def __init__(self, context: Context, scope: Scope, variables: Variables, around: str) -> None:
        super().__init__(context, scope)
        self.variables = variables
        self.around = around
        self.of: tuple[str, ...] | None = None
        """the variables whose rows are meant; None: those of all"""
        self._first: str | None = None

    def bind(self, node: exp.Expr) -> Expr:
        name = name_of(node)
        if isinstance(node, RunningExtent | Final) or name in (*LOGICAL, *PHYSICAL):
            word = name or "RUNNING and FINAL"
            self.context.fail(
                f"{word.upper()} is not allowed inside {self.around}",
                node,
                hint="only FIRST and LAST are allowed inside PREV and NEXT, around the whole argument"
                if self.around.lower() in (*LOGICAL, *PHYSICAL)
                else "aggregate the column itself",
            )
        if is_aggregate(node, self.context):
            self.context.fail(f"an aggregate is not allowed inside {self.around}", node)
        if star_of(node) is not None:
            self.context.fail(f"{self.around} takes a value", node, hint="name a column")
        if name == "classifier":
            self.mean(node, variable_of(node, self.context))
            return LABEL
        if name == "match_number":
            return NUMBER
        if name in OF_MATCH:
            self.context.fail(f"{name.upper()} is not allowed inside {self.around}", node)
        return super().bind(node)

    def _column(self, node: exp.Column) -> Expr:
        if not node.table and node.name.lower() in self.parameters:
            return self.parameters[node.name.lower()]
        column = column_of(node, self.scope, self.variables)
        self.mean(node, node.table)
        return column

    def mean(self, node: exp.Expr, qualifier: str) -> None:
        """Take note of whose rows a part means: all parts must mean the same."""
        of = self.variables.find(node, qualifier) if qualifier else None
        if self._first is None:
            self._first, self.of = qualifier, of
        elif of != self.of:
            mine, other = (name or "all rows" for name in (self._first, qualifier))
            self.context.fail(
                f"{self.around} uses columns of {mine} and of {other}",
                node,
                detail="its argument is evaluated at one row",
                hint="use one variable for all columns, or two calls",
            )


def column_of(node: exp.Column, scope: Scope | None, variables: Variables) -> Expr:
    """The column of a row that a name means, whatever variable stands before it."""
    assert scope is not None
    if star_of(node) is not None:
        variables.context.fail(f"{to_sql(node)} is not a single value", node, hint="name a column, or write count(…)")
    if not node.table and node.name.lower() in OF_MATCH and not scope.knows(node.name):
        variables.context.fail(f"no column {node.name}", node, hint=f"it is a function: {node.name}()")
    if node.table.lower() == "previous" and (of := node.text("db")) and not variables.knows(node.table):
        variables.context.fail(".previous is only allowed in sequences", node, hint=f"write PREV({of}.{node.name})")
    if node.table and not variables.knows(node.table):
        if scope.has(node.table):
            variables.context.fail(
                f"{node.table} is not a variable of the pattern",
                node,
                hint=f"write {node.name} for any row, or {next(iter(variables.names.values()))}.{node.name}",
            )
        variables.find(node, node.table)
    if not node.table and not scope.knows(node.name) and variables.knows(node.name):
        value = f"{node.name}.{scope.items[0].schema.names[0]}"
        variables.context.fail(
            f"{node.name} is a variable of the pattern, not a column",
            node,
            hint=f"{value} is a value of its last row, count({node.name}.*) counts them",
        )
    return scope.resolve(exp.Column(this=node.this.copy()))


def variable_of(node: exp.Expr, context: Context) -> str:
    """The variable that CLASSIFIER is asked of; empty for all."""
    assert isinstance(node, exp.Func)
    arguments = call_of(node)[1]
    if not arguments:
        return ""
    if len(arguments) > 1 or not isinstance(arguments[0], exp.Column) or arguments[0].table:
        context.fail("CLASSIFIER takes the name of a variable", node)
    return str(arguments[0].name)
