"""A table in a notebook that shows the latest rows of a query while other cells run (extra `notebook`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import anywidget
import pyarrow as pa
import traitlets

from millstream.errors import MillstreamError
from millstream.session.display import SHOWN, shown_cells

_UPDATE_SECONDS = 0.2
"""how often the browser gets rows at most"""


class LiveTable(anywidget.AnyWidget):  # type: ignore[misc]
    """The latest rows of a query. Buttons pause it and end it; `stop()` does, too. The query itself goes on."""

    _esm = Path(__file__).with_name("live_table.js").read_text(encoding="utf-8")

    columns: Any = traitlets.List().tag(sync=True)
    numbers: Any = traitlets.List().tag(sync=True)
    """which columns are numbers"""
    rows: Any = traitlets.List().tag(sync=True)
    count: Any = traitlets.Int().tag(sync=True)
    """rows since it looks"""
    state: Any = traitlets.Unicode("waiting for rows").tag(sync=True)
    paused: Any = traitlets.Bool(False).tag(sync=True)
    stopped: Any = traitlets.Bool(False).tag(sync=True)

    def __init__(self, query: Any, seconds: float | None = None) -> None:
        super().__init__()
        self.query = query
        self._until = None if seconds is None else time.monotonic() + seconds
        self._latest: pa.Table = query.schema.empty_table()
        self.columns, self.numbers, self.rows = shown_cells(self._latest)
        self._thread = Thread(target=self._follow, name=f"millstream-table-{query.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Show no more rows."""
        self.stopped = True

    def wait(self, seconds: float | None = None) -> None:
        """Wait until it ends."""
        self._thread.join(seconds)

    def close(self) -> None:
        self.stop()
        super().close()

    @property
    def _is_over(self) -> bool:
        return self.stopped or (self._until is not None and time.monotonic() >= self._until)

    def _follow(self) -> None:
        """The thread: rows are taken as they come, and shown now and then."""
        try:
            with self.query.subscribe(since=0, when_full="drop") as reader:
                self._read(reader.next, lambda: reader.ended)
                ended = reader.ended
            self._tell("the query has ended" if ended else "stopped")
        except MillstreamError as error:
            self._tell(error.message)

    def _read(self, following: Callable[[float], pa.RecordBatch | None], ended: Callable[[], bool]) -> None:
        count, told = 0, 0.0
        while not ended() and not self._is_over:
            batch = following(_UPDATE_SECONDS)
            if batch is not None:
                count += batch.num_rows
                latest = pa.concat_tables([self._latest, pa.Table.from_batches([batch])])
                self._latest = latest.slice(max(0, latest.num_rows - SHOWN))
            if count > self.count and not self.paused and time.monotonic() - told >= _UPDATE_SECONDS:
                self._show(count)
                told = time.monotonic()
        if count > self.count:
            self._show(count)

    def _show(self, count: int) -> None:
        with self.hold_sync():
            self.rows, self.count, self.state = shown_cells(self._latest)[2], count, "running"

    def _tell(self, state: str) -> None:
        with self.hold_sync():
            self.state, self.stopped = state, True
