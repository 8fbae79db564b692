"""DuckDB as it is used here: it answers SQL, and reaches no file, no network and no native code of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_NOTHING_LOADED = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}


def connect(path: Path | None = None, *, threads: int | None = None, borrows: bool = False) -> Any:
    """A database in memory, or in the file at `path`; nothing that is executed on it can open it up again.

    With `borrows`, statements find Arrow data in the caller's variables. That way also leads to files, so it is for
    statements whose every word is ours.
    """
    import duckdb

    config: dict[str, Any] = {**_NOTHING_LOADED, "enable_external_access": borrows}
    if threads is not None:
        config["threads"] = threads
    connection = duckdb.connect(":memory:" if path is None else str(path), config=config)
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET lock_configuration = true")
    return connection
