"""What SELECTs that aggregate have in common: keys, aggregates, and expressions over both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.bind.aggregates.calls import WrittenCall, aggregate_call, as_arguments, bind_builtin, for_wide_values
from millstream.bind.aggregates.chosen_rows import bind_own, in_order
from millstream.bind.aggregates.keys import key_meant
from millstream.bind.context import Context
from millstream.bind.expressions import ExpressionBinder, in_words
from millstream.bind.scope import Scope
from millstream.expressions.nodes import Column, Expr, told
from millstream.plan import nodes as P
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.programs.facts import returns_one_row
from millstream.plan.programs.modes import Running
from millstream.plan.programs.nodes import Insert

if TYPE_CHECKING:
    from millstream.bind.queries.subqueries import Subqueries


def is_aggregate(node: exp.Expr, context: Context) -> bool:
    """Whether a node calls an aggregate that needs no window."""
    return aggregate_call(node, context) is not None


def aggregates_rows(select: exp.Select, context: Context) -> bool:
    """Whether a SELECT makes one row of several."""
    parts = [*select.expressions, *([select.args["having"]] if select.args.get("having") else [])]
    return bool(select.args.get("group")) or any(has_aggregate(part, context) for part in parts)


def has_aggregate(node: exp.Expr, context: Context) -> bool:
    """Whether an aggregate stands somewhere in an expression, other than OVER a window or in a subquery."""
    if isinstance(node, exp.Window | exp.Query):
        return False
    return is_aggregate(node, context) or any(has_aggregate(child, context) for child in node.iter_expressions())


class Arguments(ExpressionBinder):
    """Expressions over the rows of a group; `place` says where no aggregate may stand, `hint` what to do instead."""

    def __init__(
        self, context: Context, scope: Scope, place: str, hint: str = "aggregate twice with a subquery"
    ) -> None:
        super().__init__(context, scope)
        self.place, self.hint = place, hint

    def bind(self, node: exp.Expr) -> Expr:
        if is_aggregate(node, self.context):
            self.context.fail(f"an aggregate is not allowed {self.place}", node, hint=self.hint)
        return super().bind(node)


def ungrouped(context: Context, scope: Scope) -> Arguments:
    """Expressions of WHERE, over rows that are grouped, or otherwise brought together, after it."""
    return Arguments(context, scope, "in WHERE", "write conditions on groups in HAVING")


class GroupedExpressions(ExpressionBinder):
    """Binds the expressions of a SELECT that aggregates: what they make of a group's keys and aggregates."""

    any_value = "first_known"
    """the aggregate that gives some value of a group"""

    def __init__(
        self, select: exp.Select, plan: P.Node, scope: Scope, context: Context, subqueries: Subqueries
    ) -> None:
        super().__init__(context, scope, self._refuse_over)
        self.select, self.plan, self.rows = select, plan, scope
        self.subqueries, self.row_queries = subqueries, subqueries.for_rows()
        self.subquery = self._value
        self.keys: dict[Expr, str] = {}
        self.calls: dict[AggregateCall[Expr], tuple[str, ...]] = {}
        self._inside = False
        for node in self._key_nodes():
            self._add_key(self._arguments("in GROUP BY").bind(node))

    def bind(self, node: exp.Expr) -> Expr:
        if isinstance(node, exp.Column) and isinstance(node.find_ancestor(exp.Having, exp.Query), exp.Having):
            node = self._meant(node)
        if is_aggregate(node, self.context):
            return self._single(node)
        if isinstance(node, exp.Filter):
            self.context.fail("FILTER needs an aggregate before it", node)
        if self._inside:
            return super().bind(node)
        self._inside = True
        try:
            return self._settled(super().bind(node), node)
        finally:
            self._inside = False

    def several(self, node: exp.Expr) -> list[tuple[str, Expr]] | None:
        """The columns of an aggregate that returns several and stands alone; None if `node` is none."""
        if not is_aggregate(node, self.context):
            return None
        call = self._call_of(node)
        fields = call.fields
        if len(fields) == 1:
            return None
        names = zip(fields, self._names(call), strict=True)
        return [(field.name, Column(field.type, name)) for field, name in names]

    def build(self, outputs: list[tuple[str, Expr]]) -> tuple[P.Node, list[tuple[str, Expr]]]:
        """The plan of the groups, and the outputs over it."""
        settled = [(name, self._settled(expr, self.select)) for name, expr in outputs]
        # Conditions come above the groups, whose aggregates are known when all expressions are bound.
        having = self.select.args.get("having")
        steps = [] if having is None else self.subqueries.steps(having.this, self)
        plan = self._groups()
        for step in steps:
            plan = step.above(plan)
        return self.subqueries.joined(plan), settled

    def _groups(self) -> P.Node:
        """The groups, once all expressions are bound."""
        raise NotImplementedError

    def _prepared(self) -> tuple[P.Node, tuple[AggregateCall[str], ...]]:
        """The rows with the columns that keys and aggregates need, and the calls over these."""
        added: dict[str, Expr] = {name: expr for expr, name in self.keys.items() if not isinstance(expr, Column)}
        calls = tuple(
            call.with_arguments(tuple(column_of(arg, added) for arg in call.args), names)
            for call, names in self.calls.items()
        )
        plan = self.row_queries.joined(self.plan)
        if added:
            plan = P.Project(plan, (*P.passthrough(plan.schema), *added.items()))
        return plan, calls

    # -- keys ------------------------------------------------------------------------------------------------------

    def _key_nodes(self) -> Iterator[exp.Expr]:
        group = self.select.args.get("group")
        if group is None:
            return
        if group.args.get("all"):
            yield from (item.unalias() for item in self.select.expressions if not has_aggregate(item, self.context))
        for node in group.expressions:
            if isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets):
                self.context.refuse(
                    "GROUPING SETS, ROLLUP and CUBE are not supported in a correlated subquery",
                    node,
                    hint="write one query per set of keys, and combine them with UNION ALL",
                )
            yield from map(self._meant, node.expressions if isinstance(node, exp.Tuple) else (node,))

    def _meant(self, node: exp.Expr) -> exp.Expr:
        return key_meant(node, self.select.expressions, self.context, self.rows.knows)

    def _add_key(self, expr: Expr) -> str:
        name = expr.name if isinstance(expr, Column) else f"$k{len(self.keys) + 1}"
        return self.keys.setdefault(expr, name)

    def _has_key(self, name: str | None) -> bool:
        return name is not None and name in self.keys.values()

    # -- aggregates ------------------------------------------------------------------------------------------------

    def _single(self, node: exp.Expr) -> Expr:
        call = self._call_of(node)
        if len(call.names) > 1:
            self.context.fail(
                f"{call.fn} returns {len(call.names)} columns",
                node,
                hint="select it alone",
            )
        return in_words(Column(call.types[0], self._names(call)[0]), node)

    def _names(self, call: AggregateCall[Expr]) -> tuple[str, ...]:
        """The columns that will hold what an aggregate returns."""
        number = len(self.calls) + 1
        return self.calls.setdefault(call, tuple(f"${number}.{name}" for name in call.names))

    def _call_of(self, node: exp.Expr) -> AggregateCall[Expr]:
        call = aggregate_call(node, self.context)
        assert call is not None
        rows = self._arguments("inside another")
        call = for_wide_values(call, rows)
        return self._own(call, rows) if call.is_own else self._builtin(call, rows)

    def _own(self, call: WrittenCall, rows: Arguments) -> AggregateCall[Expr]:
        own = bind_own(call, rows)
        program = own.base
        assert program is not None
        args = as_arguments(own.args, program.parameters, call.node, self.context)
        if not any(isinstance(statement, Insert) and statement.table is None for statement in program.terminate):
            self.context.refuse(
                f"{call.name} returns nothing when a group ends",
                call.node,
                detail="only what TERMINATE returns belongs to the group",
                hint="add TERMINATE : { INSERT INTO RETURN … }",
            )
        return AggregateCall.of_program(program, args)

    def _builtin(self, call: WrittenCall, rows: Arguments) -> AggregateCall[Expr]:
        builtin = bind_builtin(call, rows, self.any_value)
        if (ordered := in_order(call, builtin, rows)) is not None:
            return AggregateCall.of_program(*ordered)
        return builtin

    def _check_one_row(self) -> None:
        for call in self.calls if len(self.calls) > 1 else ():
            # what TERMINATE returns after each tuple is what it returns at the end
            if call.program is not None and not returns_one_row(call.program, Running(total=True)):
                self.context.refuse(
                    f"{call.fn} is used together with other aggregates, but may return any number of rows",
                    self.select,
                    detail="each result row combines one row of each aggregate",
                    hint="select it alone, or return exactly one row: INSERT … SELECT from a table of one row",
                )

    # -- expressions -----------------------------------------------------------------------------------------------

    def _settled(self, expr: Expr, node: exp.Expr) -> Expr:
        """The expression over the columns of the groups."""
        if expr in self.keys:
            return Column(expr.type, self.keys[expr], told(expr))
        if isinstance(expr, Column) and not self._is_known(expr.name):
            self.context.fail(
                f"column {expr.name} is neither in GROUP BY nor inside an aggregate",
                node,
                hint="add it to GROUP BY, or aggregate it: min(…), max(…)",
            )
        children = expr.children()
        return expr.with_children(tuple(self._settled(child, node) for child in children)) if children else expr

    def _is_known(self, name: str) -> bool:
        """Whether the groups have a column of that name, or get it from a query inside."""
        known = name in self.keys.values() or name in self.subqueries.columns
        return known or any(name in names for names in self.calls.values())

    def _arguments(self, place: str) -> Arguments:
        """What binds expressions over the rows of a group."""
        rows = Arguments(self.context, self.rows, place)
        rows.subquery = self.row_queries.value
        return rows

    def _value(self, node: exp.Expr, _: ExpressionBinder) -> Expr:
        # Columns of the groups, not of their rows, are what a query inside may refer to.
        inside, self._inside = self._inside, False
        try:
            return self.subqueries.value(node, self)
        finally:
            self._inside = inside

    def _refuse_over(self, node: exp.Window, _: ExpressionBinder) -> Expr:
        return self.context.refuse(
            "OVER together with GROUP BY is not supported", node, hint="group in a subquery, and use OVER outside it"
        )


def column_of(expr: Expr, added: dict[str, Expr]) -> str:
    """The name of a column that holds `expr`: an existing one, or a new one."""
    if isinstance(expr, Column):
        return expr.name
    for name, known in added.items():
        if known == expr:
            return name
    name = f"$e{len(added) + 1}"
    added[name] = expr
    return name
