"""NEXMark auctions: of 50 events one is a new person, three are new auctions, 46 are bids, on hot keys more often.

The tables tell one story: bids are on auctions that are open, their prices rise from the start price, and an auction
closes after its last possible bid, sold to the highest bidder.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from millstream.connectors.generators.draws import Draws, Numbers, Reals
from millstream.connectors.generators.table import (
    MICROS,
    NUMBER,
    REAL,
    TEXT,
    TIME,
    TIME_NAMES,
    GeneratedColumn,
    GeneratedRows,
    Settings,
    instants,
)

GROUP = 50
AUCTIONS, BIDS = 3, 46
FIRST_BID = GROUP - BIDS
FIRST_ID = 1000
OPEN_AUCTIONS = 100
ACTIVE_PEOPLE = 1000
# A bid names an auction at most 100 before the newest one, so auction a is bid on until a + 98 begins a group.
BIDDABLE = OPEN_AUCTIONS - AUCTIONS + 1

_FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
_STATES = ("AZ", "CA", "CA", "ID", "OR", "OR", "WA", "WA", "WA", "WY")
_ITEMS = ("lamp", "clock", "chair", "vase", "radio", "camera", "guitar", "stamp", "coin", "map", "globe", "mirror")
_STATE_WORDS = ("old", "rare", "new", "used", "signed", "broken", "restored", "boxed")
_CHANNELS = ("Google", "Facebook", "Baidu", "Apple", "web", "phone", "partner", "kiosk")


class _Rows(GeneratedRows):
    """Rows of a table that takes places first..first+count of every 50 events."""

    first: ClassVar[int]
    count: ClassVar[int]

    @cached_property
    def events(self) -> Numbers:
        group, place = np.divmod(self.rows, self.count)
        events: Numbers = group * GROUP + (place + self.first)
        return events

    @cached_property
    def date_time(self) -> Numbers:
        return instants(self.events, self.settings)

    @classmethod
    def rows_spanning(cls, micros: int, settings: Settings) -> int:
        groups = int(micros * settings.rate / MICROS) // GROUP - 1
        return max(1, groups * cls.count)

    @classmethod
    def rows_of_events(cls, events: int) -> int:
        groups, rest = divmod(events, GROUP)
        return groups * cls.count + min(max(rest - cls.first, 0), cls.count)


class Persons(_Rows):
    """People who register: one event of 50."""

    first, count = 0, 1
    columns: ClassVar = {
        "id": GeneratedColumn(NUMBER, ("personid", "person")),
        "name": GeneratedColumn(TEXT, ("personname",)),
        "email": GeneratedColumn(TEXT, ("emailaddress",)),
        "credit_card": GeneratedColumn(TEXT),
        "city": GeneratedColumn(TEXT),
        "state": GeneratedColumn(TEXT, ("usstate",)),
        "date_time": GeneratedColumn(TIME, ("registrationtime", *TIME_NAMES)),
    }

    @cached_property
    def id(self) -> Numbers:
        return self.rows + FIRST_ID

    @cached_property
    def name(self) -> pa.Array:
        return _words(_pairs(_FIRST_NAMES, _LAST_NAMES, " "), self._who)

    @cached_property
    def email(self) -> pa.Array:
        local = _words(_pairs(_FIRST_NAMES, _LAST_NAMES, "."), self._who)
        return pa.compute.binary_join_element_wise(local, pa.array(self.id).cast(pa.string()), "@mail", "")

    @cached_property
    def credit_card(self) -> pa.Array:
        number = self.draws.below("card", self.rows, 10**9) + 10**9
        return pa.array(number * 10**6 + self.rows % 10**6).cast(pa.string())

    @cached_property
    def city(self) -> pa.Array:
        return _words(_CITIES, self._where)

    @cached_property
    def state(self) -> pa.Array:
        return _words(_STATES, self._where)

    @cached_property
    def _who(self) -> Numbers:
        return self.draws.below("name", self.rows, len(_FIRST_NAMES) * len(_LAST_NAMES))

    @cached_property
    def _where(self) -> Numbers:
        return self.draws.below("city", self.rows, len(_CITIES))


class Auctions(_Rows):
    """Auctions that open: three events of 50. Every second one is by one of a few busy sellers."""

    first, count = 1, AUCTIONS
    columns: ClassVar = {
        "id": GeneratedColumn(NUMBER, ("itemid", "auction", "auctionid", "item")),
        "item_name": GeneratedColumn(TEXT, ("name",)),
        "description": GeneratedColumn(TEXT),
        "initial_bid": GeneratedColumn(REAL, ("startprice", "price")),
        "reserve": GeneratedColumn(REAL, ("reserveprice",)),
        "date_time": GeneratedColumn(TIME, ("starttime", "opentime", *TIME_NAMES)),
        "expires": GeneratedColumn(TIME, ("endtime", "closetime")),
        "seller": GeneratedColumn(NUMBER, ("sellerid",)),
        "category": GeneratedColumn(NUMBER, ("categoryid",)),
    }

    @cached_property
    def id(self) -> Numbers:
        return self.rows + FIRST_ID

    @cached_property
    def item_name(self) -> pa.Array:
        return _words(_pairs(_STATE_WORDS, _ITEMS, " "), self._what)

    @cached_property
    def description(self) -> pa.Array:
        return _words([f"a {item}, as seen" for item in _pairs(_STATE_WORDS, _ITEMS, " ")], self._what)

    @cached_property
    def initial_bid(self) -> Reals:
        return start_price(self.rows, self.draws)

    @cached_property
    def reserve(self) -> Reals:
        return np.round(self.initial_bid * (1 + self.draws.uniform("reserve", self.rows)), 2)

    @cached_property
    def expires(self) -> Numbers:
        return instants(closing_event(self.rows), self.settings)

    @cached_property
    def seller(self) -> Numbers:
        return _person(self.rows // AUCTIONS, self.rows, self.draws, "seller", hot_of_four=2)

    @cached_property
    def category(self) -> Numbers:
        return 10 + self.draws.below("category", self.rows, 5)

    @cached_property
    def _what(self) -> Numbers:
        return self.draws.below("item", self.rows, len(_STATE_WORDS) * len(_ITEMS))


class Bids(_Rows):
    """Bids: 46 events of 50. Every second one is on the hot auction, three of four are by the hot bidder."""

    first, count = FIRST_BID, BIDS
    columns: ClassVar = {
        "auction": GeneratedColumn(NUMBER, ("itemid", "auctionid", "item", "id")),
        "bidder": GeneratedColumn(NUMBER, ("bidderid",)),
        "price": GeneratedColumn(REAL, ("bidprice",)),
        "channel": GeneratedColumn(TEXT),
        "url": GeneratedColumn(TEXT),
        "date_time": GeneratedColumn(TIME, ("bidtime", *TIME_NAMES)),
    }

    @cached_property
    def auction(self) -> Numbers:
        return self.auction_row + FIRST_ID

    @cached_property
    def bidder(self) -> Numbers:
        return _person(self._group, self.rows, self.draws, "bidder", hot_of_four=3)

    @cached_property
    def price(self) -> Reals:
        """Rises with the age of the auction."""
        age = self._group - self.auction_row // AUCTIONS
        factor = self.draws.uniform("raise", self.rows)
        factor += age
        factor *= 0.05
        factor += 1
        return np.round(start_price(self.auction_row, self.draws) * factor, 2)

    @cached_property
    def channel(self) -> pa.Array:
        return _words(_CHANNELS, self._channel)

    @cached_property
    def url(self) -> pa.Array:
        return _words([f"https://auction.example/{name.lower()}/item" for name in _CHANNELS], self._channel)

    @cached_property
    def auction_row(self) -> Numbers:
        newest = self._group * AUCTIONS + (AUCTIONS - 1)
        choice = self.draws.below("auction", self.rows, 2 * (OPEN_AUCTIONS + 1))
        hot = newest // OPEN_AUCTIONS * OPEN_AUCTIONS
        return np.where(choice & 1, hot, newest - _fewer_at_first(choice >> 1, newest, OPEN_AUCTIONS + 1))

    @cached_property
    def _group(self) -> Numbers:
        return self.rows // BIDS

    @cached_property
    def _channel(self) -> Numbers:
        return self.draws.below("channel", self.rows, len(_CHANNELS))


def start_price(auctions: Numbers, draws: Draws) -> Reals:
    """From 1 to 10,000, low prices more often."""
    prices: Reals = np.round(np.exp(draws.uniform("start", auctions) * np.log(10_000.0)), 2)
    return prices


def closing_event(auctions: Numbers) -> Numbers:
    """The event number at which an auction closes: in the group after the last that can bid on it."""
    group, place = np.divmod(auctions + BIDDABLE, AUCTIONS)
    events: Numbers = (group + 1) * GROUP + 1 + place
    return events


def _person(newest: Numbers, rows: Numbers, draws: Draws, purpose: str, hot_of_four: int) -> Numbers:
    """A person registered by then: the hot one, or any of the most recent."""
    choice = draws.below(purpose, rows, 4 * ACTIVE_PEOPLE)
    hot = newest // OPEN_AUCTIONS * OPEN_AUCTIONS
    other = newest - _fewer_at_first(choice >> 2, newest, ACTIVE_PEOPLE)
    chosen: Numbers = np.where((choice & 3) < hot_of_four, hot, other) + FIRST_ID
    return chosen


def _fewer_at_first(choice: Numbers, newest: Numbers, full: int) -> Numbers:
    """A choice among `full` brought down to those there are at the beginning."""
    if int(newest.min(initial=full)) + 1 >= full:
        return choice
    return choice * np.minimum(newest + 1, full) // full


def _words(words: Any, choice: Numbers) -> pa.Array:
    return pa.array(words).take(pa.array(choice))


def _pairs(left: tuple[str, ...], right: tuple[str, ...], between: str) -> list[str]:
    return [f"{a}{between}{b}" for a in left for b in right]
