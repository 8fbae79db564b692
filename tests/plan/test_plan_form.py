"""Plans as data: what is written is read as it was, for every plan of the golden files; what is unknown is refused."""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import millstream as ms
from millstream import plan_form
from millstream.errors import StateError
from millstream.expressions.nodes import Call, Column, Literal
from millstream.kernels.registry import registered
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.nodes import Filter, Scan, Union
from millstream.plan.windows import Frame
from millstream.schema import Schema
from millstream.session import planned as session
from millstream.testing.slt import parse
from millstream.types import BIGINT, BOOLEAN, DECIMAL, DOUBLE, VARCHAR, SqlType

GOLDEN = Path(__file__).parent.parent / "slt"
FOLDERS = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir() and path.name != "__pycache__")


def plans_of(folder: str) -> list[Any]:
    """The logical plans, as bound and optimized, and the physical ones of all queries in a folder of golden files."""
    found: list[Any] = []

    def plan_physical(plan: Any, *args: Any) -> Any:
        found.append(plan)
        found.append(made := physical(plan, *args))
        return made

    def run_rules(plan: Any, *args: Any) -> Any:
        found.append(plan)
        return rules(plan, *args)

    physical, rules = session.plan_physical, session.run_rules
    with patch.object(session, "plan_physical", plan_physical), patch.object(session, "run_rules", run_rules):
        for path in sorted((GOLDEN / folder).rglob("*.slt")):
            database = ms.connect()
            for record in parse(path).records:
                if record.verb not in ("statement", "stream"):
                    continue
                try:
                    database.execute(record.text)
                except ms.MillstreamError:
                    continue
            found += [entry for entry in database.catalog.entries() if type(entry).__name__ in plan_form._PLACES]
            database.close()
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_golden_plans_are_read_as_they_were_written(folder: str) -> None:
    plans = plans_of(folder)
    assert plans or folder in ("refuse", "restart")
    for plan in plans:
        read = plan_form.loads(plan_form.dumps(plan))
        # a constant that is not a number does not equal itself
        assert read == plan or "value=nan" in repr(plan)
        assert repr(read) == repr(plan)
        assert plan_form.dumps(read) == plan_form.dumps(plan)


def test_every_kernel_and_everything_a_plan_may_hold_has_a_form() -> None:
    listed = {plan_form._class(name) for name in plan_form._PLACES}
    assert set(registered().values()) <= listed
    for known in listed:
        if is_dataclass(known):
            assert all(field.init for field in fields(known))


STREAM = Scan("s", Schema.of(a=BIGINT, x=DOUBLE, name=VARCHAR))


@pytest.mark.parametrize(
    "value",
    [
        None, True, 1, 1.0, -0.0, 2**70, "", "it's", "\u0000ü", b"\x00\xff", Decimal("1.20"), math.inf, -math.inf,
        (), (1, (True, 1.0)), frozenset({1, 2}), {"path": "x", "rows": 3},
    ],
    ids=repr,
)  # fmt: skip
def test_values(value: Any) -> None:
    read = plan_form.loads(plan_form.dumps(value))
    assert read == value
    assert repr(read) == repr(value)


def test_types_and_not_a_number() -> None:
    for type_ in (BIGINT, DECIMAL(10, 2), SqlType("NULL")):
        assert plan_form.loads(plan_form.dumps(type_)) == type_
    assert math.isnan(plan_form.loads(plan_form.dumps(math.nan)))


def test_what_occurs_often_is_written_once() -> None:
    plan: Any = STREAM
    for _ in range(60):
        plan = Union((plan, plan))
    assert len(plan_form.dumps(plan)) < 5_000
    expr: Any = Column(BIGINT, "a")
    for _ in range(60):
        expr = Call(BIGINT, "+", (expr, expr))
    assert len(plan_form.dumps(expr)) < 8_000


def test_a_condition_in_the_form() -> None:
    plan = Filter(STREAM, Call(BOOLEAN, ">", (Column(BIGINT, "a", said="s.a"), Literal(BIGINT, 1))))
    assert plan_form.write(plan)["plan"]["predicate"] == {
        "$": "Call",
        "type": {"$type": "BOOLEAN"},
        "fn": ">",
        "args": [
            {"$": "Column", "type": {"$type": "BIGINT"}, "name": "a", "said": "s.a"},
            {"$": "Literal", "type": {"$type": "BIGINT"}, "value": 1},
        ],
    }


def refused(data: Any) -> str:
    with pytest.raises(StateError) as caught:
        plan_form.loads(data if isinstance(data, str) else json.dumps(data))
    return str(caught.value)


def test_what_is_unknown_is_refused() -> None:
    assert "format 99, this version reads 1" in refused({"format": 99, "plan": None})
    assert "has Teleport, which this version does not know" in refused({"format": 1, "plan": {"$": "Teleport"}})
    column = {"$": "Column", "type": {"$type": "BIGINT"}, "name": "a"}
    assert "the fields colour of Column" in refused({"format": 1, "plan": {**column, "colour": 1}})
    assert "in an invalid form" in refused({"format": 1, "plan": {"$": "Column", "name": "a"}})
    assert "is not a value" in refused({"format": 1, "plan": {"a": 1}})
    assert "cannot be read" in refused("{")
    with pytest.raises(StateError, match="cannot be saved"):
        plan_form.dumps(object())


def test_classes_outside_the_list_are_never_loaded() -> None:
    for name in ("os", "subprocess.Popen", "Batch", "__class__"):
        assert "does not know" in refused({"format": 1, "plan": {"$": name}})


def test_code_in_python_is_found_by_its_name() -> None:
    @ms.aggregate("total", parameters={"x": "DOUBLE"}, returns="DOUBLE")
    def total(x: Any) -> float:
        return float(x.sum())

    database = ms.connect()
    database.register_aggregate(total)
    database.execute("CREATE STREAM s (x double, t int) ORDER BY t")
    program = database.prepare("SELECT total(x) OVER (ROWS 2 PRECEDING) AS s FROM s")
    text = plan_form.dumps(program)
    asked: list[str] = []

    def python(name: str, digest: str) -> Any:
        asked.append(name)
        entry = database.catalog.aggregate("total", True) or database.catalog.aggregate("total", False)
        assert entry is not None
        assert entry.python is not None
        assert entry.python.digest == digest
        return entry.python

    assert plan_form.loads(text, python) == program
    assert set(asked) == {"total"}
    assert "written in Python" in refused(text)


def test_calls_of_aggregates_are_read_in_their_earlier_forms() -> None:
    x, of_x = Column(DOUBLE, "x"), {"$": "Column", "type": {"$type": "DOUBLE"}, "name": "x"}
    double, frame = {"$type": "DOUBLE"}, {"$": "Frame", "unit": "rows", "preceding": 3}
    before = [
        {"$": "WindowCall", "name": "m", "fn": "max", "arg": "x", "frame": frame, "distinct": True, "type": double},
        {"$": "FoldAggregate", "name": "m", "fn": "max", "arg": of_x, "type": double},
        {"$": "FoldAggregate", "name": "n", "fn": "count", "arg": None, "type": {"$type": "BIGINT"}},
        {"$": "MatchSummary", "name": "m", "fn": "max", "args": [of_x], "type": double, "variables": ["A"]},
        {"$": "MatchSummary", "name": "m", "fn": "max", "args": [of_x], "type": double, "final": True},
    ]
    assert plan_form.read({"format": 1, "plan": before}) == (
        AggregateCall.over("m", "max", "x", Frame("rows", 3), True, DOUBLE),
        AggregateCall.builtin("m", "max", x, DOUBLE),
        AggregateCall(("n",), "count", (), (BIGINT,)),
        AggregateCall.matched("m", "max", (x,), DOUBLE, ("A",)),
        AggregateCall.matched("m", "max", (x,), DOUBLE, final=True),
    )
