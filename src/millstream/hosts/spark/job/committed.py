"""How many rows of a query the micro-batches of its jobs have committed."""

from __future__ import annotations

from millstream.records import dataclass


@dataclass
class Committed:
    """How many rows of an outlet were committed; a micro-batch that was repeated counts once."""

    rows: int = 0
    first: tuple[int, int] = -1, 0
    """the first micro-batch that had any, and how many"""
    last: tuple[int, int] = -1, 0

    def add(self, batch: int, rows: int) -> None:
        if batch == self.last[0]:
            self.rows -= self.last[1]
        self.rows += rows
        self.last = batch, rows
        if self.first[0] in (-1, batch):
            self.first = batch, rows

    def after(self, before: Committed) -> Committed:
        """Together with what an earlier run committed, whose last micro-batch this one may have repeated."""
        if self.first[0] < 0 or before.last[0] < 0:
            return before if self.first[0] < 0 else self
        twice = before.last[1] if before.last[0] == self.first[0] else 0
        return Committed(before.rows + self.rows - twice, before.first, self.last)
