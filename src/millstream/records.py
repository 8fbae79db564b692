"""Dataclasses whose methods are written when they are first used.

`dataclasses.dataclass` compiles up to six functions for each class when its module is imported. By
its first row a process has seen some three hundred classes of plans, specs and states, and makes objects of few of
them. Here this was 0.14 s of 0.50 s of processor time; without those methods it is 0.02 s.
"""

from __future__ import annotations

import dataclasses
import reprlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, slots=False):
        """As `dataclasses.dataclass`, for these options. What is derived from a frozen class uses it too."""

        def made(cls):
            return _made(cls, frozen, eq, slots)

        return made if cls is None else made(cls)


def _made(cls: Any, frozen: bool, eq: bool, slots: bool) -> Any:
    own = set(cls.__dict__)
    if cls.__dict__.get("__hash__") is None and "__eq__" in own:
        own.discard("__hash__")  # Python itself set it to None
    cls.__doc__ = cls.__doc__ or cls.__name__  # otherwise it would be computed from the signature
    cls = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
    fields = dataclasses.fields(cls)
    methods: dict[str, Any] = {"__init__": _later(cls, "__init__", frozen), "__repr__": _repr}
    if eq:
        methods["__eq__"] = _later(cls, "__eq__", frozen)
        methods["__hash__"] = _later(cls, "__hash__", frozen) if frozen else None
    if frozen:
        methods |= _refusals(cls, {field.name for field in fields})
        if slots:
            methods |= {"__getstate__": _getstate, "__setstate__": _setstate}
    for name in methods.keys() - own:
        setattr(cls, name, methods[name])
    return cls


def _later(cls: Any, name: str, frozen: bool) -> Any:
    """A method that writes the one which takes its place, and calls it."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        scope: dict[str, Any] = {"__put": object.__setattr__}
        exec(_WRITERS[name](cls, frozen, scope), scope)
        written = scope[name]
        written.__qualname__ = f"{cls.__qualname__}.{name}"
        written.__module__ = cls.__module__
        setattr(cls, name, written)
        return written(self, *args, **kwargs)

    return method


def _init(cls: Any, frozen: bool, scope: dict[str, Any]) -> str:
    fields = dataclasses.fields(cls)
    head, lines = {False: ["self"], True: ["*"]}, []
    for field in fields:
        name, value = field.name, field.name
        default = ""
        if field.default_factory is not dataclasses.MISSING:
            scope[f"__make_{name}"] = field.default_factory
            value = f"__make_{name}() if {name} is __missing else {name}" if field.init else f"__make_{name}()"
            default = "=__missing"
        elif field.default is not dataclasses.MISSING:
            scope[f"__else_{name}"] = field.default
            default = f"=__else_{name}"
        if field.init:
            head[bool(field.kw_only)].append(name + default)
        elif not default or field.default_factory is dataclasses.MISSING:
            continue  # __post_init__ sets it, or the class has it
        lines.append(f"__put(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    scope["__missing"] = dataclasses.MISSING
    parameters = head[False] + (head[True] if len(head[True]) > 1 else [])
    return f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines or ["pass"])


def _eq(cls: Any, frozen: bool, scope: dict[str, Any]) -> str:
    names = [field.name for field in dataclasses.fields(cls) if field.compare]
    ours, theirs = ("".join(f"{of}.{name}, " for name in names) for of in ("self", "other"))
    same = "other.__class__ is self.__class__"
    return f"def __eq__(self, other):\n return ({ours}) == ({theirs}) if {same} else NotImplemented"


def _hash(cls: Any, frozen: bool, scope: dict[str, Any]) -> str:
    hashed = (field.name for field in dataclasses.fields(cls) if (field.compare if field.hash is None else field.hash))
    return f"def __hash__(self):\n return hash(({''.join(f'self.{name}, ' for name in hashed)}))"


_WRITERS = {"__init__": _init, "__eq__": _eq, "__hash__": _hash}


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _refusals(cls: Any, names: set[str]) -> dict[str, Any]:
    def refuse(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __setattr__(self: Any, name: str, value: Any) -> None:
        refuse(self, name)
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        refuse(self, name)
        super(cls, self).__delattr__(name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
