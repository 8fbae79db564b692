"""Who may use a server: accounts with a role, a password or token, and the streams they are granted.

They are kept in `accounts.json` in the directory of the session. No password or token is in it: of a password the SCRAM
verifier, of a token its hash.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any, Literal, cast, get_args

from millstream.durable import sync_directory, write_durably
from millstream.errors import BindError, CatalogError, StateError
from millstream.records import dataclass
from millstream.server.scram import Verifier

Role = Literal["reader", "writer", "admin"]
"""A reader reads results, tables and views. A writer also pushes rows and manages queries. An admin may do all."""

FILE = "accounts.json"
LEAST_SECRET = 6
_VERSION = 1


@dataclass(frozen=True)
class Quota:
    """What an account may use; None is no limit."""

    queries: int | None = None
    """how many queries it may have running"""
    rows_a_second: int | None = None
    """how many rows it may push in a second, on average"""
    statements_a_second: int | None = None
    state_bytes: int | None = None
    """how much state its queries may keep together"""

    def or_else(self, other: Quota) -> Quota:
        """With another's limits where this one has none."""
        return Quota(
            *(mine if mine is not None else theirs for mine, theirs in zip(self._all, other._all, strict=True))
        )

    @property
    def _all(self) -> tuple[int | None, ...]:
        return self.queries, self.rows_a_second, self.statements_a_second, self.state_bytes

    @staticmethod
    def read(told: dict[str, Any]) -> Quota:
        return Quota(*(_count(told.get(name)) for name in _WRITTEN))

    def written(self) -> dict[str, int | None]:
        return dict(zip(_WRITTEN, self._all, strict=True))


_WRITTEN = ("most_queries", "rows_a_second", "statements_a_second", "state_bytes")


def _count(told: Any) -> int | None:
    if told is not None and (not isinstance(told, int) or isinstance(told, bool) or told < 0):
        raise ValueError(f"{told!r} is not a limit")
    return told


@dataclass(frozen=True)
class Account:
    """One who may connect. `streams` are the streams, tables and views it may use; None: all of them."""

    name: str
    role: Role
    streams: frozenset[str] | None = None
    verifier: Verifier | None = None
    token: bytes | None = None
    """the hash of its token"""
    quota: Quota = Quota()

    def may_use(self, name: str) -> bool:
        return self.streams is None or name.lower() in self.streams


class Accounts:
    """The accounts of a server; those in memory only if it has no directory.

    The file is read again when it has changed, so `millstream account` works while a server runs.
    """

    def __init__(self, directory: Path | None) -> None:
        self._path = None if directory is None else directory / FILE
        self._lock = Lock()
        self._kept: dict[str, Account] = {}
        self._given: dict[str, Account] = {}
        """those that are not in the file"""
        self._roles: dict[Role, Quota] = {}
        self._version: tuple[int, int, int] | None = None
        self._known()

    def _known(self) -> dict[str, Account]:
        """All accounts by name, as the file is now, with the limits that they and their roles have."""
        version = _version_of(self._path)
        if version != self._version:
            assert self._path is not None
            accounts, self._roles = ([], {}) if version is None else _read(self._path)
            self._kept = {each.name: each for each in accounts}
            self._version = version
        limited = {
            name: replace(each, quota=each.quota.or_else(self._roles.get(each.role, Quota())))
            for name, each in self._kept.items()
        }
        return {**limited, **self._given}

    def __iter__(self) -> Iterator[Account]:
        return iter(sorted(self._known().values(), key=lambda each: each.name))

    def __len__(self) -> int:
        return len(self._known())

    def find(self, name: str) -> Account | None:
        return self._known().get(name)

    def with_token(self, token: str) -> Account | None:
        """Whose token it is. Every account is looked at, so the time it takes says nothing."""
        hashed, found = _hashed(token), None
        for account in self._known().values():
            if account.token is not None and hmac.compare_digest(account.token, hashed):
                found = account
        return found

    def add(
        self,
        name: str,
        role: str,
        secret: str | None = None,
        streams: Iterable[str] | None = None,
        quota: Quota = Quota(),
        keep: bool = True,
    ) -> str:
        """Add or replace an account. Its secret is both its password and its token; without one it gets one.

        The secret is returned, and known nowhere else. `keep=False` leaves the account out of the file.
        """
        if not name or not name.isprintable() or len(name) > 63:
            raise BindError(f"{name!r} is not a valid name of an account", hint="1 to 63 printable characters")
        role = _role(role)
        secret = secrets.token_urlsafe(24) if secret is None else secret
        if len(secret) < LEAST_SECRET:
            raise BindError(f"a password needs at least {LEAST_SECRET} characters")
        granted = None if streams is None else frozenset(each.lower() for each in streams)
        account = Account(name, role, granted, Verifier.of(secret), _hashed(secret), quota)
        with self._lock:
            if keep:
                self._save({**self._known_kept(), name: account})
            else:
                self._given = {**self._given, name: account}
        return secret

    def limit(self, role: str, quota: Quota) -> None:
        """The limits of each account with a role, as far as it has none of its own."""
        with self._lock:
            self._known()
            self._roles = {**self._roles, _role(role): quota}
            self._save(self._kept)

    def limits(self) -> dict[Role, Quota]:
        self._known()
        return {role: quota for role, quota in self._roles.items() if quota != Quota()}

    def remove(self, name: str) -> None:
        with self._lock:
            self._require(name)
            self._save({key: each for key, each in self._kept.items() if key != name})

    def _require(self, name: str) -> Account:
        kept = self._known_kept()
        found = kept.get(name)
        if found is None:
            raise CatalogError(f"no account {name}", hint=f"known: {', '.join(sorted(kept)) or 'none'}")
        return found

    def _known_kept(self) -> dict[str, Account]:
        self._known()
        return self._kept

    def _save(self, accounts: dict[str, Account]) -> None:
        self._kept = accounts
        if self._path is None:
            return
        roles = {role: quota.written() for role, quota in self._roles.items()}
        told = {"version": _VERSION, "roles": roles, "accounts": [_written(each) for each in accounts.values()]}
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._path.with_suffix(".new")
        write_durably(draft, json.dumps(told, indent=1).encode())
        draft.replace(self._path)
        sync_directory(self._path.parent)
        self._version = _version_of(self._path)


def _version_of(path: Path | None) -> tuple[int, int, int] | None:
    try:
        found = None if path is None else path.stat()
    except OSError:
        return None
    return found and (found.st_mtime_ns, found.st_ino, found.st_size)


def _hashed(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _written(account: Account) -> dict[str, Any]:
    verifier = account.verifier
    return {
        "name": account.name,
        "role": account.role,
        "streams": None if account.streams is None else sorted(account.streams),
        "token": None if account.token is None else account.token.hex(),
        "password": verifier
        and {
            "salt": base64.b64encode(verifier.salt).decode(),
            "stored_key": base64.b64encode(verifier.stored_key).decode(),
            "server_key": base64.b64encode(verifier.server_key).decode(),
            "iterations": verifier.iterations,
        },
        **account.quota.written(),
    }


def _role(name: str) -> Role:
    if name not in get_args(Role):
        raise BindError(f"no role {name}", hint=f"one of {', '.join(get_args(Role))}")
    return cast(Role, name)


def _read(path: Path) -> tuple[list[Account], dict[Role, Quota]]:
    try:
        told = json.loads(path.read_bytes())
        if told["version"] != _VERSION:
            raise ValueError(f"it has version {told['version']}, and this server supports {_VERSION}")
        roles = {cast(Role, role): Quota.read(each) for role, each in told.get("roles", {}).items()}
        return [_account(each) for each in told["accounts"]], roles
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StateError(
            f"the accounts in {path.name} cannot be read: {error}", hint="restore the file from a backup"
        ) from None


def _account(told: dict[str, Any]) -> Account:
    password = told["password"]
    verifier = password and Verifier(
        base64.b64decode(password["salt"]),
        base64.b64decode(password["stored_key"]),
        base64.b64decode(password["server_key"]),
        password["iterations"],
    )
    if told["role"] not in get_args(Role):
        raise ValueError(f"no role {told['role']}")
    return Account(
        told["name"],
        told["role"],
        None if told["streams"] is None else frozenset(told["streams"]),
        verifier,
        None if told["token"] is None else bytes.fromhex(told["token"]),
        Quota.read(told),
    )
