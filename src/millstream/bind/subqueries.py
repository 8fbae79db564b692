"""Queries inside expressions, made joins: a value is looked up; EXISTS, IN, ANY and ALL are semi and anti joins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from sqlglot import exp

from millstream import functions
from millstream.bind.context import Context
from millstream.bind.correlation import Inner, bind_inner
from millstream.bind.expressions import OPERATORS, ExpressionBinder
from millstream.bind.joins import refuse_two_streams
from millstream.bind.reads import reads_only
from millstream.bind.relations import as_relation, check_clocks
from millstream.plan import nodes as P
from millstream.plan import relations as R
from millstream.plan.expr import Expr, Literal, columns_of, conjunction
from millstream.plan.joins import split_condition
from millstream.types import BOOLEAN

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_STRICT = (*_COMPARISONS, exp.Between, exp.Paren, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)
"""what is NULL if one of its operands is"""


def has_subquery(node: exp.Expr) -> bool:
    """Whether a query stands in an expression."""
    return node.find(exp.Query) is not None


@dataclass(frozen=True)
class Step:
    """What is put above a plan: a join, or a filter."""

    right: P.Node | None
    condition: Expr | None
    how: R.How = "inner"

    def above(self, plan: P.Node) -> P.Node:
        if self.right is not None:
            return R.Join(plan, self.right, *split_condition(self.condition, plan.schema, self.right.schema), self.how)
        return plan if self.condition is None else P.Filter(plan, self.condition)


@dataclass
class Subqueries:
    """The queries inside the expressions of one SELECT over `plan`; `columns` are those that hold their values."""

    context: Context
    plan: P.Node
    columns: set[str] = field(default_factory=set)
    pending: list[Step] = field(default_factory=list)
    number: int = 0
    first: exp.Expr | None = None
    meets_relation: bool = False
    always: bool = False
    """whether a value of the condition at hand is there even where no rows are"""

    def filtered(self, plan: P.Node, node: exp.Expr, rows: ExpressionBinder) -> P.Node:
        """The rows for which a condition holds."""
        rows.subquery = self.value
        for step in self.steps(node, rows):
            plan = step.above(plan)
        return plan

    def steps(self, node: exp.Expr, binder: ExpressionBinder) -> list[Step]:
        """What stands for a condition; the parts without queries come first."""
        if not has_subquery(node):
            return [Step(None, binder.condition(node))]
        parts = list(conjuncts_of(node))
        plain = tuple(binder.condition(part) for part in parts if not has_subquery(part))
        steps = [Step(None, conjunction(plain))] if plain else []
        for part in parts:
            if has_subquery(part):
                steps += self._condition(part, binder)
        return steps

    def value(self, node: exp.Subquery, binder: ExpressionBinder) -> Expr:
        """The column that will hold the one value of a query."""
        inner = self._inner(node, binder, node, "a subquery cannot stand here yet", keep=True, is_value=True)
        if len(inner.outputs) != 1:
            self.context.fail(f"a value is needed here, and this query has {len(inner.outputs)} columns", node)
        if not inner.is_single:
            self.context.refuse(
                "this query may give several rows at the same time, and a value is needed",
                node,
                hint="aggregate without GROUP BY: (SELECT max(…) FROM …), or use IN, ANY or ALL",
            )
        self.columns |= columns_of(inner.value)
        self.pending.append(Step(inner.plan, inner.condition, "left"))
        self.always |= inner.if_empty is not None
        return inner.value

    def joined(self, plan: P.Node) -> P.Node:
        """A plan with the values that expressions over it need."""
        for step in self.pending:
            plan = step.above(plan)
        self.pending = []
        return plan

    def check_windows(self) -> None:
        """Streams meet only within windows, in FROM as elsewhere."""
        if self.plan.kind is P.Kind.EVENTS and self.first is not None and not self.meets_relation:
            refuse_two_streams("two streams in one query without windows", self.first, self.context)

    # -- conditions ------------------------------------------------------------------------------------------------

    def _condition(self, node: exp.Expr, binder: ExpressionBinder) -> list[Step]:
        quantified = self._quantified(node, binder)
        if quantified is not None:
            return [quantified]
        waiting, self.pending, self.always = self.pending, [], False
        condition = binder.condition(node)
        values, self.pending = self.pending, waiting
        if self.always or not _is_strict(node):
            return [*values, Step(None, condition)]
        # Without a value the comparison is not true, so the rows need not be kept for it.
        if len(values) == 1:
            both = condition if values[0].condition is None else conjunction((values[0].condition, condition))
            return [Step(values[0].right, both)]
        return [*(Step(value.right, value.condition) for value in values), Step(None, condition)]

    def _quantified(self, node: exp.Expr, binder: ExpressionBinder) -> Step | None:
        """The join of EXISTS, IN, ANY or ALL; None for any other condition."""
        negated = False
        inside = node
        while isinstance(inside, exp.Not | exp.Paren):
            negated ^= isinstance(inside, exp.Not)
            inside = inside.this
        if isinstance(inside, exp.Exists):
            inner = self._inner(inside.this, binder, inside, "a subquery cannot stand here yet", keep=False)
            return Step(inner.plan, inner.condition, "anti" if negated else "semi")
        if isinstance(inside, exp.In) and inside.args.get("query") is not None:
            return self._compared("=", inside.this, inside.args["query"], inside, binder, is_any=True, negated=negated)
        if isinstance(inside, _COMPARISONS) and isinstance(inside.expression, exp.Any | exp.All):
            query, is_any = inside.expression.this, isinstance(inside.expression, exp.Any)
            operator = OPERATORS[type(inside)]
            return self._compared(operator, inside.this, query, inside, binder, is_any=is_any, negated=negated)
        return None

    def _compared(
        self, operator: str, value: exp.Expr, query: exp.Expr, node: exp.Expr, binder: ExpressionBinder, *,
        is_any: bool, negated: bool,
    ) -> Step:  # fmt: skip
        is_in = isinstance(node, exp.In)
        message = "IN with a subquery is not supported yet" if is_in else "a subquery cannot stand here yet"
        inner = self._inner(query, binder, node, message, keep=True)
        values = value.expressions if isinstance(value, exp.Tuple) else [value]
        if len(values) != len(inner.outputs) or (len(values) > 1 and operator != "="):
            self.context.fail(f"{len(values)} values are compared with {len(inner.outputs)} columns", node)
        with self.context.blaming(node):
            pairs = zip(map(binder.bind, values), inner.outputs, strict=True)
            matches = conjunction(tuple(functions.resolve(operator, pair) for pair in pairs))
            # A comparison with NULL is neither true nor false: ALL and NOT IN fail on it.
            if is_any:
                test = functions.resolve("coalesce", (matches, Literal(BOOLEAN, True))) if negated else matches
            elif negated:
                test = functions.resolve("not", (matches,))
            else:
                known = functions.resolve("coalesce", (matches, Literal(BOOLEAN, False)))
                test = functions.resolve("not", (known,))
        both = test if inner.condition is None else conjunction((inner.condition, test))
        return Step(inner.plan, both, "semi" if is_any != negated else "anti")

    def _inner(
        self, query: exp.Expr, binder: ExpressionBinder, node: exp.Expr, message: str, *, keep: bool,
        is_value: bool = False,
    ) -> Inner:  # fmt: skip
        """A query inside the SELECT as a relation with columns of its own; `keep` if its select list is needed."""
        while isinstance(query, exp.Subquery) and not (query.args.get("with_") or query.args.get("stream_of")):
            query = query.this
        if reads_only(query, self.context):
            self.context.refuse(message, node, hint="join the table in FROM instead")
        inner = bind_inner(query, binder, self.context, keep=keep)
        if not is_value:
            inner = replace(inner, if_empty=None)
        if inner.plan.kind is P.Kind.TABLE:
            self.context.refuse(message, node, hint="join the table in FROM instead")
        self.meets_relation |= inner.plan.kind is P.Kind.RELATION
        plan = as_relation(inner.plan)
        check_clocks((as_relation(self.plan), plan), "a comparison", node, self.context)
        self.number += 1
        self.first = self.first or query
        return inner.renamed(plan, f"$q{self.number}")


def conjuncts_of(node: exp.Expr) -> Iterator[exp.Expr]:
    """The parts of a condition joined by AND."""
    inside = node
    while isinstance(inside, exp.Paren):
        inside = inside.this
    if isinstance(inside, exp.And):
        yield from conjuncts_of(inside.this)
        yield from conjuncts_of(inside.expression)
    else:
        yield node


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
