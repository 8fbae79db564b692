"""Dataclasses whose methods are written late behave as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any, ClassVar

import pytest

from millstream import records


def _classes(decorate: Any) -> tuple[Any, ...]:
    @decorate(frozen=True)
    class Plain:
        a: int
        b: str = "x"
        kind: ClassVar[str] = "plain"

        @property
        def both(self) -> str:
            return f"{self.a}{self.b}"

    @decorate(frozen=True)
    class Derived(Plain):
        c: tuple[int, ...] = ()
        note: str = field(default="", compare=False, repr=False)
        told: bool = field(default=False, kw_only=True)

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError("negative")

    @decorate
    class Open:
        a: int
        items: list[int] = field(default_factory=list)
        later: int = field(init=False)

    @decorate(frozen=True, slots=True)
    class Slotted:
        a: int
        b: int = 2

    @decorate(eq=False)
    class Same:
        a: int

    @decorate(frozen=True)
    class Own:
        a: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own) and self.a % 2 == other.a % 2

        def __hash__(self) -> int:
            return self.a % 2

    return Plain, Derived, Open, Slotted, Same, Own


def _told(call: Any) -> Any:
    """What a call returns, or what it raises."""
    try:
        return call()
    except Exception as error:
        return type(error)


def _behaviour(decorate: Any) -> list[Any]:
    Plain, Derived, Open, Slotted, Same, Own = _classes(decorate)
    derived = Derived(1, "y", (1,), "n", told=True)
    opened, other = Open(1), Open(1)
    opened.items.append(3)
    return [
        repr(Plain(1)),
        Plain(1).both,
        Plain(1) == Plain(1),
        Plain(1) != Plain(2),
        Plain(1) == derived,
        Plain.__match_args__,
        hash(Plain(1)) == hash(Plain(1)),
        len({Plain(1), Plain(1), Plain(2)}),
        _told(lambda: Plain()),
        _told(lambda: Plain(1, 2, 3)),
        _told(lambda: Plain(1, d=2)),
        _told(lambda: setattr(Plain(1), "a", 2)),
        _told(lambda: setattr(Plain(1), "z", 2)),
        _told(lambda: delattr(Plain(1), "a")),
        repr(derived),
        derived == Derived(1, "y", (1,), "other", told=True),
        derived == Derived(1, "y", (1,)),
        _told(lambda: Derived(-1)),
        _told(lambda: Derived(1, "y", (), "", True)),
        Derived.__match_args__,
        dataclasses.replace(derived, a=5).a,
        [each.name for each in dataclasses.fields(Derived)],
        dataclasses.asdict(derived),
        copy.copy(derived) == derived,
        opened.items,
        other.items,
        hasattr(opened, "later"),
        _told(lambda: hash(opened)),
        _told(lambda: opened == other),
        _told(lambda: repr(opened)),
        copy.copy(Slotted(1)) == Slotted(1, 2),
        copy.deepcopy(Slotted(1)),
        _told(lambda: setattr(Slotted(1), "a", 2)) is FrozenInstanceError,
        hasattr(Slotted(1), "__dict__"),
        Same(1) == Same(1),
        isinstance(hash(Same(1)), int),
        Own(1) == Own(3),
        len({Own(1), Own(3)}),
    ]


def test_they_behave_as_the_standard_ones() -> None:
    mine, standard = _behaviour(records.dataclass), _behaviour(dataclass)
    assert [repr(value) for value in mine] == [repr(value) for value in standard]


@records.dataclass(frozen=True, slots=True)
class Sent:
    a: int
    b: tuple[int, ...] = ()


def test_they_are_pickled() -> None:
    assert pickle.loads(pickle.dumps(Sent(1, (2,)))) == Sent(1, (2,))


def test_methods_are_written_on_first_use() -> None:
    Plain = _classes(records.dataclass)[0]
    before = Plain.__init__
    Plain(1)
    assert Plain.__init__ is not before
    with pytest.raises(TypeError, match=r"Plain\.__init__\(\) missing 1 required positional argument: 'a'"):
        Plain()
