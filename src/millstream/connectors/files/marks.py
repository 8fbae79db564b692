"""Marks of files that were read: whether what was read is still there, by length, time of change and checksums.

Of a text file that may grow, all that was read must be as it was. Its checksum grows with it, so that each byte is
looked at once more than it is read; it is compared only if length or time of change differ. Of another file, which
makes sense only as a whole, a large one is looked at in places.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import BinaryIO

_ENDS = 4096
_BLOCK = 1 << 20
_MOST_BLOCKS = 64

Mark = list[int]
"""Length and time of change of the file, how much of it was read (0: all), checksums of the first and last bytes that
were read, and of all of them. Older versions did not have the last one."""


class FileMarker:
    """Makes the marks of one file, as more and more of it is read; `before` is an earlier one, of the same file."""

    def __init__(self, path: Path, before: Mark | None = None) -> None:
        self._path = path
        self._upto, self._sum = (before[2], before[5]) if before is not None and len(before) > 5 else (0, 0)
        self._whole: Mark | None = None

    def mark(self, read: int) -> Mark:
        """The mark when so many bytes were read; 0 for a file that makes sense only as a whole."""
        found = self._path.stat()
        if not read and self._whole is not None and self._whole[:2] == [found.st_size, found.st_mtime_ns]:
            return self._whole
        with self._path.open("rb") as file:
            ends = _ends(file, read or found.st_size)
            if not read:
                self._whole = [found.st_size, found.st_mtime_ns, 0, *ends, _sampled(file, found.st_size)]
                return self._whole
            if read < self._upto:
                self._sum = self._upto = 0
            self._sum, self._upto = _grown(file, self._sum, self._upto, read), read
        return [found.st_size, found.st_mtime_ns, read, *ends, self._sum]


def is_same(path: Path, mark: Mark, *, thorough: bool = True) -> bool:
    """Whether what was read of a file is still there; a file that is gone is not the same. Not thorough is by its first
    and last bytes alone: for those who ask again and again, whether it is another file."""
    size, changed, read, *checks = mark
    try:
        found = path.stat()
        if (found.st_size, found.st_mtime_ns) == (size, changed):
            return True
        if found.st_size < read or (not read and found.st_size != size):
            return False
        with path.open("rb") as file:
            if _ends(file, read or size) != checks[:2]:
                return False
            if not thorough or not checks[2:]:
                return True
            return checks[2] == (_grown(file, 0, 0, read) if read else _sampled(file, size))
    except OSError:
        return False


def _ends(file: BinaryIO, upto: int) -> list[int]:
    head = file.read(min(_ENDS, upto))
    file.seek(max(0, upto - _ENDS))
    return [zlib.crc32(head), zlib.crc32(file.read(min(_ENDS, upto)))]


def _grown(file: BinaryIO, found: int, start: int, stop: int) -> int:
    """A checksum of the first bytes of a file, as one of more of them."""
    file.seek(start)
    while start < stop:
        block = file.read(min(_BLOCK, stop - start))
        if not block:
            break
        found, start = zlib.crc32(block, found), start + len(block)
    return found


def _sampled(file: BinaryIO, size: int) -> int:
    """A checksum of a whole file, or of as many blocks as are looked at, evenly spread over it."""
    blocks = -(-size // _BLOCK)
    step = max(1.0, blocks / _MOST_BLOCKS)
    found = 0
    for number in range(min(blocks, _MOST_BLOCKS)):
        start = int(number * step) * _BLOCK
        found = _grown(file, found, start, min(start + _BLOCK, size))
    return found
