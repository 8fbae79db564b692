"""Saving, dividing and putting together of any kernel's state, by what the kernel exports and loads.

As a whole, a state is one snapshot. In pieces, only those are written that rows came to, or that changed rows and
touched keys moved to (see `Pieces` for how they are divided); piece 0, the head, has what belongs to no key, and tells
which rows of each older piece are still its own. So what is saved is what was touched, wherever it was before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.errors import StateError
from millstream.kernels.batch import Batch, Ints
from millstream.kernels.contract import Kernel, State
from millstream.kernels.keys import KeyTable, bucket_of
from millstream.kernels.saving import snapshots
from millstream.kernels.saving.content import OWNER, Content, Few, KeptRows, Ledger, Rows, Table, placed
from millstream.kernels.saving.pieces import Bools, Pieces
from millstream.kernels.saving.signatures import signature_of
from millstream.kernels.saving.snapshots import Saved

HEAD = 0


def snapshot(kernel: Kernel, state: State) -> bytes:
    """The state as Arrow IPC bytes."""
    content = _content(kernel, state)
    owning = {part.owner for part in content.values() if isinstance(part, KeptRows)}
    # Numbers that no other row refers to need not last.
    unused = {f"{name}.number" for name in content if name not in owning}
    return snapshots.save(kernel.spec, {of: own for of, own in _whole(content).items() if of not in unused})


def restore(kernel: Kernel, saved: bytes) -> State:
    """The inverse of `snapshot`."""
    return kernel.load(snapshots.load(kernel.spec, saved))


def copy(kernel: Kernel, state: State) -> State:
    """The same state once more, without what was left behind in it."""
    return kernel.load(Saved(_whole(_content(kernel, state)), signature_of(kernel.spec)))


def changes(kernel: Kernel, state: State) -> dict[int, bytes | None]:
    """The pieces of the state that changed since the last call, or since it was opened or assembled, by number; None
    for one that is gone. A state that was restored, split or merged gives all of its pieces the first time."""
    ledger, content = state.ledger, _content(kernel, state)
    tables = _tables(content)
    changed: dict[int, bytes | None] = {}
    for turn, (name, table) in enumerate(tables.items()):
        pieces = table.division(name, ledger)
        gone, made = pieces.regroup()
        changed |= {_numbered(number, turn, len(tables)): None for number in gone}
        slots = np.concatenate([np.zeros(0, dtype=np.int64), *(own for _, own in made)])
        taken, start = table.parts(name, slots) if len(slots) else {}, 0
        for number, own in made:
            parts = {of: _slice(part, start, start + len(own)) for of, part in taken.items()}
            start += len(own)
            piece = snapshots.save(kernel.spec, {**parts, "piece": pieces.label(number)})
            changed[_numbered(number, turn, len(tables))] = piece
    head = _head(kernel, content, ledger)
    if head != (ledger.head or _head(kernel, _content(kernel, kernel.open()), Ledger())):
        changed[HEAD] = head
    ledger.head = head
    return changed


def assemble(kernel: Kernel, pieces: Mapping[int, bytes]) -> State:
    """The state whose pieces these are: all that `changes` gave so far, later ones in place of earlier ones. The next
    `changes` tells only what changes from here."""
    if not pieces:
        return kernel.open()
    if HEAD not in pieces:
        raise StateError("saved state is incomplete", detail="its first piece is missing")
    head = snapshots.load(kernel.spec, pieces[HEAD])
    tables = _tables(kernel.export(kernel.open()))
    columns, divisions = dict(head.columns), {}
    for turn, (name, table) in enumerate(tables.items()):
        own = {
            (number - 1) // len(tables) + 1: piece
            for number, piece in pieces.items()
            if number != HEAD and (number - 1) % len(tables) == turn
        }
        labels, live, found = _indexed(kernel, head, own, name)
        divisions[name] = Pieces.of(labels, live)
        if found:
            taken = {of: [column.take(pa.array(at)) for column, at in each] for of, each in _columns(found)}
            rows = {of: pa.concat_arrays(each) for of, each in taken.items()}
            if isinstance(table, KeptRows):
                order = np.argsort(rows[f"{name}.number"].to_numpy(zero_copy_only=False), kind="stable")
                divisions[name].arrange(order)
                rows = {of: column.take(pa.array(order)) for of, column in rows.items()}
            columns |= rows
    parts = Saved(columns, head.signature)
    state = kernel.load(parts)
    for name, table in _tables(kernel.export(state)).items():
        table.adopt(name, state.ledger, divisions[name], parts.numbers(name))
    state.ledger.head = pieces[HEAD]
    return state


def split(kernel: Kernel, state: State, parts: int) -> list[State]:
    """The state divided by key: part i holds the keys whose `bucket_of(keys, parts)` is i (see `keys.py`)."""
    if kernel.spec.keys is None:
        if parts != 1:
            raise ValueError(f"the state of {type(kernel).__name__} cannot be divided")
        return [state]
    content = _content(kernel, state)
    whole = {name: _all_of(name, part) for name, part in content.items()}
    owners = {name: _owners(name, content, whole, parts) for name in content}
    divided = []
    for part in range(parts):
        columns: dict[str, pa.Array] = {}
        for name, own in whole.items():
            owner = owners[name]
            if owner is None:
                columns |= own
            elif (mine := np.flatnonzero(owner == part)).size:
                columns |= {of: column.take(pa.array(mine)) for of, column in own.items()}
        divided.append(kernel.load(Saved(columns, signature_of(kernel.spec), anew=True)))
    return divided


def merge(kernel: Kernel, states: Sequence[State]) -> State:
    """One state that holds all keys of `states`, which share no key."""
    if kernel.spec.keys is None:
        if len(states) != 1:
            raise ValueError(f"the state of {type(kernel).__name__} cannot be put together")
        return states[0]
    contents = [_content(kernel, state) for state in states]
    first = {name: _firsts(name, contents) for name, part in contents[0].items() if isinstance(part, KeptRows)}
    columns: dict[str, pa.Array] = {}
    for name in dict.fromkeys(name for content in contents for name in content):
        taken = [(i, _all_of(name, content[name])) for i, content in enumerate(contents) if name in content]
        sample = contents[taken[0][0]][name]
        if isinstance(sample, np.ndarray):
            columns[name] = pa.array(np.max([own[name].to_numpy() for _, own in taken], axis=0))
            continue
        if isinstance(sample, KeptRows):
            for i, own in taken:
                if own:
                    own[f"{name}.number"] = pa.array(own[f"{name}.number"].to_numpy() + first[name][i])
                if own and sample.owner is not None:
                    own[name] = _moved(own[name], int(first[sample.owner][i]))
        columns |= _in_order(name, [own for _, own in taken if own])
    return kernel.load(Saved(columns, signature_of(kernel.spec), anew=True))


def load_keys(keys: KeyTable | None, rows: pa.RecordBatch) -> None:
    """Give the keys of saved rows their slots: 0, 1, …"""
    if keys is not None and len(rows):
        slots = keys.encode([rows.column(f"k{i}") for i in range(len(keys.types))])
        if len(keys) != len(slots):
            raise StateError("saved state is inconsistent", detail="a key is in several pieces")


def _content(kernel: Kernel, state: State) -> Content:
    return placed(kernel.export(state), kernel.spec)


def _whole(content: Content) -> dict[str, pa.Array]:
    return {of: own for name, part in content.items() for of, own in _all_of(name, part).items()}


# -- in pieces ---------------------------------------------------------------------------------------------------------


def _tables(content: Content) -> dict[str, Table]:
    return {name: own for name, own in content.items() if not isinstance(own, np.ndarray | Few)}


def _numbered(number: int, turn: int, turns: int) -> int:
    """The number of a piece among those of all tables, which take turns."""
    return (number - 1) * turns + turn + 1


def _slice(part: Rows | np.ndarray[Any, Any], start: int, stop: int) -> Rows | np.ndarray[Any, Any]:
    if isinstance(part, np.ndarray):
        return part[start:stop]
    return part.slice(start, stop) if isinstance(part, Batch) else part.slice(start, stop - start)


def _head(kernel: Kernel, content: Content, ledger: Ledger) -> bytes:
    parts: dict[str, Any] = {}
    for name, own in content.items():
        if isinstance(own, np.ndarray):
            parts[name] = own
        elif isinstance(own, Few):
            parts |= {name: own.rows} if len(own.rows) else {}
        else:
            parts[f"{name}.pieces"], parts[f"{name}.live"] = own.index(name, ledger).index()
    return snapshots.save(kernel.spec, parts)


def _indexed(
    kernel: Kernel, head: Saved, saved: Mapping[int, bytes], name: str
) -> tuple[Ints, Bools, list[tuple[Saved, Ints]]]:
    """The labels of the pieces that the head tells of, which of their rows are still theirs, and the pieces with the
    places of these; StateError if what was saved is something else."""
    index = np.array(head.array(f"{name}.pieces")).reshape(-1, 4)
    labels, live = index[:, :2], Pieces.live_of(index, head.array(f"{name}.live"))
    if set(saved) != set(labels[:, 0].tolist()):
        raise StateError("saved state is incomplete", detail=f"it has {len(saved)} of {len(labels)} pieces")
    pieces = []
    for label, own in zip(labels, live, strict=True):
        piece = snapshots.load(kernel.spec, saved[int(label[0])])
        if not np.array_equal(piece.array("piece"), label):
            raise StateError(
                "saved state is inconsistent", detail=f"piece {label[0]} is older or newer than the others"
            )
        pieces.append((piece, np.flatnonzero(own)))
    return labels, live, pieces


def _columns(pieces: list[tuple[Saved, Ints]]) -> Iterator[tuple[str, list[tuple[pa.Array, Ints]]]]:
    """The columns of pieces by name, with the places of rows that are still theirs."""
    for name in dict.fromkeys(name for piece, _ in pieces for name in piece.columns if name != "piece"):
        yield name, [(_column(piece.columns, name), places) for piece, places in pieces]


def _column(columns: Mapping[str, pa.Array], name: str) -> pa.Array:
    # A point event's other end is its time.
    return columns[name if name in columns else name.removesuffix("other") + "time"]


# -- by key ------------------------------------------------------------------------------------------------------------


def _all_of(name: str, part: Any) -> dict[str, pa.Array]:
    """All columns of a part, none if it has no rows."""
    if isinstance(part, np.ndarray):
        return snapshots.columns_of({name: part})
    if isinstance(part, Few):
        return snapshots.columns_of({name: part.rows}) if len(part.rows) else {}
    return snapshots.columns_of(part.parts(name, part.all())) if len(part.all()) else {}


def _owners(name: str, content: Content, whole: Mapping[str, Mapping[str, pa.Array]], parts: int) -> Ints | None:
    """The bucket of each row; None for what belongs to no key."""
    part = content[name]
    if isinstance(part, np.ndarray):
        return None
    if not whole[name]:
        return np.zeros(0, dtype=np.int64)
    rows = whole[name][name]
    if isinstance(part, KeptRows) and part.owner is not None:
        owning = content[part.owner]
        buckets = _owners(part.owner, content, whole, parts)
        assert isinstance(owning, KeptRows) and buckets is not None
        own: Ints = buckets[np.searchsorted(owning.numbers, rows.field(OWNER).to_numpy())]
        return own
    if not part.by:
        return np.zeros(len(rows), dtype=np.int64)
    return bucket_of([rows.field(key) for key in part.by], parts).astype(np.int64)


def _firsts(name: str, contents: Sequence[Content]) -> Ints:
    """What is added to the numbers of each state's rows, so that they are different ones."""
    most = [int(content[name].numbers.max(initial=-1)) + 1 for content in contents]  # type: ignore[union-attr]
    return np.cumsum([0, *most])[:-1]


def _moved(rows: pa.StructArray, by: int) -> pa.StructArray:
    """Rows whose owners have other numbers."""
    batch = pa.RecordBatch.from_struct_array(rows)
    at = batch.schema.get_field_index(OWNER)
    owner = pa.array(batch.column(at).to_numpy() + by)
    return batch.set_column(at, batch.schema.field(at), owner).to_struct_array()


def _in_order(name: str, taken: Sequence[Mapping[str, pa.Array]]) -> dict[str, pa.Array]:
    """The rows of all; those that have times in order of these, then of arrival."""
    names = dict.fromkeys(of for own in taken for of in own)
    together = {of: pa.concat_arrays([_column(own, of) for own in taken]) for of in names}
    if f"{name}.time" in together:
        order = np.lexsort((together[f"{name}.seq"].to_numpy(), together[f"{name}.time"].to_numpy()))
        together = {of: column.take(pa.array(order)) for of, column in together.items()}
    return together
