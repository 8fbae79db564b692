"""Expressions of a SELECT over `FROM s AS (X, *Y)`: what rows, runs of rows, partitions and stored tables have."""

from __future__ import annotations

from sqlglot import exp

from millstream.bind.aggregates.groups import is_aggregate
from millstream.bind.context import Context
from millstream.bind.expressions import ExpressionBinder, call_of
from millstream.bind.patterns.expressions import MatchExpressions
from millstream.bind.patterns.names import Variables
from millstream.bind.patterns.order import Arranged
from millstream.bind.patterns.queries import RowQueries
from millstream.bind.patterns.rows import LOGICAL, name_of
from millstream.bind.patterns.values import AT_HAND, MatchRow, MatchValues
from millstream.bind.scope import Item, Scope
from millstream.expressions.nodes import Column, Expr
from millstream.plan import aggregates
from millstream.plan.aggregate_calls import AggregateCall
from millstream.sql.patterns import Starred
from millstream.types import BIGINT

_PREVIOUS = "previous"


class SequenceExpressions(MatchExpressions):
    """The expressions of a SELECT over a sequence: variables, stars, partition columns and stored tables.

    `is_above` is said of whole matches, not of rows while they are searched.
    """

    def __init__(
        self, context: Context, alias: str, found: Arranged, tables: tuple[Item, ...], variables: Variables,
        values: MatchValues, stars: dict[str, bool],
    ) -> None:  # fmt: skip
        scope = Scope(context, (Item(alias, found.rows.schema),))
        queries = RowQueries(context, scope, found.rows, variables, values.prefix)
        super().__init__(context, scope, variables, values, "WHERE", queries)
        self.tables = Scope(context, tables)
        self.stars, self.keys = stars, {key.lower() for key in found.keys}
        self.computed = [(_comparable(node), name) for node, name in found.computed if not isinstance(node, exp.Column)]
        self.order = list(stars)
        self.is_above = False
        self.latest: str | None = None
        """the last variable, in the sequence, that the part mentions"""
        self.complete: set[str] = set()
        """stars that the part speaks of as they are once complete"""
        self.reads_tables = False

    def part(self, node: exp.Expr, is_above: bool = False) -> Expr:
        """A part of WHERE, and what it mentions."""
        self.latest, self.complete, self.reads_tables, self.is_above = None, set(), False, is_above
        return self.condition(node)

    def _value(self, node: exp.Expr) -> Expr:
        if (key := self._computed_key(node)) is not None:
            return self._bare(key)
        if isinstance(node, exp.Dot):
            return self._of_row(node)
        if isinstance(node, exp.Window):
            self._mention_all(node, final=False)
            return self._moving(node)
        if name_of(node) in LOGICAL:
            self._mention_all(node, final=name_of(node) == "last")
        if self._is_aggregate(node):
            return self._of_run(node)
        return super()._value(node)

    def _asked(self, node: exp.Expr, _: ExpressionBinder) -> Expr:
        value = super()._asked(node, _)
        for variable in self.queries.asked(node)[1] or ():
            self._mention(variable)
        return value

    def _column(self, node: exp.Column) -> Expr:
        if node.table.lower() == _PREVIOUS and node.args.get("db") is not None:
            variable = self._variable(node, str(node.args["db"].name))
            return self.values.reach(self._row_column(node), MatchRow((variable,), shift=-1))
        if node.table and not self.variables.knows(node.table):
            if (of := node.text("db")) and self.variables.knows(of):
                self.context.fail(
                    f"{of} has no {node.table}", node, hint=f"{of}.previous.{node.name} is of the row before"
                )
            if not self.tables.items:
                self.variables.find(node, node.table)
            self.reads_tables = True
            return self.tables.resolve(node)
        if node.table:
            variable = self._variable(node, node.table)
            return self._reached(node, MatchRow((variable,)))
        return self._bare(node)

    def _reached(self, node: exp.Expr, place: MatchRow) -> Expr:
        """A column of a row of the match; partition columns are the same in all of them."""
        column = self._row_column(node)
        return column if self.is_above and column.name.lower() in self.keys else self.values.reach(column, place)

    def _bare(self, node: exp.Column) -> Expr:
        """A column without a variable: one that all rows of a partition share, or a table's."""
        if node.name.lower() in self.keys:
            return self._reached(node, AT_HAND)
        if self.tables.knows(node.name):
            self.reads_tables = True
            return self.tables.resolve(node)
        if self.variables.knows(node.name) and not self._scope().knows(node.name):
            self.context.fail(
                f"{node.name} is a variable of the sequence, not a column",
                node,
                hint=f"{node.name}.{self._scope().items[0].schema.names[0]} is a value of its row",
            )
        self._row_column(node)
        first = self.order[0]
        return self.context.fail(
            f"which row's {node.name}?", node, hint=f"write {first}.{node.name}, or PARTITION BY {node.name}"
        )

    def _computed_key(self, node: exp.Expr) -> exp.Column | None:
        """The column of the partition that an expression of PARTITION BY, said again, stands for."""
        if not self.computed or isinstance(node, exp.Column):
            return None
        wanted = _comparable(node)
        name = next((name for known, name in self.computed if known == wanted), None)
        return None if name is None else exp.column(exp.to_identifier(name, quoted=True))

    def _row_column(self, node: exp.Expr) -> Column:
        name = node.expression if isinstance(node, exp.Dot) else node.this
        return self._scope().resolve(exp.Column(this=name.copy()))

    # -- what rows and runs have -------------------------------------------------------------------------------------

    def _of_row(self, node: exp.Dot) -> Expr:
        """FIRST(Y).c and LAST(Y).c, and what the row before that has: FIRST(Y).previous.c."""
        call, shift = node.this, 0
        if isinstance(call, exp.Dot) and call.name.lower() == _PREVIOUS:
            call, shift = call.this, -1
        which = name_of(call)
        arguments = call_of(call)[1] if isinstance(call, exp.Func) else []
        if which not in LOGICAL or len(arguments) != 1:
            self.context.fail("a column of FIRST(…) or LAST(…) is expected here", node, hint="LAST(Y).price")
        variable = self._whose(arguments[0], final=which == "last")
        place = MatchRow((variable,), which == "first", 0, shift)
        return self.values.reach(self._row_column(node), place) if shift else self._reached(node, place)

    def _is_aggregate(self, node: exp.Expr) -> bool:
        if not isinstance(node, exp.Func):
            return False
        name = name_of(node)
        return name not in LOGICAL and (is_aggregate(node, self.context) or self._continuous(name) is not None)

    def _continuous(self, name: str) -> str | None:
        """The aggregate whose value so far is meant: `ccount`, `csum`, …"""
        known = aggregates.canonical_name(name[1:]) if name[:1] == "c" else None
        return None if aggregates.canonical_name(name) or self._is_own(name) else known

    def _is_own(self, name: str) -> bool:
        return self.context.aggregate(name, window=False) is not None

    def _of_run(self, node: exp.Expr) -> Expr:
        """An aggregate over the rows of a star: final if its argument is starred, and otherwise as it is so far."""
        assert isinstance(node, exp.Func)
        name, arguments = call_of(node)
        fn = self._continuous(name) or name
        starred = [argument for argument in arguments if isinstance(argument, Starred)]
        plain = [argument.this if isinstance(argument, Starred) else argument for argument in arguments]
        for argument in plain:
            self._mention_all(argument, final=bool(starred))
        for argument in starred:
            self.variables.find(argument.this, argument.this.table or argument.this.name)
        if len(plain) == 1 and _is_variable(plain[0], self.variables):
            variable = self._whose(arguments[0], final=False)
            if fn != "count":
                self.context.fail(
                    f"which column's {name}?",
                    node,
                    hint=f"{name}({'*' if starred else ''}{plain[0].name}.{self._example()})",
                )
            return self.values.summary(AggregateCall.matched("", "count", (), BIGINT, (variable,)))
        call = exp.Anonymous(this=fn, expressions=[argument.copy() for argument in plain])
        call.meta.update({key: node.meta[key] for key in ("start", "end") if key in node.meta})
        if not plain or isinstance(plain[0], exp.Star):
            self._mention(self.order[-1])
        return self.aggregate(call)

    def _example(self) -> str:
        """A column that is not the same in all rows of a partition, to show how one is written."""
        names = self._scope().items[0].schema.names
        return next((name for name in names if name.lower() not in self.keys), names[0])

    def _whose(self, node: exp.Expr, final: bool) -> str:
        """The variable of `Y` or `*Y`."""
        inner = node.this if isinstance(node, Starred) else node
        if not isinstance(inner, exp.Column) or inner.table:
            self.context.fail(
                "a variable of the sequence is expected here", inner, hint=f"one of {', '.join(self.order)}"
            )
        variable = self._variable(inner, inner.name)
        if self.stars[variable] and (final or isinstance(node, Starred)):
            self.complete.add(variable)
        return variable

    def _mention_all(self, node: exp.Expr, final: bool) -> None:
        """Take note of the variables in an argument."""
        for column in node.find_all(exp.Column):
            name = column.table or column.name
            if self.variables.knows(name):
                variable = self._variable(column, name)
                if final and self.stars[variable]:
                    self.complete.add(variable)

    def _variable(self, node: exp.Expr, name: str) -> str:
        (variable,) = self.variables.find(node, name)
        self._mention(variable)
        return variable

    def _mention(self, variable: str) -> None:
        if self.latest is None or self.order.index(variable) > self.order.index(self.latest):
            self.latest = variable


def _is_variable(node: exp.Expr, variables: Variables) -> bool:
    return isinstance(node, exp.Column) and not node.table and variables.knows(node.name)


def _comparable(node: exp.Expr) -> exp.Expr:
    """An expression in which names are equal however they are written."""

    def folded(part: exp.Expr) -> exp.Expr:
        return exp.Identifier(this=part.name.lower(), quoted=False) if isinstance(part, exp.Identifier) else part

    return node.unnest().transform(folded)
