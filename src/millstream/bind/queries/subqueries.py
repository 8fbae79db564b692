"""Subqueries in expressions as joins: a value is looked up; EXISTS, IN, ANY and ALL are semi and anti joins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.expressions import OPERATORS, ExpressionBinder
from millstream.bind.queries.correlation import Inner, bind_inner, is_total
from millstream.bind.queries.joins import refuse_two_streams
from millstream.bind.reads import conjuncts_of, reads_only
from millstream.bind.relations.windows import as_relation, check_clocks
from millstream.expressions import functions
from millstream.expressions.nodes import Call, Case, Column, Expr, Literal, columns_of, conjunction
from millstream.plan import nodes as P
from millstream.plan import relations as R
from millstream.plan.joins import split_condition
from millstream.records import dataclass
from millstream.types import BOOLEAN

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_STRICT = (*_COMPARISONS, exp.Between, exp.Paren, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)
"""what is NULL if one of its operands is"""


def has_subquery(node: exp.Expr) -> bool:
    """Whether a query stands in an expression."""
    return node.find(exp.Query) is not None


def asks_streams(node: exp.Expr, context: Context) -> bool:
    """Whether a query over streams stands in an expression."""
    return any(not reads_only(query, context) for query in _outermost(node))


@dataclass(frozen=True)
class PlanStep:
    """What is put above a plan: a join with a relation or a stored table, or a filter. `mark` names the column of a
    join that only tells which rows have a match."""

    right: P.Node | None
    condition: Expr | None
    how: P.TableHow = "inner"
    mark: str = ""

    def above(self, plan: P.Node) -> P.Node:
        right, how = self.right, self.how
        if right is None:
            return plan if self.condition is None else P.Filter(plan, self.condition)
        reads = frozenset() if self.condition is None else columns_of(self.condition)
        asks_rows = how in ("semi", "anti", "mark") and reads.isdisjoint(right.schema.names)
        if asks_rows and right.kind is P.Kind.RELATION:
            # that there is a row at all is all that is asked
            right = P.Distinct(P.Project(right, ((f"{right.schema.names[0]}.any", Literal(BOOLEAN, True)),)))
        pairs, residual = split_condition(self.condition, plan.schema, right.schema)
        if right.kind is P.Kind.TABLE:
            return P.JoinTable(plan, right, pairs, residual, how, self.mark)
        if how == "mark":
            kept = P.passthrough(plan.schema)
            return P.Union(
                tuple(
                    P.Project(R.Join(plan, right, pairs, residual, how), (*kept, (self.mark, Literal(BOOLEAN, value))))
                    for how, value in _HALVES
                )
            )
        assert how != "single" and how != "gather"
        return R.Join(plan, right, pairs, residual, how)


_HALVES: tuple[tuple[R.How, bool], ...] = (("semi", True), ("anti", False))


@dataclass(frozen=True)
class Quantified:
    """EXISTS, IN, ANY or ALL: whether there is a row of an inner query for which `test` is true, or, if `negated`,
    the opposite of that. Without a test that is never unknown."""

    inner: Inner
    test: Expr | None
    negated: bool

    @property
    def is_true(self) -> tuple[Expr | None, bool]:
        """A condition, and whether some row must meet it for this to be true, or none."""
        if not self.negated or self.test is None:
            return self.met(self.test), not self.negated
        # a comparison with NULL is neither true nor false: ALL and NOT IN fail on it
        return self.met(functions.resolve("coalesce", (self.test, Literal(BOOLEAN, True)))), False

    def met(self, test: Expr | None) -> Expr | None:
        """The condition under which a row belongs to the outer one and passes a test."""
        parts = tuple(part for part in (self.inner.condition, test) if part is not None)
        return conjunction(parts) if parts else None


@dataclass
class Subqueries:
    """The queries inside the expressions of one SELECT over `plan`; `columns` are those that hold their values, whose
    names begin with `prefix`."""

    context: Context
    plan: P.Node
    prefix: str = "$q"
    columns: set[str] = field(default_factory=set)
    pending: list[PlanStep] = field(default_factory=list)
    number: int = 0
    first: exp.Expr | None = None
    meets_relation: bool = False
    over_relations: bool = False
    always: bool = False
    """whether a value of the condition at hand is there even where no rows are"""

    def filtered(self, plan: P.Node, node: exp.Expr, rows: ExpressionBinder) -> P.Node:
        """The rows for which a condition holds."""
        rows.subquery = self.value
        for step in self.steps(node, rows):
            plan = step.above(plan)
        return plan

    def steps(self, node: exp.Expr, binder: ExpressionBinder) -> list[PlanStep]:
        """What stands for a condition; the parts without queries come first."""
        if not has_subquery(node):
            return [PlanStep(None, binder.condition(node))]
        parts = list(conjuncts_of(node))
        plain = tuple(binder.condition(part) for part in parts if not has_subquery(part))
        steps = [PlanStep(None, conjunction(plain))] if plain else []
        for part in parts:
            if has_subquery(part):
                steps += self._condition(part, binder)
        return steps

    def value(self, node: exp.Expr, binder: ExpressionBinder) -> Expr:
        """What stands for a query in an expression: the column that will hold its one value, or whether it has rows
        for which something is true."""
        quantified = self._quantified(node, binder)
        if isinstance(quantified, Quantified):
            return self._three_valued(quantified)
        if quantified is not None:
            return quantified
        assert isinstance(node, exp.Subquery)
        inner = self._inner(_with_having_listed(node, self.context), binder, node, keep=True)
        if len(inner.outputs) != 1:
            self.context.fail(f"a value is needed here, but this query has {len(inner.outputs)} columns", node)
        is_table = inner.plan.kind is P.Kind.TABLE
        if not inner.is_single and not is_table:
            self.context.refuse(
                "a value is needed, but this query may return several rows at the same time",
                node,
                hint="aggregate without GROUP BY: (SELECT max(…) FROM …), or use IN, ANY or ALL",
            )
        self.columns |= columns_of(inner.value)
        self.pending.append(PlanStep(inner.plan, inner.condition, "single" if is_table else "left"))
        self.always |= inner.if_empty is not None
        return inner.value

    def joined(self, plan: P.Node) -> P.Node:
        """A plan with the values that expressions over it need."""
        for step in self.pending:
            plan = step.above(plan)
        self.pending = []
        return plan

    def for_rows(self) -> Subqueries:
        """The same for expressions over the rows that are aggregated."""
        return Subqueries(self.context, self.plan, "$r", over_relations=self.over_relations)

    def check_windows(self) -> None:
        """Streams meet only within windows, in FROM as elsewhere."""
        if self.plan.kind is P.Kind.EVENTS and self.first is not None and not self.meets_relation:
            refuse_two_streams("two streams in one query without windows", self.first, self.context)

    # -- conditions ------------------------------------------------------------------------------------------------

    def _condition(self, node: exp.Expr, binder: ExpressionBinder) -> list[PlanStep]:
        waiting, self.pending, self.always = self.pending, [], False
        steps = self._condition_steps(node, binder)
        values, self.pending = self.pending, waiting
        if len(steps) > 1 or steps[0].right is not None:
            return [*values, *steps]
        condition = steps[0].condition
        assert condition is not None
        if self.always or not _is_strict(node) or any(step.right is None for step in values):
            return [*values, *steps]
        # Without a value the comparison is not true, so the rows need not be kept for it.
        if len(values) == 1 and values[0].how == "left":
            both = condition if values[0].condition is None else conjunction((values[0].condition, condition))
            return [PlanStep(values[0].right, both)]
        inner = [PlanStep(each.right, each.condition) if each.how == "left" else each for each in values]
        return [*inner, *steps]

    def _condition_steps(self, node: exp.Expr, binder: ExpressionBinder) -> list[PlanStep]:
        quantified = self._quantified(node, binder)
        if isinstance(quantified, Quantified):
            return self._kept(quantified)
        if quantified is not None:
            return [PlanStep(None, quantified)]
        return [PlanStep(None, binder.condition(self._marked(node, binder)))]

    def _kept(self, quantified: Quantified) -> list[PlanStep]:
        """The rows for which it is true."""
        inner, test = quantified.inner, quantified.test
        sides = None if test is None or not quantified.negated else _sides(test, inner)
        if sides is None:
            condition, some = quantified.is_true
            return [PlanStep(inner.plan, condition, "semi" if some else "anti")]
        # NOT IN by looking up: nothing is equal, nothing there is NULL, and of a NULL it is known only in nothing.
        mine, theirs = (functions.resolve("is_null", (side,)) for side in sides)
        return [
            PlanStep(inner.plan, quantified.met(test), "anti"),
            PlanStep(P.Filter(inner.plan, theirs), inner.condition, "anti"),
            PlanStep(inner.plan, quantified.met(mine), "anti"),
        ]

    def _mark(self, plan: P.Node, condition: Expr | None) -> Column:
        """A column that tells whether a row of the inner query meets a condition."""
        self.number += 1
        column = Column(BOOLEAN, f"{self.prefix}{self.number}.mark")
        self.columns.add(column.name)
        self.pending.append(PlanStep(plan, condition, "mark", column.name))
        self.always = True
        return column

    def _three_valued(self, quantified: Quantified) -> Expr:
        """Whether it is true, false, or unknown for want of a value."""
        plan, test = quantified.inner.plan, quantified.test
        found: Expr = self._mark(plan, quantified.met(test))
        if test is not None:
            unknown = self._mark(plan, quantified.met(functions.resolve("is_null", (test,))))
            true, null, false = (Literal(BOOLEAN, value) for value in (True, None, False))
            found = Case(BOOLEAN, ((found, true), (unknown, null)), false)
        return functions.resolve("not", (found,)) if quantified.negated else found

    def _marked(self, node: exp.Expr, binder: ExpressionBinder) -> exp.Expr:
        """A condition in which columns stand for the EXISTS, IN, ANY and ALL that must be true for it, if they are
        joined by OR and AND only: there it does not matter whether they are false or unknown."""
        inside = node
        while isinstance(inside, exp.Paren):
            inside = inside.this
        if isinstance(inside, exp.Or | exp.And):
            sides = [self._marked(side, binder) for side in (inside.this, inside.expression)]
            return exp.Paren(this=type(inside)(this=sides[0], expression=sides[1]))
        quantified = self._quantified(inside, binder)
        if quantified is None:
            return node.copy()
        name = f"{self.prefix}{self.number}.is_true"
        if isinstance(quantified, Quantified):
            condition, some = quantified.is_true
            mark: Expr = self._mark(quantified.inner.plan, condition)
            quantified = mark if some else functions.resolve("not", (mark,))
        binder.parameters[name] = quantified
        return exp.column(name, quoted=True)

    def _quantified(self, node: exp.Expr, binder: ExpressionBinder) -> Quantified | Expr | None:
        """What EXISTS, IN, ANY or ALL asks, or the comparison with a value that it comes down to; None for any other
        condition."""
        negated = False
        inside = node
        while isinstance(inside, exp.Not | exp.Paren):
            negated ^= isinstance(inside, exp.Not)
            inside = inside.this
        if isinstance(inside, exp.Exists):
            if (total := self._total(inside.this)) is not None:
                return self._is_kept(total, binder, negated)
            return Quantified(self._inner(inside.this, binder, inside, keep=False), None, negated)
        if isinstance(inside, exp.In) and inside.args.get("query") is not None:
            return self._compared("=", inside.this, inside.args["query"], inside, binder, is_any=True, negated=negated)
        if isinstance(inside, _COMPARISONS) and isinstance(inside.expression, exp.Any | exp.All):
            query, is_any = inside.expression.this, isinstance(inside.expression, exp.Any)
            operator = OPERATORS[type(inside)]
            return self._compared(operator, inside.this, query, inside, binder, is_any=is_any, negated=negated)
        return None

    def _total(self, query: exp.Expr) -> exp.Select | None:
        """A query that gives exactly one row, whatever rows there are, unless HAVING leaves it out."""
        while isinstance(query, exp.Subquery | exp.Paren):
            query = query.this
        is_one = isinstance(query, exp.Select) and is_total(query, self.context)
        has_more = any(query.args.get(key) for key in ("limit", "offset", "stream_of"))
        return query if isinstance(query, exp.Select) and is_one and not has_more else None

    def _is_kept(self, total: exp.Select, binder: ExpressionBinder, negated: bool) -> Expr:
        """Whether HAVING keeps the one row of a query."""
        having = total.args.get("having")
        if having is None:
            return Literal(BOOLEAN, not negated)
        tested = total.copy()
        tested.set("expressions", [having.this.copy()])
        tested.set("having", None)
        value = self.value(exp.Subquery(this=tested), binder)
        kept = functions.resolve("coalesce", (value, Literal(BOOLEAN, False)))
        return functions.resolve("not", (kept,)) if negated else kept

    def _compared(
        self, operator: str, value: exp.Expr, query: exp.Expr, node: exp.Expr, binder: ExpressionBinder, *,
        is_any: bool, negated: bool,
    ) -> Quantified | Expr:  # fmt: skip
        values = value.expressions if isinstance(value, exp.Tuple) else [value]
        total = self._total(query)
        if total is not None and len(values) == len(total.expressions) == 1:
            # of one row, there where nothing is counted as 0
            one = self.value(exp.Subquery(this=total), binder)
            with self.context.blaming(node):
                compared = functions.resolve(operator, (binder.bind(values[0]), one))
            if total.args.get("having") is not None:
                kept = self._is_kept(total, binder, not is_any)
                compared = functions.resolve("and" if is_any else "or", (kept, compared))
            return functions.resolve("not", (compared,)) if negated else compared
        inner = self._inner(query, binder, node, keep=True)
        if len(values) != len(inner.outputs) or (len(values) > 1 and operator != "="):
            self.context.fail(f"{len(values)} values compared with {len(inner.outputs)} columns", node)
        with self.context.blaming(node):
            pairs = zip(map(binder.bind, values), inner.outputs, strict=True)
            test = conjunction(tuple(functions.resolve(operator, pair) for pair in pairs))
            # ALL is true unless the comparison fails for some row
            test = test if is_any else functions.resolve("not", (test,))
        return Quantified(inner, test, negated if is_any else not negated)

    def _inner(self, query: exp.Expr, binder: ExpressionBinder, node: exp.Expr, *, keep: bool) -> Inner:
        """A query inside the SELECT with columns of its own names; `keep` if its select list is needed."""
        while isinstance(query, exp.Subquery) and not (query.args.get("with_") or query.args.get("stream_of")):
            query = query.this
        rows = as_relation(self.plan) if self.over_relations else self.plan
        inner = bind_inner(query, binder, rows, self.context, keep=keep)
        plan = inner.plan
        if plan.kind is not P.Kind.TABLE:
            self.meets_relation |= plan.kind is P.Kind.RELATION
            plan = as_relation(plan)
            check_clocks((as_relation(self.plan), plan), "a comparison", node, self.context)
            self.first = self.first or query
        self.number += 1
        return inner.renamed(plan, f"{self.prefix}{self.number}")


def _with_having_listed(node: exp.Subquery, context: Context) -> exp.Expr:
    """A value that HAVING may leave out is NULL then, which its select list can say as well."""
    select = node.this
    having = select.args.get("having")
    if not isinstance(select, exp.Select) or having is None or not is_total(select, context):
        return node
    if len(select.expressions) != 1:
        return node
    plain = select.copy()
    first = plain.expressions[0]
    value = first.this if isinstance(first, exp.Alias) else first
    kept = exp.Case(ifs=[exp.If(this=having.this.copy(), true=value.copy())])
    plain.set("expressions", [kept])
    plain.set("having", None)
    return exp.Subquery(this=plain)


def _sides(test: Expr, inner: Inner) -> tuple[Expr, Expr] | None:
    """The two sides of an equality between the outer row and a column of the inner query, that one last."""
    if not (isinstance(test, Call) and test.fn == "="):
        return None
    mine, theirs = test.args
    own = set(inner.plan.schema.names)
    return (mine, theirs) if columns_of(theirs) <= own and not columns_of(mine) & own else None


def _is_strict(node: exp.Expr) -> bool:
    """Whether a condition is a comparison that is not true if the value of a query in it is missing."""
    inside = node
    while isinstance(inside, exp.Paren):
        inside = inside.this
    return isinstance(inside, (*_COMPARISONS, exp.Between)) and all(
        isinstance(above, _STRICT) for query in _outermost(inside) for above in _above(query, inside)
    )


def _outermost(node: exp.Expr) -> Iterator[exp.Expr]:
    for part in node.walk(prune=lambda each: isinstance(each, exp.Query)):
        if isinstance(part, exp.Query):
            yield part


def _above(query: exp.Expr, top: exp.Expr) -> Iterator[exp.Expr]:
    node = query
    while node is not top and node.parent is not None:
        node = node.parent
        yield node
