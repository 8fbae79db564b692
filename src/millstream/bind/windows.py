"""`aggregate OVER (…)` → window calls, and the Over nodes that compute them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

from sqlglot import exp

from millstream.bind.aggregates import OwnCalls, Reach, Slide
from millstream.bind.context import Context
from millstream.bind.expressions import ExpressionBinder, call_of, coerce
from millstream.bind.scope import Scope
from millstream.bind.window_order import Sorting, end_of, group_end, sort_partitions
from millstream.catalog import Clock
from millstream.functions import resolve
from millstream.kernels import aggregates
from millstream.plan import nodes as P
from millstream.plan.expr import Case, Column, Expr, Literal
from millstream.plan.modes import Sliding
from millstream.plan.windows import Between, Frame, WindowCall
from millstream.sql import duration_us
from millstream.types import BIGINT, SqlType, common_type

# Functions of OVER alone. A row's number is the count of rows up to it.
_NUMBERS = ("row_number", *sorted(aggregates.RANKS))

Partition = tuple[str, ...] | Sorting
"""the columns that tell partitions apart, and the order of their rows if it is not that of time"""


@dataclass
class WindowBinder:
    """Collects the window calls of one SELECT while its expressions are bound, then builds their plan."""

    context: Context
    plan: P.Node
    named: dict[str, exp.Window]
    added: dict[str, Expr] = field(default_factory=dict)
    groups: dict[Partition, dict[WindowCall, str]] = field(default_factory=dict)
    slides: dict[tuple[Partition, Slide | None], exp.Expr] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.own = OwnCalls(self.context, self._column)

    def bind(self, node: exp.Window, expressions: ExpressionBinder) -> Expr:
        """The column that will hold the value of `node`."""
        window = self._definition(node)
        scalar = ExpressionBinder(self.context, expressions.scope, None)
        keys = self._partition(window, scalar)
        slide = self._slide(window)
        self.slides[keys, slide] = node
        if self.own.is_own(node.this):
            columns = self._own_columns(node, window, scalar, keys, slide)
            if len(columns) != 1:
                self.context.fail("this aggregate has several results", node, hint="select it by itself")
            return columns[0][1]
        if window.args.get("spec") is not None and window.args["spec"].args.get("active"):
            self.context.refuse("ACTIVE EXPIRATION needs an aggregate with EXPIRE", node, hint="see CREATE AGGREGATE")
        name = call_of(node.this)[0] if isinstance(node.this, exp.Func) else ""
        if name in _NUMBERS:
            return self._numbered(name, keys, window, node)
        if name in ("lag", "lead"):
            return self._shifted(name, keys, node, scalar)
        fn, arg, distinct = self._aggregate(node, scalar)
        with self.context.blaming(node):
            type_ = aggregates.result_type(fn, distinct, None if arg is None else arg.type)
        if type_ is None:
            self.context.fail(f"{fn} does not apply to {arg.type if arg else 'rows'}", node)
        frame = self._frame(window, node)
        if frame is not None and frame.unit == "range" and isinstance(keys, Sorting):
            self.context.refuse("RANGE in an order other than time is not supported", node, hint="use ROWS … PRECEDING")
        if frame is None:
            return Literal(type_, 0 if fn == "count" else None)
        return self._call(keys, fn, None if arg is None else self._column(arg), frame, type_, distinct)

    def _call(
        self, keys: Partition, fn: str, arg: str | None, frame: Frame, type_: SqlType, distinct: bool = False
    ) -> Expr:
        """The column of a call, the same for equal calls."""
        call = WindowCall("", fn, arg, frame, distinct, type_)
        group = self.groups.setdefault(keys, {})
        return Column(type_, group.setdefault(call, f"${sum(map(len, self.groups.values())) + 1}.{fn}"))

    def _numbered(self, fn: str, keys: Partition, window: exp.Window, node: exp.Window) -> Expr:
        """row_number() counts the rows so far; rank() and dense_rank() give rows of equal time equal numbers."""
        if call_of(node.this)[1]:
            self.context.fail(f"{fn} takes no argument", node.this)
        if fn == "row_number":
            return self._call(keys, "count", None, Frame("rows", None), BIGINT)
        if window.args.get("order") is None:
            self.context.fail(f"{fn} needs an order", node, hint=f"{fn}() OVER (… ORDER BY the stream's time column)")
        if isinstance(keys, Sorting):
            self.context.refuse(f"{fn} in an order other than time is not supported", node, hint="use row_number()")
        return self._call(keys, fn, None, Frame("rows", None), BIGINT)

    def _shifted(self, fn: str, keys: Partition, node: exp.Window, scalar: ExpressionBinder) -> Expr:
        """lag(x [, n [, default]]): x of the n-th row before."""
        if fn == "lead":
            self._refuse_future("lead", node)
        arguments = call_of(node.this)[1]
        if not 1 <= len(arguments) <= 3:
            self.context.fail(f"lag takes one to three arguments, here are {len(arguments)}", node.this)
        arg = scalar.bind(arguments[0])
        type_ = aggregates.result_type("lag", False, arg.type)
        if type_ is None:
            self.context.fail(f"lag does not apply to {arg.type}", node)
        rows = 1
        if len(arguments) > 1:
            offset = scalar.bind(arguments[1])
            if not isinstance(offset, Literal) or not isinstance(offset.value, int) or not offset.type.is_integer:
                self.context.fail("lag takes a constant number of rows", arguments[1])
            rows = offset.value
            if rows < 0:
                self._refuse_future("lag of a negative number of rows", node)
        value = self._call(keys, "lag", self._column(arg), Frame("rows", rows), type_)
        if len(arguments) < 3:
            return value
        default = scalar.bind(arguments[2])
        wider = common_type(type_, default.type)
        if wider is None:
            self.context.fail(f"{type_} and {default.type} have no common type", node, hint="CAST one of them")
        reached = self._call(keys, "count", None, Frame("rows", rows), BIGINT)
        is_there = resolve(">", (reached, Literal(BIGINT, rows)))
        return Case(wider, ((is_there, coerce(value, wider)),), coerce(default, wider))

    def build(self) -> P.Node:
        """The plan with the needed columns computed and one Over per partitioning."""
        plan = self.plan
        if self.added:
            plan = P.Project(plan, (*P.passthrough(plan.schema), *self.added.items()))
        # Sorted partitions come at the end of their windows, so what goes by time is computed before.
        for keys, calls in sorted(self.groups.items(), key=lambda group: isinstance(group[0], Sorting)):
            if isinstance(keys, Sorting):
                plan, keys = sort_partitions(plan, keys)
            named = tuple(
                WindowCall(name, call.fn, call.arg, call.frame, call.distinct, call.type)
                for call, name in calls.items()
            )
            ends = group_end(plan)
            plan = P.Over(plan, keys, named, ends if ends in keys else None)
        plan = self.own.build(plan)
        slide = self._common_slide()
        if slide is None or any(isinstance(c.mode, Sliding) and c.mode.every is not None for c in self.own.calls):
            return plan
        return P.Yield(plan, slide[0], "rows" if slide[1].unit == "rows" else "range", slide[1].every)

    def several(self, node: exp.Expr, expressions: ExpressionBinder) -> list[tuple[str, Expr]] | None:
        """The columns of an aggregate with several results that stands alone; None if `node` is none."""
        if not isinstance(node, exp.Window) or not self.own.is_own(node.this):
            return None
        window = self._definition(node)
        scalar = ExpressionBinder(self.context, expressions.scope, None)
        keys = self._partition(window, scalar)
        slide = self._slide(window)
        self.slides[keys, slide] = node
        return [*self._own_columns(node, window, scalar, keys, slide)]

    def _own_columns(
        self, node: exp.Window, window: exp.Window, scalar: ExpressionBinder, keys: Partition, slide: Slide | None
    ) -> list[tuple[str, Column]]:
        frame = self._frame(window, node)
        if isinstance(keys, Sorting):
            self.context.refuse("an aggregate written in SQL in an order other than time", node, hint="ORDER BY time")
        if frame is None or isinstance(frame.preceding, Between):
            self.context.refuse("this window ends before the current row", node, hint="… AND CURRENT ROW")
        spec = window.args.get("spec")
        active = spec is not None and bool(spec.args.get("active"))
        return self.own.over(node.this, scalar, keys, Reach(frame.unit, frame.preceding), slide, active)

    def _slide(self, window: exp.Window) -> Slide | None:
        spec = window.args.get("spec")
        if spec is None or spec.args.get("slide") is None:
            return None
        slide = spec.args["slide"]
        unit = str(spec.args.get("kind") or "ROWS").lower()
        every = self._count(slide.this, slide) if unit == "rows" else self._span(slide.this, slide)
        if every < 1:
            self.context.fail("SLIDE takes at least one row, or some time", slide)
        return Slide(unit, every)

    def _common_slide(self) -> tuple[tuple[str, ...], Slide] | None:
        """The slide of all windows: a row either yields or not."""
        if len(self.slides) > 1 and any(slide is not None for _, slide in self.slides):
            self.context.refuse(
                "windows of one SELECT that slide differently",
                list(self.slides.values())[-1],
                detail="a row is given if it is the last of its slot, so all must have the same slots",
                hint="give all windows the same PARTITION BY and SLIDE, or use a query for each",
            )
        keys, slide = next(iter(self.slides), ((), None))
        if slide is None:
            return None
        if isinstance(keys, Sorting):
            self.context.refuse(
                "SLIDE in an order other than time", next(iter(self.slides.values())), hint="ORDER BY time"
            )
        return keys, slide

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
                f"no window aggregate {name}",
                call,
                hint="there is " + ", ".join(sorted({*aggregates.OVER_NAMES, *_NUMBERS})),
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

    def _partition(self, window: exp.Window, scalar: ExpressionBinder) -> Partition:
        """PARTITION BY and ORDER BY: rows come in order of time, and in any other when their window has ended."""
        keys = tuple(self._column(scalar.bind(part)) for part in window.args.get("partition_by") or [])
        order = window.args.get("order")
        times = {name.lower().rpartition(".")[2] for name in self.context.time_columns(self.plan)}
        parts = [] if order is None else order.expressions
        if all(
            isinstance(part.this, exp.Column) and part.this.name.lower() in times and not part.args.get("desc")
            for part in parts
        ):
            return keys
        end = end_of(self.plan, keys)
        if end is None:
            self.context.refuse(
                "a stream is ordered by its time",
                order,
                detail="rows reach the window in order of time, and cannot be sorted otherwise",
                hint="leave ORDER BY out, or name the stream's time column"
                + (f": ORDER BY {', '.join(sorted(times))}" if times else ""),
            )
        columns = tuple(
            (self._column(scalar.bind(part.this)), bool(part.args.get("desc")), bool(part.args.get("nulls_first")))
            for part in parts
        )
        return Sorting(keys, end, columns)

    def _frame(self, window: exp.Window, node: exp.Window) -> Frame | None:
        """The rows that a call sees; None if there never are any."""
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
        if spec.args.get("exclude"):
            self.context.refuse("EXCLUDE is not supported on a stream", node)
        unit = str(spec.args.get("kind") or "ROWS").lower()
        if unit not in ("rows", "range"):
            self.context.refuse(f"{unit.upper()} frames are not supported", node, hint="use ROWS or RANGE")
        start, end = (self._bound(unit, spec, side, node) for side in ("start", "end"))
        if end is None:
            self.context.fail("a frame cannot end at UNBOUNDED PRECEDING", node, hint="… AND CURRENT ROW")
        if start is not None and start < end:
            return None
        return Frame("rows" if unit == "rows" else "range", Between(start, end) if end else start)

    def _bound(self, unit: str, spec: exp.Expr, side: str, node: exp.Window) -> int | None:
        """How far before the current row a frame begins or ends; None is UNBOUNDED."""
        bound = spec.args.get(side)
        if bound is None or bound == "CURRENT ROW":
            return 0
        if spec.args.get(f"{side}_side") == "FOLLOWING":
            self._refuse_future("a frame that reaches beyond the current row", node)
        if isinstance(bound, str):
            return None
        return self._count(bound, node) if unit == "rows" else self._span(bound, node)

    def _refuse_future(self, what: str, node: exp.Expr) -> NoReturn:
        self.context.refuse(
            "a window on a stream ends at the current row or before it",
            node,
            detail=f"{what} needs rows that are yet to come",
            hint="use lag(), or a frame … PRECEDING or … AND CURRENT ROW",
        )

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


class WindowedExpressions(ExpressionBinder):
    """The expressions of a SELECT in which windows may stand."""

    def __init__(self, context: Context, scope: Scope, windows: WindowBinder) -> None:
        super().__init__(context, scope, windows.bind)
        self._windows = windows

    def several(self, node: exp.Expr) -> list[tuple[str, Expr]] | None:
        return self._windows.several(node, self)
