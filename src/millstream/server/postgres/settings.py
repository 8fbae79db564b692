"""Settings that PostgreSQL has and clients ask for. They belong to a connection, and change nothing in the engine."""

from __future__ import annotations

SERVER_VERSION = "16.0 (Millstream)"

REPORTED = {
    "server_version": SERVER_VERSION,
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
    "default_transaction_read_only": "off",
    "in_hot_standby": "off",
    "is_superuser": "off",
    "application_name": "",
}
"""what clients are told when they connect"""

SETTINGS = {
    **{name.lower(): value for name, value in REPORTED.items()},
    "bytea_output": "hex",
    "client_min_messages": "notice",
    "extra_float_digits": "1",
    "idle_in_transaction_session_timeout": "0",
    "lock_timeout": "0",
    "max_identifier_length": "63",
    "row_security": "off",
    "search_path": '"$user", public',
    "server_version_num": "160000",
    "statement_timeout": "0",
    "synchronous_commit": "on",
    "transaction_isolation": "serializable",
    "transaction_read_only": "off",
    "default_transaction_isolation": "serializable",
    "standard_conforming_strings": "on",
    "xmloption": "content",
    "lc_collate": "C",
    "lc_ctype": "C",
    "max_index_keys": "32",
}


def value_text(name: str, given: str) -> str:
    """The value of SET as SHOW gives it; DEFAULT is what it was at first."""
    text = given.strip().rstrip(";").strip()
    return SETTINGS[name] if text.upper() == "DEFAULT" else text.strip("'\"")
