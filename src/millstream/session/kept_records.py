"""How declarations and queries of a session are kept: under which key, and in which form."""

from __future__ import annotations

from typing import Any

from millstream import plan_form
from millstream.catalog import AggregateDef, Entry, FunctionDef

Record = dict[str, Any]
"""A declaration or a query as it is kept: the form of an `entry` with what it `uses`, the form of a `query` and where
its `sink` began, the `text` of a function or an aggregate, or the module of one in `python`."""


def record_of(entry: Entry, uses: frozenset[str]) -> Record:
    return {"entry": plan_form.dumps(entry), "uses": sorted(uses)}


def keys_of(name: str, kinds: tuple[type[Entry], ...]) -> tuple[str, ...]:
    """Under which keys a definition is kept: streams, functions and aggregates may share a name."""
    if AggregateDef in kinds:
        return f"aggregate:{name.lower()}", f"window aggregate:{name.lower()}"
    return (f"{'function' if FunctionDef in kinds else 'entry'}:{name.lower()}",)


def key_of(entry: Entry) -> str:
    keys = keys_of(entry.name, (type(entry),))
    return keys[1] if isinstance(entry, AggregateDef) and entry.window else keys[0]
