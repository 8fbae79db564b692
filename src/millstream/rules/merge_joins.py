"""A relation that is joined with several others in the branches of a union is joined once with their union."""

from __future__ import annotations

from millstream.expressions.nodes import Column, Expr, columns_of, substitute, walk
from millstream.plan.node import read_by, some
from millstream.plan.nodes import Node, Project, Union, passthrough
from millstream.plan.relations import Join

Columns = tuple[tuple[str, Expr], ...]


def merge_joins(node: Node) -> Node:
    """(A × B) ∪ (A × C) is A × (B ∪ C): rows of A are held once. The conditions and columns of the branches must be
    the same but for the names of B and C."""
    if not isinstance(node, Union):
        return node
    parts = [part for branch in node.branches if (part := _parts(branch)) is not None]
    if len(parts) < len(node.branches):
        return node
    columns, join = parts[0]
    asked = read_by(join.pairs, join.residual).union(*(columns_of(expr) for _, expr in columns))
    wanted = some(join.right.schema, asked)
    rights: list[Node] = []
    for others, other in parts:
        names = _renaming(_expressions(columns, join), _expressions(others, other), set(wanted.names))
        if other.left != join.left or names is None or not {*names.values()} <= {*other.right.schema.names}:
            return node
        renamed = tuple((name, Column(wanted[name].type, names.get(name, name))) for name in wanted.names)
        if any(column.name not in other.right.schema for _, column in renamed):
            return node
        rights.append(Project(other.right, renamed))
    return Project(join.with_inputs((join.left, Union(tuple(rights)))), columns)


def _parts(branch: Node) -> tuple[Columns, Join] | None:
    """The columns and the inner join of a branch."""
    match branch:
        case Project(input=Join(how="inner") as join, columns=columns):
            return columns, join
        case Join(how="inner"):
            return passthrough(branch.schema), branch
    return None


def _expressions(columns: Columns, join: Join) -> list[Expr | None]:
    return [*(expr for _, expr in columns), *(side for pair in join.pairs for side in pair), join.residual]


def _renaming(mine: list[Expr | None], theirs: list[Expr | None], free: set[str]) -> dict[str, str] | None:
    """What others call the columns that are called so here, if that is all in which the expressions differ."""
    renamed: dict[str, Expr] = {}
    names: dict[str, str] = {}
    if len(mine) != len(theirs):
        return None
    for one, two in zip(mine, theirs, strict=True):
        if one is None or two is None:
            if one is not two:
                return None
            continue
        for part, other in zip(walk(one), walk(two), strict=False):
            if isinstance(part, Column) and isinstance(other, Column) and part.name in free:
                renamed.setdefault(part.name, other)
                names.setdefault(part.name, other.name)
        if substitute(one, renamed) != two:
            return None
    return names
