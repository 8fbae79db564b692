"""The values of a match that expressions read, and the columns of the rows that they are read from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace

from millstream.expressions import functions
from millstream.expressions.nodes import (
    Call,
    Case,
    Cast,
    Column,
    Expr,
    Literal,
    columns_of,
    substitute,
    told,
    transform,
)
from millstream.plan import nodes as P
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.patterns.search import CLASSIFIER, MATCH_NUMBER, TIMED_OUT, Reach
from millstream.records import dataclass
from millstream.types import BIGINT, BOOLEAN, VARCHAR

LABEL = Column(VARCHAR, CLASSIFIER)
NUMBER = Column(BIGINT, MATCH_NUMBER)


@dataclass(frozen=True)
class MatchRow:
    """A row of a match, as a `Reach` finds it."""

    variables: tuple[str, ...] | None = None
    first: bool = False
    offset: int = 0
    shift: int = 0
    final: bool = False

    def is_last(self, variable: str | None = None) -> bool:
        """Whether that is the row at hand, or some rows from there, while it is tested for a variable."""
        among = self.variables is None or variable in self.variables
        return among and not self.first and not self.offset and not self.final


AT_HAND = MatchRow()


@dataclass
class MatchValues:
    """Collects what the expressions of one search ask for; equal questions have one answer.

    Whatever a row alone decides becomes a column of the rows, computed below the search.
    """

    prefix: str
    added: dict[Expr, str] = field(default_factory=dict)
    reaches: dict[tuple[str, MatchRow], Reach] = field(default_factory=dict)
    summaries: dict[AggregateCall[Expr], AggregateCall[Expr]] = field(default_factory=dict)

    @classmethod
    def beside(cls, rows: P.Node, prefix: str = "$") -> MatchValues:
        """None yet, with names that no column of the rows has."""
        while any(name.startswith(prefix) for name in rows.schema.names):
            prefix = f"${prefix}"
        return cls(prefix)

    def column(self, expr: Expr) -> str:
        """The name of a column of the rows that holds `expr`."""
        if isinstance(expr, Column):
            return expr.name
        return self.added.setdefault(expr, f"{self.prefix}p{len(self.added) + 1}")

    def has_column(self, expr: Expr) -> bool:
        return isinstance(expr, Column) or expr in self.added

    def reach(self, expr: Expr, place: MatchRow) -> Column:
        """What an expression over a row's columns is at a place."""
        name = self.column(expr)
        known = self.reaches.get((name, place))
        if known is None:
            own = f"{self.prefix}r{len(self.reaches) + 1}"
            where = (place.variables, place.first, place.offset, place.shift, place.final)
            known = self.reaches[name, place] = Reach(own, name, expr.type, *where)
        return Column(known.type, known.name, str(replace(known, column=told(expr))))

    def at(self, expr: Expr, place: MatchRow) -> Expr:
        """What an expression over a row's columns, its label and the number of the match is at a place; NULL where
        there is no such row."""
        if expr == LABEL or not columns_of(expr) & {CLASSIFIER, MATCH_NUMBER}:
            return self.reach(expr, place)
        parts = self._parts(expr, place)
        # the match has a number, whether or not it has the row
        if is_null_of_nulls(substitute(expr, {MATCH_NUMBER: Literal(BIGINT, 1)})):
            return parts
        there = self.reach(Literal(BOOLEAN, True), place)
        missing = functions.resolve("is_null", (there,))
        return Case(expr.type, ((missing, Literal(expr.type, None)),), parts)

    def of_match(self, expr: Expr) -> Expr:
        """What an expression over the values of a match is; NULL at rows without a match."""
        if is_null_of_nulls(expr):
            return expr
        missing = functions.resolve("is_null", (Column(BOOLEAN, TIMED_OUT),))
        return Case(expr.type, ((missing, Literal(expr.type, None)),), expr)

    def _parts(self, expr: Expr, place: MatchRow) -> Expr:
        if expr == LABEL:
            return self.reach(expr, place)
        if isinstance(expr, Literal) or expr == NUMBER:
            return expr
        if not columns_of(expr) & {CLASSIFIER, MATCH_NUMBER}:
            return self.reach(expr, place)
        return expr.with_children(tuple(self._parts(child, place) for child in expr.children()))

    def argument(self, expr: Expr) -> Expr:
        """An argument of a summary, in which what the columns of a row decide is a column."""
        read = columns_of(expr)
        if isinstance(expr, Literal) and expr.value is None:
            return expr
        if not read & {CLASSIFIER, MATCH_NUMBER}:
            return Column(expr.type, self.column(expr))
        return expr.with_children(
            tuple(
                child if isinstance(child, Literal) or not columns_of(child) else self.argument(child)
                for child in expr.children()
            )
        )

    def summary(self, asked: AggregateCall[Expr]) -> Column:
        """The value of an aggregate, whose name is given here."""
        known = self.summaries.get(asked)
        if known is None:
            known = self.summaries[asked] = replace(asked, names=(f"{self.prefix}s{len(self.summaries) + 1}",))
        return Column(known.type, known.name, str(replace(known, args=tuple(map(self._spelled, known.args)))))

    def _spelled(self, arg: Expr) -> Expr:
        """An argument in which computed columns are what they are computed from."""
        return substitute(arg, {name: expr for expr, name in self.added.items()})

    def place_of(self, name: str) -> tuple[str, MatchRow] | None:
        """The column and the place that a reach stands for; None for other values."""
        return next((key for key, reach in self.reaches.items() if reach.name == name), None)

    def is_of_match(self, name: str) -> bool:
        """Whether a column is a value of the match, and not one of its rows."""
        named = {reach.name for reach in self.reaches.values()} | {summary.name for summary in self.summaries.values()}
        return name in (MATCH_NUMBER, TIMED_OUT) or name in named

    def asked(self, names: Iterable[str]) -> tuple[tuple[Reach, ...], tuple[AggregateCall[Expr], ...]]:
        """The reaches and summaries of these names."""
        wanted = set(names)
        reaches = tuple(reach for reach in self.reaches.values() if reach.name in wanted)
        return reaches, tuple(summary for summary in self.summaries.values() if summary.name in wanted)

    def prepared(self, rows: P.Node, read: frozenset[str]) -> P.Node:
        """The rows with the columns that are asked for."""
        added = tuple((name, expr) for expr, name in self.added.items() if name in read)
        return P.Project(rows, (*P.passthrough(rows.schema), *added)) if added else rows

    def settled(self, condition: Expr, variable: str) -> Expr:
        """A condition as it is when a row is tested for a variable: its last row is the row at hand, whatever the name,
        and bears that label."""

        def settle(part: Expr) -> Expr:
            if not isinstance(part, Column):
                return part
            found = self.place_of(part.name)
            if found is None or not found[1].is_last(variable):
                return part
            column, place = found
            if column == CLASSIFIER and not place.shift:
                return Literal(VARCHAR, variable)
            there = self.reach(Column(part.type, column), replace(AT_HAND, shift=place.shift))
            return replace(there, said=part.said)

        return transform(condition, settle)


_NULL_MATTERS = frozenset(
    ("is_null", "is_distinct", "coalesce", "nullif", "greatest", "least", "if", "concat", "concat_ws")
)
_NULL_IF_ALL = frozenset(("and", "or"))


def is_null_of_nulls(expr: Expr) -> bool:
    """Whether an expression is certainly NULL where all its columns are, so that a row that is not there may as well be
    asked for the whole of it."""
    match expr:
        case Column():
            return True
        case Literal(value=value):
            return value is None
        case Cast(arg=arg):
            return is_null_of_nulls(arg)
        case Call(fn="in", args=args):
            return is_null_of_nulls(args[0])
        case Call(fn=fn, args=args) if fn in _NULL_IF_ALL:
            return all(map(is_null_of_nulls, args))
        case Call(fn=fn, args=args):
            return fn in functions.FUNCTIONS and fn not in _NULL_MATTERS and any(map(is_null_of_nulls, args))
    return False
