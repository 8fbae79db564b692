"""Which rows OVER takes for a partition, and in which order they come."""

from __future__ import annotations

from millstream.bind.windows.order import Sorting
from millstream.plan import nodes as P
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.events.algebra import Times
from millstream.plan.ties import SortKey, Ties
from millstream.plan.windows import Between, Frame
from millstream.records import dataclass
from millstream.schema import unique_names
from millstream.types import BIGINT, SqlType

ALL_BEFORE = Frame("rows", Between(None, 1))
_SO_FAR = Frame("rows", None)


@dataclass(frozen=True)
class Tied:
    """Partitions in order of time, and among rows of equal times by columns."""

    keys: tuple[str, ...]
    by: tuple[SortKey, ...]


@dataclass(frozen=True)
class Peers:
    """The rows of one time of each partition, as they came or, to look at those after a row, the other way round."""

    keys: tuple[str, ...]
    is_backward: bool


Partition = tuple[str, ...] | Peers | Tied | Sorting
"""the columns that tell partitions apart, and the order of their rows if it is not that of time alone"""
_LATER = {Tied: 1, Sorting: 2}


def turn(keys: Partition) -> int:
    """Sorted partitions come at the end of their windows, so what goes by time is computed before; and as rows came
    before those of equal times change places."""
    return _LATER.get(type(keys), 0)


def peers(keys: Partition, is_backward: bool) -> Peers:
    assert isinstance(keys, tuple)
    return Peers(keys, is_backward)


def over_peers(plan: P.Node, among: Peers, calls: tuple[AggregateCall[str], ...], time: SqlType) -> P.Node:
    """The plan with calls over the rows before each in these partitions; its rows have the order that they had."""
    at, number = unique_names((*plan.schema.names, "$at", "$number"))[-2:]
    keys = (*among.keys, at)
    plan = Times(plan, ((at, "end"),), time)
    if not among.is_backward:
        return P.Over(plan, keys, calls, at)
    plan = P.Over(plan, keys, (AggregateCall.over(number, "count", None, _SO_FAR, False, BIGINT),), at)
    plan = P.Over(Ties(plan, among.keys, (SortKey(number, down=True),)), keys, calls, at)
    return Ties(plan, among.keys, (SortKey(number),))
