"""The bytes of a file, decompressed; a damaged compressed file gives every byte before the damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.errors import ConnectorError

_STEP = 1 << 20


class Damaged(Exception):
    """A compressed file ends early or is corrupt from here on."""


class ByteStream:
    """Sequential reading of a file that may be compressed, from any position."""

    def __init__(self, path: Path, compression: str | None) -> None:
        self._path = path
        self._compression = compression
        self._position = 0
        self._careful = 0
        self._raw: Any = self._open()

    def read(self, size: int) -> bytes:
        """Up to `size` bytes, none at the end; raises Damaged once all bytes before the damage are read."""
        try:
            data = bytes(self._raw.read(min(size, self._careful) if self._careful else size))
        except (OSError, pa.ArrowInvalid) as error:
            # A failed read loses what it had decompressed, so go there again in smaller steps, at last byte by byte.
            if self._compression is None or self._careful == 1:
                raise Damaged(_first_line(error)) from error
            self._careful = 1 if self._careful else 256
            self._reopen()
            return self.read(size)
        self._position += len(data)
        return data

    def skip_to(self, position: int) -> None:
        if self._compression is None:
            self._raw.seek(position)
            self._position = position
            return
        if position < self._position:
            self._position = 0
            self._raw.close()
            self._raw = self._open()
        while self._position < position:
            if not self.read(min(_STEP, position - self._position)):
                return

    def close(self) -> None:
        self._raw.close()

    def _reopen(self) -> None:
        target, self._position = self._position, 0
        self._raw.close()
        self._raw = self._open()
        while self._position < target:
            self._position += len(self._raw.read(min(_STEP, target - self._position)))

    def _open(self) -> Any:
        try:
            raw = self._path.open("rb")
        except OSError as error:
            raise ConnectorError(f"cannot open {self._path}: {error.strerror}") from error
        if self._compression is None:
            return raw
        return pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), self._compression)


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
