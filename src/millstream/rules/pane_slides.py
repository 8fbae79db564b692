"""A window that slides on by several rows is computed from panes: parts that whole windows consist of."""

from dataclasses import replace

from millstream.expressions import functions
from millstream.expressions.nodes import Column, Expr
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.aggregates import HALVES, result_type
from millstream.plan.nodes import Aggregate, Node, Over, Project, RowSlots, Yield, passthrough
from millstream.plan.programs.modes import Running, Sliding, Tumbling
from millstream.plan.programs.nodes import Program
from millstream.plan.programs.panes import at_every, can_pause, merging, paned
from millstream.plan.programs.product import product, shared
from millstream.plan.windows import Frame
from millstream.rules.merge_aggregates import stacked
from millstream.rules.tumble_slides import ends_in_one_row
from millstream.schema import Schema
from millstream.types import DOUBLE, SqlType

_SMALL = ("TINYINT", "SMALLINT", "INTEGER")
"""Types whose sums do not leave the type of a sum."""

_REST, _SINCE = ".rest", ".since"
"""what the names of values of some last rows end with: those of a slot before, and those since a pane"""


def pane_slides(node: Node) -> Node:
    """Aggregate panes, then aggregate those: a window holds one value for each pane instead of all rows.

    Panes have as many rows as the window slides on by, and begin where windows begin. The rows since the last one
    ended, if any, are the window's rest.
    """
    match node:
        case Yield(input=Over() as over, unit="rows", every=every) if node.keys == over.keys:
            return _builtin_panes(node, over, every)
        case Yield(input=Aggregate() as call, unit="rows", every=every) if node.keys == call.keys:
            return _own_panes(node, call, every)
    return node


def _builtin_panes(node: Yield, over: Over, every: int) -> Node:
    if every == 1 or not all(_has_parts(call, over.input.schema) for call in over.calls):
        return node
    panes = _Panes(over.input.schema, every)
    results: dict[str, Expr] = {}
    for call in over.calls:
        if call.fn == "avg":
            total, number = (
                panes.window(replace(call, fn=fn, names=(f"{call.name}.{fn}",))) for fn in ("sum", "count")
            )
            results[call.name] = functions.resolve("/", (functions.cast(total, DOUBLE), number))
        else:
            results[call.name] = panes.window(call)
    plan: Node = RowSlots(over.input, over.keys, tuple(panes.slots.values()), every)
    if panes.windows:
        plan = Over(plan, over.keys, tuple(panes.windows))
    return Project(plan, (*passthrough(over.input.schema), *results.items()))


class _Panes:
    """The calls over slots of rows and over these. A window that ends with a slot is some whole slots, and the last
    rows of the one before them."""

    def __init__(self, schema: Schema, every: int) -> None:
        self.schema, self.every = schema, every
        self.slots: dict[AggregateCall[str], AggregateCall[str]] = {}
        self.windows: list[AggregateCall[str]] = []

    def window(self, call: AggregateCall[str]) -> Expr:
        """The value of a call."""
        type_ = result_type(call.fn, False, *(self.schema[arg].type for arg in call.args))
        assert type_ is not None and call.frame.start is not None
        whole, rest = divmod(call.frame.start + 1, self.every)
        parts: list[Expr] = []
        if whole:
            fn = call.fn if call.fn in ("min", "max") else "sum"
            pane = self._pane(call, self.every, type_)
            parts.append(self._over(AggregateCall.over(call.name, fn, pane, Frame("rows", whole - 1), False, type_)))
        if rest:
            pane = self._pane(call, rest, type_)
            name = f"{call.name}{_REST}"
            before = AggregateCall.over(name, "lag", pane, Frame("rows", whole), False, type_)
            parts.append(self._over(before) if whole else Column(type_, pane))
        return parts[0] if len(parts) == 1 else _merged(call.fn, *parts)

    def _over(self, call: AggregateCall[str]) -> Column:
        self.windows.append(call)
        return Column(call.type, call.name)

    def _pane(self, call: AggregateCall[str], rows: int, type_: SqlType) -> str:
        """The column of a call over the last rows of each slot."""
        wanted = replace(call, names=("",), types=(type_,), framed=Frame("rows", rows - 1))
        made = replace(wanted, names=(f"$pane{len(self.slots) + 1}.{call.fn}",))
        return self.slots.setdefault(wanted, made).name


def _merged(fn: str, whole: Expr, rest: Expr) -> Expr:
    """The aggregate of two parts; NULL is that of no value."""
    if fn in ("min", "max"):
        return functions.resolve("least" if fn == "min" else "greatest", (rest, whole))
    both = functions.cast(functions.resolve("+", (whole, rest)), whole.type)
    return functions.resolve("coalesce", (both, whole, rest))


def _has_parts(call: AggregateCall[str], rows: Schema) -> bool:
    """Whether results of parts give exactly that of the whole: sums of floats are rounded, those of wide integers may
    leave their type."""
    frame = call.frame
    if call.distinct or frame.unit != "rows" or frame.end or frame.start is None:
        return False
    is_small = call.arg is not None and rows[call.arg].type.name in _SMALL
    if call.fn == "sum" or call.fn in HALVES:
        return call.arg is not None and rows[call.arg].type.name != "DOUBLE"
    return call.fn in ("count", "min", "max") or (call.fn == "avg" and is_small)


def _own_panes(node: Yield, call: Aggregate, every: int) -> Node:
    """The tumble versions of ALGEBRAIC aggregates, cascaded into their window versions, and merged with the rest."""
    calls = stacked(call, alike=_is_of_parts)
    if every == 1 or not calls:
        return node
    sizes = [divmod(each.mode.size, every) for each in calls if isinstance(each.mode, Sliding)]
    bases = [each.base for each in calls if each.base is not None]
    has_rests = any(rest for _, rest in sizes)
    if (has_rests or len(calls) > 1) and not all(map(can_pause, bases)):
        return node
    names = [f"$pane{i}" for i in range(1, len(calls) + 1)]
    results: list[str] = []
    programs: list[Program] = []
    for base, name, (_, rest) in zip(bases, names, sizes, strict=True):
        programs.append(paned(base, every, rest) if has_rests else base)
        results += [name, name + _SINCE] if rest else [name]
    program, args = shared(product(programs), tuple(arg for each in calls for arg in each.args))
    program, mode = (at_every(program, every), Running()) if has_rests else (program, Tumbling(every, every))
    plan: Node = Aggregate(calls[0].input, call.keys, program, args, mode, tuple(results))
    values = dict(passthrough(call.schema))
    merged: list[tuple[Program, tuple[str, str], tuple[str, ...]]] = []
    for each, base, name, (panes, rest) in zip(calls, bases, names, sizes, strict=True):
        if not panes:
            values[each.results[0]] = Column(base.result.fields[0].type, name + _SINCE)
            continue
        whole = (f"{name}.whole",) if rest else each.results
        plan = Aggregate(plan, call.keys, each.program, (name,), Sliding("rows", panes), whole)
        if rest:
            merged.append((merging(base), (whole[0], name + _SINCE), each.results))
    for both, parts, result in merged:
        plan = Aggregate(plan, call.keys, both, parts, Running(), result)
    return Project(plan, tuple(values.items()))


def _is_of_parts(call: Aggregate) -> bool:
    """Whether the aggregate of the aggregates of parts is that of the whole: the results fit the argument."""
    base, program = call.base, call.program
    if not isinstance(call.mode, Sliding) or call.mode.unit != "rows" or call.mode.every is not None or base is None:
        return False
    if not (program.algebraic or base.algebraic) or len(base.result) != 1 or not ends_in_one_row(base):
        return False
    return len(program.parameters) == 1 and base.result.fields[0].type == program.parameters.fields[0].type
