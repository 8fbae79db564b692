"""What kernels have in common whose state is small: it is saved as one piece, and only if it may have changed."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.errors import StateError
from millstream.kernels.contract import Kernel, State


class OnePiece:
    """A kernel whose state is one piece, its snapshot; the state's flag `changed` tells whether it has to be given."""

    def changes(self: Kernel, state: State) -> dict[int, bytes | None]:
        if not state.changed:
            return {}
        state.changed = False
        return {0: self.snapshot(state)}

    def assemble(self: Kernel, pieces: Mapping[int, bytes]) -> State:
        if not pieces:
            return self.open()
        if set(pieces) != {0}:
            raise StateError("saved state is not in one piece", detail=f"it has the pieces {sorted(pieces)}")
        state = self.restore(pieces[0])
        state.changed = False
        return state
