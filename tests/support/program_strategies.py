"""Hypothesis strategies: random small programs, modes to run them in, and tuples for them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from hypothesis import strategies as st

from millstream.expressions.functions import case, cast
from millstream.expressions.nodes import Expr, Literal
from millstream.kernels.programs.engine import Closing, Mode, Running, Sliding, Tumbling
from millstream.plan.aggregates import result_type
from millstream.plan.programs.builder import Builder, Use, call
from millstream.plan.programs.nodes import (
    WINDOW,
    AggregateValue,
    Delete,
    Exists,
    InQuery,
    Insert,
    Order,
    Program,
    Rows,
    ScalarQuery,
    Statement,
    Update,
)
from millstream.schema import Schema
from millstream.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, TIMESTAMP, VARCHAR, SqlType
from tests.support.program_reference import Tuple

_VALUES: dict[SqlType, Sequence[Any]] = {
    INTEGER: range(-2, 5),
    BIGINT: range(-2, 5),
    DOUBLE: (0.0, 1.0, -1.5, 2.25, 3.0),
    VARCHAR: ("a", "d", "p", "ap", "item", "", "é"),
    TIMESTAMP: range(0, 240_000_000, 60_000_000),
}
"""Few values of each type, so that some are equal."""

_RANDOM = st.randoms(use_true_random=True)
"""Programs from a seed: what Hypothesis draws choice by choice is mostly programs that do nothing."""


def _value(random: Random, type_: SqlType) -> Any:
    return None if random.random() < 0.1 else random.choice(_VALUES[type_])


@st.composite
def tuples_for(draw: st.DrawFn, program: Program, max_size: int = 12) -> list[Tuple]:
    """Tuples of a few groups in order of time, with ties and NULLs."""
    random, time, result = draw(_RANDOM), 0, []
    for _ in range(random.randint(0, max_size)):
        time += random.choice([0, 0, 1, 1, 2, 5])
        values = tuple(_value(random, param.type) for param in program.parameters)
        result.append((random.choice([0, 0, 1, 2]), time, values))
    return result


def modes_for(program: Program) -> st.SearchStrategy[Mode]:
    """Modes in which a program makes sense."""
    if program.window is not None or program.expire:
        small = st.integers(1, 4)
        return st.one_of(
            st.builds(Sliding, st.just("rows"), small, st.none() | st.integers(1, 3)),
            st.builds(Sliding, st.just("range"), st.integers(0, 4)),
            st.builds(Sliding, st.just("range"), st.integers(0, 4), active=st.just(True)),
        )
    tumbling = st.integers(1, 4).flatmap(lambda every: st.integers(1, every).map(lambda size: Tumbling(size, every)))
    return st.one_of(st.builds(Running, st.booleans()), tumbling, st.builds(Closing))


@st.composite
def programs(
    draw: st.DrawFn, *, text: bool = True, window: bool | None = None, subqueries: bool = True, grouping: bool = True,
    joins: bool = True,
) -> Program:  # fmt: skip
    """A random program: one or two tables, statements of all kinds with random predicates.

    `text` adds columns of text, `window` the window's table (None: sometimes), `subqueries` EXISTS, IN and scalar
    subqueries, `grouping` queries with GROUP BY, DISTINCT, ORDER BY and LIMIT, `joins` those over two tables.
    """
    random = draw(_RANDOM)
    has_window = random.random() < 0.5 if window is None else window
    words = {"s": VARCHAR} if text else {}
    tables = {"t": Schema.of(a=BIGINT, b=DOUBLE, **words)}
    if random.random() < 0.5:
        tables["u"] = Schema.of(c=BIGINT, d=INTEGER)
    window_columns = Schema.of(wx=BIGINT, wy=DOUBLE, **({"ws": VARCHAR} if text else {}))
    builder = Builder("random", Schema.of(x=BIGINT, y=DOUBLE, **words), Schema.of(r=BIGINT, q=DOUBLE, **words),
                      window_columns if has_window else None, **tables)  # fmt: skip
    maker = _Maker(random, builder, [*tables], has_window, subqueries, grouping, joins)
    fill = [maker.values("t"), *([maker.values("u")] if "u" in tables else [])]
    return builder.program(
        [*fill, *maker.statements(2), maker.insert(None)],
        [*(fill if random.random() < 0.5 else []), *maker.statements(4), maker.insert(None)],
        maker.statements(2) if has_window else (),
        () if has_window else maker.statements(2),
    )


class _Maker:
    """Draws the statements of one program."""

    def __init__(
        self, random: Random, builder: Builder, tables: list[str], window: bool, subqueries: bool, grouping: bool,
        joins: bool,
    ) -> None:  # fmt: skip
        self.random, self.builder, self.tables = random, builder, tables
        self.readable = [*tables, WINDOW] if window else tables
        self.window, self.subqueries, self.grouping, self.joins = window, subqueries, grouping, joins

    def chance(self) -> bool:
        return self.random.random() < 0.5

    def statements(self, most: int) -> list[Statement]:
        return [self.statement() for _ in range(self.random.randint(0, most))]

    def statement(self) -> Statement:
        kind = self.random.choice(["insert", "return", "return", "update", "update", "delete"])
        if kind == "insert":
            return self.insert(self.random.choice(self.tables))
        if kind == "return":
            return self.insert(None)
        use = self.builder.use(self.random.choice(self.tables if kind == "update" else self.readable))
        if kind == "delete":
            return Delete(use.range, self.predicate([use]))
        chosen = self.random.sample(use.schema.fields, self.random.randint(1, len(use.schema)))
        sets = tuple((field.name, self.expression([use], field.type)) for field in chosen)
        return Update(use.range, sets, self.maybe_predicate([use]))

    def values(self, table: str | None) -> Insert:
        types = [field.type for field in self.builder.schema(table)]
        where = self.maybe_predicate([]) if self.chance() else None
        return Insert(table, (Rows(tuple(self.expression([], t) for t in types), where=where),))

    def insert(self, table: str | None) -> Insert:
        types = [field.type for field in self.builder.schema(table)]
        if self.chance():
            return self.values(table)
        uses = [
            self.builder.use(self.random.choice(self.readable)) for _ in range(self.random.randint(1, 1 + self.joins))
        ]
        kind = self.random.choice(["plain", "whole", "group", "distinct"] if self.grouping else ["plain", "whole"])
        # Tables that are filled from themselves must not grow without end.
        limit = self.random.randint(0, 2) if table is not None else self.random.choice([None, 0, 1, 2, 3])
        limit = limit if self.grouping or table is not None else None
        ranges, where = tuple(use.range for use in uses), self.maybe_predicate(uses)
        if kind == "whole":
            return Insert(table, (Rows(tuple(self.summary(uses, t) for t in types), ranges, where),))
        if kind == "group":
            return Insert(table, (self.grouped(uses, types, where, limit),))
        columns = tuple(self.expression(uses, t) for t in types)
        if kind == "distinct":
            return Insert(table, (Rows(columns, ranges, where, distinct=True, order=self.order(columns), limit=limit),))
        order = self.order([self.column(uses, BIGINT)]) if self.grouping else ()
        return Insert(table, (Rows(columns, ranges, where, order=order, limit=limit),))

    def grouped(self, uses: list[Use], types: list[SqlType], where: Expr | None, limit: int | None) -> Rows:
        key = self.column(uses, BIGINT)
        columns = [key if t == BIGINT and self.chance() else self.summary(uses, t) for t in types]
        having = call(">", self.summary(uses, BIGINT), 0) if self.chance() else None
        order = self.order([self.summary(uses, BIGINT)])
        return Rows(tuple(columns), tuple(use.range for use in uses), where, (key,), having, order=order, limit=limit)

    def order(self, keys: Sequence[Expr]) -> tuple[Order, ...]:
        chosen = self.random.choices(list(keys), k=self.random.randint(0, 2))
        return tuple(Order(key, self.chance(), self.chance()) for key in chosen)

    def summary(self, uses: list[Use], type_: SqlType) -> Expr:
        """An aggregate as a value of a type."""
        if type_ == VARCHAR:
            fn, source = self.random.choice(["min", "max"]), VARCHAR
        else:
            fn = self.random.choice(["count", "sum", "avg", "min", "max"])
            source = self.random.choice([BIGINT, DOUBLE])
        if fn == "count" and self.chance():
            return self._bounded(AggregateValue(BIGINT, "count", ()), type_)
        distinct = fn != "avg" and fn != "sum" and self.chance()
        result = result_type(fn, distinct, source)
        assert result is not None
        return self._bounded(AggregateValue(result, fn, (self.expression(uses, source, 1),), distinct), type_)

    def _bounded(self, expr: Expr, type_: SqlType) -> Expr:
        """Integers that stay small, and so fit."""
        if type_ == VARCHAR:
            return expr
        if expr.type == DOUBLE and type_ != DOUBLE:
            return case(((call("<", call("abs", expr), 1e6), cast(expr, type_)),), Literal(type_, None))
        return cast(call("%", expr, 97) if type_ != DOUBLE else expr, type_)

    def column(self, uses: list[Use], type_: SqlType) -> Expr:
        """A column of one of the uses, or of the tuple if they have none of the type."""
        choices: list[Expr] = [use[field.name] for use in uses for field in use.schema if field.type == type_]
        names = {BIGINT: "x", DOUBLE: "y", VARCHAR: "s"}
        if not choices:
            return self.builder.param(names[type_]) if type_ in names else Literal(type_, 1)
        return self.random.choice(choices)

    def expression(self, uses: list[Use], type_: SqlType, depth: int = 2) -> Expr:
        if depth == 0 or self.random.randint(0, 2) == 0:
            return self.leaf(uses, type_)
        kind = self.random.choice(["arithmetic", "arithmetic", "case", "coalesce", "query"])
        if kind == "case":
            arm, default = self.expression(uses, type_, depth - 1), self.expression(uses, type_, depth - 1)
            return case(((self.predicate(uses, depth - 1), arm),), default)
        if kind == "coalesce":
            return call("coalesce", self.leaf(uses, type_), self.leaf(uses, type_))
        if kind == "query" and self.subqueries and depth > 1:
            use = self.builder.use(self.random.choice(self.readable))
            value = self.summary([use], type_)
            inner = Rows((value,), (use.range,), self.maybe_predicate([use, *uses]))
            return ScalarQuery(type_, inner)
        if type_ == VARCHAR:
            return call("||", self.leaf(uses, VARCHAR), "z") if not uses else self.leaf(uses, VARCHAR)
        left, right = (self.expression(uses, type_, depth - 1) for _ in range(2))
        if type_ == DOUBLE:
            return call(self.random.choice(["+", "-", "*", "/"]), left, right)
        return self._bounded(call(self.random.choice(["+", "-", "*", "//", "%"]), left, right), type_)

    def leaf(self, uses: list[Use], type_: SqlType) -> Expr:
        names = {BIGINT: ("x", "wx"), DOUBLE: ("y", "wy"), VARCHAR: ("s", "ws")}
        choices: list[Expr] = [Literal(type_, _value(self.random, type_))]
        choices += [use[field.name] for use in uses for field in use.schema if field.type == type_] * 2
        if type_ in names:
            choices.append(self.builder.param(names[type_][0]))
            if self.window:
                choices.append(self.builder.oldest(names[type_][1]))
        if type_ == INTEGER:
            choices.append(self.builder.sqlcode)
        return self.random.choice(choices)

    def maybe_predicate(self, uses: list[Use]) -> Expr | None:
        return self.predicate(uses) if self.chance() else None

    def predicate(self, uses: list[Use], depth: int = 2) -> Expr:
        kinds = ["compare"] * 3 + ["null", "sqlcode"] + (["and", "or", "not"] if depth else [])
        kinds += ["exists", "in", "not in"] if self.subqueries and depth > 1 else []
        kind = self.random.choice(kinds)
        if kind in ("and", "or"):
            return call(kind, self.predicate(uses, depth - 1), self.predicate(uses, depth - 1))
        if kind == "not":
            return call("not", self.predicate(uses, depth - 1))
        if kind == "sqlcode":
            return call("=", self.builder.sqlcode, 0)
        if kind in ("exists", "in", "not in"):
            use = self.builder.use(self.random.choice(self.readable))
            inner = Rows((self.column([use], BIGINT),), (use.range,), self.maybe_predicate([use, *uses]))
            if kind == "exists":
                return Exists(BOOLEAN, inner)
            among = InQuery(BOOLEAN, self.leaf(uses, BIGINT), inner)
            return among if kind == "in" else call("not", among)
        type_ = self.random.choice([BIGINT, BIGINT, DOUBLE, *([VARCHAR] if "s" in self.builder.parameters else [])])
        left, right = self.leaf(uses, type_), self.leaf(uses, type_)
        if kind == "null":
            return call("is_null", left)
        return call(self.random.choice(["=", "=", "<>", "<", "<=", ">", ">="]), left, right)
