"""AST nodes of row patterns: MATCH_RECOGNIZE, `FROM s AS (X, *Y)`, and patterns in the WINDOW clause.

What MEASURES and DEFINE hold are ordinary expressions: PREV, NEXT, FIRST, LAST, CLASSIFIER, MATCH_NUMBER, … are calls
by these names (`function_name` tells it), `A.price` is a Column of the table A, and `count(A.*)` counts a Column that
is a Star. RUNNING and FINAL wrap the call behind them, with its FILTER.

In `FROM s AS (X, *Y)`, `LAST(Y).speed` is an exp.Dot of a call and an Identifier, `Y.previous.speed` a Column whose
table is `previous` and whose db is Y, and the arguments of `count(*Y)` and `LAST(*Y)` are `Starred`.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp

from millstream.sql.arguments import Arg, Args, Flag, takes


class RowPattern(exp.Expression):
    """A part of what stands in PATTERN (…)."""


class PatternVariable(RowPattern):
    """One row; `this` is the Identifier of the variable."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class PatternSequence(RowPattern):
    """`A B C`: the RowPatterns `expressions`, one after the other; `()` has none of them."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": False}


class PatternChoice(RowPattern):
    """`A | B`: one of the RowPatterns `expressions`, at least two."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}


class PatternPermutation(RowPattern):
    """`PERMUTE(A, B)`: the RowPatterns `expressions`, at least one, in any order."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}


class PatternExclusion(RowPattern):
    """`{- A -}`: the RowPattern `this`, whose rows ALL ROWS PER MATCH leaves out."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class PatternEdge(RowPattern):
    """`^` or, with `end`, `$`."""

    arg_types: ClassVar[dict[str, bool]] = {"end": True}

    end = Flag()


class PatternQuantifier(RowPattern):
    """`A+?` or `A{2,5}`: the RowPattern `this`, from `least` to `most` times (None: no limit).

    0 <= least <= most and most > 0. It is greedy, or `reluctant`.
    """

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "least": True, "most": False, "reluctant": False}

    least = Arg[int]()
    most = Arg[int | None]()
    reluctant = Flag()


class PatternSubset(exp.Expression):
    """`u = (a, b)` of SUBSET: the Identifier `this` stands for the Identifiers `expressions`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": True}


class PatternDefinition(exp.Expression):
    """`a AS condition` of DEFINE: `this` is the Identifier, `expression` the condition."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True}


class AfterMatch(exp.Expression):
    """AFTER MATCH SKIP: `to` is PAST LAST ROW, NEXT ROW, FIRST or LAST; the last two have an Identifier `this`.

    `SKIP TO a` is `SKIP TO LAST a`.
    """

    arg_types: ClassVar[dict[str, bool]] = {"to": True, "this": False}

    to = Arg[str]()


class RowsPerMatch(exp.Expression):
    """`all` is false for ONE ROW PER MATCH; ALL ROWS PER MATCH may `omit` empty matches or add `unmatched` rows."""

    arg_types: ClassVar[dict[str, bool]] = {"all": True, "omit": False, "unmatched": False}

    all = Flag()
    omit = Flag()
    unmatched = Flag()


class Within(exp.Expression):
    """WITHIN: `this` is an Interval or a number; `timeouts` is whether WITH TIMEOUTS follows."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "timeouts": False}

    timeouts = Flag()


class Matching(exp.Expression):
    """The clauses that MATCH_RECOGNIZE and patterns in the WINDOW clause share.

    measures: exp.Alias each
    skip: AfterMatch, or absent
    pattern: RowPattern
    within: Within, or absent
    subsets: PatternSubsets
    definitions: PatternDefinitions
    """

    measures = Args[exp.Alias]()
    skip = Arg[AfterMatch | None]()
    pattern = Arg[RowPattern]()
    within = Arg[Within | None]()
    subsets = Args[PatternSubset]()
    definitions = Args[PatternDefinition]()


_CLAUSES = {
    "measures": False,
    "skip": False,
    "pattern": True,
    "within": False,
    "subsets": False,
    "definitions": False,
}


class MatchRecognize(Matching):
    """`this MATCH_RECOGNIZE (…) AS alias` in FROM; the clauses of Matching, and:

    this: the item of FROM in which rows are searched, with its own alias: Table, Subquery, Values, Windowed, or another
        MatchRecognize or SequenceMatch
    partition: expressions of PARTITION BY, or exp.Alias each
    order: exp.Order, or absent
    rows: RowsPerMatch, or absent, which is ONE ROW PER MATCH
    alias: TableAlias, or absent
    joins: as any item of FROM in parentheses
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "partition": False,
        "order": False,
        "rows": False,
        **_CLAUSES,
        "alias": False,
        "joins": False,
    }

    partition = Args[exp.Expr]()
    order = Arg[exp.Order | None]()
    rows = Arg[RowsPerMatch | None]()


class WindowMatch(Matching):
    """A pattern in a window, as args["match"] of an exp.Window; the clauses of Matching, and `seek` (else INITIAL).

    The window holds PARTITION BY, ORDER BY and the frame as always. `val OVER w` is an exp.Window whose `this` is a
    Column, the name of a measure of the window.
    """

    arg_types: ClassVar[dict[str, bool]] = {**_CLAUSES, "seek": False}

    seek = Flag()


class SequenceVariable(exp.Expression):
    """`X`, or with `star` `*X`, of `AS (X, *Y)`; `this` is the Identifier."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "star": False}

    star = Flag()


class SequenceMatch(exp.Expression):
    """`this PARTITION BY … SEQUENCE BY … AS (X, *Y)` in FROM.

    this: the item of FROM in which rows are searched, as in MatchRecognize
    partition: as in MatchRecognize
    sequence: exp.Ordered each
    variables: SequenceVariables
    joins: as any item of FROM in parentheses
    """

    arg_types: ClassVar[dict[str, bool]] = takes("this partition? sequence? variables joins?")

    partition = Args[exp.Expr]()
    sequence = Args[exp.Expr]()
    variables = Arg[list[SequenceVariable]]()


class Starred(exp.Expression):
    """`*A` or `*A.price` as an argument: of all rows of the run; `this` is the Column A or A.price."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class RunningExtent(exp.Expression):
    """RUNNING before the call `this`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class Final(exp.Expression):
    """FINAL before the call `this`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}
