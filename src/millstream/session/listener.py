"""Who is told what a session does. A persistent session writes it down."""

from __future__ import annotations

from typing import Protocol

from millstream.bind import statements as act
from millstream.session.query import Query, Result


class Listener(Protocol):
    """Hears of what a session is asked to do, before it takes effect and after it has."""

    def before(self, action: act.Action) -> None: ...

    def after(self, action: act.Action, text: str, result: Query | Result | None) -> None: ...

    def checkpoint(self) -> None: ...

    def before_close(self) -> None: ...

    def after_close(self) -> None: ...
