"""The text of a golden file: records, what each expects, and how to put new expectations in their place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from millstream.records import dataclass

SEPARATOR = "----"
VERBS = (
    "statement", "stream", "push", "advance", "clock", "restart", "finish", "query", "explain", "only", "notyet",
)  # fmt: skip
ANSWERED = ("push", "advance", "finish", "query", "explain")


class SltError(Exception):
    """The file itself is wrong: it cannot be read as records."""


@dataclass(frozen=True)
class Record:
    """A verb with its arguments and body, and the lines it expects (None: it says nothing).

    `answer` is the range of lines (from 0, half-open) that the expectation takes up in the file.
    """

    verb: str
    args: str
    body: tuple[str, ...]
    expected: tuple[str, ...] | None
    line: int
    answer: tuple[int, int]

    @property
    def text(self) -> str:
        return "\n".join(self.body)


@dataclass(frozen=True)
class Marker:
    """`only host "reason"` or `notyet host "reason"`: where the file does not run, and why."""

    verb: str
    host: str
    reason: str


@dataclass(frozen=True)
class Script:
    """A golden file. `headers` are its `# key: value` comments."""

    path: Path
    lines: tuple[str, ...]
    headers: Mapping[str, str]
    records: tuple[Record, ...]
    markers: tuple[Marker, ...] = ()
    also: frozenset[str] = field(default=frozenset())

    @property
    def unordered(self) -> bool:
        return "unordered" in self.headers

    @property
    def has_unordered_steps(self) -> bool:
        return self.headers.get("unordered") == "[steps]"

    def uses(self, verb: str) -> bool:
        return any(record.verb == verb for record in self.records)

    def replaced(self, answers: Mapping[Record, tuple[str, ...]]) -> str:
        """The file's text with other expectations."""
        lines = list(self.lines)
        for record in sorted(answers, key=lambda record: record.line, reverse=True):
            start, stop = record.answer
            lines[start:stop] = [SEPARATOR, *answers[record]]
        return "\n".join(lines) + "\n"


def parse(path: Path, verbs: tuple[str, ...] = VERBS, answered: tuple[str, ...] = ANSWERED) -> Script:
    """Read a golden file; `answered` are the verbs that always say what is expected after them."""
    lines = tuple(line.rstrip() for line in path.read_text(encoding="utf-8").splitlines())
    headers = _headers(lines)
    records: list[Record] = []
    position = 0
    while position < len(lines):
        if not lines[position] or lines[position].startswith("#"):
            position += 1
            continue
        try:
            record, position = _record(lines, position, verbs, answered)
        except ValueError as error:
            raise SltError(f"{path}:{position + 1}: {error}") from None
        records.append(record)
    markers = tuple(_marker(path, record) for record in records if record.verb in ("only", "notyet"))
    also = frozenset(re.findall(r"[\w-]+", headers.get("also", "")))
    return Script(path, lines, headers, tuple(r for r in records if r.verb not in ("only", "notyet")), markers, also)


def _headers(lines: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        if not line.startswith("#"):
            break
        match = re.fullmatch(r"#\s*(\w+)(?::\s*(.*))?", line)
        if match is not None:
            found[match[1]] = match[2] or ""
    return found


def _record(
    lines: tuple[str, ...], start: int, verbs: tuple[str, ...], answered: tuple[str, ...]
) -> tuple[Record, int]:
    verb, _, args = lines[start].partition(" ")
    if verb not in verbs:
        raise ValueError(f"no verb {verb}; there is {', '.join(verbs)}")
    body: list[str] = []
    position = start + 1
    while position < len(lines) and lines[position] and lines[position] != SEPARATOR:
        if not lines[position].startswith("#"):
            body.append(lines[position])
        position += 1
    answer_start = position
    expected: tuple[str, ...] | None = None
    if position < len(lines) and lines[position] == SEPARATOR:
        while position < len(lines) and lines[position]:
            position += 1
        expected = lines[answer_start + 1 : position]
    if verb in answered and expected is None:
        raise ValueError(f"{verb} needs {SEPARATOR} and the expected rows (none is fine)")
    return Record(verb, args.strip(), tuple(body), expected, start + 1, (answer_start, position)), position


def _marker(path: Path, record: Record) -> Marker:
    match = re.fullmatch(r'([\w-]+)\s+"([^"]+)"', record.args)
    if match is None:
        raise SltError(f'{path}:{record.line}: write {record.verb} host "reason"')
    return Marker(record.verb, match[1], match[2])
