"""Vectors of whole queries, and of the cost model."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from vector_data import VECTORS, Check, Vector, physical

import millstream as ms
from millstream.kernels.batch import FOREVER
from millstream.plan.costs import flows
from millstream.plan.costs.flows import RelationFlow
from millstream.plan.costs.operators import join_rows, summarize_rows
from tests.support import snapshot_algebra as algebra

STREAMS = """
    CREATE STREAM Bid (itemID INT, bid_price INT, bidderID VARCHAR, t BIGINT) ORDER BY t;
    CREATE STREAM OpenAuction (itemID INT, sellerID INT, start_price INT, t BIGINT) ORDER BY t;
    CREATE STREAM ClosedAuction (itemID INT, t BIGINT) ORDER BY t
"""


def _answer(statements: str, inputs: dict[str, list[Any]]) -> algebra.Physical:
    """What a relation's query gives of these rows, which are in order of time over all streams."""
    with ms.connect() as db:
        db.execute(STREAMS)
        *definitions, query = statements.split(";")
        for definition in definitions:
            db.execute(definition)
        standing = db.sql(query)
        arrivals = [(time, name, values) for name, rows in inputs.items() for values, time in rows]
        for time, name, values in sorted(arrivals, key=lambda arrival: arrival[0]):
            db.push(name, [(*values, time)])
        db.finish()
        rows = standing.fetch().to_pylist()
    out = []
    for row in rows:
        *values, start, end = row.values()
        out.append((tuple(values), start, FOREVER if end is None else end))
    assert algebra.is_ordered(out)
    return out


def _auctions() -> dict[str, list[Any]]:
    return {name.split("(")[0]: rows for name, rows in VECTORS["TV-N00"].out.items()}


def _highest_bid(vector: Vector) -> None:
    query = """
        SELECT itemID, bid_price FROM Bid WINDOW(RANGE 10)
        WHERE bid_price = (SELECT MAX(bid_price) FROM Bid WINDOW(RANGE 10))
    """
    assert algebra.canonical(_answer(query, _auctions())) == algebra.canonical(physical(vector.out))


def _hot_item(vector: Vector) -> None:
    query = """
        SELECT itemID FROM (SELECT B1.itemID AS itemID, COUNT(*) AS num FROM Bid [RANGE 10] B1 GROUP BY B1.itemID)
        WHERE num >= ALL (SELECT COUNT(*) FROM Bid [RANGE 10] B2 GROUP BY B2.itemID)
    """
    out = _answer(query, _auctions())
    expected = {int(time): Counter((item,) for item in items) for time, items in vector.out.items()}
    assert algebra.logical_of(out, 100) == expected


def _closing_price(vector: Vector) -> None:
    statements = """
        CREATE STREAM CurrentPrice AS
            SELECT P.itemID, P.price, O.sellerID AS sellerID
            FROM ((SELECT itemID, bid_price AS price FROM Bid WINDOW(RANGE 2880))
                  UNION ALL
                  (SELECT itemID, start_price AS price FROM OpenAuction WINDOW(RANGE 2880))) P,
                 ClosedAuction C, OpenAuction O WINDOW(RANGE 2880)
            WHERE P.itemID = C.itemID AND C.itemID = O.itemID;
        SELECT itemID, sellerID, MAX(P.price) AS price FROM CurrentPrice P GROUP BY P.itemID, P.sellerID
    """
    assert algebra.canonical(_answer(statements, _auctions())) == algebra.canonical(physical(vector.out))


def _short_auctions(vector: Vector) -> None:
    query = """
        SELECT O.itemID, O.sellerID, O.start_price FROM OpenAuction O WINDOW(RANGE 300), ClosedAuction C
        WHERE O.itemID = C.itemID
    """
    inputs = {f"{name}Auction": rows for name, rows in (("Open", vector.given["Open"]),
                                                        ("Closed", vector.given["Closed"]))}  # fmt: skip
    assert _answer(query, inputs) == physical(vector.out)


def _costs(vector: Vector) -> None:
    far, near = RelationFlow(10, 5000, 1), RelationFlow(10, 100, 1)
    made: dict[str, RelationFlow | float] = {
        "filter sel=.25 (10,1000,1)": flows.filtered(RelationFlow(10, 1000, 1), 0.25),
        "union (10,100,1),(40,300,1)": flows.united(near, RelationFlow(40, 300, 1)),
        "product (10,5000,1)x2": flows.joined(far, far),
        "product (10,100,1),(20,300,1)": flows.joined(near, RelationFlow(20, 300, 1)),
        "dupelim n=100 (10,5000,1)": flows.distinct(far, 100),
        "dupelim n=100 (10,500,1)": flows.distinct(RelationFlow(10, 500, 1), 100),
        "agg (10,5000,1)": flows.summarized(far),
        "agg (10,5000,10)": flows.summarized(RelationFlow(10, 5000, 10)),
        "agg (100,50,1)": flows.summarized(RelationFlow(100, 50, 1)),
        "group n=50 (10,5000,1)": flows.grouped(far, 50),
        "group n=50 (10,400,1)": flows.grouped(RelationFlow(10, 400, 1), 50),
        "split l_out=1 (10,5000,1)": flows.split(far, 1),
        "gran 10 (10,5000,1)": flows.coarsened(far, 10),
        "gran 10 (10,4,1)": flows.coarsened(RelationFlow(10, 4, 1), 10),
        "window_time w=5000 (10,1,1)": flows.range_window(RelationFlow(10, 1, 1), 5000),
        "window_count N=100 (10,1,1)": flows.rows_window(RelationFlow(10, 1, 1), 100),
        "window_part n=5,N=100 (10,1,1)": flows.rows_window(RelationFlow(10, 1, 1), 100, 5),
        "M_join elements (10,5000),(10,5000)": join_rows(far, far),
        "M_join elements (10,5000),(20,5000)": join_rows(far, RelationFlow(20, 5000, 1)),
        "M_agg elements (10,5000,1)": summarize_rows(far),
        "M_agg elements (10,5000,10)": summarize_rows(RelationFlow(10, 5000, 10)),
    }
    assert set(made) == set(vector.out)
    for name, expected in vector.out.items():
        got = made[name]
        numbers = [got.distance, got.length, got.granule] if isinstance(got, RelationFlow) else [got]
        wanted = expected if isinstance(expected, list) else [expected]
        assert all(math.isclose(a, b, abs_tol=1e-4) for a, b in zip(numbers, wanted, strict=True)), name


CHECKS: dict[str, Check] = {
    "TV-N03": _short_auctions,
    "TV-N04": _highest_bid,
    "TV-N05": _closing_price,
    "TV-N06": _hot_item,
    "TV-C01": _costs,
}
