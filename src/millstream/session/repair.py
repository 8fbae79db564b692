"""Repair of a damaged session directory: what is intact stays, the rest is set aside and reported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from millstream.errors import StateError
from millstream.hosts.embedded.checkpoint import lost_queries, lost_streams, without_states
from millstream.session.frames import DamagedError, FrameFile, salvage
from millstream.session.journal import COPY, Current, entries_of, read_manifest, read_state, take_lock, write_checkpoint


def repair(directory: Path) -> list[str]:
    """Repair a directory and say, line by line, what was lost. Nothing is deleted: originals go to `damaged/`."""
    if not directory.is_dir():
        raise StateError(f"{directory} is not the directory of a session")
    lock = take_lock(directory)
    try:
        return _Repair(directory).run()
    finally:
        lock.close()


class _Repair:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._report: list[str] = []
        self._is_rewritten = False

    def run(self) -> list[str]:
        current = self._current()
        if current.number:
            current = self._checkpoint(current)
        self._journal(current.number)
        current.write(self._directory)
        return self._report or ["nothing is damaged"]

    def _current(self) -> Current:
        try:
            return Current.read(self._directory)
        except DamagedError as error:
            self._report.append(f"{error.message}: {error.detail}")
        numbers = sorted(
            (int(path.name.partition("-")[2]) for path in self._directory.glob("checkpoint-*") if path.is_dir()),
            reverse=True,
        )
        for number in numbers:
            try:
                self._manifest(self._directory / f"checkpoint-{number}", None)
            except DamagedError:
                continue
            self._report.append(f"checkpoint {number} is used as the last one")
            return Current(number, 0)
        if not (self._directory / "journal-0").exists():
            raise StateError(
                f"{self._directory} has neither an intact checkpoint nor the first journal",
                hint="restore it from a backup, or start in a new directory",
            )
        return Current(0, 0)

    def _manifest(self, home: Path, current: Current | None) -> dict[str, Any]:
        """The manifest, or its copy."""
        try:
            return read_manifest(home, current if current is not None and current.manifest else None)
        except DamagedError as error:
            self._report.append(f"{error.message}: {error.detail}; its copy is used")
            self._is_rewritten = True
            return read_manifest(home, None, COPY)

    def _checkpoint(self, current: Current) -> Current:
        """The checkpoint without the queries whose state is damaged."""
        home = self._directory / f"checkpoint-{current.number}"
        manifest = self._manifest(home, current)
        states: dict[str, bytes] = {}
        lost: list[str] = []
        for name, entry in entries_of(manifest).items():
            try:
                states[name] = read_state(home, entry)
            except DamagedError as error:
                self._report.append(f"{error.message}: {error.detail}")
                lost.append(name)
        if not lost and current.manifest and not self._is_rewritten:
            return current
        kept, host = dict(manifest["kept"]), manifest["host"]
        for query in lost_queries(host["queries"], lost):
            del host["queries"][query]
            record = kept.pop(f"query:{query}", None) or kept.pop(f"entry:{query}", None)
            self._report.append(f"query {query} is lost with its state: {_text_of(record)}")
        self._report += [f"rows of {stream} that waited to be sorted are lost" for stream in lost_streams(lost)]
        self._set_aside(home)
        home.mkdir(mode=0o700)
        manifest = {**manifest, "kept": list(kept.items())}
        del manifest["blobs"]
        names = without_states(states, host["queries"].values(), lost)
        return write_checkpoint(home, current.number, manifest, {}, {name: states[name] for name in sorted(names)})[0]

    def _journal(self, number: int) -> None:
        path = self._directory / f"journal-{number}"
        if not path.exists():
            self._report.append(f"{path} is missing: everything since checkpoint {number} is lost")
        else:
            frames, damage, behind = salvage(path, number)
            if damage is None:
                return
            self._report.append(f"{damage.message}: {damage.detail}")
            self._report.append(
                f"{len(frames)} notes before it are kept; what follows is lost, {behind} whole notes among it, "
                "since they may depend on what is damaged"
            )
            self._set_aside(path)
            fresh = FrameFile(path, number)
            for frame in frames:
                fresh.append(*frame)
            fresh.close()
            return
        FrameFile(path, number).close()

    def _set_aside(self, path: Path) -> None:
        home = self._directory / "damaged"
        home.mkdir(mode=0o700, exist_ok=True)
        taken = len(list(home.iterdir()))
        target = home / f"{taken + 1}-{path.name}"
        shutil.move(path, target)
        self._report.append(f"the original is {target}")


def _text_of(record: dict[str, Any] | None) -> str:
    """The SQL of a query that was kept, as far as it can be read."""
    try:
        form = json.loads((record or {})["query"])
        return str(form["plan"]["text"])
    except (KeyError, TypeError, ValueError):
        return "start it again"
