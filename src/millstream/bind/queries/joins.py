"""Joins of the entries of FROM: of relations, and of a stream or a relation with stored tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from itertools import pairwise
from typing import NoReturn

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.expressions import ExpressionBinder
from millstream.bind.relations.windows import as_relation, check_clocks
from millstream.bind.scope import Item, Scope
from millstream.expressions import functions
from millstream.expressions.nodes import Column, Expr, conjunction
from millstream.plan import nodes as P
from millstream.plan import relations as R
from millstream.plan.joins import split_condition
from millstream.records import dataclass
from millstream.sql.event_nodes import EventExpression
from millstream.sql.nodes import WindowTable

_HOW: dict[tuple[str, str], R.How] = {
    ("", ""): "inner", ("", "INNER"): "inner", ("", "CROSS"): "inner", ("", "SEMI"): "semi", ("", "ANTI"): "anti",
    ("LEFT", "SEMI"): "semi", ("LEFT", "ANTI"): "anti", ("LEFT", ""): "left", ("RIGHT", ""): "right",
    ("FULL", ""): "full",
}  # fmt: skip


@dataclass(frozen=True)
class FromEntry:
    """One entry of FROM before it is joined to the others."""

    plan: P.Node
    alias: str
    name: str
    node: exp.Expr
    join: exp.Join | None
    within: frozenset[str] = frozenset()

    def prefix(self, place: int) -> str:
        """What its columns' names begin with in the plan of all entries, of which it is one."""
        return f"{self.alias or f'${place}'}."

    def item(self, prefix: str) -> Item:
        """What names mean this entry, whose columns have a prefix in the plan."""
        renames = isinstance(self.node, EventExpression)
        return Item(self.alias, self.plan.schema, prefix, self.name, self.within, renames)


def join_sources(sources: list[FromEntry], context: Context) -> tuple[P.Node, Scope]:
    """The plan of all entries together, and the names they bring into scope."""
    if len(sources) == 1:
        only = sources[0]
        return only.plan, Scope(context, (only.item(""),))
    streams = [source for source in sources if source.plan.kind is not P.Kind.TABLE]
    if not streams:
        context.refuse("a query over tables alone is not a stream", sources[0].node)
    if any(source.plan.kind is P.Kind.RELATION for source in sources):
        sources = [replace(source, plan=as_relation(source.plan)) for source in sources]
        check_clocks((source.plan for source in sources), "a join", streams[-1].node, context)
    return Joining(sources, context).build()


def refuse_two_streams(message: str, node: exp.Expr, context: Context) -> NoReturn:
    """Say that streams meet only within windows."""
    if node.find(WindowTable) is not None and len(list(node.root().find_all(WindowTable))) > 1:
        context.refuse(
            "this join does not compare the windows",
            node,
            detail="rows of two window tables join only within the same window",
            hint="compare the windows: a.window_end = b.window_end AND …",
        )
    context.refuse(
        message,
        node,
        detail="each row would be kept forever, in case a match arrives",
        hint="limit how long rows are kept, s WINDOW(RANGE 10 MINUTES), or how far apart their times are, "
        "b.ts BETWEEN a.ts AND a.ts + INTERVAL '1' HOUR, or store one of them as a table",
    )


@dataclass
class Joining:
    """Joins entries from left to right, each to all before it."""

    sources: list[FromEntry]
    context: Context
    merged: dict[str, Column] = field(default_factory=dict)
    conditions: list[Expr] = field(default_factory=list)

    def build(self) -> tuple[P.Node, Scope]:
        plan, visible = self._joined(range(len(self.sources)))
        return plan, Scope(self.context, tuple(visible), self.merged)

    def _joined(self, places: range) -> tuple[P.Node, list[Item]]:
        """These entries together, and those of them whose columns can be named."""
        parts = [(part, *self._apart(part)) for part in self._parts(places)]
        # Tables are looked up for rows that come, so the first that has rows to come goes first.
        first = next((place for place, (_, plan, _) in enumerate(parts) if plan.kind is not P.Kind.TABLE), 0)
        plan = parts[first][1]
        visible: list[Item] = []
        for place, (part, right, items) in enumerate(parts):
            if len(part) > 1:
                plan = plan if place == first else self._with_relation(plan, right, None, "inner")
                visible += items
                continue
            source, item = self.sources[part[0]], items[0]
            how = self._how(source, place == first)
            scope = Scope(self.context, (*visible, item), dict(self.merged))
            condition = self._condition(source.join, how, scope, item)
            if how not in ("semi", "anti"):
                visible.append(item)
            if place == first:
                self._keep(condition)
            elif right.kind is P.Kind.TABLE:
                plan = self._with_table(plan, right, condition, how)
            else:
                plan = self._with_relation(plan, right, condition, how)
                plan = self._coalesced(plan, source.join, how, scope, item)
        return self._filtered(plan), visible

    def _parts(self, places: range) -> Iterator[range]:
        """Entries one by one; between commas, those go together whose join also keeps rows of its right side: JOIN
        binds more than a comma, so what stands before the comma is not what these rows have no match in."""
        commas = [place for place in places[1:] if _is_comma(self.sources[place])]
        for begin, end in pairwise((places.start, *commas, places.stop)):
            keeps_right = any(_side(source.join) in ("RIGHT", "FULL") for source in self.sources[begin:end])
            if begin > places.start and keeps_right:
                yield range(begin, end)
            else:
                yield from (range(place, place + 1) for place in range(begin, end))

    def _apart(self, part: range) -> tuple[P.Node, list[Item]]:
        if len(part) > 1:
            own = Joining(self.sources, self.context)
            plan, items = own._joined(part)
            self.merged |= own.merged
            return plan, items
        source = self.sources[part[0]]
        item = source.item(source.prefix(part[0]))
        return prefixed(source, item), [item]

    def _with_table(self, plan: P.Node, table: P.Node, condition: Expr | None, how: R.How) -> P.Node:
        if how in ("left", "semi", "anti"):
            return P.JoinTable(plan, table, *split_condition(condition, plan.schema, table.schema), how)
        self._keep(condition)
        return P.JoinTable(plan, table, ())

    def _with_relation(self, plan: P.Node, right: P.Node, condition: Expr | None, how: R.How) -> P.Node:
        # What an outer join adds is not subject to conditions before it.
        plan = self._filtered(plan)
        return R.Join(plan, right, *split_condition(condition, plan.schema, right.schema), how)

    def _keep(self, condition: Expr | None) -> None:
        if condition is not None:
            self.conditions.append(condition)

    def _filtered(self, plan: P.Node) -> P.Node:
        conditions, self.conditions = tuple(self.conditions), []
        return P.Filter(plan, conjunction(conditions)) if conditions else plan

    def _how(self, source: FromEntry, is_first: bool) -> R.How:
        """The kind of join; `is_first` if only tables stand to the left."""
        join = source.join
        if join is None:
            return "inner"
        side, kind = _side(join), str(join.args.get("kind") or "").upper()
        how = _HOW.get((side, "" if kind == "OUTER" else kind))
        method = str(join.args.get("method") or "").upper()
        if how is None or method not in ("", "NATURAL"):
            self.context.refuse(f"{method or f'{side} {kind}'.strip()} JOIN is not supported", join)
        is_table = source.plan.kind is P.Kind.TABLE
        if (is_table and how in ("right", "full")) or (is_first and how != "inner"):
            self.context.refuse(
                "unmatched rows of the table are never final",
                join,
                detail="a matching row of the stream may still arrive",
                hint="put the stream on the left: stream LEFT JOIN table",
            )
        return how

    def _condition(self, join: exp.Join | None, how: R.How, scope: Scope, item: Item) -> Expr | None:
        if join is None:
            return None
        if (on := join.args.get("on")) is not None:
            return ExpressionBinder(self.context, scope).condition(on)
        parts: list[Expr] = []
        names = _shared_names(join, scope, item)
        if len({name.lower() for name in names}) < len(names):
            self.context.fail("a column appears twice in USING", join, hint="name each column once")
        for name in names:
            others = [other for other in scope.items if other is not item and name in other.schema]
            if not others or name not in item.schema:
                self.context.fail(f"USING ({name}): both sides need that column", join)
            mine = self.merged.get(name.lower()) or others[0].column(name)
            with self.context.blaming(join):
                parts.append(functions.resolve("=", (mine, item.column(name))))
            if how not in ("semi", "anti"):
                self.merged[name.lower()] = item.column(name) if how == "right" else mine
        return conjunction(tuple(parts)) if parts else None

    def _coalesced(self, plan: P.Node, join: exp.Join | None, how: R.How, scope: Scope, item: Item) -> P.Node:
        """After a full join, a column of USING is that of the side which has it."""
        if how != "full" or join is None or join.args.get("on") is not None:
            return plan
        added: list[tuple[str, Expr]] = []
        for name in _shared_names(join, scope, item):
            known = self.merged[name.lower()]
            both = functions.resolve("coalesce", (known, item.column(name)))
            added.append((f"$using{len(plan.schema) + len(added)}.{name}", both))
            self.merged[name.lower()] = Column(both.type, added[-1][0])
        return P.Project(plan, (*P.passthrough(plan.schema), *added)) if added else plan


def _is_comma(source: FromEntry) -> bool:
    keys = ("side", "kind", "method", "on", "using")
    return source.join is not None and not any(source.join.args.get(key) for key in keys)


def _side(join: exp.Join | None) -> str:
    return "" if join is None else str(join.args.get("side") or "").upper()


def _shared_names(join: exp.Join, scope: Scope, item: Item) -> list[str]:
    if str(join.args.get("method") or "").upper() == "NATURAL":
        others = [other.schema for other in scope.items if other is not item]
        return [each.name for each in item.schema if any(each.name in schema for schema in others)]
    return [column.name for column in join.args.get("using") or []]


def prefixed(source: FromEntry, item: Item) -> P.Node:
    """The entry's plan with its columns named as they are in the plan of all entries."""
    columns = tuple((item.prefix + each.name, Column(each.type, each.name)) for each in source.plan.schema)
    return P.Project(source.plan, columns)
