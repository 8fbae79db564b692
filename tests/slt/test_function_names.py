"""Every function that the engine knows can be called in SQL by each of its names, and means itself there."""

from __future__ import annotations

import itertools

import pytest

import millstream as ms
from millstream.expressions import functions
from millstream.expressions.nodes import Column, Expr, Literal
from millstream.plan.nodes import Project
from millstream.types import ARRAY, BIGINT, BOOLEAN, DATE, DOUBLE, INTEGER, MAP, STRUCT, TIMESTAMP, VARCHAR
from tests.support.plans import plan_of

COLUMNS = {
    "i": BIGINT, "d": DOUBLE, "t": VARCHAR, "b": BOOLEAN, "ts": TIMESTAMP, "day": DATE, "a": ARRAY(BIGINT),
    "m": MAP(VARCHAR, BIGINT), "p": STRUCT(("hour", BIGINT)),
}  # fmt: skip
ARGUMENTS: list[tuple[str, Expr]] = [
    *((name, Column(type_, name)) for name, type_ in COLUMNS.items()),
    ("'hour'", Literal(VARCHAR, "hour")),
    ("'%Y'", Literal(VARCHAR, "%Y")),
    ("'$.a'", Literal(VARCHAR, "$.a")),
    ("'$[*]'", Literal(VARCHAR, "$[*]")),
    ("'UTC'", Literal(VARCHAR, "UTC")),
    ("1", Literal(INTEGER, 1)),
]
SYNTAX = {
    "and",
    "or",
    "not",
    "in",
    "like",
    "ilike",
    "neg",
    "is_null",
    "is_distinct",
    "position",
    "extract",
    "struct_pack",
}
"""These have a form of their own in SQL, and are called in tests of expressions."""


def calls(name: str) -> list[tuple[str, Expr]]:
    """A call for each number of arguments that the function takes: its SQL, and what it means."""
    function = functions.lookup(name)
    assert function is not None
    fewest, most = function.arity
    found = []
    for count in range(fewest, (fewest + 1 if most is None else most) + 1):
        for chosen in itertools.product(ARGUMENTS, repeat=count):
            try:
                meaning = functions.resolve(name, tuple(expr for _, expr in chosen))
            except ms.MillstreamError:
                continue
            found.append((f"{name}({', '.join(text for text, _ in chosen)})", meaning))
            break
    return found


@pytest.fixture(scope="module")
def database() -> ms.Database:
    database = ms.connect()
    columns = ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())
    database.execute(f"CREATE STREAM s ({columns}) ORDER BY ts")
    return database


@pytest.mark.parametrize("name", [name for name in functions.known_names() if name not in SYNTAX])
def test_a_function_is_called_by_its_name(database: ms.Database, name: str) -> None:
    found = calls(name)
    assert found, f"no arguments suit {name}"
    for text, meaning in found:
        plan = plan_of(database, f"SELECT {text} AS x FROM s")
        assert isinstance(plan, Project)
        bound = dict(plan.columns)["x"]
        # the group of regexp_extract has a default, which may be written out
        assert bound == meaning or str(bound) == str(meaning)[:-1] + ", 0)"
