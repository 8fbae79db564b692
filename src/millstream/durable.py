"""Bytes that outlast the process: rows as Arrow IPC, files, and renames that a crash cannot undo."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa


def to_ipc(batches: Sequence[pa.RecordBatch]) -> bytes:
    """Rows of one schema as bytes; there is at least one batch."""
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(buffer.getvalue())


def from_ipc(saved: bytes) -> list[pa.RecordBatch]:
    """The batches that were saved."""
    with pa.ipc.open_stream(saved) as reader:
        return list(reader)


def write_durably(path: Path, *data: bytes) -> None:
    """A private file with these bytes, on the disk when this returns."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o600)
    with os.fdopen(handle, "wb") as file:
        for part in data:
            file.write(part)
        file.flush()
        os.fsync(file.fileno())


def link_or_copy(source: Path, target: Path) -> None:
    """The same file in another place, without its bytes where the system can do that."""
    try:
        os.link(source, target)
    except OSError:
        write_durably(target, source.read_bytes())


def sync_directory(directory: Path) -> None:
    """Make renames permanent; a system that cannot open directories does so by itself."""
    try:
        handle = os.open(directory, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
