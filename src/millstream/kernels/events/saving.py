"""Instances as saved state: one row for each, in the order in which they are looked at."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millstream.kernels.batch import BEGIN, Ints
from millstream.kernels.events import loops
from millstream.kernels.events.instances import Instances, link
from millstream.kernels.events.layout import AutomatonLayout
from millstream.kernels.patterns.coding import decode, encode, is_odd
from millstream.kernels.saving.content import Content, KeptRows, struct
from millstream.kernels.saving.snapshots import Saved
from millstream.types import SqlType

_KEY = "k0"


def exported(layout: AutomatonLayout, state: Instances) -> Content:
    """What the state is: progress, events that wait, and instances."""
    live = np.flatnonzero(state.halves[: int(state.meta[loops.USED]), loops.STATE] >= 0)
    live = live[np.argsort(state.numbers[live], kind="stable")]
    mine, numbers, halves = state.rows[live], state.numbers[live], state.halves[live]
    waits = halves[:, loops.SUCCESSOR] == loops.WAITING
    replaces = np.where(waits, state.numbers[np.where(waits, halves[:, loops.PREV], 0)], -1)
    touched = (halves[:, loops.SUCCESSOR] != loops.UNTOUCHED) & ~waits
    kept = KeptRows(
        numbers,
        lambda places: _taken(layout, state, mine[places], numbers[places]),
        {"end": mine[:, loops.END], "touched": touched.astype(np.int64), "replaces": replaces},
        by=(_KEY,) if layout.spec.by else (),
        is_placed=True,
    )
    waiting = {f"waiting{port}": runs.kept() for port, runs in enumerate(state.waiting)} if len(state.upto) > 1 else {}
    head = np.array([*state.upto, int(state.meta[loops.EPOCH])])
    return {"upto": head, **waiting, "instances": kept}


def _types(layout: AutomatonLayout) -> list[SqlType]:
    """The types of all columns of instances, each once."""
    return list(dict.fromkeys(own.type for columns in layout.stored for own in columns))


def _places(layout: AutomatonLayout, number: int) -> list[tuple[str, SqlType, str]]:
    """The columns of a state: their names, their types, and those of the saved columns that hold them."""
    counts: dict[SqlType, int] = {}
    places = []
    for own in layout.stored[number]:
        counts[own.type] = counts.get(own.type, 0) + 1
        places.append((own.name, own.type, f"{own.type} {counts[own.type]}"))
    return places


def _taken(layout: AutomatonLayout, state: Instances, mine: Ints, numbers: Ints) -> pa.StructArray:
    """Instances as rows: values of all states share columns by their types."""
    reals = mine.view(np.float64)
    number = mine.view(np.int32)[:, loops.STATE].astype(np.int64)
    own = {"state": number, "start": mine[:, loops.START], "number": numbers}
    columns: dict[str, pa.Array] = {name: pa.array(values) for name, values in own.items()}
    gathered: dict[str, tuple[SqlType, Ints, np.ndarray]] = {}
    keys = np.full(len(mine), -1, dtype=np.int64)
    for each in range(len(layout.spec.states)):
        chosen = number == each
        for name, type_, saved in _places(layout, each):
            if saved not in gathered:
                kernel = np.dtype(type_.kernel)
                gathered[saved] = type_, np.zeros(len(mine), dtype=kernel), np.zeros(len(mine), dtype=np.bool_)
            _, values, ok = gathered[saved]
            word, bit = layout.null(each, name)
            source = reals if type_.kernel == "float64" else mine
            values[chosen] = source[chosen, layout.word(each, name)].astype(values.dtype)
            ok[chosen] = (mine[chosen, word] >> bit) & 1 == 0
        if layout.spec.by and state.code_words[each] >= 0:
            keys[chosen] = mine[chosen, state.code_words[each]]
    for saved, (type_, values, ok) in gathered.items():
        table = state.codes.table(type_) if is_odd(type_) else None
        columns[saved] = decode(values, ok, type_, state.codes.texts, table)
    if layout.spec.by:
        columns = {_KEY: _decoded(layout, state, keys), **columns}
    return struct(columns)


def _decoded(layout: AutomatonLayout, state: Instances, codes: Ints) -> pa.Array:
    """The values by which instances are kept apart."""
    type_ = layout.spec.inputs[0][layout.spec.by[0]].type
    if type_.is_coded:
        return state.codes.texts.values(codes)
    return state.codes.table(type_).keys(codes).column(0)


def loaded(layout: AutomatonLayout, state: Instances, parts: Saved) -> Instances:
    """Fill an empty state."""
    head = [int(value) for value in parts.array("upto")]
    state.upto, state.meta[loops.EPOCH] = head[:-1], head[-1]
    for port, runs in enumerate(state.waiting):
        if (name := f"waiting{port}") in parts:
            runs.add(parts.batch(name, BEGIN, port), parts.numbers(name))
    if "instances" not in parts:
        return state
    saved = pa.RecordBatch.from_struct_array(parts.column("instances"))
    numbers = parts.numbers("instances")
    former = saved.column("number").to_numpy()
    rows = _rows(layout, state, saved)
    state.hold(state.codes.size)
    rows[:, loops.END] = parts.array("end")
    if numbers is None:
        numbers = np.arange(len(rows))
    state.make_room(len(rows), len(rows))
    state.rows[: len(rows)] = rows
    state.meta[loops.USED] = state.meta[loops.LIVE] = len(rows)
    touched, replaces = parts.array("touched"), parts.array("replaces")
    # numbers tell instances of one key apart, and one that waits for the place of another has its key
    most = int(former.max(initial=0)) + 1
    codes = _codes(state, rows)
    own = codes * most + former
    order = np.argsort(own, kind="stable")
    wanted = codes * most + replaces
    found = order[np.minimum(np.searchsorted(own[order], wanted), len(rows) - 1)]
    replaced = np.where(replaces < 0, -1, found)
    arrays = (state.rows, state.halves, state.code_words, state.numbers, state.lists, state.meta, state.marked)
    link(len(rows), *arrays, numbers, touched, replaced)
    state.meta[loops.NUMBERS] = int(numbers.max(initial=-1)) + 1
    return state


def _rows(layout: AutomatonLayout, state: Instances, saved: pa.RecordBatch) -> Ints:
    """The words of saved instances, but for their ends and links."""
    rows = np.zeros((saved.num_rows, layout.width), dtype=np.int64)
    reals = rows.view(np.float64)
    number = saved.column("state").to_numpy()
    rows.view(np.int32)[:, loops.STATE] = number
    rows[:, loops.START] = saved.column("start").to_numpy()
    for each in range(len(layout.spec.states)):
        chosen = np.flatnonzero(number == each)
        for name, type_, column in _places(layout, each):
            own = saved.column(column).take(pa.array(chosen))
            table = state.codes.table(type_) if is_odd(type_) else None
            values, ok = encode(own, type_, state.codes.texts, table)
            target = reals if type_.kernel == "float64" else rows
            target[chosen, layout.word(each, name)] = np.where(ok, values, 0)
            word, bit = layout.null(each, name)
            rows[chosen, word] |= np.where(ok, 0, 1 << bit)
            if name in layout.codes[each]:
                codes = state.codes.table(type_).encode([own])
                rows[chosen, layout.codes[each][name]] = np.where(ok, codes, -1)
    return rows


def _codes(state: Instances, rows: Ints) -> Ints:
    """The codes by which instances are found."""
    words = state.code_words[rows.view(np.int32)[:, loops.STATE]]
    return np.where(words < 0, 0, rows[np.arange(len(rows)), words])
