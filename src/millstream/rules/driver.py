"""The rule driver: it owns traversal, toggling, the trace, the checks and the cycle alarm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial

from millstream.plan.costs.statistics import UNKNOWN, Statistics
from millstream.plan.nodes import Node
from millstream.plan.programs.modes import Mode
from millstream.plan.programs.nodes import Program
from millstream.records import dataclass

Rule = Callable[[Node], Node]
"""A rule looks at one node (and what is below it) and returns it changed, or returns it itself: "not here"."""

AskingRule = Callable[..., Node]
"""A rule that also asks something beside the plan, by a keyword: `known`, what was measured of the streams, or
`why_slow`, what keeps a program from running fast."""

WhySlow = Callable[[Program, Mode], str | None]

MAX_PASSES = 50


@dataclass(frozen=True)
class RuleStep:
    """A rule in the order of application: on every node, or once on the whole plan."""

    rule: Rule | AskingRule
    reason: str
    whole_plan: bool = False
    asks: str | None = None

    @property
    def name(self) -> str:
        return self.rule.__name__

    def apply(self, plan: Node, **answers: object) -> Node:
        """The plan after this rule."""
        rule: Rule = self.rule if self.asks is None else partial(self.rule, **{self.asks: answers[self.asks]})
        return rule(plan) if self.whole_plan else _everywhere(plan, rule)


@dataclass
class Trace:
    """What the rules did: the plan before, and after each rule that changed it."""

    before: Node
    changes: list[tuple[str, Node]] = field(default_factory=list)

    @property
    def applied(self) -> list[str]:
        """The names of the rules that changed something, in order, each once."""
        return list(dict.fromkeys(name for name, _ in self.changes))


def run_rules(
    plan: Node,
    steps: Sequence[RuleStep],
    disabled: frozenset[str] = frozenset(),
    known: Statistics = UNKNOWN,
    why_slow: WhySlow = lambda _program, _mode: None,
) -> tuple[Node, Trace]:
    """Apply `steps` in order, over and over, until nothing changes; `known` is what was measured of the streams,
    `why_slow` what kernels say of a program that would run row by row."""
    trace = Trace(plan)
    seen = {plan.fingerprint}
    for _ in range(MAX_PASSES):
        start = plan
        for step in steps:
            if step.name in disabled:
                continue
            changed = step.apply(plan, known=known, why_slow=why_slow)
            if changed != plan:
                _check(step.name, plan, changed)
                plan = changed
                trace.changes.append((step.name, plan))
        if plan == start:
            return plan, trace
        if plan.fingerprint in seen:
            raise AssertionError(f"rules go round in circles: {', '.join(trace.applied)}\n{plan}")
        seen.add(plan.fingerprint)
    raise AssertionError(f"rules never finish: {', '.join(trace.applied)}\n{plan}")


def _everywhere(node: Node, rule: Rule) -> Node:
    """Top-down: a node is changed until the rule is done with it, then its inputs are."""
    for _ in range(MAX_PASSES):
        changed = rule(node)
        if changed is node or changed == node:
            break
        node = changed
    inputs = node.inputs
    rewritten = tuple(_everywhere(child, rule) for child in inputs)
    if any(new is not old for new, old in zip(rewritten, inputs, strict=True)):
        node = node.with_inputs(rewritten)
    return node


def _check(name: str, before: Node, after: Node) -> None:
    if before.schema != after.schema or before.kind != after.kind:
        raise AssertionError(f"rule {name} changed the result's columns: {before.schema} became {after.schema}")
