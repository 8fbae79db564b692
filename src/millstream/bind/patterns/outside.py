"""Clauses of row patterns outside of one: reported before other code misreads them."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millstream.bind.context import Context
from millstream.sql import to_sql
from millstream.sql.patterns import MatchRecognize, SequenceMatch, Starred

ONLY_IN_PATTERNS = ("prev", "next", "classifier", "match_number", "match_rowtime", "timed_out")
_HINTS = {
    "prev": "use lag(…) OVER (…) for the value of the row before",
    "next": "use lead(…) OVER (…) for the value of the row after",
}
_ELSEWHERE = {
    "lag": "use PREV(…) for the value of the row before, LAST(…, 1) for the one before in the match",
    "lead": "use NEXT(…) for the value of the row after",
    "match_sequence_number": "use count(*) to number the rows of a match",
}


def check_stars(statement: exp.Expr, context: Context) -> None:
    """Refuse arguments such as `*A` outside of a SELECT over `FROM s AS (*A, …)`."""
    for node in statement.find_all(Starred):
        around = node.find_ancestor(exp.Select, MatchRecognize)
        what = to_sql(node)
        if isinstance(around, MatchRecognize):
            column = node.this
            context.fail(
                f"{what} is only allowed with a sequence, FROM s AS (*{column.table or column.name}, …)",
                node,
                hint=f"write {to_sql(column)} here" if column.table else f"write {column.name}.* here",
            )
        if around is None or sequence_of(around) is None:
            context.fail(
                f"{what} refers to a run of rows, but FROM has no sequence",
                node,
                hint=f"FROM s AS (*{node.this.table or node.this.name}, …) defines one; count(*) counts rows",
            )


def refuse_outside(name: str, node: exp.Expr, context: Context) -> None:
    """Refuse a call that has a meaning only in a row pattern."""
    if name in ONLY_IN_PATTERNS:
        context.fail(
            f"{name.upper()} is only allowed in MEASURES and DEFINE",
            node,
            hint=_HINTS.get(name, "name it in MEASURES: " + name.upper() + "() AS …, and use that name"),
        )


def refuse_elsewhere(name: str, node: exp.Expr, context: Context) -> None:
    """Refuse a call that other systems have in row patterns, and say what does the same."""
    if name in ("final", "running"):
        word = name.upper()
        context.fail(
            f"{word} is only allowed before FIRST, LAST and aggregates", node, hint=f"{word} LAST(…), for each of them"
        )
    if name in _ELSEWHERE:
        context.fail(f"{name.upper()} is not allowed in a pattern", node, hint=_ELSEWHERE[name])


def sequence_of(select: exp.Expr) -> SequenceMatch | None:
    """The sequence that a SELECT looks for; None if it does not look for any."""
    return next((node for node, _ in entries_of(select) if isinstance(node, SequenceMatch)), None)


def entries_of(select: exp.Expr) -> Iterator[tuple[exp.Expr, exp.Join | None]]:
    """What stands in FROM, with its join."""
    from_ = select.args.get("from_")
    if from_ is not None:
        yield from_.this, None
    for join in select.args.get("joins") or []:
        yield join.this, join
