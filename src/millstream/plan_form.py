"""Plans as data: a versioned JSON form of logical and physical plans, specs of kernels and catalog entries.

A value that is a frozen dataclass becomes an object that names its class by a short name which does not change, and
its fields, without those that have their default. Only the classes listed here are written or read. What occurs more
than once is written once. docs/plans.md describes the form and what may change from version to version.
"""

from __future__ import annotations

import base64
import importlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from decimal import Decimal
from enum import Enum
from functools import cache
from typing import Any

from millstream.errors import StateError
from millstream.records import dataclass
from millstream.types import SqlType, parse_type

FORMAT = 1

_LISTED = {
    "schema": "Field Schema",
    "catalog": "Clock Retention FromHistory StreamDef DerivedDef ViewDef TableDef SinkDef",
    "hosts.contract": "Query:ReadyQuery Member",
    "session.planned": "Planned",
    "session.cohorts": "CohortDef QuerySetDef",
    "hosts.spark.kept_plan": "KeptPlan KeptStage",
    "hosts.spark.job.kept_job": "KeptJob KeptQuery",
    "plan.aggregate_calls": "AggregateCall MatchRows",
    "expressions.nodes": "Column Literal Call Cast Case",
    "expressions.python_calls": "PythonCode PythonCall",
    "expressions.nested_codes": "NestedCall",
    "plan.events.algebra": "Times Since Next Fold",
    "plan.events.automata": "AutomatonState AutomatonEdge Automaton",
    "plan.event_joins": "AtWindowEnd Lasting Starts AsofJoin",
    "plan.programs.modes": "Running Sliding Tumbling Closing",
    "plan.nodes": "Scan TableScan TableQuery Filter Project Union Distinct JoinTable",
    "plan.keyed_nodes": "Over Aggregate Yield AssignWindows Sessions Group RowSlots",
    "plan.patterns.search": "Reach Skip Given Search Match",
    "plan.programs.nodes": "Range Order Rows Summary:AggregateValue Exists InQuery ScalarQuery Insert Update Delete "
    "LocalTable Program",
    "plan.programs.python": "Instance Method Vectorised",
    "plan.relations": "RangeWindow RowsWindow Periods OwnRange Window Coarsen Join Summarize Arrange SetOperation "
    "ToEvents Validity",
    "plan.patterns.expressions": "Variable Sequence Either Permute Repeat Excluded Edge Check",
    "plan.arrangements": "ArrangedCall Arrangement",
    "plan.failed": "FailedRows",
    "plan.lateness": "AdmitLate",
    "plan.lengths": "RowLength",
    "plan.ties": "SortKey Ties",
    "plan.unnest": "Unnest",
    "plan.window_tables": "Hopping Cumulating OwnTumbling:OwnWindows",
    "plan.windows": "Between Frame",
    "physical.nodes": "Source Compute Staged StoredTable TableJoin Apply",
    "kernels.asof.spec": "AsofSpec",
    "kernels.events.spec": "AutomatonSpec",
    "kernels.events.stages": "TimesStage SinceStage PointsStage InstantsStage",
    "kernels.streams.chain": "ChainSpec",
    "kernels.compute": "ComputeStage",
    "kernels.streams.distinct": "DistinctSpec",
    "kernels.streams.failing": "LenientStage",
    "kernels.streams.hop": "WindowStage",
    "kernels.streams.lateness": "LatenessSpec",
    "kernels.streams.merge": "MergeSpec",
    "kernels.over.spec": "OverSpec AheadSpec",
    "kernels.patterns.spec": "MatchSpec",
    "kernels.programs.spec": "AggregateSpec GroupSpec",
    "kernels.relations.at_window_end": "AtWindowEndSpec",
    "kernels.relations.bags": "BagSpec ToIntervalsSpec",
    "kernels.relations.coalesce": "CoalesceSpec",
    "kernels.relations.convert": "ToChangesSpec",
    "kernels.relations.deliver": "DeliverSpec",
    "kernels.relations.events": "ToEventsSpec",
    "kernels.relations.join": "JoinSpec",
    "kernels.relations.rows_window": "RowsWindowSpec",
    "kernels.relations.stages": "RangeStage PeriodStage OwnRangeStage CoarsenStage ValidityStage",
    "kernels.relations.starts": "StartsStage",
    "kernels.relations.summary": "SummarySpec",
    "kernels.relations.time_changes": "RangeChangesSpec",
    "kernels.relations.unroll": "SplitSpec",
    "kernels.streams.reorder": "ReorderSpec LateSpec",
    "kernels.streams.session": "SessionSpec",
    "kernels.streams.ties": "TieOrderSpec",
    "kernels.window_groups.spec": "WindowGroupSpec",
    "kernels.streams.row_slots": "RowSlotSpec",
    "kernels.streams.unnest": "UnnestStage",
    "kernels.streams.yields": "YieldSpec",
}
"""The classes that have a form, by the module they stand in: their short name, and behind a colon that of the class if
it is another. A short name is for ever; classes may be renamed and moved."""

_PLACES = {
    names.partition(":")[0]: (f"millstream.{module}", names.partition(":")[2] or names)
    for module, listed in _LISTED.items()
    for names in listed.split()
}
_NAMES = {place: name for name, place in _PLACES.items()}

Python = Callable[[str, str], Any]
"""from the name and digest of Python code to the code"""

_SMALL = 48
"""characters below which a value is not worth a reference"""


def dumps(value: object) -> str:
    """A plan, or any value made of the listed classes, as text."""
    return json.dumps(write(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def loads(text: str, python: Python | None = None) -> Any:
    """The inverse of `dumps`."""
    try:
        return read(json.loads(text), python)
    except json.JSONDecodeError as error:
        raise StateError("a saved plan cannot be read", detail=str(error)) from error


def write(value: object) -> dict[str, Any]:
    """A value as what JSON knows."""
    writer = _Writer()
    top = writer.seen(value)
    return {"format": FORMAT, **writer.written(top)}


def read(data: Mapping[str, Any], python: Python | None = None) -> Any:
    """The inverse of `write`. Code in Python is not in a plan: `python` gives it by its name."""
    if data.get("format") != FORMAT:
        raise StateError(
            f"a saved plan has format {data.get('format')}, this version reads {FORMAT}",
            hint="use the version that saved it, or start again",
        )
    reader = _Reader(python)
    for part in data.get("shared", ()):
        reader.shared.append(reader.value(part))
    return reader.value(data["plan"])


def python_in(value: object) -> dict[str, Any]:
    """The code in Python that a plan needs, by name."""
    writer = _Writer()
    writer.seen(value)
    return {code.name: code for code in writer.objects() if type(code).__name__ == "PythonCode"}


# -- writing -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Ref:
    """Stands for the object of that number."""

    number: int


class _Writer:
    """First all different objects are found, by value; then those that occur once go where they occur."""

    def __init__(self) -> None:
        self._by_identity: dict[int, tuple[object, _Ref]] = {}
        self._by_value: dict[str, _Ref] = {}
        self._objects: list[dict[str, Any]] = []
        self._uses: list[int] = []

    def seen(self, value: Any) -> Any:
        """The value with objects by number."""
        match value:
            case None | bool() | int() | str():
                return value
            case float():
                return value if math.isfinite(value) else {"$": "float", "text": repr(value)}
            case tuple() | list():
                return [self.seen(part) for part in value]
            case frozenset() | set():
                return {"$": "set", "items": sorted((self.seen(part) for part in value), key=repr)}
            case Mapping():
                return {"$": "map", "items": [[self.seen(key), self.seen(part)] for key, part in value.items()]}
            case SqlType():
                return {"$type": str(value)}
            case Decimal():
                return {"$": "decimal", "text": str(value)}
            case bytes():
                return {"$": "bytes", "base64": base64.b64encode(value).decode()}
        return self._object(value)

    def _object(self, value: Any) -> _Ref:
        if id(value) in self._by_identity:
            return self._by_identity[id(value)][1]
        name = _NAMES.get((type(value).__module__, type(value).__name__))
        if name is None:
            raise StateError(f"a plan with {type(value).__name__} cannot be saved")
        data: dict[str, Any] = {"$": name}
        if isinstance(value, Enum):
            data["value"] = value.value
        else:
            data |= {f.name: self.seen(getattr(value, f.name)) for f in _written(name) if not _is_default(value, f)}
        key = repr(data)
        ref = self._by_value.get(key)
        if ref is None:
            ref = self._by_value[key] = _Ref(len(self._objects))
            self._objects.append(data)
            self._uses.append(0)
            self._count(list(data.values()))
        self._by_identity[id(value)] = (value, ref)
        return ref

    def _count(self, value: Any) -> None:
        """Note that the objects in a value are used once more."""
        if isinstance(value, _Ref):
            self._uses[value.number] += 1
        for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            self._count(part)

    def objects(self) -> list[Any]:
        return [value for value, _ in self._by_identity.values()]

    def written(self, top: Any) -> dict[str, Any]:
        places: dict[int, int] = {}
        shared: list[Any] = []

        def put(value: Any) -> Any:
            match value:
                case _Ref(number=number):
                    if number in places:
                        return {"$": places[number]}
                    data = {name: put(part) for name, part in self._objects[number].items()}
                    if self._uses[number] < 2 or len(repr(data)) < _SMALL:
                        return data
                    places[number] = len(shared)
                    shared.append(data)
                    return {"$": places[number]}
                case list():
                    return [put(part) for part in value]
                case dict():
                    return {name: put(part) for name, part in value.items()}
            return value

        plan = put(top)
        return {"shared": shared, "plan": plan} if shared else {"plan": plan}


def _is_default(value: Any, field: Field[Any]) -> bool:
    default = field.default if field.default_factory is MISSING else field.default_factory()
    own = getattr(value, field.name)
    return default is not MISSING and type(default) is type(own) and bool(default == own)


# -- reading -----------------------------------------------------------------------------------------------------------


class _Reader:
    def __init__(self, python: Python | None) -> None:
        self.shared: list[Any] = []
        self._python = python

    def value(self, data: Any) -> Any:
        match data:
            case list():
                return tuple(map(self.value, data))
            case {"$type": str(text)}:
                return parse_type(text) or SqlType(text)
            case {"$": int(number)} if number < len(self.shared):
                return self.shared[number]
            case {"$": "float", "text": text}:
                return float(text)
            case {"$": "decimal", "text": text}:
                return Decimal(text)
            case {"$": "bytes", "base64": text}:
                return base64.b64decode(text)
            case {"$": "set", "items": items}:
                return frozenset(map(self.value, items))
            case {"$": "map", "items": items}:
                return {self.value(key): self.value(part) for key, part in items}
            case {"$": "PythonCode", "name": name, "digest": digest}:
                if self._python is None:
                    raise StateError(f"a plan needs {name}, which is written in Python")
                return self._python(name, digest)
            case {"$": "WindowCall" | "FoldAggregate" | "MatchSummary" as kind}:
                return self.value(_as_call(kind, data))
            case {"$": str(name)}:
                return self._object(name, {key: part for key, part in data.items() if key != "$"})
            case dict():
                raise StateError("a saved plan cannot be read", detail=f"{str(data)[:60]} is not a value")
        return data

    def _object(self, name: str, data: dict[str, Any]) -> Any:
        known = _class(name)
        if issubclass(known, Enum):
            return known(data["value"])
        unknown = data.keys() - {field.name for field in _written(name)}
        if unknown:
            raise StateError(
                f"a saved plan has the fields {', '.join(sorted(unknown))} of {name}, which this version does not know",
                hint="use the version that saved it",
            )
        try:
            return known(**{key: self.value(part) for key, part in data.items()})
        except (TypeError, ValueError) as error:
            raise StateError(f"a saved plan has {name} in an invalid form", detail=str(error)) from error


def _as_call(kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """What calls over a frame, in FOLD and over rows of a match were before they became an AggregateCall."""
    others = ("name", "type", "arg", "frame", "variables", "final")
    call = {key: part for key, part in data.items() if key not in others}
    call |= {"$": "AggregateCall", "names": [data["name"]], "types": [data["type"]]}
    if kind == "MatchSummary":
        rows = {key: data[key] for key in ("variables", "final") if key in data}
        return call | {"framed": {"$": "MatchRows", **rows}}
    call["args"] = [] if data["arg"] is None else [data["arg"]]
    return call | {"framed": data["frame"]} if kind == "WindowCall" else call


@cache
def _class(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise StateError(
            f"a saved plan has {name}, which this version does not know", hint="use the version that saved it"
        )
    return getattr(importlib.import_module(place[0]), place[1])


@cache
def _written(name: str) -> tuple[Field[Any], ...]:
    """The fields of a class that are written; the text of Python code is not."""
    return tuple(field for field in fields(_class(name)) if not (name == "PythonCode" and field.name == "made"))
