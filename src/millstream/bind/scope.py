"""Which columns a name may mean inside one SELECT."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from sqlglot import exp

from millstream.bind.context import Context
from millstream.errors import nearest
from millstream.expressions.nodes import Column
from millstream.records import dataclass
from millstream.schema import Schema
from millstream.sql.event_nodes import DECORATORS


@dataclass(frozen=True)
class Item:
    """One entry of FROM: its alias, its columns as the user knows them, and the prefix they have in the plan."""

    alias: str
    schema: Schema
    prefix: str = ""
    source: str = ""
    within: frozenset[str] = frozenset()
    """lower-case aliases inside a subquery that has none itself"""
    renames: bool = False
    """whether columns have got _1 behind their names: then one that has no other meaning may be named without it"""

    def has(self, name: str) -> bool:
        return name in self.schema or (self.renames and f"{name}_1" in self.schema)

    def column(self, name: str) -> Column:
        found = self.schema[name if name in self.schema else f"{name}_1"]
        return Column(found.type, self.prefix + found.name)

    def answers_to(self, qualifier: str) -> bool:
        """The alias, or by known slips the name of the source (`SELECT OpenAuction.* FROM OpenAuction O`) or an alias
        inside of it (`SELECT P.id FROM (SELECT P.id FROM Person P)`)."""
        return qualifier.lower() in (self.alias.lower(), self.source.lower(), *self.within)


@dataclass(frozen=True)
class Scope:
    """The entries of FROM; `merged` are the columns shared by USING, by lower-case name."""

    context: Context
    items: tuple[Item, ...]
    merged: Mapping[str, Column] = field(default_factory=dict)
    beyond: Beyond | None = None

    def resolve(self, node: exp.Column) -> Column:
        """The one column that `node` names; an error if there is none or more than one."""
        name, qualifier = node.name, node.table
        if self.beyond is not None and is_of_outer(node, self, self.beyond.scope):
            return self.beyond.column(node)
        items = self._items(qualifier, node)
        exact = [item for item in items if name in item.schema]
        found = [item.column(name) for item in exact or items if item.has(name)]
        if not qualifier and name.lower() in self.merged:
            return self.merged[name.lower()]
        if len(found) == 1:
            return found[0]
        if found:
            owners = [item.alias for item in items if name in item.schema]
            self.context.fail(
                f"column {name} is ambiguous", node, hint="write " + " or ".join(f"{owner}.{name}" for owner in owners)
            )
        names = [each.name for item in items for each in item.schema]
        return self.context.fail(f"no column {node.sql()}", node, hint=did_you_mean(name, names))

    def has(self, qualifier: str, *, by_source: bool = True) -> bool:
        """Whether an entry is meant by `qualifier`; without `by_source` only if that is its alias."""
        return any(
            item.answers_to(qualifier) if by_source else item.alias.lower() == qualifier.lower() for item in self.items
        )

    def knows(self, name: str) -> bool:
        """Whether an entry has a column of that name."""
        return any(name in item.schema for item in self.items)

    def around(self) -> Iterator[Scope]:
        """This scope and those of the queries around it, as far as it reaches."""
        yield self
        if self.beyond is not None:
            yield from self.beyond.scope.around()

    def star(self, qualifier: str, node: exp.Expr) -> Iterator[tuple[str, Column]]:
        """What `*` or `q.*` stands for: user-visible names and columns."""
        seen: set[str] = set()
        for item in self._items(qualifier, node):
            for each in item.schema:
                shared = None if qualifier else self.merged.get(each.name.lower())
                if shared is not None:
                    if each.name.lower() in seen:
                        continue
                    seen.add(each.name.lower())
                yield each.name, shared or item.column(each.name)

    def _items(self, qualifier: str, node: exp.Expr) -> tuple[Item, ...]:
        if not qualifier:
            return self.items
        named = tuple(item for item in self.items if item.alias.lower() == qualifier.lower())
        named = named or tuple(item for item in self.items if item.answers_to(qualifier))
        if not named and qualifier in DECORATORS:
            self.context.fail(
                f"{qualifier}.{node.name} is only allowed in braces",
                node,
                hint="outside braces, columns of the first input may have the suffix _1",
            )
        if not named:
            aliases = [item.alias for item in self.items if item.alias]
            hint = did_you_mean(qualifier, aliases) if aliases else "the entry in FROM has no name: add AS …"
            self.context.fail(f"no {qualifier} in FROM", node, hint=hint)
        return named


@dataclass(frozen=True)
class Beyond:
    """The columns of an outer query, whose `scope` it is, that stand beside the rows of an inner one."""

    scope: Scope
    columns: Mapping[str, Column]
    """by the names that they have in the plan of the outer query"""

    def column(self, node: exp.Column) -> Column:
        return self.columns[self.scope.resolve(node).name]


def is_of_outer(node: exp.Column, inner: Scope, outer: Scope) -> bool:
    """Whether a column of an inner query is one of the outer query, or of those around it: inner names hide outer
    ones."""
    around = list(outer.around())
    if not node.table:
        return not inner.knows(node.name) and any(scope.knows(node.name) for scope in around)
    if inner.has(node.table, by_source=False):
        return False
    return any(scope.has(node.table, by_source=False) for scope in around) or (
        not inner.has(node.table) and any(scope.has(node.table) for scope in around)
    )


def did_you_mean(name: str, known: list[str]) -> str | None:
    """A hint with the closest known name, or the short list of all."""
    if close := nearest(name, known):
        return f"did you mean {close[0]}?"
    return "available: " + ", ".join(dict.fromkeys(known)) if known and len(known) <= 12 else None
