"""What EXPLAIN prints."""

from __future__ import annotations

from millstream.bind import statements as act
from millstream.bind.queries.outputs import Bound
from millstream.catalog import Catalog, Clock, DerivedDef, StreamDef
from millstream.errors import BindError
from millstream.hosts.contract import Host
from millstream.kernels.programs.spec import why_slow
from millstream.physical.nodes import streams_of
from millstream.plan.costs.plans import DISTANCE, Cost, estimate
from millstream.plan.costs.statistics import UNKNOWN, Statistics
from millstream.plan.lengths import lengths_told
from millstream.plan.node import listed
from millstream.plan.nodes import Node, Scan, walk
from millstream.plan.patterns.search import Match
from millstream.rules import OPTIMIZE, Trace
from millstream.rules.merge_aggregates import windows_apart
from millstream.session.planned import Planned
from millstream.session.whereabouts import whereabouts
from millstream.sql import parameter_names, parse, to_sql
from millstream.sql.relations import Granularity, StreamWindow

MODES = ("", "VERBOSE", "RULES", "COST")


def explained(planned: Planned, mode: str, catalog: Catalog, host: Host) -> str:
    """How a planned query runs, as EXPLAIN shows it."""
    program = planned.program
    if program.bound is None:
        return host.explain(program)
    trace = Trace(program.bound, list(planned.changes))
    streams = [catalog.get(stream, StreamDef) for stream in streams_of(program.plan)]
    by_number = any(stream.is_by_number or stream.clock is Clock.LATENT for stream in streams)
    with lengths_told(by_number=by_number):
        text = explain_text(program.bound, trace, host.explain(program), mode, host.statistics())
    if ranges := _unused_ranges(planned.text):
        text += "\n\n" + _part("ranges that are not used yet", "\n".join(ranges))
    if program.history is not None and mode != "COST":
        text += "\n\n" + _part("history", "\n".join(host.sources_of_history(program)))
    return text


def _unused_ranges(text: str) -> list[str]:
    """The ranges of a query from which the engine could choose, each with what it takes."""
    found = []
    # the text of a set of queries has parameters, whose values are not the same for all
    for statement in parse(text, dict.fromkeys(parameter_names(text), 1) or None) if text else ():
        for window in statement.ast.find_all(StreamWindow):
            if (most := window.args.get("most")) is not None:
                found.append(f"{to_sql(window)}: always {to_sql(most)}")
        for granularity in statement.ast.find_all(Granularity):
            if (finest := granularity.args.get("finest")) is not None:
                found.append(f"{to_sql(granularity)}: always {to_sql(finest)}")
    return found


def explain_text(plan: Node, trace: Trace, stages: str, mode: str, known: Statistics = UNKNOWN) -> str:
    """The logical plan, the rules that changed it, the plan they left, and how the host runs it.

    VERBOSE shows the plan after every rule, and what each operator keeps; RULES lists all rules with their reasons and
    whether they applied; COST shows the plan they left with what it is estimated to cost, from what is known of its
    streams.
    """
    if mode not in MODES:
        raise BindError(f"no EXPLAIN {mode}", hint="EXPLAIN, EXPLAIN VERBOSE, EXPLAIN RULES or EXPLAIN COST")
    final = trace.changes[-1][1] if trace.changes else plan
    if mode == "COST":
        return _costs(final, known)
    parts = [_part("logical plan", str(plan))]
    if mode == "VERBOSE":
        parts += [_part(f"after {name}", str(changed)) for name, changed in trace.changes]
    elif mode == "RULES":
        applied = set(trace.applied)
        lines = [f"{'x' if step.name in applied else ' '} {step.name}: {step.reason}" for step in OPTIMIZE]
        parts.append(_part("rules", "\n".join(lines)))
    else:
        parts.append("rules applied: " + (", ".join(trace.applied) or "none"))
    if mode == "VERBOSE":
        parts.append(_part("where rows are (Stream, Store, Scratch, Throw)", whereabouts(final)))
    elif final != plan:
        parts.append(_part("optimized plan", str(final)))
    apart = [
        f"{node.program.name}({listed(node.args)}) {node.mode}: {why}" for node, why in windows_apart(final, why_slow)
    ]
    if apart:
        parts.append(_part("windows that keep their own rows", "\n".join(apart)))
    searches = [line for node in walk(final) if isinstance(node, Match) for line in _failures(node)]
    if searches:
        parts.append(_part("where a search continues after a failure", "\n".join(searches)))
    parts.append(_part("physical plan", stages))
    return "\n\n".join(parts)


def _failures(node: Match) -> list[str]:
    """The shift and next tables of a pattern that needs no backtracking."""
    from millstream.kernels.patterns.chain import ChainMachine
    from millstream.kernels.patterns.kernel import machine_for

    machine = machine_for(node.search)
    if not isinstance(machine, ChainMachine):
        return []
    return [f"({machine.chain})", *(f"  {line}" for line in machine.lines())]


def _costs(plan: Node, known: Statistics) -> str:
    """Each operator with the distance d, length l and granule g of its rows, the rows it holds, its processor time."""
    cost = estimate(plan, known)
    tree = str(plan).splitlines()
    width = max(map(len, tree))
    lines = [f"{line:{width}}  {_figures(each)}" for line, each in zip(tree, cost.walk(), strict=True)]
    streams = sorted({node.stream for node in walk(plan) if isinstance(node, Scan)})
    return "\n\n".join(
        (
            _part("costs (d, l, g in units of time, rows held, cpu in ns per unit of time)", "\n".join(lines)),
            f"total: held {_number(cost.total_held)}, cpu {_number(cost.total_cpu)}",
            _part("streams", "\n".join(_stream(name, known) for name in streams) or "none"),
        )
    )


def _figures(cost: Cost) -> str:
    flow = cost.flow
    what = f"d {_number(flow.distance)}  l {_number(flow.length)}  g {_number(flow.granule)}"
    return f"{what}  held {_number(cost.held)}  cpu {_number(cost.cpu)}"


def _stream(name: str, known: Statistics) -> str:
    found = known.streams.get(name.lower())
    if found is None:
        return f"{name}: d {_number(DISTANCE)} assumed"
    values = ", ".join(f"{column} {_number(count)}" for column, count in sorted(found.distinct.items()))
    return (
        f"{name}: d {_number(found.distance)} measured over {found.rows} rows; different values: {values or 'unknown'}"
    )


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 or value == int(value) else f"{value:.3g}"


def _part(title: str, body: str) -> str:
    return f"{title}:\n" + "\n".join("  " + line for line in body.splitlines())


def explainable(action: act.Action, mode: str) -> tuple[act.StartQuery | act.AlterQuery | act.AlterWindow, str]:
    """The query that a statement given to `explain` starts, or stands for, and the mode."""
    match action:
        case act.ExplainPlan(of=query, mode=said):
            return query, said
        case act.Define(entry=DerivedDef(plan=plan), uses=uses):
            return act.StartQuery(Bound(plan, plan.schema.names), uses), mode
        case act.StartQuery() | act.AlterQuery() | act.AlterWindow():
            return action, mode
    raise BindError("EXPLAIN takes a query over streams")
