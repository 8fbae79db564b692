"""How kernels run: compiled or as plain Python, and on how many threads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, get_args

Mode = Literal["auto", "on", "off"]


@dataclass(frozen=True, slots=True)
class Policy:
    """`auto` runs a kernel's Python body until it has seen `threshold` rows, so that a small query never pays for
    importing and running the compiler; `on` compiles at once; `off` never does."""

    mode: Mode
    threshold: int
    threads: int


def _from_environment() -> Policy:
    given = os.environ.get("MILLSTREAM_JIT", "auto").strip().lower()
    mode: Mode = next((known for known in get_args(Mode) if known == given), "auto")
    return Policy(
        mode, _positive("MILLSTREAM_JIT_THRESHOLD", 2_000), _positive("MILLSTREAM_THREADS", os.cpu_count() or 1)
    )


def _positive(variable: str, default: int) -> int:
    text = os.environ.get(variable, "").strip()
    return max(1, int(text)) if text.isdecimal() else default


_current = _from_environment()


def current() -> Policy:
    """The policy in force in this process."""
    return _current


def set_mode(mode: Mode) -> None:
    """Choose for the whole process whether kernels run compiled: auto, on or off."""
    global _current
    if mode not in get_args(Mode):
        raise ValueError(f"JIT mode {mode!r}: expected one of {', '.join(get_args(Mode))}")
    _current = replace(_current, mode=mode)


def threads() -> int:
    """How many threads a kernel may use."""
    return _current.threads


def set_threads(count: int) -> None:
    """Choose for the whole process how many threads a kernel may use."""
    global _current
    if count < 1:
        raise ValueError(f"{count} threads: at least one is needed")
    _current = replace(_current, threads=count)


@contextmanager
def using(mode: Mode | None = None, *, threads: int | None = None, threshold: int | None = None) -> Iterator[None]:
    """Another policy inside a `with` block; it holds for the whole process meanwhile."""
    global _current
    before = _current
    try:
        if mode is not None:
            set_mode(mode)
        if threads is not None:
            set_threads(threads)
        if threshold is not None:
            _current = replace(_current, threshold=threshold)
        yield
    finally:
        _current = before
