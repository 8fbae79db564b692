"""Programs over panes: the parts of windows that begin inside a slot, and the merging of parts."""

from __future__ import annotations

from dataclasses import replace

from millstream.expressions.functions import resolve
from millstream.expressions.nodes import Case, Expr, Literal, conjunction
from millstream.plan.programs.builder import Builder
from millstream.plan.programs.nodes import (
    Insert,
    Program,
    Range,
    Rows,
    ScalarQuery,
    Update,
    expressions_of,
    queries_of,
    sources_of,
)
from millstream.plan.programs.product import Rewriter, sees_sqlcode
from millstream.schema import Field, Schema
from millstream.types import BIGINT

_PLACE, _SLOT, _CLOSED = "$place", "$slot", "$closed"


def can_pause(program: Program) -> bool:
    """Whether a program keeps tables of one row alone, which INITIALIZE fills with values, ITERATE updates and
    TERMINATE returns one row from: then it can begin anew, and tell what it has come to, at any tuple."""
    fills = [s for s in program.initialize if isinstance(s, Insert)]
    if len(fills) < len(program.initialize) or not all(isinstance(s, Update) for s in program.iterate):
        return False
    if sorted(s.table or "" for s in fills) != sorted(table.name for table in program.tables):
        return False
    if len(program.terminate) != 1 or program.expire or any(map(sees_sqlcode, program.statements)):
        return False
    if any(True for s in program.statements for expr in expressions_of(s) for _ in queries_of(expr)):
        return False
    (end,) = program.terminate
    if not isinstance(end, Insert) or end.table is not None or any(len(s.sources) != 1 for s in (*fills, end)):
        return False
    plain = [not s.sources[0].is_aggregation and s.sources[0].where is None for s in (*fills, end)]
    bare = all(s.sources[0] == Rows(s.sources[0].columns, s.sources[0].ranges) for s in (*fills, end))
    return all(plain) and bare and not any(s.sources[0].ranges for s in fills)


def paned(program: Program, every: int, rest: int) -> Program:
    """What a program that can pause comes to over the panes of windows that end with slots of `every` tuples and begin
    `rest` tuples before the end of one: TERMINATE, at the end of a slot, returns the result of the pane that ended
    `rest` tuples ago, and that of the tuples since. Without a rest, panes are slots, and it returns one result."""
    b = _Counting(program, _PLACE, every)
    first = Literal(BIGINT, every - rest + 1 if rest else 1)

    def at(comparison: str) -> Expr:
        place = b.use(_PLACE)
        return resolve(comparison, (ScalarQuery(BIGINT, Rows((place["n"],), (place.range,))), first))

    begin, then = [*program.initialize, b.begin], [b.count]
    (result,) = sources_of(program.terminate[0])
    name, fields, columns, ranges, tables = (
        f"{program.name} of {every} rows", program.result.fields, result.columns, result.ranges, b.tables,
    )  # fmt: skip
    if rest:
        name = f"{name}, {program.name} of the last {rest}"
        c = Builder(name, program.parameters, program.result, None, **{_CLOSED: program.result})
        begin.append(c.values(_CLOSED, *(Literal(field.type, None) for field in fields)))
        again = Rewriter(_closing, alias=lambda alias: f"closing {alias}").rows(result)
        closing = [ScalarQuery(column.type, replace(again, columns=(column,))) for column in again.columns]
        then.append(c.update(c.use(_CLOSED), at("="), **dict(zip(program.result.names, closing, strict=True))))
        closed = c.use(_CLOSED)
        columns, ranges = (*(closed[field.name] for field in fields), *columns), (closed.range, *ranges)
        fields = (*fields, *(Field(f"{field.name} since", field.type) for field in fields))
        tables += c.tables
    updates = [s for s in program.iterate if isinstance(s, Update)]
    return replace(
        program,
        name=name,
        result=Schema(fields),
        tables=(*program.tables, *tables),
        initialize=tuple(begin),
        iterate=(
            *then,
            *(replace(s, where=at("=")) for s in _refills(program)),
            *(replace(s, where=conjunction((at("<>"), *([s.where] if s.where else [])))) for s in updates),
        ),
        terminate=(Insert(None, (Rows(columns, ranges),)),),
        algebraic=False,
    )


def at_every(program: Program, every: int) -> Program:
    """A program that returns what its TERMINATE returns at every `every`-th tuple, more than one, and goes on."""
    b = _Counting(program, _SLOT, every)
    slot = b.use(_SLOT)
    (rows,) = sources_of(program.terminate[0])
    where = resolve("=", (slot["n"], Literal(BIGINT, every)))
    returned = Insert(None, (replace(rows, ranges=(*rows.ranges, slot.range), where=where),))
    return replace(
        program,
        tables=(*program.tables, *b.tables),
        initialize=(*program.initialize, b.begin),
        iterate=(*program.iterate, b.count, returned),
        terminate=(),
    )


def merging(program: Program) -> Program:
    """A program of one argument that can pause, as a function of two: what it comes to over both."""
    (field,) = program.parameters
    earlier, later = (
        Rewriter(lambda name, given=given: f":{given}" if name == f":{field.name}" else name)  # type: ignore[misc]
        for given in ("earlier", "later")
    )
    then = (*map(later.statement, program.iterate), *program.terminate)
    return replace(
        program,
        name=f"{program.name} of both",
        parameters=Schema((Field("earlier", field.type), Field("later", field.type))),
        initialize=(*map(earlier.statement, program.initialize), *then),
        iterate=(*map(earlier.statement, _refills(program)), *then),
        terminate=(),
        algebraic=False,
    )


class _Counting(Builder):
    """Adds a table to a program that counts tuples from 1 to `every`, over and over."""

    def __init__(self, program: Program, table: str, every: int) -> None:
        super().__init__(program.name, program.parameters, program.result, None, **{table: Schema.of(n=BIGINT)})
        use, one = self.use(table), Literal(BIGINT, 1)
        is_last = resolve("=", (use["n"], Literal(BIGINT, every)))
        self.begin = self.values(table, one)
        self.count = self.update(use, n=Case(BIGINT, ((is_last, one),), resolve("+", (use["n"], one))))


def _refills(program: Program) -> list[Update]:
    """What INITIALIZE does, where the tables have their rows already."""
    refills = []
    for fill in program.initialize:
        assert isinstance(fill, Insert) and fill.table is not None
        values = zip(program.table(fill.table).schema.names, fill.sources[0].columns, strict=True)
        refills.append(Update(Range(f"first {fill.table}", fill.table), tuple(values)))
    return refills


def _closing(name: str) -> str:
    return name if name.startswith(":") else f"closing {name}"
