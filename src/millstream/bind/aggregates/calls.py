"""Calls of aggregates as they are written → what they mean, the same wherever an aggregate may stand."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from sqlglot import exp

from millstream import library
from millstream.bind.context import Context
from millstream.bind.expressions import ExpressionBinder, call_of
from millstream.bind.queries.stars import star_of
from millstream.catalog import AggregateDef
from millstream.errors import BindError
from millstream.expressions import functions
from millstream.expressions.nested_codes import order_of
from millstream.expressions.nodes import Case, Expr, Literal
from millstream.plan import aggregates
from millstream.plan.aggregate_calls import AggregateCall
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import BOOLEAN, DOUBLE, NULL, SqlType

ANY = "any_value"
"""some value that is not NULL; which one, each place says"""

_SPELLINGS = {
    "first": "first_value",
    "last": "last_value",
    "listagg": "string_agg",
    "group_concat": "string_agg",
    "quantile_cont": "quantile",
    "list": "array_agg",
}
_OF_CONDITIONS = {"bool_and": "min", "every": "min", "bool_or": "max"}
_COLLECTING = {"collect_list": "array_agg(x)", "collect_set": "array_agg(DISTINCT x)"}
_SEPARATOR = ","
_MOST_OF_FRACTION = 6
_IN_FRACTION = f"with at most {_MOST_OF_FRACTION} of them after the point in sum and avg"

IN_ORDER = frozenset(("first_value", "last_value", "first_known", "last_known"))
"""built-in aggregates that depend on the order of rows"""

_ORDERLESS = frozenset(("median", "quantile", "welford_variance", "welford_stddev", *library.WIDE.values()))
_IDEMPOTENT = aggregates.BESIDE | {"min", "max", "wide_min", "wide_max", ANY}
"""aggregates to which it makes no difference how often a value comes"""


@dataclass(frozen=True)
class WrittenCall:
    """A call in the words of a query, before columns and types are known: a built-in aggregate or one written in SQL or
    Python, `fn`, and what is said of its rows. Binding makes an `AggregateCall` of it."""

    node: exp.Expr
    name: str
    fn: str
    arguments: tuple[exp.Expr, ...]
    is_own: bool
    distinct: bool = False
    order: tuple[exp.Ordered, ...] = ()
    where: exp.Expr | None = None
    of_conditions: bool = False

    @property
    def star(self) -> exp.Expr | None:
        """The star of count(*), or count(A.*) in a pattern."""
        only = self.arguments[0] if len(self.arguments) == 1 else None
        return only if only is not None and star_of(only) is not None else None


def aggregate_call(node: exp.Expr, context: Context, over: bool = False) -> WrittenCall | None:
    """What a node calls, with FILTER, WITHIN GROUP and IGNORE NULLS behind it; None if that is no aggregate. `over` a
    window, that may be one that is defined for windows only."""
    where: exp.Expr | None = None
    within: exp.Expr | None = None
    ignores_nulls = False
    call = node
    while isinstance(call, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        if isinstance(call, exp.Filter):
            where = call.expression.this
        elif isinstance(call, exp.WithinGroup):
            within = call.expression
        ignores_nulls = ignores_nulls or isinstance(call, exp.IgnoreNulls)
        call = call.this
    if not isinstance(call, exp.Func):
        return None
    name, arguments = call_of(call)
    catalog = context.catalog
    if catalog.function(name) is not None:
        return None
    versions = {False, over}
    is_defined = catalog.has(name, (AggregateDef,)) and any(context.aggregate(name, version) for version in versions)
    fn = name if is_defined else _SPELLINGS.get(name, name)
    is_own = any(context.aggregate(fn, version) for version in versions)
    if not is_own:
        fn = aggregates.canonical_name(fn) or fn
        if fn not in aggregates.NAMES and fn not in aggregates.SAID_OTHERWISE:
            return None
    found = _with_modifiers(WrittenCall(node, name, fn, (), is_own, where=where), arguments, within)
    if not is_defined:
        found = _meant(found, context)
    if ignores_nulls:
        if found.fn not in ("first_value", "last_value"):
            context.refuse("IGNORE NULLS is for first_value and last_value", node)
        found = replace(found, fn=found.fn.replace("_value", "_known"))
    return found


def _with_modifiers(call: WrittenCall, arguments: list[exp.Expression], within: exp.Expr | None) -> WrittenCall:
    """The call with DISTINCT and ORDER BY taken from its arguments."""
    args: list[exp.Expr] = list(arguments)
    orders: list[exp.Ordered] = [] if within is None else list(within.expressions)
    distinct = False
    if args and isinstance(args[-1], exp.Order):
        orders += args[-1].expressions
        args[-1] = args[-1].this
    if len(args) == 1 and isinstance(args[0], exp.Distinct):
        distinct, args = True, list(args[0].expressions)
    return replace(call, arguments=tuple(args), distinct=distinct, order=tuple(orders))


def _meant(call: WrittenCall, context: Context) -> WrittenCall:
    """The call in terms of the aggregates that there are."""
    args = call.arguments
    if call.fn in _COLLECTING:
        context.refuse(f"{call.name} is not supported", call.node, hint=f"{_COLLECTING[call.fn]} makes an array")
    if call.name in _OF_CONDITIONS:
        return replace(call, fn=_OF_CONDITIONS[call.name], of_conditions=True)
    if call.fn == "count_if":
        _check_one(call, context)
        if call.distinct:
            context.fail(f"{call.name} takes no DISTINCT", call.node, hint="count(DISTINCT x) FILTER (WHERE …)")
        where = args[0] if call.where is None else exp.and_(args[0], call.where)
        return replace(call, fn="count", arguments=(), where=where)
    if call.fn == "approx_count_distinct":
        _check_one(call, context)
        return replace(call, fn="count", distinct=True)
    if call.fn == "percentile_cont":
        return _quantile(call, context)
    if call.fn == "quantile" and len(args) == 2:
        _check_fraction(args[1], call, context)
    if call.fn == "string_agg" and len(args) == 1:
        return replace(call, arguments=(*args, exp.Literal.string(_SEPARATOR)))
    return call


def _quantile(call: WrittenCall, context: Context) -> WrittenCall:
    """percentile_cont(q) WITHIN GROUP (ORDER BY x) is the quantile of x, from the other end with DESC."""
    hint = "percentile_cont(0.5) WITHIN GROUP (ORDER BY x), or quantile_cont(x, 0.5)"
    if len(call.order) != 1 or len(call.arguments) != 1:
        context.fail("percentile_cont takes a fraction, and one column to order by", call.node, hint=hint)
    (fraction,), (by,) = call.arguments, call.order
    _check_fraction(fraction, call, context)
    if by.args.get("desc"):
        is_number = isinstance(fraction, exp.Literal)
        fraction = (
            exp.Literal.number(str(1 - Decimal(fraction.name)))
            if is_number
            else exp.Sub(this=exp.Literal.number("1"), expression=exp.Paren(this=fraction.copy()))
        )
    return replace(call, fn="quantile", is_own=True, arguments=(by.this, fraction), order=())


def _check_fraction(node: exp.Expr, call: WrittenCall, context: Context) -> None:
    number = node.this if isinstance(node, exp.Neg) else node
    is_number = isinstance(number, exp.Literal) and not number.is_string
    if is_number and (number is not node or Decimal(number.name) > 1):
        context.fail(f"{call.name} takes a fraction between 0 and 1", node, hint="0.5 is the median")


def _check_one(call: WrittenCall, context: Context) -> None:
    if call.star is not None:
        context.fail(f"{call.name} takes a value", call.star, hint="name a column")
    if len(call.arguments) != 1:
        context.fail(f"{call.name} takes one argument, got {len(call.arguments)}", call.node)


def _check_number(call: WrittenCall, context: Context) -> None:
    """A built-in aggregate takes one argument, or a value and what to compare."""
    if call.fn not in aggregates.BESIDE:
        _check_one(call, context)
    elif len(call.arguments) != 2:
        hint = f"{call.name}(x, y) is x where y is {'greatest' if call.fn == 'max_by' else 'least'}"
        context.fail(f"{call.name} takes 2 arguments, got {len(call.arguments)}", call.node, hint=hint)


def for_wide_values(call: WrittenCall, rows: ExpressionBinder) -> WrittenCall:
    """The call, by an aggregate of the library if its argument has more digits than a built-in one can hold."""
    if call.is_own or call.fn not in library.WIDE or len(call.arguments) != 1 or call.star is not None:
        return call
    if call.arguments[0].find(exp.Query) is not None:
        # what holds a query is bound once
        return call
    type_ = rows.bind(call.arguments[0]).type
    if not _is_wide(type_):
        return call
    value = call.arguments[0]
    if call.fn in ("sum", "avg"):
        # beyond these Spark would drop digits of the fraction when it adds
        if type_.scale > _MOST_OF_FRACTION:
            return call
        value = exp.Cast(this=value.copy(), to=exp.DataType.build(f"DECIMAL(38, {type_.scale})"))
    return replace(call, fn=library.WIDE[call.fn], is_own=True, arguments=(value,))


def _is_wide(type_: SqlType) -> bool:
    return type_.name == "DECIMAL" and type_.precision > aggregates.MOST_DIGITS


def is_idempotent(call: WrittenCall) -> bool:
    """Whether DISTINCT says nothing."""
    return call.fn in _IDEMPOTENT


def depends_on_order(call: WrittenCall) -> bool:
    """Whether ORDER BY says something."""
    return call.fn not in _ORDERLESS if call.is_own else call.fn in (*IN_ORDER, *aggregates.BESIDE, ANY)


def bind_builtin(call: WrittenCall, rows: ExpressionBinder, any_value: str = "first_known") -> AggregateCall[Expr]:
    """A built-in aggregate, of which FILTER makes NULLs of the values that do not count.

    `any_value` is the aggregate that gives some value here.
    """
    context = rows.context
    fn = any_value if call.fn == ANY else call.fn
    is_edge = fn in ("first_value", "last_value")
    where = None if call.where is None or is_edge else rows.condition(call.where)
    args: tuple[Expr, ...] = ()
    if fn != "count" or (call.arguments and call.star is None):
        _check_number(call, context)
        args = tuple(map(rows.bind, call.arguments))
        if call.of_conditions and args[0].type not in (BOOLEAN, NULL):
            context.fail(
                f"{call.name} takes a condition, not {args[0].type}",
                call.arguments[0],
                hint=f"{call.name}(… > 0)" if args[0].type.is_numeric else f"compare it: {call.name}(… = …)",
            )
    if args and _is_wide(args[0].type) and fn in aggregates.SPREADS:
        args = (functions.cast(args[0], DOUBLE),)
    if where is not None:
        first, *more = args or (Literal(BOOLEAN, True),)
        args = (where_true(where, first), *more)
    if args and args[-1].type.is_nested and fn in ("min", "max", *aggregates.BESIDE):
        fn = fn.removesuffix("_by") + "_by"
        args = (args[0], order_of(args[-1]))
    distinct = call.distinct and bool(args) and not is_idempotent(call)
    if distinct and fn == "count":
        args = (order_of(args[0]), *args[1:])
    if distinct and call.fn in IN_ORDER:
        context.fail(f"{call.name} takes no DISTINCT", call.node, hint="leave DISTINCT out")
    type_ = aggregates.result_type(fn, distinct, *(arg.type for arg in args))
    if type_ is None:
        hint = None
        if any(_is_wide(arg.type) for arg in args):
            hint = f"cast it to BIGINT or DOUBLE; more than 18 digits are for {', '.join(library.WIDE)}, {_IN_FRACTION}"
        elif args and args[0].type.is_nested:
            hint = "aggregate an element or a field of it, or count it"
        whose = args[0].type if args else "rows"
        context.fail(f"{call.name} does not apply to {whose}", call.node, hint=hint)
    return AggregateCall((fn,), fn, args, (type_,), distinct)


def where_true(condition: Expr, value: Expr) -> Expr:
    """The value where a condition is true, else NULL."""
    return Case(value.type, ((condition, value),), Literal(value.type, None))


def as_arguments(args: tuple[Expr, ...], parameters: Schema, node: exp.Expr, context: Context) -> tuple[Expr, ...]:
    """The arguments of a call as values of its parameters' types."""
    with context.blaming(node):
        return tuple(_as_argument(arg, field) for arg, field in zip(args, parameters, strict=True))


def _as_argument(arg: Expr, parameter: Field) -> Expr:
    """An argument as a value of its parameter's type: numbers become other numbers, text does not become one."""
    if arg.type.is_text and not parameter.type.is_text and not isinstance(arg, Literal):
        raise BindError(f"{parameter.name} is {parameter.type}, not {arg.type}", hint=f"CAST(… AS {parameter.type})")
    return functions.cast(arg, parameter.type)
