"""Kernel source: ordered trees of counted values, for extremes of rows that go in any order (see `tree_source`).

A tree hangs in a lane of its group: the number of its root, 0 for none. Nodes lie in a pool that all trees share. Each
is heavier than those below it, and what a node weighs is as good as random, so that paths are short whatever comes in
which order.
"""

from __future__ import annotations

from typing import Any

COUNT, VALUE, LEFT, RIGHT, NODE = 0, 1, 2, 3, 4
"""Lanes of a node, and how many there are. The first node is none: the tree that is worked on hangs on its left."""
FREE, EVER = 0, 1
"""Lanes of `pool`: a node that was given up, linked to the next one by RIGHT; and how many nodes were ever used."""
MULTIPLIER = -7046029254386353131


def weight(node: Any) -> Any:
    """What decides which of two nodes is above the other."""
    mixed = node * MULTIPLIER
    mixed = (mixed ^ ((mixed >> 32) & 0xFFFF_FFFF)) * MULTIPLIER
    return (mixed >> 32) & 0xFFFF_FFFF


def end_of(nodes: Any, root: Any, side: Any) -> Any:
    """The node with the least value (LEFT) or the greatest one (RIGHT); 0 if there is none."""
    node = root
    while node != 0 and nodes[NODE * node + side] != 0:
        node = nodes[NODE * node + side]
    return node


def new_node(nodes: Any, pool: Any, value: Any, count: Any) -> Any:
    """A node without others below it. There must be room for it."""
    new = pool[FREE]
    if new != 0:
        pool[FREE] = nodes[NODE * new + RIGHT]
    else:
        pool[EVER] += 1
        new = pool[EVER]
    nodes[NODE * new + COUNT] = count
    nodes[NODE * new + VALUE] = value
    nodes[NODE * new + LEFT] = 0
    nodes[NODE * new + RIGHT] = 0
    return new


def take_out(nodes: Any, pool: Any, link: Any) -> None:
    """Give up the node in a link; what was below it is put together in its place, the heavier ones above."""
    node = nodes[link]
    left = nodes[NODE * node + LEFT]
    right = nodes[NODE * node + RIGHT]
    nodes[NODE * node + RIGHT] = pool[FREE]
    pool[FREE] = node
    while left != 0 and right != 0:
        if weight(left) >= weight(right):
            nodes[link] = left
            link = NODE * left + RIGHT
            left = nodes[link]
        else:
            nodes[link] = right
            link = NODE * right + LEFT
            right = nodes[link]
    nodes[link] = left + right


def list_nodes(slots: Any, width: Any, live: Any, lanes: Any, nodes: Any, above: Any, out: Any) -> int:
    """Write the values of groups in order (slot, which of `lanes`, count, value); how many there are. `above` has room
    for as many nodes."""
    count = 0
    for i in range(len(live)):
        for part in range(len(lanes)):
            node = slots[live[i] * width + lanes[part]]
            depth = 0
            while node != 0 or depth > 0:
                while node != 0:
                    above[depth] = node
                    depth += 1
                    node = nodes[NODE * node + LEFT]
                depth -= 1
                node = above[depth]
                out[count, 0] = live[i]
                out[count, 1] = part
                out[count, 2] = nodes[NODE * node + COUNT]
                out[count, 3] = nodes[NODE * node + VALUE]
                count += 1
                node = nodes[NODE * node + RIGHT]
    return count


def load_nodes(slots: Any, width: Any, lanes: Any, listed: Any, nodes: Any, pool: Any) -> None:
    """The inverse of `list_nodes`, for groups without values: each comes behind those of its tree."""
    for i in range(len(listed)):
        at = listed[i, 0] * width + lanes[listed[i, 1]]
        new = new_node(nodes, pool, listed[i, 3], listed[i, 2])
        nodes[LEFT] = slots[at]
        link = LEFT
        while nodes[link] != 0 and weight(nodes[link]) >= weight(new):
            link = NODE * nodes[link] + RIGHT
        nodes[NODE * new + LEFT] = nodes[link]
        nodes[link] = new
        slots[at] = nodes[LEFT]
