"""Packages that only some connectors need: they are imported when one is declared."""

from __future__ import annotations

import importlib
from typing import Any

from millstream.errors import ConnectorError


def needed(package: str, extra: str) -> Any:
    """A package that an extra installs."""
    try:
        return importlib.import_module(package.replace("-", "_"))
    except ImportError as error:
        raise ConnectorError(
            f"the connector {extra} needs the package {package} ({error})", hint=f"pip install 'millstream[{extra}]'"
        ) from error
