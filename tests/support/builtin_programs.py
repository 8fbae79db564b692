"""The built-in aggregates as programs, as plans of earlier versions have them: a second opinion, and programs to try
engines with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.expressions.functions import cast
from millstream.expressions.nodes import Case, Column, Expr, Literal
from millstream.plan.programs.builder import Builder, Use, call, every
from millstream.plan.programs.nodes import Exists, Program, Rows, Statement
from millstream.schema import Field, Schema
from millstream.types import BIGINT, BOOLEAN, DECIMAL, DOUBLE, SqlType

_STATE, _SEEN = "state", "seen"
_HALF = Literal(BIGINT, 2**32)


def builtin_program(fn: str, arg: SqlType | None, type_: SqlType, distinct: bool = False) -> Program:
    """The program of a built-in aggregate over an argument (None: count(*)), whose result is of a type.

    NULLs count only for first_value and last_value. With `distinct`, each value counts once.
    """
    parameters = Schema(()) if arg is None else Schema.of(x=arg)
    make = _spread if fn.startswith(("var_", "stddev_")) else _MAKERS[fn]
    return make(_Maker(fn, parameters, Schema.of(**{fn: type_}), distinct))


class _Maker:
    """Writes the program of one aggregate: a state of one row, changed by every value that counts."""

    def __init__(self, fn: str, parameters: Schema, result: Schema, distinct: bool) -> None:
        self.fn, self.parameters, self.result, self.distinct = fn, parameters, result, distinct
        self.type = result.fields[0].type

    def program(self, state: Schema, first: Sequence[Expr], then: Callable[[Use, Expr], dict[str, Expr]],
                result: Callable[[Use], Expr]) -> Program:  # fmt: skip
        """`first` is the state after the first tuple, `then` what later values change, `result` what it comes to."""
        tables = {_STATE: state, **({_SEEN: self.parameters} if self.distinct else {})}
        b = Builder(self.fn, self.parameters, self.result, None, **tables)
        use = b.use(_STATE)
        known = _not_null(self.x) if len(self.parameters) else None
        begin: list[Statement] = [b.values(_STATE, *first)]
        update: list[Statement] = []
        if self.distinct:
            begin.append(b.values(_SEEN, self.x, where=known))
            seen = b.use(_SEEN)
            among = Exists(BOOLEAN, Rows((Literal(BOOLEAN, True),), (seen.range,), call("=", seen["x"], self.x)))
            update.append(b.values(_SEEN, self.x, where=every(_not_null(self.x), call("not", among))))
            # nothing was inserted if the value is NULL or was there before
            known = call("=", b.sqlcode, 0)
        elif self.fn in ("first_value", "last_value"):
            known = None
        changes = then(use, self.x) if len(self.parameters) else then(use, Literal(BIGINT, 1))
        if changes:
            update.append(b.update(use, known, **changes))
        end = b.use(_STATE)
        return b.program(begin, update, terminate=[b.select(None, result(end), of=[end])])

    @property
    def x(self) -> Column:
        return Column(self.parameters["x"].type, ":x") if len(self.parameters) else Column(BIGINT, ":none")

    def unless_null(self, value: Expr, otherwise: Expr) -> Expr:
        return Case(value.type, ((_not_null(self.x), value),), cast(otherwise, value.type))


def _count(m: _Maker) -> Program:
    one = Literal(BIGINT, 1)
    first = m.unless_null(one, Literal(BIGINT, 0)) if len(m.parameters) else one
    return m.program(
        Schema.of(n=BIGINT), [first], lambda state, _: {"n": call("+", state["n"], one)}, lambda state: state["n"]
    )


def _sum(m: _Maker) -> Program:
    if m.x.type == DOUBLE:
        return _exact_sum(m)
    wide = _sum_type(m.x.type)
    x = cast(m.x, wide)

    def then(state: Use, _: Expr) -> dict[str, Expr]:
        grown = cast(call("+", state["total"], x), wide)
        return {"total": Case(wide, ((call("is_null", state["total"]), x),), grown)}

    return m.program(Schema.of(total=wide), [x], then, lambda state: cast(state["total"], m.type))


def _exact_sum(m: _Maker) -> Program:
    def then(state: Use, _: Expr) -> dict[str, Expr]:
        is_first, grown = call("is_null", state["high"]), _added(state, m.x)
        return {name: Case(DOUBLE, ((is_first, first),), grown[name]) for name, first in (("high", m.x), ("low", zero))}

    zero = Literal(DOUBLE, 0.0)
    return m.program(Schema.of(high=DOUBLE, low=DOUBLE), [m.x, zero], then, _total)


def _added(state: Use, x: Expr) -> dict[str, Expr]:
    """A sum in two parts with one more value, as accumulators add it: the low part has what rounding took."""
    high = call("+", state["high"], x)
    back = call("-", high, state["high"])
    rest = call("+", call("-", state["high"], call("-", high, back)), call("-", x, back))
    return {"high": high, "low": call("+", state["low"], rest)}


def _total(state: Use) -> Expr:
    whole = call("+", state["high"], state["low"])
    return Case(DOUBLE, ((call("isfinite", state["high"]), whole),), state["high"])


def _avg(m: _Maker) -> Program:
    one, none = Literal(BIGINT, 1), Literal(BIGINT, 0)
    if m.x.type == DOUBLE:
        parts: dict[str, Expr] = {"high": m.x, "low": Literal(DOUBLE, 0.0)}
    elif m.x.type == BIGINT:
        # in two halves, since the sum of a few large numbers leaves 64 bits
        upper = call("//", m.x, _HALF)
        parts = {"high": upper, "low": call("-", m.x, call("*", upper, _HALF))}
    else:
        parts = {"total": cast(m.x, _sum_type(m.x.type))}
    state = Schema((*(Field(name, part.type) for name, part in parts.items()), Field("n", BIGINT)))

    def then(use: Use, _: Expr) -> dict[str, Expr]:
        grown = {name: cast(call("+", use[name], part), part.type) for name, part in parts.items()}
        return {**(_added(use, m.x) if m.x.type == DOUBLE else grown), "n": call("+", use["n"], one)}

    def result(use: Use) -> Expr:
        if m.x.type == DOUBLE:
            total = _total(use)
        elif "total" in parts:
            total = cast(use["total"], DOUBLE)
        else:
            total = call("+", call("*", cast(use["high"], DOUBLE), float(2**32)), cast(use["low"], DOUBLE))
        return _given(call(">", use["n"], 0), call("/", total, use["n"]))

    first = [m.unless_null(part, cast(Literal(BIGINT, 0), part.type)) for part in parts.values()]
    return m.program(state, [*first, m.unless_null(one, none)], then, result)


def _spread(m: _Maker) -> Program:
    """Welford's way: the mean so far, and the sum of squared distances from it."""
    x, one, none, zero = cast(m.x, DOUBLE), Literal(BIGINT, 1), Literal(BIGINT, 0), Literal(DOUBLE, 0.0)
    state = Schema.of(n=BIGINT, mean=DOUBLE, squares=DOUBLE)

    def then(use: Use, _: Expr) -> dict[str, Expr]:
        n = call("+", use["n"], one)
        away = call("-", x, use["mean"])
        mean = call("+", use["mean"], call("/", away, n))
        squares = call("+", use["squares"], call("*", away, call("-", x, mean)))
        return {"n": n, "mean": mean, "squares": squares}

    def result(use: Use) -> Expr:
        lost = 1 if m.fn.endswith("samp") else 0
        value = call("/", use["squares"], call("-", use["n"], lost))
        return _given(call(">", use["n"], lost), call("sqrt", value) if m.fn.startswith("stddev") else value)

    # nothing away from itself, unless it is no number
    first = [m.unless_null(one, none), m.unless_null(x, zero), m.unless_null(call("-", x, x), zero)]
    return m.program(state, first, then, result)


def _extreme(m: _Maker) -> Program:
    sign = "<" if m.fn == "min" else ">"

    def then(use: Use, x: Expr) -> dict[str, Expr]:
        better = call("or", call("is_null", use["best"]), call(sign, x, use["best"]))
        return {"best": Case(m.type, ((better, x),), use["best"])}

    return m.program(Schema.of(best=m.type), [m.x], then, lambda use: use["best"])


def _known(m: _Maker) -> Program:
    """The first or last value that is not NULL."""

    def then(use: Use, x: Expr) -> dict[str, Expr]:
        return {"value": call("coalesce", use["value"], x) if m.fn == "first_known" else x}

    return m.program(Schema.of(value=m.type), [m.x], then, lambda use: use["value"])


def _edge(m: _Maker) -> Program:
    def then(use: Use, x: Expr) -> dict[str, Expr]:
        return {} if m.fn == "first_value" else {"value": x}

    return m.program(Schema.of(value=m.type), [m.x], then, lambda use: use["value"])


_MAKERS = {
    "count": _count, "sum": _sum, "avg": _avg, "min": _extreme, "max": _extreme, "first_value": _edge,
    "last_value": _edge, "first_known": _known, "last_known": _known,
}  # fmt: skip


NAMES = frozenset((*_MAKERS, "var_pop", "var_samp", "stddev_pop", "stddev_samp"))
"""The aggregates that there are programs of."""


def _sum_type(type_: SqlType) -> SqlType:
    if type_.name == "DECIMAL":
        return DECIMAL(37, type_.scale)
    return BIGINT if type_.is_integer else DOUBLE


def _not_null(expr: Expr) -> Expr:
    return call("not", call("is_null", expr))


def _given(condition: Expr, value: Expr) -> Expr:
    return Case(value.type, ((condition, value),), Literal(value.type, None))
