"""A window that slides on by several rows is computed from panes: parts that whole windows consist of."""

from millstream.expressions import functions
from millstream.expressions.nodes import Column, Expr
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.aggregates import result_type
from millstream.plan.nodes import Aggregate, Node, Over, Project, Yield, passthrough
from millstream.plan.programs.builtin import builtin_program
from millstream.plan.programs.modes import Running, Sliding, Tumbling
from millstream.plan.programs.nodes import Program
from millstream.plan.programs.panes import at_every, can_pause, merging, paned
from millstream.plan.programs.product import product, shared
from millstream.plan.windows import Frame
from millstream.rules.merge_aggregates import stacked
from millstream.rules.tumble_slides import ends_in_one_row
from millstream.schema import Schema
from millstream.types import DOUBLE, SqlType

_SMALL = ("TINYINT", "SMALLINT", "INTEGER", "DOUBLE")
"""Types whose sums of parts are the sums of the whole, without leaving the type of a sum."""

_SINCE = ".since"
"""what the name of the value of the rows since the last pane ends with"""


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
    schema = over.input.schema
    sizes = [c.frame.preceding + 1 for c in over.calls if c.frame.unit == "rows" and isinstance(c.frame.preceding, int)]
    if every == 1 or len(sizes) < len(over.calls) or any(map(_cannot, over.calls)):
        return node
    if any(c.fn == "avg" and schema[c.arg or ""].type.name not in _SMALL for c in over.calls):
        return node
    panes = _Panes(schema, every)
    windows: list[AggregateCall] = []
    results: dict[str, Expr] = {}
    for call, size in zip(over.calls, sizes, strict=True):
        if call.fn == "avg":
            total = panes.window("sum", call.arg, size, f"{call.name}.sum", windows)
            number = panes.window("count", call.arg, size, f"{call.name}.count", windows)
            results[call.name] = functions.resolve("/", (functions.cast(total, DOUBLE), number))
        else:
            results[call.name] = panes.window(call.fn, call.arg, size, call.name, windows)
    plan: Node = panes.node(over.input, over.keys)
    if windows:
        plan = Over(plan, over.keys, tuple(windows))
    return Project(plan, (*passthrough(schema), *results.items()))


class _Panes:
    """The values of panes. A window that ends with a slot is some panes of as many rows as slots have, and the rest."""

    def __init__(self, schema: Schema, every: int) -> None:
        self.schema, self.every = schema, every
        self.columns: dict[tuple[str, str | None, int], str] = {}

    def window(self, fn: str, arg: str | None, size: int, name: str, windows: list[AggregateCall]) -> Expr:
        """The value of a window of `size` rows; what it needs is added to `windows`."""
        panes, rest = divmod(size, self.every)
        pane = self.columns.setdefault((fn, arg, rest), f"$pane{len(self.columns) + 1}.{fn}")
        type_ = _part_type(fn, None if arg is None else self.schema[arg].type)
        since = Column(type_, pane + _SINCE)
        if not panes:
            return since
        whole = fn if fn in ("min", "max") else "sum"
        windows.append(AggregateCall.over(name, whole, pane, Frame("rows", panes - 1), False, type_))
        return _merged(fn, Column(type_, name), since) if rest else Column(type_, name)

    def node(self, below: Node, keys: tuple[str, ...]) -> Aggregate:
        """One program for all panes."""
        programs, names, rests = [], [], [rest for _, _, rest in self.columns]
        for (fn, arg, rest), name in self.columns.items():
            type_ = None if arg is None else self.schema[arg].type
            program = builtin_program(fn, type_, _part_type(fn, type_))
            programs.append(paned(program, self.every, rest) if any(rests) else program)
            names += [name, name + _SINCE] if rest else [name]
        program, args = shared(product(programs), tuple(arg for _, arg, _ in self.columns if arg is not None))
        if not any(rests):
            return Aggregate(below, keys, program, args, Tumbling(self.every, self.every), tuple(names))
        return Aggregate(below, keys, at_every(program, self.every), args, Running(), tuple(names))


def _merged(fn: str, whole: Expr, since: Expr) -> Expr:
    """The aggregate of two parts; NULL is that of no value."""
    if fn in ("min", "max"):
        return functions.resolve("least" if fn == "min" else "greatest", (whole, since))
    both = functions.cast(functions.resolve("+", (whole, since)), whole.type)
    return both if fn == "count" else functions.resolve("coalesce", (both, whole, since))


def _cannot(call: AggregateCall) -> bool:
    return call.distinct or call.fn not in ("sum", "count", "avg", "min", "max")


def _part_type(fn: str, arg: SqlType | None) -> SqlType:
    type_ = result_type(fn, False, arg)
    assert type_ is not None
    return type_


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
