"""DuckDB as it is used here: it answers SQL, and reaches no file, no network and no native code of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_SEALED = {
    "enable_external_access": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
    # ORDER BY 'constant' is odd, but no error elsewhere
    "order_by_non_integer_literal": True,
}


def connect(path: Path | None = None, *, threads: int | None = None, memory: int = 0, tries: bool = False) -> Any:
    """A database in memory, or in the file at `path`; nothing that is executed on it can open it up again.

    `memory` is how many bytes it may use; then it writes no temporary files either. With `tries`, TRY(…) catches all
    errors: DuckDB else computes what two expressions share before either, where no TRY is around it.
    """
    import duckdb

    config: dict[str, Any] = dict(_SEALED)
    if threads is not None:
        config["threads"] = threads
    if memory:
        config |= {"memory_limit": f"{memory}B", "temp_directory": ""}
    connection = duckdb.connect(":memory:" if path is None else str(path), config=config)
    # for all cursors, not this connection alone
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    if tries:
        connection.execute("SET GLOBAL disabled_optimizers = 'common_subexpressions'")
    connection.execute("SET allowed_configs = ['TimeZone']")
    connection.execute("SET lock_configuration = true")
    return connection
