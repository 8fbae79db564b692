"""Correlated subqueries, bound separately: what refers to the outer query becomes the condition of a join."""

from __future__ import annotations

from dataclasses import field, replace

from sqlglot import exp

from millstream.bind.aggregates.groups import aggregates_rows, is_aggregate
from millstream.bind.context import Context
from millstream.bind.expressions import ExpressionBinder, coerce
from millstream.bind.queries.domains import domain_of, free_columns, free_in, same
from millstream.bind.reads import conjuncts_of, from_alone, reads_only
from millstream.bind.scope import Scope, is_of_outer
from millstream.expressions import functions
from millstream.expressions.nodes import (
    Call,
    Case,
    Column,
    Expr,
    Literal,
    columns_of,
    conjunction,
    conjuncts,
    substitute,
)
from millstream.plan import nodes as P
from millstream.plan.annotations import unique_key
from millstream.records import dataclass
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


def bind_inner(query: exp.Expr, outer: ExpressionBinder, rows: P.Node, context: Context, *, keep: bool) -> Inner:
    """Bind a query inside one over `rows`; without `keep` it does not matter which columns it selects."""
    from millstream.bind.queries.from_clause import with_joined_conditions
    from millstream.bind.queries.select import bind_query

    if isinstance(query, exp.Select):
        query = with_joined_conditions(query if keep else _only_existence(query))
    free = [] if outer.scope is None else list(free_columns(query, outer.scope, context))
    chooses = _is_table_by_streams(query, context)
    if not free and not chooses:
        plan = bind_query(query, context).plan
        # the table store counts nothing as 0 by itself
        if_empty = None if plan.kind is P.Kind.TABLE else _if_empty(query, outer, plan)
        return Inner(plan, _columns(plan), None, _is_single(plan, set()), if_empty)
    apart = None if chooses else _Apart.of(query, outer, context)
    if apart is not None:
        return apart.bind(keep)
    return _bind_beside(query, free, outer, rows, context)


def _only_existence(query: exp.Select) -> exp.Select:
    """A query of which only matters whether it has rows: in which order, and how many, does not."""
    limit = query.args.get("limit")
    is_some = limit is None or (isinstance(limit.expression, exp.Literal) and limit.expression.name not in ("0", ""))
    if not is_some or query.args.get("offset") is not None:
        return query
    bare = query.copy()
    for key in ("order", "limit"):
        bare.set(key, None)
    return bare


def _bind_beside(
    query: exp.Expr, free: list[exp.Column], outer: ExpressionBinder, rows: P.Node, context: Context
) -> Inner:
    """An inner query that is computed once for each combination of the outer values that it names."""
    from millstream.bind.queries.select import bind_query

    assert outer.scope is not None
    if rows.kind is not P.Kind.RELATION:
        context.refuse(
            "this subquery depends on the outer stream in an unsupported way",
            query,
            detail="it would have to be computed for each row of the stream",
            hint="use only inner = outer comparisons in WHERE, or give the stream a window: FROM s [NOW]",
        )
    domain = domain_of(free, outer.scope, rows)
    plan = bind_query(query, context.within(domain)).plan
    fields = _columns(plan)
    width = len(fields) - len(domain.columns)
    conditions: list[Expr] = []
    named = {outer.scope.resolve(node).name: node for node in free}
    for name, node in named.items():
        place = list(domain.beyond.columns).index(name)
        column = fields[width + place]
        conditions += same(Column(column.type, _MARK + column.name), outer.bind(node))
    is_single = _is_single(plan, {column.name for column in fields[width:]})
    condition = conjunction(tuple(conditions)) if conditions else None
    return Inner(plan, fields[:width], condition, is_single, _if_empty(query, outer, plan))


def _is_table_by_streams(query: exp.Expr, context: Context) -> bool:
    """Whether rows of stored tables are chosen by a query over streams: such a query lasts as long as outer rows do."""
    if not isinstance(query, exp.Select) or reads_only(query, context):
        return False
    return reads_only(from_alone(query, []), context)


@dataclass
class _Apart:
    """A SELECT taken apart: `outer_parts` of its WHERE refer to the outer query, and nothing else in it does."""

    select: exp.Select
    outer: ExpressionBinder
    scope: Scope
    context: Context
    outer_parts: list[exp.Expr] = field(default_factory=list)
    own_parts: list[exp.Expr] = field(default_factory=list)

    @staticmethod
    def of(query: exp.Expr, outer: ExpressionBinder, context: Context) -> _Apart | None:
        """The parts of a query that can be taken apart; None if it cannot."""
        from millstream.bind.queries.from_clause import bind_from
        from millstream.bind.queries.select import with_queries

        where = query.args.get("where")
        if not isinstance(query, exp.Select) or where is None or outer.scope is None:
            return None
        inside = with_queries(query, context).within(None)
        apart = _Apart(query, outer, bind_from(query, inside)[1], inside)
        for part in conjuncts_of(where.this):
            of_outer = next(free_in(part, apart.scope, outer.scope, inside), None) is not None
            if of_outer and part.find(exp.Query) is not None:
                return None
            (apart.outer_parts if of_outer else apart.own_parts).append(part)
        bare = query.copy()
        bare.set("where", None)
        if next(free_columns(bare, outer.scope, context), None) is not None:
            return None
        return apart if apart.outer_parts and apart._is_plain() else None

    def _is_plain(self) -> bool:
        """Whether rows, or groups of rows, may be looked up by what they are compared with."""
        more = {key for key in ("group", "having", "qualify", "limit", "offset", "order") if self.select.args.get(key)}
        by_keys = all(map(self._key, self.outer_parts))
        if not aggregates_rows(self.select, self.context):
            return not more or (more <= {"order", "limit"} and by_keys and reads_only(self.select, self.context))
        return not more and not self.select.args.get("distinct") and by_keys

    def _limit(self, inner: exp.Select) -> None:
        """Let ORDER BY and LIMIT choose among the rows that are looked up together."""
        order, limit = self.select.args.get("order"), self.select.args.get("limit")
        for clause in ("order", "limit"):
            inner.set(clause, None)
        if limit is not None:
            keys = [key[0].copy() for part in self.outer_parts if (key := self._key(part)) is not None]
            number = exp.Window(this=exp.RowNumber(), partition_by=keys, order=order and order.copy())
            inner.set("qualify", exp.Qualify(this=exp.LTE(this=number, expression=limit.expression.copy())))

    def bind(self, keep: bool) -> Inner:
        from millstream.bind.queries.select import bind_query

        inner = self.select.copy()
        own = [part.copy() for part in self.own_parts]
        inner.set("where", exp.Where(this=exp.and_(*own, copy=False)) if own else None)
        is_aggregate = aggregates_rows(self.select, self.context)
        keys = [key for part in self.outer_parts if (key := self._key(part)) is not None]
        columns = self._own_columns()
        if is_aggregate:
            added = [mine for mine, _ in keys]
            inner.set("group", exp.Group(expressions=[mine.copy() for mine in added]))
        else:
            added = list(columns.values())
            self._limit(inner)
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
        conditions: list[Expr] = []
        if is_aggregate:
            for part, column, (_, theirs) in zip(self.outer_parts, marked, keys, strict=True):
                with self.context.blaming(part):
                    conditions.append(functions.resolve("=", (column, self.outer.bind(theirs))))
        else:
            across = _Across(self, dict(zip(columns, marked, strict=True)))
            conditions = [across.condition(part) for part in self.outer_parts]
        condition = conjunction(tuple(conditions))
        if_empty = _if_empty(self.select, self.outer, plan) if is_aggregate else None
        return Inner(plan, outputs, condition, is_aggregate or _is_single(plan, _fixed(condition)), if_empty)

    def is_outer(self, node: exp.Column) -> bool:
        """Whether a column is one of the outer query."""
        assert self.outer.scope is not None
        return is_of_outer(node, self.scope, self.outer.scope)

    def _own_columns(self) -> dict[str, exp.Expr]:
        """The columns of the inner query in the parts that refer to the outer one, by their text."""
        nodes = (node for part in self.outer_parts for node in _column_nodes(part) if not self.is_outer(node))
        return {node.sql().lower(): node for node in nodes}

    def _key(self, part: exp.Expr) -> tuple[exp.Expr, exp.Expr] | None:
        """The two sides of an equality, the inner one first; None for any other condition."""
        inside = part
        while isinstance(inside, exp.Paren):
            inside = inside.this
        if isinstance(inside, exp.EQ):
            for mine, theirs in ((inside.this, inside.expression), (inside.expression, inside.this)):
                own, others = _column_nodes(mine), _column_nodes(theirs)
                if own and not any(map(self.is_outer, own)) and all(map(self.is_outer, others)):
                    return mine, theirs
        return None


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


def _if_empty(query: exp.Expr, outer: ExpressionBinder, plan: P.Node) -> Expr | None:
    """What the first column of an aggregate is where there are no rows, if not NULL: counts are 0 then, and all other
    aggregates NULL."""
    while isinstance(query, exp.Subquery):
        query = query.this
    if not isinstance(query, exp.Select) or not is_total(query, outer.context) or plan.kind is P.Kind.EVENTS:
        return None
    first = query.expressions[0]
    value = outer.bind(_of_nothing(first.this if isinstance(first, exp.Alias) else first, outer.context))
    if query.args.get("having") is not None:
        return None
    if isinstance(value, Literal) and value.value is None:
        return None
    type_ = plan.schema.fields[0].type
    if isinstance(value, Literal) and value.type.is_integer and type_.is_integer:
        return Literal(type_, value.value)
    return coerce(value, type_)


def is_total(select: exp.Select, context: Context) -> bool:
    """Whether a SELECT gives one row whatever rows there are, unless HAVING leaves it out."""
    return aggregates_rows(select, context) and select.args.get("group") is None


def _of_nothing(node: exp.Expr, context: Context) -> exp.Expr:
    """An expression over the aggregates of no rows."""
    if isinstance(node, exp.Filter):
        return _of_nothing(node.this, context)
    if isinstance(node, exp.AggFunc) or is_aggregate(node, context):
        is_count = isinstance(node, exp.Count | exp.CountIf)
        return exp.Literal.number(0) if is_count else exp.Null()
    copy = node.copy()
    for part in list(copy.iter_expressions()):
        if not isinstance(part, exp.Query):
            part.replace(_of_nothing(part, context))
    return copy


def _is_single(plan: P.Node, fixed: set[str]) -> bool:
    """Whether a relation never has more than one row at the same time that has the same values in these columns."""
    key = unique_key(plan)
    return key is not None and key <= fixed


def _fixed(condition: Expr) -> set[str]:
    """The columns of an inner query of which a join asks for one value."""
    found: set[str] = set()
    for part in conjuncts(condition):
        match part:
            case Call(fn="=", args=(Column(name=name), other)) | Call(fn="=", args=(other, Column(name=name))):
                if name.startswith(_MARK) and not any(each.startswith(_MARK) for each in columns_of(other)):
                    found.add(name.removeprefix(_MARK))
    return found
