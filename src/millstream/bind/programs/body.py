"""What the statements of one aggregate know: its tables and parameters, and the types found for them so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.programs.definition import RETURN
from millstream.bind.scope import Item
from millstream.catalog import AggregateDef
from millstream.errors import BindError
from millstream.plan.programs.nodes import LocalTable, Program, Range
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.sql import span_of
from millstream.types import DECIMAL, NULL, SqlType, common_type

_WIDEST_IN_KERNELS = 18


@dataclass
class Columns:
    """The columns of a local table or of the result; those without a declared type take one from the values given."""

    table: str
    """as it is declared, or `return`"""
    names: tuple[str, ...]
    types: list[SqlType]
    """NULL while nothing is known"""
    fixed: tuple[bool, ...]
    nodes: list[exp.ColumnDef]

    @property
    def title(self) -> str:
        return "the result" if self.table == RETURN else f"table {self.table}"

    @property
    def schema(self) -> Schema:
        return Schema(tuple(Field(name, type_) for name, type_ in zip(self.names, self.types, strict=True)))

    def observe(self, i: int, type_: SqlType, context: Context, node: exp.Expr) -> bool:
        """Note that a value of this type is given to a column; whether that changed the column's type."""
        if self.fixed[i]:
            return False
        wider = _wider(self.types[i], type_)
        if wider is None:
            raise Conflict(
                f"column {self.names[i]} of {self.title} is given {self.types[i]} and {type_}",
                hint="declare the type of the column, or CAST the value",
                span=span_of(node),
                sql=context.sql,
            )
        changed = wider != self.types[i]
        self.types[i] = wider
        return changed


class Conflict(BindError):
    """Values of types that have nothing in common are given to a column without a declared type."""


def _wider(known: SqlType, new: SqlType) -> SqlType | None:
    wider = common_type(known, new)
    if wider is not None and wider.name == "DECIMAL" and known != NULL and wider.precision > _WIDEST_IN_KERNELS:
        # sums have a digit more than what is added, without end
        narrow = known if known.name == "DECIMAL" else new
        if narrow.precision <= _WIDEST_IN_KERNELS:
            return DECIMAL(_WIDEST_IN_KERNELS, min(wider.scale, _WIDEST_IN_KERNELS))
    return wider


@dataclass
class BodyBinding:
    """One binding of an aggregate's statements. While `inferring`, values are looked at for their types only."""

    context: Context
    definition: AggregateDef
    parameters: Schema
    tables: dict[str, Columns]
    """by lower-case name; `return` is the result"""
    window: LocalTable | None
    nested: Callable[[AggregateDef, tuple[SqlType, ...], exp.Expr], Program]
    """binds an aggregate that a statement calls"""
    inferring: bool = False
    changed: bool = False
    state: str | None = None
    """whose statements are bound, while it matters"""
    aliases: set[str] = field(default_factory=lambda: {"oldest"})

    def schema_of(self, table: str) -> Schema:
        if self.window is not None and table.lower() == self.window.name:
            return self.window.schema
        return self.tables[table.lower()].schema

    def name_of(self, table: str) -> str:
        """The name of a table as it was declared."""
        if self.window is not None and table.lower() == self.window.name:
            return self.window.name
        return self.tables[table.lower()].table

    def range_over(self, node: exp.Table) -> tuple[Range, Item]:
        """A new range over a table, and the names that it brings into scope."""
        table = self.name_of(node.name)
        wanted = node.alias or table
        alias, number = wanted, 1
        while alias.lower() in self.aliases:
            number += 1
            alias = f"{wanted}#{number}"
        self.aliases.add(alias.lower())
        return Range(alias, table), Item(wanted, self.schema_of(table), f"{alias}.", table)

    def observe(self, table: str, i: int, type_: SqlType, node: exp.Expr) -> None:
        self.changed |= self.tables[table.lower()].observe(i, type_, self.context, node)
