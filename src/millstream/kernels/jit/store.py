"""Where kernel source lives on disk: the compiler caches machine code beside the file it compiled.

The compiler runs what it finds there, so the directory is private to the user: others neither write nor read it, and
the names of its files depend on a key that lies in it.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import platform
import sys
import tempfile
from functools import cache
from pathlib import Path

_FORMAT = "1"
_KEY_BYTES = 32


@cache
def _versions() -> str:
    from importlib.metadata import version

    return f"{_FORMAT} python {platform.python_version()} numba {version('numba')}"


def fingerprint(source: str) -> str:
    """What the compiled code depends on, as a short name that only this user can tell."""
    return hmac.digest(_key(directory()), f"{_versions()}\n{source}".encode(), "sha256").hex()[:24]


def directory() -> Path:
    """The first of MILLSTREAM_CACHE, the user's cache directory and a new temporary one that is ours alone."""
    chosen = os.environ.get("MILLSTREAM_CACHE")
    return _private(Path(chosen) if chosen else _user_cache() / "millstream") or _private_temporary()


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
def _private(path: Path) -> Path | None:
    """The directory, made if need be, if nobody else could have put anything into it."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if hasattr(os, "getuid"):
            path = path.resolve()
            status = path.stat()
            if status.st_uid != os.getuid() or status.st_mode & 0o022 or any(map(_is_shared, path.parents)):
                return None
            path.chmod(0o700)
        with tempfile.TemporaryFile(dir=path):
            return path
    except (OSError, RuntimeError):
        return None


def _is_shared(path: Path) -> bool:
    """Whether somebody else may rename what is in a directory."""
    status = path.stat()
    others = status.st_mode & 0o022 and not status.st_mode & 0o1000
    return bool(others) or status.st_uid not in (0, os.getuid())


@cache
def _private_temporary() -> Path:
    path = _private(Path(tempfile.gettempdir()) / f"millstream-{_user()}")
    return path or Path(tempfile.mkdtemp(prefix="millstream-"))


@cache
def _key(directory: Path) -> bytes:
    """The key of a cache; whoever comes first makes it."""
    path = directory / "key"
    with contextlib.suppress(OSError):
        if len(known := path.read_bytes()) == _KEY_BYTES:
            return known
    handle, temporary = tempfile.mkstemp(prefix=".key.", dir=directory)
    with os.fdopen(handle, "wb") as file:
        file.write(os.urandom(_KEY_BYTES))
    with contextlib.suppress(FileExistsError):
        os.link(temporary, path)
    Path(temporary).unlink()
    return path.read_bytes()


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0
