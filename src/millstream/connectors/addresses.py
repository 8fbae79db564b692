"""Addresses that declarations give as URLs. What is allowed is decided on the same parts that are then connected to."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote, urlsplit

from millstream.errors import ConnectorError
from millstream.records import dataclass

WEBHOOKS: Mapping[str, int] = {"http": 80, "https": 443}
POSTGRES: Mapping[str, int] = {"postgresql": 5432, "postgres": 5432}


@dataclass(frozen=True, slots=True)
class Url:
    """The parts of a URL."""

    scheme: str
    host: str
    port: int
    path: str
    query: str
    user: str | None = None
    password: str | None = None

    @property
    def names(self) -> set[str]:
        """What an operator may call this place."""
        return {self.host, f"{self.host}:{self.port}"}

    def __str__(self) -> str:
        """Where it is, without what nobody should see."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"

    @property
    def parameters(self) -> dict[str, str]:
        return dict(parse_qsl(self.query))

    @staticmethod
    def parsed(url: str, ports: Mapping[str, int], example: str) -> Url:
        """The parts of a URL of one of the schemes, which have these ports unless told otherwise.

        >>> print(Url.parsed("HTTP://Example.com/rows?a=1", WEBHOOKS, ""))
        http://example.com:80/rows
        """
        hint = f"for example url = '{example}'"
        if any(letter <= " " or letter == "\x7f" or letter == "\\" for letter in url) or not url.isascii():
            raise ConnectorError("the url has characters that are not allowed in a URL", hint=hint)
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ConnectorError(f"the url is not valid: {error}", hint=hint) from None
        if parts.scheme not in ports or not parts.hostname or parts.fragment:
            raise ConnectorError(f"the url is not one of {' or '.join(ports)} with a host", hint=hint)
        user, password = (None if part is None else unquote(part) for part in (parts.username, parts.password))
        host = parts.hostname
        return Url(parts.scheme, host, port or ports[parts.scheme], parts.path, parts.query, user, password)
