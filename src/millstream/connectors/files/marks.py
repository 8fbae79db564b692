"""Marks of files that were read: whether what was read is still there, by length, time of change and checksums.

Of a text file that may grow, what was read must be as it was; of another, the whole file. Checksums are of the first
and the last bytes that were read, so that looking costs the same for files of any length.
"""

from __future__ import annotations

import zlib
from pathlib import Path

_BYTES = 4096

Mark = list[int]
"""Length and time of change of the file, how much of it was read (0: all), checksums of the first and last bytes."""


def mark_of(path: Path, read: int) -> Mark:
    """The mark of a file of which so many bytes were read, 0 if it makes sense only as a whole."""
    found = path.stat()
    return [found.st_size, found.st_mtime_ns, read, *_checks(path, read or found.st_size)]


def is_same(path: Path, mark: Mark) -> bool:
    """Whether what was read of a file is still there; a file that is gone is not the same."""
    size, changed, read, *checks = mark
    try:
        found = path.stat()
        if (found.st_size, found.st_mtime_ns) == (size, changed):
            return True
        if found.st_size < read or (not read and found.st_size != size):
            return False
        return _checks(path, read or size) == checks
    except OSError:
        return False


def _checks(path: Path, upto: int) -> list[int]:
    with path.open("rb") as file:
        head = file.read(min(_BYTES, upto))
        file.seek(max(0, upto - _BYTES))
        tail = file.read(min(_BYTES, upto))
    return [zlib.crc32(head), zlib.crc32(tail)]
