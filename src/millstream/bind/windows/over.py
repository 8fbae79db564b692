"""`aggregate OVER (…)` → window calls, and the Over nodes that compute them."""

from __future__ import annotations

from dataclasses import field, replace

from sqlglot import exp

from millstream import library
from millstream.bind.aggregates.calls import IN_ORDER, WrittenCall, aggregate_call, bind_builtin, for_wide_values
from millstream.bind.aggregates.groups import column_of
from millstream.bind.aggregates.versions import ENDLESS, OwnCalls, WindowReach, WindowSlide
from millstream.bind.context import Context
from millstream.bind.expressions import ExpressionBinder, call_of, coerce
from millstream.bind.patterns.windows import PatternWindows
from millstream.bind.scope import Scope
from millstream.bind.windows.arranged import OF_WHOLE, ArrangedBinder, needs_all_rows
from millstream.bind.windows.frames import Beside, FrameBinder, Parted
from millstream.bind.windows.in_parts import IN_PARTS, Part, over_parts, own_row
from millstream.bind.windows.order import Sorting, end_of, group_end, sort_partitions
from millstream.bind.windows.partitions import ALL_BEFORE, Partition, Peers, Tied, over_peers, peers, turn
from millstream.errors import nearest
from millstream.expressions.functions import resolve
from millstream.expressions.nested_codes import order_of
from millstream.expressions.nodes import Case, Column, Expr, Literal
from millstream.plan import aggregates
from millstream.plan import nodes as P
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.arrangements import ArrangedCall
from millstream.plan.lengths import RowLength
from millstream.plan.programs.modes import Sliding
from millstream.plan.ties import SortKey, Ties
from millstream.plan.windows import Between, Frame
from millstream.records import dataclass
from millstream.types import BIGINT, SqlType, common_type

# Functions of OVER alone. A row's number is the count of rows up to it.
_NUMBERS = ("row_number", *sorted(aggregates.RANKS))
_BACKWARD = {
    "first_value": "last_value", "last_value": "first_value", "first_known": "last_known", "last_known": "first_known",
}  # fmt: skip


@dataclass
class WindowBinder:
    """Collects the window calls of one SELECT while its expressions are bound, then builds their plan."""

    context: Context
    plan: P.Node
    named: dict[str, exp.Window]
    added: dict[str, Expr] = field(default_factory=dict)
    groups: dict[Partition, dict[AggregateCall[str], str]] = field(default_factory=dict)
    arranged: dict[Sorting, dict[ArrangedCall, str]] = field(default_factory=dict)
    slides: dict[tuple[Partition, WindowSlide | None], exp.Expr] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.own = OwnCalls(self.context, self._column)
        self.frames = FrameBinder(self.context, self.plan)
        self.patterns = PatternWindows(self.context, self.plan, self.frames)

    def bind(self, node: exp.Window, expressions: ExpressionBinder) -> Expr:
        """The column that will hold the value of `node`."""
        window = self._definition(node)
        scalar = ExpressionBinder(self.context, expressions.scope, None)
        keys = self._partition(window, scalar)
        slide = self._slide(window)
        self.slides[keys, slide] = node
        if self.patterns.is_measured(node, window):
            return self._measured(node, window, keys, slide, expressions)
        if (sorting := self._complete(node, window, keys, scalar)) is not None:
            return self._arranged(node, window, sorting, scalar)
        call = aggregate_call(node.this, self.context, over=True)
        call = None if call is None else for_wide_values(call, scalar)
        if call is not None and not call.is_own and _is_active(window):
            call = self._active(call, scalar)
        if call is not None and (call.is_own or (call.order and call.fn in aggregates.BESIDE)):
            columns = self._own_columns(call, node, window, scalar, keys, slide)
            if len(columns) != 1:
                self.context.fail("this aggregate has several results", node, hint="select it by itself")
            return columns[0][1]
        if _is_active(window):
            self.context.refuse("ACTIVE EXPIRATION needs an aggregate with EXPIRE", node, hint="see CREATE AGGREGATE")
        is_backward = self._is_backward(window, keys)
        if is_backward and slide is not None:
            self.context.refuse("SLIDE in an order other than time", node, hint="ORDER BY time")
        if call is None:
            return self._function(keys, window, node, scalar, is_backward)
        builtin = self._aggregate(call, scalar)
        fn, type_ = builtin.fn, builtin.type
        if is_backward:
            if fn in aggregates.BESIDE:
                self.context.refuse(f"{call.name} in an order other than time", node, hint="ORDER BY time")
            fn = _BACKWARD.get(fn, fn)
        frame = self.frames.frame(window, node, is_backward)
        parts = frame.parts if isinstance(frame, Parted) else () if frame is None else (frame,)
        frames = [part for part in parts if isinstance(part, Frame)]
        units = {part.unit for part in frames} | ({"range"} if "peers before" in parts else set())
        if units - {"rows"} and not isinstance(keys, tuple):
            unit = "EXCLUDE" if units & {"earlier", "later"} else units.pop().upper()
            self.context.refuse(
                f"{unit} in an order other than time alone is not supported",
                node,
                detail=None if window.args.get("spec") else "without a frame, ORDER BY means RANGE UNBOUNDED PRECEDING",
                hint="use ROWS … PRECEDING",
            )
        if fn in ("first_value", "last_value") and any(p.end < 0 and p.unit == "range" for p in frames):
            self.context.refuse(
                f"{call.name} over a RANGE that reaches beyond the current row is not supported",
                node,
                hint=f"use ROWS … FOLLOWING, or {call.name}(… IGNORE NULLS)",
            )
        if isinstance(frame, Parted):
            return self._over_parts(call, replace(builtin, fn=fn), frame, keys)
        if frame is None:
            return Literal(type_, 0 if fn == "count" else None)
        return self._call(keys, fn, tuple(map(self._column, builtin.args)), frame, type_, builtin.distinct)

    def _over_parts(self, call: WrittenCall, builtin: AggregateCall[Expr], frame: Parted, keys: Partition) -> Expr:
        """An aggregate over a frame with a gap."""

        def over(part: Frame | Beside) -> Part:
            if part == "row":
                return own_row
            among, rows = (keys, part) if isinstance(part, Frame) else (peers(keys, part == "peers after"), ALL_BEFORE)

            def value(fn: str, arg: Expr | None) -> Expr:
                of = aggregates.result_type(fn, False, None if arg is None else arg.type)
                assert of is not None
                fn = _BACKWARD.get(fn, fn) if part == "peers after" else fn
                return self._call(among, fn, () if arg is None else (self._column(arg),), rows, of)

            return value

        parts = [over(part) for part in frame.parts]
        is_told = not builtin.counts_once and len(builtin.args) < 2
        found = over_parts(builtin.fn, builtin.arg, parts) if is_told else None
        if found is None:
            self.context.refuse(
                f"{call.name} with this EXCLUDE is not supported",
                call.node,
                detail="the frame has a gap, so its aggregate must follow from those before and behind it",
                hint=f"use {', '.join(IN_PARTS)} without DISTINCT, or a frame that begins or ends at what it excludes",
            )
        return coerce(found, builtin.type)

    def _complete(
        self, node: exp.Window, window: exp.Window, keys: Partition, scalar: ExpressionBinder
    ) -> Sorting | None:
        """The partitions of a call that needs all rows of one, or peers in another order than time, and can have them:
        the window that they are in ends."""
        plain = keys if isinstance(keys, tuple) else keys.keys
        end = end_of(self.plan, plain)
        if end is None or not needs_all_rows(node, window, isinstance(keys, Sorting)):
            return None
        return keys if isinstance(keys, Sorting) else Sorting(plain, end, self._order(window, scalar))

    def _order(self, window: exp.Window, scalar: ExpressionBinder) -> tuple[SortKey, ...]:
        return ArrangedBinder(self.context, self._column).order(window, scalar)

    def _arranged(self, node: exp.Window, window: exp.Window, sorting: Sorting, scalar: ExpressionBinder) -> Expr:
        call = ArrangedBinder(self.context, self._column).call(node, window, scalar)
        calls = self.arranged.setdefault(sorting, {})
        self.groups.setdefault(sorting, {})
        return Column(call.type, calls.setdefault(call, f"${sum(map(len, self.arranged.values())) + 1}.of_{call.fn}"))

    def _active(self, call: WrittenCall, scalar: ExpressionBinder) -> WrittenCall:
        """A built-in aggregate as one that also returns when a row leaves, of values of the type of its result."""
        if call.fn not in library.ACTIVE or call.of_conditions:
            self.context.refuse(
                f"{call.name} under ACTIVE EXPIRATION is not supported",
                call.node,
                hint=f"use {', '.join(library.ACTIVE)}, or an aggregate with EXPIRE",
            )
        type_ = bind_builtin(call, scalar).type
        value: exp.Expr = exp.Literal.number(1) if call.star is not None or not call.arguments else call.arguments[0]
        if call.fn == "sum":
            value = exp.Cast(this=value.copy(), to=exp.DataType.build(str(type_), dialect="duckdb"))
        if call.where is not None:
            value = exp.Case(ifs=[exp.If(this=call.where.copy(), true=value.copy())])
        return replace(call, fn=library.ACTIVE[call.fn], is_own=True, arguments=(value,), where=None)

    def _measured(
        self,
        node: exp.Window,
        window: exp.Window,
        keys: Partition,
        slide: WindowSlide | None,
        expressions: ExpressionBinder,
    ) -> Expr:
        """What is asked of the matches of a window's pattern."""
        if not isinstance(keys, tuple) or self._is_backward(window, keys) or slide is not None:
            self.context.refuse("a pattern searches rows in time order", node, hint="ORDER BY time, without SLIDE")
        assert expressions.scope is not None
        return self.patterns.bind(node, window, keys, expressions.scope.items)

    def _call(
        self, keys: Partition, fn: str, args: tuple[str, ...], frame: Frame, type_: SqlType, distinct: bool = False,
        number: int | None = None,
    ) -> Expr:  # fmt: skip
        """The column of a call, the same for equal calls."""
        call = AggregateCall(("",), fn, args, (type_,), distinct, framed=frame, number=number)
        group = self.groups.setdefault(keys, {})
        return Column(type_, group.setdefault(call, f"${sum(map(len, self.groups.values())) + 1}.{fn}"))

    def _function(
        self, keys: Partition, window: exp.Window, node: exp.Window, scalar: ExpressionBinder, is_backward: bool
    ) -> Expr:
        """What is no aggregate, and known of windows alone."""
        call, ignores_nulls = _unwrapped(node.this)
        if not isinstance(call, exp.Func):
            self.context.fail("OVER needs an aggregate before it", node)
        name = call_of(call)[0]
        if ignores_nulls:
            self.context.refuse("IGNORE NULLS is for first_value and last_value", node)
        if name in _NUMBERS:
            if is_backward:
                self.frames.refuse_endless(node)
            return self._numbered(name, keys, window, node)
        if name in ("lag", "lead"):
            return self._shifted(name, keys, node, scalar, is_backward)
        if name == "nth_value":
            return self._nth(keys, window, node, scalar, is_backward)
        if name in OF_WHOLE:
            self.frames.refuse_unended(f"{name} needs", call)
        built_in = {*aggregates.NAMES, *_NUMBERS, *OF_WHOLE, "lag", "lead"}
        close = nearest(name, (*built_in, *library.TOPICS, *self.context.catalog.aggregate_names()))
        hint = f"did you mean {close[0]}?" if close else "available: " + ", ".join(sorted(built_in))
        return self.context.fail(f"no window aggregate {name}", call, hint=hint)

    def _nth(
        self, keys: Partition, window: exp.Window, node: exp.Window, scalar: ExpressionBinder, is_backward: bool
    ) -> Expr:
        """nth_value(x, n): x of the n-th row of a frame."""
        arranged = ArrangedBinder(self.context, self._column)
        value, number = arranged.nth(call_of(node.this)[1], scalar, node)
        if is_backward or not isinstance(keys, tuple):
            self.frames.refuse_unended("nth_value in an order other than time needs", node)
        frame = self.frames.frame(window, node)
        if isinstance(frame, Parted):
            self.frames.refuse_unended("nth_value over a frame with a gap (EXCLUDE) needs", node)
        if frame is None:
            return Literal(value.type, None)
        if frame.end < 0 and frame.unit == "range":
            self.context.refuse(
                "nth_value over a RANGE that reaches beyond the current row is not supported",
                node,
                hint="use ROWS … FOLLOWING",
            )
        return self._call(keys, "nth_value", (self._column(value),), frame, value.type, number=number)

    def _numbered(self, fn: str, keys: Partition, window: exp.Window, node: exp.Window) -> Expr:
        """row_number() counts the rows so far; rank() and dense_rank() give rows of equal time equal numbers."""
        if call_of(node.this)[1]:
            self.context.fail(f"{fn} takes no argument", node.this)
        if fn == "row_number":
            return self._call(keys, "count", (), Frame("rows", None), BIGINT)
        if window.args.get("order") is None:
            self.context.fail(f"{fn} needs an order", node, hint=f"{fn}() OVER (… ORDER BY the stream's time column)")
        if not isinstance(keys, tuple):
            self.context.refuse(
                f"{fn} in an order other than time alone is not supported", node, hint="use row_number()"
            )
        return self._call(keys, fn, (), Frame("rows", None), BIGINT)

    def _shifted(self, fn: str, keys: Partition, node: exp.Window, scalar: ExpressionBinder, is_backward: bool) -> Expr:
        """lag(x [, n [, default]]) and lead: x of the n-th row before or after."""
        arguments = call_of(node.this)[1]
        if not 1 <= len(arguments) <= 3:
            self.context.fail(f"{fn} takes one to three arguments, got {len(arguments)}", node.this)
        arg = scalar.bind(arguments[0])
        type_ = aggregates.result_type("lag", False, arg.type)
        if type_ is None:
            self.context.fail(f"{fn} does not apply to {arg.type}", node)
        rows = 1
        if len(arguments) > 1:
            offset = scalar.bind(arguments[1])
            if not isinstance(offset, Literal) or not isinstance(offset.value, int) or not offset.type.is_integer:
                self.context.fail(f"{fn} takes a constant number of rows", arguments[1])
            rows = offset.value
            if abs(rows) >= ENDLESS:
                self.context.fail(f"{fn} over {rows} rows", arguments[1], hint="use a smaller number of rows")
        if (fn == "lead") != is_backward:
            rows = -rows
        self.frames.check_ahead(-rows, node)
        # Of rows to come, x is the first value in a frame that holds one row or none.
        frame = Frame("rows", rows if rows >= 0 else Between(rows, rows))
        value = self._call(keys, "lag" if rows >= 0 else "first_value", (self._column(arg),), frame, type_)
        if len(arguments) < 3:
            return value
        default = scalar.bind(arguments[2])
        wider = common_type(type_, default.type)
        if wider is None:
            self.context.fail(f"{type_} and {default.type} have no common type", node, hint="CAST one of them")
        reached = self._call(keys, "count", (), frame, BIGINT)
        is_there = resolve(">", (reached, Literal(BIGINT, max(rows, 0))))
        return Case(wider, ((is_there, coerce(value, wider)),), coerce(default, wider))

    def build(self) -> P.Node:
        """The plan with the needed columns computed and one Over per partitioning."""
        plan = self.plan
        if self.added:
            plan = P.Project(plan, (*P.passthrough(plan.schema), *self.added.items()))
        sortings = [keys for keys in self.groups if isinstance(keys, Sorting)]
        for keys, calls in sorted(self.groups.items(), key=lambda group: turn(group[0])):
            if isinstance(keys, Sorting):
                named_calls = self.arranged.get(keys, {}).items()
                wanted = tuple(replace(call, name=name) for call, name in named_calls)
                plan, keys = sort_partitions(plan, keys, wanted, again=len(sortings) > 1)
            elif isinstance(keys, Tied):
                plan, keys = Ties(plan, keys.keys, keys.by), keys.keys
            named = [replace(call, names=(name,)) for call, name in calls.items()]
            if isinstance(keys, Peers):
                plan = over_peers(plan, keys, tuple(named), self.context.time_type(plan))
                continue
            ends = group_end(plan)
            for alike in _of_a_kind(named):
                plan = P.Over(plan, keys, alike, ends if ends in keys else None)
        plan = self.own.build(plan)
        plan = self.patterns.build(plan)
        slide = self._common_slide()
        if slide is None or any(isinstance(c.mode, Sliding) and c.mode.every is not None for c in self.own.calls):
            return plan
        return P.Yield(plan, slide[0], "rows" if slide[1].unit == "rows" else "range", slide[1].every)

    def several(self, node: exp.Expr, expressions: ExpressionBinder) -> list[tuple[str, Expr]] | None:
        """The columns of an aggregate with several results that stands alone; None if `node` is none."""
        call = self.own.own(node.this) if isinstance(node, exp.Window) else None
        if call is None or not isinstance(node, exp.Window):
            return None
        window = self._definition(node)
        if window.args.get("match") is not None:
            return None
        scalar = ExpressionBinder(self.context, expressions.scope, None)
        keys = self._partition(window, scalar)
        slide = self._slide(window)
        self.slides[keys, slide] = node
        return [*self._own_columns(call, node, window, scalar, keys, slide)]

    def _own_columns(
        self, call: WrittenCall, node: exp.Window, window: exp.Window, scalar: ExpressionBinder, keys: Partition,
        slide: WindowSlide | None,
    ) -> list[tuple[str, Column]]:  # fmt: skip
        frame = self.frames.frame(window, node)
        if not isinstance(keys, tuple) or self._is_backward(window, keys):
            self.context.refuse("an aggregate written in SQL in an order other than time", node, hint="ORDER BY time")
        if isinstance(frame, Parted):
            self.context.refuse(
                f"{call.name} with this EXCLUDE is not supported",
                node,
                hint=f"use {', '.join(IN_PARTS)} without DISTINCT",
            )
        if frame is not None and frame.unit == "groups":
            self.context.refuse("an aggregate written in SQL over GROUPS", node, hint="use ROWS or RANGE")
        if frame is None or isinstance(frame.preceding, Between | RowLength):
            self.context.refuse(
                f"{call.name} over a frame that does not end at the current row is not supported",
                node,
                detail="it is computed by an aggregate written in SQL, which sees rows as they come",
                hint="… AND CURRENT ROW",
            )
        reach = WindowReach(frame.unit, frame.preceding)
        return self.own.over(call, scalar, keys, reach, slide, _is_active(window))

    def _slide(self, window: exp.Window) -> WindowSlide | None:
        spec = window.args.get("spec")
        if spec is None or spec.args.get("slide") is None:
            return None
        slide = spec.args["slide"]
        unit = str(spec.args.get("kind") or "ROWS").lower()
        if unit == "groups":
            self.context.refuse("GROUPS cannot slide", slide, hint="use ROWS or RANGE")
        every = self.frames.count(slide.this, slide) if unit == "rows" else self.frames.span(slide.this, slide)
        if every < 1:
            self.context.fail("SLIDE takes at least one row, or some time", slide)
        return WindowSlide(unit, every)

    def _common_slide(self) -> tuple[tuple[str, ...], WindowSlide] | None:
        """The slide of all windows: a row either yields or not."""
        if len(self.slides) > 1 and any(slide is not None for _, slide in self.slides):
            self.context.refuse(
                "the windows of one SELECT slide differently",
                list(self.slides.values())[-1],
                detail="only the last row of each slot is emitted, so all windows must have the same slots",
                hint="give all windows the same PARTITION BY and SLIDE, or use one query for each",
            )
        keys, slide = next(iter(self.slides), ((), None))
        if slide is None:
            return None
        if not isinstance(keys, tuple):
            self.context.refuse(
                "SLIDE in an order other than time", next(iter(self.slides.values())), hint="ORDER BY time"
            )
        return keys, slide

    def _is_backward(self, window: exp.Window, keys: Partition) -> bool:
        """Whether a window's rows are in order of time from the last to the first."""
        order = window.args.get("order")
        return isinstance(keys, tuple) and order is not None and bool(order.expressions[0].args.get("desc"))

    def _definition(self, node: exp.Window) -> exp.Window:
        name = node.args.get("alias")
        if name is None:
            return node
        found = self.named.get(name.name.lower())
        if found is None:
            self.context.fail(f"no window {name.name}", node, hint="define it: WINDOW w AS (…)")
        if node.args.get("match") is None:
            return found
        # a pattern goes on from the partition and the order of another window
        whole = node.copy()
        for key in ("partition_by", "order"):
            whole.set(key, node.args.get(key) or found.args.get(key))
        whole.args["match"] = node.args["match"]
        return whole

    def _aggregate(self, call: WrittenCall, scalar: ExpressionBinder) -> AggregateCall[Expr]:
        if call.fn in IN_ORDER and call.order:
            self.context.refuse(
                f"ORDER BY inside {call.name} over a window is not supported",
                call.node,
                hint="the rows of a window are in time order",
            )
        if call.fn in ("first_value", "last_value") and call.where is not None:
            self.context.refuse(
                f"FILTER with {call.name} is not supported",
                call.node,
                hint=f"{call.name}(CASE WHEN … THEN … END IGNORE NULLS)",
            )
        return bind_builtin(call, scalar)

    def _column(self, expr: Expr) -> str:
        """The name of a column that holds `expr`, computed below the Over if need be."""
        return column_of(expr, self.added)

    def _partition(self, window: exp.Window, scalar: ExpressionBinder) -> Partition:
        """PARTITION BY and ORDER BY: rows come in order of time, and in any other when their window has ended."""
        keys = tuple(self._column(scalar.bind(part)) for part in window.args.get("partition_by") or [])
        order = window.args.get("order")
        times = {name.lower().rpartition(".")[2] for name in self.context.time_columns(self.plan)}
        parts = [] if order is None else order.expressions
        by_time = all(isinstance(part.this, exp.Column) and part.this.name.lower() in times for part in parts)
        backward = [bool(part.args.get("desc")) for part in parts]
        if by_time and not any(backward):
            return keys
        end = end_of(self.plan, keys)
        if end is None and by_time and all(backward):
            return keys
        is_time = [isinstance(part.this, exp.Column) and part.this.name.lower() in times for part in parts]
        if is_time[0] and not backward[0]:
            by = (
                SortKey(self._column(order_of(scalar.bind(part.this))), down, bool(part.args.get("nulls_first")))
                for part, time, down in zip(parts, is_time, backward, strict=True)
                if not time
            )
            return Tied(keys, tuple(key for key in by if key.column not in keys))
        if end is None:
            self.context.refuse(
                "a stream is ordered by its time",
                order,
                detail="rows reach the window in time order and cannot be sorted differently",
                hint="leave ORDER BY out, or name the stream's time column"
                + (f": ORDER BY {', '.join(sorted(times))}" if times else "")
                + "; windows that end, FROM TUMBLE(…), and relations, s [RANGE 1 HOUR], have any order",
            )
        return Sorting(keys, end, self._order(window, scalar))


def _of_a_kind(calls: list[AggregateCall[str]]) -> list[tuple[AggregateCall[str], ...]]:
    """Calls that need no later rows, those that need a number of them, and those that need all of some time."""
    kinds: dict[str, list[AggregateCall[str]]] = {"": [], "rows": [], "range": [], "later": []}
    for call in calls:
        kinds["" if call.frame.end >= 0 else call.frame.unit].append(call)
    return [tuple(alike) for alike in kinds.values() if alike]


def _unwrapped(call: exp.Expr) -> tuple[exp.Expr, bool]:
    """A call without IGNORE NULLS or RESPECT NULLS, and whether NULLs are ignored."""
    if isinstance(call, exp.IgnoreNulls | exp.RespectNulls):
        return call.this, isinstance(call, exp.IgnoreNulls)
    return call, False


class WindowedExpressions(ExpressionBinder):
    """The expressions of a SELECT in which windows may stand."""

    def __init__(self, context: Context, scope: Scope, windows: WindowBinder) -> None:
        super().__init__(context, scope, windows.bind)
        self._windows = windows

    def several(self, node: exp.Expr) -> list[tuple[str, Expr]] | None:
        return self._windows.several(node, self)


def _is_active(window: exp.Window) -> bool:
    """Whether rows leave a window when their time is up, and not only when others come."""
    spec = window.args.get("spec")
    return spec is not None and bool(spec.args.get("active"))
