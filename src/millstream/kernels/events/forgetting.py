"""Reuse of codes whose values no instance has any more."""

from __future__ import annotations

import numpy as np

from millstream.kernels.batch import Ints
from millstream.kernels.events import loops
from millstream.kernels.events.instances import Instances
from millstream.kernels.events.layout import AutomatonLayout
from millstream.kernels.keys import Slots
from millstream.kernels.patterns.coding import is_odd
from millstream.types import VARCHAR, SqlType

_FEW = 4_096


def forget_codes(layout: AutomatonLayout, state: Instances) -> None:
    """Release unused codes whenever there are twice as many as were left the last time, so that each costs little."""
    codes = state.codes
    known = len(codes.texts) + sum(map(len, codes.tables.values()))
    if known <= 2 * state.kept_codes + _FEW:
        return
    used = _used(layout, state)
    codes.texts.release(_without(codes.texts.live(), used.get(VARCHAR, [])))
    for type_, table in codes.tables.items():
        table.release(_without(table.live(), used.get(type_, [])))
    state.kept_codes = len(codes.texts) + sum(map(len, codes.tables.values()))


def _used(layout: AutomatonLayout, state: Instances) -> dict[SqlType, list[Ints]]:
    """The codes that instances have, by the types of their values; texts are those of VARCHAR."""
    rows = state.rows[: int(state.meta[loops.USED])]
    found: dict[SqlType, list[Ints]] = {}
    for number, columns in enumerate(layout.stored):
        own = rows[rows.view(np.int32)[:, loops.STATE] == number]
        for column in columns:
            if is_odd(column.type) or column.type.is_coded:
                table = column.type if is_odd(column.type) else VARCHAR
                found.setdefault(table, []).append(own[:, layout.word(number, column.name)])
        for name, word in layout.codes[number].items():
            found.setdefault(layout.column(number, name), []).append(own[:, word])
    return found


def _without(codes: Slots, used: list[Ints]) -> Slots:
    """The codes that are not among those used."""
    marks = np.ones(int(codes.max(initial=-1)) + 2, dtype=np.bool_)
    for own in used:
        # behind the codes is a place for -1, which is no code
        marks[own] = False
    return codes[marks[codes]]
