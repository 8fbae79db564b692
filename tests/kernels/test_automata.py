"""Automata: what their state holds, and for how long."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import millstream as ms
from millstream import plan_form
from millstream.kernels.batch import Batch, Ints
from millstream.kernels.events.asking import Asking
from millstream.kernels.events.instances import Codes, Instances
from millstream.kernels.events.kernel import AutomatonKernel
from millstream.kernels.events.spec import AutomatonSpec
from millstream.kernels.saving.signatures import signature_of
from millstream.physical.nodes import Apply, walk

STREAM = "CREATE STREAM s (k VARCHAR, v BIGINT, t BIGINT) ORDER BY t"


def spec_of(query: str, streams: str = STREAM) -> AutomatonSpec:
    with ms.connect() as db:
        db.execute(streams)
        plan = db.prepare(query).plan
    return next(node.spec for node in walk(plan) if isinstance(node, Apply) and isinstance(node.spec, AutomatonSpec))


def batch_of(spec: AutomatonSpec, rows: list[tuple[object, ...]], times: list[int]) -> Batch:
    columns = [pa.array([row[i] for row in rows], field.type.arrow) for i, field in enumerate(spec.inputs[0])]
    made = pa.RecordBatch.from_arrays(columns, schema=spec.inputs[0].arrow)
    time = np.array(times, dtype=np.int64)
    return Batch(made, time, np.arange(len(rows)), times[-1])


def test_instances_that_last_too_long_are_forgotten() -> None:
    spec = spec_of("SELECT k_1, v FROM s NEXT{$1.k = $2.k AND DUR < 50} s")
    assert spec.bounds == (49,)
    kernel = AutomatonKernel(spec)
    state: Instances = kernel.open()
    for begin in range(0, 20_000, 1_000):
        rows = [(f"key {begin + i}", i) for i in range(1_000)]
        kernel.step(state, batch_of(spec, rows, list(range(begin, begin + 1_000))))
    assert state.live < 4_000
    assert len(state.codes.texts) < 10_000


def test_a_text_is_kept_once_and_while_an_instance_has_it() -> None:  # TV-064
    spec = spec_of("SELECT k_1, v FROM s NEXT{$1.v = $2.v AND DUR < 50} s")
    kernel = AutomatonKernel(spec)
    state: Instances = kernel.open()
    kernel.step(state, batch_of(spec, [("same", i) for i in range(9)], list(range(9))))
    assert state.live == 9 and len(state.codes.texts) == 1
    for begin in range(100, 100_000, 1_000):
        kernel.step(state, batch_of(spec, [(f"key {begin + i}", i) for i in range(1_000)], [begin] * 1_000))
    assert "same" not in state.codes.texts.values(state.codes.texts.live()).to_pylist()


def asked_by(query: str, rows: list[tuple[object, ...]]) -> tuple[list[int], int]:
    """How many questions Python answers at once, each time; and how many rows are found."""
    asked, answered = [], Asking.answered

    def counted(self: Asking, number: int, questions: Ints, codes: Codes) -> object:
        asked.append(len(questions))
        return answered(self, number, questions, codes)

    with patch.object(Asking, "answered", counted), ms.connect() as db:
        db.execute(STREAM)
        running = db.sql(query)
        db.push("s", [(*row, place) for place, row in enumerate(rows)])
        db.finish()
        return asked, running.fetch().num_rows


def test_python_is_asked_only_about_what_compiled_conditions_leave() -> None:
    rows: list[tuple[object, ...]] = [(f"k{i}", 10 * i) for i in range(50)] + [("k7", 71)]
    query = "SELECT k_1, v FROM s NEXT{contains($2.k, $1.k) AND $2.v = $1.v + 1} s"
    assert asked_by(query, rows) == ([1], 1)


def test_python_is_asked_about_many_pairs_at_once() -> None:
    rows: list[tuple[object, ...]] = [("x", 1)] * 40 + [(f"y{i}", 0) for i in range(2_000)] + [("wxw", 0)]
    asked, found = asked_by("SELECT v_1 FROM FILTER{v = 1}(s) NEXT{contains($2.k, $1.k) AND $2.v = 0} s", rows)
    # 40 instances, but one text that they ask about: a question is asked once
    assert found == 40 and sum(asked) == 2_001
    assert len(asked) < 20


def test_a_condition_may_fail_for_an_event_that_no_instance_meets() -> None:
    rows: list[tuple[object, ...]] = [("12", 1), ("34", 2), ("x", 3)]
    query = "SELECT v_1 FROM FILTER{v = 1}(s) NEXT{CAST($2.k || $1.k AS INT) > 0} s"
    assert asked_by(query, rows)[1] == 1


def test_functions_in_python_take_columns() -> None:
    called = []

    @ms.function("near", parameters={"one": "BIGINT", "other": "BIGINT"}, returns="BOOLEAN")
    def near(one: pa.Array, other: pa.Array) -> pa.Array:
        called.append(len(one))
        return pc.less(pc.abs(pc.subtract(one, other)), 3)

    with ms.connect(functions=[near]) as db:
        db.execute(STREAM)
        query = db.sql("SELECT v_1, v FROM s NEXT{$1.k = $2.k AND near($1.v, $2.v)} s")
        db.push("s", [(f"k{i % 10}", i % 7, i) for i in range(1_000)])
        db.finish()
        found = query.fetch().to_pylist()
    assert len(found) > 900 and all(abs(row["v_1"] - row["v"]) < 3 for row in found)
    assert len(called) < 100


def test_more_questions_than_there_is_room_for() -> None:
    rows: list[tuple[object, ...]] = [(f"x{i}", 1) for i in range(3_000)] + [("x2999", 0)] * 2
    query = "SELECT v_1 FROM FILTER{v = 1}(s) NEXT{contains($2.k, $1.k) AND $2.v = 0} s"
    assert asked_by(query, rows)[1] == 4


def test_what_an_instance_decides_alone_is_computed_when_it_is_bound() -> None:
    assert spec_of("SELECT k_1, v FROM s NEXT{upper($1.k) = upper($2.k)} s").keys is not None
    spec = spec_of("SELECT k_1, v FROM s FOLD{lower($.k) = $2.k AND reverse($1.k) <> $2.k, , } s")
    assert all(spec.indexes) and AutomatonKernel(spec)._asking is None


def test_a_bound_around_the_whole_bounds_every_state() -> None:
    spec = spec_of("SELECT a FROM FILTER{DUR <= 9}((SELECT k AS a FROM s) NEXT (SELECT k AS b FROM s) NEXT s)")
    assert spec.bounds == (9, 9)


def test_state_is_known_by_what_is_computed_not_by_names() -> None:
    other = STREAM.replace("k VARCHAR", "name VARCHAR")
    fold = "SELECT k_1, v, x FROM s FOLD{$2.k = $.k, $2.v > $.v, sum($2.v) AS x} s"
    renamed = "SELECT name_1, v, total FROM s FOLD{$2.name = $.name, $2.v > $.v, sum($2.v) AS total} s"
    same, different = signature_of(spec_of(fold)), [fold]
    assert signature_of(spec_of(renamed, other)).digest == same.digest
    different += [fold.replace("sum", "max"), fold.replace("$2.v > $.v", "$2.v < $.v"), fold.replace("$.v,", "$1.v,")]
    assert len({signature_of(spec_of(each)).digest for each in different}) == 4


@pytest.mark.parametrize("few", [0, 50])
def test_codes_that_are_used_again_change_nothing(few: int) -> None:
    queries = (
        "SELECT k_1, v_1, v FROM FILTER{v % 2 = 0}(s) NEXT{$1.k = $2.k AND DUR < 50} s",
        "SELECT v_1, v FROM (SELECT v FROM FILTER{v % 3 = 0}(s)) NEXT{$1.v = $2.v AND DUR < 50} (SELECT v FROM s)",
        "SELECT k_1, k FROM s NEXT{$2.k = 'key7' AND DUR < 90} s",
    )

    def answers() -> list[list[object]]:
        with ms.connect(jit="off") as db:
            db.execute(STREAM)
            running = [db.sql(query) for query in queries]
            for begin in range(0, 1_200, 100):
                rows = [(f"key{(begin + i) // 2}", (begin + i) // 4 * 3 + i % 2, begin + i) for i in range(100)]
                db.push("s", rows)
            db.finish()
            return [query.fetch().to_pylist() for query in running]

    wanted = answers()
    assert all(wanted)
    with patch("millstream.kernels.events.forgetting._FEW", few):
        assert answers() == wanted


def test_an_automaton_is_written_read_and_run() -> None:
    """The form in which automata are exchanged is that of plans."""
    with ms.connect() as db:
        db.execute(STREAM)
        text = "SELECT k, v_1, v FROM FILTER{v > 1}(s) FOLD{$2.k = $.k, $2.v > $.v, } s"
        plan = db.prepare(text).plan
        again = plan_form.loads(plan_form.dumps(plan))
        assert again == plan
        asked, installed = db.sql(text), db.install(again)
        db.push("s", [("a", 1, 1), ("a", 2, 2), ("b", 5, 2), ("a", 3, 3), ("b", 4, 4), ("a", 9, 4), ("a", 1, 5)])
        db.finish()
        rows = asked.fetch().to_pylist()
        assert len(rows) == 3
        assert installed.fetch().to_pylist() == rows


def test_what_keeps_an_automaton_in_one_place() -> None:
    assert spec_of("SELECT k_1 FROM s NEXT{$1.k = $2.k AND $2.v > $1.v} s").keys == ("k",)
    assert spec_of("SELECT k_1 FROM s NEXT{$2.v > $1.v} s").keys is None
    # the states compare different columns; each finds its instances by a hash all the same
    spec = spec_of(
        "SELECT a FROM (SELECT k AS a, v AS b FROM s) NEXT{$1.a = $2.k} s NEXT{$1.b = $2.v} (SELECT v FROM s)"
    )
    assert spec.keys is None
    assert all(spec.indexes)


def test_pictures() -> None:
    from xml.dom import minidom

    with ms.connect() as db:
        db.execute(STREAM)
        query = db.sql("SELECT k FROM FILTER{v > 1}(s) FOLD{$2.k = $.k, $2.v > $.v, } s")
        dot = query.explain(format="dot")
        assert '"0.q1" -> "0.q1" [style=dashed, label="unless\\n(e.k = q.$.k)"];' in dot
        assert '"0.q1" -> "0.q1" [label="(e.v > q.$.v)"];' in dot
        assert len(minidom.parseString(query.explain(format="svg")).getElementsByTagName("circle")) == 4
        drawn = db.explain("SELECT k FROM s NEXT{$2.v > $1.v} s", format="svg")
        assert len(minidom.parseString(drawn).getElementsByTagName("circle")) == 4
        with pytest.raises(ms.MillstreamError, match="no automaton"):
            db.sql("SELECT k FROM s").explain(format="dot")
        with pytest.raises(ms.MillstreamError, match="cannot draw as png"):
            query.explain(format="png")


def test_explain_says_why_an_automaton_is_not_divided() -> None:
    with ms.connect() as db:
        db.execute(STREAM)
        told = db.explain("SELECT k_1 FROM s NEXT{$2.v > $1.v} s")
        assert "in one place: q1 has no equality between a column of the event and one of the instance" in told
        assert "hash(k)" in db.explain("SELECT k_1 FROM s NEXT{$2.k = $1.k} s")


def test_many_keys() -> None:
    """More instances than stay in the cache, which compiled loops fetch before: of one stream, and of two."""
    keys = np.random.default_rng(5).permutation(np.repeat(np.arange(5_000), 2)).tolist()
    names = [f"key {key}" if key else None for key in keys]
    with ms.connect(jit="on") as db:
        db.execute(STREAM + "; " + STREAM.replace("STREAM s", "STREAM u"))
        one = db.sql("SELECT v_1, v FROM s NEXT{$1.k = $2.k} s")
        two = db.sql("SELECT a, v FROM (SELECT k AS of, v AS a FROM s) NEXT{$1.of = $2.k} u")
        db.push("s", [(name, number, 2 * number) for number, name in enumerate(names)])
        db.push("u", [(name, number, 2 * number + 1) for number, name in enumerate(names)])
        db.finish()
        places = {key: [number for number, own in enumerate(keys) if own == key] for key in set(keys[:500]) - {0}}
        found = {row["v_1"]: row["v"] for row in one.fetch().to_pylist()}
        assert len(found) == 4_999
        assert all(found[first] == second for first, second in places.values())
        pairs = [(row["a"], row["v"]) for row in two.fetch().to_pylist()]
        assert pairs == [(number, number) for number, name in enumerate(names) if name]
