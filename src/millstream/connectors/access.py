"""What a declaration may reach: everything, or under the profile `untrusted` only what the operator has named."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path, PurePosixPath
from typing import Literal

from millstream.connectors.addresses import POSTGRES, WEBHOOKS, Url
from millstream.connectors.options import WITHIN, OptionValue
from millstream.connectors.past import PAST
from millstream.connectors.registry import connector_of
from millstream.errors import BindError, ConnectorError
from millstream.records import dataclass

Profile = Literal["default", "untrusted"]
PROFILES: tuple[Profile, ...] = ("default", "untrusted")

_READS_FILES = ("location", "keytab")
"""Ends of the names of Kafka properties that are paths of files"""


@dataclass(frozen=True, slots=True)
class Location:
    """A directory that statements reach by name."""

    directory: Path
    read_only: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "directory", Path(self.directory).expanduser().absolute())


@dataclass(frozen=True)
class Access:
    """The rules for sources and sinks of a session."""

    profile: Profile = "default"
    locations: Mapping[str, Location] = field(default_factory=dict)
    hosts: frozenset[str] = frozenset()
    """hosts, or host:port, that ports and sinks connect to"""
    brokers: frozenset[str] = frozenset()
    """Kafka brokers, as host:port"""
    listen: frozenset[str] = frozenset()
    """addresses besides loopback that ports listen on"""

    @property
    def is_open(self) -> bool:
        return self.profile == "default"

    def with_location(self, name: str, location: Location | None) -> Access:
        """The same rules with one more location; None takes it away."""
        others = {known: at for known, at in self.locations.items() if known != name.lower()}
        return replace(self, locations=others if location is None else {**others, name.lower(): location})

    def granted(self, options: Mapping[str, OptionValue], *, is_sink: bool, free: bool) -> dict[str, OptionValue]:
        """The options of a declaration with names of locations replaced by what they mean; `free` asks for no leave."""
        for name in options:
            if name.startswith("$"):
                raise ConnectorError(f"no option {name}")
        given = {name.lower(): value for name, value in options.items()}
        connector = connector_of(given, is_sink=is_sink)
        files = (["path"] if connector == "file" else []) + ([PAST] if PAST in given and not is_sink else [])
        if files:
            given = self._files(given, files, is_sink, free)
        elif "location" in given:
            raise ConnectorError(f"connector {connector} has no option location", hint="it is for files")
        if not free:
            self._check(connector, given)
        return given

    def _files(
        self, given: dict[str, OptionValue], names: list[str], is_sink: bool, free: bool
    ) -> dict[str, OptionValue]:
        """Options whose paths, under these names, may be read or written."""
        name = given.get("location")
        if name is None:
            if not free:
                raise _refused("a path without a location", self._known())
            return given
        location = self.locations.get(str(name).lower())
        if location is None:
            raise ConnectorError(f"no location {name}", hint=self._known())
        if is_sink and location.read_only:
            raise ConnectorError(f"location {name} is read-only")
        paths = {each: str(location.directory / inside(str(given.get(each, "")))) for each in names}
        return {**given, **paths, WITHIN: str(location.directory)}

    def _check(self, connector: str, given: Mapping[str, OptionValue]) -> None:
        match connector:
            case "port":
                host, port = str(given.get("host") or "127.0.0.1").lower(), str(given.get("port", ""))
                if str(given.get("mode", "listen")).strip().lower() == "connect":
                    self._check_host({host, f"{host}:{port}"}, f"{host}:{port}")
                elif not is_loopback(host) and host not in self.listen:
                    raise _refused(f"listening on {host}", "ports listen on 127.0.0.1")
            case "kafka":
                brokers = str(given.get("brokers") or given.get("bootstrap_servers") or "")
                unknown = [each for each in map(str.strip, brokers.lower().split(",")) if each not in self.brokers]
                if unknown:
                    raise _refused(f"Kafka brokers {', '.join(unknown)}", _allowed("brokers", self.brokers))
                for option in given:
                    if option.startswith("kafka.") and option.rpartition(".")[2] in _READS_FILES:
                        raise _refused(f"the option {option}", "certificates can be given as text: kafka.ssl.ca.pem")
            case "webhook":
                address = Url.parsed(str(given.get("url", "")), WEBHOOKS, "https://example.com/rows")
                self._check_host(address.names, str(address))
            case "postgres":
                address = Url.parsed(str(given.get("url", "")), POSTGRES, "postgresql://user@localhost/db")
                self._check_host(address.names, str(address))
                if unknown := sorted(address.parameters.keys() - {"sslmode"}):
                    raise _refused(f"the parameter {unknown[0]} of a url", "sslmode is")
            case "terminal":
                raise _refused("the connector terminal", "fetch the rows, or write them to a location")

    def _check_host(self, names: set[str], place: str) -> None:
        if not names & self.hosts:
            raise _refused(f"connecting to {place}", _allowed("hosts", self.hosts))

    def target(self, path: str | Path) -> Path:
        """Where something may be written: a path, or a location and a name in it, 'backups/monday'."""
        if self.is_open:
            return Path(path)
        name, _, rest = str(path).partition("/")
        location = self.locations.get(name.lower())
        if location is None or not rest:
            raise ConnectorError(f"no location {name}", hint=_allowed("locations", self.locations, "location/name"))
        if location.read_only:
            raise ConnectorError(f"location {name} is read-only")
        found = location.directory / inside(rest)
        if not found.parent.resolve().is_relative_to(location.directory.resolve()):
            raise ConnectorError(f"{rest!r} leads out of location {name}")
        return found

    def _known(self) -> str:
        return _allowed("locations", self.locations, "WITH (location = …, path = …)")


def inside(path: str) -> PurePosixPath:
    """A path below a location, as it is written; it may not lead out of it."""
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or path.startswith("~") or "\0" in path or "\\" in path:
        raise ConnectorError(
            f"{path!r} is not a path inside a location", hint="a relative path with no '..', such as 'events/*.csv'"
        )
    return parts


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _refused(what: str, hint: str) -> BindError:
    return BindError(f"{what} is not allowed here", detail="this session has the profile untrusted", hint=hint)


def _allowed(what: str, names: Iterable[str], how: str = "") -> str:
    listed = ", ".join(sorted(names))
    return f"{what}: {listed}{'; ' * bool(how)}{how}" if listed else f"the operator has allowed no {what}"
