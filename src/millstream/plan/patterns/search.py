"""Row patterns: what is looked for in the rows of a partition, and what is told of each match.

A match labels neighbouring rows of a partition with variables. Conditions and measures are ordinary expressions over
columns that stand for values of the match: a `Reach` is a value of one of its rows, an
`AggregateCall` an aggregate over some of them, and two columns have fixed names, `MATCH_NUMBER` and `TIMED_OUT`.

Of the matches that begin at a row, the preferred one counts: the first one that backtracking finds if it tries
alternatives from left to right, one more repetition first where a quantifier is greedy, and one less first where it is
reluctant. A possessive one never gives back what it took. A row is tested with its label already on it: what a
condition reaches by the variable under test, or by none, includes the row at hand.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import field, replace
from functools import cached_property
from typing import Literal as OneOf

from millstream.expressions.nodes import Column, Expr, columns_of, transform
from millstream.plan.aggregate_calls import AggregateCall, MatchRows
from millstream.plan.node import Kind, Node, Unary, listed, require_names
from millstream.plan.patterns.expressions import Check, Pattern, Variable, changed_checks, walk_pattern
from millstream.plan.window_tables import length_text
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import BIGINT, BOOLEAN, TIMESTAMP, VARCHAR, SqlType

CLASSIFIER = "classifier()"
"""As the column of a reach, or in the argument of a summary: the variable that labels a row."""
MATCH_NUMBER = "match_number()"
"""The number of the match in its partition, from 1."""
TIMED_OUT = "timed_out()"
"""Whether what is told is a beginning that found no end in time, not a match."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The column `name`: the value of `column` at a row of the match.

    The row is the first or last one labelled with one of `variables` (None: with any), `offset` of those further on
    (FIRST) or back (LAST), and from there `shift` rows of the partition away (PREV: below 0, NEXT: above 0), whether or
    not that belongs to the match. It is NULL if there is no such row. It goes by the rows up to the one at hand, or, if
    `final`, by the whole match.
    """

    name: str
    column: str
    type: SqlType
    variables: tuple[str, ...] | None = None
    first: bool = False
    offset: int = 0
    shift: int = 0
    final: bool = False

    def __post_init__(self) -> None:
        if self.offset < 0:
            raise ValueError(f"an offset of {self.offset}")
        if self.column == CLASSIFIER and self.type != VARCHAR:
            raise ValueError("classifiers are text")

    def __str__(self) -> str:
        text = self.column if self.variables is None else f"{'|'.join(self.variables)}.{self.column}"
        is_last = not (self.first or self.offset or self.final)
        if not is_last or (self.variables is not None and not self.shift):
            text = f"{'FIRST' if self.first else 'LAST'}({text}{f', {self.offset}' if self.offset else ''})"
        text = f"FINAL {text}" if self.final else text
        if self.shift:
            rows = f", {abs(self.shift)}" if abs(self.shift) > 1 else ""
            text = f"{'PREV' if self.shift < 0 else 'NEXT'}({text}{rows})"
        return text


def spelled(value: Reach | AggregateCall[Expr], variables: tuple[str, ...] | None = None) -> str:
    """A value of a match by what it is, as if it were of other variables if they are given."""
    if isinstance(value, Reach):
        return str(value if variables is None else replace(value, variables=variables))
    return (value if variables is None else replace(value, framed=MatchRows(variables, value.final))).told


@dataclass(frozen=True, slots=True)
class Skip:
    """Where the search goes on after a match: behind its last row, at the row after its first, or at its first or last
    row with one of `variables`."""

    to: OneOf["past last", "next", "first", "last"] = "past last"
    variables: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.variables) != (self.to in ("first", "last")):
            raise ValueError(f"skip {self.to} {self.variables}")

    def __str__(self) -> str:
        match self.to:
            case "past last":
                return "PAST LAST ROW"
            case "next":
                return "TO NEXT ROW"
            case "first":
                return f"TO FIRST {'|'.join(self.variables)}"
            case "last":
                # the standard's word LAST says nothing more
                return f"TO {'|'.join(self.variables)}"


@dataclass(frozen=True, slots=True)
class Given:
    """What is told of a match.

    - one: a row per match, with the partition's keys and what is `final` at its end;
    - all: its rows, those of `Excluded` parts left out; an empty match gives the row where it is if `empty`, and rows
      in no match come, too, if `unmatched`;
    - each: every row of the input, once; one where a match begins has its values. `most` is how many rows after it a
      match may have; with `seek`, the match may also begin later.
    """

    rows: OneOf["one", "all", "each"] = "one"
    empty: bool = True
    unmatched: bool = False
    most: int | None = None
    seek: bool = False

    def __str__(self) -> str:
        match self.rows:
            case "one":
                return "ONE ROW PER MATCH" if self.empty else "ONE ROW PER NONEMPTY MATCH"
            case "all":
                more = " WITH UNMATCHED ROWS" if self.unmatched else "" if self.empty else " OMIT EMPTY MATCHES"
                return f"ALL ROWS PER MATCH{more}"
            case _:
                most = "UNBOUNDED" if self.most is None else str(self.most)
                return f"{'SEEK' if self.seek else 'INITIAL'} IN {most} FOLLOWING"


@dataclass(frozen=True)
class Search:
    """What is looked for in each partition, and what is told of it.

    A variable without a condition in `conditions` takes every row. `columns` names the reaches and summaries, and
    `MATCH_NUMBER` and `TIMED_OUT`, that come out, behind the keys (one row per match) or the input's columns. A match
    ends at most `within` after it began (`time` is the type of both instants); with `timeouts`, beginnings that found
    no end in time are told, too.

    A match comes out when it is certain: what happens later cannot make another one preferred. Its time is that of the
    row that made it certain, or when `within` was over; what only the end of the input decides comes at the end of all
    time.

    With `whole_runs`, an attempt never begins inside the first run of rows that a failed one took: of a pattern that
    begins with a repetition, that run is as long as can be on both sides.

    Two things are only there to reason with: `made` tells of columns of the input what they were computed from at the
    same row, and `holds` is true of every row.
    """

    keys: tuple[str, ...]
    pattern: Pattern
    conditions: tuple[tuple[str, Expr], ...] = ()
    reaches: tuple[Reach, ...] = ()
    summaries: tuple[AggregateCall[Expr], ...] = ()
    columns: tuple[str, ...] = ()
    given: Given = Given()
    skip: Skip = Skip()
    within: int | None = None
    timeouts: bool = False
    time: SqlType = TIMESTAMP
    made: tuple[tuple[str, Expr], ...] = ()
    holds: Expr | None = None
    whole_runs: bool = field(default=False, metadata={"later": True})

    def __post_init__(self) -> None:
        for name, condition in self.conditions:
            if condition.type != BOOLEAN or name not in self.variables:
                raise ValueError(f"{name} AS {condition}")
            self._require_values(columns_of(condition))
        for part in walk_pattern(self.pattern):
            if isinstance(part, Check):
                self._require_values(columns_of(part.condition))
        if (self.within is not None and self.within <= 0) or (self.timeouts and self.within is None):
            raise ValueError(f"within {self.within}")
        self._require_values(frozenset(self.columns))

    def _require_values(self, names: frozenset[str]) -> None:
        if unknown := names - self.values.keys():
            raise ValueError(f"no {', '.join(sorted(unknown))} in a match")

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """The variables of the pattern, in the order they first occur."""
        return tuple(dict.fromkeys(p.name for p in walk_pattern(self.pattern) if isinstance(p, Variable)))

    @cached_property
    def named(self) -> dict[str, Reach | AggregateCall[Expr]]:
        """The reaches and summaries by name."""
        reaches: dict[str, Reach | AggregateCall[Expr]] = {reach.name: reach for reach in self.reaches}
        return reaches | {summary.name: summary for summary in self.summaries}

    @cached_property
    def values(self) -> dict[str, SqlType]:
        """The columns that conditions may read and `columns` may name."""
        types = {name: value.type for name, value in self.named.items()}
        return {**types, MATCH_NUMBER: BIGINT, TIMED_OUT: BOOLEAN}

    @cached_property
    def read(self) -> frozenset[str]:
        """The columns of the input that matter to which matches there are and what is told of them."""
        args = (columns_of(arg) for summary in self.summaries for arg in summary.args)
        reached = {reach.column for reach in self.reaches}
        named = {*self.keys, *reached, *(name for names in args for name in names)}
        return frozenset(named - {CLASSIFIER, MATCH_NUMBER})

    def telling(self, wanted: Set[str]) -> Search:
        """The search that tells only those of its columns that are wanted, and reads no more than it needs."""
        told = tuple(name for name in self.columns if name in wanted)
        if self.given.rows == "one" and not self.keys:
            # a row has at least one column
            told = told or self.columns[:1]
        checks = (part.condition for part in walk_pattern(self.pattern) if isinstance(part, Check))
        conditions = (condition for _, condition in self.conditions)
        used = set(told).union(*map(columns_of, (*conditions, *checks)))
        reaches = tuple(reach for reach in self.reaches if reach.name in used)
        summaries = tuple(summary for summary in self.summaries if summary.name in used)
        left = replace(self, reaches=reaches, summaries=summaries, columns=told)
        return replace(left, made=tuple(column for column in self.made if column[0] in left.read))

    def output(self, below: Schema) -> Schema:
        """The columns that come out of rows with these."""
        kept = tuple(below[key] for key in self.keys) if self.given.rows == "one" else below.fields
        return Schema((*kept, *(Field(name, self.values[name]) for name in self.columns)))

    def __str__(self) -> str:
        spelled = changed_checks(self.pattern, lambda condition: Column(BOOLEAN, self.spelled(condition)))
        parts = [f"({spelled})"]
        if self.keys:
            parts.append(f"by {listed(self.keys)}")
        if self.within is not None:
            parts.append(f"within {length_text(self.within, self.time)}" + (" with timeouts" if self.timeouts else ""))
        parts.append(str(self.given))
        if self.skip != Skip():
            parts.append(f"skip {self.skip}")
        if self.whole_runs:
            parts.append("from whole runs")
        conditions = [f"{name} AS {self.spelled(condition)}" for name, condition in self.conditions]
        given = [f"{name} := {self._told(name)}" if name in self.named else name for name in self.columns]
        return " ".join(parts) + "".join(f"; {text}" for text in (", ".join(conditions), ", ".join(given)) if text)

    def spelled(self, condition: Expr) -> str:
        """A condition in which columns are written as what they stand for."""

        def spell(part: Expr) -> Expr:
            return Column(part.type, self._told(part.name)) if isinstance(part, Column) else part

        return str(transform(condition, spell))

    def _told(self, name: str) -> str:
        return spelled(self.named[name]) if name in self.named else name


@dataclass(frozen=True)
class Match(Unary):
    """The matches of a pattern in each partition of a stream."""

    search: Search

    def __post_init__(self) -> None:
        if self.input.kind is not Kind.EVENTS:
            raise ValueError("patterns are found in events")
        require_names(tuple(sorted(self.search.read)), self.input.schema, "a pattern")
        _ = self.schema

    @cached_property
    def schema(self) -> Schema:
        return self.search.output(self.input.schema)

    @property
    def passes_columns(self) -> bool:
        return self.search.given.rows != "one"

    @property
    def reads(self) -> frozenset[str]:
        return frozenset(self.search.read)

    @property
    def sieves(self) -> frozenset[str]:
        return frozenset(self.search.keys)

    def narrowed(self, wanted: Set[str]) -> Node:
        return replace(self, search=self.search.telling(wanted))

    def apart(self, by: tuple[str, ...]) -> Node | None:
        keys = by[:1] if self.passes_columns else by
        return replace(self, search=replace(self.search, keys=(*keys, *self.search.keys)))

    def label(self) -> str:
        return f"Match {self.search}"
