"""`function OVER (…)` over rows that are all there: in windows that end, and at each instant of a relation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from millstream.bind.aggregates.calls import aggregate_call, bind_builtin
from millstream.bind.context import Context
from millstream.bind.expressions import ExpressionBinder, call_of, coerce
from millstream.expressions.nested_codes import order_of
from millstream.expressions.nodes import Expr, Literal
from millstream.plan import aggregates
from millstream.plan.arrangements import OF_PEERS, ArrangedCall
from millstream.plan.ties import SortKey
from millstream.records import dataclass
from millstream.sql import duration_us
from millstream.types import BIGINT, DOUBLE, SqlType, common_type

NUMBERS = ("row_number", "rank", "dense_rank", "percent_rank", "cume_dist")
OF_WHOLE = frozenset(("ntile", "nth_value", "percent_rank", "cume_dist"))
"""functions that need all rows of a partition"""

_EXCLUDED = ("CURRENT ROW", "GROUP", "TIES")


def needs_all_rows(node: exp.Window, window: exp.Window, is_sorted: bool) -> bool:
    """Whether a call looks at all rows of its partition, or at groups of rows of equal order; `is_sorted`: that is
    another order than time."""
    call = node.this.this if isinstance(node.this, exp.IgnoreNulls | exp.RespectNulls) else node.this
    name = call_of(call)[0] if isinstance(call, exp.Func) else ""
    if name in OF_WHOLE or (is_sorted and name in OF_PEERS):
        return True
    if name in (*NUMBERS, "lag", "lead"):
        return False
    spec = window.args.get("spec")
    if spec is None:
        return is_sorted or window.args.get("order") is None
    unit = str(spec.args.get("kind") or "ROWS").upper()
    excludes = spec.args.get("exclude") is not None and spec.args["exclude"].name != "NO OTHERS"
    is_endless = spec.args.get("end") == "UNBOUNDED" and spec.args.get("end_side") == "FOLLOWING"
    return unit == "GROUPS" or excludes or is_endless or (is_sorted and unit == "RANGE")


@dataclass(frozen=True)
class ArrangedBinder:
    """Binds calls over rows in order; `column` names the column that holds a value."""

    context: Context
    column: Callable[[Expr], str]

    def order(self, window: exp.Window, scalar: ExpressionBinder) -> tuple[SortKey, ...]:
        """What ORDER BY says."""
        order = window.args.get("order")
        return tuple(
            SortKey(
                self.column(order_of(scalar.bind(part.this))),
                bool(part.args.get("desc")),
                bool(part.args.get("nulls_first")),
            )
            for part in ([] if order is None else order.expressions)
        )

    def call(self, node: exp.Window, window: exp.Window, scalar: ExpressionBinder) -> ArrangedCall:
        """The call, without a name."""
        inner, ignores_nulls = node.this, False
        if isinstance(inner, exp.IgnoreNulls | exp.RespectNulls):
            inner, ignores_nulls = inner.this, isinstance(inner, exp.IgnoreNulls)
        if not isinstance(inner, exp.Func | exp.Filter):
            self.context.fail("OVER needs a function before it", node)
        frame = self._frame(window, scalar, node)
        name, arguments = ("", []) if isinstance(inner, exp.Filter) else call_of(inner)
        if name in NUMBERS:
            return self._numbered(name, arguments, window, node)
        if name == "ntile":
            return self._ntile(arguments, scalar, node)
        if name in ("lag", "lead"):
            return self._shifted(name, arguments, scalar, node, ignores_nulls)
        if name == "nth_value":
            return self._nth(arguments, frame, scalar, node, ignores_nulls)
        call = aggregate_call(node.this, self.context, over=True)
        if call is None or call.is_own:
            known = sorted({*aggregates.NAMES, *NUMBERS, "ntile", "nth_value", "lag", "lead"})
            self.context.refuse(
                f"{name} over the rows of an instant or of a whole window is not supported",
                node,
                hint=f"available: {', '.join(known)}",
            )
        builtin = bind_builtin(call, scalar)
        fn = builtin.fn.replace("_known", "_value")
        args = tuple(map(self.column, builtin.args))
        return ArrangedCall("", fn, args, builtin.type, frame, None, builtin.distinct, fn != builtin.fn)

    def _numbered(self, name: str, arguments: Sequence[exp.Expr], window: exp.Window, node: exp.Window) -> ArrangedCall:
        if arguments:
            self.context.fail(f"{name} takes no argument", node.this)
        if name in OF_PEERS and window.args.get("order") is None:
            self.context.fail(f"{name} needs an order", node, hint=f"{name}() OVER (… ORDER BY …)")
        return ArrangedCall("", name, (), DOUBLE if name in ("percent_rank", "cume_dist") else BIGINT)

    def _ntile(self, arguments: Sequence[exp.Expr], scalar: ExpressionBinder, node: exp.Window) -> ArrangedCall:
        if len(arguments) != 1:
            self.context.fail(f"ntile takes one argument, got {len(arguments)}", node.this)
        return ArrangedCall("", "ntile", (), BIGINT, number=self._whole(arguments[0], "ntile", scalar, 1))

    def _nth(
        self, arguments: Sequence[exp.Expr], frame: str | None, scalar: ExpressionBinder, node: exp.Window, nulls: bool
    ) -> ArrangedCall:
        value, number = self.nth(arguments, scalar, node)
        return ArrangedCall("", "nth_value", (self.column(value),), value.type, frame, number, ignores_nulls=nulls)

    def nth(self, arguments: Sequence[exp.Expr], scalar: ExpressionBinder, node: exp.Window) -> tuple[Expr, int]:
        """The arguments of nth_value."""
        if len(arguments) != 2:
            self.context.fail(f"nth_value takes two arguments, got {len(arguments)}", node.this)
        return self._value(arguments[0], "nth_value", scalar), self._whole(arguments[1], "nth_value", scalar, 1)

    def _shifted(
        self, name: str, arguments: Sequence[exp.Expr], scalar: ExpressionBinder, node: exp.Window, nulls: bool
    ) -> ArrangedCall:
        if not 1 <= len(arguments) <= 3:
            self.context.fail(f"{name} takes one to three arguments, got {len(arguments)}", node.this)
        value = self._value(arguments[0], name, scalar)
        number = self._whole(arguments[1], name, scalar, -(2**31)) if len(arguments) > 1 else 1
        type_, args = value.type, [value]
        if len(arguments) > 2:
            default = scalar.bind(arguments[2])
            wider = common_type(type_, default.type)
            if wider is None:
                self.context.fail(f"{type_} and {default.type} have no common type", node, hint="CAST one of them")
            type_, args = wider, [coerce(value, wider), coerce(default, wider)]
        return ArrangedCall("", name, tuple(map(self.column, args)), type_, number=number, ignores_nulls=nulls)

    def _value(self, node: exp.Expr, name: str, scalar: ExpressionBinder) -> Expr:
        value = scalar.bind(node)
        if aggregates.result_type("lag", False, value.type) is None:
            self.context.fail(f"{name} does not apply to {value.type}", node)
        return value

    def _whole(self, node: exp.Expr, name: str, scalar: ExpressionBinder, least: int) -> int:
        number = scalar.bind(node)
        if not isinstance(number, Literal) or not isinstance(number.value, int) or not number.type.is_integer:
            self.context.fail(f"{name} takes a constant whole number", node)
        if not least <= number.value < 2**31:
            self.context.fail(f"{name} takes a number from {least} on", node)
        return int(number.value)

    # -- frames ----------------------------------------------------------------------------------------------------

    def _frame(self, window: exp.Window, scalar: ExpressionBinder, node: exp.Window) -> str | None:
        spec = window.args.get("spec")
        if spec is None:
            return None
        for clause in ("slide", "active"):
            if spec.args.get(clause):
                self.context.refuse(
                    "SLIDE and ACTIVE EXPIRATION need rows in time order",
                    node,
                    hint="give the window in FROM a slide: s [RANGE 1 HOUR SLIDE 1 MINUTE]",
                )
        unit = str(spec.args.get("kind") or "ROWS").upper()
        order = window.args.get("order")
        parts = [] if order is None else order.expressions
        if unit == "GROUPS" and not parts:
            self.context.fail("GROUPS needs an order", node, hint="OVER (… ORDER BY … GROUPS …)")
        type_ = scalar.bind(parts[0].this).type if len(parts) == 1 else None
        start, end = (self._bound(unit, spec, side, type_, node) for side in ("start", "end"))
        excluded = spec.args["exclude"].name if spec.args.get("exclude") is not None else ""
        exclude = f" EXCLUDE {excluded}" if excluded in _EXCLUDED else ""
        return f"{unit} BETWEEN {start} AND {end}{exclude}"

    def _bound(self, unit: str, spec: exp.Expr, side: str, order: SqlType | None, node: exp.Window) -> str:
        bound = spec.args.get(side)
        if bound is None or bound == "CURRENT ROW":
            return "CURRENT ROW"
        where = str(spec.args.get(f"{side}_side") or "PRECEDING")
        if isinstance(bound, str):
            return f"UNBOUNDED {where}"
        is_number = isinstance(bound, exp.Literal) and not bound.is_string
        if unit != "RANGE":
            if not (is_number and bound.name.isdigit()):
                self.context.fail(f"{unit} takes a whole number", node, hint=f"{unit} 10 PRECEDING")
            return f"{bound.name} {where}"
        if order is None:
            self.context.fail("RANGE with a distance needs one column to order by", node, hint="ORDER BY one column")
        length = duration_us(bound)
        if order.is_temporal and length is not None:
            return f"{length} {where}"
        if order.is_numeric and is_number:
            return f"{bound.name} {where}"
        return self.context.fail(
            f"RANGE takes a {'duration' if order.is_temporal else 'number'} here, which is ordered by {order}", node
        )
