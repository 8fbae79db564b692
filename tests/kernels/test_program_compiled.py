"""The compiled engine against the general one: on the papers' aggregates, and on random programs."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from millstream.errors import DataError
from millstream.expressions.nodes import Expr
from millstream.expressions.object_values import to_arrow
from millstream.kernels import jit
from millstream.kernels.programs.compiled import CompiledEngine, why_not_compiled
from millstream.kernels.programs.engine import Closing, Groups, Mode, Running, Sliding, TableRows, Tumbling
from millstream.kernels.programs.rows import RowEngine
from millstream.plan.programs.builder import Use, every
from millstream.plan.programs.nodes import (
    AggregateValue,
    Delete,
    Exists,
    Insert,
    Program,
    Rows,
    ScalarQuery,
    Statement,
    parameter,
)
from millstream.schema import Schema
from millstream.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, TIMESTAMP, VARCHAR, SqlType
from tests.support.program_reference import Tuple
from tests.support.programs import (
    BASE_PROGRAMS,
    WINDOW_PROGRAMS,
    Builder,
    algebraic_max,
    call,
    modes_for,
    naive_avg,
    programs,
    run_engine,
    same_results,
    tuples_for,
)
from tiers import examples

PAPER = {**BASE_PROGRAMS, **WINDOW_PROGRAMS}
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def outcome(engine: Any, program: Program, mode: Mode, tuples: list[Tuple], **how: Any) -> Any:
    """What comes out, or that values do not fit or a subquery has several rows."""
    try:
        return run_engine(engine, program, mode, tuples, **how)
    except DataError:
        return "an error"


def agree(program: Program, mode: Mode, tuples: list[Tuple], keyed: bool = True, **how: Any) -> None:
    if not keyed:
        tuples = [(0, time, values) for _, time, values in tuples]
    compiled = outcome(CompiledEngine(program, mode, keyed), program, mode, tuples, **how)
    general = outcome(RowEngine(program, mode), program, mode, tuples)
    if "an error" in (compiled, general):
        assert compiled == general
    else:
        assert same_results(compiled, general), (compiled, general)


@pytest.mark.parametrize("name", PAPER)
@given(data=st.data())
@settings(deadline=None, max_examples=examples(40), suppress_health_check=SLOW)
def test_papers_aggregates_compile_and_agree(name: str, data: st.DataObject) -> None:
    program = PAPER[name]()
    mode = data.draw(modes_for(program))
    assert why_not_compiled(program, mode) is None
    tuples = data.draw(tuples_for(program))
    cuts = data.draw(st.lists(st.integers(0, 12), max_size=3))
    with jit.using("off"):
        agree(program, mode, tuples, keyed=data.draw(st.booleans()), cuts=cuts, reload=data.draw(st.booleans()))


@given(data=st.data())
@settings(deadline=None, max_examples=examples(50), suppress_health_check=SLOW)
def test_random_programs_agree(data: st.DataObject) -> None:
    # most programs with joins, and many with text, have no loop
    program = data.draw(programs(grouping=False, joins=False, text=data.draw(st.booleans())))
    mode = data.draw(modes_for(program))
    assume(why_not_compiled(program, mode) is None)
    tuples = data.draw(tuples_for(program))
    cuts = data.draw(st.lists(st.integers(0, 12), max_size=3))
    with jit.using("off"):
        agree(program, mode, tuples, keyed=data.draw(st.booleans()), cuts=cuts, reload=data.draw(st.booleans()))


def counting(deletes: str = "by value", guarded: bool = True) -> Program:
    """Counts remainders in a table, takes them back when tuples expire, and forgets those that have none left; without
    `guarded` there is a row for each tuple."""
    counts = Schema.of(h=BIGINT, n=BIGINT)
    b = Builder("counting", Schema.of(x=BIGINT), Schema.of(r=BIGINT), Schema.of(w=BIGINT), c=counts)
    rest, old = call("%", b.param("x"), 5), call("%", b.oldest("w"), 5)
    more, less, gone, same, all_ = (b.use("c") for _ in range(5))
    where = call(">", b.sqlcode, 0) if guarded else None
    arrive = [
        b.update(more, call("=", more["h"], rest), n=call("+", more["n"], 1)),
        b.values("c", rest, 1, where=where),
        b.select(None, same["n"], of=[same], where=call("=", same["h"], b.param("x"))),
        b.select(None, call("+", call("*", all_["h"], 1000), all_["n"]), of=[all_]),
    ]
    empty = call("<=", gone["n"], 0)
    expire = [
        b.update(less, call("=", less["h"], old), n=call("-", less["n"], 1)),
        Delete(gone.range, empty if deletes == "by scan" else call("and", empty, call("=", gone["h"], old))),
    ]
    return b.program(arrive, arrive, expire)


REMAINDERS = st.lists(st.one_of(st.none(), st.integers(-12, 12)), max_size=40)


@pytest.mark.parametrize("deletes", ["by value", "by scan"])
@given(values=REMAINDERS, size=st.integers(1, 9), cuts=st.lists(st.integers(0, 40), max_size=3), reload=st.booleans())
@settings(deadline=None, max_examples=examples(60), suppress_health_check=SLOW)
def test_rows_that_have_a_cell_for_their_value(
    deletes: str, values: list[int | None], size: int, cuts: list[int], reload: bool
) -> None:
    program, mode = counting(deletes), Sliding("rows", size)
    assert CompiledEngine(program, mode, keyed=False).layout.cells[0].bound == 5
    with jit.using("off"):
        agree(program, mode, [(0, i, (x,)) for i, x in enumerate(values)], keyed=False, cuts=cuts, reload=reload)


def test_values_have_a_cell_each_only_if_no_two_rows_may_share_one() -> None:
    assert CompiledEngine(counting(guarded=False), Sliding("rows", 3), keyed=False).layout.cells[0].bound is None
    assert CompiledEngine(counting(), Sliding("rows", 3), keyed=True).layout.cells[0].bound is None
    with jit.using("off"):
        agree(counting(guarded=False), Sliding("rows", 3), [(0, i, (i % 7,)) for i in range(30)], keyed=False)


def test_machine_code_gives_what_python_gives_for_a_sole_group() -> None:
    """The window outgrows its ring several times; NULLs come late, so that both texts of the program run."""
    random = Random(3)
    tuples: list[Tuple] = [(0, i, (None if i > 700 and i % 9 == 0 else random.randint(-50, 50),)) for i in range(900)]
    for mode in (Sliding("rows", 256), Sliding("range", 300)):
        with jit.using("off"):
            expected = run_engine(RowEngine(counting(), mode), counting(), mode, tuples)
        with jit.using("on"):
            engine = CompiledEngine(counting(), mode, keyed=False)
            got = run_engine(engine, counting(), mode, tuples, cuts=[1, 500, 701], reload=True)
        assert same_results(got, expected)


def ranging(random: Random, kind: SqlType) -> Program:
    """Keeps rows with a value `v` and an identity `k`, and reads, changes and deletes those between bounds."""
    rows, found = Schema.of(k=BIGINT, v=kind, n=BIGINT), Schema.of(c=BIGINT)
    b = Builder(
        "ranging", Schema.of(x=BIGINT, y=kind, z=kind), Schema.of(r=BIGINT, q=kind, p=kind), None, t=rows, u=found
    )
    y, z, x = b.param("y"), b.param("z"), b.param("x")

    def bounds(use: Use) -> Expr:
        sign = random.choice([("<", ">"), ("<=", ">="), ("<=", ">")])
        one, two = call(sign[0], use["v"], y), call(sign[1], z, use["v"])
        more, odd = call(sign[1], use["v"], z), call("=", call("%", use["k"], 2), 1)
        flipped = call("<", y, use["v"])
        return random.choice([one, two, more, flipped, every(more, one), every(odd, more), every(one, odd)])

    def summary(fn: str, *args: Expr) -> AggregateValue:
        return AggregateValue(args[0].type if args else BIGINT, fn, args)

    def statement() -> Statement:
        t, other = b.use("t"), b.use("t")
        where, v, n = bounds(t), t["v"], t["n"]
        kinds = ["delete", "update", "move", "extreme", "count", "sum", "rows", "exists", "scalar", "copy"]
        match random.choice(kinds):
            case "delete":
                return Delete(t.range, where)
            case "update":
                return b.update(t, where, n=call("+", n, 1))
            case "move" if moves:
                moved = every(call("=", t["k"], x), *([where] if random.random() < 0.5 else []))
                to = call("+", v, 1) if kind != TIMESTAMP and random.random() < 0.5 else random.choice([y, z])
                return b.update(t, moved, v=to, n=call("+", n, 1))
            case "extreme":
                above = [call(">", v, z)] if random.random() < 0.5 else []
                inside = every(call("<=", v, y), *above) if random.random() < 0.6 else None
                return b.select(None, 0, summary("min", v), summary("max", v), of=[t], where=inside)
            case "count":
                return b.select(None, summary("count"), summary("max", v), y, of=[t], where=where)
            case "sum":
                return b.select(None, summary("sum", n), summary("min", v), z, of=[t], where=where)
            case "exists":
                return b.values(None, x, y, z, where=Exists(BOOLEAN, Rows((v,), (t.range,), where)))
            case "scalar":
                top = ScalarQuery(kind, Rows((summary("max", other["v"]),), (other.range,), bounds(other)))
                return b.select(None, n, v, y, of=[t], where=call(">=", v, top))
            case "copy":
                return b.select("u", t["k"], of=[t], where=where)
        return b.select(None, n, v, y, of=[t], where=where)

    moves = random.random() < 0.5
    fill = b.values("t", x, y, random.choice([0, 1]))
    emptied = [Delete(b.use("u").range)]
    sure = b.use("t")
    least = b.select(None, summary("count"), summary("min", sure["v"]), y, of=[sure], where=call("<", sure["v"], z))
    iterate = [*emptied, *(statement() for _ in range(2)), fill, *(statement() for _ in range(3)), least]
    return b.program([fill], iterate, (), [statement()] if random.random() < 0.3 else ())


def values_of(random: Random, kind: SqlType, rows: int) -> list[Tuple]:
    """Values that mostly grow, or lie anywhere, with ties, NULLs and numbers that are equal but not the same."""
    grows, tuples = random.random() < 0.5, []
    special = [0.0, -0.0, float("nan"), float("inf"), 1.5] if kind == DOUBLE else [0, 1, -3]

    def value(i: int) -> Any:
        if random.random() < 0.1:
            return None
        if random.random() < 0.1:
            return random.choice(special)
        number = i // 2 if grows else random.randint(-20, 20)
        return float(number) if kind == DOUBLE else number

    for i in range(rows):
        tuples.append((random.choice([0, 0, 1]), i, (random.randint(0, 9), value(i), value(i - random.randint(-4, 9)))))
    return tuples


@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 60), max_size=2), reload=st.booleans())
@settings(deadline=None, max_examples=examples(60), suppress_health_check=SLOW)
def test_rows_kept_in_order_of_a_column_agree(seed: int, cuts: list[int], reload: bool) -> None:
    random = Random(seed)
    kind = random.choice([BIGINT, DOUBLE, INTEGER, TIMESTAMP])
    program = ranging(random, kind)
    mode = random.choice([Running(bool(program.terminate)), Tumbling(7, 9), Closing()])
    if why_not_compiled(program, mode) is not None:
        return
    keyed = random.random() < 0.7
    assert CompiledEngine(program, mode, keyed).layout.cells_of("t").order == 1
    with jit.using("off"):
        agree(program, mode, values_of(random, kind, 50), keyed=keyed, cuts=cuts, reload=reload)


def test_machine_code_gives_what_python_gives_for_rows_in_order() -> None:
    """Rows enter the order anywhere, leave it at both ends and in the middle, and move; it outgrows its ring."""
    b = Builder("sorted", Schema.of(x=BIGINT, y=DOUBLE), Schema.of(n=BIGINT, r=DOUBLE, q=DOUBLE), None,
                t=Schema.of(k=BIGINT, v=DOUBLE))  # fmt: skip
    x, y, first, moved, near, seen = b.param("x"), b.param("y"), *(b.use("t") for _ in range(4))
    greatest, least = (AggregateValue(DOUBLE, fn, (seen["v"],)) for fn in ("max", "min"))
    inside = every(call(">", near["v"], y), call("<=", near["v"], call("+", y, 1.0)))
    number = ScalarQuery(BIGINT, Rows((AggregateValue(BIGINT, "count", ()),), (near.range,), inside))
    arrive = [
        b.values("t", x, y),
        Delete(first.range, call("<", first["v"], call("-", y, 6.0))),
        b.update(moved, call("=", moved["k"], call("-", x, 40)), v=y),
        b.select(None, number, greatest, least, of=[seen]),
    ]
    program = b.program(arrive, arrive)
    assert CompiledEngine(program, Running()).layout.cells_of("t").order == 1
    random = Random(11)
    tuples: list[Tuple] = [
        (random.randint(0, 1), i, (i // 2, None if random.random() < 0.1 else random.randint(0, 40) / 4))
        for i in range(300)
    ]
    with jit.using("off"):
        expected = run_engine(RowEngine(program, Running()), program, Running(), tuples)
    with jit.using("on"):
        got = run_engine(CompiledEngine(program, Running()), program, Running(), tuples, cuts=[90], reload=True)
    assert same_results(got, expected)


@pytest.mark.parametrize("form", ["off", "on"])
@pytest.mark.parametrize(
    ("fn", "first", "second"),
    [("+", 2**63 - 1, 1), ("-", -(2**63), 1), ("*", 2**62, 2), ("*", -(2**63), -1), ("*", 3, -(2**62))],
)
def test_a_bigint_that_does_not_fit_is_an_error(form: Any, fn: str, first: int, second: int) -> None:
    b = Builder("computed", Schema.of(x=BIGINT, y=BIGINT), Schema.of(r=BIGINT))
    state = [b.values(None, call(fn, b.param("x"), b.param("y")))]
    program = b.program(state, state)
    with jit.using(form):
        engine = CompiledEngine(program, Running(), keyed=False)
        fits = run_engine(engine, program, Running(), [(0, 0, (first, 0 if fn != "*" else 1))])
        assert fits[0][-1] == (first,)
        with pytest.raises(DataError, match="does not fit"):
            run_engine(engine, program, Running(), [(0, 0, (first, second))])


@pytest.mark.parametrize("form", ["off", "on"])
def test_an_integer_that_does_not_fit_is_an_error_however_many_follow(form: Any) -> None:
    b = Builder("grown", Schema.of(x=INTEGER), Schema.of(r=INTEGER), t=Schema.of(v=INTEGER))
    grown, seen = b.use("t"), b.use("t")
    program = b.program(
        [b.values("t", b.param("x"))],
        [b.update(grown, v=call("*", grown["v"], 1000)), b.select(None, seen["v"], of=[seen])],
    )
    with jit.using(form):
        engine = CompiledEngine(program, Running(), keyed=False)
        run_engine(engine, program, Running(), [(0, i, (2,)) for i in range(4)])
        with pytest.raises(DataError, match="does not fit"):
            run_engine(engine, program, Running(), [(0, i, (2,)) for i in range(60)])


JITTED: dict[str, Mode] = {
    "window_avg": Sliding("rows", 3),
    "bidder_wcount": Running(),
    "item_alarm": Sliding("range", 4, active=True),
    "tumble_avg": Tumbling(2, 3),
}


@pytest.mark.parametrize("name", JITTED)
def test_machine_code_gives_what_python_gives(name: str) -> None:
    program, mode = PAPER[name](), JITTED[name]
    random = Random(7)
    for chance in (0.0, 0.2):
        tuples = [
            (
                random.choice([0, 1, 2]),
                i // 2,
                tuple(_value(random, field.type, chance) for field in program.parameters),
            )
            for i in range(60)
        ]
        with jit.using("off"):
            expected = run_engine(CompiledEngine(program, mode), program, mode, tuples, cuts=[7, 30])
        with jit.using("on"):
            got = run_engine(CompiledEngine(program, mode), program, mode, tuples, cuts=[11])
        assert same_results(got, expected)


def _value(random: Random, type_: SqlType, chance: float) -> Any:
    if random.random() < chance:
        return None
    if type_.is_text:
        return random.choice(["item", "ap", "a", "d"])
    return random.randint(0, 5) if type_ != DOUBLE else random.randint(0, 5) / 4


def test_a_value_that_does_not_fit_is_an_error() -> None:
    program, mode = BASE_PROGRAMS["tumble_avg"](), Running()
    state_type = program.tables[0].schema.fields[1].type
    assert state_type == INTEGER
    engine = CompiledEngine(program, mode)
    state = engine.open()
    none = np.zeros(1, dtype=np.int64)
    with jit.using("off"):
        engine.arrive(state, none.astype(np.int32), none, none, [to_arrow([1], program.parameters.fields[0].type)], 0)
        groups = engine.export(state, none)
        table = groups.tables["state"]
        rows = table.rows.set_column(1, "cnt", pa.array([2**31 - 1], pa.int32()))
        full = engine.load(Groups(groups.seen, {"state": TableRows(table.owner, rows)}))
        with pytest.raises(DataError, match="does not fit"):
            engine.arrive(
                full, none.astype(np.int32), none, none, [to_arrow([1], program.parameters.fields[0].type)], 0
            )


def test_explain_tells_what_keeps_a_program_from_machine_code() -> None:
    text = naive_avg()
    assert why_not_compiled(text, Sliding("rows", 3)) is None
    joined = Program(
        "joined", Schema.of(s=VARCHAR), Schema.of(r=VARCHAR), (), None,
        (Insert(None, (Rows((call("||", parameter(VARCHAR, "s"), "x"),)),)),),
        (Insert(None, (Rows((call("||", parameter(VARCHAR, "s"), "x"),)),)),),
    )  # fmt: skip
    assert "text" in (why_not_compiled(joined, Running()) or "")


def test_many_tuples_that_expire_at_once_have_room() -> None:
    """EXPIRE runs for each of them before the tuple that drove them out is worked on, and returns a row."""
    program, mode = algebraic_max(), Sliding("range", 5)
    tuples: list[Tuple] = [(0, 0, (float(-i),)) for i in range(300)]
    with jit.using("off"):
        agree(program, mode, [*tuples, (0, 1000, (1.0,))], cuts=[300])


def test_rows_copied_from_one_table_to_another_have_room() -> None:
    build = Builder(
        "copied", Schema.of(x=BIGINT), Schema.of(r=BIGINT), None, t=Schema.of(a=BIGINT), u=Schema.of(a=BIGINT)
    )
    keep, kept, filled = build.values("u", build.param("x")), build.use("u"), build.use("t")
    copy = build.select("t", kept["a"], of=[kept])
    program = build.program(
        [keep], [keep, copy, build.select(None, filled["a"], of=[filled]), Delete(build.use("t").range)]
    )
    with jit.using("off"):
        agree(program, Running(), [(0, i, (i,)) for i in range(120)])


@pytest.mark.parametrize(
    ("fn", "type_", "expected"),
    [("sum", DOUBLE, 2.0), ("avg", DOUBLE, 0.5), ("var_pop", DOUBLE, 4.999999999999999e31), ("count", BIGINT, 4),
     ("min", DOUBLE, -1e16), ("max", DOUBLE, 1e16), ("first_value", DOUBLE, 1e16), ("last_value", DOUBLE, None),
     ("last_known", DOUBLE, -1e16)],
)  # fmt: skip
def test_aggregates_in_statements_are_those_of_all_kernels(fn: str, type_: SqlType, expected: Any) -> None:
    b = Builder("collected", Schema.of(x=DOUBLE), Schema.of(r=type_), t=Schema.of(x=DOUBLE))
    keep, all_ = [b.values("t", b.param("x"))], b.use("t")
    found = Rows((AggregateValue(type_, fn, (all_["x"],)),), (all_.range,))
    program = b.program(keep, keep, terminate=[Insert(None, (found,))])
    tuples: list[Tuple] = [(0, i, (x,)) for i, x in enumerate([1e16, 1.0, 1.0, -1e16, None])]
    assert why_not_compiled(program, Closing()) is None
    with jit.using("off"):
        for engine in (CompiledEngine(program, Closing()), RowEngine(program, Closing())):
            ((_, _, (value,)),) = run_engine(engine, program, Closing(), tuples)
            assert value == pytest.approx(expected, rel=1e-15) if fn == "var_pop" else value == expected
