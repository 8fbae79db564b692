"""A window that slides on by several rows is computed from panes: parts that whole windows consist of."""

from dataclasses import replace
from math import gcd

from millstream import functions
from millstream.plan.builtin_programs import builtin_program
from millstream.plan.expr import Column, Expr
from millstream.plan.modes import Sliding, Tumbling
from millstream.plan.nodes import Aggregate, Node, Over, Project, Yield, passthrough
from millstream.plan.program_product import product
from millstream.plan.windows import Frame, WindowCall
from millstream.rules.tumble_slides import ends_in_one_row
from millstream.types import BIGINT, DOUBLE, SqlType

_SMALL = ("TINYINT", "SMALLINT", "INTEGER", "DOUBLE")
"""Types whose sums of parts are the sums of the whole, without leaving the type of a sum."""


def pane_slides(node: Node) -> Node:
    """Aggregate panes of as many rows as divide both the window and the slide, then aggregate the panes: the window
    holds one value for each pane instead of all rows."""
    match node:
        case Yield(input=Over() as over, unit="rows", every=every) if node.keys == over.keys:
            return _builtin_panes(node, over, every)
        case Yield(input=Aggregate(mode=Sliding(unit="rows", size=size, every=None)) as call, unit="rows", every=every):
            if node.keys == call.keys:
                return _own_panes(node, call, size, every)
    return node


def _builtin_panes(node: Yield, over: Over, every: int) -> Node:
    sizes = [c.frame.preceding for c in over.calls if c.frame.unit == "rows" and isinstance(c.frame.preceding, int)]
    rows = gcd(every, *(size + 1 for size in sizes))
    if len(sizes) < len(over.calls) or rows == 1 or max(sizes) < every or any(map(_cannot, over.calls)):
        return node
    if any(c.fn == "avg" and over.input.schema[c.arg or ""].type.name not in _SMALL for c in over.calls):
        return node
    panes: dict[tuple[str, str | None], str] = {}
    windows: list[WindowCall] = []
    results: dict[str, Expr] = {}
    for call, size in zip(over.calls, sizes, strict=True):
        frame = Frame("rows", (size + 1) // rows - 1)
        totals: list[Column] = []
        for part in ("sum", "count") if call.fn == "avg" else (call.fn,):
            pane = panes.setdefault((part, call.arg), f"$pane{len(panes) + 1}.{part}")
            type_ = _part_type(part, None if call.arg is None else over.input.schema[call.arg].type)
            name = call.name if call.fn != "avg" else f"{call.name}.{part}"
            whole = part if part in ("min", "max") else "sum"
            windows.append(WindowCall(name, whole, pane, frame, False, type_))
            totals.append(Column(type_, name))
        results[call.name] = totals[0]
        if call.fn == "avg":
            results[call.name] = functions.resolve("/", (functions.cast(totals[0], DOUBLE), totals[1]))
    schema = over.input.schema
    types = [None if arg is None else schema[arg].type for _, arg in panes]
    programs = [builtin_program(fn, type_, _part_type(fn, type_)) for (fn, _), type_ in zip(panes, types, strict=True)]
    args = tuple(arg for _, arg in panes if arg is not None)
    tumbles = Aggregate(over.input, over.keys, product(programs), args, Tumbling(rows, rows), tuple(panes.values()))
    plan: Node = Over(tumbles, over.keys, tuple(windows))
    if every > rows:
        plan = replace(node, input=plan, every=every // rows)
    return Project(plan, (*passthrough(schema), *results.items()))


def _cannot(call: WindowCall) -> bool:
    return call.distinct or call.fn not in ("sum", "count", "avg", "min", "max")


def _part_type(fn: str, arg: SqlType | None) -> SqlType:
    if fn == "count" or arg is None:
        return BIGINT
    if fn == "sum":
        return arg if arg.name in ("DOUBLE", "DECIMAL") else BIGINT
    return arg


def _own_panes(node: Yield, call: Aggregate, size: int, every: int) -> Node:
    """The tumble version of an ALGEBRAIC aggregate, cascaded into its window version."""
    rows, base = gcd(size, every), call.base
    if rows == 1 or size <= every or base is None or not (call.program.algebraic or base.algebraic):
        return node
    fits = len(base.result) == len(call.program.parameters) == 1
    if not fits or base.result.fields[0].type != call.program.parameters.fields[0].type or not ends_in_one_row(base):
        return node
    panes = Aggregate(call.input, call.keys, base, call.args, Tumbling(rows, rows), ("$pane",))
    plan: Node = replace(call, input=panes, args=("$pane",), mode=Sliding("rows", size // rows), base=None)
    if every > rows:
        plan = replace(node, input=plan, every=every // rows)
    return Project(plan, passthrough(call.schema))
