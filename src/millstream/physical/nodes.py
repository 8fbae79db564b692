"""Physical plan nodes: how a query runs. Both hosts start from the same tree.

A host turns `Source` into where its rows come from, runs `Compute` and `TableJoin` with what evaluates scalars best
there (Arrow in-process, Spark SQL on Spark), and steps the kernels of `Apply`.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import field, replace
from typing import Literal as OneOf

from millstream.expressions.nodes import Column, Expr
from millstream.kernels.contract import KernelSpec, Partials, RowStage
from millstream.kernels.window_groups.spec import WindowGroupSpec
from millstream.plan.nodes import TableHow, table_join_schema
from millstream.records import dataclass
from millstream.schema import Schema


@dataclass(frozen=True)
class Physical:
    """A physical operator; equal operators over equal inputs are equal values."""

    schema: Schema
    spans: bool = field(default=False, kw_only=True)
    """whether its rows are valid during intervals: a relation's, whose ends travel beside their starts"""
    lasts: bool = field(default=False, kw_only=True)
    """whether its rows are events that last, whose starts travel beside their ends"""

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return ()

    def label(self) -> str:
        raise NotImplementedError

    def __str__(self) -> str:
        return "\n".join(_tree(self, ""))


@dataclass(frozen=True)
class OverOne(Physical):
    """An operator over another one."""

    input: Physical

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Source(Physical):
    """Rows of a declared stream in order of time, or its late or refused rows (`side`); `schema` is what is read."""

    stream: str
    side: OneOf["main", "late", "errors"]

    def label(self) -> str:
        name = self.stream if self.side == "main" else f"{self.side}({self.stream})"
        return f"Source {name} [{', '.join(self.schema.names)}]"


@dataclass(frozen=True)
class Compute(OverOne):
    """Stateless work: keep rows where `predicate` holds, then compute `columns` (None keeps the input's)."""

    predicate: Expr | None
    columns: tuple[tuple[str, Expr], ...] | None

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """All that is computed of a row."""
        own = () if self.columns is None else tuple(expr for _, expr in self.columns)
        return own if self.predicate is None else (self.predicate, *own)

    def label(self) -> str:
        where = "" if self.predicate is None else f" where {self.predicate}"
        what = "" if self.columns is None else " " + ", ".join(_told(name, expr) for name, expr in self.columns)
        return f"Compute{what}{where}"


@dataclass(frozen=True)
class Staged(OverOne):
    """Stateless work on rows and their times: windows that a row's time alone decides, and the like."""

    stage: RowStage

    def label(self) -> str:
        return self.stage.describe()


@dataclass(frozen=True)
class StoredTable(Physical):
    """A stored table, or the answer of a query over `tables`, filtered and projected where it is read."""

    tables: tuple[str, ...]
    predicate: Expr | None
    columns: tuple[tuple[str, Expr], ...]
    query: str | None = None

    @property
    def table(self) -> str | None:
        """The one table that is read as it is."""
        return self.tables[0] if self.query is None else None

    def label(self) -> str:
        where = "" if self.predicate is None else f" where {self.predicate}"
        return f"StoredTable {self.table or f'({self.query})'} [{', '.join(self.schema.names)}]{where}"


SEVERAL_ROWS = "a subquery used as a value returned more than one row"
"""what is wrong where a `single` join finds several matches"""


@dataclass(frozen=True)
class TableJoin(Physical):
    """Each row with its matches in a stored table: hash on `pairs`, then `residual`; `how` and `mark` say what is made
    of them."""

    input: Physical
    table: StoredTable
    pairs: tuple[tuple[Expr, Expr], ...]
    residual: Expr | None
    how: TableHow
    mark: str = ""
    kept: tuple[str, ...] | None = None
    """the columns of the table that leave the join, if not all do"""

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return (self.input, self.table)

    def keeping(self, wanted: Set[str]) -> TableJoin:
        """The join without those columns of the table that nobody wants."""
        if self.how not in ("inner", "left", "gather") or self.kept is not None:
            return self
        fields = tuple(field for field in self.table.schema if field.name in wanted)
        schema = table_join_schema(self.input.schema, Schema(fields), self.how, self.mark)
        return self if schema == self.schema else replace(self, schema=schema, kept=tuple(f.name for f in fields))

    @property
    def both(self) -> Schema:
        """The columns that `residual` may read."""
        return Schema(self.input.schema.fields + self.table.schema.fields)

    def label(self) -> str:
        on = ", ".join(f"{mine} = {theirs}" for mine, theirs in self.pairs) or "every row"
        rest = "" if self.residual is None else f" where {self.residual}"
        return f"{'' if self.how == 'inner' else self.how.capitalize()}TableJoin on {on}{rest}"


@dataclass(frozen=True)
class Apply(Physical):
    """A kernel over its inputs; input i is port i."""

    over: tuple[Physical, ...]
    spec: KernelSpec

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return self.over

    def label(self) -> str:
        keys = self.spec.keys
        exchange = "one place" if keys is None or not keys else f"hash({', '.join(keys)})"
        return f"{self.spec.describe()}  ⟵ {exchange}"


@dataclass(frozen=True)
class Partial(OverOne):
    """Rows on their way to the kernel above, put together where they are read if that leaves clearly fewer."""

    partials: Partials

    def label(self) -> str:
        return self.partials.describe()


@dataclass(frozen=True)
class NativeGroups(OverOne):
    """Groups of a window table by the host's own GROUP BY."""

    spec: WindowGroupSpec

    def label(self) -> str:
        return self.spec.describe().replace("(compiled, by panes)", "(GROUP BY of the host, by panes)")


def walk(node: Physical) -> Iterator[Physical]:
    """The operators, outermost first."""
    yield node
    for child in node.inputs:
        yield from walk(child)


def streams_of(plan: Physical) -> list[str]:
    """The declared streams that a plan reads, each once."""
    return list(dict.fromkeys(node.stream.lower() for node in walk(plan) if isinstance(node, Source)))


def _tree(node: Physical, indent: str) -> Iterator[str]:
    yield indent + node.label()
    for child in node.inputs:
        yield from _tree(child, indent + "  ")


def _told(name: str, expr: Expr) -> str:
    """A column of a projection; one that stays as it is needs its name only."""
    return name if isinstance(expr, Column) and expr.name == name else f"{name} := {expr}"
