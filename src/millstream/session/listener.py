"""Listeners to what a session does; a persistent session records it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from millstream.bind import statements as act
from millstream.session.planned import Planned
from millstream.session.query import Query, Result


class Listener(Protocol):
    """Hears of what a session is asked to do, before it takes effect and after it has, or has not."""

    def effect(self) -> AbstractContextManager[Any]:
        """Meanwhile no rows come: what is heard and what takes effect belong together."""
        ...

    def before(self, action: act.Action, text: str, planned: Planned | None) -> None: ...

    def after(self, action: act.Action, result: Query | Result | None) -> None: ...

    def failed(self, action: act.Action) -> None: ...

    def checkpoint(self) -> None: ...

    def backup(self, target: Path) -> None: ...

    def before_close(self) -> None: ...

    def after_close(self) -> None: ...


def heard(
    listener: Listener | None,
    action: act.Action,
    text: str,
    planned: Planned | None,
    do: Callable[[], Query | Result | None],
) -> Query | Result | None:
    """Let a listener hear of what is done, if there is one, while no rows come."""
    if listener is None:
        return do()
    with listener.effect():
        try:
            listener.before(action, text, planned)
            result = do()
            listener.after(action, result)
        except BaseException:
            listener.failed(action)
            raise
    return result
