"""What EXPLAIN prints."""

from __future__ import annotations

from millstream.errors import BindError
from millstream.plan.nodes import Node
from millstream.rules import OPTIMIZE, Trace

MODES = ("", "VERBOSE", "RULES")


def explain_text(plan: Node, trace: Trace, stages: str, mode: str) -> str:
    """The logical plan, the rules that changed it, the plan they left, and how the host runs it.

    VERBOSE shows the plan after every rule; RULES lists all rules with their reasons and whether they applied.
    """
    if mode not in MODES:
        raise BindError(f"no EXPLAIN {mode}", hint="EXPLAIN, EXPLAIN VERBOSE or EXPLAIN RULES")
    final = trace.changes[-1][1] if trace.changes else plan
    parts = [_part("logical plan", str(plan))]
    if mode == "VERBOSE":
        parts += [_part(f"after {name}", str(changed)) for name, changed in trace.changes]
    elif mode == "RULES":
        applied = set(trace.applied)
        lines = [f"{'x' if step.name in applied else ' '} {step.name}: {step.reason}" for step in OPTIMIZE]
        parts.append(_part("rules", "\n".join(lines)))
    else:
        parts.append("rules applied: " + (", ".join(trace.applied) or "none"))
    if final != plan and mode != "VERBOSE":
        parts.append(_part("optimized plan", str(final)))
    parts.append(_part("physical plan", stages))
    return "\n\n".join(parts)


def _part(title: str, body: str) -> str:
    return f"{title}:\n" + "\n".join("  " + line for line in body.splitlines())
