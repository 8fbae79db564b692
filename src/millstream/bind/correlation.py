"""Queries inside others, bound apart from them: what refers to the outer query becomes the condition of a join."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sqlglot import exp

from millstream import functions
from millstream.bind.context import Context
from millstream.bind.expressions import ExpressionBinder
from millstream.bind.groups import aggregates_rows
from millstream.bind.scope import Scope
from millstream.plan import nodes as P
from millstream.plan import relations as R
from millstream.plan.expr import Case, Column, Expr, Literal, columns_of, conjunction, substitute
from millstream.types import BOOLEAN


@dataclass(frozen=True)
class Inner:
    """A query inside another: its plan, the columns of its select list, and what it has to do with the outer rows.

    `if_empty` is the value of an aggregate where no rows are, if it is not NULL.
    """

    plan: P.Node
    outputs: tuple[Column, ...]
    condition: Expr | None
    is_single: bool
    if_empty: Expr | None = None

    def renamed(self, plan: P.Node, prefix: str) -> Inner:
        """The same over `plan`, which has its columns, under names that no other columns have."""
        fields = list(enumerate(plan.schema))
        columns = {each.name: Column(each.type, f"{prefix}.{place}") for place, each in fields}
        project: list[tuple[str, Expr]] = [
            (columns[each.name].name, Column(each.type, each.name)) for _, each in fields
        ]
        if self.if_empty is not None:
            project.append((prefix + _THERE, Literal(BOOLEAN, True)))
        # The columns of this query are marked in the condition, which speaks of the outer ones too.
        marked = {_MARK + name: column for name, column in columns.items()}
        condition = None if self.condition is None else substitute(self.condition, dict(marked))
        outputs = tuple(columns[output.name] for output in self.outputs)
        return replace(self, plan=P.Project(plan, tuple(project)), outputs=outputs, condition=condition)

    @property
    def value(self) -> Expr:
        """The value of the first column for a row of the outer query, once the two are joined."""
        first = self.outputs[0]
        if self.if_empty is None:
            return first
        there = Column(BOOLEAN, first.name.rpartition(".")[0] + _THERE)
        return Case(first.type, ((there, first),), self.if_empty)


_MARK = "$inner."
_THERE = ".there"


def bind_inner(query: exp.Expr, outer: ExpressionBinder, context: Context, *, keep: bool) -> Inner:
    """Bind a query inside another; without `keep` it does not matter which columns it selects."""
    from millstream.bind.from_clause import bind_from
    from millstream.bind.select import bind_query, with_queries

    where = query.args.get("where") if isinstance(query, exp.Select) else None
    if isinstance(query, exp.Select) and where is not None:
        _, scope = bind_from(query, with_queries(query, context))
        apart = _Apart(query, outer, scope, context)
        if apart.outer_parts:
            return apart.bind(keep)
    plan = bind_query(query, context).plan
    is_single = _is_single(plan)
    return Inner(plan, _columns(plan), None, is_single, _if_empty(plan) if is_single else None)


@dataclass
class _Apart:
    """A SELECT taken apart: `outer_parts` of its WHERE refer to the outer query."""

    select: exp.Select
    outer: ExpressionBinder
    scope: Scope
    context: Context
    outer_parts: list[exp.Expr] = field(default_factory=list)
    own_parts: list[exp.Expr] = field(default_factory=list)

    def __post_init__(self) -> None:
        from millstream.bind.subqueries import conjuncts_of

        for part in conjuncts_of(self.select.args["where"].this):
            of_outer = any(self._is_outer(column) for column in _column_nodes(part))
            (self.outer_parts if of_outer else self.own_parts).append(part)

    def bind(self, keep: bool) -> Inner:
        from millstream.bind.select import bind_query

        inner = self.select.copy()
        own = [part.copy() for part in self.own_parts]
        inner.set("where", exp.Where(this=exp.and_(*own, copy=False)) if own else None)
        is_aggregate = aggregates_rows(self.select, self.context)
        if is_aggregate:
            keys = [self._key(part) for part in self.outer_parts]
            added = [mine for mine, _ in keys]
            self._check_plain()
            inner.set("group", exp.Group(expressions=[mine.copy() for mine in added]))
        else:
            columns = self._own_columns()
            added = list(columns.values())
            if not keep:
                # of rows that only have to be there, equal ones need not be told apart
                inner.set("distinct", None)
        aliased = [exp.alias_(node.copy(), f"$c{place}", quoted=True) for place, node in enumerate(added)]
        kept = inner.expressions if keep or is_aggregate else []
        inner.set("expressions", [*kept, *aliased] or [exp.Literal.number(1)])
        plan = bind_query(inner, self.context).plan
        fields = _columns(plan)
        outputs, extra = fields[: len(fields) - len(added)], fields[len(fields) - len(added) :]
        marked = [Column(column.type, _MARK + column.name) for column in extra]
        if is_aggregate:
            conditions = []
            for part, column, (_, theirs) in zip(self.outer_parts, marked, keys, strict=True):
                with self.context.blaming(part):
                    conditions.append(functions.resolve("=", (column, self.outer.bind(theirs))))
        else:
            across = _Across(self, dict(zip(columns, marked, strict=True)))
            conditions = [across.condition(part) for part in self.outer_parts]
        if_empty = _if_empty(plan) if is_aggregate else None
        return Inner(plan, outputs, conjunction(tuple(conditions)), is_aggregate or _is_single(plan), if_empty)

    def _is_outer(self, node: exp.Column) -> bool:
        """Whether a column is one of the outer query: inner names hide outer ones."""
        inner, outer = self.scope, self.outer.scope
        if outer is None:
            return False
        if not node.table:
            return not inner.knows(node.name) and outer.knows(node.name)
        if inner.has(node.table, by_source=False):
            return False
        return outer.has(node.table, by_source=False) or (not inner.has(node.table) and outer.has(node.table))

    def _own_columns(self) -> dict[str, exp.Expr]:
        """The columns of the inner query in the parts that refer to the outer one, by their text."""
        nodes = (node for part in self.outer_parts for node in _column_nodes(part) if not self._is_outer(node))
        return {node.sql().lower(): node for node in nodes}

    def _key(self, part: exp.Expr) -> tuple[exp.Expr, exp.Expr]:
        """The two sides of an equality, the inner one first."""
        inside = part
        while isinstance(inside, exp.Paren):
            inside = inside.this
        if isinstance(inside, exp.EQ):
            for mine, theirs in ((inside.this, inside.expression), (inside.expression, inside.this)):
                own, others = _column_nodes(mine), _column_nodes(theirs)
                if own and not any(map(self._is_outer, own)) and all(map(self._is_outer, others)):
                    return mine, theirs
        return self.context.refuse(
            "an aggregate over the rows that match an outer row needs an equality",
            part,
            detail="it is computed once for each value that rows are compared by",
            hint="write inner = outer, or join in FROM and GROUP BY there",
        )

    def _check_plain(self) -> None:
        for key, word in (("group", "GROUP BY"), ("having", "HAVING"), ("distinct", "DISTINCT")):
            if (clause := self.select.args.get(key)) is not None:
                self.context.refuse(
                    f"{word} in a query that refers to the outer one is not supported",
                    clause if key != "distinct" else self.select,
                    hint="join in FROM and GROUP BY there",
                )


class _Across(ExpressionBinder):
    """Conditions over the columns of an inner query and those of the outer one."""

    def __init__(self, apart: _Apart, columns: dict[str, Column]) -> None:
        super().__init__(apart.context, apart.scope)
        self._apart = apart
        self._columns = columns

    def _column(self, node: exp.Column) -> Expr:
        return self._columns.get(node.sql().lower()) or self._apart.outer.bind(node)


def _column_nodes(node: exp.Expr) -> list[exp.Column]:
    parts = node.walk(prune=lambda each: isinstance(each, exp.Query))
    return [part for part in parts if isinstance(part, exp.Column)]


def _columns(plan: P.Node) -> tuple[Column, ...]:
    return tuple(Column(each.type, each.name) for each in plan.schema)


def _if_empty(plan: P.Node) -> Expr | None:
    """What the first column of an aggregate is where there are no rows, if it counts them: counts are 0 then, and all
    else is NULL."""
    if not (isinstance(plan, P.Project) and isinstance(plan.input, R.Summarize)):
        return None
    expr = plan.columns[0][1]
    calls = [call for call in plan.input.calls if columns_of(expr) & set(call.names)]
    if not any(call.fn == "count" and call.program is None for call in calls):
        return None
    values = {
        name: Literal(type_, 0 if call.fn == "count" and call.program is None else None)
        for call in calls
        for name, type_ in zip(call.names, call.types, strict=True)
    }
    return substitute(expr, dict(values))


def _is_single(plan: P.Node) -> bool:
    """Whether a relation never has more than one row at the same time."""
    match plan:
        case R.Summarize(keys=keys):
            return not keys
        case R.Window(window=R.RowsWindow(rows=1, by=())):
            return True
        case P.Filter() | P.Project() | P.Distinct() | R.Coarsen():
            return _is_single(plan.inputs[0])
        case R.Join(how="inner" | "left"):
            return all(map(_is_single, plan.inputs))
        case R.Join(how="semi" | "anti", left=left) | R.SetOperation(left=left):
            return _is_single(left)
    return False
