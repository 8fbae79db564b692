"""Whole runs expressed as a condition, for searches that do not use shift tables."""

from __future__ import annotations

from dataclasses import replace

from millstream.expressions.nodes import Call, Column, Expr, Literal, columns_of, conjunction, substitute
from millstream.plan.patterns.expressions import Variable, walk_pattern
from millstream.plan.patterns.row_conditions import distance_of
from millstream.plan.patterns.search import CLASSIFIER, Reach, Search
from millstream.types import BOOLEAN


def by_condition(search: Search) -> Search:
    """The search whose first run begins where the row before does not satisfy the run's condition.

    A row of the match before counts as such a row, too, which it does not where searches go by tables. A condition that
    rows alone do not decide stays as it is.
    """
    if not search.whole_runs:
        return search
    plain = replace(search, whole_runs=False)
    first = next(part.name for part in walk_pattern(search.pattern) if isinstance(part, Variable))
    condition = dict(search.conditions).get(first)
    if condition is None:
        return plain
    added: list[Reach] = []
    columns: dict[str, Expr] = {}
    for name in sorted(columns_of(condition)):
        value = search.named.get(name)
        distance = distance_of(value, first, None) if isinstance(value, Reach) else None
        if not isinstance(value, Reach) or distance is None or value.column == CLASSIFIER:
            return plain
        before = Reach(f"$begin{len(added)}", value.column, value.type, (first,), True, 0, distance - 1)
        added.append(before)
        columns[name] = Column(value.type, before.name)
    if not added:
        return plain
    # a row that is not there has no values: its condition counts only if one of those it reads is there
    known = [Call(BOOLEAN, "not", (Call(BOOLEAN, "is_null", (column,)),)) for column in columns.values()]
    there = known[0]
    for other in known[1:]:
        there = Call(BOOLEAN, "or", (there, other))
    earlier = conjunction((there, substitute(condition, columns)))
    begins = Call(BOOLEAN, "is_distinct", (earlier, Literal(BOOLEAN, True)))
    conditions = tuple((name, conjunction((own, begins)) if name == first else own) for name, own in search.conditions)
    return replace(plain, conditions=conditions, reaches=(*search.reaches, *added))
