"""The directory of a run that can be resumed: which pipeline it belongs to, and whether that has started.

The session keeps its own files there; ours says which text they came from, so that another text is not run on them.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

from millstream.durable import write_durably
from millstream.errors import StateError

MARK = "pipeline.json"


class RunDirectory:
    """Knows if a run starts anew or goes on."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path.expanduser()
        self.is_edited = False
        """whether the run that is to be resumed had another text"""
        self._text = text

    def prepare(self) -> bool:
        """Make the directory ready; True if an earlier run is to be resumed."""
        mark = self._read()
        if mark is None:
            if self.path.exists() and any(self.path.iterdir()):
                raise StateError(f"{self.path} is not the directory of a pipeline run", hint="use a new directory")
            self._write(started=False)
            return False
        if not mark["started"]:
            # the first run ended before all its statements took effect: nothing of it counts
            self._clear()
        self.is_edited = mark["sha256"] != _digest(self._text)
        return bool(mark["started"])

    def started(self) -> None:
        """All statements of the pipeline have taken effect; from now on a run resumes."""
        self._write(started=True)

    def _read(self) -> dict[str, object] | None:
        try:
            mark: dict[str, object] = json.loads((self.path / MARK).read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise StateError(f"cannot read {self.path / MARK}", detail=str(error)) from None
        return mark

    def _write(self, *, started: bool) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / "pipeline.sql").write_text(self._text, encoding="utf-8")
            temporary = self.path / f".{MARK}"
            write_durably(temporary, json.dumps({"sha256": _digest(self._text), "started": started}).encode())
            temporary.rename(self.path / MARK)
        except OSError as error:
            raise StateError(f"cannot write to {self.path}: {error.strerror}") from None

    def _clear(self) -> None:
        import fcntl

        with (self.path / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise StateError(f"{self.path} is in use by another run", hint="wait for it, or stop it") from None
            for entry in self.path.iterdir():
                if entry.name in (MARK, "pipeline.sql", "lock"):
                    continue
                if entry.is_dir():
                    shutil.rmtree(entry)
                else:
                    entry.unlink()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
