"""AST nodes of relations: windows in FROM, ISTREAM and its kin, views.

Any exp.Query may have args["stream_of"], one of STREAM_OPERATORS: `ISTREAM (query)`, `SELECT ISTREAM(a, b) FROM …`.
"""

from __future__ import annotations

from typing import ClassVar, cast

from sqlglot import exp

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
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "kind": True,
        "size": False,
        "slide": False,
        "partition": False,
        "now": False,
        "least": False,
        "most": False,
        "delete": False,
        "lateness": False,
    }

    @property
    def kind(self) -> str:
        return cast(str, self.args["kind"])

    @property
    def size(self) -> exp.Expr | None:
        return self.args.get("size")

    @property
    def slide(self) -> exp.Expr | None:
        return self.args.get("slide")

    @property
    def partition(self) -> list[exp.Column]:
        return self.args.get("partition") or []

    @property
    def delete(self) -> exp.Expr | None:
        return self.args.get("delete")

    @property
    def now(self) -> bool:
        return bool(self.args.get("now"))

    @property
    def least(self) -> exp.Expr | None:
        return self.args.get("least")

    @property
    def most(self) -> exp.Expr | None:
        return self.args.get("most")


class Granularity(exp.Expression):
    """GRANULARITY(…): a `size`, or `coarsest` and `finest`; each a number or an Interval."""

    arg_types: ClassVar[dict[str, bool]] = {"size": False, "coarsest": False, "finest": False}

    @property
    def size(self) -> exp.Expr | None:
        return self.args.get("size")

    @property
    def coarsest(self) -> exp.Expr | None:
        return self.args.get("coarsest")

    @property
    def finest(self) -> exp.Expr | None:
        return self.args.get("finest")


class Windowed(exp.Expression):
    """An item of FROM with a window, a granularity or both; `this` is its Table or Subquery, without alias."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "window": False,
        "granularity": False,
        "alias": False,
        "joins": False,
    }

    @property
    def name(self) -> str:
        return self.this.name if isinstance(self.this, exp.Table) else ""

    @property
    def window(self) -> StreamWindow | None:
        return self.args.get("window")

    @property
    def granularity(self) -> Granularity | None:
        return self.args.get("granularity")


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

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "columns": False,
        "query": True,
        "if_not_exists": False,
        "or_replace": False,
    }

    @property
    def columns(self) -> list[exp.Identifier]:
        return self.args.get("columns") or []

    @property
    def query(self) -> exp.Expr:
        return cast(exp.Expr, self.args["query"])
