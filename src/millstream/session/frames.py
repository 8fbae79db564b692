"""A file of numbered frames, each with checksums: an end that a crash cut off is not mistaken for damage."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from millstream.errors import StateError

_MAGIC = b"MSTREAM2"
_FILE = struct.Struct("<8sQ")
"""what kind of file it is, and its number"""
_FRAME = struct.Struct("<QIQI")
"""the frame's number, the sizes of its two parts, and their checksum"""
_CHECK = struct.Struct("<I")
EMPTY_SIZE = _FILE.size + _CHECK.size
"""of a file without frames"""
_FRAME_SIZE = _FRAME.size + _CHECK.size

Frame = tuple[bytes, bytes]


class DamagedError(StateError):
    """A saved file is damaged; `path` and `offset` say where."""

    def __init__(self, path: Path, offset: int, why: str) -> None:
        home = path.parent.parent if path.parent.name.startswith("checkpoint-") else path.parent
        super().__init__(
            f"{path} is damaged at byte {offset}",
            detail=why,
            hint=f"`millstream repair {home}` keeps what is intact and reports what is lost",
        )
        self.path, self.offset = path, offset


class FrameFile:
    """Frames are appended whole or not at all; with `durable`, each is on the disk before `append` returns."""

    def __init__(self, path: Path, number: int, *, durable: bool = False) -> None:
        self.path = path
        self.durable = durable
        self._broken = False
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o600)
        try:
            if os.fstat(self._handle).st_size == 0:
                head = _FILE.pack(_MAGIC, number)
                _write_all(self._handle, head + _CHECK.pack(zlib.crc32(head)))
                os.fsync(self._handle)
            data = path.read_bytes()
            self._frames, self.size = _frames(path, data, number)
            if self.size < len(data):
                os.ftruncate(self._handle, self.size)
        except BaseException:
            os.close(self._handle)
            raise
        self._next = len(self._frames)
        self._last = 0

    def take(self) -> list[Frame]:
        """The frames that were there when the file was opened; they are given once."""
        frames, self._frames = self._frames, []
        return frames

    def append(self, head: bytes, body: bytes = b"") -> None:
        """Add a frame. After an error the file is as it was, or takes no more frames."""
        if self._broken:
            raise StateError(f"{self.path} could not be written to before", hint="close the session and open it again")
        frame = _FRAME.pack(self._next, len(head), len(body), zlib.crc32(body, zlib.crc32(head)))
        try:
            _write_all(self._handle, b"".join([frame, _CHECK.pack(zlib.crc32(frame)), head, body]))
            if self.durable:
                # what is on the disk after this fails, nobody knows
                self._broken = True
                os.fdatasync(self._handle)
                self._broken = False
        except OSError as error:
            self._undo()
            raise StateError(f"cannot write to {self.path}: {error.strerror or error}", hint=_HINT) from error
        self._next += 1
        self._last = _FRAME_SIZE + len(head) + len(body)
        self.size += self._last

    def retract(self) -> None:
        """Take back the frame that was appended last. If that fails the file takes no more frames: what it says did not
        happen may then be done when it is read."""
        self._next -= 1
        self.size -= self._last
        self._last = 0
        self._undo()

    def close(self) -> None:
        os.close(self._handle)

    def _undo(self) -> None:
        try:
            os.ftruncate(self._handle, self.size)
        except OSError:
            self._broken = True


_HINT = "this had no effect; free some space, or check the disk, and try again"


def salvage(path: Path, number: int) -> tuple[list[Frame], DamagedError | None, int]:
    """The frames before the first damage, that damage, and how many whole frames lie behind it."""
    data = path.read_bytes()
    frames: list[Frame] = []
    try:
        for frame, _ in _walk(path, data, number):
            frames.append(frame)
    except DamagedError as damage:
        return frames, damage, _whole_frames(data, damage.offset + 1)
    return frames, None, 0


def _frames(path: Path, data: bytes, number: int) -> tuple[list[Frame], int]:
    frames, end = [], EMPTY_SIZE
    for frame, end in _walk(path, data, number):  # noqa: B007
        frames.append(frame)
    return frames, end


def _walk(path: Path, data: bytes, number: int) -> Iterator[tuple[Frame, int]]:
    """The frames with where each ends; a frame that the file ends within was never complete."""
    if len(data) < EMPTY_SIZE or data[_FILE.size : EMPTY_SIZE] != _CHECK.pack(zlib.crc32(data[: _FILE.size])):
        raise DamagedError(path, 0, "it does not start like such a file")
    if _FILE.unpack_from(data) != (_MAGIC, number):
        raise DamagedError(path, 0, "it belongs to another session or version")
    at, count = EMPTY_SIZE, 0
    while at + _FRAME_SIZE <= len(data):
        head = data[at : at + _FRAME.size]
        if data[at + _FRAME.size : at + _FRAME_SIZE] != _CHECK.pack(zlib.crc32(head)):
            if not any(data[at:]):
                # the file had been made longer before the machine stopped, and nothing was written there
                return
            raise DamagedError(path, at, f"the head of frame {count} does not match its checksum")
        place, head_size, body_size, check = _FRAME.unpack(head)
        if place != count:
            raise DamagedError(path, at, f"frame {place} is in the place of frame {count}")
        start, end = at + _FRAME_SIZE, at + _FRAME_SIZE + head_size + body_size
        if end > len(data):
            return
        parts = data[start : start + head_size], data[start + head_size : end]
        if zlib.crc32(parts[1], zlib.crc32(parts[0])) != check:
            raise DamagedError(path, at, f"the content of frame {count} does not match its checksum")
        yield parts, end
        at, count = end, count + 1


def _whole_frames(data: bytes, start: int) -> int:
    count, at = 0, start
    while at + _FRAME_SIZE <= len(data):
        head = data[at : at + _FRAME.size]
        if data[at + _FRAME.size : at + _FRAME_SIZE] == _CHECK.pack(zlib.crc32(head)):
            _, head_size, body_size, check = _FRAME.unpack(head)
            end = at + _FRAME_SIZE + head_size + body_size
            if end <= len(data) and zlib.crc32(data[at + _FRAME_SIZE : end]) == check:
                count, at = count + 1, end
                continue
        at += 1
    return count


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
