"""All kinds of kernels; the laws are tested over each of them."""

from __future__ import annotations

import importlib
from typing import TypeVar

Spec = TypeVar("Spec", bound=type)

_specs: dict[str, type] = {}
_MODULES = (
    "asof", "events.spec", "streams.chain", "streams.distinct", "streams.merge", "over", "patterns.spec",
    "programs.spec",
    "streams.reorder", "streams.session", "streams.ties", "window_groups", "streams.yields", "relations.coalesce",
    "relations.events", "relations.rows_window", "relations.time_changes", "relations.unroll",
    "relations.at_window_end", "relations.bags", "relations.convert", "relations.deliver", "relations.join",
    "relations.summary",
)  # fmt: skip


def register(spec: Spec) -> Spec:
    """Enter a spec class; used as a decorator."""
    _specs[spec.__name__] = spec
    return spec


def registered() -> dict[str, type]:
    """Every spec class by its name."""
    for module in _MODULES:
        importlib.import_module(f"millstream.kernels.{module}")
    return dict(sorted(_specs.items()))
