"""SELECT over stored tables that calls aggregates written in SQL or Python: what the table store computes of it.

The store gives the rows to aggregate (`rows`), we compute the aggregates, and the store makes the answer (`final`) of
what they returned, lent to it as tables, and of its own aggregates per group (`groups`).
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from sqlglot import exp

from millstream.bind.aggregates.calls import aggregate_call
from millstream.bind.aggregates.keys import key_meant
from millstream.bind.context import Context
from millstream.bind.expressions import call_of
from millstream.bind.programs.python import has_state
from millstream.bind.tables.text import store_sql
from millstream.catalog import AggregateDef, FunctionDef, TableDef, ViewDef
from millstream.records import dataclass
from millstream.sql.nodes import CreateAggregate

RETURNED = "__returned"
"""The tables of what the aggregates returned begin with this: `n` is the row's place, `tuple` the place of the row it
belongs to, `c…` are columns of that row, `r…` what was returned."""
_GROUPS = "__groups"
_STORED = frozenset(("array_agg", "string_agg"))
"""aggregates of the library that the table store has, too"""
_SPELLINGS = {"every": "bool_and", "quantile": "quantile_cont", "group_concat": "string_agg", "listagg": "string_agg"}


@dataclass(frozen=True)
class UntypedCall:
    """A call whose types only the answer of the table store will tell: the definition of an aggregate, and the columns
    of `rows` that are its arguments."""

    node: exp.Func
    definition: AggregateDef
    args: tuple[str, ...]

    @property
    def is_blocking(self) -> bool:
        """Whether it returns when its group ends, rather than as rows come."""
        body, code = self.definition.body, self.definition.python
        if code is not None:
            return not isinstance(code.made, type) or has_state(code, "terminate")
        assert isinstance(body, CreateAggregate)
        return bool(body.state("terminate"))


@dataclass(frozen=True)
class TableAggregates:
    """A query in parts; `context` knows whom to blame."""

    context: Context
    calls: tuple[UntypedCall, ...]
    keys: tuple[str, ...]
    source: exp.Select
    """the query's FROM and WHERE, without columns"""
    columns: dict[str, exp.Expr]
    final: exp.Select

    @property
    def is_blocking(self) -> bool:
        return self.calls[0].is_blocking

    def rows(self, casts: dict[str, str]) -> str:
        """The query of the rows, with some columns cast."""
        named = [
            exp.alias_(exp.cast(expr.copy(), casts[name], dialect="duckdb") if name in casts else expr.copy(), name)
            for name, expr in self.columns.items()
        ]
        # an aggregate without arguments still needs to know how many rows there are
        some = named or [exp.alias_(exp.Literal.number(1), "c")]
        return store_sql(self.source.copy().select(*some, copy=False))


def own_aggregates(node: exp.Expr, context: Context) -> TableAggregates | None:
    """The parts of a query that calls such aggregates; None if it calls none."""
    select = node
    while isinstance(select, exp.Subquery) and not select.args.get("alias"):
        select = select.this
    calls = [part for part in node.find_all(exp.Func) if _definition(part, context) is not None]
    if not calls:
        return None
    for call in calls:
        if isinstance(call.parent, exp.Window) and call.arg_key == "this":
            context.refuse(
                f"{call_of(call)[0]} OVER a window of a stored table is not supported",
                call,
                hint="push its rows into a stream, and query that",
            )
        if isinstance(call.parent, exp.Filter) and call.arg_key == "this":
            context.refuse(
                f"FILTER with {call_of(call)[0]} over stored tables is not supported",
                call.parent,
                hint="put the condition into WHERE",
            )
        if not isinstance(select, exp.Select) or call.find_ancestor(exp.Query) is not select:
            context.refuse(
                f"on stored tables, {call_of(call)[0]} is allowed only in the outermost SELECT",
                call,
                hint="store its rows with CREATE TABLE … AS SELECT, and query that table",
            )
    assert isinstance(select, exp.Select)
    return _Splitting(select, context).parts()


def in_store_terms(node: exp.Expr, context: Context) -> exp.Expr:
    """A query over stored tables with aggregates as the table store spells them."""

    def spelled(part: exp.Expr) -> exp.Expr:
        call = part.this if isinstance(part, exp.WithinGroup) else part
        if not isinstance(call, exp.Anonymous) or context.catalog.has(call.name, (AggregateDef, FunctionDef)):
            return part
        name, arguments = call.name.lower(), list(call.expressions)
        orders = part.expression.expressions if isinstance(part, exp.WithinGroup) else []
        if name == "percentile_cont" and len(orders) == len(arguments) == 1:
            (by,) = orders
            (fraction,) = arguments
            if by.args.get("desc"):
                fraction = exp.Sub(this=exp.Literal.number("1"), expression=exp.Paren(this=fraction))
            return exp.Anonymous(this="quantile_cont", expressions=[by.this, fraction])
        if name == "count_if" and len(arguments) == 1:
            # the table store would add up numbers, of which there may be none
            return exp.Count(this=exp.Case(ifs=[exp.If(this=arguments[0], true=exp.Literal.number("1"))]))
        if name in _SPELLINGS:
            call.set("this", _SPELLINGS[name])
            call.meta.pop("called_as", None)
        _take_apart(call)
        return part

    return node.transform(spelled, copy=False)


def _take_apart(call: exp.Anonymous) -> None:
    """DISTINCT x, y ORDER BY z as arguments of which each says what stands before or behind it."""
    only = call.expressions[0] if len(call.expressions) == 1 else None
    order = only if isinstance(only, exp.Order) else None
    distinct = only if order is None else order.this
    if not isinstance(distinct, exp.Distinct) or len(distinct.expressions) < 2:
        return
    first, *others = distinct.expressions
    if order is not None:
        others[-1] = exp.Order(this=others[-1], expressions=order.expressions)
    call.set("expressions", [exp.Distinct(expressions=[first]), *others])


def _definition(node: exp.Expr, context: Context) -> AggregateDef | None:
    """The aggregate that a node calls. What the table store knows by itself is ours only if somebody defined it."""
    if not isinstance(node, exp.Func):
        return None
    name = call_of(node)[0]
    is_defined = context.catalog.has(name, (AggregateDef,))
    if not is_defined and (not isinstance(node, exp.Anonymous) or name in _STORED):
        return None
    base = context.aggregate(name, window=False)
    if base is None and context.aggregate(name, window=True) is not None:
        context.refuse(
            f"{name} is for windows only", node, hint="over a stored table the base version runs: CREATE AGGREGATE"
        )
    return base


@dataclass
class _Splitting:
    """Takes a SELECT apart."""

    select: exp.Select
    context: Context
    columns: dict[str, exp.Expr] = field(default_factory=dict)
    calls: list[UntypedCall] = field(default_factory=list)
    builtins: list[exp.Expr] = field(default_factory=list)
    free: list[exp.Expr] = field(default_factory=list)
    """columns outside of aggregates that are no keys"""

    def parts(self) -> TableAggregates:
        self._keys = [(key, self._column(key)) for key in self._key_nodes()]
        keys = tuple(name for _, name in self._keys)
        outputs = [output for node in self.select.expressions for output in self._outputs(node)]
        final = exp.select(*outputs)
        for clause in ("distinct", "qualify", "order", "limit", "offset"):
            if (given := self.select.args.get(clause)) is not None:
                final.set(clause, self._replaced(given))
        if (having := self.select.args.get("having")) is not None:
            final.where(self._replaced(having.this), copy=False)
        self._check()
        source = self.select.copy()
        for clause in list(source.args):
            if clause not in ("from_", "from", "joins", "laterals", "where", "with_", "with"):
                source.set(clause, None)
        self._from(final, source, keys)
        return TableAggregates(self.context, tuple(self.calls), keys, source, self.columns, final)

    # -- groups ----------------------------------------------------------------------------------------------------

    def _key_nodes(self) -> list[exp.Expr]:
        group = self.select.args.get("group")
        if group is None:
            return []
        plain = not any(value for name, value in group.args.items() if name != "expressions")
        several = any(isinstance(key, exp.Rollup | exp.Cube | exp.GroupingSets) for key in group.expressions)
        if not plain or several:
            self.context.refuse(
                "GROUP BY takes only expressions next to an aggregate written in SQL or Python",
                group,
                hint="list what to group by; use one query per grouping",
            )
        items = self.select.expressions
        return [key_meant(key, items, self.context, self._is_stored) for key in group.expressions]

    def _is_stored(self, column: str) -> bool:
        tables = (self.context.catalog.find(table.name) for table in self.select.find_all(exp.Table))
        return any(isinstance(table, TableDef | ViewDef) and column in table.schema for table in tables)

    # -- expressions -----------------------------------------------------------------------------------------------

    def _outputs(self, node: exp.Expr) -> list[exp.Expr]:
        inner = node.unalias()
        if isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)):
            self.context.refuse("* next to an aggregate", node, hint="name the columns")
        definition = _definition(inner, self.context)
        if definition is None:
            name = node.alias if isinstance(node, exp.Alias) else _name(inner)
            return [exp.alias_(self._replaced(inner), name, quoted=True)]
        assert isinstance(inner, exp.Func)
        names = [name for name, _ in definition.returns]
        if isinstance(node, exp.Alias):
            if len(names) > 1:
                self.context.fail("this aggregate has several results", node, hint="select it by itself, without AS")
            names = [node.alias]
        return [exp.alias_(self._result(inner, i), name, quoted=True) for i, name in enumerate(names)]

    def _replaced(self, node: Any) -> Any:
        """An expression over what the aggregates returned and the groups."""
        if isinstance(node, list):
            return [self._replaced(part) for part in node]
        if not isinstance(node, exp.Expr) or isinstance(node, exp.Query):
            return node.copy() if isinstance(node, exp.Expr) else node
        for key, name in self._keys:
            if _same(node, key):
                return _of(f"{RETURNED}0", name)
        if (definition := _definition(node, self.context)) is not None:
            assert isinstance(node, exp.Func)
            if len(definition.returns) > 1:
                self.context.fail("this aggregate has several results", node, hint="select it by itself")
            return self._result(node, 0)
        if self._is_stores(node) and not isinstance(node.parent, exp.Window | exp.Filter):
            if node not in self.builtins:
                self.builtins.append(node)
            return _of(_GROUPS, f"b{self.builtins.index(node)}")
        if isinstance(node, exp.Column):
            if self._is_output(node):
                return node.copy()
            self.free.append(node)
            return _of(f"{RETURNED}0", self._column(node))
        changed = node.copy()
        for name, value in node.args.items():
            changed.set(name, self._replaced(value))
        return changed

    def _is_stores(self, node: exp.Expr) -> bool:
        """Whether a node calls an aggregate that the table store computes; the parser knows some of them by name."""
        return isinstance(node, exp.AggFunc | exp.Filter) or aggregate_call(node, self.context) is not None

    def _is_output(self, node: exp.Column) -> bool:
        """Whether ORDER BY or HAVING names a column of the result."""
        if node.table or node.find_ancestor(exp.Order, exp.Having, exp.Qualify) is None or self._is_stored(node.name):
            return False
        names = [name for output in self.select.expressions for name in self._output_names(output)]
        return any(_same_name(name, node.name) for name in names)

    def _output_names(self, node: exp.Expr) -> list[str]:
        if isinstance(node, exp.Alias):
            return [node.alias]
        definition = _definition(node, self.context)
        return [_name(node)] if definition is None else [name for name, _ in definition.returns]

    def _result(self, node: exp.Func, column: int) -> exp.Expr:
        name, arguments = call_of(node)
        for argument in arguments:
            if isinstance(argument, exp.Star | exp.Distinct):
                self.context.fail(f"{name} takes values", argument)
            if (inner := next((p for p in argument.find_all(exp.AggFunc)), None)) is not None:
                self.context.fail("an aggregate is not allowed inside another", inner, hint="aggregate twice")
            if any(_definition(part, self.context) is not None for part in argument.find_all(exp.Func)):
                self.context.fail("an aggregate is not allowed inside another", argument, hint="aggregate twice")
        known = next((i for i, call in enumerate(self.calls) if call.node == node), None)
        if known is None:
            definition = _definition(node, self.context)
            assert definition is not None
            known = len(self.calls)
            self.calls.append(UntypedCall(node, definition, tuple(map(self._argument, arguments))))
        return _of(f"{RETURNED}{known}", f"r{column}")

    def _column(self, node: exp.Expr) -> str:
        """The column of `rows` that holds an expression."""
        same = (name for name, known in self.columns.items() if known == node and name.startswith("c"))
        return next(same, None) or self._added("c", node)

    def _argument(self, node: exp.Expr) -> str:
        """A column of its own, since it is cast to the type of the parameter."""
        return self._added("a", node)

    def _added(self, kind: str, node: exp.Expr) -> str:
        name = f"{kind}{len(self.columns)}"
        self.columns[name] = node
        return name

    def _check(self) -> None:
        blocking = [call.is_blocking for call in self.calls]
        names = [call.definition.name for call in self.calls]
        if len(set(blocking)) > 1:
            self.context.refuse(
                f"{names[blocking.index(True)]} together with {names[blocking.index(False)]}",
                self.select,
                detail="one returns when its group ends, the other as rows arrive",
                hint="use one query for each",
            )
        if self.builtins and not blocking[0]:
            self.context.refuse(
                f"{self.builtins[0].sql(dialect='duckdb')} next to {names[0]}, which returns rows as they arrive",
                self.builtins[0],
                hint="use one query for each",
            )
        if self.free and blocking[0]:
            self.context.fail(
                f"column {self.free[0].sql()} is neither in GROUP BY nor inside an aggregate",
                self.free[0],
                hint="add it to GROUP BY, or aggregate it",
            )

    # -- the answer ------------------------------------------------------------------------------------------------

    def _from(self, final: exp.Select, source: exp.Select, keys: tuple[str, ...]) -> None:
        if (with_ := self.select.args.get("with_")) is not None:
            final.set("with_", with_.copy())
        final.from_(f"{RETURNED}0", copy=False)
        shared = keys if self.calls[0].is_blocking else ("tuple",)
        for i in range(1, len(self.calls)):
            final.join(f"{RETURNED}{i}", on=_equal(f"{RETURNED}0", f"{RETURNED}{i}", shared), copy=False)
        if self.builtins:
            own = [exp.alias_(node.copy(), f"b{i}") for i, node in enumerate(self.builtins)]
            groups = source.copy().select(*(exp.alias_(k.copy(), name) for k, name in self._keys), *own)
            groups.set("with_", None)
            for key, _ in self._keys:
                groups.group_by(key.copy(), copy=False)
            final.join(groups.subquery(_GROUPS), on=_equal(f"{RETURNED}0", _GROUPS, keys), copy=False)
        if not final.args.get("distinct"):
            final.order_by(_of(f"{RETURNED}0", "n"), copy=False)


def _equal(left: str, right: str, columns: tuple[str, ...]) -> exp.Expr:
    parts = [exp.NullSafeEQ(this=_of(left, name), expression=_of(right, name)) for name in columns]
    return exp.and_(*parts) if parts else exp.true()


def _of(table: str, column: str) -> exp.Column:
    return exp.column(column, table=table)


def _same(node: exp.Expr, key: exp.Expr) -> bool:
    if isinstance(node, exp.Column) and isinstance(key, exp.Column):
        tables = {node.table.lower(), key.table.lower()} - {""}
        return _same_name(node.name, key.name) and len(tables) < 2
    return node == key


def _same_name(one: str, other: str) -> bool:
    return one.lower() == other.lower()


def _name(node: exp.Expr) -> str:
    """What the table store calls a column without a name."""
    if isinstance(node, exp.Column):
        return str(node.name)
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
        return "count_star()"
    return str(node.sql(dialect="duckdb")).lower()
