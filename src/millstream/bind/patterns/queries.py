"""Queries over stored tables inside patterns: their value for a row is looked up below the search."""

from __future__ import annotations

from dataclasses import field, replace

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.patterns.names import Variables
from millstream.bind.patterns.rows import RowExpressions
from millstream.bind.queries.domains import free_columns
from millstream.bind.queries.subqueries import Subqueries, asks_streams
from millstream.bind.scope import Scope
from millstream.expressions.nodes import Expr
from millstream.plan import nodes as P
from millstream.records import dataclass


@dataclass
class RowQueries:
    """The queries in the expressions of one search over `rows`.

    Variables before columns of the rows say which row of a match is meant; a query has one, or none.
    """

    context: Context
    scope: Scope
    rows: P.Node
    variables: Variables
    prefix: str
    known: dict[int, tuple[Expr, tuple[str, ...] | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = frozenset((*self.variables.names, *self.variables.subsets))
        items = tuple(replace(item, within=item.within | names) for item in self.scope.items)
        self.scope = replace(self.scope, items=items)
        self._subqueries = Subqueries(self.context, self.rows, f"{self.prefix}q")

    def asked(self, node: exp.Expr) -> tuple[Expr, tuple[str, ...] | None]:
        """What a query stands for at a row, and the variables whose last row that is; None: the last of all."""
        found = self.known.get(id(node))
        if found is None:
            row = self.at_row("a subquery")
            found = self.known[id(node)] = (self._value(node, row), row.of)
        return found

    def at_row(self, around: str) -> RowExpressions:
        """Binds what is computed at one row, queries included."""
        row = RowExpressions(self.context, self.scope, self.variables, around)
        row.subquery = lambda node, _: self._value(node, row)
        return row

    def joined(self, rows: P.Node) -> P.Node:
        """The rows with what was looked up for them."""
        return self._subqueries.joined(rows)

    def _value(self, node: exp.Expr, row: RowExpressions) -> Expr:
        if asks_streams(node, self.context):
            self.context.refuse(
                "a query over streams is not allowed in a pattern",
                node,
                hint="join its result before the search: FROM (SELECT … FROM s JOIN …) MATCH_RECOGNIZE (…)",
            )
        for query in node.find_all(exp.Query):
            for column in free_columns(query, self.scope, self.context):
                row.mean(column, column.table if self.variables.knows(column.table) else "")
        return self._subqueries.value(node, row)
