"""The source form of each function, operator and cast that kernels can compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.expressions.functions.numeric import round_digits
from millstream.expressions.kernel.forms import Form, SourceScope, Truth, Value, and_, choose, not_, or_, zero
from millstream.expressions.nodes import Call, Cast, Expr, Literal
from millstream.types import DOUBLE, SqlType, integer_bounds

_DAY = 86_400_000_000
_UNITS = {
    "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000, "day": _DAY,
}  # fmt: skip


Maker = Callable[[Call, Sequence[Value], SourceScope], Form | None]


def case(type_: SqlType, whens: Sequence[tuple[Form | None, Form | None]], default: Form | None) -> Form | None:
    """CASE: the first arm whose condition is true."""
    if default is None:
        return None
    result: Form = default
    for when, then in reversed(whens):
        if when is None or then is None:
            return None
        condition = when.as_truth().true
        if type_.name == "BOOLEAN":
            yes, no = then.as_truth(), result.as_truth()
            result = Truth(choose(condition, yes.true, no.true), choose(condition, yes.false, no.false))
        else:
            first, rest = then.as_value(), result.as_value()
            value, null = choose(condition, first.value, rest.value), choose(condition, first.null, rest.null)
            result = Value(type_, value, null)
    return result


def cast(expr: Cast, arg: Form | None, scope: SourceScope) -> Form | None:
    """A conversion between fixed-width types."""
    if arg is None:
        return None
    source, target, given = expr.arg.type, expr.type, arg.as_value()
    x, null = given.value, given.null
    if source.base == target:
        return arg
    if "DECIMAL" in (source.name, target.name) or source.is_coded or target.is_coded:
        return None
    if target.name == "BOOLEAN":
        return Value(target, f"({x} != 0)", null)
    if target == DOUBLE:
        return Value(target, f"float({x})", null)
    if source.name == "BOOLEAN":
        return Value(target, f"int({x})", null)
    if target.is_integer:
        least, most = _bounds(target)
        if source == DOUBLE:
            bounds = (float(least), float(most + 1))
            if expr.safe:
                null = or_(null, not_(scope.call("k_fits", x, *bounds)))
            return Value(target, scope.call("k_to_integer", x, *bounds), null)
        if least <= _bounds(source)[0] and _bounds(source)[1] <= most:
            return Value(target, x, null)
        if expr.safe:
            return Value(target, x, or_(null, not_(f"({least} <= {x} <= {most})")))
        return Value(target, scope.call("k_in_range", x, least, most), null)
    kinds = (source.name, target.name)
    if kinds in (("TIMESTAMP", "TIMESTAMPTZ"), ("TIMESTAMPTZ", "TIMESTAMP")):
        return Value(target, x, null)
    if source.name == "DATE":
        return Value(target, scope.call("k_multiply", x, _DAY), null)
    return Value(target, f"({x} {'//' if target.name == 'DATE' else '%'} {_DAY})", null)


def _bounds(type_: SqlType) -> tuple[int, int]:
    return integer_bounds(type_) or (-(2**31), 2**31 - 1)  # a DATE


def call(expr: Call, args: Sequence[Form], scope: SourceScope) -> Form | None:
    """A function or operator."""
    if expr.fn == "is_null":
        null = args[0].as_value().null
        return Truth(null, not_(null))
    if any(arg.type.is_coded or arg.type.name == "NULL" for arg in expr.args):
        coded = [i for i, arg in enumerate(expr.args) if arg.type.is_coded]
        if expr.fn != "date_trunc" or coded != [0]:
            return None
    if any(arg.type.name == "DECIMAL" and arg.type.precision > 18 for arg in expr.args):
        return None
    match expr.fn:
        case "and":
            left, right = (arg.as_truth() for arg in args)
            return Truth(and_(left.true, right.true), or_(left.false, right.false))
        case "or":
            left, right = (arg.as_truth() for arg in args)
            return Truth(or_(left.true, right.true), and_(left.false, right.false))
        case "not":
            truth = args[0].as_truth()
            return Truth(truth.false, truth.true)
    maker = MAKERS.get(expr.fn)
    return maker(expr, [arg.as_value() for arg in args], scope) if maker else None


def _compared(symbol: str, type_: SqlType, x: str, y: str, scope: SourceScope) -> str:
    """The text of a comparison of values that are not NULL."""
    if type_ != DOUBLE:
        return f"({x} {'==' if symbol == '=' else '!=' if symbol == '<>' else symbol} {y})"
    match symbol:
        case "=" | "<>":
            same = scope.call("k_equal", x, y)
            return same if symbol == "=" else not_(same)
        case "<" | ">=":
            less = scope.call("k_less", x, y)
            return less if symbol == "<" else not_(less)
    more = scope.call("k_less", y, x)
    return more if symbol == ">" else not_(more)


def _comparison(expr: Call, args: Sequence[Value], scope: SourceScope) -> Form:
    a, b = args
    holds = _compared(expr.fn, a.type, a.value, b.value, scope)
    null = or_(a.null, b.null)
    return Truth(and_(not_(null), holds), and_(not_(null), not_(holds)))


def _is_distinct(expr: Call, args: Sequence[Value], scope: SourceScope) -> Form:
    a, b = args
    both_null = and_(a.null, b.null)
    same = and_(not_(a.null), not_(b.null), _compared("=", a.type, a.value, b.value, scope))
    return Truth(not_(or_(both_null, same)), or_(both_null, same))


def _in(expr: Call, args: Sequence[Value], scope: SourceScope) -> Form:
    subject, *items = args
    present = [item for item in items if item.null != "True"]
    found = or_(*(and_(not_(i.null), _compared("=", i.type, subject.value, i.value, scope)) for i in present))
    known = and_(*(not_(item.null) for item in items))
    valid = not_(subject.null)
    return Truth(and_(valid, found), and_(valid, not_(found), known))


def _arithmetic(helper: str, symbol: str) -> Maker:
    def make(expr: Call, args: Sequence[Value], scope: SourceScope) -> Form | None:
        a, b = args
        null = or_(a.null, b.null)
        if expr.type == DOUBLE:
            return Value(DOUBLE, f"({a.value} {symbol} {b.value})", null)
        if expr.type.name == "DECIMAL":
            return None
        if all(map(_is_narrow, expr.args)):
            # 32 bits and 32 bits always make less than 64.
            return Value(expr.type, f"({a.value} {symbol} {b.value})", null)
        value = scope.call(helper, a.value, b.value)
        if expr.type.name == "DATE":
            value = scope.call("k_in_range", value, -(2**31), 2**31 - 1)
        return Value(expr.type, value, null)

    return make


def _is_narrow(expr: Expr) -> bool:
    """Whether an integer surely fits 32 bits."""
    if isinstance(expr, Literal):
        return isinstance(expr.value, int) and -(2**31) <= expr.value < 2**31
    source = expr.arg.type if isinstance(expr, Cast) else expr.type
    return source.name in ("TINYINT", "SMALLINT", "INTEGER")


def _division(integer: str | None, double: Callable[[str, str], str]) -> Maker:
    def make(expr: Call, args: Sequence[Value], scope: SourceScope) -> Form | None:
        a, b = args
        if expr.type.name == "DECIMAL":
            return None
        value = double(a.value, b.value) if expr.type == DOUBLE else scope.call(integer or "", a.value, b.value)
        divisor = expr.args[1]
        by_zero = "False" if isinstance(divisor, Literal) and divisor.value else f"({b.value} == 0)"
        return Value(expr.type, value, or_(a.null, b.null, by_zero))

    return make


def _unary(double: Callable[[str], str], integer: str | None = None) -> Maker:
    """A function of one number, by a form for DOUBLE and a helper for integers."""

    def make(expr: Call, args: Sequence[Value], scope: SourceScope) -> Form | None:
        (a,) = args
        if a.type == DOUBLE:
            return Value(expr.type, double(a.value), a.null)
        if integer is None or a.type.name == "DECIMAL":
            return None
        value = scope.call(integer, a.value)
        if a.type.name in ("TINYINT", "SMALLINT", "INTEGER") and expr.type == a.type:
            value = scope.call("k_in_range", value, *_bounds(a.type))
        return Value(expr.type, value, a.null)

    return make


def _predicate(form: str) -> Maker:
    def make(expr: Call, args: Sequence[Value], scope: SourceScope) -> Form:
        holds = form.format(args[0].value)
        return Truth(and_(not_(args[0].null), holds), and_(not_(args[0].null), not_(holds)))

    return make


def _round(expr: Call, args: Sequence[Value], scope: SourceScope) -> Form | None:
    if expr.type != DOUBLE:
        return None
    a, digits = args[0], round_digits(expr)
    if digits == 0:
        return Value(DOUBLE, scope.call("k_round", a.value), a.null)
    helper = "k_round_to" if digits > 0 else "k_round_off"
    return Value(DOUBLE, scope.call(helper, a.value, repr(float(10 ** abs(digits)))), a.null)


def _total(expr: Call, args: Sequence[Value], scope: SourceScope) -> Form | None:
    high, low, *_ = args
    least, most = (1 - 10**18, 10**18 - 1) if expr.type.name == "DECIMAL" else _bounds(expr.type)
    return Value(expr.type, scope.call("k_total", high.value, low.value, least, most), or_(high.null, low.null))


def _sign(expr: Call, args: Sequence[Value], scope: SourceScope) -> Form:
    return Value(expr.type, scope.call("k_sign", args[0].value), args[0].null)


def _power(expr: Call, args: Sequence[Value], scope: SourceScope) -> Form:
    a, b = args
    return Value(DOUBLE, f"np.power({a.value}, {b.value})", or_(a.null, b.null))


def _extreme(helper: str) -> Maker:
    def make(expr: Call, args: Sequence[Value], scope: SourceScope) -> Form:
        best, *others = args
        for other in others:
            parts = [(choose(one.null, zero(one.type), one.value), one.null) for one in (best, other)]
            best = Value(expr.type, scope.call(helper, *parts[0], *parts[1]), and_(best.null, other.null))
        return best

    return make


def _coalesce(expr: Call, args: Sequence[Value], scope: SourceScope) -> Form:
    value = args[-1].value
    for arg in reversed(args[:-1]):
        value = choose(arg.null, value, arg.value)
    return Value(expr.type, value, and_(*(arg.null for arg in args)))


def _nullif(expr: Call, args: Sequence[Value], scope: SourceScope) -> Form:
    a, b = args
    same = and_(not_(b.null), _compared("=", a.type, a.value, b.value, scope))
    return Value(expr.type, a.value, or_(a.null, same))


def _clock(form: str) -> Maker:
    """A part of the time of day, from µs since the epoch or since midnight."""
    return lambda expr, args, scope: Value(expr.type, f"({form.format(args[0].value)})", args[0].null)


def _calendar(make: Callable[[str, SourceScope], str]) -> Maker:
    """A part of the date, from the day."""

    def maker(expr: Call, args: Sequence[Value], scope: SourceScope) -> Form:
        day = args[0].value if args[0].type.name == "DATE" else f"({args[0].value} // {_DAY})"
        return Value(expr.type, make(day, scope), args[0].null)

    return maker


def _date_trunc(expr: Call, args: Sequence[Value], scope: SourceScope) -> Form | None:
    unit, x = expr.args[0], args[1]
    name = unit.value if isinstance(unit, Literal) else None
    if name == "microsecond":
        return x
    if name == "week":
        # The epoch was a Thursday, three days into its week.
        return Value(expr.type, f"(({x.value} + {3 * _DAY}) // {7 * _DAY} * {7 * _DAY} - {3 * _DAY})", x.null)
    micros = _UNITS.get(str(name))
    return None if micros is None else Value(expr.type, f"({x.value} // {micros} * {micros})", x.null)


def _to_timestamp(expr: Call, args: Sequence[Value], scope: SourceScope) -> Form:
    rounded = scope.call("k_round", f"{args[0].value} * 1e6")
    return Value(expr.type, scope.call("k_to_integer", rounded, -(2.0**63), 2.0**63), args[0].null)


MAKERS: dict[str, Maker] = {
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">="), _comparison),
    "is_distinct": _is_distinct,
    "in": _in,
    "+": _arithmetic("k_add", "+"),
    "-": _arithmetic("k_subtract", "-"),
    "*": _arithmetic("k_multiply", "*"),
    "/": _division(None, lambda a, b: f"({a} / {b})"),
    "//": _division("k_divide", lambda a, b: f"np.trunc({a} / {b})"),
    "%": _division("k_modulo", lambda a, b: f"np.fmod({a}, {b})"),
    "neg": _unary(lambda x: f"(-{x})", "k_negate"),
    "abs": _unary(lambda x: f"abs({x})", "k_absolute"),
    "ceil": _unary(lambda x: f"np.ceil({x})"),
    "floor": _unary(lambda x: f"np.floor({x})"),
    "trunc": _unary(lambda x: f"np.trunc({x})"),
    "round": _round,
    "sign": _sign,
    "sqrt": _unary(lambda x: f"np.sqrt({x})"),
    "exp": _unary(lambda x: f"np.exp({x})"),
    "ln": _unary(lambda x: f"np.log({x})"),
    "log10": _unary(lambda x: f"np.log10({x})"),
    "log2": _unary(lambda x: f"np.log2({x})"),
    "power": _power,
    "isnan": _predicate("({0} != {0})"),
    "isinf": _predicate("(abs({0}) == np.inf)"),
    "isfinite": _predicate("(abs({0}) < np.inf)"),
    "greatest": _extreme("k_greatest"),
    "least": _extreme("k_least"),
    "coalesce": _coalesce,
    "nullif": _nullif,
    "hour": _clock("{0} // 3600000000 % 24"),
    "minute": _clock("{0} // 60000000 % 60"),
    "second": _clock("{0} // 1000000 % 60"),
    "millisecond": _clock("{0} % 60000000 // 1000"),
    "microsecond": _clock("{0} % 60000000"),
    "$total": _total,
    "year": _calendar(lambda day, scope: scope.call("k_year", day)),
    "month": _calendar(lambda day, scope: scope.call("k_month", day)),
    "quarter": _calendar(lambda day, scope: f"(({scope.call('k_month', day)} + 2) // 3)"),
    "day": _calendar(lambda day, scope: scope.call("k_day", day)),
    "dayofweek": _calendar(lambda day, scope: f"(({day} + 4) % 7)"),
    "isodow": _calendar(lambda day, scope: f"(({day} + 3) % 7 + 1)"),
    "date_trunc": _date_trunc,
    "epoch": _clock("{0} / 1e6"),
    "epoch_ms": _clock("{0} // 1000"),
    "epoch_us": _clock("{0}"),
    "to_timestamp": _to_timestamp,
    "make_timestamp": _clock("{0}"),
}
