"""Lines of generated source, indented by the blocks they stand in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count

_STEP = "    "


def indented(lines: Iterable[str], by: int = 1) -> list[str]:
    """The lines so many blocks deeper."""
    return [f"{_STEP * by}{line}" for line in lines]


def block(head: str, *lines: str) -> list[str]:
    """The lines under a head."""
    return [head, *indented(lines)]


def filled(template: str, **parts: Iterable[str]) -> str:
    """A template in which a line with a name in brackets, `<name>`, stands for lines at its depth."""
    lines = []
    for line in template.splitlines():
        name = line.strip()
        if name.startswith("<") and name.endswith(">"):
            lines += [line.replace(name, part) for part in parts[name[1:-1]]]
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


class Writer:
    """Collects lines and gives out names that no other part of the source has."""

    def __init__(self, depth: int = 1) -> None:
        self.lines: list[str] = []
        self._depth = depth
        self._numbers = count(1)
        self.blocks: tuple[int, ...] = ()
        """the blocks that stand open, each by a number of its own"""
        self._blocks = 0

    def __call__(self, *lines: str) -> None:
        self.lines += indented(lines, self._depth)

    def inner(self) -> Writer:
        """A writer of its own lines, whose names are new here, too."""
        made = Writer(0)
        made._numbers = self._numbers
        return made

    def fresh(self, stem: str) -> str:
        return f"{stem}{next(self._numbers)}"

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """What is written inside stands under `head`."""
        self(head)
        self._depth += 1
        self._blocks += 1
        outer, self.blocks = self.blocks, (*self.blocks, self._blocks)
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self("pass")
        self._depth -= 1
        self.blocks = outer

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """What is written inside runs where a condition holds."""
        if condition == "True":
            yield
            return
        with self.block(f"if {condition}:"):
            yield
