"""Random inputs for automata of the event algebra, for the laws of kernels."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
from hypothesis import strategies as st
from kernel_scenarios import Scenario, ordered

import millstream as ms
from millstream.kernels.batch import Batch
from millstream.kernels.events.spec import AutomatonSpec
from millstream.physical.nodes import Apply, walk
from millstream.schema import Schema

STREAMS = """
CREATE STREAM s (name VARCHAR, k BIGINT, v INT, x DOUBLE, d DECIMAL(9, 2), flag BOOLEAN, t BIGINT) ORDER BY t;
CREATE STREAM r (name VARCHAR, k BIGINT, v INT, raw BLOB, t BIGINT) ORDER BY t
"""

EXPRESSIONS = (
    "s NEXT s",
    "FILTER{v > 0}(s) NEXT{$1.name = $2.name AND $2.v <> $1.v} s",
    "s NEXT{$1.k = $2.k} r",
    "s NEXT{$1.k = $2.v AND DUR <= 6} s",
    "(SELECT *, 1 AS n FROM s) FOLD{$2.name = $.name, $2.x >= $.x, $.n + 1 AS n} s",
    "(SELECT k, v FROM s) FOLD{$2.k = $.v, , $2.v + $.v AS total} (SELECT k, v FROM r)",
    "FILTER{DUR >= 2}((SELECT name, k FROM s) FOLD{$2.k = $.k, , } (SELECT name, k FROM s)) NEXT{$1.k = $2.k} r",
    "(SELECT name AS a, k AS b FROM s) NEXT{DUR < 9} (SELECT name AS c, raw, k AS e FROM r) NEXT{$1.c = $2.name} s",
    "(SELECT u FROM (SELECT k AS u FROM s NEXT r) UNION ALL SELECT k_1 AS u FROM r NEXT s) NEXT{$1.u = $2.k} r",
    "s NEXT{$1.d < $2.d OR contains($2.name, $1.name)} s",
    "s FOLD{$2.k = $.k, , count(*) AS n, sum($2.x) AS total, avg($2.v) AS mean, stddev($2.x) AS spread, "
    "max($2.name) AS top, first_value($2.name) AS begun, sum($2.d) AS money, bool_or($2.flag) AS flagged} s",
    "FILTER{low < 3}((SELECT k, v FROM s) FOLD{$2.k = $.k, $.low IS NULL OR $2.v > $.low, min($2.v) AS low} "
    "(SELECT k, v FROM r)) NEXT{$1.k = $2.k AND $2.v > $1.low} s",
    "(SELECT *, name AS path FROM s) FOLD{$2.flag, $2.v > $.v, $.path || $2.name AS path} s",
    "s FOLD{lower($.name) = $2.name OR contains($2.name, reverse($1.name)), $2.d + $.d < 9, $2.x * $.d AS y, "
    "max($2.name || $.name) AS best} s",
    "(SELECT k AS a, name AS b FROM s) NEXT{$1.a = $2.k AND starts_with($1.b, $2.name)} r "
    "NEXT{upper($1.b) = $2.name} s",
)


@cache
def specs() -> list[AutomatonSpec]:
    """Automata as the planner makes them."""
    found = []
    with ms.connect() as db:
        db.execute(STREAMS)
        for expression in EXPRESSIONS:
            plan = db.prepare(f"SELECT * FROM {expression}").plan
            found += [node.spec for node in walk(plan) if isinstance(node, Apply)]
    return [spec for spec in found if isinstance(spec, AutomatonSpec)]


@st.composite
def lasting(draw: st.DrawFn, schema: Schema, port: int) -> Batch:
    """Events in order of their ends, with ties, some of them with starts of their own."""
    points = draw(ordered(schema, 14, wild=False))
    lengths = draw(st.lists(st.sampled_from([0, 0, 0, 1, 3]), min_size=len(points), max_size=len(points)))
    starts = points.time - np.array(lengths, dtype=np.int64)
    return replace(points, port=port, other=draw(st.sampled_from([None, starts])))


@st.composite
def automaton_scenarios(draw: st.DrawFn) -> Scenario:
    spec = draw(st.sampled_from(specs()))
    return Scenario(spec, tuple(draw(lasting(schema, port)) for port, schema in enumerate(spec.inputs)))


AUTOMATON_SCENARIOS = {"AutomatonSpec": automaton_scenarios()}
