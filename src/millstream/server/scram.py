"""SCRAM-SHA-256 (RFC 5802, 7677): a client proves that it knows a password, and the server never sees it.

scramp, the library for it, refuses the empty user name that libpq sends (PostgreSQL knows the name already), so the
server's half stands here. It is a few lines over the standard library.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import stringprep
import unicodedata

from millstream.errors import MillstreamError
from millstream.records import dataclass

MECHANISM = "SCRAM-SHA-256"
ITERATIONS = 4096
_BOUND = {"n,,": "biws", "y,,": "eSws"}
"""the start of the first message, and how the last one repeats it"""


@dataclass(frozen=True)
class Verifier:
    """What a server knows of a password: enough to check it, not enough to use it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    @staticmethod
    def of(password: str, salt: bytes | None = None) -> Verifier:
        salt = secrets.token_bytes(16) if salt is None else salt
        salted = hashlib.pbkdf2_hmac("sha256", prepared(password).encode(), salt, ITERATIONS)
        stored = hashlib.sha256(_mac(salted, b"Client Key")).digest()
        return Verifier(salt, stored, _mac(salted, b"Server Key"), ITERATIONS)


class WrongPasswordError(MillstreamError):
    """The proof does not fit, or the messages are not those of SCRAM."""


class Exchange:
    """The server's side of one log-in."""

    def __init__(self, verifier: Verifier, nonce: str | None = None) -> None:
        self._verifier = verifier
        self._nonce = secrets.token_urlsafe(18) if nonce is None else nonce
        self._start = self._said = ""

    def challenge(self, first: str) -> str:
        """What the server answers to the client's first message."""
        self._start = next((start for start in _BOUND if first.startswith(start)), "")
        if not self._start:
            raise WrongPasswordError("channel binding is not supported")
        bare = first[len(self._start) :]
        given = _fields(bare).get("r", "")
        if not given:
            raise WrongPasswordError("the log-in has no nonce")
        self._nonce = given + self._nonce
        salt = base64.b64encode(self._verifier.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._verifier.iterations}"
        self._said = f"{bare},{answer}"
        return answer

    def verdict(self, final: str) -> str:
        """The server's signature, if the client's last message proves the password."""
        without, _, _ = final.rpartition(",p=")
        told = _fields(final)
        if told.get("c") != _BOUND[self._start] or told.get("r") != self._nonce:
            raise WrongPasswordError("the log-in does not match the one that was started")
        signed = f"{self._said},{without}".encode()
        try:
            proof = base64.b64decode(told.get("p", ""), validate=True)
        except binascii.Error:
            raise WrongPasswordError("the proof is not base64") from None
        key = _xored(proof, _mac(self._verifier.stored_key, signed))
        if not hmac.compare_digest(hashlib.sha256(key).digest(), self._verifier.stored_key):
            raise WrongPasswordError("wrong user or password")
        return "v=" + base64.b64encode(_mac(self._verifier.server_key, signed)).decode()


def prepared(password: str) -> str:
    """A password as SASLprep has it; one that it forbids stays as it is, as in PostgreSQL."""
    mapped = "".join(" " if stringprep.in_table_c12(c) else c for c in password if not stringprep.in_table_b1(c))
    normal = unicodedata.normalize("NFKC", mapped)
    forbidden = (
        stringprep.in_table_c12, stringprep.in_table_c21_c22, stringprep.in_table_c3, stringprep.in_table_c4,
        stringprep.in_table_c5, stringprep.in_table_c6, stringprep.in_table_c7, stringprep.in_table_c8,
        stringprep.in_table_c9,
    )  # fmt: skip
    return password if not normal or any(check(c) for c in normal for check in forbidden) else normal


def _fields(message: str) -> dict[str, str]:
    return {part[0]: part[2:] for part in message.split(",") if part[1:2] == "="}


def _mac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")


def _xored(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=False))
