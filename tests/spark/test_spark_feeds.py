"""Joins that share an exchange with the groups below them: which do, and that it changes no row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spark_cases import SECOND, as_rows

import millstream as ms
from millstream import sql
from millstream.bind import statements as act
from millstream.catalog import Catalog
from millstream.hosts.spark.build import exchanges, fused
from millstream.hosts.spark.feeds import FedSpec
from millstream.hosts.spark.spans import with_ends
from millstream.hosts.spark.stage import Stage
from millstream.kernels.batch import BEGIN, FOREVER, Batch
from millstream.kernels.contract import keys_of
from millstream.kernels.saving import states as saving
from millstream.physical.nodes import Apply, Physical, walk
from millstream.physical.planner import plan_physical
from millstream.rules import OPTIMIZE, run_rules
from tiers import examples

STREAMS = """
CREATE STREAM person (id BIGINT, name VARCHAR, ts TIMESTAMP) ORDER BY ts;
CREATE STREAM auction (item BIGINT, seller BIGINT, ts TIMESTAMP) ORDER BY ts;
"""
NEW_USERS = """
SELECT P.id, P.name, n, P.window_start
FROM (SELECT id, name, window_start, window_end FROM TUMBLE(person, ts, 10 SECONDS)
      GROUP BY id, name, window_start, window_end) AS P
JOIN (SELECT seller, count(*) AS n, window_start, window_end FROM TUMBLE(auction, ts, 10 SECONDS)
      GROUP BY seller, window_start, window_end) AS A
ON {on} AND P.window_start = A.window_start AND P.window_end = A.window_end
"""
BY_ID = NEW_USERS.format(on="P.id = A.seller")


def plan_of(text: str) -> Physical:
    catalog = Catalog()
    for statement in sql.parse(STREAMS + text):
        action = act.bind(statement.ast, catalog, text)
        if isinstance(action, act.Define):
            catalog.add(action.entry, replace=action.replace, uses=action.uses)
    assert isinstance(action, act.StartQuery)
    return with_ends(plan_physical(run_rules(action.bound.plan, OPTIMIZE)[0]))


def test_rows_that_meet_by_the_key_of_their_groups_travel_once() -> None:
    plan = plan_of(BY_ID)
    assert exchanges(plan) == 3
    assert exchanges(fused(plan)) == 1
    [spec] = [node.spec for node in walk(fused(plan)) if isinstance(node, Apply)]
    assert [keys_of(spec, port) for port in (0, 1)] == [("id",), ("seller",)]
    assert exchanges(fused(plan, joins=False)) == 3


@pytest.mark.parametrize("on", ["P.id = A.n", "P.id + 1 = A.seller"])
def test_others_do_not(on: str) -> None:
    plan = fused(plan_of(NEW_USERS.format(on=on)))
    # the side that is not grouped by what it is joined by has an exchange of its own
    assert exchanges(plan) == 2
    spec = next(node.spec for node in walk(plan) if isinstance(node, Apply))
    assert isinstance(spec, FedSpec)
    assert sum(feed.spec is not None for feed in spec.feeds) == 1


def test_what_others_read_stays_on_its_own() -> None:
    plan = plan_of(BY_ID)
    groups = [node for node in walk(plan) if isinstance(node, Apply) and len(node.over) == 1]
    assert exchanges(fused(plan, frozenset(groups[:1]))) == 2
    assert exchanges(fused(plan, frozenset(groups))) == 3


def test_state_of_other_keys_is_another() -> None:
    apart = NEW_USERS.format(on="P.id = A.n")
    one, other = (
        next(node.spec for node in walk(fused(plan_of(text))) if isinstance(node, Apply)) for text in (BY_ID, apart)
    )
    assert saving.signature_of(one).digest != saving.signature_of(other).digest


def random_rows(draw: np.random.Generator, count: int, texts: bool) -> pa.Table:
    ts = 100 * SECOND + np.sort(draw.integers(0, 60 * SECOND, count))
    keys = pa.array([None if draw.random() < 0.1 else int(draw.integers(6)) for _ in range(count)], pa.int64())
    names = pa.array([f"N{draw.integers(2)}" for _ in range(count)])
    columns = {"id": keys, "name": names} if texts else {"item": pa.array(np.arange(count)), "seller": keys}
    return pa.table({**columns, "ts": pa.array(ts).cast(pa.timestamp("us"))})


@settings(max_examples=examples(25), deadline=None)
@given(seed=st.integers(0, 1000), steps=st.integers(1, 6), restart=st.booleans())
def test_the_same_rows_as_apart(seed: int, steps: int, restart: bool) -> None:
    """In any pieces, as rows or as partials, and with the state put together again in between."""
    draw = np.random.default_rng(seed)
    tables = {"person": random_rows(draw, 60, True), "auction": random_rows(draw, 60, False)}
    with ms.connect() as db:
        db.execute(STREAMS)
        query = db.sql(BY_ID)
        for name, table in tables.items():
            db.push(name, table)
        db.finish()
        expected = sorted(row[:3] for row in as_rows(query.fetch()))
    [node] = [node for node in walk(fused(plan_of(BY_ID))) if isinstance(node, Apply)]
    spec: Any = node.spec
    kernel = spec.build()
    state, found, pieces = kernel.open(), [], {}
    inputs = [table.combine_chunks().to_batches()[0] for table in tables.values()]
    times = [np.asarray(rows.column("ts").cast(pa.int64())) for rows in inputs]
    done = [0, 0]
    for upto in [*np.sort(draw.integers(100 * SECOND, 160 * SECOND, steps)).tolist(), FOREVER]:
        for port, rows in enumerate(inputs):
            end = int(np.searchsorted(times[port], upto))
            own = rows.slice(done[port], end - done[port]).select(list(spec.inputs[port].names))
            own = pa.RecordBatch.from_arrays(own.columns, schema=spec.inputs[port].arrow)
            batch = Batch(own, times[port][done[port] : end], np.arange(done[port], end), upto, None, port)
            if len(batch) and draw.random() < 0.5:
                batch = spec.partials[port].step(batch).with_upto(upto).on_port(2 + port)
            done[port] = end
            found += kernel.step(state, batch).rows.to_pylist()
        for number, piece in saving.changes(kernel, state).items():
            pieces |= {number: piece}
        if restart:
            state = saving.assemble(kernel, {number: piece for number, piece in pieces.items() if piece is not None})
    assert sorted((row["P.id"], row["P.name"], row["A.n"]) for row in found) == expected
    assert len(expected) > 5


def test_a_row_is_late_by_the_clocks_of_its_own_input() -> None:
    [node] = [node for node in walk(fused(plan_of(BY_ID))) if isinstance(node, Apply)]
    stage = Stage(node.spec, 4, (True, True, True), ports=(0, 1, 1))
    assert stage.passed([50, 30, 40], 20) == (50, 30)
    assert stage.passed([50, BEGIN, 40], 20) == (50, 20)
    assert Stage(node.spec, 4, (True, True, True)).passed([50, 30, 40], 20) == (20, 20)
