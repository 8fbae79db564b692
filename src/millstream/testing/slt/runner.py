"""Running golden files: on any host, under any settings, comparing step by step or in total."""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from millstream.records import dataclass
from millstream.testing.slt.configs import DEFAULT, SltConfig
from millstream.testing.slt.player import FAILURE, Player
from millstream.testing.slt.records import Record, Script, parse


class Mismatch(AssertionError):
    """A file's expectation and what came out differ."""


def run(script: Script, config: SltConfig = DEFAULT) -> None:
    """Play a file and raise `Mismatch` where it does not come out as written."""
    for _ in steps(script, config):
        pass


def steps(script: Script, config: SltConfig) -> Generator[Player, None, None]:
    """Play a file, as `run` does, with a stop before each `finish`, where the session is handed out."""
    with _playing(script, config) as player:
        total = Total(script)
        for record in script.records:
            if record.verb == "finish":
                yield player
            step = player.play(record)
            if config.compare == "total" and step.running is not None:
                total.add(record, step.lines, step.running)
            elif record.expected is not None and not (record.verb == "explain" and not config.explains):
                _compare(script, record, record.expected, step.lines)
        if config.compare == "total":
            total.compare(player.rest(), player.surplus)


def complete(path: Path) -> bool:
    """Rewrite what a file expects by what comes out; true if that changed it."""
    script = parse(path)
    answers: dict[Record, tuple[str, ...]] = {}
    with _playing(script, DEFAULT) as player:
        for record in script.records:
            step = player.play(record)
            if record.expected is not None:
                answers[record] = step.lines
    text = script.replaced(answers)
    if text == path.read_text(encoding="utf-8"):
        return False
    path.write_text(text, encoding="utf-8")
    return True


@contextmanager
def _playing(script: Script, config: SltConfig) -> Iterator[Player]:
    with tempfile.TemporaryDirectory(prefix="slt-") as directory:
        player = Player(script, config, Path(directory) / "session")
        try:
            yield player
        finally:
            player.close()


@dataclass
class Total:
    """Each query's rows over the whole file, as expected and as they came."""

    script: Script

    def __post_init__(self) -> None:
        self._expected: dict[str, list[str]] = {}
        self._actual: dict[str, list[str]] = {}

    def add(self, record: Record, lines: tuple[str, ...], running: tuple[str, ...]) -> None:
        _extend(self._expected, _by_query(record.expected or (), running))
        _extend(self._actual, _by_query(lines, running))

    def compare(self, rest: Mapping[str, list[str]], surplus: int) -> None:
        """Take in what was left at the end; `surplus` rows more than expected are no harm if they come last."""
        _extend(self._actual, rest)
        for query in {**self._expected, **self._actual}:
            expected, actual = self._expected.get(query, []), self._actual.get(query, [])
            if 0 < len(actual) - len(expected) <= surplus:
                actual = actual[: len(expected)]
            if self.script.unordered:
                expected, actual = sorted(expected), sorted(actual)
            if expected != actual:
                place = f"{self.script.path}: all rows of {query or 'the file'}"
                raise Mismatch(f"{place}\n{difference(expected, actual)}")


def _extend(totals: dict[str, list[str]], rows: Mapping[str, list[str]]) -> None:
    for query, lines in rows.items():
        totals.setdefault(query, []).extend(lines)


def _by_query(lines: tuple[str, ...], running: tuple[str, ...]) -> dict[str, list[str]]:
    """The lines of each query; failures of the step itself go under no name, for rows may come later than they do."""
    rows: dict[str, list[str]] = {}
    for line in lines:
        query, colon, row = line.partition(": ")
        if len(running) == 1:
            query, row = ("" if line.startswith(FAILURE) else running[0]), line
        elif not colon or query not in running:
            query, row = "", line
        rows.setdefault(query, []).append(row)
    return rows


def _compare(script: Script, record: Record, expected: tuple[str, ...], actual: tuple[str, ...]) -> None:
    if script.has_unordered_steps:
        expected, actual = tuple(sorted(expected)), tuple(sorted(actual))
    if expected != actual:
        title = f"{script.path}:{record.line}: {record.verb} {record.args}".rstrip()
        raise Mismatch(f"{title}\n{difference(list(expected), list(actual))}")


def difference(expected: list[str], actual: list[str]) -> str:
    """What was expected and did not come (-), and what came and was not expected (+)."""
    lines = difflib.ndiff(expected, actual)
    return "\n".join(line for line in lines if not line.startswith("?"))
