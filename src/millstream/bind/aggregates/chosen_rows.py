"""FILTER, DISTINCT and ORDER BY inside calls of aggregates that are not built in."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from millstream.bind.aggregates.calls import (
    WrittenCall,
    as_arguments,
    bind_builtin,
    depends_on_order,
    is_idempotent,
    where_true,
)
from millstream.bind.expressions import ExpressionBinder
from millstream.bind.programs import bind_program
from millstream.catalog import AggregateDef
from millstream.expressions.functions import array_of
from millstream.expressions.nested_codes import order_of
from millstream.expressions.nodes import Column, Expr
from millstream.library import LEAVE_OUT_NULLS
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.programs.facts import returns_one_row
from millstream.plan.programs.modes import Running
from millstream.plan.programs.nodes import (
    Delete,
    Insert,
    LocalTable,
    Order,
    Program,
    Range,
    Rows,
    ScalarQuery,
    Statement,
    parameter,
)
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import BOOLEAN

_KEPT, _CHOSEN = "kept", "chosen"


@dataclass(frozen=True)
class OwnAggregate:
    """The versions of an aggregate for a call, and its arguments, not yet of the types of the parameters."""

    base: Program | None
    window: Program | None
    args: tuple[Expr, ...]


def bind_own(call: WrittenCall, rows: ExpressionBinder, window: bool = False) -> OwnAggregate:
    """An aggregate written in SQL or Python; with `window`, its version for windows, too. A built-in one with ORDER BY
    is a program that calls it."""
    context = rows.context
    if not call.is_own and (ordered := in_order(call, bind_builtin(call, rows), rows)) is not None:
        return OwnAggregate(ordered[0], None, ordered[1])
    for argument in call.arguments:
        if isinstance(argument, exp.Star | exp.Distinct):
            context.fail(f"{call.name} takes values", argument)
    where = None if call.where is None else rows.condition(call.where)
    args = tuple(map(rows.bind, call.arguments))
    is_of_library = not context.catalog.has(call.fn, (AggregateDef,))
    with context.blaming(call.node):
        if is_of_library and call.fn == "array_agg" and args:
            array_of(args[0].type)
        found = [
            None if definition is None else bind_program(definition, tuple(arg.type for arg in args), context)
            for definition in (
                context.aggregate(call.fn, False),
                context.aggregate(call.fn, True) if window else None,
            )
        ]
    base, sliding = found
    if where is not None and is_of_library and call.fn in LEAVE_OUT_NULLS:
        args, where = (where_true(where, args[0]), *args[1:]), None
    chosen = _Chosen(
        call.distinct and not (is_of_library and is_idempotent(call)),
        where,
        _orders(call, rows) if not is_of_library or depends_on_order(call) else (),
    )
    if chosen.is_all:
        return OwnAggregate(base, sliding, args)
    if base is None or not base.is_blocking:
        word = "FILTER" if where is not None else "DISTINCT" if chosen.distinct else "ORDER BY"
        context.refuse(
            f"{word} with {call.name} is not supported",
            call.node,
            detail="it returns rows as they arrive, not at the end of a group"
            if base is not None
            else "it only has a window version",
            hint="filter the rows in a subquery" if where is not None else None,
        )
    args = as_arguments(args, base.parameters, call.node, context)
    called = AggregateCall.of_program(base, ())
    return OwnAggregate(_over(called, base.parameters, base.result, chosen), None, (*args, *chosen.arguments))


def in_order(
    call: WrittenCall, builtin: AggregateCall[Expr], rows: ExpressionBinder
) -> tuple[Program, tuple[Expr, ...]] | None:
    """The program and the arguments of a built-in aggregate with ORDER BY, or of one that FILTER cannot give NULLs to;
    None if those of the built-in will do."""
    is_edge = builtin.fn in ("first_value", "last_value")
    where = rows.condition(call.where) if is_edge and call.where is not None else None
    chosen = _Chosen(False, where, _orders(call, rows) if depends_on_order(call) else ())
    if chosen.is_all or not builtin.args:
        return None
    parameters = Schema(tuple(Field(name, arg.type) for name, arg in zip("xy", builtin.args, strict=False)))
    result = Schema.of(**{builtin.fn: builtin.type})
    return _over(builtin, parameters, result, chosen), (*builtin.args, *chosen.arguments)


@dataclass(frozen=True)
class _Chosen:
    """Which rows an aggregate sees, and in which order."""

    distinct: bool
    where: Expr | None
    orders: tuple[Order, ...]

    @property
    def is_all(self) -> bool:
        return not self.distinct and self.where is None and not self.orders

    @property
    def arguments(self) -> tuple[Expr, ...]:
        """What must be known of each row beside the arguments."""
        return (*(order.key for order in self.orders), *(() if self.where is None else (self.where,)))


def _orders(call: WrittenCall, rows: ExpressionBinder) -> tuple[Order, ...]:
    for order in call.order:
        if call.distinct and order.this not in call.arguments:
            rows.context.fail(
                f"{call.name} with DISTINCT can only be ordered by its argument",
                order,
                detail="equal values are merged and have no other column",
                hint="order by the argument itself",
            )
    return tuple(
        Order(order_of(rows.bind(order.this)), bool(order.args.get("desc")), bool(order.args.get("nulls_first")))
        for order in call.order
    )


def _over(called: AggregateCall[Expr], parameters: Schema, result: Schema, chosen: _Chosen) -> Program:
    """The program that calls an aggregate over the rows that are chosen: they are kept until the end, and then given to
    it in order. It has a parameter for each of `chosen.arguments` behind the aggregate's own."""
    names: list[str] = list(parameters.names)
    for kind in [*(["key"] * len(chosen.orders)), *(["wanted"] if chosen.where is not None else [])]:
        names.append(next(name for name in _numbered(kind) if name not in names))
    types = [*(field.type for field in parameters), *(order.key.type for order in chosen.orders)]
    kept = Schema(tuple(map(Field, names, types)))
    asked = tuple(parameter(field.type, field.name) for field in kept)
    wanted = None if chosen.where is None else parameter(BOOLEAN, names[-1])
    keep = (Insert(_KEPT, (Rows(asked, where=wanted),)),)
    tables = [LocalTable(_KEPT, kept)]
    terminate: list[Statement] = []
    if chosen.distinct or chosen.orders:
        tables.append(LocalTable(_CHOSEN, kept))
        columns = tuple(Column(field.type, f"{_KEPT}.{field.name}") for field in kept)
        keys = columns[len(parameters) :]
        orders = tuple(replace(order, key=key) for order, key in zip(chosen.orders, keys, strict=True))
        every = Rows(columns, (Range(_KEPT, _KEPT),), distinct=chosen.distinct, order=orders)
        # after each tuple of a running aggregate, the rows are chosen anew
        terminate += [Delete(Range(f"{_CHOSEN}#1", _CHOSEN)), Insert(_CHOSEN, (every,))]
    source = tables[-1].name
    alias = f"{source}#2"
    args = tuple(Column(field.type, f"{alias}.{field.name}") for field in parameters)
    value = replace(called, args=args).value
    whole = Rows((value,), (Range(alias, source),))
    program = called.program
    if program is not None and len(result) == 1 and returns_one_row(program, Running(total=True)):
        # of no rows it is NULL
        whole = Rows((ScalarQuery(value.type, whole),))
    asked_for = kept if wanted is None else Schema((*kept, Field(names[-1], BOOLEAN)))
    return Program(
        called.fn, asked_for, result, tuple(tables), None, keep, keep,
        terminate=(*terminate, Insert(None, (whole,))),
    )  # fmt: skip


def _numbered(kind: str) -> list[str]:
    return [kind, *(f"{kind}{i}" for i in range(2, 1_000))]
