"""`aggregate OVER (…)` → window calls, and the Over nodes that compute them."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.expressions import ExpressionBinder, call_of
from millstream.catalog import Clock
from millstream.kernels import aggregates
from millstream.plan import nodes as P
from millstream.plan.expr import Column, Expr
from millstream.plan.windows import Frame, WindowCall
from millstream.sql import duration_us
from millstream.types import BIGINT


@dataclass
class WindowBinder:
    """Collects the window calls of one SELECT while its expressions are bound, then builds their plan."""

    context: Context
    plan: P.Node
    named: dict[str, exp.Window]
    added: dict[str, Expr] = field(default_factory=dict)
    groups: dict[tuple[str, ...], dict[WindowCall, str]] = field(default_factory=dict)

    def bind(self, node: exp.Window, expressions: ExpressionBinder) -> Expr:
        """The column that will hold the value of `node`."""
        window = self._definition(node)
        scalar = ExpressionBinder(self.context, expressions.scope, None)
        fn, arg, distinct = self._aggregate(node, scalar)
        with self.context.blaming(node):
            type_ = aggregates.result_type(fn, distinct, None if arg is None else arg.type)
        if type_ is None:
            self.context.fail(f"{fn} does not apply to {arg.type if arg else 'rows'}", node)
        keys = tuple(self._column(scalar.bind(part)) for part in window.args.get("partition_by") or [])
        self._check_order(window)
        frame = self._frame(window, node)
        call = WindowCall("", fn, None if arg is None else self._column(arg), frame, distinct, type_)
        group = self.groups.setdefault(keys, {})
        name = group.setdefault(call, f"${sum(map(len, self.groups.values())) + 1}.{fn}")
        return Column(type_, name)

    def build(self) -> P.Node:
        """The plan with the needed columns computed and one Over per partitioning."""
        plan = self.plan
        if self.added:
            plan = P.Project(plan, (*P.passthrough(plan.schema), *self.added.items()))
        for keys, calls in self.groups.items():
            named = tuple(
                WindowCall(name, call.fn, call.arg, call.frame, call.distinct, call.type)
                for call, name in calls.items()
            )
            plan = P.Over(plan, keys, named)
        return plan

    def _definition(self, node: exp.Window) -> exp.Window:
        name = node.args.get("alias")
        if name is None:
            return node
        found = self.named.get(name.name.lower())
        if found is None:
            self.context.fail(f"no window {name.name}", node, hint="define it: WINDOW w AS (…)")
        return found

    def _aggregate(self, node: exp.Window, scalar: ExpressionBinder) -> tuple[str, Expr | None, bool]:
        call = node.this
        if not isinstance(call, exp.Func):
            self.context.fail("OVER needs an aggregate before it", node)
        name, arguments = call_of(call)
        fn = aggregates.canonical_name(name)
        if fn is None:
            self.context.fail(
                f"no window aggregate {name}", call, hint="there is " + ", ".join(sorted(aggregates.NAMES))
            )
        distinct = False
        if len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
            distinct = True
            arguments = list(arguments[0].expressions)
        if fn == "count" and (not arguments or isinstance(arguments[0], exp.Star)):
            return fn, None, False
        if len(arguments) != 1:
            self.context.fail(f"{name} takes one argument, here are {len(arguments)}", call)
        return fn, scalar.bind(arguments[0]), distinct and fn not in ("min", "max")

    def _column(self, expr: Expr) -> str:
        """The name of a column that holds `expr`: an existing one, or a new one computed below the Over."""
        if isinstance(expr, Column):
            return expr.name
        for name, known in self.added.items():
            if known == expr:
                return name
        name = f"$e{len(self.added) + 1}"
        self.added[name] = expr
        return name

    def _check_order(self, window: exp.Window) -> None:
        order = window.args.get("order")
        if order is None:
            return
        times = {name.lower().rpartition(".")[2] for name in self.context.time_columns(self.plan)}
        for part in order.expressions:
            if part.args.get("desc") or not isinstance(part.this, exp.Column) or part.this.name.lower() not in times:
                self.context.refuse(
                    "a stream is ordered by its time",
                    order,
                    detail="rows reach the window in order of time, and cannot be sorted otherwise",
                    hint="leave ORDER BY out, or name the stream's time column"
                    + (f": ORDER BY {', '.join(sorted(times))}" if times else ""),
                )

    def _frame(self, window: exp.Window, node: exp.Window) -> Frame:
        spec = window.args.get("spec")
        if spec is None:
            if window.args.get("order") is not None:
                return Frame("range", None)
            self.context.refuse(
                "this window has no end",
                node,
                detail="without a frame OVER means the whole partition, and a stream's partition is never whole",
                hint="add ROWS UNBOUNDED PRECEDING, ROWS n PRECEDING or RANGE n SECONDS PRECEDING",
            )
        if spec.args.get("end") not in (None, "CURRENT ROW") or spec.args.get("exclude"):
            self.context.refuse("a window on a stream ends at the current row", node, hint="… AND CURRENT ROW")
        start, unit = spec.args.get("start"), str(spec.args.get("kind") or "ROWS").lower()
        if unit not in ("rows", "range"):
            self.context.refuse(f"{unit.upper()} frames are not supported", node, hint="use ROWS or RANGE")
        if isinstance(start, str):
            if start == "CURRENT ROW":
                return Frame("rows" if unit == "rows" else "range", 0)
            return Frame("rows" if unit == "rows" else "range", None)
        if unit == "rows":
            return Frame("rows", self._count(start, node))
        return Frame("range", self._span(start, node))

    def _count(self, start: exp.Expr, node: exp.Expr) -> int:
        if isinstance(start, exp.Literal) and not start.is_string and str(start.this).isdigit():
            return int(start.this)
        return self.context.fail("ROWS takes a whole number", node, hint="for time write RANGE 10 SECONDS PRECEDING")

    def _span(self, start: exp.Expr, node: exp.Expr) -> int:
        clocks = self.context.clocks_of(self.plan)
        if Clock.LATENT in clocks:
            self.context.refuse(
                "RANGE needs a stream with times",
                node,
                detail="this stream was declared without ORDER BY, so its rows have an order but no time",
                hint="declare it with ORDER BY column or ORDER BY current_time, or use ROWS",
            )
        length = duration_us(start)
        if length is not None:
            return length
        if isinstance(start, exp.Literal) and str(start.this).isdigit():
            ticks = [
                self.plan.schema[name].type.is_integer or self.plan.schema[name].type == BIGINT
                for name in self.context.time_columns(self.plan)
            ]
            if ticks and all(ticks):
                return int(start.this)
            self.context.fail("RANGE needs a unit of time", node, hint=f"RANGE {start.this} SECONDS PRECEDING")
        if isinstance(start, exp.Interval):
            self.context.fail(f"{start.sql()} has no fixed length", node, hint="use weeks, days or smaller units")
        return self.context.fail("RANGE takes a constant length of time", node, hint="RANGE 10 SECONDS PRECEDING")
