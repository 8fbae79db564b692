"""Proxies of sensors: how often they sample, when they rest, and that they hold up nobody."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event

import pytest

import millstream as ms

STREAM = "CREATE STREAM temp (v INT, current_time TIMESTAMP) ORDER BY current_time"


def until(happens: Callable[[], bool]) -> None:
    for _ in range(2000):
        if happens():
            return
        time.sleep(0.005)
    raise AssertionError("it never happens")


def test_the_rate_is_what_running_queries_ask_for() -> None:
    with ms.connect(jit="off") as db:
        db.execute(STREAM)
        db.execute("CREATE STREAM other (v INT, t INT) ORDER BY t")
        with ms.SensorProxy(db, "temp", lambda: (1,), every=3600, fastest=0.5) as proxy:
            assert proxy.period is None
            db.sql("SELECT v FROM other")
            assert proxy.period is None and proxy.samples == 0
            db.sql("SELECT v FROM temp", name="rows")
            assert proxy.period == 3600
            hour = db.sql("SELECT avg(v) AS mean FROM temp [RANGE 1 HOUR SLIDE 10 MINUTES]", name="hour")
            assert proxy.period == 600
            text = "SELECT window_end, max(v) AS top FROM TUMBLE(temp, current_time, 1 MINUTE) GROUP BY window_end"
            db.sql(text, name="minute")
            assert proxy.period == 60
            db.sql("SELECT v, sum(v) OVER (RANGE 20 SECONDS PRECEDING) AS x FROM temp WHERE v > 3", name="over")
            assert proxy.period == 20
            db.sql("SELECT count(*) AS n FROM temp [RANGE 1 MILLISECOND]", name="fast")
            assert proxy.period == 0.5
            for name in ("fast", "over", "minute"):
                db.stop(name)
            assert proxy.period == 600
            hour.pause()
            assert proxy.period == 3600
            db.stop("rows")
            assert proxy.period is None
            # it is pulled when somebody asks, also while no query does
            counts = proxy.ask()
            assert counts is not None and counts.accepted == 1
        with pytest.raises(ms.DataError, match="seconds above 0"):
            ms.SensorProxy(db, "temp", lambda: None, every=0)
        with pytest.raises(ms.CatalogError):
            ms.SensorProxy(db, "nothing", lambda: None)


def test_samples_come_and_a_sensor_that_hangs_or_fails_holds_up_nobody() -> None:
    waits, goes_on, broken = Event(), Event(), Event()

    def slow() -> tuple[int]:
        waits.set()
        goes_on.wait(60)
        return (7,)

    def fails() -> list[tuple[int]]:
        if not broken.is_set():
            broken.set()
            raise OSError("no answer")
        return [(1,), (2,)]

    with ms.connect(jit="off") as db:
        for name in ("temp", "broken", "fine"):
            db.execute(STREAM.replace("temp", name))
        queries = {name: db.sql(f"SELECT v FROM {name}", name=f"q_{name}") for name in ("temp", "broken", "fine")}
        with (
            ms.SensorProxy(db, "temp", slow, every=0.01),
            ms.SensorProxy(db, "broken", fails, every=0.01) as failing,
            ms.SensorProxy(db, "fine", lambda: {"v": 3}, every=0.01) as fine,
        ):
            until(waits.is_set)
            until(lambda: fine.samples > 3 and failing.samples > 3)
            assert db.push("fine", [(4,)]).accepted == 1
            assert failing.failures == 1 and isinstance(failing.error, OSError)
            assert queries["temp"].fetch().num_rows == 0
            goes_on.set()
            until(lambda: queries["temp"].fetch().num_rows > 0)
        assert {3, 4} <= set(queries["fine"].fetch()["v"].to_pylist())
        assert queries["broken"].fetch()["v"].to_pylist()[:2] == [1, 2]
