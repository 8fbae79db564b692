"""The vectors, and the streams that they name."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.kernels.batch import FOREVER
from millstream.schema import Schema
from millstream.types import VARCHAR
from tests.support.snapshot_algebra import Logical, Physical, Raw

VALUE = Schema.of(e=VARCHAR)


@dataclass(frozen=True)
class Vector:
    id: str
    op: str
    params: Any
    given: Any
    out: Any


Check = Callable[[Vector], None]


def _read() -> dict[str, Vector]:
    lines = (Path(__file__).parent / "pipes.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return {v["id"]: Vector(v["id"], v["op"], v["params"], v["in"], v["out"]) for v in found}


VECTORS = _read()
_DEFINED = {name: stream for v in VECTORS.values() if v.op == "define" for name, stream in v.out.items()}


def logical(stream: Any) -> Logical:
    """A logical stream by its name, or as it is written."""
    stream = _DEFINED[stream] if isinstance(stream, str) else stream
    return {int(time): Counter(map(_value, values) if isinstance(values, list) else values)
            for time, values in stream.items()}  # fmt: skip


def physical(stream: Any) -> Physical:
    """A physical stream by its name, or as it is written."""
    stream = _DEFINED[stream] if isinstance(stream, str) else stream
    return [(_value(value), start, FOREVER if end == "inf" else end) for value, start, end in stream]


def raw(stream: Any) -> Raw:
    """The instants at which a chronon stream, or a logical one, has its values."""
    stream = _DEFINED[stream] if isinstance(stream, str) else stream
    if isinstance(stream, dict):
        return [(value, int(time)) for time, values in stream.items() for value in values]
    return [(_value(row[0]), row[1]) for row in stream]


def _value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
