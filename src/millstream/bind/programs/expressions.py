"""Expressions inside an aggregate's body: names of several nested queries, subqueries, aggregates, oldest()."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp

from millstream.bind.aggregates.calls import (
    IN_ORDER,
    WrittenCall,
    aggregate_call,
    bind_builtin,
    depends_on_order,
    where_true,
)
from millstream.bind.expressions import ExpressionBinder, call_of
from millstream.bind.programs.body import BodyBinding
from millstream.bind.scope import Scope, did_you_mean
from millstream.catalog import AggregateDef
from millstream.expressions import functions
from millstream.expressions.nodes import Column, Expr, Literal, columns_of
from millstream.library import LEAVE_OUT_NULLS
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.aggregates import BESIDE
from millstream.plan.programs.nodes import OLDEST, SQLCODE, Exists, InQuery, ScalarQuery, parameter
from millstream.sql import duration_us
from millstream.sql.nodes import Oldest
from millstream.types import BOOLEAN, INTEGER, INTERVAL

if TYPE_CHECKING:
    from millstream.bind.programs.queries import Selected


class BodyExpressions(ExpressionBinder):
    """Binds the expressions of one query or statement of a body.

    A name is a column of the innermost query that has it, else a formal parameter, else `sqlcode`: as everywhere in
    SQL, a column hides a parameter of the same name. `place` says where an aggregate may not stand; None: it may.
    """

    def __init__(self, body: BodyBinding, levels: tuple[Scope, ...], place: str | None) -> None:
        super().__init__(body.context, levels[0] if levels else None)
        self.body = body
        self.levels = levels
        self.place = place

    def elsewhere(self, place: str | None) -> BodyExpressions:
        """The same names at another place of the query."""
        return BodyExpressions(self.body, self.levels, place)

    def bind(self, node: exp.Expr) -> Expr:
        match node:
            case Oldest():
                return self._oldest(node)
            case exp.Exists():
                return Exists(BOOLEAN, self._query(node.this).rows)
            case exp.In() if node.args.get("query") is not None:
                return self._in_query(node)
            case exp.Subquery() | exp.Select():
                rows = self._only_column(node).rows
                return ScalarQuery(rows.columns[0].type, rows)
            case exp.Interval() if duration_us(node) is None:
                return self._interval(node)
            case exp.Filter() | exp.WithinGroup() | exp.IgnoreNulls():
                if (value := self._aggregate(node)) is not None:
                    return value
            case exp.Window():
                self.context.refuse(
                    "OVER is not allowed inside an aggregate", node, hint="apply the aggregate itself with OVER"
                )
        return super().bind(node)

    def _column(self, node: exp.Column) -> Expr:
        scope = self._scope_of(node)
        if scope is not None:
            return scope.resolve(node)
        if not node.table:
            if node.name in self.body.parameters:
                field = self.body.parameters[node.name]
                if self.body.state == "terminate":
                    self.context.refuse(
                        f"{field.name} has no value in TERMINATE",
                        node,
                        detail="arguments are the values of a tuple, and TERMINATE runs after the last tuple",
                        hint="keep it in a table",
                    )
                return parameter(field.type, field.name)
            if node.name.lower() == SQLCODE:
                return Column(INTEGER, SQLCODE)
        names = [field.name for level in self.levels for item in level.items for field in item.schema]
        return self.context.fail(
            f"no column or parameter {node.sql()}",
            node,
            hint=did_you_mean(node.name, [*names, *self.body.parameters.names, SQLCODE]),
        )

    def _scope_of(self, node: exp.Column) -> Scope | None:
        """The innermost query that knows a name; an alias goes before the name of the table behind it."""
        if not node.table:
            return next((level for level in self.levels if any(node.name in item.schema for item in level.items)), None)
        qualifier = node.table.lower()
        for level in self.levels:
            if any(item.alias.lower() == qualifier for item in level.items):
                return level
        return next((level for level in self.levels if any(item.answers_to(qualifier) for item in level.items)), None)

    def _oldest(self, node: Oldest) -> Expr:
        assert self.body.window is not None
        schema = self.body.window.schema
        if node.this is None:
            if len(schema) != 1:
                self.context.fail(
                    "oldest() is a row of several columns", node, hint=f"write oldest().{schema.names[0]}"
                )
            field = schema.fields[0]
        elif node.name not in schema:
            hint = did_you_mean(node.name, list(schema.names))
            self.context.fail(f"inwindow has no column {node.name}", node, hint=hint)
        else:
            field = schema[node.name]
        return Column(field.type, OLDEST + field.name)

    def _interval(self, node: exp.Interval) -> Expr:
        """`n minutes` with an n that is not constant."""
        unit = node.args.get("unit")
        one = None if unit is None else duration_us(exp.Interval(this=exp.Literal.string("1"), unit=unit.copy()))
        if one is None or node.this is None or isinstance(node.this, exp.Literal):
            return self._literal(node)
        amount = self.bind(node.this)
        if not amount.type.is_integer and amount.type.name != "NULL":
            self.context.fail(f"the number of an interval must be an integer, not {amount.type}", node,
                              hint="CAST it to INTEGER, or use a smaller unit")  # fmt: skip
        return self._resolve("*", (Literal(INTERVAL, one), amount), node)

    def _query(self, node: exp.Expr) -> Selected:
        from millstream.bind.programs.queries import bind_rows

        return bind_rows(node, self.body, self.levels)

    def _only_column(self, node: exp.Expr) -> Selected:
        selected = self._query(node)
        if len(selected.types) != 1:
            self.context.fail(f"this subquery has {len(selected.types)} columns, but one is needed", node)
        return selected

    def _in_query(self, node: exp.In) -> Expr:
        value = self.bind(node.this)
        selected = self._only_column(node.args["query"])
        column = selected.rows.columns[0]
        with self.context.blaming(node):
            both = functions.unify((value, column))
            if both is None:
                self.context.fail(f"{value.type} cannot be compared with {column.type}", node, hint="CAST one")
            return InQuery(BOOLEAN, both[0], selected.converted((both[1].type,)))

    def _call(self, node: exp.Func) -> Expr:
        return self._aggregate(node) or super()._call(node)

    def _aggregate(self, node: exp.Expr) -> Expr | None:
        """The value of an aggregate; None if a node calls none."""
        own = self.body.definition
        name = call_of(node)[0] if isinstance(node, exp.Func) else ""
        itself = name == own.name.lower()
        call = None if itself and not own.window else aggregate_call(node, self.context)
        name = name or (call.name if call is not None else "")
        fn = name if call is None else call.fn
        definition = own if itself and not own.window else self.context.aggregate(fn, window=False)
        if definition is None and call is not None and not call.is_own:
            return self._built_in(call)
        if definition is None and (itself or self.context.aggregate(fn, window=True) is not None):
            self.context.refuse(
                f"{name} is defined for windows only", node, hint=f"define the base version: CREATE AGGREGATE {name} …"
            )
        if definition is None:
            return None
        if call is None:
            call = WrittenCall(node, name, name, tuple(call_of(node)[1]) if isinstance(node, exp.Func) else (), True)
        return self._own(call, definition)

    def _own(self, call: WrittenCall, definition: AggregateDef) -> Expr:
        self._check_place(call)
        inside = self.elsewhere("inside another one")
        args = tuple(map(inside.bind, call.arguments))
        if call.where is not None:
            leaves_out = call.fn in LEAVE_OUT_NULLS and not self.context.catalog.has(call.fn, (AggregateDef,))
            if not leaves_out:
                self._refuse_choice("FILTER", call, "put the condition into WHERE")
            args = (where_true(inside.condition(call.where), args[0]), *args[1:])
        if call.order and depends_on_order(call):
            self._refuse_choice("ORDER BY", call, "SELECT … ORDER BY into a table first, and aggregate that")
        self._check_whose(call, args)
        program = self.body.nested(definition, tuple(arg.type for arg in args), call.node)
        with self.context.blaming(call.node):
            cast = tuple(functions.cast(arg, field.type) for arg, field in zip(args, program.parameters, strict=True))
        return replace(AggregateCall.of_program(program, cast), distinct=call.distinct).value

    def _built_in(self, call: WrittenCall) -> Expr:
        self._check_place(call)
        if call.order and call.fn in (*IN_ORDER, *BESIDE):
            self._refuse_choice("ORDER BY", call, "(SELECT … FROM … ORDER BY … LIMIT 1) is a value")
        if call.where is not None and call.fn in ("first_value", "last_value"):
            self._refuse_choice("FILTER", call, "put the condition into WHERE")
        builtin = bind_builtin(call, self.elsewhere("inside another one"))
        self._check_whose(call, builtin.args)
        return builtin.value

    def _refuse_choice(self, word: str, call: WrittenCall, hint: str) -> NoReturn:
        self.context.refuse(f"{word} with {call.name} is not allowed inside an aggregate", call.node, hint=hint)

    def _check_place(self, call: WrittenCall) -> None:
        if self.place is not None:
            self.context.refuse(
                f"aggregate {call.name} is not allowed {self.place}",
                call.node,
                hint=f"(SELECT {call.name}(…) FROM …) is a value",
            )

    def _check_whose(self, call: WrittenCall, args: tuple[Expr, ...]) -> None:
        """An aggregate is over rows of the query that it stands in."""
        own = tuple(item.prefix for item in self.levels[0].items)
        outer = tuple(item.prefix for level in self.levels[1:] for item in level.items)
        columns = {column for arg in args for column in columns_of(arg)}
        if any(column.startswith(outer) for column in columns) and not any(
            column.startswith(own) for column in columns
        ):
            self.context.refuse(f"{call.name} of an outer query's columns is not allowed in a subquery", call.node)
