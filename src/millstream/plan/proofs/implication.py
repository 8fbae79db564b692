"""What follows from conditions, whatever the values of the columns: never wrong, though not always found.

A condition is satisfied when it is TRUE; FALSE and NULL are the same failure. What is decided:

- AND, OR, NOT, IS [NOT] NULL, IN, IS [NOT] DISTINCT FROM, and BETWEEN as the comparisons it stands for;
- comparisons with constants and between terms, through any number of steps (x < y, y <= z), of all ordered types; for
  integers, that there is none between two neighbours; for booleans, that there are two values;
- exact numbers and times: differences (x - y < d, x < y + d), and multiples (x < c * y + d) against the same ratio, and
  against other ratios by the sign of y, which is taken from the other conditions, or else both signs are tried;
- DOUBLE: c * y + d and its parts as they are rounded: equal where c and d are equal, and ordered by c and d where the
  sign of y allows it, never strictly; exact numbers cast to DOUBLE are in the same order, never strictly;
- anything else is a term that equals itself: other functions, other arithmetic of DOUBLE, sums of three terms.

NULL goes through comparisons, arithmetic and casts. Ordering text means ordering its characters by their code points.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from millstream.expressions.nodes import Expr
from millstream.plan.proofs.comparisons import And, Formula, Nullness, Or, negated, truth
from millstream.plan.proofs.orders import Inequality, consistent, split_bases
from millstream.records import dataclass

_MOST_CASES = 500


def excludes(p: Expr, q: Expr, givens: tuple[Expr, ...] = ()) -> bool:
    """Whether p and q are certainly not satisfied at once, where the givens are."""
    return contradictory((p, q, *givens))


@lru_cache(maxsize=4096)
def contradictory(satisfied: tuple[Expr, ...], failed: tuple[Expr, ...] = ()) -> bool:
    """Whether it certainly cannot be that all of these are satisfied, and all of those are not."""
    formulas = [truth(condition) for condition in satisfied]
    formulas += [negated(truth(condition)) for condition in failed]
    cases = _Cases()
    try:
        return not cases.possible(formulas, _Facts(frozenset(), frozenset()))
    except _TooManyError:
        return False


class _TooManyError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is taken to be true in one case."""

    nulls: frozenset[Nullness]
    bounds: frozenset[Inequality]


class _Cases:
    """Looks for a case in which formulas are true."""

    def __init__(self) -> None:
        self._left = _MOST_CASES

    def possible(self, formulas: Iterable[Formula], facts: _Facts) -> bool:
        nulls, bounds = set(facts.nulls), set(facts.bounds)
        choices: list[Or] = []
        waiting = list(formulas)
        while waiting:
            formula = waiting.pop()
            match formula:
                case And(parts):
                    waiting.extend(parts)
                case Or((only,)):
                    waiting.append(only)
                case Or():
                    choices.append(formula)
                case Nullness():
                    nulls.add(formula)
                case Inequality():
                    bounds.add(formula)
        self._left -= 1
        if self._left < 0:
            raise _TooManyError
        if any(Nullness(one.term, not one.is_null) in nulls for one in nulls) or not consistent(bounds):
            return False
        now = _Facts(frozenset(nulls), frozenset(bounds))
        if not choices:
            return self._with_signs(now)
        choices.sort(key=lambda choice: len(choice.parts))
        first, *rest = choices
        return any(self.possible([part, *rest], now) for part in first.parts)

    def _with_signs(self, facts: _Facts) -> bool:
        """Whether a case stays possible if terms that are multiplied are negative, or are not."""
        open_ = [pair for pair in split_bases(facts.bounds) if not set(pair) & facts.bounds]
        if not open_:
            return True
        return any(self.possible([sign], facts) for sign in open_[0])
