"""A session that is opened again goes on with the plans that it had, whatever the settings, and binds nothing."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import millstream as ms
from millstream.plan.costs.statistics import Statistics
from millstream.session import database as session
from millstream.session import persistent, planned

STREAM = "CREATE STREAM s (k int, v int, t int) ORDER BY t"
QUERIES = {
    "grouped": "SELECT k, sum(v) AS s FROM s [RANGE 100] WHERE v > 0 AND k < 5 GROUP BY k",
    "joined": "SELECT a.k, b.v FROM s [RANGE 100] AS a JOIN s [RANGE 100] AS b ON a.k = b.k WHERE a.v < b.v",
    "first": "ISTREAM (SELECT DISTINCT k FROM s [ROWS 3])",
    "over": "SELECT k, v, avg(v) OVER (PARTITION BY k ROWS 2 PRECEDING) AS mean FROM s",
    "rising": "SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES first(v) AS low, last(v) AS high "
    "PATTERN (A UP+) DEFINE UP AS v > prev(v))",
    "tumbled": "SELECT k, max_by(v, t) AS last, count(*) AS n FROM TUMBLE(s, t, 4) "
    "GROUP BY k, window_start, window_end",
}
ROWS = [(i % 3, (i * 7) % 11, i) for i in range(1, 25)]
SETTINGS: list[dict[str, Any]] = [
    {}, {"rules": False}, {"relations": "changes"}, {"relations": "intervals"}, {"batch_rows": 1, "jit": "off"},
]  # fmt: skip


def start(path: Path | None, **settings: Any) -> ms.Database:
    db = ms.connect(path, **settings)
    db.execute(STREAM)
    for name, text in QUERIES.items():
        db.sql(text, name=name)
    return db


def fetched(db: ms.Database) -> dict[str, list[Any]]:
    return {name: db.query(name).fetch().to_pylist() for name in QUERIES}


def together(*parts: dict[str, list[Any]]) -> dict[str, list[str]]:
    return {name: sorted(repr(row) for part in parts for row in part[name]) for name in QUERIES}


@pytest.fixture(scope="module")
def expected() -> dict[str, list[str]]:
    with start(None) as db:
        db.push("s", ROWS)
        db.finish()
        return together(fetched(db))


@pytest.mark.parametrize("then", SETTINGS, ids=repr)
@pytest.mark.parametrize("first", SETTINGS[:3], ids=repr)
def test_other_settings(first: dict[str, Any], then: dict[str, Any], tmp_path: Path, expected: Any) -> None:
    with start(tmp_path, **first) as db:
        db.push("s", ROWS[:11])
        before = fetched(db)
        plans = {name: db.query(name).explain("VERBOSE") for name in QUERIES}
    with ms.connect(tmp_path, **then) as db:
        assert {name: db.query(name).explain("VERBOSE") for name in QUERIES} == plans
        db.push("s", ROWS[11:])
        db.finish()
        after = fetched(db)
    if first.get("relations") == then.get("relations"):
        assert together(before, after) == expected
    else:
        # how rows of a relation are cut in time is free, and differs between the forms
        events = ("first", "over", "rising", "tumbled")
        assert {n: together(before, after)[n] for n in events} == {n: expected[n] for n in events}


EDITS = {
    "a comment": ("over", lambda text: text.replace("FROM", "/* what it is */ FROM")),
    "another alias": ("over", lambda text: text.replace("mean", "average")),
    "one more column": ("over", lambda text: text.replace("AS mean", "AS mean, v + 1 AS next")),
    "a condition before the kernel": ("grouped", lambda text: text.replace("v > 0", "v > 0 AND v < 100")),
    "another name for a stream": ("joined", lambda text: text.replace("a.", "c.").replace("AS a", "AS c")),
    "a column of a relation": ("grouped", lambda text: text.replace("AS s", "AS s, k + 1 AS next")),
    "names of measures": ("rising", lambda text: text.replace("low", "least")),
    "distinct under another name": ("first", lambda text: text.replace("DISTINCT k", "DISTINCT k AS key")),
}


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("then", SETTINGS[:3], ids=repr)
def test_an_edited_query_goes_on_with_its_state(edit: str, then: dict[str, Any], tmp_path: Path, expected: Any) -> None:
    name, change = EDITS[edit]
    text = change(QUERIES[name])
    assert text != QUERIES[name]
    with start(tmp_path) as db:
        db.push("s", ROWS[:11])
        before = fetched(db)
    with ms.connect(tmp_path, **then) as db:
        assert db.sql(text, name=name, replace=True).schema == db.query(name).schema
        assert len(db.queries()) == len(QUERIES)
        db.push("s", ROWS[11:15])
        after = fetched(db)
    # it is the edited one that was kept
    with ms.connect(tmp_path) as db:
        assert db.query(name).sql == text
        db.push("s", ROWS[15:])
        db.finish()
        last = fetched(db)
    names = list(before[name][0]) if before[name] else []
    told = [[tuple(row.values())[: len(names) or None] for row in part[name]] for part in (before, after, last)]
    if name == "grouped" and "next" in text:
        told = [
            [(row["k"], row["s"], row["valid_from"], row["valid_to"]) for row in part[name]]
            for part in (before, after, last)
        ]
    with start(None) as db:
        db.push("s", ROWS)
        db.finish()
        wanted = [tuple(row.values()) for row in db.query(name).fetch().to_pylist()]
    assert sorted(row for part in told for row in part) == sorted(wanted)
    others = [other for other in QUERIES if other != name]
    assert {n: together(before, after, last)[n] for n in others} == {n: expected[n] for n in others}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, v, avg(v) OVER (PARTITION BY k ROWS 3 PRECEDING) AS mean FROM s",
        "SELECT k, v, avg(v) OVER (PARTITION BY v ROWS 2 PRECEDING) AS mean FROM s",
        "SELECT k, v, avg(v) OVER (PARTITION BY k ROWS 2 PRECEDING) AS mean, t FROM s",
        "SELECT k FROM s",
    ],
)
def test_a_query_that_keeps_something_else_is_refused_and_the_old_one_goes_on(text: str, tmp_path: Path) -> None:
    with start(tmp_path) as db:
        db.push("s", ROWS[:11])
    with ms.connect(tmp_path) as db:
        with pytest.raises(ms.StateError, match="query over cannot continue with its state") as refused:
            db.sql(text, name="over", replace=True)
        assert "over by k" in str(refused.value.detail)
        assert "start it again" in str(refused.value.hint)
        with pytest.raises(ms.CatalogError, match="already running"):
            db.sql(text, name="over")
        db.push("s", ROWS[11:])
        rows = db.query("over").fetch()
    with start(None) as db:
        db.push("s", ROWS)
        assert db.query("over").fetch() == rows


def test_rows_that_wait_are_fetched_under_the_new_columns() -> None:
    with start(None) as db:
        db.push("s", ROWS[:2])
        db.sql(QUERIES["over"].replace("mean", "average"), name="over", replace=True)
        db.push("s", ROWS[2:3])
        db.sql(QUERIES["over"].replace("AS mean", "AS average, v + 1 AS next"), name="over", replace=True)
        db.push("s", ROWS[3:4])
        rows = db.query("over").fetch().to_pylist()
    assert [row["average"] for row in rows] == [7.0, 3.0, 10.0, (7 + 6) / 2]
    assert [row["next"] for row in rows] == [None, None, None, 7]


def test_a_relation_whose_rows_never_end_keeps_its_columns() -> None:
    with ms.connect() as db:
        db.execute(STREAM)
        db.sql("SELECT k FROM s [RANGE UNBOUNDED]", name="all", replace=True)
        db.push("s", ROWS[:3])
        assert db.sql("SELECT k AS key FROM s [RANGE UNBOUNDED]", name="all", replace=True).snapshot().num_rows == 3
    with ms.connect(relations="intervals") as db:
        db.execute(STREAM)
        db.sql("SELECT k FROM s [RANGE UNBOUNDED]", name="all")
        db.push("s", ROWS[:3])
        with pytest.raises(ms.StateError, match="cannot change its columns"):
            db.sql("SELECT k, k + 1 AS next FROM s [RANGE UNBOUNDED]", name="all", replace=True)
        assert db.query("all").snapshot().num_rows == 3


def test_opening_neither_parses_binds_nor_optimises(tmp_path: Path) -> None:
    with start(tmp_path) as db:
        db.execute("CREATE STREAM few AS SELECT k, v FROM s WHERE v < 3; CREATE VIEW held AS SELECT k FROM s [RANGE 5]")
        db.checkpoint()
        db.sql("SELECT k FROM few", name="after the checkpoint")
        shutil.copytree(tmp_path, tmp_path.parent / "crashed")
    unwanted = AssertionError("this was done already")
    for home in (tmp_path, tmp_path.parent / "crashed"):
        with (
            patch.object(session, "bind", side_effect=unwanted),
            patch.object(planned, "run_rules", side_effect=unwanted),
            patch.object(planned, "plan_physical", side_effect=unwanted),
            patch("millstream.sql.parse", side_effect=unwanted),
        ):
            db = ms.connect(home)
        assert {query.name for query in db.queries()} == {*QUERIES, "held", "after the checkpoint"}
        db.push("s", [(1, 2, 30)])
        assert db.query("after the checkpoint").fetch().to_pylist() == [{"k": 1}]
        assert db.query("held").snapshot().to_pylist() == [{"k": 1}]
        with pytest.raises(ms.CatalogError, match="held"):
            db.execute("DROP STREAM s")
        db.close()


def test_what_was_measured_is_used_and_kept(tmp_path: Path) -> None:
    seen: list[Statistics] = []
    real = planned.run_rules

    def run_rules(plan: Any, steps: Any, disabled: Any, known: Statistics, *rest: Any) -> Any:
        seen.append(known)
        return real(plan, steps, disabled, known, *rest)

    with patch.object(planned, "run_rules", run_rules):
        with start(tmp_path) as db:
            db.push("s", ROWS)
            db.sql("SELECT k FROM s", name="later")
        with ms.connect(tmp_path) as db:
            db.sql("SELECT k FROM s", name="later still")
            db.push("s", [(1, 1, 30)])
            db.sql("SELECT k FROM s", name="last")
    measured = [known.streams["s"] for known in seen if known.streams]
    assert [each.rows for each in measured] == [len(ROWS), len(ROWS), len(ROWS) + 1]
    assert measured[0] == measured[1]
    assert measured[0].distinct["k"] == pytest.approx(3, rel=0.1)


def test_a_listener_hears_of_actions_before_and_after(tmp_path: Path) -> None:
    heard: list[tuple[str, str]] = []

    class Ear:
        def effect(self) -> Any:
            return nullcontext()

        def before(self, action: Any, text: str, planned: Any) -> None:
            heard.append((text or "before", type(action).__name__))

        def after(self, action: Any, result: Any) -> None:
            heard.append(("after", type(action).__name__))

        def failed(self, action: Any) -> None:
            heard.append(("failed", type(action).__name__))

        def checkpoint(self) -> None: ...

        def before_close(self) -> None:
            heard.append(("closes", ""))

        def after_close(self) -> None: ...

    with ms.connect() as db:
        db.listener = Ear()
        db.execute(STREAM)
        db.sql("SELECT k FROM s", name="q")
        with pytest.raises(ms.MillstreamError):
            db.execute(STREAM)
        db.stop("q")
    assert heard == [
        (STREAM, "Define"), ("after", "Define"), ("SELECT k FROM s", "StartQuery"), ("after", "StartQuery"),
        (STREAM, "Define"), ("failed", "Define"), ("before", "StopQuery"), ("after", "StopQuery"), ("closes", ""),
    ]  # fmt: skip


def test_a_session_without_a_directory_has_no_checkpoint() -> None:
    with ms.connect() as db, pytest.raises(ms.StateError, match="not persistent"):
        db.checkpoint()


def test_an_aggregate_in_python_that_changed_is_refused(tmp_path: Path) -> None:
    def made(factor: int) -> Any:
        @ms.aggregate("scaled", parameters={"x": "BIGINT"}, returns="BIGINT")
        def scaled(x: Any) -> int:
            return factor * int(sum(x.to_pylist()))

        return scaled

    with ms.connect(tmp_path, aggregates=[made(2)]) as db:
        db.execute(STREAM)
        db.sql("SELECT scaled(v) OVER (ROWS 2 PRECEDING) AS x FROM s", name="q")
    with pytest.raises(ms.StateError, match="scaled has changed since"):
        ms.connect(tmp_path, aggregates=[made(3)])
    with ms.connect(tmp_path, aggregates=[made(2)]) as db:
        db.push("s", [(1, 4, 1)])
        assert db.query("q").fetch().to_pylist() == [{"x": 8}]


def test_plans_are_kept_as_data(tmp_path: Path) -> None:
    with start(tmp_path):
        pass
    manifest = json.loads(next(tmp_path.glob("checkpoint-*/manifest.json")).read_text())
    assert {key for key, _ in manifest["kept"]} == {"entry:s", *(f"query:{name}" for name in QUERIES)}
    assert persistent.plan_form.loads(dict(manifest["kept"])["query:over"]["query"]).text == QUERIES["over"]


def test_a_directory_of_something_else_is_not_adopted(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(ms.StateError, match="is not the directory of a session"):
        ms.connect(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["letter.txt"]


def test_what_cannot_be_opened_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ms.StateError, match="cannot open a session in"):
        ms.connect(tmp_path / "file")


def test_a_session_that_does_not_open_lets_the_directory_go(tmp_path: Path) -> None:
    (tmp_path / "tables.duckdb").mkdir()
    with pytest.raises(ms.MillstreamError), ms.connect(tmp_path) as db:
        db.execute("CREATE TABLE t (a INT)")
    (tmp_path / "tables.duckdb").rmdir()
    with ms.connect(tmp_path) as db:
        db.execute("CREATE TABLE t (a INT)")


def test_a_query_that_rests_keeps_no_rows_from_those_that_start_after_reopening(tmp_path: Path) -> None:
    with ms.connect(tmp_path) as db:
        db.execute("CREATE STREAM p (v INT, t INT) ORDER BY t")
        db.sql("SELECT sum(v) OVER (ROWS 2 PRECEDING) AS x FROM p", name="rests")
        db.push("p", [(1, 1)])
        db.execute("PAUSE rests")
    with ms.connect(tmp_path) as db:
        later = db.sql("SELECT max(v) OVER (ROWS 2 PRECEDING) AS x FROM p", name="later")
        db.push("p", [(2, 2)])
        assert later.fetch().to_pylist() == [{"x": 2}]
