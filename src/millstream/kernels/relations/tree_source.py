"""Pieces of generated source: the greatest or least value of rows that may go at any time.

Of each group all values wait in a tree, in their order and counted (`tree_loops` has its lanes); the extremes are its
ends. A value comes or goes in as many steps as the tree is deep, which is about the logarithm of how many there are.
"""

from __future__ import annotations

from collections.abc import Iterator

from millstream.kernels.accumulators.columns import ArgumentColumn
from millstream.kernels.over.layout import OverLayout
from millstream.kernels.over.parts import cell_value
from millstream.kernels.relations import tree_loops
from millstream.kernels.relations.stair_source import TEXT_ARRAYS
from millstream.kernels.relations.summary_layout import Ranked

IMPORTS = (
    "import numpy as np",
    f"from {tree_loops.__name__} import COUNT, LEFT, NODE, RIGHT, VALUE, end_of, new_node, take_out, weight",
)
"""What generated source with trees begins with."""

_FUNCTIONS = """\
def put_{kind}(nodes, pool, root, value{texts}):
{alike}    node = root
    while node != 0:
        here = nodes[NODE * node + VALUE]
        if here == value:
            nodes[NODE * node + COUNT] += 1
            return root
        node = nodes[NODE * node + (LEFT if {before} else RIGHT)]
    new = new_node(nodes, pool, value, 1)
    heavy = weight(new)
    nodes[LEFT] = root
    link = LEFT
    node = root
    while node != 0 and weight(node) >= heavy:
        here = nodes[NODE * node + VALUE]
        link = NODE * node + (LEFT if {before} else RIGHT)
        node = nodes[link]
    nodes[link] = new
    # What was there is divided: the lesser values lie on the left of the new one.
    left = NODE * new + LEFT
    right = NODE * new + RIGHT
    while node != 0:
        here = nodes[NODE * node + VALUE]
        if {before}:
            nodes[right] = node
            right = NODE * node + LEFT
            node = nodes[right]
        else:
            nodes[left] = node
            left = NODE * node + RIGHT
            node = nodes[left]
    nodes[left] = 0
    nodes[right] = 0
    return nodes[LEFT]


def take_{kind}(nodes, pool, root, value{texts}):
{alike}    nodes[LEFT] = root
    link = LEFT
    node = root
    while node != 0:
        here = nodes[NODE * node + VALUE]
        if here == value:
            nodes[NODE * node + COUNT] -= 1
            if nodes[NODE * node + COUNT] == 0:
                take_out(nodes, pool, link)
            break
        link = NODE * node + (LEFT if {before} else RIGHT)
        node = nodes[link]
    return nodes[LEFT]


"""

_BEFORE = {
    "int": "value < here",
    # bits of floats are in order once those of negative ones are turned round
    "float": "value ^ ((value >> 63) & LARGEST) < here ^ ((here >> 63) & LARGEST)",
    "text": "text_before(value, here, starts, lengths, arena)",
}

_ALIKE = """\
    if value & LARGEST > 0x7FF0_0000_0000_0000:
        # NaN is the greatest number, whatever its sign.
        value = np.int64(0x7FF8_0000_0000_0000)
"""


def tree_functions(extremes: tuple[Ranked, ...]) -> str:
    """The functions by which values of these kinds come and go; each gives the tree's new root."""
    kinds = sorted({part.arg.kind for part in extremes})
    text = "LARGEST = 0x7FFF_FFFF_FFFF_FFFF\n\n\n" if "float" in kinds else ""
    for kind in kinds:
        text += _FUNCTIONS.format(
            kind=kind,
            before=_BEFORE[kind],
            alike=_ALIKE if kind == "float" else "",
            texts="".join(f", {array}" for array in TEXT_ARRAYS) if kind == "text" else "",
        )
    return text


def put_value(part: Ranked) -> Iterator[str]:
    """The value that enters is one more."""
    yield f"if {part.arg.name}_in:"
    yield f"    {_call('put', part, f'{part.arg.name}_word')}"


def take_value(layout: OverLayout, part: Ranked) -> Iterator[str]:
    """The value in cell c is one less."""
    yield f"if {cell_value(layout, part.arg)[1]}:"
    yield f"    {_call('take', part, f'cells[c + CELL_{part.arg.name.upper()}]')}"


def end_of_tree(keeper: Ranked, fn: str) -> str:
    """The node with the extreme of a group, or 0; `keeper` is the one that has the tree."""
    return f"end_of(steps, slots[s + {keeper.name.upper()}_FIRST], {'LEFT' if fn == 'min' else 'RIGHT'})"


def _call(way: str, part: Ranked, value: str) -> str:
    root = f"slots[s + {part.name.upper()}_FIRST]"
    return f"{root} = {way}_{part.arg.kind}(steps, pool, {root}, {value}{_texts(part.arg)})"


def _texts(arg: ArgumentColumn) -> str:
    return "".join(f", {arg.name}_{array}" for array in TEXT_ARRAYS) if arg.kind == "text" else ""
