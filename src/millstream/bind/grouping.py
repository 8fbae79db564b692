"""GROUP BY over window tables: keys, aggregates, and the program that computes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NoReturn

from sqlglot import exp

from millstream import functions
from millstream.bind.aggregates import as_argument
from millstream.bind.context import Context
from millstream.bind.expressions import ExpressionBinder, call_of
from millstream.bind.programs import bind_program
from millstream.bind.scope import Scope
from millstream.bind.window_tables import WindowColumns, window_columns
from millstream.kernels import aggregates
from millstream.kernels.programs.engine import Running
from millstream.kernels.programs.layout import returns_one_row
from millstream.plan import nodes as P
from millstream.plan.builtin_programs import NAMES as GROUPABLE
from millstream.plan.builtin_programs import builtin_program
from millstream.plan.expr import Case, Column, Expr, Literal
from millstream.plan.program_product import begins_with_sqlcode, product
from millstream.plan.programs import Insert, Program
from millstream.plan.window_tables import Hopping
from millstream.types import BIGINT, BOOLEAN, INTERVAL


def is_grouped(select: exp.Select, plan: P.Node, context: Context) -> bool:
    """Whether a SELECT aggregates rows that have windows."""
    parts = [*select.expressions, *([select.args["having"]] if select.args.get("having") else [])]
    aggregates_ = bool(select.args.get("group")) or any(_has_aggregate(part, context) for part in parts)
    return aggregates_ and window_columns(plan) is not None


def is_aggregate(node: exp.Expr, context: Context) -> bool:
    """Whether a node calls an aggregate."""
    if not isinstance(node, exp.Func):
        return False
    name, arguments = call_of(node)
    if context.catalog.aggregate(name, window=False) is not None:
        return True
    return aggregates.canonical_name(name) in GROUPABLE and len(arguments) <= 1


def _has_aggregate(node: exp.Expr, context: Context) -> bool:
    if isinstance(node, exp.Window | exp.Query):
        return False
    return is_aggregate(node, context) or any(_has_aggregate(child, context) for child in node.iter_expressions())


class _Arguments(ExpressionBinder):
    """Expressions over the rows of a group; `place` says where no aggregate may stand."""

    def __init__(self, context: Context, scope: Scope, place: str) -> None:
        super().__init__(context, scope)
        self.place = place

    def bind(self, node: exp.Expr) -> Expr:
        if is_aggregate(node, self.context):
            self.context.fail(f"an aggregate cannot stand {self.place}", node, hint="aggregate twice with a subquery")
        return super().bind(node)


@dataclass(frozen=True)
class _Call:
    """An aggregate of a SELECT: its program, and its arguments, which have the types of the parameters."""

    program: Program
    args: tuple[Expr, ...]


class GroupBinder(ExpressionBinder):
    """Binds the expressions of a SELECT with GROUP BY: what they make of a group's keys and aggregates."""

    def __init__(self, select: exp.Select, plan: P.Node, scope: Scope, context: Context) -> None:
        super().__init__(context, scope, self._refuse_over)
        found = window_columns(plan)
        assert found is not None
        self.select, self.plan, self.windows = select, plan, found
        self.rows = scope
        self.keys: dict[Expr, str] = {}
        self.calls: dict[_Call, tuple[str, ...]] = {}
        self._inside = False
        for node in self._key_nodes():
            self._add_key(_Arguments(context, scope, "in GROUP BY").bind(node))
        self._partition_session()
        self.ends = self._add_end()

    def bind(self, node: exp.Expr) -> Expr:
        if isinstance(node, exp.Filter):
            return self._single(node.this, node.expression.this)
        if is_aggregate(node, self.context):
            return self._single(node, None)
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
        call = self._call_of(node, None)
        fields = call.program.result
        if len(fields) == 1:
            return None
        names = zip(fields, self._names(call), strict=True)
        return [(field.name, Column(field.type, name)) for field, name in names]

    def build(self, outputs: list[tuple[str, Expr]]) -> tuple[P.Node, list[tuple[str, Expr]]]:
        """The plan of the groups, and the outputs over it."""
        settled = [(name, self._settled(expr, self.select)) for name, expr in outputs]
        having = self.select.args.get("having")
        condition = None if having is None else self.condition(having.this)
        if not self.calls:
            # what a group is needs a row of it only
            self._names(_Call(builtin_program("count", None, BIGINT), ()))
        self._check_products()
        added: dict[str, Expr] = {name: expr for expr, name in self.keys.items() if not isinstance(expr, Column)}
        args = tuple(_column(arg, added) for call in self.calls for arg in call.args)
        plan = self.plan
        if added:
            plan = P.Project(plan, (*P.passthrough(plan.schema), *added.items()))
        results = tuple(name for names in self.calls.values() for name in names)
        program = product([call.program for call in self.calls])
        plan = P.Group(plan, tuple(self.keys.values()), self.ends, program, args, results)
        return plan if condition is None else P.Filter(plan, condition), settled

    @property
    def ordered_by(self) -> set[str]:
        """The columns by which groups come in order anyway."""
        same = {self.windows.start} if isinstance(getattr(self.windows.table, "windows", None), Hopping) else set()
        return {name.lower() for name in (self.ends, *same) if name is not None}

    # -- keys ------------------------------------------------------------------------------------------------------

    def _key_nodes(self) -> Iterator[exp.Expr]:
        group = self.select.args.get("group")
        if group is None:
            return
        for key in ("all", "cube", "rollup", "grouping_sets", "totals"):
            if group.args.get(key):
                self.context.refuse(f"GROUP BY {key.upper().replace('_', ' ')} is not supported", group)
        for node in group.expressions:
            yield self._meant(node)

    def _meant(self, node: exp.Expr) -> exp.Expr:
        """The expression that a key stands for: a place in the select list, an alias of it, or itself."""
        items = self.select.expressions
        if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
            place = int(node.name)
            if not 1 <= place <= len(items):
                self.context.fail(
                    f"there is no column {place} to group by", node, hint=f"the select list has {len(items)}"
                )
            return _unaliased(items[place - 1])
        if isinstance(node, exp.Column) and not node.table:
            own = any(node.name in item.schema for item in self.rows.items)
            for item in items:
                if not own and isinstance(item, exp.Alias) and item.alias.lower() == node.name.lower():
                    return _unaliased(item)
        return node

    def _add_key(self, expr: Expr) -> str:
        name = expr.name if isinstance(expr, Column) else f"$k{len(self.keys) + 1}"
        return self.keys.setdefault(expr, name)

    def _has_key(self, name: str | None) -> bool:
        return name is not None and name in self.keys.values()

    def _partition_session(self) -> None:
        """A session without PARTITION BY is one of each group that GROUP BY makes beside the window."""
        table = self.windows.table
        bounds = (self.windows.start, self.windows.end)
        others = [expr for expr, name in self.keys.items() if name not in bounds]
        if not isinstance(table, P.Sessions) or table.keys or not others:
            return
        names = [expr.name for expr in others if isinstance(expr, Column) and expr.name in table.input.schema]
        if len(names) < len(others) or not _only_filters(self.plan, table):
            self.context.fail(
                "of which rows is this a session?", self.select.args["group"], hint="write SESSION(s PARTITION BY …, …)"
            )
        partitioned = replace(table, keys=tuple(names))
        self.plan = P.rebuild(self.plan, lambda node: partitioned if node == table else node)
        self.windows = WindowColumns(partitioned, *bounds, partitioned.keys)

    def _add_end(self) -> str:
        """The key that tells when a group ends."""
        start, end, table = self.windows.start, self.windows.end, self.windows.table
        if end is not None and self._has_key(end):
            return end
        if start is not None and self._has_key(start):
            depends = (
                isinstance(table.windows, Hopping)
                if isinstance(table, P.AssignWindows)
                else all(map(self._has_key, self.windows.partition))
            )
            if end is not None and depends:
                return self._add_key(Column(table.type, end))
            if isinstance(table, P.AssignWindows):
                length = Literal(BIGINT if table.type == BIGINT else INTERVAL, table.windows.size)
                return self._add_key(functions.resolve("+", (Column(table.type, start), length)))
            self._refuse_keys("sessions that begin together need not end together", "window_end")
        missing = "window_start, window_end" if start is not None and end is not None else "the window's bounds"
        return self._refuse_keys("a group is complete when its window has ended", missing)

    def _refuse_keys(self, detail: str, missing: str) -> NoReturn:
        group = self.select.args.get("group")
        self.context.refuse(
            "this GROUP BY never ends" if group is not None else "this aggregate never ends",
            group if group is not None else self.select,
            detail=detail,
            hint=f"{'add' if group is not None else 'GROUP BY'} {missing}",
        )

    # -- aggregates ------------------------------------------------------------------------------------------------

    def _single(self, node: exp.Expr, where: exp.Expr | None) -> Expr:
        call = self._call_of(node, where)
        if len(call.program.result) > 1:
            self.context.fail(
                f"{call.program.name} returns {len(call.program.result)} columns",
                node,
                hint="let it stand alone in the select list",
            )
        return Column(call.program.result.fields[0].type, self._names(call)[0])

    def _names(self, call: _Call) -> tuple[str, ...]:
        """The columns that will hold what an aggregate returns."""
        number = len(self.calls) + 1
        return self.calls.setdefault(call, tuple(f"${number}.{field.name}" for field in call.program.result))

    def _call_of(self, node: exp.Expr, where: exp.Expr | None) -> _Call:
        if not is_aggregate(node, self.context):
            self.context.fail("FILTER needs an aggregate before it", node)
        assert isinstance(node, exp.Func)
        name, arguments = call_of(node)
        rows = _Arguments(self.context, self.rows, "inside another")
        definition = self.context.catalog.aggregate(name, window=False)
        if definition is None:
            return self._builtin(name, arguments, node, None if where is None else rows.condition(where))
        if where is not None or any(isinstance(argument, exp.Distinct) for argument in arguments):
            word = "DISTINCT" if where is None else "FILTER"
            self.context.refuse(f"{word} with {name}, which is written in SQL, is not supported", node)
        args = tuple(map(rows.bind, arguments))
        with self.context.blaming(node):
            program = bind_program(definition, tuple(arg.type for arg in args), self.context)
            args = tuple(as_argument(arg, field) for arg, field in zip(args, program.parameters, strict=True))
        if not any(isinstance(statement, Insert) and statement.table is None for statement in program.terminate):
            self.context.refuse(
                f"{name} returns nothing when a group ends",
                node,
                detail="only what TERMINATE returns belongs to the group",
                hint="add TERMINATE : { INSERT INTO RETURN … }",
            )
        return _Call(program, args)

    def _builtin(self, name: str, arguments: list[exp.Expression], node: exp.Expr, where: Expr | None) -> _Call:
        fn = aggregates.canonical_name(name)
        assert fn is not None
        distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
        if distinct:
            arguments = list(arguments[0].expressions)
        arg: Expr | None = None
        if fn != "count" or (arguments and not isinstance(arguments[0], exp.Star)):
            if len(arguments) != 1:
                self.context.fail(f"{name} takes one argument, here are {len(arguments)}", node)
            arg = _Arguments(self.context, self.rows, "inside another").bind(arguments[0])
        distinct = distinct and fn not in ("min", "max")
        if where is not None:
            if fn in ("first_value", "last_value"):
                self.context.refuse(f"FILTER with {name} is not supported", node, hint="put the condition into WHERE")
            given = Literal(BOOLEAN, True) if arg is None else arg
            arg = Case(given.type, ((where, given),), Literal(given.type, None))
        type_ = aggregates.result_type(fn, distinct, None if arg is None else arg.type)
        if type_ is None:
            self.context.fail(f"{fn} does not apply to {'rows' if arg is None else arg.type}", node)
        program = builtin_program(fn, None if arg is None else arg.type, type_, distinct)
        return _Call(program, () if arg is None else (arg,))

    def _check_products(self) -> None:
        if len(self.calls) < 2:
            return
        for place, call in enumerate(self.calls):
            program = call.program
            # what TERMINATE returns after each tuple is what it returns at the end
            if not returns_one_row(program, Running(total=True)):
                self.context.refuse(
                    f"{program.name} stands beside other aggregates, and may return any number of rows",
                    self.select,
                    detail="one row of each aggregate makes one row of the result",
                    hint="let it stand alone, or return exactly one row: INSERT … SELECT from a table of one row",
                )
            if place and begins_with_sqlcode(program):
                self.context.refuse(
                    f"{program.name} looks at sqlcode first, which another aggregate has set",
                    self.select,
                    hint="put it first in the select list",
                )

    # -- expressions -----------------------------------------------------------------------------------------------

    def _settled(self, expr: Expr, node: exp.Expr) -> Expr:
        """The expression over the columns of the groups."""
        if expr in self.keys:
            return Column(expr.type, self.keys[expr])
        known = {*self.keys.values(), *(name for names in self.calls.values() for name in names)}
        if isinstance(expr, Column) and expr.name not in known:
            self.context.fail(
                f"column {expr.name} is neither in GROUP BY nor inside an aggregate",
                node,
                hint="add it to GROUP BY, or aggregate it: min(…), first_value(…)",
            )
        children = expr.children()
        return expr.with_children(tuple(self._settled(child, node) for child in children)) if children else expr

    def _refuse_over(self, node: exp.Window, _: ExpressionBinder) -> Expr:
        return self.context.refuse(
            "OVER beside GROUP BY is not supported", node, hint="group in a subquery, and use OVER outside of it"
        )


def _unaliased(node: exp.Expr) -> exp.Expr:
    inner: exp.Expr = node.this if isinstance(node, exp.Alias) else node
    return inner


def _column(expr: Expr, added: dict[str, Expr]) -> str:
    """The name of a column that holds `expr`: an existing one, or a new one."""
    if isinstance(expr, Column):
        return expr.name
    for name, known in added.items():
        if known == expr:
            return name
    name = f"$e{len(added) + 1}"
    added[name] = expr
    return name


def _only_filters(plan: P.Node, table: P.Node) -> bool:
    while isinstance(plan, P.Filter):
        plan = plan.input
    return plan == table
