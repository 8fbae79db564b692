"""A copy of a session's directory at one instant, taken while the session goes on.

Files of a checkpoint and of history never change, so they are held by links for as long as the copy takes; only what
does change, the stored tables and the journal, is copied while rows wait.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from millstream.durable import link_or_copy, sync_directory
from millstream.errors import StateError

_HELD = ".backup"
_LEFT_OUT = ("lock", "audit.log", "quarantine", _HELD)


@contextmanager
def delivered(directory: Path, target: Path) -> Iterator[Callable[[], None]]:
    """Copies a session's directory as it was when the function that it gives was called; meanwhile nothing may be
    written to the directory. The target is there when it is complete."""
    _require_free(directory, target)
    held = directory / _HELD
    shutil.rmtree(held, ignore_errors=True)
    held.mkdir(mode=0o700)
    try:
        yield lambda: _hold(directory, held)
        _deliver(held, target)
    finally:
        shutil.rmtree(held, ignore_errors=True)


def _require_free(directory: Path, target: Path) -> None:
    if target.exists() or not target.name:
        raise StateError(f"{target} already exists", hint="back up to a new name")
    if not target.parent.is_dir():
        raise StateError(f"there is no directory {target.parent}", hint="make it first")
    if target.parent.resolve().is_relative_to(directory.resolve()):
        raise StateError("a backup cannot be inside the session's directory")


def _hold(directory: Path, held: Path) -> None:
    for path in directory.iterdir():
        if path.name.startswith(_LEFT_OUT):
            continue
        if path.is_dir():  # checkpoints and history
            shutil.copytree(path, held / path.name, copy_function=_linked)
        else:
            shutil.copyfile(path, held / path.name)


def _deliver(held: Path, target: Path) -> None:
    draft = target.with_name(f".{target.name}.partial")
    try:
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(held, draft, copy_function=_copied)
        for path in (*(each for each in draft.rglob("*") if each.is_dir()), draft):
            path.chmod(0o700)
            sync_directory(path)
        draft.rename(target)
        sync_directory(target.parent)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise StateError(f"cannot write a backup to {target}: {error.strerror or error}") from error


def _linked(source: str, target: str) -> None:
    link_or_copy(Path(source), Path(target))


def _copied(source: str, target: str) -> None:
    shutil.copyfile(source, target)
    with Path(target).open("rb+") as file:
        os.fsync(file.fileno())
    Path(target).chmod(0o600)
