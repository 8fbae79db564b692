"""A file system that fails on command: at a step, with an error, half a write, or the death of the process.

Everything that a session writes below a directory goes through functions of `os` (DuckDB's own file aside). While a
`FailingDisk` is entered these are counted, and one or all from one on fail. With `reads`, reading counts, too.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

Kind = Literal["full", "eio", "dies", "short", "crash"]
KINDS: tuple[Kind, ...] = ("full", "eio", "dies", "short", "crash")
"""full: no space from this step on; eio: this step fails; dies: all steps from here on fail; short: half of a write is
done, then no space; crash: half of a write is done, or nothing, and the process is dead"""
_NEED_SPACE = ("create", "write", "mkdir", "link")


class Crash(BaseException):
    """The process is dead: nothing that it would do now happens."""


class FailingDisk:
    """Counts and fails what is written below `root`."""

    def __init__(self, root: Path, *, reads: bool = False) -> None:
        self._reads = reads
        self._root = os.path.realpath(root)
        self._paths: dict[int, str] = {}
        self._real = {name: getattr(os, name) for name in _PATCHED}
        self._open = io.open
        calls: dict[str, Callable[..., Any]] = {name: self._on_path(name) for name in _PATCHED}
        calls |= {"open": self._os_open, "fdopen": self._fdopen, "write": self._write}
        self._patches = [patch.object(os, name, call) for name, call in calls.items()]
        self._patches.append(patch.object(io, "open", self._io_open))
        self.steps: list[tuple[str, str]] = []
        """what was done since it was armed: the kind of each step, and its path"""
        self.failed_at: tuple[str, str] | None = None
        self.crashed = False
        self._at = -1
        self._kind: Kind = "eio"

    def __enter__(self) -> FailingDisk:
        for each in self._patches:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._patches:
            each.stop()

    def arm(self, at: int, kind: Kind = "eio") -> None:
        """Fail at a step, counted from now on; -1 is never."""
        self.steps, self.failed_at, self._at, self._kind = [], None, at, kind

    def heal(self) -> None:
        """All is well from now on; after a crash, there is another process."""
        self._at, self.crashed = -1, False

    # -- steps -----------------------------------------------------------------------------------------------------

    def _step(self, what: str, path: str, half: Callable[[], object] | None = None) -> None:
        if self.crashed:
            raise Crash
        number = len(self.steps)
        self.steps.append((what, path))
        if self._at < 0 or number < self._at or (number > self._at and self._kind in ("eio", "short")):
            return
        if self._kind in ("full", "short") and what not in _NEED_SPACE:
            return
        self.failed_at = self.failed_at or (what, path)
        if half is not None and self._kind in ("short", "crash"):
            half()
        if self._kind == "crash":
            self.crashed = True
            raise Crash
        code = errno.ENOSPC if self._kind in ("full", "short") else errno.EIO
        raise OSError(code, os.strerror(code), path)

    def _ours(self, path: Any, dir_fd: int | None = None) -> str | None:
        if isinstance(path, int):
            return self._paths.get(path)
        text = os.fsdecode(path)
        if dir_fd is not None:
            if dir_fd not in self._paths:
                return None
            text = f"{self._paths[dir_fd]}/{text}"
        text = os.path.normpath(Path.cwd() / text)
        return text if text == self._root or text.startswith(f"{self._root}{os.sep}") else None

    def _os_open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        ours = self._ours(path, dir_fd)
        if ours is not None and flags & (os.O_CREAT | os.O_TRUNC):
            self._step("create", ours)
        handle: int = self._real["open"](path, flags, mode, dir_fd=dir_fd)
        self._paths.pop(handle, None)
        if ours is not None:
            self._paths[handle] = ours
        return handle

    def _open_file(self, path: Any, flags: int) -> _File:
        return _File(self._os_open(path, flags | os.O_CREAT, 0o666))

    def _io_open(self, file: Any, mode: str = "r", *args: Any, **named: Any) -> Any:
        flags = {"wb": os.O_WRONLY | os.O_TRUNC, "w+b": os.O_RDWR | os.O_TRUNC, "r+b": os.O_RDWR}.get(mode)
        if isinstance(file, int) or self._ours(file) is None:
            return self._open(file, mode, *args, **named)
        if flags is not None:
            return self._open_file(file, flags)
        if self._reads and mode in ("rb", "r"):
            reading = _Reading(str(file), lambda: self._step("read", str(file)))
            return reading if mode == "rb" else io.TextIOWrapper(io.BufferedReader(reading))
        return self._open(file, mode, *args, **named)

    def _fdopen(self, handle: int, mode: str = "r", *args: Any, **named: Any) -> Any:
        if handle in self._paths and "b" in mode and "r" not in mode:
            return _File(handle)
        return self._real["fdopen"](handle, mode, *args, **named)

    def _write(self, handle: int, data: Any) -> int:
        ours = self._ours(handle)
        if ours is not None:
            part = bytes(data)[: len(data) // 2]
            self._step("write", ours, lambda: self._real["write"](handle, part))
        written: int = self._real["write"](handle, data)
        return written

    def _on_path(self, name: str) -> Callable[..., Any]:
        def call(path: Any, *args: Any, dir_fd: int | None = None, **named: Any) -> Any:
            ours = self._ours(path, dir_fd)
            if ours is not None:
                self._step(name, ours)
            if dir_fd is not None:
                named["dir_fd"] = dir_fd
            return self._real[name](path, *args, **named)

        return call


_PATCHED = ("open", "fdopen", "write", "fsync", "fdatasync", "ftruncate", "link", "mkdir", "replace", "rename",
            "unlink", "rmdir")  # fmt: skip


class _Reading(io.FileIO):
    """A file whose reads are steps."""

    def __init__(self, path: str, step: Callable[[], None]) -> None:
        super().__init__(path, "rb")
        self._step = step

    def read(self, size: int | None = -1) -> bytes:
        self._step()
        return super().read(-1 if size is None else size)

    def readall(self) -> bytes:
        self._step()
        return super().readall()

    def readinto(self, buffer: Any) -> int:
        self._step()
        return super().readinto(buffer)


class _File:
    """A file without a buffer of its own, whose writes are steps."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self.closed = False

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        size = len(view)
        while view:
            view = view[os.write(self._handle, view) :]
        return size

    def read(self, size: int = -1) -> bytes:
        raise io.UnsupportedOperation("read")

    def flush(self) -> None:
        return

    def fileno(self) -> int:
        return self._handle

    def tell(self) -> int:
        return os.lseek(self._handle, 0, os.SEEK_CUR)

    def seek(self, offset: int, whence: int = 0) -> int:
        return os.lseek(self._handle, offset, whence)

    def truncate(self, size: int) -> int:
        os.ftruncate(self._handle, size)
        return size

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            os.close(self._handle)

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
