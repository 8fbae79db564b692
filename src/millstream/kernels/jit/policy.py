"""How kernels run: compiled or as plain Python, and on how many threads. Each session says so for its own work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import replace
from functools import cache
from typing import Any, Literal, get_args

from millstream.records import dataclass

Mode = Literal["auto", "on", "off"]


@dataclass(frozen=True, slots=True)
class Policy:
    """`auto` runs a kernel's Python body until it has seen `threshold` rows, so that a small query never pays for
    importing and running the compiler; `on` compiles at once; `off` never does. `aside`: under `auto`, rows do not wait
    for the compiler, but run the Python body meanwhile; `bulk`: so many rows are to come that they do wait for it."""

    mode: Mode
    threshold: int
    threads: int
    aside: bool = False
    bulk: bool = False

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise ValueError(f"JIT mode {self.mode!r}: expected one of {', '.join(get_args(Mode))}")
        if self.threads < 1:
            raise ValueError(f"{self.threads} threads: at least one is needed")


def _from_environment() -> Policy:
    given = os.environ.get("MILLSTREAM_JIT", "auto").strip().lower()
    mode: Mode = next((known for known in get_args(Mode) if known == given), "auto")
    return Policy(
        mode, _positive("MILLSTREAM_JIT_THRESHOLD", 2_000), _positive("MILLSTREAM_THREADS", os.cpu_count() or 1)
    )


def _positive(variable: str, default: int) -> int:
    text = os.environ.get(variable, "").strip()
    return max(1, int(text)) if text.isdecimal() else default


_DEFAULT = _from_environment()
_current: ContextVar[Policy] = ContextVar("millstream_jit", default=_DEFAULT)


def current() -> Policy:
    """The policy in force for what this thread does now."""
    return _current.get()


def threads() -> int:
    """How many threads a kernel may use."""
    return _current.get().threads


@cache
def session_policy(mode: Mode, threads: int) -> Policy:
    """The policy of a session with these settings, whose callers wait for each push."""
    return replace(_DEFAULT, mode=mode, threads=threads, aside=True)


def enter(policy: Policy) -> Token[Policy]:
    """Put a policy in force for this thread, until `leave`."""
    return _current.set(policy)


def leave(token: Token[Policy]) -> None:
    _current.reset(token)


@contextmanager
def using(
    mode: Mode | None = None,
    *,
    threads: int | None = None,
    threshold: int | None = None,
    aside: bool | None = None,
    bulk: bool | None = None,
) -> Iterator[None]:
    """Another policy inside a `with` block, for this thread."""
    given: dict[str, Any] = {"mode": mode, "threads": threads, "threshold": threshold, "aside": aside, "bulk": bulk}
    token = enter(replace(current(), **{name: value for name, value in given.items() if value is not None}))
    try:
        yield
    finally:
        leave(token)
