"""The directory of a persistent session: numbered checkpoints, and a journal of what was done since the last one.

A checkpoint is written to a temporary directory and renamed; the journal that goes with it has the same number. A frame
of the journal carries its length and a checksum, so a torn write at the end is recognised and cut off.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.durable import from_ipc, sync_directory, to_ipc
from millstream.errors import StateError

FORMAT = 2
_HEAD = struct.Struct("<IIQ")


class Journal:
    """One open session's files. Only one session may have a directory open at a time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._lock_file = self._take_lock()
        self._number = max((int(path.name.removeprefix("checkpoint-")) for path in self._checkpoints()), default=0)
        self._log: Any = None

    @property
    def tables_path(self) -> Path:
        return self.directory / "tables.duckdb"

    def load(
        self,
    ) -> tuple[dict[str, Any] | None, dict[str, bytes], list[tuple[dict[str, Any], pa.RecordBatch | None]]]:
        """The last checkpoint's description and states, and the notes made after it."""
        manifest: dict[str, Any] | None = None
        blobs: dict[str, bytes] = {}
        if self._number:
            home = self.directory / f"checkpoint-{self._number}"
            manifest = json.loads((home / "manifest.json").read_text())
            if manifest["format"] != FORMAT:
                raise StateError(
                    f"{self.directory} was written in format {manifest['format']}, this version reads {FORMAT}"
                )
            blobs = {name: (home / file).read_bytes() for name, file in manifest["blobs"].items()}
        notes = list(self._read_log())
        self._log = self._log_path().open("ab")
        return manifest, blobs, notes

    def note(self, what: dict[str, Any], rows: pa.RecordBatch | None = None) -> None:
        """Append to the journal; it survives a crash of the process."""
        payload = b"" if rows is None else to_ipc([rows])
        head = json.dumps(what).encode()
        crc = zlib.crc32(payload, zlib.crc32(head))
        self._log.write(_HEAD.pack(crc, len(head), len(payload)) + head + payload)
        self._log.flush()

    def checkpoint(self, manifest: dict[str, Any], blobs: dict[str, bytes]) -> None:
        """Replace the last checkpoint and its journal by a new one."""
        number = self._number + 1
        temporary = self.directory / f".checkpoint-{number}"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        files = {name: f"state-{i}" for i, name in enumerate(blobs)}
        for name, file in files.items():
            _write(temporary / file, blobs[name])
        text = json.dumps({**manifest, "format": FORMAT, "blobs": files})
        _write(temporary / "manifest.json", text.encode())
        temporary.rename(self.directory / f"checkpoint-{number}")
        sync_directory(self.directory)
        self._log.close()
        old, self._number = self._number, number
        self._log = self._log_path().open("wb")
        shutil.rmtree(self.directory / f"checkpoint-{old}", ignore_errors=True)
        (self.directory / f"journal-{old}").unlink(missing_ok=True)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
        self._lock_file.close()

    def size(self) -> int:
        """Bytes noted since the last checkpoint."""
        return int(self._log.tell())

    def _checkpoints(self) -> list[Path]:
        return [path for path in self.directory.glob("checkpoint-*") if (path / "manifest.json").exists()]

    def _log_path(self) -> Path:
        return self.directory / f"journal-{self._number}"

    def _read_log(self) -> Iterator[tuple[dict[str, Any], pa.RecordBatch | None]]:
        path = self._log_path()
        if not path.exists():
            return
        data = path.read_bytes()
        position = 0
        while position + _HEAD.size <= len(data):
            crc, head_size, payload_size = _HEAD.unpack_from(data, position)
            start = position + _HEAD.size
            head = data[start : start + head_size]
            payload = data[start + head_size : start + head_size + payload_size]
            if len(payload) < payload_size or zlib.crc32(payload, zlib.crc32(head)) != crc:
                break
            yield json.loads(head), from_ipc(payload)[0] if payload else None
            position = start + head_size + payload_size
        if position < len(data):
            os.truncate(path, position)

    def _take_lock(self) -> Any:
        import fcntl

        handle = (self.directory / "lock").open("w")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            handle.close()
            raise StateError(f"{self.directory} is open in another session", hint="close that one first") from None
        return handle


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
