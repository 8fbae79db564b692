"""Expressions as Python source for the inner loops of kernels."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import field
from decimal import Decimal

from millstream.expressions.kernel import functions as functions
from millstream.expressions.kernel.forms import Form, SourceScope, Value, and_, not_, or_, zero
from millstream.expressions.kernel.helpers import HELPERS
from millstream.expressions.nodes import CATCHING, Call, Case, Cast, Column, Expr, Literal
from millstream.records import dataclass
from millstream.types import BOOLEAN, SqlType

_LONGEST = 20_000


@dataclass(frozen=True, slots=True)
class KernelExpr:
    """An expression in source text over the local variables `v_<name>` (value) and `n_<name>` (true where NULL).

    `value` may only be evaluated where `null` is false: elsewhere it may divide by zero. Both may raise OverflowError.
    The text calls NumPy as `np` and the helpers it names (see `kernel_helpers`).
    """

    type: SqlType
    value: str
    null: str
    helpers: frozenset[str] = field(default_factory=frozenset)
    holds: str = "False"
    """text that is true where a condition is, which may always be evaluated"""

    @property
    def valid(self) -> str:
        """Text that is true where the value is not NULL."""
        return not_(self.null)


def to_kernel_source(expr: Expr, names: Mapping[str, str], present: Container[str] = ()) -> KernelExpr | None:
    """The expression as kernel source, or None if kernels cannot compute it.

    `names` says for each column the name behind `v_` and `n_`; those in `present` are never NULL. Values have the types
    of `SqlType.kernel`: integers, times (µs), dates (days) and intervals (µs) are int64, DOUBLE is float64. Text takes
    part only in IS NULL.
    """
    scope = SourceScope()
    form = _compile(expr, names, present, scope)
    if form is None or (isinstance(expr, Literal) and expr.type.is_coded):
        return None
    value = form.as_value()
    holds = form.as_truth().true if expr.type == BOOLEAN else "False"
    return KernelExpr(expr.type, value.value, value.null, frozenset(scope.helpers), holds)


def _compile(expr: Expr, names: Mapping[str, str], present: Container[str], scope: SourceScope) -> Form | None:
    if isinstance(expr, Call) and expr.fn in CATCHING:
        return _caught(expr, names, present, scope)
    parts = [_compile(part, names, present, scope) for part in expr.children()]
    if any(part is None for part in parts):
        return None
    form: Form | None = None
    match expr:
        case Column() if expr.name in names:
            name = names[expr.name]
            form = Value(expr.type, f"v_{name}", "False" if name in present else f"n_{name}")
        case Literal():
            form = _literal(expr)
        case Case() if not expr.type.is_coded:
            form = functions.case(expr.type, list(zip(parts[:-1:2], parts[1:-1:2], strict=True)), parts[-1])
        case Cast():
            form = functions.cast(expr, parts[0], scope)
        case Call():
            form = functions.call(expr, [part for part in parts if part is not None], scope)
    # Text repeats what is needed both for a value and for its NULL, so it can outgrow the expression.
    return form if form is None or form.size <= _LONGEST else None


def _caught(expr: Call, names: Mapping[str, str], present: Container[str], scope: SourceScope) -> Form | None:
    """NULL where the argument fails, or whether it does."""
    tried = _tried(expr.args[0], names, present, scope)
    if tried is None:
        return None
    form, fails = tried
    scope.helpers |= {name for name in HELPERS if f"{name}(" in fails}
    if expr.fn == "$failed":
        form = Value(BOOLEAN, fails, "False")
    return form if form.size <= _LONGEST else None


def _tried(
    expr: Expr, names: Mapping[str, str], present: Container[str], scope: SourceScope
) -> tuple[Form, str] | None:
    """An expression that is NULL where it fails, and where that is. Each part must need the values of all of its
    arguments: others may have a value although an argument fails."""
    if isinstance(expr, Column | Literal):
        form = _compile(expr, names, present, scope)
        return None if form is None else (form, "False")
    if not (isinstance(expr, Cast) or (isinstance(expr, Call) and expr.fn in _OF_ALL)):
        return None
    parts = []
    for child in expr.children():
        part = _tried(child, names, present, scope)
        if part is None:
            return None
        parts.append(part)
    scope.raised = []
    if isinstance(expr, Cast):
        made = functions.cast(expr, parts[0][0], scope)
    else:
        made = functions.call(expr, [form for form, _ in parts], scope)
    if made is None:
        return None
    own, scope.raised = scope.raised, []
    fails = [fails for _, fails in parts]
    if own:
        value = made.as_value()
        fails.append(and_(not_(value.null), or_(*own)))
        made = Value(value.type, value.value, or_(value.null, *own))
    return made, or_(*fails)


_OF_ALL = frozenset(("+", "-", "*", "/", "//", "%", "neg", "abs", "=", "<>", "<", "<=", ">", ">=", "$total"))


def _literal(literal: Literal) -> Form | None:
    value, type_ = literal.value, literal.type
    if value is None:
        return Value(type_, zero(type_), "True")
    if isinstance(value, float):
        return Value(type_, float_source(value), "False")
    if isinstance(value, Decimal):
        return Value(type_, str(int(value.scaleb(type_.scale))), "False") if type_.precision <= 18 else None
    if isinstance(value, bool | int):
        return Value(type_, f"({value})" if value < 0 else str(value), "False")
    # Text has no value here; functions that take constant text read it from the expression.
    return Value(type_, zero(type_), "False") if isinstance(value, str) else None


def float_source(value: float) -> str:
    """A number that may not be finite."""
    if math.isnan(value):
        return "np.nan"
    if math.isinf(value):
        return "np.inf" if value > 0 else "(-np.inf)"
    return f"({value!r})" if math.copysign(1, value) < 0 else repr(value)
