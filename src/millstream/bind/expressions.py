"""Scalar SQL expressions → typed expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import NoReturn

from sqlglot import exp

from millstream import library, limits
from millstream.bind.context import Context
from millstream.bind.nested import bind_type, packed, split_path
from millstream.bind.patterns.outside import refuse_outside
from millstream.bind.scope import Scope
from millstream.errors import BindError
from millstream.expressions import functions
from millstream.expressions.functions.literals import fits
from millstream.expressions.nodes import Case, Cast, Column, Expr, Literal, Parameter
from millstream.expressions.python_calls import PythonCall
from millstream.plan import aggregates
from millstream.plan.window_tables import END
from millstream.sql import duration_us, to_sql
from millstream.sql.durations import months_and_us
from millstream.sql.functions import function_name
from millstream.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    INTERVAL,
    NULL,
    VARCHAR,
    SqlType,
    common_type,
)

OPERATORS: dict[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.And: "and", exp.Or: "or",
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.IntDiv: "//", exp.Mod: "%", exp.DPipe: "||",
    exp.NullSafeNEQ: "is_distinct",
}  # fmt: skip

MAX_NESTED_FUNCTIONS = 64


class ExpressionBinder:
    """Binds the expressions of one SELECT. `window` binds `… OVER (…)` and is None where that may not stand."""

    def __init__(
        self,
        context: Context,
        scope: Scope | None,
        window: Callable[[exp.Window, ExpressionBinder], Expr] | None = None,
        parameters: dict[str, Expr] | None = None,
        depth: int = 0,
    ) -> None:
        self.context = context
        self.scope = scope
        self.window = window
        self.parameters = parameters or {}
        self.depth = depth
        self.subquery: Callable[[exp.Expr, ExpressionBinder], Expr] | None = None
        """binds a query that stands for a value, or what asks for its rows; None where that may not stand"""

    def bind(self, node: exp.Expr) -> Expr:
        """The typed expression of `node`."""
        if self.subquery is not None and asks_query(node):
            return self.subquery(node, self)
        operator = OPERATORS.get(type(node))
        if isinstance(node, exp.Add | exp.Sub) and (later := self._months_later(node)) is not None:
            return later
        if operator is not None:
            return self._resolve(operator, (self.bind(node.this), self.bind(node.expression)), node)
        match node:
            case exp.Paren():
                return self.bind(node.this)
            case exp.Column():
                column, path = split_path(node, self.scope)
                return self._fields(self._column(column), path, node)
            case exp.Dot() if isinstance(node.expression, exp.Identifier):
                return self._fields(self.bind(node.this), [node.expression], node)
            case exp.Literal() | exp.Null() | exp.Boolean() | exp.Interval():
                return self._literal(node)
            case exp.Neg():
                return self._negate(node)
            case exp.Not():
                return self._resolve("not", (self.bind(node.this),), node)
            case exp.Is():
                return self._is(node)
            case exp.NullSafeEQ():
                args = (self.bind(node.this), self.bind(node.expression))
                return self._resolve("not", (self._resolve("is_distinct", args, node),), node)
            case exp.Between():
                value, low, high = (self.bind(node.args[key]) for key in ("this", "low", "high"))
                above = self._resolve(">=", (value, low), node)
                return self._resolve("and", (above, self._resolve("<=", (value, high), node)), node)
            case exp.In():
                return self._in(node)
            case exp.Like() | exp.ILike():
                return self._like(node, ())
            case exp.Escape():
                return self._like(node.this, (self.bind(node.expression),))
            case exp.Case():
                return self._case(node)
            case exp.Cast():
                return self._cast(node)
            case exp.Window():
                if self.window is None:
                    self.context.refuse("OVER is not allowed here", node, hint="use it in the select list")
                return in_words(self.window(node, self), node)
            case exp.Subquery() | exp.Exists() | exp.Select() | exp.Any() | exp.All():
                self._refuse_subquery(node)
            case exp.Func():
                return self._call(node)
            case exp.AtTimeZone():
                return self._resolve("timezone", (self.bind(node.args["zone"]), self.bind(node.this)), node)
            case exp.Filter() | exp.WithinGroup():
                self.bind(node.this)
                word = "FILTER" if isinstance(node, exp.Filter) else "WITHIN GROUP"
                self.context.fail(f"{word} needs an aggregate before it", node)
        return self.context.fail(f"{to_sql(node)[:60]} cannot be used here", node)

    def several(self, node: exp.Expr) -> list[tuple[str, Expr]] | None:
        """The columns of a node that stands alone in a select list and may have several; None for all others."""
        return None

    def condition(self, node: exp.Expr) -> Expr:
        """A bound expression that is true, false or NULL."""
        bound = self.bind(node)
        if bound.type == NULL:
            return Literal(BOOLEAN, None)
        if bound.type != BOOLEAN:
            self.context.fail(f"a condition is needed here, not {bound.type}", node)
        return bound

    def _column(self, node: exp.Column) -> Expr:
        if not node.table and node.name.lower() in self.parameters:
            return self.parameters[node.name.lower()]
        if not node.table and node.name.startswith("$") and node.name[1:] in self.context.parameters:
            return Parameter(self.context.parameters[node.name[1:]], node.name[1:])
        if self.scope is None:
            self.context.fail(f"no column {node.sql()}", node, hint="there is no FROM clause")
        if node.name.lower() == "window_time" and self.scope.knows(END) and not self.scope.knows(node.name):
            return self._window_time(node, self.scope)
        return self.scope.resolve(node)

    def _window_time(self, node: exp.Column, scope: Scope) -> Expr:
        """The last moment of a window, as Flink has it: a millisecond before its end, or 1 where times are numbers."""
        column = node.copy()
        column.set("this", exp.to_identifier(END))
        end = scope.resolve(column)
        length = Literal(BIGINT, 1) if end.type.is_integer else Literal(INTERVAL, 1000)
        return self._resolve("-", (end, length), node)

    def _fields(self, value: Expr, path: Sequence[exp.Expr], node: exp.Expr) -> Expr:
        """The field of a struct that a path of names leads to."""
        with self.context.blaming(node):
            for name in path:
                value = functions.field(value, name.name)
        return value

    def _literal(self, node: exp.Expr) -> Expr:
        match node:
            case exp.Null():
                return Literal(NULL, None)
            case exp.Boolean():
                return Literal(BOOLEAN, bool(node.this))
            case exp.Interval():
                length = duration_us(node)
                if length is None:
                    self.context.fail(
                        f"{node.sql()} has no fixed length",
                        node,
                        hint="use weeks, days or smaller units; ts + INTERVAL 1 MONTH adds months to a time",
                    )
                if not fits(length, BIGINT):
                    self.context.fail(
                        f"{node.sql()} is longer than an INTERVAL can be",
                        node,
                        hint="the longest is about 292,000 years",
                    )
                return Literal(INTERVAL, length)
        if node.args.get("is_string"):
            return Literal(VARCHAR, node.this)
        return number(str(node.this))

    def _negate(self, node: exp.Neg) -> Expr:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return number("-" + str(node.this.this))
        return self._resolve("neg", (self.bind(node.this),), node)

    def _months_later(self, node: exp.Add | exp.Sub) -> Expr | None:
        """A time plus or minus an interval of months, by the calendar; None for other sums."""
        time, span = node.this, months_and_us(node.expression)
        if span is None and isinstance(node, exp.Add):
            time, span = node.expression, months_and_us(node.this)
        if span is None:
            return None
        months, micros = span if isinstance(node, exp.Add) else (-span[0], -span[1])
        moved = self._resolve("add_months", (self.bind(time), Literal(BIGINT, months)), node)
        return self._resolve("+", (moved, Literal(INTERVAL, micros)), node) if micros else moved

    def _is(self, node: exp.Is) -> Expr:
        value = self.bind(node.this)
        if isinstance(node.expression, exp.Null):
            return self._resolve("is_null", (value,), node)
        if isinstance(node.expression, exp.Boolean):
            same = self._resolve("is_distinct", (value, self.bind(node.expression)), node)
            return self._resolve("not", (same,), node)
        return self.context.fail("IS takes NULL, TRUE or FALSE", node)

    def _in(self, node: exp.In) -> Expr:
        if node.args.get("query") is not None or node.args.get("unnest") is not None:
            self._refuse_subquery(node)
        return self._resolve("in", (self.bind(node.this), *map(self.bind, node.expressions)), node)

    def _refuse_subquery(self, node: exp.Expr) -> NoReturn:
        self.context.refuse(
            "a subquery is not allowed here",
            node,
            hint="compute it in a query in FROM: SELECT … FROM (SELECT *, (SELECT …) AS x FROM …)",
        )

    def _like(self, node: exp.Expr, escape: tuple[Expr, ...]) -> Expr:
        args = (self.bind(node.this), self.bind(node.expression), *escape)
        like = self._resolve("ilike" if isinstance(node, exp.ILike) else "like", args, node)
        return self._resolve("not", (like,), node) if node.args.get("negate") else like

    def _case(self, node: exp.Case) -> Expr:
        subject = None if node.this is None else self.bind(node.this)
        whens: list[tuple[Expr, Expr]] = []
        for arm in node.args["ifs"]:
            if subject is None:
                test = self.condition(arm.this)
            else:
                test = self._resolve("=", (subject, self.bind(arm.this)), arm)
            whens.append((test, self.bind(arm.args["true"])))
        default_node = node.args.get("default")
        default = Literal(NULL, None) if default_node is None else self.bind(default_node)
        type_ = self._common([then for _, then in whens] + [default], node)
        return Case(type_, tuple((when, coerce(then, type_)) for when, then in whens), coerce(default, type_))

    def _common(self, parts: list[Expr], node: exp.Expr) -> SqlType:
        type_ = NULL
        for part in parts:
            wider = common_type(type_, part.type)
            if wider is None:
                self.context.fail(f"{type_} and {part.type} have no common type", node, hint="CAST one of them")
            type_ = wider
        return type_

    def _cast(self, node: exp.Cast) -> Expr:
        target = bind_type(self.context, node.args["to"])
        arg = self.bind(node.this)
        with self.context.blaming(node):
            return functions.cast(arg, target, safe=isinstance(node, exp.TryCast))

    def _call(self, node: exp.Func) -> Expr:
        name, arguments = call_of(node)
        fn = aggregates.canonical_name(name)
        is_aggregate = fn is not None or name in aggregates.SAID_OTHERWISE
        if (
            is_aggregate
            and len(arguments) <= (2 if fn in aggregates.BESIDE else 1)
            and self.context.catalog.function(name) is None
        ):
            self.context.refuse(
                f"{name} over a whole stream never ends",
                node,
                detail="an aggregate without a window needs the last row, and a stream has none",
                hint=f"give it a window: {name}(…) OVER (ROWS UNBOUNDED PRECEDING) or OVER (RANGE 1 HOUR PRECEDING)",
            )
        if any(isinstance(argument, exp.Star) for argument in arguments):
            self.context.fail(f"no function {name}(*)", node, hint="use count(*) to count rows")
        if name == "struct_pack":
            return packed(node, self.bind, self.context)
        definition = self.context.catalog.function(name)
        args = tuple(self.bind(argument) for argument in arguments)
        if definition is None:
            refuse_outside(name, node, self.context)
            return self._resolve(name, args, node)
        if definition.is_table:
            self.context.fail(f"{definition.name} returns a table", node, hint=f"call it in FROM: FROM {name}(…)")
        if len(args) != len(definition.parameters):
            self.context.fail(f"{definition.name} takes {len(definition.parameters)} arguments, got {len(args)}", node)
        if self.depth >= MAX_NESTED_FUNCTIONS:
            self.context.fail(f"{definition.name} calls itself endlessly", node)
        with self.context.blaming(node):
            bound = {
                parameter.lower(): functions.cast(arg, type_)
                for (parameter, type_), arg in zip(definition.parameters, args, strict=True)
            }
            if definition.python is not None and definition.returns is not None:
                called = f"python {definition.python.digest}"
                return PythonCall(definition.returns, called, tuple(bound.values()), code=definition.python)
            assert definition.body is not None
            # functions that call others twice double the work with each level
            limits.check()
            inner = ExpressionBinder(self.context, None, None, bound, self.depth + 1)
            body = inner.bind(definition.body)
            return body if definition.returns is None else functions.cast(body, definition.returns)

    def _resolve(self, name: str, args: tuple[Expr, ...], node: exp.Expr) -> Expr:
        is_ours = aggregates.canonical_name(name) is not None or name in library.TOPICS
        if functions.lookup(name) is None and not is_ours and (hint := functions.other_aggregate(name)) is not None:
            self.context.fail(f"there is no aggregate {name} over streams", node, hint=hint)
        with self.context.blaming(node):
            return functions.resolve(name, args)


def asks_query(node: exp.Expr) -> bool:
    """Whether a node is a query that stands for a value, or EXISTS, IN, ANY or ALL of one."""
    match node:
        case exp.Subquery() | exp.Exists():
            return True
        case exp.In():
            return node.args.get("query") is not None
        case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            return isinstance(node.expression, exp.Any | exp.All) and node.expression.find(exp.Query) is not None
    return False


def in_words(expr: Expr, node: exp.Expr) -> Expr:
    """What was bound; a column with a name of the engine's own is known to errors as `node` writes it."""
    if isinstance(expr, Column) and expr.name.startswith("$"):
        return replace(expr, said=to_sql(node))
    return expr


def call_of(node: exp.Func) -> tuple[str, list[exp.Expression]]:
    """The lower-case name and the arguments of a function call as it was written, whatever sqlglot made of it."""
    name = function_name(node).lower()
    match node:
        case exp.Anonymous():
            return name, list(node.expressions)
        case exp.Extract():
            return "date_part", [exp.Literal.string(node.this.name.lower()), node.expression]
        case exp.TimestampTrunc() | exp.DateTrunc():
            return name, [exp.Literal.string(node.text("unit").lower()), node.this]
        case exp.DateDiff():
            return name, [exp.Literal.string(node.text("unit").lower()), node.expression, node.this]
        case exp.Log() if name in ("log2", "log10"):
            return name, [node.expression]
        case exp.StrPosition():
            name = "strpos"
        case exp.Trim():
            name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position")).upper(), "trim")
    arguments: list[exp.Expression] = []
    for key in node.arg_types:
        value = node.args.get(key)
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, exp.Expression):
                arguments.append(part)
    return name, arguments


def number(text: str) -> Literal:
    """A numeric literal: INTEGER or BIGINT if it is whole and fits, else DOUBLE."""
    if text.lstrip("-").isdigit():
        value = int(text)
        if -(2**31) <= value < 2**31:
            return Literal(INTEGER, value)
        if -(2**63) <= value < 2**63:
            return Literal(BIGINT, value)
    try:
        return Literal(DOUBLE, float(Decimal(text)))
    except ArithmeticError:
        raise BindError(f"{text} is not a number") from None


def coerce(expr: Expr, type_: SqlType) -> Expr:
    """The expression converted to a type it is known to convert to."""
    if expr.type == type_:
        return expr
    if isinstance(expr, Literal) and expr.value is None:
        return Literal(type_, None)
    return Cast(type_, expr)
