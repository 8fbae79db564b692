"""The base of all logical nodes: frozen, checked when they are built, and printable."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Set
from dataclasses import replace
from enum import Enum
from functools import cached_property

from millstream.expressions.nodes import Expr, columns_of
from millstream.records import dataclass
from millstream.schema import Schema

Pairs = tuple[tuple[Expr, Expr], ...]
"""Equalities that a join asks for: left side, right side."""


class Kind(Enum):
    """What a node delivers: things that happened, a table that changes with time, or a stored table."""

    EVENTS = "events"
    RELATION = "relation"
    TABLE = "table"


@dataclass(frozen=True)
class Node:
    """A logical operator. Equal plans are equal values, so `==` and `fingerprint` find common subplans."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        """The same operator over other inputs (of the same number)."""
        return self

    @property
    def schema(self) -> Schema:
        raise NotImplementedError

    @property
    def kind(self) -> Kind:
        return self.inputs[0].kind

    @property
    def lasts(self) -> bool:
        """Whether its events have a start beside their end; elsewhere they are points in time."""
        return False

    def label(self) -> str:
        """The operator on one line, without its inputs."""
        raise NotImplementedError

    # -- traits, by which rules know operators -------------------------------------------------------------------------

    @property
    def passes_columns(self) -> bool:
        """Whether the columns of its inputs are also its own."""
        return True

    @property
    def compares_rows(self) -> bool:
        """Whether all columns of its inputs count, as those of rows that may be equal."""
        return False

    @property
    def works_by_row(self) -> bool:
        """Whether what becomes of a row of its first input does not depend on the other rows there."""
        return False

    @property
    def gives_its_rows(self) -> bool:
        """Whether its rows are just those that come in, so that a condition that can fail fails for no others."""
        return False

    @property
    def reads(self) -> frozenset[str]:
        """The columns of its inputs that it looks at, whoever wants them."""
        return frozenset()

    @property
    def sieves(self) -> frozenset[str]:
        """The columns by which rows may be left out before it as well as after it."""
        return frozenset(self.inputs[0].schema.names) if self.works_by_row else frozenset()

    def narrowed(self, wanted: Set[str]) -> Node:
        """The operator without what it does for other columns than these: over the same inputs, or its only one."""
        return self

    def apart(self, by: tuple[str, ...]) -> Node | None:
        """The operator that treats rows apart which differ in the first of these columns, and passes all of them on;
        the others follow from the first. None if there is no such operator."""
        return self if self.works_by_row and self.passes_columns else None

    @cached_property
    def fingerprint(self) -> str:
        """Equal for equal plans, different (for all practical purposes) for others, on every machine."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return "\n".join(_tree(self, "", ""))


@dataclass(frozen=True)
class Unary(Node):
    """What operators with one input have in common; the columns are the input's unless one says otherwise."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return replace(self, input=inputs[0])

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True)
class Keyed(Unary):
    """What operators have in common that treat rows with other values of `keys` apart."""

    keys: tuple[str, ...]

    @property
    def reads(self) -> frozenset[str]:
        return frozenset(self.keys)

    @property
    def sieves(self) -> frozenset[str]:
        return frozenset(self.keys)

    def apart(self, by: tuple[str, ...]) -> Node | None:
        return replace(self, keys=(*(by[:1] if self.passes_columns else by), *self.keys))


@dataclass(frozen=True)
class Binary(Node):
    """What operators with two inputs have in common."""

    left: Node
    right: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return replace(self, left=inputs[0], right=inputs[1])


def walk(node: Node) -> Iterator[Node]:
    """The plan's nodes, outermost first."""
    yield node
    for child in node.inputs:
        yield from walk(child)


def rebuild(node: Node, change: Callable[[Node], Node]) -> Node:
    """The plan rebuilt bottom-up, every node passed through `change`."""
    inputs = node.inputs
    changed = tuple(rebuild(child, change) for child in inputs)
    if any(new is not old for new, old in zip(changed, inputs, strict=True)):
        node = node.with_inputs(changed)
    return change(node)


def require(expr: Expr, schema: Schema) -> None:
    missing = [name for name in columns_of(expr) if name not in schema.names]
    if missing:
        raise ValueError(f"{expr} reads {', '.join(missing)}, which its input {schema} does not have")


def require_names(names: tuple[str, ...], schema: Schema, above: str) -> None:
    for name in names:
        if name not in schema:
            raise ValueError(f"no column {name} under {above}")


def require_pairs(pairs: Pairs, left: Schema, right: Schema) -> None:
    for mine, theirs in pairs:
        require(mine, left)
        require(theirs, right)
        if mine.type != theirs.type:
            raise ValueError(f"join of {mine.type} with {theirs.type}")


def read_by(pairs: Pairs, residual: Expr | None = None) -> frozenset[str]:
    """The columns that the conditions of a join read."""
    conditions = [side for pair in pairs for side in pair] + ([] if residual is None else [residual])
    return frozenset().union(*map(columns_of, conditions))


def some(schema: Schema, wanted: Set[str]) -> Schema:
    """The columns that are wanted, at least one."""
    return Schema(tuple(field for field in schema if field.name in wanted) or schema.fields[:1])


def condition_text(pairs: Pairs, residual: Expr | None) -> str:
    """What a join asks for, on one line."""
    conditions = [f"{mine} = {theirs}" for mine, theirs in pairs]
    if residual is not None:
        conditions.append(str(residual))
    return " AND ".join(conditions) or "TRUE"


def listed(names: tuple[str, ...]) -> str:
    return ", ".join(names)


def by_told(keys: tuple[str, ...]) -> str:
    """How a node or a kernel says by which columns it works."""
    return f" by {listed(keys)}" if keys else ""


def _tree(node: Node, first: str, rest: str) -> Iterator[str]:
    yield first + node.label()
    for i, child in enumerate(node.inputs):
        last = i == len(node.inputs) - 1
        yield from _tree(child, rest + ("└ " if last else "├ "), rest + ("  " if last else "│ "))
