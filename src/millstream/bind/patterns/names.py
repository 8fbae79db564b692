"""The variables of a pattern: what PATTERN and SUBSET say."""

from __future__ import annotations

from dataclasses import field

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.scope import did_you_mean
from millstream.plan.patterns import expressions as M
from millstream.records import dataclass
from millstream.sql import patterns as S

MOST_PERMUTED = 10
"""How many parts PERMUTE may have: each set of them that may still come is a state of the search."""
MOST_STEPS = 10_000
"""How long a pattern may be with its repetitions written out."""


@dataclass
class Variables:
    """The variables of a pattern by their lower-case names, and what subsets stand for."""

    context: Context
    names: dict[str, str] = field(default_factory=dict)
    subsets: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def add(self, node: exp.Identifier) -> str:
        """The variable that a name in the pattern means."""
        return self.names.setdefault(node.name.lower(), node.name)

    def add_subsets(self, nodes: list[S.PatternSubset]) -> None:
        for node in nodes:
            name = node.this.name.lower()
            if name in self.names or name in self.subsets:
                self.context.fail(f"there is a variable {node.this.name} already", node.this)
            # a subset may stand for others that were defined before it
            members = [member for part in node.expressions for member in self.find(part)]
            self.subsets[name] = tuple(dict.fromkeys(members))

    def knows(self, name: str) -> bool:
        return name.lower() in self.names or name.lower() in self.subsets

    def find(self, node: exp.Expr, name: str | None = None) -> tuple[str, ...]:
        """The variables that a name stands for."""
        name = node.name if name is None else name
        if name.lower() in self.subsets:
            return self.subsets[name.lower()]
        if name.lower() not in self.names:
            known = [*self.names.values(), *self.subsets]
            self.context.fail(f"no variable {name} in the pattern", node, hint=did_you_mean(name, known))
        return (self.names[name.lower()],)


def bind_pattern(node: S.RowPattern, variables: Variables) -> M.Pattern:
    """What PATTERN asks for; its variables are added to those known."""
    pattern = _bind(node, variables)
    if _steps(pattern) > MOST_STEPS:
        variables.context.refuse(
            "this pattern is too long",
            node,
            detail=f"with its repetitions written out it has more than {MOST_STEPS:,} steps",
            hint="use + or *, and count(*) in a condition",
        )
    return pattern


def _bind(node: exp.Expr, variables: Variables) -> M.Pattern:
    match node:
        case S.PatternVariable():
            return M.Variable(variables.add(node.this))
        case S.PatternSequence():
            items = tuple(_bind(part, variables) for part in node.expressions)
            return items[0] if len(items) == 1 else M.Sequence(items)
        case S.PatternChoice():
            return M.Either(tuple(_bind(part, variables) for part in node.expressions))
        case S.PatternPermutation():
            return _permuted(node, variables)
        case S.PatternExclusion():
            return M.Excluded(_bind(node.this, variables))
        case S.PatternEdge():
            return M.Edge(node.end)
        case S.PatternQuantifier():
            greed: M.Greed = "reluctant" if node.reluctant else "greedy"
            return M.Repeat(_bind(node.this, variables), node.least, node.most, greed)
    return variables.context.fail("a pattern is expected here", node)


def _permuted(node: S.PatternPermutation, variables: Variables) -> M.Pattern:
    """The parts in any order."""
    if len(node.expressions) > MOST_PERMUTED:
        variables.context.refuse(
            f"PERMUTE of {len(node.expressions)} parts",
            node,
            detail="each set of parts that may still come is a state of the search",
            hint=f"at most {MOST_PERMUTED} parts are possible; put conditions on counts into DEFINE instead",
        )
    parts = tuple(_bind(part, variables) for part in node.expressions)
    return parts[0] if len(parts) == 1 else M.Permute(parts)


def _steps(pattern: M.Pattern) -> int:
    inner = sum(_steps(part) for part in pattern.parts())
    if isinstance(pattern, M.Permute):
        return inner << len(pattern.items) - 1
    if isinstance(pattern, M.Repeat):
        return inner * max(pattern.least, pattern.most or 1, 1)
    return inner or 1
