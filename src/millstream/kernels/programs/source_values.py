"""Expressions of a program as kernel source; what their subqueries need is written first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace

from millstream.expressions.kernel.coded_text import NotCompilable, on_codes
from millstream.expressions.kernel.forms import and_, not_, zero
from millstream.expressions.kernel.source import to_kernel_source
from millstream.expressions.nodes import Call, Column, Expr, Literal, conjunction, transform
from millstream.kernels.programs.layout import Cells, ProgramLayout
from millstream.kernels.programs.storage import Pair
from millstream.kernels.source.writer import Writer
from millstream.plan.programs.nodes import (
    AggregateValue,
    Exists,
    InQuery,
    Program,
    Range,
    Rows,
    ScalarQuery,
    Statement,
    column_names,
    queries_of,
)
from millstream.records import dataclass
from millstream.types import BIGINT, BOOLEAN, SqlType

Sink = Callable[[list[Pair]], None]


@dataclass
class Body:
    """What one program's statements refer to: a program inside another has its own."""

    program: Program
    names: dict[str, str]
    prefix: str
    on_return: Sink
    sqlcode: str | None = None


@dataclass
class Values:
    """Writes expressions; `layout` says where the outermost program's tables lie."""

    layout: ProgramLayout
    write: Writer
    helpers: set[str] = field(default_factory=set)
    present: set[str] = field(default_factory=set)
    """variables that are never NULL"""
    known: frozenset[tuple[str, str]] = frozenset()
    """tables and columns that are never NULL"""
    texts: dict[str, str] = field(default_factory=dict)
    """text constants, and the variable that holds the code of each"""
    computed: dict[str, tuple[tuple[int, ...], Column]] = field(default_factory=dict)
    """what depends on the tuple alone and was computed in the state that is being written, in which blocks"""

    def value(self, expr: Expr, body: Body) -> Pair:
        """The source of an expression; what its subqueries need is written first."""
        lowered = transform(expr, lambda part: self._query_value(part, body))
        compiled = to_kernel_source(self._coded(lowered, body), body.names, self.present)
        if compiled is None:
            raise NotCompilable(f"{expr} has no compiled form")
        self.helpers |= compiled.helpers
        return compiled.value, compiled.null

    def condition(self, expr: Expr, body: Body) -> str:
        value, null = self.value(expr, body)
        return and_(not_(null), value)

    def bound(self, expr: Expr, body: Body, stem: str = "e") -> Pair:
        """Like `value`, kept in variables."""
        value, null = self.value(expr, body)
        name = self.write.fresh(stem)
        self.write(f"n_{name} = {null}")
        if null == "False":
            self.present.add(name)
            self.write(f"v_{name} = {value}")
        else:
            self.write(f"v_{name} = {zero(plain_type(expr.type))}")
            with self.write.when(not_(null)):
                self.write(f"v_{name} = {value}")
        return f"v_{name}", f"n_{name}"

    def kept(self, expr: Expr, body: Body) -> Expr:
        """The expression as a column that holds its value from here on."""
        if isinstance(expr, Column | Literal):
            return expr
        text = f"{body.prefix} {expr}"
        blocks, column = self.computed.get(text, ((), None))
        if column is not None and self.write.blocks[: len(blocks)] == blocks:
            return column
        value, _ = self.bound(expr, body)
        name = value.removeprefix("v_")
        body.names[f"kept {name}"] = name
        column = Column(expr.type, f"kept {name}")
        if all(name.startswith(":") for name in column_names([expr])) and next(queries_of(expr), None) is None:
            self.computed[text] = (self.write.blocks, column)
        return column

    def _coded(self, expr: Expr, body: Body) -> Expr:
        """The expression with text replaced by its codes, where only codes are needed."""

        def column_of(text: str) -> str:
            body.names[f"text {text}"] = self.texts.setdefault(text, f"text{len(self.texts)}")
            return f"text {text}"

        return on_codes(expr, column_of)

    def _query_value(self, part: Expr, body: Body) -> Expr:
        match part:
            case Exists():
                name = self._exists(part.query, body)
            case InQuery():
                name = self._among(part, body)
            case ScalarQuery():
                name = self._scalar(part, body)
            case AggregateValue() if str(part) not in body.names:
                raise NotCompilable(f"{part} is nested")
            case AggregateValue():
                return Column(part.type, str(part))
            case _:
                return part
        body.names[f"query {name}"] = name
        return Column(part.type, f"query {name}")

    def _exists(self, query: Rows, body: Body) -> str:
        name = self.write.fresh("q")
        self.write(f"v_{name} = False", f"n_{name} = False")
        if query.is_aggregation and not query.group and query.having is None:
            self.write(f"v_{name} = True")
        else:
            self.rows(query, body, lambda _: self.write(f"v_{name} = True"), until=f"v_{name}", valued=False)
        return name

    def _among(self, part: InQuery, body: Body) -> str:
        name, mine = self.write.fresh("q"), self.write.fresh("e")
        value, null = self.value(part.arg, body)
        self.write(f"v_{mine} = {value} if {not_(null)} else {zero(plain_type(part.arg.type))}", f"n_{mine} = {null}")
        self.write(f"v_{name} = False", f"n_{name} = False")

        def sink(values: list[Pair]) -> None:
            other = self.write.fresh("e")
            (theirs, absent), type_ = values[0], part.arg.type
            body.names |= {f"mine {mine}": mine, f"other {other}": other}
            with self.write.block(f"if {absent} or n_{mine}:"):
                self.write(f"n_{name} = True")
            with self.write.block("else:"):
                self.write(f"v_{other} = {theirs}", f"n_{other} = False")
                same = Call(
                    BOOLEAN,
                    "=",
                    (Column(plain_type(type_), f"mine {mine}"), Column(plain_type(type_), f"other {other}")),
                )
                with self.write.when(self.condition(same, body)):
                    self.write(f"v_{name} = True")

        column, ranges = part.query.columns[0], part.query.ranges
        cells = None
        if len(ranges) == 1 and isinstance(column, Column) and not self.is_register(ranges[0].table, body):
            cells = self._cells(ranges[0].table, body)
        if cells is None or cells.index is None or column != _indexed(cells, ranges[0]):
            self.rows(part.query, body, sink, until=f"v_{name}")
        else:
            # As long as no row has NULL there, an index tells all.
            body.names[f"mine {mine}"] = mine
            same = Call(BOOLEAN, "=", (column, Column(column.type, f"mine {mine}")))
            where = same if part.query.where is None else conjunction((part.query.where, same))
            probe = replace(part.query, where=where)
            with self.write.block(f"if not n_{mine} and meta[{3 * cells.number + 2}] == 0:"):
                self.rows(probe, body, lambda _: self.write(f"v_{name} = True"), until=f"v_{name}", valued=False)
            with self.write.block("else:"):
                self.rows(part.query, body, sink, until=f"v_{name}")
        with self.write.block(f"if v_{name}:"):
            self.write(f"n_{name} = False")
        return name

    def _scalar(self, part: ScalarQuery, body: Body) -> str:
        name = self.write.fresh("q")
        several = self.write.fresh("several")
        self.write(f"v_{name} = {zero(plain_type(part.type))}", f"n_{name} = True", f"{several} = False")

        def sink(values: list[Pair]) -> None:
            ((value, null),) = values
            with self.write.block(f"if {several}:"):
                self.write("trouble[0] = SEVERAL_ROWS")
            self.write(f"{several} = True", f"n_{name} = {null}")
            with self.write.when(not_(null)):
                self.write(f"v_{name} = {value}")

        self.rows(part.query, body, sink, free=True)
        return name

    def rows(
        self, query: Rows, body: Body, sink: Sink, until: str | None = None, valued: bool = True, stop: str = "0",
        free: bool = False,
    ) -> None:  # fmt: skip
        """What `sink` writes, run for each row of a query, or until the variable `until` is true. Loops over a list
        that grows meanwhile end at the cell `stop`. With `free`, the order of the rows does not matter."""
        raise NotImplementedError

    def statements(self, statements: tuple[Statement, ...], body: Body) -> None:
        """The statements of a state, one after the other."""
        raise NotImplementedError

    def is_register(self, table: str, body: Body) -> bool:
        return bool(body.prefix) or self.layout.registers_of(table) is not None

    def register(self, table: str, column: int, body: Body) -> str:
        """The variable of a column of a table that holds one row."""
        names = [local.name for local in body.program.tables]
        return f"{body.prefix}r{names.index(table)}_{column}"

    def _cells(self, table: str, body: Body) -> Cells:
        if body.prefix:
            raise NotCompilable(f"{body.program.name} keeps more than one row per group")
        return self.layout.cells_of(table)


def _indexed(cells: Cells, range_: Range) -> Column:
    assert cells.index is not None
    field_ = cells.table.schema.fields[cells.index]
    return Column(field_.type, f"{range_.alias}.{field_.name}")


def plain_type(type_: SqlType) -> SqlType:
    return BIGINT if type_.is_coded else type_
