"""Plans of many queries: which rows are of one query each, by the join with their constants."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.kernels.events.spec import AutomatonSpec
from millstream.physical.nodes import Apply, Physical, StoredTable, TableJoin, streams_of, walk
from millstream.plan.channels import NEWEST


def is_open(plan: Physical, table: str) -> bool:
    """Whether no state is seen by queries that are added later.

    Every row that a kernel takes in is of one query, by the join with the constants. Automata may take in others: first
    events that tell which queries came later, and second events that do not wait (see `second_inputs`).
    """
    return all(
        (NEWEST in node.over[port].schema.names and port in _first_ports(node)) or _is_second(node, port)
        for node, port in _common_inputs(plan, table)
    )


def second_inputs(plan: Physical, table: str) -> list[Physical]:
    """The second events of automata that are there for all queries. A query may join if none of them waits for first
    events that are still to come: by itself it would not have seen it."""
    return [node.over[port] for node, port in _common_inputs(plan, table) if _is_second(node, port)]


def common_streams(plan: Physical, table: str) -> frozenset[str] | None:
    """The streams whose rows are for all queries alike where automata wait for what follows the events of one query;
    None if other state is shared.

    What an automaton keeps is of one query each if the events are that begin it, and those that may follow them keep
    nothing on their way and come in the order in which the others do: as rows of the same stream.
    """
    found: set[str] = set()
    for node, port in _common_inputs(plan, table):
        if not _is_second(node, port) or len(streams_of(node)) > 1:
            return None
        found.update(streams_of(node.over[port]))
    return frozenset(found)


def _common_inputs(plan: Physical, table: str) -> Iterator[tuple[Apply, int]]:
    """The inputs of kernels, by their places, that have rows of no query alone."""
    for node in walk(plan):
        if isinstance(node, Apply):
            yield from ((node, port) for port, child in enumerate(node.over) if not _is_apart(child, table))


def _is_apart(node: Physical, table: str) -> bool:
    """Whether each row is of one query."""
    if isinstance(node, TableJoin) and node.how in ("inner", "gather") and node.table.table == table:
        return True
    below = [child for child in node.inputs if not isinstance(child, StoredTable)]
    if isinstance(node, Apply) and (first := _first_ports(node)):
        # instances are of the queries of their first events
        below = [below[port] for port in first]
    return bool(below) and all(_is_apart(child, table) for child in below)


def _first_ports(node: Apply) -> frozenset[int]:
    """The inputs of an automaton whose events begin instances."""
    return node.spec.first_ports if isinstance(node.spec, AutomatonSpec) else frozenset()


def _is_second(node: Apply, port: int) -> bool:
    """Whether instances take events of an input that come straight from a stream, and do not begin with them."""
    first = _first_ports(node)
    return bool(first) and port not in first and not any(isinstance(each, Apply) for each in walk(node.over[port]))
