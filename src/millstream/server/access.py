"""What a client of a server may do: by its role, its streams and its limits. And a log of who did what."""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

from millstream import spans
from millstream.bind import actions as act
from millstream.catalog import Catalog, DerivedDef, StreamDef, TableDef, ViewDef
from millstream.errors import CatalogError, LimitError, MillstreamError
from millstream.hosts.contract import Counts
from millstream.server.accounts import Account, Role
from millstream.session.database import Database
from millstream.session.query import Query

_RANK: dict[Role, int] = {"reader": 0, "writer": 1, "admin": 2}
_GRANTED = (StreamDef, DerivedDef, TableDef, ViewDef)
"""what is granted by name"""

AUDIT_FILE = "audit.log"
_AUDIT_BYTES, _AUDIT_FILES = 16 << 20, 8
_AUDIT_TEXT = 2_000

audit_log = logging.getLogger("millstream.audit")


class ForbiddenError(MillstreamError):
    """The account may not do this."""


class QuotaError(LimitError):
    """The account uses as much as it may."""


class TooFastError(QuotaError):
    """More than the account may do in a second; `seconds` until it may again."""

    seconds = 1.0


class Clients:
    """What the accounts of a server have running, and how fast they push and ask."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._spent: dict[tuple[str, str], tuple[float, float]] = {}

    def running(self, account: Account, database: Database) -> set[str]:
        """The queries and views that it has started, and that still run."""
        found = set()
        for query in database.queries():
            with suppress(CatalogError):  # one that is stopped meanwhile
                if query.owner == account.name and query.state != "failed":
                    found.add(query.name.lower())
        return found

    def spend(self, account: Account, what: str, count: int) -> None:
        """Rows that an account pushes, or statements that it sends. It has up to a second's worth saved, and may go
        into debt with one push."""
        rate = account.quota.rows_a_second if what == "rows" else account.quota.statements_a_second
        if rate is None:
            return
        now = self._clock()
        with self._lock:
            left, then = self._spent.get((account.name, what), (float(rate), now))
            left = min(float(rate), left + (now - then) * rate)
            if left <= 0:
                error = TooFastError(
                    f"account {account.name} sends more than {rate:,} {what} a second", hint="try again"
                )
                error.seconds = -left / rate + 0.01 if rate else 1.0
                raise error
            self._spent[account.name, what] = (left - count, now)

    def credit(self, account: Account) -> int | None:
        """How many rows an account may push at once now; None without a limit."""
        rate = account.quota.rows_a_second
        if rate is None:
            return None
        with self._lock:
            left, then = self._spent.get((account.name, "rows"), (float(rate), self._clock()))
            return max(0, int(min(float(rate), left + (self._clock() - then) * rate)))

    def state(self, account: Account, database: Database) -> dict[str, int]:
        """How many bytes each of its queries keeps; what several share counts for the first."""
        found: dict[str, int] = {}
        seen: set[str] = set()
        for name in sorted(self.running(account, database)):
            try:
                operators = database.inspector.operators(name)
            except MillstreamError:
                continue  # it ended, or its operators run elsewhere
            found[name] = sum(each.state or 0 for each in operators if each.id not in seen)
            seen |= {each.id for each in operators}
        return found

    def may_start(self, account: Account, database: Database) -> None:
        """An error if it has as many queries, or as much state, as it may."""
        quota = account.quota
        if quota.queries is not None and len(self.running(account, database)) >= quota.queries:
            raise QuotaError(f"account {account.name} has {quota.queries} queries running", hint="stop one: STOP q")
        if quota.state_bytes is not None and sum(self.state(account, database).values()) >= quota.state_bytes:
            raise too_much_state(account)

    def bound_state(self, account: Account, database: Database) -> None:
        """End the largest queries of an account that keeps more than it may."""
        most = account.quota.state_bytes
        if most is None:
            return
        sizes = self.state(account, database)
        for name in sorted(sizes, key=lambda name: sizes[name], reverse=True):
            if sum(sizes.values()) <= most:
                return
            del sizes[name]
            database.query(name).cancel(too_much_state(account))
            Caller(account, "", self).note("query ended", query=name, error="too much state")


def too_much_state(account: Account) -> QuotaError:
    return QuotaError(
        f"the queries of account {account.name} keep more than {account.quota.state_bytes:,} bytes of state",
        hint="stop a query, or use shorter windows or fewer keys",
    )


class Caller:
    """An account, at work from some address."""

    def __init__(self, account: Account, address: str, clients: Clients) -> None:
        self.account = account
        self.address = address
        self._clients = clients

    @contextmanager
    def at_work(self, database: Database, text: str) -> Iterator[None]:
        """Statements inside are this client's: checked against what it may do, and noted."""

        def permit(action: act.Action, catalog: Catalog) -> None:
            self._check(action, catalog, database)

        begun = time.monotonic()
        try:
            self._clients.spend(self.account, "statements", 1)
            with (
                spans.span("statement", db__query__text=text[:_AUDIT_TEXT], enduser__id=self.account.name),
                database.guard.permitting(permit, self.account.name),
            ):
                yield
        except MillstreamError as error:
            self.note("refused" if isinstance(error, ForbiddenError) else "failed", sql=text, error=error.message)
            raise
        self.note("statement", sql=text, seconds=round(time.monotonic() - begun, 4))

    def require(self, role: Role, *names: str) -> None:
        """An error if it has not that role, or may not use one of these streams, tables and views."""
        if _RANK[self.account.role] < _RANK[role]:
            raise ForbiddenError(
                f"account {self.account.name} is a {self.account.role}", detail=f"this needs the role {role}"
            )
        for name in names:
            if not self.account.may_use(name):
                raise ForbiddenError(f"account {self.account.name} may not use {name}", hint="ask the admin for access")

    def push(self, database: Database, stream: str, rows: Any, once: tuple[str, int] | None = None) -> Counts:
        """Push its rows, which count towards what it may push."""
        self._clients.spend(self.account, "rows", 0)
        with spans.span("push", stream=stream, enduser__id=self.account.name):
            counts = database.push(stream, rows, once)
        self._clients.spend(self.account, "rows", counts.accepted + counts.late + counts.rejected)
        return counts

    def credit(self) -> int | None:
        """How many rows it may push at once now; None without a limit."""
        return self._clients.credit(self.account)

    def note(self, what: str, **told: Any) -> None:
        """A line of the audit log."""
        if "sql" in told:
            told["sql"] = told["sql"][:_AUDIT_TEXT]
        line = {"time": _now(), "account": self.account.name, "from": self.address, "what": what, **told}
        audit_log.info(json.dumps(line, ensure_ascii=False))

    def _check(self, action: act.Action, catalog: Catalog, database: Database) -> None:
        match action:
            case act.ShowList():
                role, names = "reader", frozenset[str]()
            case act.DescribeEntry(name=name):
                role, names = "reader", frozenset({name})
            case act.OnTables(is_query=True, create=None):
                role, names = "reader", _used(action)
            case act.ExplainPlan(of=query):
                role, names = "reader", _about(query, database)
            case act.OnTables(create=None):
                role, names = "writer", _used(action)
            case act.PushRows(stream=stream, query=read):
                role, names = "writer", frozenset({stream}) | _used(read)
            case act.StartQuery() | act.AlterQuery() | act.AlterWindow() | act.PauseQuery() | act.StopQuery():
                role, names = "writer", _about(action, database)
            case act.Define(entry=DerivedDef(name=name) | ViewDef(name=name), uses=uses):
                # a new name is free, one that is replaced must be granted
                role, names = "writer", uses | {name}
            case act.Remove(name=name, kinds=kinds) if kinds == (ViewDef,):
                role, names = "writer", frozenset({name})
            case _:
                role, names = "admin", frozenset()
        self.require(role, *(name for name in names if isinstance(catalog.find(name), _GRANTED)))  # type: ignore[arg-type]
        match action:
            case act.StartQuery() | act.Define(entry=DerivedDef() | ViewDef()):
                self._clients.may_start(self.account, database)


def names_of(query: Query, database: Database) -> frozenset[str]:
    """What an account needs for a running query: the view that it is, or the streams, tables and views it reads."""
    if query.name.lower() in database.views:
        return frozenset({query.name})
    return frozenset(name for name in query.uses if isinstance(database.catalog.find(name), _GRANTED))


def _about(
    action: act.StartQuery | act.AlterQuery | act.AlterWindow | act.PauseQuery | act.StopQuery, database: Database
) -> frozenset[str]:
    """What a query reads that starts, changes or ends, before and after."""
    match action:
        case act.StartQuery(uses=uses):
            return uses
        case act.AlterQuery(name=name, query=query):
            return query.uses | names_of(database.query(name), database)
        case act.StopQuery(name=name):
            for members in (each for each in database.query_sets() if each.name.lower() == name.lower()):
                return frozenset[str]().union(*(names_of(query, database) for query in members.queries()))
    return names_of(database.query(action.name), database)


def _used(action: act.OnTables) -> frozenset[str]:
    return action.reads | frozenset(action.views) | frozenset(action.histories)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def open_audit_log(directory: Path | None) -> None:
    """Write the audit log into the session's directory, too: private files, the oldest of which go."""
    audit_log.setLevel(logging.INFO)
    if directory is None:
        return
    path = directory / AUDIT_FILE
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    # halves of characters, which SQL may contain, are written as JSON escapes
    handler = logging.handlers.RotatingFileHandler(
        path, maxBytes=_AUDIT_BYTES, backupCount=_AUDIT_FILES - 1, encoding="utf-8", errors="backslashreplace"
    )
    handler.setFormatter(logging.Formatter("%(message)s"))
    audit_log.addHandler(handler)
    audit_log.propagate = False
