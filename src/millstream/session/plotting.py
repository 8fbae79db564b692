"""Plots of matches: the rows of a query as a series, with the matches of a pattern marked."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pyarrow as pa

from millstream.errors import BindError, EngineError
from millstream.expressions.nodes import Column
from millstream.kernels.patterns.spec import MatchSpec
from millstream.physical.nodes import Apply, Compute, Physical
from millstream.plan.patterns.search import CLASSIFIER, MATCH_NUMBER, Reach
from millstream.records import dataclass

SERIES, BANDS = "#8c959f", ("#54aeff", "#f5b13d", "#7bc96f", "#c297ff")


@dataclass(frozen=True)
class Roles:
    """Which columns of a result tell the match, its variables and the partition, and which may be the time."""

    match: str | None = None
    variable: str | None = None
    keys: tuple[str, ...] = ()
    times: frozenset[str] = frozenset()


def roles_of(plan: Physical, names: tuple[str, ...], times: frozenset[str]) -> Roles:
    """The roles of the columns of a plan that are delivered under these names; `times` order the streams it reads."""
    match = variable = None
    keys, found = [], set()
    for name, field in zip(names, plan.schema, strict=True):
        spec, column = _origin(plan, field.name)
        if column.lower() in times:
            found.add(name)
        if spec is None:
            continue
        value = spec.search.named.get(column)
        if column == MATCH_NUMBER:
            match = name
        elif isinstance(value, Reach) and value.column == CLASSIFIER and value.variables is None and not value.first:
            variable = variable or name
        elif column in spec.search.keys:
            keys.append(name)
    return Roles(match, variable, tuple(keys), frozenset(found))


def _origin(plan: Physical, column: str) -> tuple[MatchSpec | None, str]:
    """The search that a column comes from as it is, if there is one, and its name there."""
    while True:
        if isinstance(plan, Apply) and isinstance(plan.spec, MatchSpec):
            return plan.spec, column
        if isinstance(plan, Compute) and plan.columns is not None:
            source = dict(plan.columns)[column]
            if not isinstance(source, Column):
                return None, ""
            column = source.name
        if not plan.inputs or column not in plan.inputs[0].schema:
            return None, column
        plan = plan.inputs[0]


def plot(rows: pa.Table, roles: Roles, x: str | None = None, y: str | None = None, ax: Any = None) -> Any:
    """Draw `y` over `x`, a line for each partition; mark each match, and each row by its variable. Gives the axes."""
    x = _named(rows, x) if x is not None else _time(rows, roles)
    y = _named(rows, y) if y is not None else _value(rows, roles, x)
    axes = ax if ax is not None else _pyplot().subplots(figsize=(9, 4.5))[1]
    variables = _variables(rows, roles)
    colors = {variable: f"C{number % 10}" for number, variable in enumerate(variables)}
    for partition, part in _partitions(rows, roles):
        across = part[x].to_pylist() if x is not None else list(range(part.num_rows))
        up = part[y].to_pylist()
        # what is drawn is a value at a place; a row without either leaves no trace
        places = [i for i in range(part.num_rows) if across[i] is not None and up[i] is not None]
        axes.plot([across[i] for i in places], [up[i] for i in places], color=SERIES, linewidth=1, zorder=1)
        if partition and places:
            axes.annotate(partition, (across[places[-1]], up[places[-1]]), xytext=(4, 0), textcoords="offset points")
        for number, members in _matches(part, roles, places):
            axes.plot(
                [across[i] for i in members], [up[i] for i in members], color=BANDS[number % len(BANDS)],
                linewidth=9, alpha=0.35, solid_capstyle="round", marker="o", markersize=9, markeredgewidth=0, zorder=2,
            )  # fmt: skip
        labels = part[roles.variable].to_pylist() if roles.variable is not None else [None] * part.num_rows
        for variable, color in colors.items():
            chosen = [i for i in places if labels[i] == variable]
            axes.scatter([across[i] for i in chosen], [up[i] for i in chosen], s=22, color=color, zorder=3)
    for variable, color in colors.items():
        axes.scatter([], [], s=22, color=color, label=variable)
    if colors:
        axes.legend(title=roles.variable)
    axes.set(xlabel=x or "row", ylabel=y)
    if x is not None and pa.types.is_temporal(rows.schema.field(x).type):
        axes.figure.autofmt_xdate()
    return axes


def _pyplot() -> Any:
    try:
        return import_module("matplotlib.pyplot")
    except ImportError:
        raise EngineError("plot() needs matplotlib", hint="pip install matplotlib") from None


def _named(rows: pa.Table, name: str) -> str:
    matching = [column for column in rows.column_names if column.lower() == name.lower()]
    if len(matching) != 1:
        what = f"no column {name}" if not matching else f"{len(matching)} columns {name}"
        raise BindError(what, hint="available: " + ", ".join(rows.column_names))
    return str(matching[0])


def _time(rows: pa.Table, roles: Roles) -> str | None:
    named = [field.name for field in rows.schema if field.name in roles.times]
    temporal = [field.name for field in rows.schema if pa.types.is_temporal(field.type)]
    return next(iter(named or temporal), None)


def _value(rows: pa.Table, roles: Roles, x: str | None) -> str:
    for field in rows.schema:
        number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type)
        if number and field.name not in (x, roles.match, *roles.keys):
            return str(field.name)
    raise BindError("no column of numbers to plot", hint="select one, or name it: plot(y=…)")


def _variables(rows: pa.Table, roles: Roles) -> list[str]:
    """The variables that rows are labelled with, in order of their first row."""
    return [] if roles.variable is None else [v for v in rows[roles.variable].unique().to_pylist() if v is not None]


def _partitions(rows: pa.Table, roles: Roles) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each partition, with what it is called; nothing if there is only one."""
    if not roles.keys:
        yield "", rows
        return
    keys = list(zip(*(rows[name].to_pylist() for name in roles.keys), strict=True))
    members: dict[tuple[Any, ...], list[int]] = {}
    for place, key in enumerate(keys):
        members.setdefault(key, []).append(place)
    for key, places in members.items():
        yield ", ".join(map(str, key)) if len(members) > 1 else "", rows.take(pa.array(places))


def _matches(part: pa.Table, roles: Roles, places: list[int]) -> Iterator[tuple[int, list[int]]]:
    """The rows of each match; of rows whose variable is told, only those that have one."""
    if roles.match is None:
        return
    labels = part[roles.variable].to_pylist() if roles.variable is not None else [""] * part.num_rows
    numbers = part[roles.match].to_pylist()
    members: dict[int, list[int]] = {}
    for place in places:
        if numbers[place] is not None and labels[place] is not None:
            members.setdefault(numbers[place], []).append(place)
    yield from members.items()
