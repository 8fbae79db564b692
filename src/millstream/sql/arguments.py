"""Arguments of syntax nodes: which a node takes, and each as an attribute of its name."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

T = TypeVar("T")


def takes(names: str) -> dict[str, bool]:
    """The arguments of a node, and whether it must have them: not those with a `?` behind their names."""
    return {name.rstrip("?"): not name.endswith("?") for name in names.split()}


class Arg(Generic[T]):
    """An argument under its name; None if a node has it not."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, node: Any, owner: type) -> T:
        found: T = node.args.get(self._name)
        return found


class Args(Generic[T], Arg[list[T]]):
    """An argument that is a list; it is empty if a node has it not."""

    def __get__(self, node: Any, owner: type) -> list[T]:
        return super().__get__(node, owner) or []


class Flag(Arg[bool]):
    """Whether a node has an argument."""

    def __get__(self, node: Any, owner: type) -> bool:
        return bool(super().__get__(node, owner))
