"""Plans of many queries: which rows are of one query each, by the join with their constants."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.kernels.events.spec import AutomatonSpec
from millstream.physical.nodes import Apply, Physical, StoredTable, TableJoin, streams_of, walk
from millstream.plan.events.automata import START


def is_open(plan: Physical, table: str) -> bool:
    """Whether no state is shared: every row that a kernel takes in is of one query."""
    return not any(_common_inputs(plan, table))


def common_streams(plan: Physical, table: str) -> frozenset[str] | None:
    """The streams whose rows are for all queries alike where automata wait for what follows the events of one query;
    None if other state is shared.

    What an automaton keeps is of one query each if the events are that begin it, and those that may follow them keep
    nothing on their way and come in the order in which the others do: as rows of the same stream.
    """
    found: set[str] = set()
    for node, port in _common_inputs(plan, table):
        below = node.over[port]
        if not isinstance(node.spec, AutomatonSpec) or any(isinstance(each, Apply) for each in walk(below)):
            return None
        begins = {edge.port for edge in node.spec.edges if edge.source == START}
        if port in begins or len(streams_of(node)) > 1:
            return None
        found.update(streams_of(below))
    return frozenset(found)


def _common_inputs(plan: Physical, table: str) -> Iterator[tuple[Apply, int]]:
    """The inputs of kernels, by their places, that have rows of no query alone."""

    def is_apart(node: Physical) -> bool:
        if isinstance(node, TableJoin) and node.how in ("inner", "gather") and node.table.table == table:
            return True
        below = [child for child in node.inputs if not isinstance(child, StoredTable)]
        return bool(below) and all(map(is_apart, below))

    for node in walk(plan):
        if isinstance(node, Apply):
            yield from ((node, port) for port, child in enumerate(node.over) if not is_apart(child))
