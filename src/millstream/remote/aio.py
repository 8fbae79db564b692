"""The calls of a session from asyncio: each runs in a thread, and is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from millstream.remote.session import RemoteQuery
from millstream.session.query import Query


class Awaited:
    """A session or a query whose calls, and whose properties that ask the engine, are awaited.

    `subscribe` gives a reader for `async for`; what a call returns is otherwise the same.
    """

    def __init__(self, of: Any) -> None:
        self._of = of

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in ("name", "sql") and isinstance(self._of, Query | RemoteQuery):
            return getattr(self._of, name)
        if isinstance(getattr(type(self._of), name, None), property):
            return asyncio.to_thread(getattr, self._of, name)
        call = getattr(self._of, name)
        if not callable(call):
            raise AttributeError(name)

        async def awaited(*given: Any, **named: Any) -> Any:
            return _wrapped(await asyncio.to_thread(call, *given, **named))

        return awaited

    def __repr__(self) -> str:
        return f"<awaited {self._of!r}>"


class Connecting:
    """A session that is opened by `async with`, and closed at its end."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect

    async def __aenter__(self) -> Awaited:
        self._opened = Awaited(await asyncio.to_thread(self._connect))
        return self._opened

    async def __aexit__(self, *_: object) -> None:
        await self._opened.close()


def _wrapped(value: Any) -> Any:
    match value:
        case Query() | RemoteQuery():
            return Awaited(value)
        case list():
            return [_wrapped(each) for each in value]
    return value
