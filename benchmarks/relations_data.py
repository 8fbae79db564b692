"""Auctions as in the thesis' experiments, and queries run in one of the two forms."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

import millstream as ms
from millstream.kernels.relations.coalesce import CoalesceSpec
from millstream.kernels.relations.convert import ToChangesSpec
from millstream.kernels.relations.signs import SIGN
from millstream.kernels.relations.summary import SummarySpec
from millstream.physical.nodes import Apply, Compute, Physical, Staged

SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
START = 1_100_000_000 * SECOND
BIDS_PER_AUCTION = 10
BIDS_PER_SECOND = 0.16
BURST = 37 * SECOND
"""Bids come at multiples of this, so that about six share an instant."""
FEEDS = 10
"""In how many pieces of time the streams are pushed."""

STREAMS = """
CREATE STREAM OpenAuction (itemID BIGINT, sellerID BIGINT, start_price DOUBLE, timestamp TIMESTAMP)
    ORDER BY timestamp;
CREATE STREAM ClosedAuction (itemID BIGINT, timestamp TIMESTAMP) ORDER BY timestamp;
CREATE STREAM Bid (itemID BIGINT, bid_price DOUBLE, bidderID BIGINT, timestamp TIMESTAMP) ORDER BY timestamp;
CREATE FUNCTION DolToEuro(x DOUBLE) RETURNS DOUBLE AS x * 0.9;
"""

HIGHEST = "SELECT MAX(bid_price) FROM Bid WINDOW(RANGE 10 MINUTES)"
_PRICES = """((SELECT itemID, bid_price AS price FROM Bid WINDOW(RANGE 2 DAYS))
         UNION ALL (SELECT itemID, start_price AS price FROM OpenAuction WINDOW(RANGE 2 DAYS))) P"""
Q1 = "SELECT itemID, DolToEuro(bid_price) AS euros, bidderID FROM Bid [NOW]"
Q2 = "SELECT Bid.* FROM Bid [NOW] WHERE itemID IN (1007, 1020, 2001, 2019, 1087)"
Q3 = "SELECT O.* FROM OpenAuction O WINDOW(RANGE 5 HOURS), ClosedAuction C WHERE O.itemID = C.itemID"
Q3_BAND = Q3.replace("O.itemID = C.itemID", "O.itemID BETWEEN C.itemID - 1 AND C.itemID + 1")
# the same pairs by conditions that are no band for the rules
Q3_BAND_NESTED = Q3.replace("O.itemID = C.itemID", "O.itemID * 2 BETWEEN C.itemID * 2 - 2 AND C.itemID * 2 + 2")
Q3_NESTED = Q3.replace("O.itemID = C.itemID", "O.itemID * 2 <= C.itemID * 2 AND O.itemID * 2 >= C.itemID * 2")
Q4 = f"SELECT itemID, bid_price FROM Bid WINDOW(RANGE 10 MINUTES) WHERE bid_price = ({HIGHEST})"
Q5_FIRST_JOIN = f"""SELECT P.itemID, MAX(P.price) AS price
    FROM {_PRICES}, ClosedAuction C WHERE P.itemID = C.itemID GROUP BY P.itemID"""
Q5_BELOW = f"""SELECT M.itemID, O.sellerID, M.price FROM ({Q5_FIRST_JOIN}) M, OpenAuction O WINDOW(RANGE 2 DAYS)
    WHERE M.itemID = O.itemID"""
Q5 = f"""SELECT P.itemID, O.sellerID, MAX(P.price) AS price
    FROM {_PRICES}, ClosedAuction C, OpenAuction O WINDOW(RANGE 2 DAYS)
    WHERE P.itemID = C.itemID AND C.itemID = O.itemID GROUP BY P.itemID, O.sellerID"""


@dataclass(frozen=True)
class Auctions:
    """The three streams as tables in order of time."""

    tables: Mapping[str, pa.Table]

    @property
    def rows(self) -> int:
        return sum(table.num_rows for table in self.tables.values())

    def feeds(self) -> list[tuple[str, pa.Table]]:
        """All rows in pieces of the same time for each stream."""
        last = max(times(table)[-1] for table in self.tables.values())
        edges = np.linspace(START, last + 1, FEEDS + 1).astype(np.int64)
        made = []
        for low, high in pairwise(edges):
            for name, table in self.tables.items():
                begin, end = np.searchsorted(times(table), [low, high])
                made.append((name, table.slice(begin, end - begin)))
        return made


def times(table: pa.Table) -> Any:
    return table.column("timestamp").to_numpy().astype("datetime64[us]").astype(np.int64)


def make_auctions(bids: int, seed: int = 1) -> Auctions:
    """So many bids, ten on an auction on average; auctions are open for up to two days."""
    rng = np.random.default_rng(seed)
    auctions = bids // BIDS_PER_AUCTION
    span = int(bids / BIDS_PER_SECOND) * SECOND
    opened = np.sort(rng.integers(START, START + span, auctions))
    closed = opened + rng.integers(HOUR, 2 * DAY - HOUR, auctions)
    item = np.arange(auctions) + 1000
    start = np.round(np.exp(rng.random(auctions) * 7), 2)
    on = rng.integers(0, auctions, bids)
    part = rng.random(bids)
    at = opened[on] + ((closed - opened)[on] * part).astype(np.int64)
    at = np.maximum(at // BURST * BURST, opened[on] // BURST * BURST + BURST)
    order, closing = np.argsort(at, kind="stable"), np.argsort(closed, kind="stable")
    price = np.round(start[on] * (1 + part + 0.1 * rng.random(bids)), 2)
    return Auctions(
        {
            "OpenAuction": _table(opened, itemID=item, sellerID=item % 997, start_price=start),
            "ClosedAuction": _table(closed[closing], itemID=item[closing]),
            "Bid": _table(
                at[order], itemID=item[on][order], bid_price=price[order], bidderID=rng.integers(0, 9_958, bids)
            ),
        }
    )


def _table(timestamp: Any, **columns: Any) -> pa.Table:
    return pa.table({**columns, "timestamp": pa.array(timestamp).cast(pa.timestamp("us"))})


def physical_plan(sql: str, form: str, statements: str = STREAMS, rules: str = "on") -> Physical:
    """How a relation runs in a form, without what turns changes into intervals for delivery."""
    with ms.connect(relations=form, rules=rules) as db:
        db.execute(statements)
        plan = db.prepare(sql).plan
    while form == "changes" and plan.schema.fields[-1] != SIGN:
        plan = plan.inputs[0]
    return plan


def changed(plan: Physical, change: Callable[[Apply], Physical]) -> Physical:
    """The plan with its aggregates passed through `change`."""
    match plan:
        case Apply(spec=SummarySpec()):
            return change(plan)
        case Apply(over=over):
            return replace(plan, over=tuple(changed(child, change) for child in over))
        case Compute(input=below) | Staged(input=below):
            return replace(plan, input=changed(below, change))
    return plan


def coalesced(plan: Physical, longest: int) -> Physical:
    """The plan with equal neighbours put together behind every aggregate."""
    return changed(plan, lambda node: Apply(node.schema, (node,), CoalesceSpec(node.schema, longest), spans=True))


def mixed(changes: Physical, intervals: Physical) -> Physical:
    """The plan on changes with its one aggregate on intervals, as it is in the other plan."""
    found: list[Apply] = []
    changed(intervals, lambda node: found.append(node) or node)
    (own,) = found
    return changed(changes, lambda node: Apply(node.schema, (own,), ToChangesSpec(own.schema)))


def run(plan: Physical, feeds: list[tuple[str, pa.Table]], statements: str = STREAMS) -> tuple[float, int]:
    """Push everything through a plan; the seconds it takes, and the number of results."""
    with ms.connect(jit="on", threads=1) as db:
        db.execute(statements)
        query = db.install(plan)
        began = time.perf_counter()
        for name, table in feeds:
            db.push(name, table)
        db.finish()
        results = query.fetch().num_rows
        return time.perf_counter() - began, results


def compare(
    plans: Mapping[str, Physical], feeds: list[tuple[str, pa.Table]], rounds: int, statements: str = STREAMS
) -> dict[str, tuple[float, int]]:
    """The best of some rounds for each plan; they take turns, so that a disturbance meets all."""
    best: dict[str, tuple[float, int]] = {}
    for number in range(rounds + 1):
        for name, plan in plans.items():
            measured = run(plan, feeds, statements)
            # the first time compiles
            if number and (name not in best or measured < best[name]):
                best[name] = measured
    return best
