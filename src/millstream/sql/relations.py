"""AST nodes of relations: windows in FROM, ISTREAM and its kin, views.

Any exp.Query may have args["stream_of"], one of STREAM_OPERATORS: `ISTREAM (query)`, `SELECT ISTREAM(a, b) FROM …`.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp

from millstream.sql.arguments import Arg, Args, Flag, takes

STREAM_OPERATORS = ("ISTREAM", "DSTREAM", "RSTREAM")
"""from relations to streams: what came, what went, all there is"""


class StreamWindow(exp.Expression):
    """WINDOW(…) or […] behind an item of FROM.

    kind: RANGE or ROWS; NOW is a RANGE
    size, slide: a number or an Interval; a size of None is UNBOUNDED, unless there is `now` or `least` and `most`
    least, most: the bounds of MIN …, MAX …
    partition: Columns
    now: bool
    lateness: a number or an Interval
    delete: the condition of DELETE WHEN, for rows that end their key's row
    preceding: bool, of a window that is set; it is written as behind OVER
    """

    arg_types: ClassVar[dict[str, bool]] = takes(
        "kind size? slide? partition? now? least? most? delete? lateness? preceding?"
    )

    kind = Arg[str]()
    size = Arg[exp.Expr | None]()
    slide = Arg[exp.Expr | None]()
    partition = Args[exp.Column]()
    delete = Arg[exp.Expr | None]()
    now = Flag()
    preceding = Flag()
    least = Arg[exp.Expr | None]()
    most = Arg[exp.Expr | None]()


class Granularity(exp.Expression):
    """GRANULARITY(…): a `size`, or `coarsest` and `finest`; each a number or an Interval."""

    arg_types: ClassVar[dict[str, bool]] = {"size": False, "coarsest": False, "finest": False}

    size = Arg[exp.Expr | None]()
    coarsest = Arg[exp.Expr | None]()
    finest = Arg[exp.Expr | None]()


class Windowed(exp.Expression):
    """An item of FROM with a window, a granularity or both; `this` is its Table or Subquery, without alias."""

    arg_types: ClassVar[dict[str, bool]] = takes("this window? granularity? alias? joins?")

    @property
    def name(self) -> str:
        return self.this.name if isinstance(self.this, exp.Table) else ""

    window = Arg[StreamWindow | None]()
    granularity = Arg[Granularity | None]()


class StreamItems(exp.Expression):
    """`ISTREAM(a, b)` in place of a SELECT list; only while a query is read or printed."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "distinct": False, "expressions": True}


class StreamQuery(exp.Expression):
    """`ISTREAM (query)` around the query `expression`; only while it is printed."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True}


class CreateView(exp.Expression):
    """CREATE VIEW.

    this: the name, an Identifier
    columns: Identifiers; empty if the query names them
    query: the query after AS
    if_not_exists, or_replace: bool
    """

    arg_types: ClassVar[dict[str, bool]] = takes("this columns? query if_not_exists? or_replace?")

    columns = Args[exp.Identifier]()
    query = Arg[exp.Expr]()
