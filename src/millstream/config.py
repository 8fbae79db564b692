"""Settings of a session: SET name = value, or keyword arguments of connect()."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import field, fields, replace
from typing import Any, Literal, TypeVar

from millstream.errors import BindError
from millstream.limits import Limits, Unfetched
from millstream.plan.relations import Forms
from millstream.records import dataclass

Jit = Literal["auto", "on", "off"]
Durability = Literal["process", "disk"]
WhenUnfetched = Literal["stop", "drop"]
OnError = Literal["stop", "row"]

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Config:
    """Every setting with its default. They change speed, limits and what EXPLAIN shows; only `on_error`, `timezone` and
    `idle_timeout` change results."""

    batch_rows: int = 262_144
    """rows an operator sees at once, at most"""
    threads: int = field(default_factory=lambda: os.cpu_count() or 1)
    """threads a kernel may use"""
    jit: Jit = field(default_factory=lambda: _jit("MILLSTREAM_JIT", os.environ.get("MILLSTREAM_JIT", "auto")))
    """auto: compile once it pays; on: compile at once; off: run the Python bodies"""
    rules: bool = True
    """apply the rewrite rules"""
    disabled_rules: frozenset[str] = frozenset()
    """rules left out, by name"""
    relations: Forms = "auto"
    """how relations run: on intervals, on changes, or as suits the query"""
    checkpoint_seconds: float = 10.0
    """how often a persistent session saves its state while it runs"""
    durability: Durability = "process"
    """what a row survives once `push` has returned: a crash of the process, or (disk) of the machine, too"""
    statement_timeout: float = 0.0
    """seconds that a statement may take, and a query over a batch of rows; 0: as long as it takes"""
    memory_limit: int = 0
    """bytes that stored tables may use, and the state of each operator of a query; 0: no limit"""
    max_output_rows: int = 0
    """rows that a statement may return, and a query may make of a batch of rows; 0: no limit"""
    max_unfetched_rows: int = 0
    """rows of a query that may wait for `fetch()`; 0: no limit"""
    max_unfetched_per_query: int = 0
    """rows of one query among many of `sql_many` that may wait for `fetch()`; 0: no limit"""
    when_unfetched: WhenUnfetched = "stop"
    """what happens when more wait: the query stops with an error, or rows are dropped and counted: the oldest, or of a
    query among many the newest"""

    on_error: OnError = "stop"
    """what an error while computing a value of a row does: it stops the query, or the query goes on without the row"""

    timezone: str = "UTC"
    """the zone in which a TIMESTAMPTZ is cast, truncated and shown where a query names none"""

    idle_timeout: float = 0.0
    """seconds after which a stream that brings nothing does not hold back the others of a query; 0: it always does"""

    @property
    def limits(self) -> Limits:
        """What a statement may cost."""
        return Limits(self.statement_timeout, self.max_output_rows, self.memory_limit)

    @property
    def unfetched(self) -> Unfetched:
        """How many rows may wait to be fetched."""
        return Unfetched(self.max_unfetched_rows, self.when_unfetched == "drop")

    def with_setting(self, name: str, value: object) -> Config:
        """The settings with one changed; RESET is a value of None."""
        if name == "disable_rule":
            names = frozenset(part.strip() for part in str(value or "").split(",") if part.strip())
            _check_rules(names)
            return replace(self, disabled_rules=names)
        known = {entry.name for entry in fields(self)} - {"disabled_rules"}
        if name not in known:
            raise BindError(f"no setting {name}", hint="available: " + ", ".join(sorted(known | {"disable_rule"})))
        setting: dict[str, Any] = {name: getattr(Config(), name) if value is None else _READERS[name](name, value)}
        return replace(self, **setting)


def _check_rules(names: frozenset[str]) -> None:
    from millstream.plan.templates import SHARING
    from millstream.rules import RULE_NAMES

    unknown = names - {*RULE_NAMES, *SHARING}
    if unknown:
        known = ", ".join((*RULE_NAMES, *SHARING))
        raise BindError(f"no rule {', '.join(sorted(unknown))}", hint=f"available: {known}")


def _count(name: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise BindError(f"{name} takes a whole number from 1, not {value}")


def _word(name: str, value: object, words: Mapping[str, _Value], said: str) -> _Value:
    if str(value).lower() in words:
        return words[str(value).lower()]
    raise BindError(f"{name} is {said}, not {value}")


def _limit(name: str, value: object) -> int:
    if value in (0, "0"):
        return 0
    return _count(name, value)


def _bytes(name: str, value: object) -> int:
    if isinstance(value, str) and (found := re.fullmatch(_SIZE, value.strip(), re.IGNORECASE)):
        return int(float(found[1]) * _UNITS[(found[2] or "").upper()])
    if isinstance(value, str):
        raise BindError(f"{name} is a number of bytes, not {value}", hint=f"{name} = '500 MB'")
    return _limit(name, value)


_SIZE = r"(\d{1,12}(?:\.\d{1,6})?) ?([KMGT]?B)?"
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def _switch(name: str, value: object) -> bool:
    words = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
    return _word(name, value, words, "on or off")


def _jit(name: str, value: object) -> Jit:
    words: dict[str, Jit] = {"auto": "auto", "on": "on", "off": "off", "true": "on", "false": "off"}
    return _word(name, value, words, "auto, on or off")


def _forms(name: str, value: object) -> Forms:
    words: dict[str, Forms] = {"auto": "auto", "intervals": "intervals", "changes": "changes"}
    return _word(name, value, words, "auto, intervals or changes")


def _durability(name: str, value: object) -> Durability:
    words: dict[str, Durability] = {"process": "process", "disk": "disk"}
    return _word(name, value, words, "process or disk")


def _when_unfetched(name: str, value: object) -> WhenUnfetched:
    words: dict[str, WhenUnfetched] = {"stop": "stop", "drop": "drop"}
    return _word(name, value, words, "stop or drop")


def _on_error(name: str, value: object) -> OnError:
    words: dict[str, OnError] = {"stop": "stop", "row": "row"}
    return _word(name, value, words, "stop or row")


def _zone(name: str, value: object) -> str:
    from millstream.expressions.functions.temporal import known_zone

    return known_zone(str(value))


def _seconds(name: str, value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf:
        return float(value)
    raise BindError(f"{name} takes seconds, not {value}")


_READERS: dict[str, Callable[[str, object], object]] = {
    "batch_rows": _count,
    "threads": _count,
    "jit": _jit,
    "rules": _switch,
    "relations": _forms,
    "checkpoint_seconds": _seconds,
    "durability": _durability,
    "statement_timeout": _seconds,
    "memory_limit": _bytes,
    "max_output_rows": _limit,
    "max_unfetched_rows": _limit,
    "max_unfetched_per_query": _limit,
    "when_unfetched": _when_unfetched,
    "on_error": _on_error,
    "timezone": _zone,
    "idle_timeout": _seconds,
}
