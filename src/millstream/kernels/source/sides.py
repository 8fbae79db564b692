"""Loops over two sides: what is done for the left one is written once, and is the same for the right one with the sides
exchanged. As a function that is called for either side, which counts references to arrays, a row of a join cost
117 ns instead of 41."""

from __future__ import annotations

import ast
from copy import deepcopy

_OTHER = {"left": "right", "right": "left"}


def the_other_side() -> None:
    """Stands after `else:` for what is under the `if`, with left and right exchanged."""
    raise NotImplementedError("source of two sides is completed by `both_sides`")


def both_sides(source: str) -> str:
    """Kernel source in which `the_other_side()` is written out.

    >>> print(both_sides("if a: left_x += right[left]\\nelse: the_other_side()"))
    if a:
        left_x += right[left]
    else:
        right_x += left[right]
    """
    return ast.unparse(_Sides().visit(ast.parse(source)))


class _Sides(ast.NodeTransformer):
    def visit_If(self, node: ast.If) -> ast.If:
        self.generic_visit(node)
        if [ast.unparse(line) for line in node.orelse] == ["the_other_side()"]:
            node.orelse = [_Exchanged().visit(deepcopy(line)) for line in node.body]
        return node


class _Exchanged(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = "_".join(_OTHER.get(part, part) for part in node.id.split("_"))
        return node
