"""Queries built from logical operators, one after the other, which are optimised like those of a query text.

A `Flow` is a plan so far. Every method gives a new one with one more operator on top; `start` runs it. Expressions are
SQL text, bound to the columns of the flow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream import sql
from millstream.bind.context import Context
from millstream.bind.expressions import ExpressionBinder
from millstream.bind.from_clause import bind_from
from millstream.bind.outputs import Bound, deliver, outputs_of
from millstream.bind.relations import as_relation, bind_windowed, check_clocks, to_events
from millstream.bind.scope import Item, Scope
from millstream.bind.set_operations import combined
from millstream.bind.snapshots import bind_snapshots
from millstream.bind.statements import delivered
from millstream.plan import nodes as P
from millstream.plan import relations as R
from millstream.plan.expr import Column
from millstream.plan.joins import split_condition
from millstream.query import Query

if TYPE_CHECKING:
    from millstream.session import Database


@dataclass(frozen=True)
class Flow:
    """A plan, and the names under which expressions know its columns."""

    database: Database
    plan: P.Node
    items: tuple[Item, ...]
    uses: frozenset[str]

    def alias(self, name: str) -> Flow:
        """The same under another name, so that joins can tell its columns from others'."""
        plan = self._plain()
        return replace(self, plan=plan, items=(Item(name, plan.schema),))

    def window(self, text: str) -> Flow:
        """A relation: WINDOW of that text, for example 'RANGE 10 MINUTES' or 'PARTITION BY k ROWS 1'."""
        parsed = self._parsed(f"SELECT * FROM flow WINDOW({text})")
        item = parsed.args["from_"].this
        return replace(self, plan=bind_windowed(item, self._plain(), self.items[0].alias, self._context(text)))

    def where(self, condition: str) -> Flow:
        """The rows for which the condition is true."""
        node = self._parsed(f"SELECT * FROM flow WHERE {condition}").args["where"].this
        return replace(self, plan=P.Filter(self.plan, self._expressions(condition).condition(node)))

    def select(self, *columns: str) -> Flow:
        """New columns: expressions, with AS where they need a name."""
        return self._selected(f"SELECT {', '.join(columns)} FROM flow")

    def group_by(self, keys: str, *columns: str, having: str | None = None) -> Flow:
        """At each instant one row for each group: any columns made of the keys and of aggregates."""
        by = f" GROUP BY {keys}" if keys else ""
        condition = f" HAVING {having}" if having else ""
        return self._selected(f"SELECT {', '.join(columns)} FROM flow{by}{condition}")

    def distinct(self) -> Flow:
        """Each row once, however often it is valid at the same time."""
        return replace(self, plan=P.Distinct(as_relation(self.plan)))

    def join(self, other: Flow, on: str = "TRUE", how: R.How = "inner") -> Flow:
        """Pairs of rows that are valid at the same time; columns are named by alias where both sides have them."""
        both = (_prefixed(self), _prefixed(other))
        check_clocks((side.plan for side in both), "a join", exp.Var(this="join"), self._context(on))
        items = both[0].items + both[1].items
        scope = Scope(self._context(on), items, {})
        node = self._parsed(f"SELECT * FROM flow WHERE {on}").args["where"].this
        condition = ExpressionBinder(self._context(on), scope).condition(node)
        pairs, residual = split_condition(condition, both[0].plan.schema, both[1].plan.schema)
        kept = both[0].items if how in ("semi", "anti") else items
        plan = R.Join(both[0].plan, both[1].plan, pairs, residual, how)
        return replace(self, plan=plan, items=kept, uses=self.uses | other.uses)

    def union(self, other: Flow) -> Flow:
        """The rows of both, as bags."""
        return self._combined(other, "UNION ALL")

    def except_(self, other: Flow) -> Flow:
        """What this has more than the other, as bags."""
        return self._combined(other, "EXCEPT ALL")

    def intersect(self, other: Flow) -> Flow:
        """What both have, as bags."""
        return self._combined(other, "INTERSECT ALL")

    def istream(self) -> Flow:
        """Rows as they come to be valid, as events."""
        return self._events("ISTREAM")

    def dstream(self) -> Flow:
        """Rows as they cease to be valid, as events."""
        return self._events("DSTREAM")

    def rstream(self) -> Flow:
        """Rows at every instant at which they are valid, as events."""
        return self._events("RSTREAM")

    def explain(self, mode: str = "") -> str:
        """How it would run."""
        return self.database.explain_bound(self._bound(), mode)

    def start(self, name: str | None = None) -> Query:
        """Run it as a standing query. It is not kept when a persistent session is closed: it has no text."""
        return self.database.start_bound(self._bound(), self.uses, str(self.plan), name)

    # -- parts -----------------------------------------------------------------------------------------------------

    def _bound(self) -> Bound:
        plan = self._plain()
        return delivered(Bound(plan, plan.schema.names), self._context(""))

    def _plain(self) -> P.Node:
        """The plan with columns under the names that users know; those that both sides of a join have keep a prefix."""
        named = [(item.prefix + field.name, field.name) for item in self.items for field in item.schema]
        if len(self.items) == 1 and not self.items[0].prefix:
            return self.plan
        short = [name.lower() for _, name in named]
        columns = tuple(
            (
                name if short.count(name.lower()) == 1 else full.replace(".", "_"),
                Column(self.plan.schema[full].type, full),
            )
            for full, name in named
        )
        return P.Project(self.plan, columns)

    def _selected(self, text: str) -> Flow:
        node, context = self._parsed(text), self._context(text)
        assert isinstance(node, exp.Select)
        scope = Scope(context, self.items, {})
        if self.plan.kind is P.Kind.RELATION:
            bound = bind_snapshots(node, self.plan, scope, context)
        else:
            expressions = ExpressionBinder(context, scope)
            bound = deliver(
                self.plan, [out for part in node.expressions for out in outputs_of(part, scope, expressions)]
            )
        return replace(self, plan=bound.plan, items=(Item(self.items[0].alias, bound.plan.schema),))

    def _combined(self, other: Flow, words: str) -> Flow:
        bounds = [Bound(flow._plain(), flow._plain().schema.names) for flow in (self, other)]
        node = self._parsed(f"SELECT * FROM flow {words} SELECT * FROM flow")
        assert isinstance(node, exp.SetOperation)
        plan = combined(node, bounds, self._context(words)).plan
        return Flow(self.database, plan, (Item(self.items[0].alias, plan.schema),), self.uses | other.uses)

    def _events(self, how: str) -> Flow:
        plan = to_events(how, self._plain(), exp.Var(this=how), self._context(how))
        return replace(self, plan=plan, items=(Item(self.items[0].alias, plan.schema),))

    def _expressions(self, text: str) -> ExpressionBinder:
        context = self._context(text)
        return ExpressionBinder(context, Scope(context, self.items, {}))

    def _parsed(self, text: str) -> exp.Expr:
        return sql.parse(text)[0].ast

    def _context(self, text: str) -> Context:
        return Context(self.database.catalog, text)


def _prefixed(flow: Flow) -> Flow:
    """The flow as a relation whose columns have names that other flows of a join do not have."""
    plan = as_relation(flow.plan)
    if len(flow.items) > 1 or flow.items[0].prefix:
        return replace(flow, plan=plan)
    item = flow.items[0]
    columns = tuple((f"{item.alias}.{field.name}", Column(field.type, field.name)) for field in plan.schema)
    return replace(
        flow, plan=P.Project(plan, columns), items=(replace(item, schema=plan.schema, prefix=f"{item.alias}."),)
    )


def flow_of(database: Database, name: str, alias: str | None) -> Flow:
    """What a name of the catalog stands for, as the beginning of a flow."""
    text = f"SELECT * FROM {name}"
    context = Context(database.catalog, text)
    select = sql.parse(text)[0].ast
    assert isinstance(select, exp.Select)
    plan, scope = bind_from(select, context)
    item = replace(scope.items[0], alias=alias or scope.items[0].alias)
    return Flow(database, plan, (item,), frozenset(context.uses))
