"""Aggregates written twice: in SQL and in Python."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from typing import Any

import millstream as ms

START = dt.datetime(2026, 5, 1)

SQL_TWINS = """
CREATE AGGREGATE sql_decay(next DOUBLE) : (value DOUBLE) {
    TABLE state(tsum DOUBLE, cnt INTEGER);
    INITIALIZE: { INSERT INTO state VALUES (next, 1); INSERT INTO RETURN VALUES (next); }
    ITERATE: {
        UPDATE state SET tsum = 0.9 * tsum + 1.1 * next, cnt = cnt + 1;
        INSERT INTO RETURN SELECT tsum / cnt FROM state;
    }
};
CREATE WINDOW AGGREGATE sql_mean(next DOUBLE) : (value DOUBLE) {
    TABLE inwindow(w_next DOUBLE);
    TABLE state(tsum DOUBLE, cnt INTEGER);
    INITIALIZE: { INSERT INTO state VALUES (next, 1); INSERT INTO RETURN VALUES (next); }
    ITERATE: {
        UPDATE state SET tsum = tsum + next, cnt = cnt + 1;
        INSERT INTO RETURN SELECT tsum / cnt FROM state;
    }
    EXPIRE: { UPDATE state SET tsum = tsum - oldest().w_next, cnt = cnt - 1; }
};
CREATE AGGREGATE sql_alarm(tagid, tagtype, tagtime) : (stolen VARCHAR) {
    TABLE inwindow(tid, ttype, ttime);
    INITIALIZE: ITERATE: {
        DELETE FROM inwindow WHERE tagtype = 'person' AND ttype = 'item';
        DELETE FROM inwindow WHERE tagtype = 'item' AND ttype = 'item'
            AND EXISTS (SELECT tid FROM inwindow WHERE ttype = 'person');
    }
    EXPIRE: {
        INSERT INTO RETURN VALUES (tagid) WHERE tagtype = 'item'
            AND NOT EXISTS (SELECT tid FROM inwindow WHERE ttype = 'person');
    }
};
CREATE AGGREGATE sql_total(x DOUBLE) : DOUBLE {
    TABLE state(total DOUBLE);
    INITIALIZE: { INSERT INTO state VALUES (x); }
    ITERATE: { UPDATE state SET total = total + x; }
    TERMINATE: { INSERT INTO RETURN SELECT total FROM state; }
};
CREATE AGGREGATE sql_climbs(x DOUBLE) : (low DOUBLE, high DOUBLE) {
    TABLE last(value DOUBLE);
    INITIALIZE: { INSERT INTO last VALUES (x); }
    ITERATE: {
        INSERT INTO RETURN SELECT value, x FROM last WHERE x > value;
        INSERT INTO RETURN SELECT value, x FROM last WHERE x > value + 4;
        UPDATE last SET value = x;
    }
};
"""


@ms.aggregate("py_decay", parameters={"next": "DOUBLE"}, returns={"value": "DOUBLE"}, one_row=True)
class Decay:
    def initialize(self, value: float) -> float:
        self.total, self.count = value, 1
        return value

    def iterate(self, value: float) -> float:
        self.total = 0.9 * self.total + 1.1 * value
        self.count += 1
        return self.total / self.count


@ms.aggregate("py_mean", parameters={"next": "DOUBLE"}, returns={"value": "DOUBLE"}, one_row=True)
class Mean:
    def initialize(self, value: float) -> float:
        self.total, self.count = value, 1
        return value

    def iterate(self, value: float) -> float:
        self.total += value
        self.count += 1
        return self.total / self.count

    def expire(self, value: float) -> None:
        assert self.oldest == (value,)  # type: ignore[attr-defined]
        self.total -= value
        self.count -= 1


@ms.aggregate("py_alarm", parameters={"tagid": None, "tagtype": None, "tagtime": None}, returns={"stolen": "VARCHAR"})
class Alarm:
    window: Any

    def initialize(self, tag: str, kind: str, at: dt.datetime) -> None:
        assert self.window[-1] == (tag, kind, at)
        if kind == "person" or any(other.tagtype == "person" for other in self.window):
            self.window.delete(lambda other: other.tagtype == "item")

    iterate = initialize

    def expire(self, tag: str, kind: str, at: dt.datetime) -> str | None:
        seen = any(other.tagtype == "person" for other in self.window)
        return tag if kind == "item" and not seen else None


@ms.aggregate("py_total", parameters={"x": "DOUBLE"}, returns="DOUBLE", one_row=True)
class Total:
    def initialize(self, x: float) -> None:
        self.total = x

    def iterate(self, x: float) -> None:
        self.total += x

    def terminate(self) -> float:
        return self.total


@ms.aggregate("py_climbs", parameters={"x": "DOUBLE"}, returns={"low": "DOUBLE", "high": "DOUBLE"})
class Climbs:
    def initialize(self, x: float) -> None:
        self.last = x

    def iterate(self, x: float) -> Iterator[tuple[float, float]]:
        if x > self.last:
            yield self.last, x
        if x > self.last + 4:
            yield self.last, x
        self.last = x


@ms.aggregate("py_median", parameters={"x": "DOUBLE"}, returns="DOUBLE")
def median(x: Any) -> Any:
    import numpy as np

    return np.median(x)


PYTHON_TWINS: list[Any] = [Decay, Mean, Alarm, Total, Climbs, median]

STREAM = "CREATE STREAM s (k VARCHAR, kind VARCHAR, x DOUBLE, ts TIMESTAMP) ORDER BY ts"

QUERIES = {
    "running, by key": "SELECT k, {}_decay(x) FROM s GROUP BY k",
    "window of rows": "SELECT ts, k, {}_mean(x) OVER (PARTITION BY k ROWS 6 PRECEDING) FROM s",
    "window of time": "SELECT ts, k, {}_mean(x) OVER (PARTITION BY k RANGE 20 SECONDS PRECEDING) FROM s",
    "slide": "SELECT ts, k, {}_mean(x) OVER (PARTITION BY k ROWS 6 PRECEDING SLIDE 3) FROM s",
    "tumble": "SELECT ts, k, {}_total(x) OVER (PARTITION BY k ROWS 2 PRECEDING SLIDE 4) FROM s",
    "slide of time": "SELECT ts, k, {}_mean(x) OVER (PARTITION BY k RANGE 20 SECONDS PRECEDING SLIDE 9 SECONDS) FROM s",
    "active expiration": "SELECT ts, {}_alarm(k, kind, ts) OVER (RANGE 15 SECONDS PRECEDING ACTIVE EXPIRATION) FROM s",
    "naive window": "SELECT ts, k, {}_total(x) OVER (PARTITION BY k ROWS 3 PRECEDING) FROM s",
    "unbounded": "SELECT ts, k, {}_total(x) OVER (PARTITION BY k ROWS UNBOUNDED PRECEDING) FROM s",
    "several rows": "SELECT k, {}_climbs(x) FROM s GROUP BY k",
    "groups": "SELECT k, window_end, {}_total(x), count(*) FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 1 MINUTE) "
    "GROUP BY k, window_end",
}


def random_rows(count: int = 300, seed: int = 4) -> list[tuple[str, str, float, dt.datetime]]:
    """Rows in order of time; numbers whose sums are exact, so that no order of adding can be told."""
    draw = random.Random(seed)
    rows, at = [], START
    for _ in range(count):
        at += dt.timedelta(seconds=draw.choice([0, 1, 1, 2, 7]))
        rows.append((draw.choice("abc"), draw.choice(["item"] * 6 + ["person"]), draw.randrange(40) / 4, at))
    return rows
