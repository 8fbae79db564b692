"""The plans of an open job: data that workers read at each micro-batch, so that the job's DataFrame never changes.

Beside the checkpoint there is a file for each set of queries that the job has had, in the form of plans, and before a
micro-batch runs a note which of them it runs. What workers do with a set follows from it; the driver puts that beside
it for the workers of its own run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from millstream import errors
from millstream.durable import sync_directory
from millstream.errors import EngineError, MillstreamError, StateError
from millstream.hosts.spark.job.control import RETAINED, batch_at_hand, note_name, put_whole
from millstream.hosts.spark.job.fan import PACKED_SCHEMA, Fan
from millstream.hosts.spark.job.sealed import new_key, opened, sealed
from millstream.hosts.spark.steps import Pipeline
from millstream.records import dataclass

PLACE = "millstream/plans"


@dataclass(frozen=True)
class AtEachBatch:
    """A worker's work that is looked up at each micro-batch, by its name; for a source behind a pipeline."""

    directory: str
    run: str
    key: bytes
    name: str
    pipeline: Pipeline | None = None

    @property
    def columns(self) -> pa.Schema:
        return PACKED_SCHEMA

    def over(self, pipeline: Pipeline) -> AtEachBatch:
        """The same work behind what opens the rows of a source."""
        return replace(self, pipeline=pipeline)

    def __call__(self, given: Any) -> Any:
        work = _work(self.directory, self.run, self.key, batch_at_hand())[self.name]
        if self.pipeline is not None:
            if work.fan == Fan():
                for _ in given:  # nobody asks for these rows: they are not opened
                    pass
                return
            work = replace(self.pipeline, closing=work)
        try:
            yield from work(given)
        except Exception as error:
            if blamed := getattr(error, "blamed", None):
                _tell_failure(Path(self.directory), batch_at_hand(), blamed, error)
            raise


def _tell_failure(directory: Path, batch: int, blamed: tuple[list[int], list[int]], error: Exception) -> None:
    """For the driver: work for some stages and outlets failed."""
    kind = type(error).__name__
    known = error if isinstance(error, MillstreamError) else EngineError(f"{kind}: {error}")
    told = {
        "stages": blamed[0],
        "outlets": blamed[1],
        "kind": kind,
        "message": known.message,
        "detail": known.detail,
        "hint": known.hint,
    }
    put_whole(directory / f"failed-{batch}-{uuid4().hex[:12]}.json", json.dumps(told).encode())


@dataclass(frozen=True)
class Failure:
    """Work that failed in a micro-batch: for which stages and outlets, and why."""

    stages: tuple[int, ...]
    outlets: tuple[int, ...]
    error: MillstreamError


def _work(directory: str, run: str, key: bytes, batch: int) -> Mapping[str, Any]:
    """What workers of a micro-batch do, by name."""
    noted = json.loads((Path(directory) / note_name(batch)).read_text())
    return _loaded(directory, run, key, noted["plans"])


@lru_cache(8)
def _loaded(directory: str, run: str, key: bytes, digest: str) -> Mapping[str, Any]:
    work: Mapping[str, Any] = opened(_work_file(Path(directory), run, digest).read_bytes(), key)
    return work


def _work_file(directory: Path, run: str, digest: str) -> Path:
    return directory / f"work-{run}-{digest}"


def digest_of(text: str) -> str:
    """The name of a set of queries."""
    return sha256(text.encode()).hexdigest()[:20]


class PlanFiles:
    """The driver's side: it writes sets of queries down, and which of them a micro-batch runs."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._run, self._key = uuid4().hex[:12], new_key()
        directory.mkdir(parents=True, exist_ok=True)
        _unlink([*directory.glob("work-*"), *directory.glob("failed-*")])

    def at_work(self, name: str) -> AtEachBatch:
        """What workers look up under that name."""
        return AtEachBatch(str(self._directory), self._run, self._key, name)

    def noted(self, batch: int) -> str | None:
        """The set that a micro-batch ran with when it was tried before."""
        place = self._directory / note_name(batch)
        return json.loads(place.read_text())["plans"] if place.exists() else None

    def note(self, batch: int, digest: str) -> None:
        """Before a micro-batch runs: it runs with that set."""
        put_whole(self._directory / note_name(batch), json.dumps({"plans": digest}).encode())
        sync_directory(self._directory)
        if batch % 50 == 0:
            self._forget(batch - RETAINED, digest)

    def failures(self, batch: int) -> list[Failure]:
        """What workers told of a micro-batch that failed; it is told once."""
        found = []
        for place in sorted(self._directory.glob(f"failed-{batch}-*.json")):
            told = json.loads(place.read_text())
            kind = getattr(errors, told["kind"], None)
            made = kind if isinstance(kind, type) and issubclass(kind, MillstreamError) else EngineError
            error = made(told["message"], detail=told["detail"], hint=told["hint"])
            found.append(Failure(tuple(told["stages"]), tuple(told["outlets"]), error))
            place.unlink()
        return found

    def forget_last(self) -> None:
        """Let the last micro-batch, if it runs again, run with the queries of then."""
        _unlink(sorted(self._directory.glob("batch-*.json"))[-1:])

    def put(self, digest: str, text: str) -> None:
        """Write a set down."""
        place = self._set_file(digest)
        if not place.exists():
            put_whole(place, text.encode())

    def get(self, digest: str) -> str:
        try:
            return self._set_file(digest).read_text()
        except OSError as error:
            raise StateError(
                "the checkpoint does not have the queries of its last micro-batch", detail=str(error)
            ) from None

    def put_work(self, digest: str, work: Mapping[str, Any]) -> None:
        """What workers of this run do with a set."""
        place = _work_file(self._directory, self._run, digest)
        if not place.exists():
            put_whole(place, sealed(work, self._key))

    def _set_file(self, digest: str) -> Path:
        return self._directory / f"set-{digest}.json"

    def _forget(self, before: int, current: str) -> None:
        """Notes and sets that no micro-batch can ask for any more."""
        notes = {path: int(path.stem.removeprefix("batch-")) for path in self._directory.glob("batch-*.json")}
        used = {current, *(self.noted(number) for number in notes.values() if number >= before)}
        _unlink(path for path, number in notes.items() if number < before)
        _unlink(path for path in self._directory.glob("set-*") if path.stem.removeprefix("set-") not in used)
        _unlink(path for path in self._directory.glob("work-*") if path.name.rpartition("-")[2] not in used)


def forget_from(directory: Path, batch: int) -> None:
    """Let micro-batches from this one on, if they are repeated, run with the queries of then."""
    _unlink(path for path in directory.glob("batch-*.json") if int(path.stem.removeprefix("batch-")) >= batch)


def _unlink(paths: Iterable[Path]) -> None:
    for path in list(paths):
        path.unlink(missing_ok=True)
