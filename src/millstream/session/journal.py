"""The directory of a persistent session: numbered checkpoints, and a journal of what was done since the last one.

CURRENT names the checkpoint that counts and the checksum of its manifest, which has those of all states. A new
checkpoint and its empty journal are complete before CURRENT changes, in one rename; what does not count is removed.

The states of a checkpoint that the one before has not lie in one file; the other files are those of earlier
checkpoints, linked. Where little is left of one, or it is not larger than what is new, that is written anew: so files
are few, and a state is written a few times however long it stays.
"""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.durable import from_ipc, link_or_copy, sync_directory, to_ipc, write_durably
from millstream.errors import StateError
from millstream.records import dataclass
from millstream.session.frames import EMPTY_SIZE, DamagedError, FrameFile

FORMAT = 3
READABLE = (2, 3)
"""In format 2 every state is a file of its own, and the state of a kernel is in one piece."""
CURRENT = "CURRENT"
MANIFEST, COPY = "manifest.json", "manifest.copy"
"""without its manifest a checkpoint is worth nothing, so repair has another"""


@dataclass(frozen=True)
class StateEntry:
    """Where a state lies: file, first byte, size and checksum."""

    file: str
    start: int
    size: int
    check: int


Note = tuple[dict[str, Any], pa.RecordBatch | None]


@dataclass(frozen=True)
class Current:
    """Which checkpoint counts (0: none yet), and the checksum of its manifest."""

    number: int
    manifest: int
    form: int = FORMAT

    @staticmethod
    def read(directory: Path) -> Current:
        path = directory / CURRENT
        try:
            *parts, check = path.read_text().split()
            name, number, manifest = parts
            if int(check, 16) != _checked(parts):
                raise ValueError("its checksum does not match")
        except FileNotFoundError:
            raise DamagedError(path, 0, "it is missing, or the directory was written by an older version") from None
        except ValueError as error:
            raise DamagedError(path, 0, str(error)) from None
        if name not in [f"millstream-{known}" for known in READABLE]:
            raise StateError(
                f"{directory} was written in format {name.removeprefix('millstream-')}, this version reads {FORMAT}",
                hint="open it with the version that wrote it",
            )
        return Current(int(number), int(manifest, 16), int(name.removeprefix("millstream-")))

    def write(self, directory: Path) -> None:
        parts = [f"millstream-{FORMAT}", str(self.number), f"{self.manifest:08x}"]
        fresh = directory / f".{CURRENT}"
        write_durably(fresh, " ".join([*parts, f"{_checked(parts):08x}"]).encode())
        fresh.replace(directory / CURRENT)
        sync_directory(directory)


_BESIDE = frozenset(
    {"lock", "pipeline.json", "pipeline.sql", "tables.duckdb", "tables.duckdb.wal", "accounts.json", "audit.log"}
)
"""Files that may be there before the first journal is."""


class Journal:
    """One open session's files. Only one session may have a directory open at a time."""

    def __init__(self, directory: Path, *, durable: bool = False) -> None:
        self.directory = directory
        self._durable = durable
        try:
            directory.mkdir(parents=True, mode=0o700, exist_ok=True)
            _require_ours(directory)
            self._lock_file = take_lock(directory)
        except OSError as error:
            raise StateError(
                f"cannot open a session in {directory}: {error.strerror or error}",
                hint="use a directory you can write to",
            ) from None
        self._log: FrameFile | None = None
        self._number = 0
        self._entries: dict[str, StateEntry] = {}
        self.is_older = False
        """whether an older version wrote it, and no checkpoint of this one is there yet"""

    @property
    def tables_path(self) -> Path:
        return self.directory / "tables.duckdb"

    def load(self) -> tuple[dict[str, Any] | None, dict[str, bytes], list[Note]]:
        """The last checkpoint's description and states, and the notes made after it; DamagedError if any of it is not
        what was written."""
        if not _was_used(self.directory) or _was_never_opened(self.directory):
            (self.directory / "journal-0").unlink(missing_ok=True)
            self._open_log(0)
            Current(0, 0).write(self.directory)
        current = Current.read(self.directory)
        manifest: dict[str, Any] | None = None
        blobs: dict[str, bytes] = {}
        if current.number:
            home = self.directory / f"checkpoint-{current.number}"
            manifest = read_manifest(home, current)
            self._entries = entries_of(manifest)
            blobs = {name: read_state(home, entry) for name, entry in self._entries.items()}
        if self._log is None:
            log = self.directory / f"journal-{current.number}"
            if not log.exists():
                raise DamagedError(log, 0, "it is missing")
            self._open_log(current.number)
        assert self._log is not None
        notes = [(json.loads(head), from_ipc(rows)[0] if rows else None) for head, rows in self._log.take()]
        self.is_older = current.form != FORMAT
        self._remove_others()
        return manifest, blobs, notes

    def note(self, what: dict[str, Any], rows: pa.RecordBatch | None = None) -> None:
        """Append to the journal: it survives a crash of the process, and with `durable` one of the machine."""
        if self._log is None:
            raise StateError("this session is closed", hint=f"open it again: ms.connect({str(self.directory)!r})")
        self._log.append(json.dumps(what).encode(), b"" if rows is None else to_ipc([rows]))

    def retract(self) -> None:
        """Take back the last note: what it announced did not happen."""
        if self._log is not None:
            self._log.retract()

    @property
    def durable(self) -> bool:
        return self._durable

    @durable.setter
    def durable(self, durable: bool) -> None:
        self._durable = durable
        if self._log is not None:
            self._log.durable = durable

    def checkpoint(self, manifest: dict[str, Any], names: Collection[str], fresh: Mapping[str, bytes]) -> None:
        """Replace the last checkpoint and its journal by a new one, of the states of these names: those that are not
        given lie in the last one."""
        number = self._number + 1
        home, before = self.directory / f"checkpoint-{number}", self.directory / f"checkpoint-{self._number}"
        kept = {name: entry for name, entry in self._entries.items() if name in names and name not in fresh}
        assert len(kept) + len(fresh) == len(names), "a state is neither saved nor given"
        try:
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir(mode=0o700)
            moved = {name: read_state(before, kept.pop(name)) for name in _to_rewrite(before, kept, fresh)}
            for file in {entry.file for entry in kept.values()}:
                link_or_copy(before / file, home / file)
            current, entries = write_checkpoint(home, number, manifest, kept, {**moved, **fresh})
            (self.directory / f"journal-{number}").unlink(missing_ok=True)
            log = FrameFile(self.directory / f"journal-{number}", number, durable=self._durable)
            current.write(self.directory)
        except OSError as error:
            raise StateError(
                f"cannot save a checkpoint in {self.directory}: {error.strerror or error}",
                hint="the last checkpoint and the journal are still valid; free some space, or check the disk",
            ) from error
        if self._log is not None:
            self._log.close()
        self._log, self._number, self._entries = log, number, entries
        self.is_older = False
        self._remove_others()

    def set_aside(self, note: dict[str, Any], rows: pa.RecordBatch | None, error: Exception) -> Path:
        """Keep a note that could not be replayed where it harms nobody; the file that has it."""
        home = self.directory / "quarantine"
        home.mkdir(mode=0o700, exist_ok=True)
        path = home / f"note-{len(list(home.glob('note-*.json'))) + 1}.json"
        write_durably(path, json.dumps({"error": f"{type(error).__name__}: {error}", "note": note}).encode())
        if rows is not None:
            write_durably(path.with_suffix(".arrows"), to_ipc([rows]))
        return path

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None
        self._lock_file.close()

    def size(self) -> int:
        """Bytes noted since the last checkpoint."""
        return 0 if self._log is None else self._log.size

    def _open_log(self, number: int) -> None:
        self._log = FrameFile(self.directory / f"journal-{number}", number, durable=self._durable)
        self._number = number

    def _remove_others(self) -> None:
        """Remove what a crash left of other checkpoints."""
        kept = {f"checkpoint-{self._number}", f"journal-{self._number}"}
        for path in [*self.directory.glob("checkpoint-*"), *self.directory.glob("journal-*")]:
            if path.name in kept:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                # it does no harm, and the next checkpoint tries again
                with suppress(OSError):
                    path.unlink()


def read_manifest(home: Path, current: Current | None, name: str = MANIFEST) -> dict[str, Any]:
    """What a checkpoint says of itself; it must fit CURRENT, if that is given."""
    path = home / name
    try:
        data = path.read_bytes()
        if current is not None and zlib.crc32(data) != current.manifest:
            raise DamagedError(path, 0, "it does not match the checksum in CURRENT")
        manifest: dict[str, Any] = json.loads(data)
    except FileNotFoundError:
        raise DamagedError(path, 0, "it is missing") from None
    except ValueError as error:
        raise DamagedError(path, 0, str(error)) from None
    return manifest


def entries_of(manifest: Mapping[str, Any]) -> dict[str, StateEntry]:
    """Where the states of a checkpoint lie."""
    found = manifest["blobs"].items()
    return {
        name: StateEntry(*place) if len(place) == 4 else StateEntry(place[0], 0, *place[1:]) for name, place in found
    }


def read_state(home: Path, entry: StateEntry) -> bytes:
    """A state by its entry in the manifest."""
    try:
        with (home / entry.file).open("rb") as file:
            file.seek(entry.start)
            data = file.read(entry.size)
    except FileNotFoundError:
        raise DamagedError(home / entry.file, 0, "it is missing") from None
    if len(data) != entry.size or zlib.crc32(data) != entry.check:
        raise DamagedError(home / entry.file, entry.start, "it does not match its checksum in the manifest")
    return data


def write_checkpoint(
    home: Path, number: int, manifest: dict[str, Any], kept: Mapping[str, StateEntry], fresh: Mapping[str, bytes]
) -> tuple[Current, dict[str, StateEntry]]:
    """Write the files of a checkpoint beside those of states that are kept; it counts once CURRENT says so."""
    entries, start = dict(kept), 0
    for name, data in fresh.items():
        entries[name] = StateEntry(f"states-{number}", start, len(data), zlib.crc32(data))
        start += len(data)
    if fresh:
        write_durably(home / f"states-{number}", *fresh.values())
    text = json.dumps({**manifest, "blobs": {name: list(astuple(entry)) for name, entry in entries.items()}}).encode()
    for name in (MANIFEST, COPY):
        write_durably(home / name, text)
    sync_directory(home)
    return Current(number, zlib.crc32(text)), entries


def _to_rewrite(home: Path, kept: Mapping[str, StateEntry], fresh: Mapping[str, bytes]) -> list[str]:
    """The states to write again though they are saved, so that files are few and mostly of use."""
    size = sum(map(len, fresh.values()))
    by_file: dict[str, list[str]] = {}
    for name, entry in kept.items():
        by_file.setdefault(entry.file, []).append(name)
    used = {file: sum(kept[name].size for name in names) for file, names in by_file.items()}
    found: list[str] = []
    for file in sorted(used, key=lambda file: used[file]):
        if used[file] <= size or 2 * used[file] < (home / file).stat().st_size:
            found += by_file[file]
            size += used[file]
    return found


def take_lock(directory: Path) -> Any:
    """The lock of a directory, which goes with the process that holds it."""
    import fcntl

    handle = (directory / "lock").open("w")
    (directory / "lock").chmod(0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.close()
        raise StateError(f"{directory} is open in another session", hint="close that one first") from None
    return handle


def _require_ours(directory: Path) -> None:
    """A directory with files of somebody else is left alone."""
    foreign = sorted(path.name for path in directory.iterdir() if path.name not in _BESIDE)
    if foreign and not _was_used(directory):
        raise StateError(
            f"{directory} is not the directory of a session",
            detail=f"it holds {foreign[0]}",
            hint="use a new or an empty directory",
        )


def _was_used(directory: Path) -> bool:
    names = {path.name for path in directory.iterdir()}
    return CURRENT in names or any(name.startswith(("checkpoint-", "journal-")) for name in names)


def _was_never_opened(directory: Path) -> bool:
    """Whether the first opening did not get to its end: there is a journal in which nothing was ever noted."""
    names = {path.name for path in directory.iterdir()}
    first = [name for name in names if name == CURRENT or name.startswith(("checkpoint-", "journal-"))]
    return first == ["journal-0"] and (directory / "journal-0").stat().st_size <= EMPTY_SIZE


def _checked(parts: list[str]) -> int:
    return zlib.crc32(" ".join(parts).encode())
