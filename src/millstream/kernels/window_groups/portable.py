"""The saved form of keys with their entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.kernels.batch import Ints
from millstream.kernels.keys import KeyTable
from millstream.kernels.snapshots import Saved
from millstream.kernels.window_groups.lanes import PaneLayout, Records, Texts
from millstream.kernels.window_groups.panes import Panes


@dataclass(frozen=True)
class Portable:
    """Keys (None: all rows are of one), and entries by their owner's place among them, an owner's in order of panes."""

    keys: pa.RecordBatch | None
    count: int
    owner: Ints
    pane: Ints
    first: Ints
    rows: Ints
    records: Records
    texts: list[pa.Array]
    """the strings in records, a column for each lane that has their codes"""

    def of(self, own: Ints) -> Portable:
        """Some of the keys, in increasing order of their places."""
        number = np.full(self.count, -1, dtype=np.int64)
        number[own] = np.arange(len(own))
        owner = number[self.owner]
        kept = np.flatnonzero(owner >= 0)
        keys = None if self.keys is None else self.keys.take(pa.array(own))
        return Portable(
            keys, len(own), owner[kept], self.pane[kept], self.first[kept], self.rows[kept],
            self.records[kept], [text.take(pa.array(kept)) for text in self.texts],
        )  # fmt: skip


def export_each(
    layout: PaneLayout, keys: KeyTable | None, panes: Panes, texts: Texts, groups: Sequence[Ints]
) -> Iterator[Portable]:
    """What the keys of each group of slots have."""
    live = slice(panes.head, panes.count)
    place = np.full(len(panes.newest), -1, dtype=np.int64)
    together = np.concatenate([np.zeros(0, dtype=np.int64), *groups])
    place[together] = np.arange(len(together))
    owner = place[panes.slot_at[live]]
    # Entries group by group, so that many groups do not mean many passes.
    order = np.flatnonzero(owner >= 0)
    order = order[np.argsort(owner[order], kind="stable")]
    edges = np.searchsorted(owner[order], np.cumsum([0, *map(len, groups)]))
    start = 0
    for slots, begin, end in zip(groups, edges[:-1], edges[1:], strict=True):
        own = order[begin:end]
        records = panes.records[live][own]
        yield Portable(
            None if keys is None else keys.keys(slots), len(slots), owner[own] - start, panes.pane_at[live][own],
            panes.first_at[live][own], panes.rows_at[live][own], records, layout.strings(records, texts),
        )  # fmt: skip
        start += len(slots)


def combined(portables: Sequence[Portable]) -> Portable:
    """The keys of all, one after the other."""
    if len(portables) == 1:
        return portables[0]
    if portables[0].keys is None:
        keys, starts = None, np.zeros(len(portables), dtype=np.int64)
        count = max(one.count for one in portables)
    else:
        table = pa.Table.from_batches([one.keys for one in portables]).combine_chunks()
        keys = table.to_batches()[0] if table.num_rows else portables[0].keys
        starts = np.cumsum([0, *(one.count for one in portables)])
        count = int(starts[-1])
    return Portable(
        keys,
        count,
        np.concatenate([one.owner + start for one, start in zip(portables, starts, strict=False)]),
        np.concatenate([one.pane for one in portables]),
        np.concatenate([one.first for one in portables]),
        np.concatenate([one.rows for one in portables]),
        np.concatenate([one.records for one in portables]),
        [pa.concat_arrays(texts) for texts in zip(*(one.texts for one in portables), strict=True)],
    )


def saved_parts(portable: Portable) -> dict[str, Any]:
    """Named parts for a snapshot."""
    parts: dict[str, Any] = {"count": np.array([portable.count])}
    parts |= {name: getattr(portable, name) for name in ("owner", "pane", "first", "rows")}
    parts |= {f"lane{i}": lane for i, lane in enumerate(portable.records.T)}
    parts |= {f"text{i}": text for i, text in enumerate(portable.texts)}
    return parts if portable.keys is None else {**parts, "keys": portable.keys}


def loaded(parts: Saved, layout: PaneLayout) -> Portable:
    """The inverse of `saved_parts`."""
    columns: Mapping[str, Ints] = {name: parts.array(name) for name in ("owner", "pane", "first", "rows")}
    records = layout.new(len(columns["rows"]))
    for i in range(layout.width):
        records[:, i] = parts.array(f"lane{i}")
    return Portable(
        parts.rows("keys") if layout.spec.by else None,
        int(parts.array("count")[0]),
        **columns,
        records=records,
        texts=[parts.column(f"text{i}") for i in range(len(layout.text_lanes))],
    )
