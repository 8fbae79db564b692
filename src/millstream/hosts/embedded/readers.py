"""Threads that read declared sources: live ones all the time, bounded ones in step with each other's time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from queue import Empty, Full, Queue
from threading import Event, Thread

import pyarrow as pa

from millstream.arrays import one_batch
from millstream.connectors.contract import Acknowledged, Chunk, Offset, Rejected, RowSource
from millstream.errors import MillstreamError, ours

log = logging.getLogger("millstream")

Take = Callable[[pa.RecordBatch, tuple[Rejected, ...], Offset], None]
MOST_BYTES = 1 << 30
"""of rows that are taken at once: a batch of rows has at most 2 GB of text"""

AHEAD = 4
"""Chunks a reader may have ready before they are wanted."""


def acknowledge(sources: Mapping[str, RowSource], offsets: Mapping[str, Offset]) -> None:
    """All that was read so far is safe."""
    for stream, source in sources.items():
        if isinstance(source, Acknowledged):
            source.kept(offsets[stream])


class LiveReader:
    """Reads a source on a thread and hands rows over as they come.

    What arrives while earlier rows are being worked on is handed over in one piece: single rows when there is time,
    large batches under load.
    """

    def __init__(self, source: RowSource, offset: Offset, take: Take, stream: str) -> None:
        self._source, self._offset, self._take, self._stream = source, offset, take, stream
        self._stop = Event()
        self._ready: Queue[Chunk | None] = Queue(maxsize=1024)
        self.error: MillstreamError | None = None
        self._threads = [Thread(target=self._read, daemon=True), Thread(target=self._hand_over, daemon=True)]
        for thread in self._threads:
            thread.start()

    @property
    def running(self) -> bool:
        return self._threads[1].is_alive()

    def ask_to_stop(self) -> None:
        """Come to an end soon."""
        self._stop.set()

    def stop(self) -> None:
        """Come to an end after what has been read is handed over."""
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=10)

    def _read(self) -> None:
        try:
            for chunk in self._source.read(self._offset, self._stop.is_set):
                self._ready.put(chunk)
        except Exception as error:
            self._fail(error)
        finally:
            self._ready.put(None)

    def _fail(self, error: Exception) -> None:
        self.error = ours(error)
        log.warning("stream %s is no longer read: %s", self._stream, error)

    def _hand_over(self) -> None:
        ended = False
        while not ended:
            chunks = [self._ready.get()]
            while chunks[-1] is not None and len(chunks) < 64:
                try:
                    chunks.append(self._ready.get_nowait())
                except Empty:
                    break
            ended = chunks[-1] is None
            found = [chunk for chunk in chunks if chunk is not None]
            if not found:
                continue
            try:
                for chunks_ in _together(found):
                    rejected = tuple(row for chunk in chunks_ for row in chunk.rejected)
                    self._take(one_batch([chunk.rows for chunk in chunks_]), rejected, chunks_[-1].offset)
            except Exception as error:
                self._fail(error)
                self._stop.set()


def _together(chunks: list[Chunk]) -> Iterator[list[Chunk]]:
    """Chunks that fit into one batch of rows, in order."""
    found: list[Chunk] = []
    size = 0
    for chunk in chunks:
        size += chunk.rows.nbytes
        if found and size > MOST_BYTES:
            yield found
            found, size = [], chunk.rows.nbytes
        found.append(chunk)
    yield found


def read_in_order(
    sources: Mapping[str, RowSource],
    offsets: Mapping[str, Offset],
    frontier: Callable[[str], int],
    stopped: Callable[[], bool],
    limit: int,
) -> Iterator[tuple[str, Chunk | None]]:
    """Chunks of bounded sources, always from the one whose time is furthest behind, and None when one has ended.

    So a merge of several sources holds little, and the order of reading is the same in every run.
    """
    halt = Event()
    queues = {name: _prefetch(source, offsets[name], halt, limit) for name, source in sources.items()}
    try:
        while queues and not stopped():
            name = min(sorted(queues), key=frontier)
            try:
                item = queues[name].get(timeout=0.1)
            except Empty:  # it may take its time, to sort for instance; look whether this is still wanted
                continue
            if isinstance(item, Exception):
                raise ours(item) if isinstance(item, OSError) else item
            if item is None:
                del queues[name]
            yield name, item
    finally:
        halt.set()


def _prefetch(source: RowSource, offset: Offset, halt: Event, limit: int) -> Queue[Chunk | Exception | None]:
    ready: Queue[Chunk | Exception | None] = Queue(maxsize=AHEAD)

    def put(item: Chunk | Exception | None) -> bool:
        while not halt.is_set():
            try:
                ready.put(item, timeout=0.1)
                return True
            except Full:
                continue
        return False

    def work() -> None:
        try:
            for chunk in source.read(offset, halt.is_set, limit):
                if not put(chunk):
                    return
            put(None)
        except Exception as error:
            put(error)

    Thread(target=work, daemon=True).start()
    return ready
