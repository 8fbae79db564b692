"""Click sessions: many sessions at a time, each a run of clicks on pages of several types, some pages popular."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa

from millstream.connectors.generators.draws import Numbers
from millstream.connectors.generators.table import (
    NUMBER,
    TEXT,
    TIME,
    TIME_NAMES,
    GeneratedColumn,
    GeneratedRows,
    instants,
)

PAGE_TYPES = ("a", "d", "p", "h", "s", "c")
"""Account or advertisement, description, purchase, home, search, cart."""
_WEIGHTS = np.cumsum([0.25, 0.30, 0.15, 0.12, 0.12, 0.06])
_STEPS = 64
_END_CHANCE = 1 / 12


class Clicks(GeneratedRows):
    """One click a row. The rows go round the open sessions; one that ends, after at most 64 clicks, is replaced."""

    columns: ClassVar = {
        "SessNo": GeneratedColumn(NUMBER, ("session", "sessionid", "sessionno")),
        "user_id": GeneratedColumn(NUMBER, ("user", "userid")),
        "ClickTime": GeneratedColumn(TIME, TIME_NAMES),
        "PageNo": GeneratedColumn(NUMBER, ("page", "pageid")),
        "PageType": GeneratedColumn(TEXT, ("type",)),
    }

    @cached_property
    def SessNo(self) -> Numbers:
        """Unlike any other session's: made of the place of its first click."""
        return self._session + 1

    @cached_property
    def user_id(self) -> Numbers:
        return self.draws.skewed("user", self._session, self.settings.users) + 1

    @cached_property
    def ClickTime(self) -> Numbers:
        return instants(self.rows, self.settings)

    @cached_property
    def PageNo(self) -> Numbers:
        per_type = max(1, self.settings.pages // len(PAGE_TYPES))
        return self.draws.skewed("page", self.rows, per_type) * len(PAGE_TYPES) + self._type + 1

    @cached_property
    def PageType(self) -> pa.Array:
        return pa.array(PAGE_TYPES).take(pa.array(self._type))

    @cached_property
    def _type(self) -> Numbers:
        chosen = np.searchsorted(_WEIGHTS, self.draws.uniform("type", self.rows), side="right")
        return np.minimum(chosen, len(PAGE_TYPES) - 1).astype(np.int64)

    @cached_property
    def _session(self) -> Numbers:
        """The number of the row that opened the row's session: the last one at the same seat where one ended."""
        seats = self.settings.sessions
        stretch = seats * _STEPS
        stretches = self.rows // stretch
        opened = np.empty(len(self.rows), dtype=np.int64)
        for number in np.unique(stretches):
            first = int(number) * stretch
            rows = np.arange(first, first + stretch).reshape(_STEPS, seats)
            begins = self.draws.uniform("end", rows.ravel()).reshape(rows.shape) < _END_CHANCE
            begins[0] = True
            openers = np.maximum.accumulate(np.where(begins, rows, -1), axis=0).ravel()
            here = stretches == number
            opened[here] = openers[self.rows[here] - first]
        return opened
