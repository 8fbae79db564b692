"""What saved state is: the kind of kernel, the types and places of its columns, its keys, what it computes with them.

Names are not part of it. A column is known by its place, so a query that calls a column something else, or that does
other things with what a kernel gives, goes on with the same state.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import pyarrow as pa

from millstream.expressions.nodes import Column
from millstream.plan.programs.nodes import Program
from millstream.records import dataclass
from millstream.schema import Schema
from millstream.types import SqlType

_COLUMNS = frozenset(
    ("keys", "by", "within", "arg", "args", "column", "columns", "end", "ends", "results", "read", "times", "ties")
)
"""fields that hold names of columns of the input"""

_RESULTS = frozenset(("name", "names", "made", "keys_out", "starts", "output"))
"""fields that hold names of columns of the output"""

_Form = Any
_Names = Callable[[str], str | None]


@dataclass(frozen=True)
class Signature:
    """What a spec's state is, and under which places its columns are saved."""

    kind: str
    text: str
    inputs: tuple[str, ...]
    """names of the inputs' columns, each once; place i is saved as #i"""
    outputs: tuple[str, ...]
    """names of the output's columns; place i is saved as >i unless the inputs have its name, too"""

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:32]

    def placed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with places for names."""
        return rows.rename_columns([self._place(name) for name in rows.schema.names])

    def named(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows as they were before `placed`, under the names that this spec has for them; others as they are."""
        names = rows.schema.names
        return rows.rename_columns([self._name(name) if name[:1] in ("#", ">", "=") else name for name in names])

    def place(self, name: str) -> str:
        """Where a column is that may be written in other letters."""
        known = {each.lower(): each for each in (*reversed(self.outputs), *reversed(self.inputs))}
        return self._place(known.get(name.lower(), name))

    def _place(self, name: str) -> str:
        if name in self.inputs:
            return f"#{self.inputs.index(name)}"
        return f">{self.outputs.index(name)}" if name in self.outputs else f"={name}"

    def _name(self, place: str) -> str:
        kind, rest = place[:1], place[1:]
        return rest if kind == "=" else (self.inputs if kind == "#" else self.outputs)[int(rest)]


def signature_of(spec: Any) -> Signature:
    """What the state of a spec's kernel is; equal for specs whose kernels can go on with each other's state."""
    kept: dict[str, Any] = vars(spec)
    if "$signature" not in kept:
        # beside the fields, as cached properties are
        kept["$signature"] = _signature(spec)
    found: Signature = kept["$signature"]
    return found


def _signature(spec: Any) -> Signature:
    inputs = tuple(dict.fromkeys(name for schema in spec.inputs for name in schema.names))
    outputs = tuple(spec.output.names)
    # which columns of the output are called like columns of the input: it decides where they are saved
    alike = [inputs.index(name) if name in inputs else None for name in outputs]
    form = [*_spec_form(spec, inputs, outputs), alike]
    text = json.dumps(form, separators=(",", ":"), ensure_ascii=False)
    return Signature(type(spec).__name__, text, inputs, outputs)


def _spec_form(spec: Any, inputs: Sequence[str], outputs: Sequence[str]) -> _Form:
    """A spec by what it says of its state: `state_signature` if it has an opinion, otherwise all its fields."""
    places = {name.lower(): f"#{place}" for place, name in reversed(list(enumerate(inputs)))}
    made = {name.lower(): f">{place}" for place, name in enumerate(outputs)}

    def column(name: str) -> str | None:
        return places.get(name.lower()) or made.get(name.lower())

    def result(name: str) -> str | None:
        return made.get(name.lower()) or places.get(name.lower())

    told = getattr(spec, "state_signature", None)
    if told is not None:
        return [type(spec).__name__, _form(told(), column, result)]
    return [type(spec).__name__, *(_field(spec, name, column, result) for name in _compared(spec))]


def _field(value: Any, name: str, column: _Names, result: _Names) -> _Form:
    if name in _RESULTS and not isinstance(value, Column):
        return _form(getattr(value, name), result, result, is_name=True)
    return _form(getattr(value, name), column, result, is_name=name in _COLUMNS or isinstance(value, Column))


def _form(value: Any, column: _Names, result: _Names, is_name: bool = False) -> _Form:
    match value:
        case str():
            # text may look like a place, so it is told apart
            return (column(value) if is_name else None) or f"={value}"
        case None | bool() | int() | float():
            return value
        case tuple() | frozenset():
            parts = [_form(part, column, result, is_name) for part in value]
            return parts if isinstance(value, tuple) else sorted(parts, key=repr)
        case dict():
            return {key: _form(part, column, result, key in _COLUMNS) for key, part in value.items()}
        case SqlType():
            return str(value)
        case Enum():
            return [type(value).__name__, value.name]
        case Schema():
            return [str(field.type) for field in value]
        case Program():
            # its tables and parameters have names of its own
            return repr(value)
    if hasattr(value, "inputs") and hasattr(value, "keys") and hasattr(value, "build"):
        return json.loads(signature_of(value).text)
    if is_dataclass(value):
        # a class that changed since state was first saved goes by the name and the fields that it had then
        known = getattr(value, "saved_as", type(value).__name__)
        known, names = getattr(value, "saved_form", None) or (known, _compared(value))
        return [known, *(_field(value, name, column, result) for name in names)]
    return repr(value)


def _compared(value: Any) -> list[str]:
    """The fields that say what state is; those that are marked `later` only where they say something: state that was
    saved before they existed still belongs to a value that has their default."""
    return [
        field.name
        for field in fields(value)
        if field.compare and not (field.metadata.get("later") and getattr(value, field.name) == field.default)
    ]
