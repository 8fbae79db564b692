"""Whole statements with row patterns: those of the ESL-TS paper, and those of other systems."""

import pytest
from sql_texts import one

from millstream.sql.patterns import MatchRecognize, SequenceMatch, WindowMatch

ESL_TS = {
    "T1": """
        SELECT Y.PageNo, Z.ClickTime FROM Sessions PARTITION BY SessNo AS (X, Y, Z)
        WHERE X.PageType='a' AND Y.PageType='d' AND Z.PageType='p'
    """,
    "T2": """
        SELECT SessNo, count(*A) FROM Sessions PARTITION BY SessNo AS (*A, B)
        WHERE A.PageType <> 'd' AND B.PageType='d' AND count(*A) < 20
    """,
    "T3": """
        SELECT A.location, LAST(Y).speedTime FROM stations AS A, speed PARTITION BY stationId AS (X, *Y)
        WHERE X.speed > 50 AND Y.speed < Y.previous.speed AND LAST(*Y).speed < 0.3*X.speed
        AND ccount(Y) <= 6 AND X.stationId = A.stationId
    """,
    "T4": """
        SELECT X.stationId, FIRST(Y).speedTime, LAST(Z).speedTime, LAST(Z).speed_diff
        FROM diff PARTITION BY stationId AS (X, *Y, *Z)
        WHERE X.speed_diff <= 15 AND Y.speed_diff > Y.previous.speed_diff AND LAST(*Y).speed_diff > 2*X.speed_diff
        AND ccount(Y) <= 6 AND Z.speed_diff > 1.1*X.speed_diff AND ccount(Z) <= 60
    """,
    "T5": """
        SELECT V.name, LAST(E).name FROM events AS (*E, V)
        WHERE E.type='Earthquake' AND V.type='Volcano' AND LAST(E).magnitude >= 7.0
    """,
    "T7": """
        SELECT W.name, FIRST(W).time, FIRST(W).price, LAST(Z).time, LAST(Z).price
        FROM quote PARTITION BY name SEQUENCE BY date AS (*W, *X, *Y, *Z)
        WHERE W.price <= W.previous.price AND count(*W) >= 5 AND X.price >= X.previous.price AND count(*X) >= 5
        AND Y.price <= Y.previous.price AND count(*Y) >= 5 AND Z.price >= Z.previous.price AND count(*Z) >= 5
    """,
}


@pytest.mark.parametrize("name", ESL_TS)
def test_statements_of_the_paper(name: str) -> None:
    found = one(ESL_TS[name]).find(SequenceMatch)
    assert found is not None
    stars = {variable.name for variable in found.variables if variable.star}
    assert stars == {"T1": set(), "T2": {"A"}, "T3": {"Y"}, "T4": {"Y", "Z"}, "T5": {"E"}, "T7": set("WXYZ")}[name]


OTHERS = [
    """
    SELECT m.id, m.match, m.val, m.label FROM t MATCH_RECOGNIZE (
        ORDER BY id
        MEASURES MATCH_NUMBER() AS match, RUNNING LAST(value) AS val, CLASSIFIER() AS label
        ALL ROWS PER MATCH
        AFTER MATCH SKIP PAST LAST ROW
        PATTERN (A B+ C+)
        DEFINE /* A defaults to True, matches any row */ B AS B.value < PREV (B.value), C AS C.value > PREV (C.value)
    ) AS m
    """,
    """
    SELECT m.id AS row_id, m.match, m.val, m.label FROM t MATCH_RECOGNIZE (
        ORDER BY id MEASURES match_number() AS match, RUNNING LAST(value) AS val, classifier() AS label
        ALL ROWS PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (^A) DEFINE A AS true
    ) AS m
    """,
    """
    SELECT value, classy FROM t MATCH_RECOGNIZE (
        MEASURES CLASSIFIER() AS classy ALL ROWS PER MATCH PATTERN ((A | B)* X) DEFINE X AS value = A.value
    )
    """,
    """
    SELECT first.classy, second.classy, third.classy
    FROM (VALUES (1), (2), (3)) t(id) MATCH_RECOGNIZE (
        ORDER BY id MEASURES CLASSIFIER() AS classy ALL ROWS PER MATCH PATTERN (A) DEFINE A AS true
    ) AS first, (VALUES (10), (20)) t(id) MATCH_RECOGNIZE (
        ORDER BY id MEASURES CLASSIFIER() AS classy ALL ROWS PER MATCH PATTERN (B) DEFINE B AS true
    ) AS second, (VALUES (100)) t(id) MATCH_RECOGNIZE (
        ORDER BY id MEASURES CLASSIFIER() AS classy ALL ROWS PER MATCH PATTERN (C) DEFINE C AS true
    ) AS third
    """,
    """
    SELECT id, val OVER w, label OVER w FROM t WINDOW w AS (
        ORDER BY id
        MEASURES RUNNING LAST(value) AS val, classifier() AS label
        ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
        AFTER MATCH SKIP PAST LAST ROW
        PATTERN (()+ | B)
        DEFINE B AS B.value >= NEXT (B.value)
    )
    """,
    """
    SELECT id, label OVER w FROM t WINDOW w AS (
        ORDER BY id MEASURES CLASSIFIER() AS label ROWS BETWEEN CURRENT ROW AND 10 FOLLOWING
        AFTER MATCH SKIP TO NEXT ROW PATTERN (a b* C*)
        DEFINE "B" AS B.value < PREV(b.value), "C" AS C.value > PREV(c.value)
    )
    """,
    """
    SELECT part as partition, id AS row_id, val OVER w, label OVER w, array_agg(value) OVER w FROM t WINDOW w AS (
        PARTITION BY part ORDER BY id MEASURES RUNNING LAST(value) AS val, classifier() AS label
        ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING AFTER MATCH SKIP PAST LAST ROW
        PATTERN (B+) DEFINE B AS B.value > NEXT (B.value)
    )
    """,
    """
    select * from t match_recognize (
        partition by id
        order by ts
        measures first(u.v) as u_first, last(u.v) as u_last, count(u.v) as u_cnt, b.v as dip
        one row per match
        after match skip past last row
        pattern (a b a)
        subset u = (a, b)
        define a as a.v > 0, b as b.v < 0
    )
    """,
    """
    select * from t_narrow match_recognize (
        partition by id order by ts measures count(*) as n one row per match after match skip past last row
        pattern (a+) within 2 define a as a.v > 0
    ) as m
    """,
    """
    select * from src match_recognize (
        partition by id order by ts nulls first measures a.v as m one row per match
        pattern (a b) define a as a.v > 0, b as b.v < last(a.v) filter (where a.v > 0)
    )
    """,
    """
    SELECT * FROM MyTable MATCH_RECOGNIZE(
        PARTITION BY vehicle_id
        ORDER BY "proctime"
        MEASURES
            FIRST(A.engine_temperature) as Initial_Temp,
            LAST(A.engine_temperature) as Final_Temp
        ONE ROW PER MATCH
        AFTER MATCH SKIP PAST LAST ROW
        PATTERN (A+ B)
        DEFINE
            A as LAST(A.engine_temperature,1) is NULL OR A.engine_temperature > LAST(A.engine_temperature,1),
            B as B.engine_temperature < LAST(A.engine_temperature)
    )MR
    """,
    """
    SELECT symbol, SUM(price) as price, TUMBLE_START(matchRowtime, interval '3' second) as startTime
    FROM Ticker MATCH_RECOGNIZE (
        PARTITION BY symbol ORDER BY ts
        MEASURES A.price as price, A.tax as tax, MATCH_ROWTIME() as matchRowtime
        ONE ROW PER MATCH PATTERN (A) DEFINE A AS A.price > 0
    ) AS T GROUP BY symbol, TUMBLE(matchRowtime, interval '3' second)
    """,
    """
    SELECT * FROM MyTable MATCH_RECOGNIZE (
        ORDER BY ts
        MEASURES FIRST(id) as startId, weightedAvg(price, weight) as wAvg, SUM(B.price * B.rate) as sumExprB
        AFTER MATCH SKIP PAST LAST ROW
        PATTERN (A+ B+ C D? E)
        DEFINE A AS SUM(A.price) < 6, B AS SUM(B.price * B.rate) < SUM(A.price) AND SUM(B.price * B.rate) > 0.2
    ) AS T
    """,
]


@pytest.mark.parametrize("text", OTHERS)
def test_statements_of_other_systems(text: str) -> None:
    """Trino, RisingWave and Flink, under the Apache License 2.0."""
    ast = one(text)
    assert ast.find(MatchRecognize, WindowMatch)
