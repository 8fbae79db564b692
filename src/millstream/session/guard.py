"""Checks statements before they run: what they may access, what they may cost, and how to cancel them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cached_property
from threading import Lock

from millstream import limits
from millstream.bind import actions as act
from millstream.catalog import Catalog, FunctionDef, Options, SinkDef, StreamDef
from millstream.connectors.access import Access, Location
from millstream.errors import BindError, MillstreamError, internal_error
from millstream.expressions.python_calls import PythonCode
from millstream.limits import Limits, Work

_operator: ContextVar[bool] = ContextVar("operator", default=False)

Permit = Callable[[act.Action, Catalog], None]
"""raises an error if the action may not be done"""

_client: ContextVar[tuple[Permit, str] | None] = ContextVar("client", default=None)
"""what statements need, and the account that sends them"""


class Guard:
    """The rules of one session. Its operator is whoever opened it, and who says so (`as_operator`)."""

    def __init__(self) -> None:
        self.access = Access()
        self._working: set[Work] = set()
        self._lock = Lock()

    @property
    def is_free(self) -> bool:
        """Whether what is asked for now needs no leave."""
        return self.access.is_open or _operator.get()

    @contextmanager
    def as_operator(self) -> Iterator[None]:
        token = _operator.set(True)
        try:
            yield
        finally:
            _operator.reset(token)

    @contextmanager
    def permitting(self, permit: Permit | None, account: str = "") -> Iterator[None]:
        """Statements inside are an account's that may not do everything; None: what a permitted statement itself
        does."""
        token = _client.set(permit and (permit, account))
        try:
            yield
        finally:
            _client.reset(token)

    @property
    def account(self) -> str:
        """The account whose statement this is; empty if it is nobody's, or follows from another."""
        client = _client.get()
        return "" if client is None else client[1]

    def admit(self, action: act.Action, catalog: Catalog) -> act.Action:
        """The action as it may be done, or an error that says why it may not."""
        if (client := _client.get()) is not None:
            client[0](action, catalog)
        match action:
            case act.ChangeSetting() | act.SetPlace() if not self.is_free:
                raise BindError(
                    "only the operator may change settings here",
                    detail="this session has the profile untrusted",
                    hint="set them when you open it: ms.connect(…, setting=value)",
                )
            case act.Define(entry=FunctionDef(python=PythonCode()) as function) if not self.is_free:
                raise BindError(
                    f"function {function.name} is written in Python, and only the operator may register it",
                    detail="this session has the profile untrusted",
                    hint="with db.as_operator(): db.register_function(…), if its code is safe for any input",
                )
            case act.Define(entry=StreamDef(source=source) as stream) if source:
                return replace(action, entry=replace(stream, source=self._granted(source)))
            case act.Define(entry=SinkDef() as sink):
                return replace(action, entry=replace(sink, options=self._granted(sink.options, is_sink=True)))
            case act.Define(rows_from=source) if source:
                return replace(action, rows_from=self._granted(source))
            case act.StartQuery(sink=SinkDef() as sink) if catalog.find(sink.name) is not sink:
                # one of the catalog was granted when it was made
                return replace(action, sink=replace(sink, options=self._granted(sink.options, is_sink=True)))
            case act.ExplainPlan(of=query):
                with self.permitting(None):  # who may look at a plan need not be one who may start it
                    return replace(action, of=self.admit(query, catalog))  # type: ignore[arg-type]
        return action

    def _granted(self, options: Options, *, is_sink: bool = False) -> Options:
        return self.access.granted(options, is_sink=is_sink, free=self.is_free)

    def set_location(self, name: str, directory: str | None, read_only: bool = False) -> None:
        location = None if directory is None else Location(directory, read_only)  # type: ignore[arg-type]
        self.access = self.access.with_location(name, location)

    @contextmanager
    def working(self, allowed: Limits) -> Iterator[Work]:
        """A statement runs, within its limits, and may be cancelled."""
        outer = limits.current()
        if outer is not None:
            yield outer
            return
        with limits.working(allowed) as work:
            with self._lock:
                self._working.add(work)
            try:
                yield work
            except MillstreamError:
                raise
            except Exception as error:
                raise internal_error(error) from error
            finally:
                with self._lock:
                    self._working.discard(work)

    def cancel(self) -> int:
        """End the statements that run now, in whatever thread; how many they were."""
        with self._lock:
            found = list(self._working)
        for work in found:
            work.cancel()
        return len(found)


class Guarded:
    """What a session offers of its guard."""

    @cached_property
    def guard(self) -> Guard:
        return Guard()

    def as_operator(self) -> AbstractContextManager[None]:
        """Inside this context, the thread is the operator of a session for untrusted SQL: everything is allowed."""
        return self.guard.as_operator()

    def cancel(self) -> int:
        """Cancel the statements that run in other threads; they raise CancelledError. Returns how many there were."""
        return self.guard.cancel()
