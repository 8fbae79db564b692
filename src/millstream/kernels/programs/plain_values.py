"""Plain Python values as bytes and back, without running anything: the saved state of aggregates written in Python.

JSON, with an object `{"$": kind, …}` for what JSON does not have. Reading makes values of the listed kinds only.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.arrays import one_batch

MARK = b"plain1:"
"""how saved values begin; the number is that of the format"""

_FACTORIES: dict[str, Any] = {
    "int": int, "float": float, "str": str, "list": list, "dict": dict, "set": set, "bool": bool, "tuple": tuple,
    "deque": deque, "Counter": Counter,
}  # fmt: skip


def dumps(value: Any) -> bytes:
    """A value as bytes; TypeError for one that is not plain."""
    return MARK + json.dumps(_Writer().form(value), separators=(",", ":"), allow_nan=False).encode()


def loads(saved: bytes) -> Any:
    """The inverse of `dumps`; ValueError for other bytes."""
    if not saved.startswith(MARK):
        raise ValueError("an earlier version saved it as a pickle, which is no longer supported")
    return _read(json.loads(saved[len(MARK) :]))


class _Writer:
    def __init__(self) -> None:
        self._held: set[int] = set()

    def form(self, value: Any) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"$": "float", "text": repr(value)}
        if kind in _SIMPLE:
            return {"$": kind.__name__, "text": _SIMPLE[kind][0](value)}
        if kind in (bytes, bytearray):
            return {"$": kind.__name__, "base64": base64.b64encode(value).decode()}
        if isinstance(value, np.generic) and not isinstance(value, np.void) and value.dtype.kind in "biufcSUmM":
            return {"$": "numpy", "type": value.dtype.str, "base64": base64.b64encode(value.tobytes()).decode()}
        if kind is tuple or kind is frozenset:
            return {"$": kind.__name__, "items": [self.form(each) for each in value]}
        # what can change must not be held in two places: it would be two things afterwards
        if id(value) in self._held:
            raise TypeError(f"a {kind.__name__} is referenced twice")
        self._held.add(id(value))
        return self._mutable(value, kind)

    def _mutable(self, value: Any, kind: type) -> Any:
        if kind is list:
            return [self.form(each) for each in value]
        if kind is set:
            return {"$": "set", "items": [self.form(each) for each in value]}
        if kind is deque:
            return {"$": "deque", "items": [self.form(each) for each in value], "maxlen": value.maxlen}
        if kind in (dict, OrderedDict, Counter, defaultdict):
            items = [[self.form(key), self.form(each)] for key, each in value.items()]
            if kind is defaultdict:
                factory = next((name for name, made in _FACTORIES.items() if made is value.default_factory), None)
                if factory is None and value.default_factory is not None:
                    raise TypeError("a defaultdict with a custom default factory")
                return {"$": "defaultdict", "items": items, "makes": factory}
            return {"$": kind.__name__, "items": items}
        if kind is np.ndarray and value.dtype.kind in "biufcSUmM":
            data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
            return {"$": "array", "type": value.dtype.str, "shape": list(value.shape), "base64": data}
        if isinstance(value, pa.Array | pa.Table | pa.RecordBatch):
            return {"$": "arrow", "kind": _arrow_kind(value), "base64": base64.b64encode(_to_ipc(value)).decode()}
        raise TypeError(f"a value of type {kind.__module__}.{kind.__qualname__}")


_SIMPLE: dict[type, tuple[Any, Any]] = {
    complex: (repr, complex),
    Decimal: (str, Decimal),
    Fraction: (str, Fraction),
    dt.datetime: (dt.datetime.isoformat, dt.datetime.fromisoformat),
    dt.date: (dt.date.isoformat, dt.date.fromisoformat),
    dt.time: (dt.time.isoformat, dt.time.fromisoformat),
    dt.timedelta: (
        lambda value: f"{value.days},{value.seconds},{value.microseconds}",
        lambda text: dt.timedelta(*map(int, text.split(","))),
    ),
}
_BY_NAME = {kind.__name__: read for kind, (_, read) in _SIMPLE.items()}


def _read(form: Any) -> Any:
    if isinstance(form, list):
        return [_read(each) for each in form]
    if not isinstance(form, dict):
        return form
    kind = form.get("$")
    if kind == "float":
        return float(form["text"])
    if kind in _BY_NAME:
        return _BY_NAME[kind](form["text"])
    match kind:
        case "bytes":
            return base64.b64decode(form["base64"])
        case "bytearray":
            return bytearray(base64.b64decode(form["base64"]))
        case "tuple" | "frozenset" | "set":
            made = {"tuple": tuple, "frozenset": frozenset, "set": set}[kind]
            return made(_read(each) for each in form["items"])
        case "deque":
            return deque((_read(each) for each in form["items"]), form["maxlen"])
        case "dict" | "OrderedDict" | "Counter" | "defaultdict":
            items = {_read(key): _read(each) for key, each in form["items"]}
            if kind == "defaultdict":
                return defaultdict(None if form["makes"] is None else _FACTORIES[form["makes"]], items)
            return {"dict": dict, "OrderedDict": OrderedDict, "Counter": Counter}[kind](items)
        case "numpy":
            return np.frombuffer(base64.b64decode(form["base64"]), _plain_type(form["type"]))[0]
        case "array":
            flat = np.frombuffer(base64.b64decode(form["base64"]), _plain_type(form["type"]))
            return flat.reshape(form["shape"]).copy()
        case "arrow":
            return _from_ipc(form["kind"], base64.b64decode(form["base64"]))
    raise ValueError(f"no kind of value {kind!r}")


def _plain_type(text: str) -> np.dtype[Any]:
    found = np.dtype(text)
    if found.hasobject:
        raise ValueError(f"no plain type {text!r}")
    return found


def _arrow_kind(value: Any) -> str:
    return "array" if isinstance(value, pa.Array) else "table" if isinstance(value, pa.Table) else "batch"


def _to_ipc(value: Any) -> bytes:
    batch = pa.record_batch([value], names=["values"]) if isinstance(value, pa.Array) else value
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write(batch)
    return bytes(sink.getvalue())


def _from_ipc(kind: str, saved: bytes) -> Any:
    table = pa.ipc.open_stream(saved).read_all()
    if kind == "table":
        return table
    batch = one_batch(table.to_batches(), table.schema)
    return batch.column(0) if kind == "array" else batch
