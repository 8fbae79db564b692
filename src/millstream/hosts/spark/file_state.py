"""State of a bucket in files of the checkpoint, which workers read and write themselves.

A micro-batch that changes a bucket leaves one file with what it changed, or, when changes come to as much as the whole,
with everything. Files are never written again: a micro-batch that is repeated begins with what the one before it left,
and leaves a file of its own. So Spark needs no stateful operator: rows go through an exchange and one Python worker.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path
from typing import Any
from uuid import uuid4

from millstream.errors import EngineError, StateError
from millstream.hosts.spark.checkpoints import CHECKPOINT, STATE_PLACE, local
from millstream.hosts.spark.one_value import OneValue, Part
from millstream.hosts.spark.session import KEPT_AS, VARIABLES
from millstream.hosts.spark.stage import FILE_FORMAT
from millstream.records import dataclass

WHOLE_BYTES = 1 << 16
"""State of at most so many bytes is always written as a whole."""

KEPT_VERSIONS = 2
"""Micro-batches before the last one whose state can still be read."""

HELD_BUCKETS = 256
"""Buckets of which a worker remembers where their parts are."""


@dataclass(frozen=True)
class Version:
    """A file: the micro-batch that left it, the one that left the last file with everything, and a name of its own."""

    number: int
    base: int
    own: str

    @property
    def name(self) -> str:
        return f"{self.number}-{self.base}-{self.own}"

    @staticmethod
    def of(name: str) -> Version:
        number, base, own = name.lstrip(".").split("-")
        return Version(int(number), int(base), own)


@dataclass(frozen=True)
class PartPlace:
    """Where a part is."""

    file: str
    begin: int
    size: int


@dataclass
class KnownFiles:
    """What is known of a bucket's files: its last version, where all parts are, and the bytes that changed since the
    last file with everything."""

    version: Version
    places: dict[Part, PartPlace]
    changed: int


_HELD: OrderedDict[str, KnownFiles] = OrderedDict()


class FileValue(OneValue):
    """A bucket at the beginning of a micro-batch: its parts are read when they are asked for."""

    def __init__(self, directory: Path, number: int) -> None:
        super().__init__()
        self._directory, self._number = directory, number
        self._written: dict[Part, bytes | None] = {}
        self._known = self._found()

    def get(self, part: Part) -> bytes | None:
        if part in self._written:
            return self._written[part]
        place = None if self._known is None else self._known.places.get(part)
        return None if place is None else self._read(place)

    def put(self, part: Part, blob: bytes | None) -> None:
        self._written[part] = blob
        self.changed = True

    def _read(self, place: PartPlace) -> bytes:
        with (self._directory / place.file).open("rb") as file:
            file.seek(place.begin)
            return file.read(place.size)

    # -- versions --------------------------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        try:
            return [path.name for path in self._directory.iterdir()]
        except FileNotFoundError:
            self._directory.mkdir(parents=True, exist_ok=True)
            return []

    def _found(self) -> KnownFiles | None:
        """What the last micro-batch before this one left."""
        held = _HELD.pop(str(self._directory), None)
        earlier = [v for v in map(Version.of, (n for n in self._names() if n[0] != ".")) if v.number < self._number]
        if not earlier:
            return None
        last = max(version.number for version in earlier)
        # several if a task was repeated, or state was added to it: the last one is what came of it
        tries = [version for version in earlier if version.number == last]
        if held is not None and tries == [held.version]:
            return held
        version = max(tries, key=lambda version: (self._directory / version.name).stat().st_mtime_ns)
        chain: list[tuple[str, dict[str, Any], int]] = []
        name: str | None = version.name
        while name is not None:
            index, begin = self._index(name)
            chain.append((name, index, begin))
            name = index["after"]
        places: dict[Part, PartPlace] = {}
        for name, index, begin in reversed(chain):
            for *part, size in index["parts"]:
                if size is None:
                    places.pop(tuple(part), None)
                else:
                    places[tuple(part)] = PartPlace(name, begin, size)
                    begin += size
        return KnownFiles(version, places, chain[0][1]["changed"])

    def _index(self, name: str) -> tuple[dict[str, Any], int]:
        """What a file says of its parts, and where they begin."""
        with (self._directory / name).open("rb") as file:
            length = int.from_bytes(file.read(4), "little")
            index = json.loads(file.read(length))
        if index["format"] != FILE_FORMAT:
            raise StateError(
                f"the checkpoint has state files of format {index['format']}, this version reads format {FILE_FORMAT}",
                hint="finish the query with the version that started it, or start with a new checkpoint directory",
            )
        return index, 4 + length

    def amend(self) -> None:
        """Leave it as if the micro-batch before this one had made it so; no task of either may be at work."""
        self._number = self._number - 1 if self._known is None else self._known.version.number
        self.save()

    def save(self) -> None:
        """Leave what this micro-batch made of the bucket."""
        if not self.changed:
            return
        known = self._known
        others = {} if known is None else {p: at for p, at in known.places.items() if p not in self._written}
        fresh = {part: blob for part, blob in self._written.items() if blob is not None}
        changed = sum(map(len, fresh.values()))
        size = changed + sum(place.size for place in others.values())
        if known is None or size <= WHOLE_BYTES or known.changed + changed > size:
            fresh |= {part: self._read(place) for part, place in others.items()}
            version = Version(self._number, self._number, uuid4().hex)
            after, gone, others, changed = None, [], {}, 0
        else:
            version = Version(self._number, known.version.base, uuid4().hex)
            after, changed = known.version.name, known.changed + changed
            gone = [part for part, blob in self._written.items() if blob is None]
        parts = [*([*part, len(blob)] for part, blob in fresh.items()), *([*part, None] for part in gone)]
        index = json.dumps({"format": FILE_FORMAT, "after": after, "changed": changed, "parts": parts}).encode()
        partial = self._directory / f".{version.name}"
        partial.write_bytes(b"".join([len(index).to_bytes(4, "little"), index, *fresh.values()]))
        partial.rename(self._directory / version.name)
        begin = 4 + len(index)
        for part, blob in fresh.items():
            others[part] = PartPlace(version.name, begin, len(blob))
            begin += len(blob)
        self._forget_old()
        _HELD[str(self._directory)] = KnownFiles(version, others, changed)
        while len(_HELD) > HELD_BUCKETS:
            _HELD.popitem(last=False)

    def _forget_old(self) -> None:
        """Remove files that only versions need which nobody goes back to."""
        versions = {name: Version.of(name) for name in self._names()}
        whole = [version for name, version in versions.items() if name[0] != "."]
        oldest = max((v.number for v in whole if v.number <= self._number - KEPT_VERSIONS), default=None)
        if oldest is None:
            return
        needed = min(version.base for version in whole if version.number >= oldest)
        for name, version in versions.items():
            if version.number < needed:
                (self._directory / name).unlink(missing_ok=True)


def state_directory() -> tuple[Path, int]:
    """Where the streaming query that this task belongs to has its state, and the number of its micro-batch."""
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    place, number = (context.getLocalProperty(name) for name in (CHECKPOINT, "streaming.sql.batchId"))
    if not place or number is None or not place.startswith(("file:", "/")):
        raise EngineError(
            f"the checkpoint {place} is not in a file system of this machine"
            if place
            else "workers do not know the checkpoint of their streaming query",
            hint=f"set {KEPT_AS} to {VARIABLES}, which keeps state in Spark's state store",
        )
    return Path(local(place)) / STATE_PLACE, int(number)
