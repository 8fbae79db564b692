"""Where kernel source lives on disk: the compiler caches machine code beside the file it compiled."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import sys
import tempfile
from functools import cache
from pathlib import Path

_FORMAT = "1"


@cache
def _versions() -> str:
    from importlib.metadata import version

    return f"{_FORMAT} python {platform.python_version()} numba {version('numba')}"


def fingerprint(source: str) -> str:
    """What the compiled code depends on, as a short name."""
    return hashlib.sha256(f"{_versions()}\n{source}".encode()).hexdigest()[:24]


def directory() -> Path:
    """The first of MILLSTREAM_CACHE, the user's cache directory and a private temporary one that can be written."""
    chosen = os.environ.get("MILLSTREAM_CACHE")
    wanted = Path(chosen) if chosen else _user_cache() / "millstream"
    return _writable(wanted) or _private_temporary()


def put(name: str, text: str) -> Path:
    """A file of the cache with this text; many processes may put the same one at once."""
    path = directory() / name
    with contextlib.suppress(OSError):
        if path.read_text() == text:
            return path
    handle, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    # The compiler trusts its cache only while the source file keeps its time stamp: always give it the same one.
    os.utime(temporary, (0, 0))
    Path(temporary).replace(path)
    return path


def is_compiled(path: Path, function: str) -> bool:
    """Whether machine code of a function of this file was kept by an earlier compilation."""
    return any((path.parent / "__pycache__").glob(f"{path.stem}.{function}-*.nbi"))


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


@cache
def _writable(path: Path) -> Path | None:
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except (OSError, RuntimeError):
        return None


@cache
def _private_temporary() -> Path:
    # Code is imported from here, so a directory that another user made first must not be trusted.
    path = Path(tempfile.gettempdir()) / f"millstream-{_user()}"
    with contextlib.suppress(OSError):
        path.mkdir(mode=0o700, exist_ok=True)
        status = path.lstat()
        if path.is_dir() and not path.is_symlink() and status.st_uid == _user() and not status.st_mode & 0o022:
            return path
    return Path(tempfile.mkdtemp(prefix="millstream-"))


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0
