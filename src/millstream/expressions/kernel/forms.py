"""The pieces of kernel source: values with their NULLs, conditions, and what joins them."""

from __future__ import annotations

from dataclasses import field

from millstream.expressions.kernel.helpers import RAISING
from millstream.records import dataclass
from millstream.types import BOOLEAN, SqlType


@dataclass(slots=True)
class SourceScope:
    """What the source needs besides its variables."""

    helpers: set[str] = field(default_factory=set)
    raised: list[str] = field(default_factory=list)
    """where helpers that were called raise, in the order they are evaluated"""

    def call(self, helper: str, *args: object) -> str:
        self.helpers.add(helper)
        if helper in RAISING:
            self.raised.append(f"{helper}_fails({', '.join(map(str, args))})")
        return f"{helper}({', '.join(map(str, args))})"


@dataclass(frozen=True, slots=True)
class Value:
    """A value and whether it is NULL, as source; the value counts only where `null` is false."""

    type: SqlType
    value: str
    null: str

    @property
    def size(self) -> int:
        return len(self.value) + len(self.null)

    def as_value(self) -> Value:
        return self

    def as_truth(self) -> Truth:
        return Truth(and_(not_(self.null), self.value), and_(not_(self.null), not_(self.value)))


@dataclass(frozen=True, slots=True)
class Truth:
    """A condition as source: where it is true, and where it is false; elsewhere it is NULL."""

    true: str
    false: str

    @property
    def size(self) -> int:
        return len(self.true) + len(self.false)

    def as_value(self) -> Value:
        null = "False" if self.false == not_(self.true) else and_(not_(self.true), not_(self.false))
        return Value(BOOLEAN, self.true, null)

    def as_truth(self) -> Truth:
        return self


Form = Value | Truth


def not_(text: str) -> str:
    """Not, without the obvious."""
    if text.startswith("(not ") and text[5:-1].isidentifier():
        return text[5:-1]
    return {"True": "False", "False": "True"}.get(text) or f"(not {text})"


def and_(*parts: str) -> str:
    """And, without the obvious."""
    kept = [part for part in parts if part != "True"]
    return "False" if "False" in kept else f"({' and '.join(kept)})" if kept else "True"


def or_(*parts: str) -> str:
    """Or, without the obvious."""
    kept = list(dict.fromkeys(part for part in parts if part != "False"))
    return "True" if "True" in kept else f"({' or '.join(kept)})" if kept else "False"


def zero(type_: SqlType) -> str:
    """A value of a type that stands where there is none."""
    return {"DOUBLE": "0.0", "BOOLEAN": "False"}.get(type_.name, "0")


def choose(condition: str, yes: str, no: str) -> str:
    """One of two values, without the obvious."""
    if condition in ("True", "False"):
        return yes if condition == "True" else no
    return yes if yes == no else f"({yes} if {condition} else {no})"
