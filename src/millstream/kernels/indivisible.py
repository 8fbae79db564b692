"""What kernels have in common whose state belongs to no key."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.kernels.contract import State


class Indivisible:
    """A kernel whose state stays in one piece."""

    def split(self, state: State, parts: int) -> list[State]:
        if parts != 1:
            raise ValueError(f"the state of {type(self).__name__} cannot be divided")
        return [state]

    def merge(self, states: Sequence[State]) -> State:
        if len(states) != 1:
            raise ValueError(f"the state of {type(self).__name__} cannot be put together")
        return states[0]
