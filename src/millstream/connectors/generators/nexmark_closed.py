"""NEXMark auctions that close, each sold to the highest of the bids that were made on it."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa

from millstream.connectors.generators.draws import Numbers, Reals
from millstream.connectors.generators.nexmark import (
    AUCTIONS,
    BIDDABLE,
    BIDS,
    FIRST_ID,
    GROUP,
    Auctions,
    Bids,
    closing_event,
    start_price,
)
from millstream.connectors.generators.table import (
    MICROS,
    NUMBER,
    REAL,
    TIME,
    TIME_NAMES,
    GeneratedColumn,
    GeneratedRows,
    Settings,
    instants,
)


class ClosedAuctions(GeneratedRows):
    """Auctions that close, in the order they opened: the buyer is the highest bidder, NULL if there was no bid."""

    columns: ClassVar = {
        "id": GeneratedColumn(NUMBER, ("itemid", "auction", "auctionid", "item")),
        "buyer": GeneratedColumn(NUMBER, ("buyerid", "bidder", "bidderid")),
        "price": GeneratedColumn(REAL, ("finalprice", "closeprice", "bidprice")),
        "seller": GeneratedColumn(NUMBER, ("sellerid",)),
        "date_time": GeneratedColumn(TIME, ("closetime", "endtime", *TIME_NAMES)),
    }

    @cached_property
    def id(self) -> Numbers:
        return self.rows + FIRST_ID

    @cached_property
    def seller(self) -> Numbers:
        return Auctions(self.rows, self.settings, self.draws).seller

    @cached_property
    def date_time(self) -> Numbers:
        return instants(closing_event(self.rows), self.settings)

    @cached_property
    def buyer(self) -> pa.Array:
        return self._sale[0]

    @cached_property
    def price(self) -> Reals:
        return self._sale[1]

    @cached_property
    def _sale(self) -> tuple[pa.Array, Reals]:
        """The highest bid on each auction, the first of equal ones, found among all bids made while they were open."""
        if len(self.rows) == 0:
            return pa.array([], pa.int64()), np.empty(0)
        low, high = int(self.rows.min()), int(self.rows.max())
        groups = low // AUCTIONS, (high + BIDDABLE) // AUCTIONS
        bids = Bids(np.arange(groups[0] * BIDS, (groups[1] + 1) * BIDS), self.settings, self.draws)
        on = bids.auction_row
        relevant = np.flatnonzero((on >= low) & (on <= high))
        order = relevant[np.lexsort((relevant, -bids.price[relevant], on[relevant]))]
        sold, best = np.unique(on[order], return_index=True)
        best = order[best]
        place = np.searchsorted(sold, self.rows)
        found = np.minimum(place, max(len(sold) - 1, 0))
        has = sold[found] == self.rows if len(sold) else np.zeros(len(self.rows), dtype=bool)
        winner = best[found] if len(sold) else np.zeros(len(self.rows), dtype=np.int64)
        buyer = pa.array(bids.bidder[winner], mask=~has)
        return buyer, np.where(has, bids.price[winner], start_price(self.rows, self.draws))

    @classmethod
    def rows_spanning(cls, micros: int, settings: Settings) -> int:
        return max(1, (int(micros * settings.rate / MICROS) // GROUP - 1) * AUCTIONS)

    @classmethod
    def rows_of_events(cls, events: int) -> int:
        """Auctions that close among the first `events` events."""
        return max(0, Auctions.rows_of_events(max(0, events - GROUP)) - BIDDABLE)
