"""What reading a part of one file gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa

from millstream.connectors.contract import Rejected
from millstream.records import dataclass

Position = dict[str, Any]
"""Where in a file: {} is the beginning; `at` counts bytes (text) or rows (binary), `done` says nothing follows."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one file, the rows rejected on the way, and the position just after them."""

    rows: pa.RecordBatch
    rejected: tuple[Rejected, ...]
    position: Position


class FileReader(Protocol):
    """Reads one file from any position."""

    warnings: list[str]

    def read(self, position: Position, limit: int, final: bool) -> Iterator[Piece]:
        """Pieces of at most `limit` rows; unless `final`, a last row without line end is left for later."""
        ...

    def values(self, column: str) -> Iterator[pa.Array]:
        """A column of all rows, without the others; an error if only reading tells."""
        ...

    def estimate_rows(self) -> int | None: ...
