"""Aggregates written in Python: the same rows as their twins in SQL, saved state, and what is refused."""

from __future__ import annotations

import datetime as dt
import pickle
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from python_twins import PYTHON_TWINS, QUERIES, SQL_TWINS, START, STREAM, Decay, Mean, Total, random_rows

import millstream as ms
from millstream.kernels.batch import Batch
from millstream.kernels.programs.spec import AggregateSpec
from millstream.kernels.saving import states as saving
from millstream.session.python_aggregates import definitions_of

ROWS = random_rows()


def session(*aggregates: Any, path: Path | None = None) -> ms.Database:
    return ms.connect(path, aggregates=aggregates)


def rows_of(query: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in query.fetch().to_pylist()]


def run(text: str, *aggregates: Any, batch: int = 1000) -> list[tuple[Any, ...]]:
    with session(*aggregates) as db:
        db.execute(STREAM)
        db.execute(SQL_TWINS)
        query = db.sql(text)
        for start in range(0, len(ROWS), batch):
            db.push("s", ROWS[start : start + batch])
        db.finish()
        return rows_of(query)


@pytest.mark.parametrize("text", QUERIES.values(), ids=QUERIES)
@pytest.mark.parametrize("batch", [7, 1000])
def test_the_same_rows_as_in_sql(text: str, batch: int) -> None:
    expected = run(text.format("sql"))
    assert len(expected) > 10
    assert run(text.format("py"), *PYTHON_TWINS, batch=batch) == expected


def test_a_function_of_columns_over_a_window() -> None:
    text = "SELECT k, py_median(x) OVER (PARTITION BY k ROWS 4 PRECEDING) FROM s"
    seen: dict[str, list[float]] = {}
    expected = []
    for k, _, x, _ in ROWS:
        window = sorted([*seen.setdefault(k, []), x][-5:])
        seen[k].append(x)
        middle = len(window) // 2
        expected.append((k, window[middle] if len(window) % 2 else (window[middle - 1] + window[middle]) / 2))
    assert run(text, *PYTHON_TWINS) == expected


def test_several_in_one_select_if_each_promises_one_row() -> None:
    text = "SELECT k, py_decay(x) OVER (PARTITION BY k ROWS UNBOUNDED PRECEDING), " \
        "py_mean(x) OVER (PARTITION BY k ROWS 6 PRECEDING) FROM s"  # fmt: skip
    assert run(text, *PYTHON_TWINS) == run(text.replace("py_", "sql_"))


def test_an_aggregate_in_sql_may_call_one_in_python() -> None:
    with session(Total) as db:
        db.execute(STREAM)
        db.execute(
            """CREATE AGGREGATE twice(x DOUBLE) : DOUBLE {
                TABLE kept(x DOUBLE);
                INITIALIZE: ITERATE: {
                    INSERT INTO kept VALUES (x);
                    INSERT INTO RETURN SELECT py_total(x) * 2 FROM kept;
                } }"""
        )
        query = db.sql("SELECT twice(x) FROM s")
        db.push("s", [("a", "item", x, START) for x in (1.0, 2.0, 3.0)])
        db.finish()
        assert rows_of(query) == [(2.0,), (6.0,), (12.0,)]


@pytest.mark.parametrize("text", QUERIES.values(), ids=QUERIES)
def test_restart_in_the_middle(text: str, tmp_path: Path) -> None:
    got: list[tuple[Any, ...]] = []
    for part in range(4):
        with session(*PYTHON_TWINS, path=tmp_path / "db") as db:
            if part == 0:
                db.execute(STREAM)
                db.sql(text.format("py"), name="q")
            db.push("s", ROWS[part * 75 : (part + 1) * 75])
            if part == 3:
                db.finish()
            got += rows_of(db.query("q"))
    assert got == run(text.format("sql"))


def test_a_directory_needs_its_aggregates(tmp_path: Path) -> None:
    with session(path=tmp_path / "db") as db:
        db.register_aggregate(Decay)
        db.execute(STREAM)
        db.sql("SELECT py_decay(x) FROM s", name="q")
        db.push("s", ROWS[:10])
    with pytest.raises(ms.StateError, match="aggregate py_decay is written in Python") as error:
        session(path=tmp_path / "db")
    assert "python_twins" in str(error.value) and "aggregates=" in str(error.value)
    with session(Decay, path=tmp_path / "db") as db:
        assert len(rows_of(db.query("q"))) == 10


def test_other_code_does_not_go_on_with_saved_state(tmp_path: Path) -> None:
    def make(factor: float) -> Any:
        @ms.aggregate("scaled", parameters={"x": "DOUBLE"}, returns="DOUBLE")
        class Scaled:
            def initialize(self, x: float) -> float:
                return x * factor

            iterate = initialize

        return Scaled

    with session(make(2.0), path=tmp_path / "db") as db:
        db.execute(STREAM)
        db.sql("SELECT scaled(x) FROM s", name="q")
        db.push("s", ROWS[:1])
    with session(make(2.0), path=tmp_path / "db") as db:
        db.push("s", ROWS[1:2])
    with pytest.raises(ms.StateError):
        session(make(3.0), path=tmp_path / "db")


def test_state_is_found_again_in_another_process(tmp_path: Path) -> None:
    script = """if True:
        import datetime as dt, sys
        import millstream as ms

        class Pair:
            def __init__(self, n): self.n = n

        @ms.aggregate("numbered", parameters={"x": "VARCHAR"}, returns="BIGINT")
        class Numbered:
            def initialize(self, x):
                self.pair = Pair(1)
                return 1
            def iterate(self, x):
                self.pair.n += 1
                return self.pair.n
            def save(self):
                return {"n": self.pair.n}
            def load(self, saved):
                self.pair = Pair(saved["n"])

        with ms.connect(sys.argv[1], aggregates=[Numbered]) as db:
            db.execute("CREATE STREAM IF NOT EXISTS s (x VARCHAR)")
            q = db.query("q") if db.queries() else db.sql("SELECT numbered(x) FROM s", name="q")
            db.push("s", [("a",), ("b",)])
            print([row["numbered"] for row in q.fetch().to_pylist()])
    """
    file = tmp_path / "job.py"
    file.write_text(script.replace("if True:\n", "").replace("\n        ", "\n").removeprefix("        "))
    said = [
        subprocess.run([sys.executable, file, tmp_path / "db"], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert said == ["[1, 2]\n", "[3, 4]\n"]


@pytest.mark.parametrize("made", PYTHON_TWINS)
def test_what_is_shipped_is_the_same_code(made: Any) -> None:
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    from millstream.hosts.spark.session import send_whole

    for definition in definitions_of(made):
        assert definition.python is not None
        send_whole([definition.python])
        again = cloudpickle.loads(cloudpickle.dumps(definition.python))
        assert again == definition.python and again.made.__name__ == made.__name__


# -- values ------------------------------------------------------------------------------------------------------------

VALUES: dict[str, tuple[Any, ...]] = {
    "BOOLEAN": (True, None),
    "TINYINT": (-128, None),
    "BIGINT": (2**63 - 1, None),
    "DOUBLE": (1.5, None),
    "DECIMAL(10, 2)": (Decimal("1.25"), None),
    "VARCHAR": ("é", None),
    "BLOB": (b"\x00a", None),
    "TIMESTAMP": (dt.datetime(1969, 12, 31, 23, 59, 59, 5), None),
    "TIMESTAMPTZ": (dt.datetime(2026, 1, 1, tzinfo=dt.UTC), None),
    "DATE": (dt.date(1969, 12, 31), None),
    "TIME": (dt.time(23, 59, 59, 999_999), None),
    "INTERVAL": (dt.timedelta(days=-1, microseconds=3), None),
}


@pytest.mark.parametrize("type_", VALUES)
def test_values_come_and_go_as_python_has_them(type_: str) -> None:
    met: list[Any] = []

    @ms.aggregate("same", parameters={"x": type_}, returns=type_, window=True)
    class Same:
        window: Any

        def initialize(self, x: Any) -> Any:
            met.append(x)
            assert self.window[-1] == (x,)
            return (x,)

        iterate = initialize

    with session(Same) as db:
        db.execute(f"CREATE STREAM s (x {type_})")
        query = db.sql("SELECT same(x) OVER (ROWS 1 PRECEDING) FROM s")
        db.push("s", [(value,) for value in VALUES[type_]])
        db.finish()
        assert [value for (value,) in rows_of(query)] == list(VALUES[type_])
    assert met == list(VALUES[type_])
    assert [type(value) for value in met] == [type(value) for value in VALUES[type_]]


def returning(value: Any, **returns: str) -> Any:
    @ms.aggregate("given", parameters={"x": "DOUBLE"}, returns=returns)
    class Given:
        def initialize(self, x: float) -> Any:
            return value

        iterate = initialize

    return Given


def returned(made: Any) -> list[tuple[Any, ...]]:
    with session(made) as db:
        db.execute(STREAM)
        query = db.sql("SELECT given(x) FROM s")
        db.push("s", ROWS[:1])
        db.finish()
        return rows_of(query)


@pytest.mark.parametrize(
    "value, rows",
    [
        (None, []),
        ([], []),
        ((1, "a"), [(1, "a")]),
        ({"b": "x", "a": 2}, [(2, "x")]),
        ([(1, "a"), (None, None)], [(1, "a"), (None, None)]),
    ],
)
def test_shapes_of_rows(value: Any, rows: list[tuple[Any, ...]]) -> None:
    assert returned(returning(value, a="INTEGER", b="VARCHAR")) == rows


@pytest.mark.parametrize(
    "value, said",
    [
        ((1,), "given.initialize returned a row of 1 values"),
        (5, "given.initialize returned int 5"),
        ({"a": 1}, "given.initialize returned a row with a"),
        ((1.5, "a"), "returned float 1.5, and a is INTEGER"),
        ((2**31, "a"), "and a is INTEGER"),
        ((True, "a"), "returned bool True, and a is INTEGER"),
        ((1, b"a"), "and b is VARCHAR"),
    ],
)
def test_wrong_shapes_are_told(value: Any, said: str) -> None:
    with pytest.raises(ms.DataError) as error:
        returned(returning(value, a="INTEGER", b="VARCHAR"))
    assert said in error.value.message


def test_a_single_null_is_a_row_only_inside_a_tuple() -> None:
    assert returned(returning((None,), a="INTEGER")) == [(None,)]
    assert returned(returning(None, a="INTEGER")) == []


# -- failures ----------------------------------------------------------------------------------------------------------


def failing(state: str) -> Any:
    def fail(self: Any, *_: Any) -> None:
        if getattr(self, "armed", state != "iterate"):
            raise ZeroDivisionError("oh no")
        self.armed = True

    def pass_(self: Any, *_: Any) -> None:
        self.armed = True

    states: dict[str, Callable[..., None]] = dict.fromkeys(("initialize", "iterate", "terminate"), pass_)
    made = type("Failing", (), {**states, state: fail})
    return ms.aggregate("failing", parameters={"x": "DOUBLE"}, returns="DOUBLE")(made)


@pytest.mark.parametrize("state", ["__init__", "initialize", "iterate", "terminate"])
def test_an_error_names_the_method_and_stops_only_its_query(state: str) -> None:
    with session(failing(state), Decay) as db:
        db.execute(STREAM)
        bad = db.sql("SELECT failing(x) OVER (ROWS UNBOUNDED PRECEDING) FROM s")
        good = db.sql("SELECT py_decay(x) FROM s")
        db.push("s", ROWS[:3])
        db.finish()
        with pytest.raises(ms.DataError, match=f"failing.{state} failed: ZeroDivisionError: oh no"):
            bad.fetch()
        assert len(rows_of(good)) == 3


def test_a_function_that_fails_is_named() -> None:
    @ms.aggregate("bad", parameters={"x": "DOUBLE"}, returns="DOUBLE")
    def bad(x: pa.Array) -> Any:
        return "text" if len(x) == 1 else x[99]

    with session(bad) as db:
        db.execute(STREAM)
        query = db.sql("SELECT bad(x) OVER (ROWS 1 PRECEDING) FROM s")
        db.push("s", ROWS[:1])
        with pytest.raises(ms.DataError, match="bad returned str 'text', and bad is DOUBLE"):
            query.fetch()


@pytest.mark.parametrize("rows", [None, [1.0, 2.0]])
def test_the_promise_of_one_row_is_checked(rows: Any) -> None:
    @ms.aggregate("given", parameters={"x": "DOUBLE"}, returns="DOUBLE", one_row=True)
    class Given:
        def initialize(self, x: float) -> Any:
            return rows

        iterate = initialize

    with pytest.raises(ms.DataError, match=r"given.initialize returned \d rows"):
        returned(Given)


def test_state_that_cannot_be_saved_is_told(tmp_path: Path) -> None:
    @ms.aggregate("given", parameters={"x": "DOUBLE"}, returns="DOUBLE")
    class Given:
        def initialize(self, x: float) -> float:
            self.lines = (line for line in "ab")
            return x

        iterate = initialize

    db = session(Given, path=tmp_path / "db")
    db.execute(STREAM)
    db.sql("SELECT given(x) FROM s")
    db.push("s", ROWS[:1])
    with pytest.raises(ms.StateError, match="the state of given cannot be saved"):
        db.close()


# -- declarations ------------------------------------------------------------------------------------------------------


def declare(body: dict[str, Any], **changes: Any) -> Any:
    options: dict[str, Any] = {"parameters": {"x": "DOUBLE"}, "returns": "DOUBLE", **changes}
    return ms.aggregate("given", **options)(type("Given", (), body))


def one(self: Any, x: Any) -> None: ...


@pytest.mark.parametrize(
    "body, changes, said",
    [
        ({"iterate": one}, {}, "aggregate given has no initialize"),
        ({"initialize": one}, {}, "aggregate given has no iterate"),
        ({"initialize": one, "iterate": lambda self: None}, {}, "given.iterate does not take 1 argument"),
        ({"initialize": one, "iterate": one, "terminate": one}, {}, "given.terminate does not take 0 arguments"),
        ({"initialize": one, "iterate": one, "__init__": one}, {}, "given.__init__ does not take 0 arguments"),
        ({"initialize": one, "iterate": one, "window": 3}, {}, "aggregate given has its own window"),
        ({"initialize": one, "iterate": one, "__slots__": ()}, {}, "aggregate given has __slots__"),
        ({"initialize": one, "iterate": one}, {"returns": "SHAPE"}, "no type SHAPE for given"),
        ({"initialize": one, "iterate": one}, {"returns": {}}, "aggregate given returns no columns"),
    ],
)
def test_mistakes_in_a_declaration(body: dict[str, Any], changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ms.CatalogError) as error:
        declare(body, **changes)
    assert said in error.value.message


def test_only_decorated_classes_are_registered() -> None:
    class Child(Mean):
        pass

    db = session()
    for made in (int, Child, lambda x: x, 3):
        with pytest.raises(ms.CatalogError, match="is not an aggregate"):
            db.register_aggregate(made)


def test_names_are_shared_with_those_in_sql() -> None:
    with session(Decay, Mean) as db:
        db.register_aggregate(Decay)
        with pytest.raises(ms.CatalogError, match="aggregate py_decay already exists"):
            db.execute(SQL_TWINS.replace("sql_decay", "py_decay"))
        assert [tuple(row.values()) for row in db.sql("SHOW AGGREGATES").arrow().to_pylist()] == [
            ("py_decay", "py_decay(next DOUBLE) : (value DOUBLE)", "Python base"),
            ("py_mean", "py_mean(next DOUBLE) : (value DOUBLE)", "Python window"),
        ]
        db.execute(STREAM)
        db.sql("SELECT py_decay(x) FROM s", name="q")
        with pytest.raises(ms.CatalogError, match="used by q"):
            db.execute("DROP AGGREGATE py_decay")
        db.stop("q")
        db.execute("DROP AGGREGATE py_decay")
        with pytest.raises(ms.MillstreamError, match="py_decay"):
            db.sql("SELECT py_decay(x) FROM s")


def test_calls_are_checked_like_those_of_sql() -> None:
    with session(*PYTHON_TWINS) as db:
        db.execute(STREAM)
        for text, said in (
            ("SELECT py_decay(x, x) FROM s", "py_decay takes 1 argument, got 2"),
            ("SELECT py_total(x) FROM s", "py_total over a whole stream never ends"),
            ("SELECT py_mean(x) FROM s", "py_mean needs a window"),
            ("SELECT py_decay(x) OVER (RANGE 5 SECONDS PRECEDING ACTIVE EXPIRATION) FROM s", "ACTIVE EXPIRATION"),
        ):
            with pytest.raises(ms.BindError) as error:
                db.sql(text)
            assert said in error.value.message and error.value.span is not None


def test_explain_tells_that_it_is_python() -> None:
    with session(*PYTHON_TWINS) as db:
        db.execute(STREAM)
        assert "row by row: Python Decay" in db.explain("SELECT py_decay(x) FROM s")
        naive = db.explain("SELECT py_total(x) OVER (ROWS 3 PRECEDING) FROM s")
        assert "row by row: Python Total" in naive


def test_the_kernels_description_does_not_depend_on_the_process() -> None:
    spec = spec_of(QUERIES["running, by key"])
    assert " at 0x" not in repr(spec) and pickle.loads(pickle.dumps(spec)) == spec


# -- state divided and put together ------------------------------------------------------------------------------------


def spec_of(text: str) -> AggregateSpec:
    with session(*PYTHON_TWINS) as db:
        db.execute(STREAM)
        found = [db.prepare(text.format("py")).plan]
        for node in found:
            found += node.inputs
        specs = [value for node in found for value in vars(node).values() if isinstance(value, AggregateSpec)]
        return pickle.loads(pickle.dumps(specs[0]))  # type: ignore[no-any-return]


def saved(kernel: Any, state: Any) -> Any:
    return saving.restore(kernel, saving.snapshot(kernel, state))


def divided(kernel: Any, state: Any) -> Any:
    return saving.merge(
        kernel, [saving.merge(kernel, saving.split(kernel, part, 2)) for part in saving.split(kernel, state, 3)]
    )


def in_pieces(kernel: Any, state: Any) -> Any:
    return saving.assemble(
        kernel, {piece: blob for piece, blob in saving.changes(kernel, state).items() if blob is not None}
    )


@pytest.mark.parametrize("change", [saved, divided, in_pieces])
@pytest.mark.parametrize("name", ["running, by key", "window of time", "active expiration", "naive window"])
def test_state_survives_what_hosts_do_with_it(name: str, change: Callable[[Any, Any], Any]) -> None:
    spec = spec_of(QUERIES[name])
    given = {"k": 0, "kind": 1, "x": 2, "ts": 3}
    columns = [pa.array([row[given[f.name]] for row in ROWS], f.type.arrow) for f in spec.input]
    rows = pa.RecordBatch.from_arrays(columns, schema=spec.input.arrow)
    time = pa.array([row[3] for row in ROWS], pa.timestamp("us")).cast(pa.int64()).to_numpy()

    def results(changed: bool) -> list[dict[str, Any]]:
        kernel = spec.build()
        state, found = kernel.open(), []
        for start in range(0, len(ROWS), 60):
            part = slice(start, start + 60)
            batch = Batch(rows.slice(start, 60), time[part], np.arange(len(ROWS))[part], int(time[part][-1]))
            found += kernel.step(state, batch).rows.to_pylist()
            state = change(kernel, state) if changed else state
        return found

    assert len(results(False)) > 10
    assert results(True) == results(False)
