"""MEASURES and DEFINE: expressions over the values of a match."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from millstream.bind.aggregates.calls import WrittenCall, aggregate_call, as_arguments, bind_builtin, for_wide_values
from millstream.bind.aggregates.chosen_rows import bind_own, in_order
from millstream.bind.aggregates.groups import is_aggregate
from millstream.bind.context import Context
from millstream.bind.expressions import ExpressionBinder, call_of, in_words
from millstream.bind.patterns.moving import moving, rows_before
from millstream.bind.patterns.names import Variables
from millstream.bind.patterns.outside import refuse_elsewhere
from millstream.bind.patterns.queries import RowQueries
from millstream.bind.patterns.rows import LOGICAL, OF_MATCH, PHYSICAL, RowExpressions, column_of, name_of, variable_of
from millstream.bind.patterns.values import LABEL, NUMBER, MatchRow, MatchValues
from millstream.bind.scope import Scope
from millstream.expressions.nodes import Column, Expr, Literal
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.patterns.search import TIMED_OUT
from millstream.plan.programs.facts import returns_one_row
from millstream.plan.programs.modes import Running as RunningMode
from millstream.plan.programs.nodes import Program
from millstream.plan.programs.python import code_in
from millstream.sql.patterns import Final, RunningExtent
from millstream.types import BOOLEAN


class MatchExpressions(ExpressionBinder):
    """Binds what is said of a match. `clause` is where: conditions cannot look at what comes after their row."""

    def __init__(
        self, context: Context, scope: Scope, variables: Variables, values: MatchValues, clause: str,
        queries: RowQueries, time: Column | None = None, timeouts: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(context, scope)
        self.queries, self.subquery = queries, self._asked
        self.variables, self.values, self.clause = variables, values, clause
        self.time, self.timeouts = time, timeouts

    def bind(self, node: exp.Expr) -> Expr:
        return in_words(self._value(node), node)

    def _value(self, node: exp.Expr) -> Expr:
        """What a node of MEASURES or DEFINE stands for."""
        if isinstance(node, RunningExtent | Final):
            return self._scoped(node)
        if isinstance(node, exp.Filter):
            return self.aggregate(node)
        if isinstance(node, exp.Window):
            return self._moving(node)
        name = name_of(node)
        if name in (*LOGICAL, *PHYSICAL):
            return self._navigate(node, False)
        if name in OF_MATCH:
            return self._of_match(name, node)
        if is_aggregate(node, self.context):
            return self.aggregate(node)
        if self.context.catalog.function(name) is None:
            refuse_elsewhere(name, node, self.context)
        if isinstance(node, exp.Dot) and name_of(node.this) in LOGICAL:
            self._refuse_dot(node)
        return super().bind(node)

    def _asked(self, node: exp.Expr, _: ExpressionBinder) -> Expr:
        """What a query over stored tables gives for a row of the match."""
        value, of = self.queries.asked(node)
        return self.values.at(value, MatchRow(of))

    def _refuse_dot(self, node: exp.Dot) -> None:
        """Refuse LAST(A).price, the way of sequences."""
        name, arguments = call_of(node.this)
        whose = f"{arguments[0].name}." if len(arguments) == 1 and isinstance(arguments[0], exp.Column) else ""
        self.context.fail(
            f"a column must be inside {name.upper()}(…) here", node, hint=f"{name.upper()}({whose}{node.name})"
        )

    def _column(self, node: exp.Column) -> Expr:
        if not node.table and node.name.lower() in self.parameters:
            return self.parameters[node.name.lower()]
        column = column_of(node, self.scope, self.variables)
        of = self.variables.find(node, node.table) if node.table else None
        return self.values.reach(column, MatchRow(of))

    def _scoped(self, node: exp.Expr) -> Expr:
        """RUNNING or FINAL before a call."""
        final = isinstance(node, Final)
        if final:
            self._refuse_final(node)
        if name_of(node.this) in LOGICAL:
            return self._navigate(node.this, final)
        if isinstance(node.this, exp.Filter) or is_aggregate(node.this, self.context):
            return self.aggregate(node.this, final)
        return self.context.fail(
            f"{'FINAL' if final else 'RUNNING'} is only allowed before FIRST, LAST and aggregates",
            node,
            hint="leave it out",
        )

    def _refuse_final(self, node: exp.Expr) -> None:
        if self.clause == "DEFINE":
            self.context.fail(
                "FINAL is not allowed in DEFINE",
                node,
                detail="while a row is tested, the end of the match is not known",
                hint="leave FINAL out",
            )

    def _of_match(self, name: str, node: exp.Expr) -> Expr:
        if name == "classifier":
            qualifier = variable_of(node, self.context)
            return self.values.reach(LABEL, MatchRow(self.variables.find(node, qualifier) if qualifier else None))
        arguments = call_of(node)[1]  # type: ignore[arg-type]
        if arguments and not (name == "match_rowtime" and self._is_time(arguments)):
            self.context.fail(f"{name.upper()} takes no argument", node)
        if name == "match_number":
            return NUMBER
        if self.clause == "DEFINE":
            self.context.fail(f"{name.upper()} is not allowed in DEFINE", node, hint="use it in MEASURES")
        if name == "match_rowtime":
            if self.time is None:
                self.context.fail(
                    "these rows have no time column", node, hint="declare the stream with ORDER BY column"
                )
            return self.values.reach(self.time, MatchRow(final=True))
        if not self.timeouts:
            self.context.fail("TIMED_OUT() needs timeouts", node, hint="write WITHIN … WITH TIMEOUTS")
        return Column(BOOLEAN, TIMED_OUT)

    def _is_time(self, arguments: list[exp.Expression]) -> bool:
        """Whether MATCH_ROWTIME is asked of the time column, the only one it can mean."""
        only = arguments[0] if len(arguments) == 1 else None
        return isinstance(only, exp.Column) and not only.table and self._scope().resolve(only) == self.time

    # -- navigation ------------------------------------------------------------------------------------------------

    def _navigate(self, node: exp.Expr, final: bool) -> Expr:
        """PREV, NEXT, FIRST or LAST."""
        name = name_of(node)
        argument, number = self._arguments(node, 1 if name in PHYSICAL else 0)
        place = MatchRow(final=final)
        if name in PHYSICAL:
            place = replace(place, shift=-number if name == "prev" else number)
            argument, place = self._inside(argument, place)
        else:
            place = replace(place, first=name == "first", offset=number)
        row = self.queries.at_row(name.upper())
        value = row.bind(argument)
        return self.values.at(value, replace(place, variables=row.of))

    def _inside(self, argument: exp.Expr, place: MatchRow) -> tuple[exp.Expr, MatchRow]:
        """What PREV or NEXT is asked of: the row that FIRST or LAST inside of it finds, or else the last one."""
        inner = argument
        while isinstance(inner, exp.Paren):
            inner = inner.this
        final = isinstance(inner, Final)
        if isinstance(inner, RunningExtent | Final):
            if final:
                self._refuse_final(inner)
            inner = inner.this
            if name_of(inner) not in LOGICAL:
                self.context.fail(
                    f"{'FINAL' if final else 'RUNNING'} is only allowed before FIRST and LAST here", argument
                )
        if name_of(inner) not in LOGICAL:
            return argument, place
        value, offset = self._arguments(inner, 0)
        return value, replace(place, first=name_of(inner) == "first", offset=offset, final=final)

    def _arguments(self, node: exp.Expr, default: int) -> tuple[exp.Expr, int]:
        """The argument of a navigation, and how many rows it goes."""
        assert isinstance(node, exp.Func)
        name, arguments = call_of(node)
        if not 1 <= len(arguments) <= 2:
            self.context.fail(f"{name.upper()} takes one or two arguments, got {len(arguments)}", node)
        for argument in arguments:
            if isinstance(argument, exp.IgnoreNulls | exp.RespectNulls | exp.Distinct | exp.Star):
                self.context.refuse(f"{name.upper()} takes the value of a row", argument)
        if len(arguments) == 1:
            return arguments[0], default
        is_constant = arguments[1].find(exp.Column) is None
        number = ExpressionBinder(self.context, None).bind(arguments[1]) if is_constant else None
        value = number.value if isinstance(number, Literal) else None
        if isinstance(value, int) and value < 0 and name.upper() in ("PREV", "NEXT"):
            opposite = "NEXT" if name.upper() == "PREV" else "PREV"
            self.context.fail(
                f"{name.upper()} takes a number of rows from 0",
                arguments[1],
                hint=f"{opposite}(…, {-value}) looks the other way",
            )
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
            self.context.fail(f"{name.upper()} takes a constant number of rows", arguments[1], hint="0, 1, 2, …")
        return arguments[0], value

    def _scope(self) -> Scope:
        assert self.scope is not None
        return self.scope

    # -- aggregates ------------------------------------------------------------------------------------------------

    def aggregate(self, node: exp.Expr, final: bool = False) -> Expr:
        """The value of an aggregate over rows of the match."""
        inner = node.this if isinstance(node, exp.Filter) else node
        name = name_of(inner)
        if name in (*LOGICAL, *PHYSICAL):
            self.context.refuse(f"FILTER with {name.upper()} is not supported", inner)
        call = aggregate_call(node, self.context)
        if call is None:
            self.context.fail("FILTER needs an aggregate before it", inner)
        # a look at the argument must not decide whose rows are meant
        call = for_wide_values(call, self.queries.at_row(call.name))
        rows = self.queries.at_row(call.name)
        return self._own(call, rows, final) if call.is_own else self._builtin(call, rows, final)

    def _builtin(self, call: WrittenCall, rows: RowExpressions, final: bool) -> Expr:
        builtin = bind_builtin(call, rows)
        if (ordered := in_order(call, builtin, rows)) is not None:
            return self._program(call, *ordered, rows, final)
        of_all = rows.of
        if isinstance(call.star, exp.Column):
            of_all = self.variables.find(call.star, call.star.table)
            if rows.of not in (None, of_all):
                # of whom rows are counted and what FILTER asks
                rows.mean(call.star, call.star.table)
        fn = builtin.fn
        if fn in ("first_value", "last_value"):
            return self.values.at(builtin.args[0], MatchRow(of_all, first=fn == "first_value", final=final))
        args = tuple(map(self.values.argument, builtin.args))
        return self.values.summary(AggregateCall.matched("", fn, args, builtin.type, of_all, final, builtin.distinct))

    def _moving(self, node: exp.Window) -> Expr:
        """An aggregate over the last rows of a variable, up to the current one."""
        call = aggregate_call(node.this, self.context)
        before = rows_before(node, call, self.context)
        assert call is not None
        rows = self.queries.at_row(call.name)
        builtin = bind_builtin(call, rows)
        assert builtin.arg is not None
        values = [self.values.at(builtin.arg, MatchRow(rows.of, offset=i)) for i in range(before + 1)]
        return moving(builtin.fn, builtin.type, values)

    def _own(self, call: WrittenCall, rows: RowExpressions, final: bool) -> Expr:
        """An aggregate that is written in SQL or Python."""
        own = bind_own(call, rows)
        program, name, node = own.base, call.name, call.node
        assert program is not None
        args = as_arguments(own.args, program.parameters, node, self.context)
        if len(program.result) != 1:
            self.context.refuse(f"{name} returns {len(program.result)} columns", node, hint="one is needed here")
        if not returns_one_row(program, RunningMode(total=True)):
            self.context.refuse(
                f"{name} may return no row or several",
                node,
                detail="a match needs exactly one value, the one that TERMINATE returns",
                hint="return exactly one row in TERMINATE, and none in ITERATE"
                if code_in(program) is None
                else "if it always returns one row, declare it: @ms.aggregate(…, one_row=True)",
            )
        return self._program(call, program, args, rows, final)

    def _program(
        self, call: WrittenCall, program: Program, args: tuple[Expr, ...], rows: RowExpressions, final: bool
    ) -> Expr:
        given = tuple(map(self.values.argument, args))
        type_ = program.result.fields[0].type
        return self.values.summary(AggregateCall.matched("", call.name, given, type_, rows.of, final, program=program))
