"""Several readers of one query: each gets all rows, in its own time, and none holds up those who push."""

import asyncio
import gc
import shutil
import threading
import time

import pyarrow as pa
import pytest

import millstream as ms
from millstream.hosts import results
from millstream.hosts.results import Gate, ResultLog


@pytest.fixture
def db():
    with ms.connect() as database:
        database.execute("CREATE STREAM s (v INT, t INT) ORDER BY t")
        yield database


def values(batches):
    return [value for batch in batches for value in batch.column(0).to_pylist()]


def push(database, *numbers):
    return database.push("s", [(number, number) for number in numbers])


def later(seconds, act):
    timer = threading.Timer(seconds, act)
    timer.start()
    return timer


# -- what readers get ------------------------------------------------------------------------------------------------


def test_each_reader_gets_all_rows_and_fetch_still_does(db):
    query = db.sql("SELECT v FROM s WHERE v > 1")
    one, two = query.subscribe(), query.subscribe()
    push(db, 1, 2, 3)
    assert values([one.next()]) == [2, 3]
    push(db, 4)
    db.finish()
    assert values(one) == [4]
    assert values(two) == [2, 3, 4]
    assert values(query.fetch().to_batches()) == [2, 3, 4]
    assert one.ended and two.ended and one.next() is None


def test_names_and_types_are_those_of_the_query(db):
    query = db.sql("SELECT v AS a, t AS a FROM s")
    reader = query.subscribe()
    push(db, 1)
    batch = reader.next()
    assert batch.schema == query.schema
    assert batch.schema.names == ["a", "a"]


def test_a_reader_begins_with_the_next_row_or_at_a_position(db):
    query = db.sql("SELECT v FROM s")
    push(db, 1, 2)
    now, everything = query.subscribe(), query.subscribe(since=0)
    push(db, 3)
    assert (now.position, everything.position) == (2, 0)
    assert values([now.next()]) == [3]
    assert values([everything.next()]) == [1, 2, 3]
    again = query.subscribe(since=1)
    assert values([again.next()]) == [2, 3]
    with pytest.raises(ms.MillstreamError, match="position 9"):
        query.subscribe(since=9)


def test_what_nobody_has_still_to_read_is_not_kept(db):
    query = db.sql("SELECT v FROM s")
    reader = query.subscribe()
    push(db, 1, 2)
    query.fetch()
    assert values([reader.next()]) == [1, 2]
    with pytest.raises(ms.MillstreamError, match="position 0"):
        query.subscribe(since=0)
    assert query.subscribe(since=reader.position).next(timeout=0) is None


def test_next_waits_and_gives_up(db):
    query = db.sql("SELECT v FROM s")
    reader = query.subscribe()
    assert reader.next(timeout=0.01) is None
    assert not reader.ended
    later(0.05, lambda: push(db, 7))
    assert values([reader.next(timeout=10)]) == [7]


def test_rows_that_waited_come_in_one_batch(db):
    reader = db.sql("SELECT v FROM s").subscribe()
    for number in range(100):
        push(db, number)
    assert values([reader.next()]) == list(range(100))


def test_a_reader_ends_when_its_query_is_stopped(db):
    query = db.sql("SELECT v FROM s")
    reader = query.subscribe()
    push(db, 1)
    later(0.05, query.stop)
    assert values(reader) == [1]


def test_a_reader_is_told_of_the_failure_after_the_rows_before_it(db):
    query = db.sql("SELECT CAST(v - 3 AS BIGINT) * 9223372036854775807 AS x FROM s")
    reader = query.subscribe()
    push(db, 3)
    push(db, 9)
    assert values([reader.next()]) == [0]
    with pytest.raises(ms.MillstreamError):
        reader.next()


def test_sinks_and_views_can_be_read_too(db, tmp_path):
    db.execute(f"CREATE SINK out WITH (connector = 'file', path = '{tmp_path}/out', format = 'jsonl')")
    written = db.sql("INSERT INTO out SELECT v FROM s").subscribe()
    db.execute("CREATE VIEW latest AS SELECT v FROM s [RANGE 5]")
    shown = db.query("latest").subscribe()
    push(db, 1, 2)
    db.finish()
    assert values(written) == [1, 2]
    assert values(shown) == [1, 2]


def test_async_readers_share_a_loop(db):
    query = db.sql("SELECT v FROM s")
    readers = [query.subscribe() for _ in range(50)]

    async def read(reader):
        return [value async for batch in reader for value in batch.column(0).to_pylist()]

    async def main():
        tasks = [asyncio.create_task(read(reader)) for reader in readers]
        for number in range(5):
            await asyncio.to_thread(push, db, number)
        await asyncio.to_thread(db.finish)
        return await asyncio.gather(*tasks)

    assert asyncio.run(main()) == [list(range(5))] * 50


def test_a_cancelled_async_reader_leaves_nothing_behind(db):
    query = db.sql("SELECT v FROM s")
    reader = query.subscribe()

    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(anext(reader), 0.01)

    asyncio.run(main())
    push(db, 1)
    assert values([reader.next()]) == [1]


def test_a_function_is_called_with_every_batch(db):
    query = db.sql("SELECT v FROM s")
    seen = []
    reader = query.subscribe(lambda batch: seen.extend(batch.column(0).to_pylist()))
    push(db, 1, 2)
    push(db, 3)
    db.finish()
    assert reader.wait(10)
    assert seen == [1, 2, 3]


def test_closing_the_session_lets_functions_see_everything():
    seen = []
    with ms.connect() as db:
        db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t")

        def take(batch):
            time.sleep(0.05)
            seen.extend(batch.column(0).to_pylist())

        db.sql("SELECT v FROM s").subscribe(take)
        for number in range(3):
            push(db, number)
    assert seen == [0, 1, 2]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_a_function_raises_is_told_by_wait(db):
    query = db.sql("SELECT v FROM s")

    def fail(batch):
        raise ZeroDivisionError

    reader = query.subscribe(fail)
    push(db, 1)
    with pytest.raises(ZeroDivisionError):
        reader.wait(10)
    assert reader.ended
    assert push(db, 2).accepted == 1


def test_iterating_a_query_waits_for_rows_that_are_pushed(db):
    query = db.sql("SELECT v FROM s")
    push(db, 1)
    later(0.05, lambda: (push(db, 2), db.finish()))
    assert values(query) == [1, 2]
    assert query.fetch().num_rows == 0


def test_iterating_a_query_ends_when_it_is_stopped(db):
    query = db.sql("SELECT v FROM s")
    later(0.05, query.stop)
    assert values(query) == []


# -- full buffers ----------------------------------------------------------------------------------------------------


def test_a_full_buffer_drops_the_oldest_rows_and_counts_them(db):
    query = db.sql("SELECT v FROM s")
    reader = query.subscribe(buffer=3, when_full="drop")
    for number in range(10):
        push(db, number)
    assert values([reader.next()]) == [7, 8, 9]
    assert (reader.dropped, reader.position) == (7, 10)
    assert "7 dropped" in repr(reader)
    assert values(query.fetch().to_batches()) == list(range(10))


def test_a_full_buffer_ends_a_reader_that_wants_it_so(db):
    query = db.sql("SELECT v FROM s")
    reader = query.subscribe(buffer=3, when_full="end")
    push(db, 1, 2, 3)
    assert values([reader.next()]) == [1, 2, 3]
    push(db, 4, 5, 6, 7)
    with pytest.raises(ms.MillstreamError, match="fell behind by 4 rows"):
        reader.next()


def test_a_full_buffer_holds_up_pushes_until_it_is_read(db):
    query = db.sql("SELECT v FROM s")
    reader = query.subscribe(buffer=2)
    most = 0

    def feed():
        for number in range(200):
            push(db, number)
        db.finish()

    thread = threading.Thread(target=feed)
    thread.start()
    seen = []
    while (batch := reader.next()) is not None:
        most = max(most, reader.behind + batch.num_rows)
        seen += batch.column(0).to_pylist()
    thread.join()
    assert seen == list(range(200))
    assert most <= 5


def test_while_a_push_waits_others_go_on(db):
    db.execute("CREATE STREAM other (v INT, t INT) ORDER BY t")
    query, free = db.sql("SELECT v FROM s"), db.sql("SELECT v FROM other")
    reader = query.subscribe(buffer=1)
    push(db, 1)
    thread = threading.Thread(target=lambda: push(db, 2))
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    assert db.push("other", [(5, 5)]).accepted == 1
    assert values(free.fetch().to_batches()) == [5]
    assert values(query.fetch().to_batches()) == [1]
    reader.next()
    thread.join(10)
    assert not thread.is_alive()
    assert values([reader.next()]) == [2]


def test_a_push_that_would_wait_for_its_own_thread_is_refused(db, monkeypatch):
    monkeypatch.setattr(results, "FIRST_READ_SECONDS", 0.1)
    query = db.sql("SELECT v FROM s")
    reader = query.subscribe(buffer=1)
    push(db, 1)
    with pytest.raises(ms.MillstreamError, match="buffer of a reader is full"):
        push(db, 2)
    reader.next()
    push(db, 2)
    with pytest.raises(ms.MillstreamError, match="buffer of a reader is full"):
        push(db, 3)


@pytest.mark.parametrize("leave", ["close", "forget"])
def test_a_reader_that_has_gone_holds_up_nobody(db, leave):
    query = db.sql("SELECT v FROM s")
    reader = query.subscribe(buffer=1)
    push(db, 1)
    thread = threading.Thread(target=lambda: push(db, 2))
    thread.start()
    if leave == "close":
        reader.close()
        assert reader.next() is None
    del reader
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


def test_a_closed_reader_wakes_up(db):
    reader = db.sql("SELECT v FROM s").subscribe()
    later(0.05, reader.close)
    assert values(reader) == []


def test_a_run_waits_for_readers_and_can_be_interrupted(db):
    table = pa.table({"v": pa.array(range(300_000), pa.int32()), "t": pa.array(range(300_000), pa.int32())})
    db.register("r", table, time="t")
    query = db.sql("SELECT v FROM r")
    reader = query.subscribe(buffer=10)
    thread = threading.Thread(target=query.arrow)
    thread.start()
    first = reader.next()
    time.sleep(0.2)
    assert reader.behind < 200_000
    rest = values(reader)
    thread.join()
    assert first.num_rows + len(rest) == 300_000


def test_rows_that_nobody_fetches_are_limited_when_there_are_readers(db, monkeypatch):
    monkeypatch.setattr(results, "UNFETCHED", 5)
    query = db.sql("SELECT v FROM s")
    push(db, 1)
    reader = query.subscribe()
    push(db, *range(2, 12))
    assert values([reader.next()]) == list(range(2, 12))
    assert values(query.fetch().to_batches()) == [7, 8, 9, 10, 11]
    assert query.dropped == 6


@pytest.mark.parametrize("wrong", [{"buffer": 0}, {"when_full": "wait"}])
def test_wrong_wishes_are_refused(db, wrong):
    query = db.sql("SELECT v FROM s")
    with pytest.raises(ms.MillstreamError):
        query.subscribe(**wrong)


# -- persistent sessions ---------------------------------------------------------------------------------------------


def test_positions_go_on_after_reopening(tmp_path):
    with ms.connect(tmp_path) as db:
        db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t")
        query = db.sql("SELECT v FROM s", name="q")
        push(db, 1, 2)
        query.fetch()
        push(db, 3, 4)
        reader = query.subscribe(since=2)
        assert values([reader.next()]) == [3, 4]
    with ms.connect(tmp_path) as db:
        query = db.query("q")
        reader = query.subscribe(since=3)
        push(db, 5)
        assert values([reader.next()]) == [4, 5]
        assert values(query.fetch().to_batches()) == [3, 4, 5]


def test_a_fetch_is_replayed_up_to_where_it_came(tmp_path):
    from millstream.hosts.embedded.checkpoint import replay

    with ms.connect(tmp_path) as db:
        db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t")
        query = db.sql("SELECT v FROM s", name="q")
        push(db, 1, 2, 3)
        replay(db._host, {"op": "fetch", "name": "q", "upto": 2}, None)
        assert values(query.fetch().to_batches()) == [3]


# -- the log itself --------------------------------------------------------------------------------------------------


def rows(first, count):
    return pa.record_batch({"x": list(range(first, first + count))})


def test_any_number_of_cursors_read_any_part_at_any_time():
    from random import Random

    for seed in range(200):
        random = Random(seed)
        log, position, cursors = ResultLog(), 0, []
        for _ in range(60):
            match random.choice(["append", "append", "read", "cursor"]):
                case "append":
                    count = random.randint(0, 5)
                    log.append(rows(position, count))
                    position += count
                case "cursor":
                    when_full = random.choice(["block", "drop"])
                    cursors.append((log.cursor(None, random.randint(1, 8), when_full), [], position))
                case "read" if cursors:
                    cursor, seen, _ = random.choice(cursors)
                    seen += values(cursor.take(random.choice([None, 1, 3])))
        for cursor, seen, first in cursors:
            seen += values(cursor.take())
            assert cursor.position == log.end == position
            assert len(seen) + cursor.dropped == position - first
            assert seen == sorted(set(seen))
            if cursor.when_full == "block":
                assert seen == list(range(first, position))
        assert values(log.fetch()) == list(range(position))[-results.UNFETCHED :]


def test_passed_rows_are_freed_whatever_slow_readers_do():
    log = ResultLog(fetched=False)
    cursor, slow = log.cursor(None, 10, "block"), log.cursor(None, 1000, "drop")
    before = pa.total_allocated_bytes()
    for number in range(200):
        log.append(rows(number * 1000, 1000))
        cursor.take()
    assert pa.total_allocated_bytes() - before < 10 * 8000
    assert values(slow.take()) == list(range(199_000, 200_000))


def test_a_gate_looks_only_at_queries_of_the_stream():
    gate = Gate()
    log = ResultLog(["s"], gate)
    cursor = log.cursor(None, 1, "block")
    cursor.read_by = threading.get_ident()
    log.append(rows(0, 1))
    gate.pass_("other")
    with pytest.raises(ms.MillstreamError):
        gate.pass_("S")
    with gate.lifted():
        gate.pass_("s")
    log.close()
    gate.pass_("s")


def test_a_reader_with_a_name_goes_on_after_a_crash(tmp_path):
    """At least once: rows that were not acknowledged come again, those that were do not; fetch() has its own place."""
    home, crash = tmp_path / "home", tmp_path / "crash"

    def read(reader):
        batch = reader.next(timeout=0)
        return [] if batch is None else batch.column(0).to_pylist()

    with ms.connect(home, checkpoint_seconds=3600) as db:
        db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t")
        query = db.sql("SELECT v FROM s", name="q")
        db.push("s", [(0, 0)])
        reader = query.subscribe(name="dash", since=0)
        db.push("s", [(1, 1), (2, 2), (3, 3)])
        assert read(reader) == [0, 1, 2, 3]
        reader.ack(2)
        assert query.fetch().num_rows == 4
        with pytest.raises(ms.DataError, match="not read yet"):
            reader.ack(9)
        for checkpoint in (False, True):
            if checkpoint:
                db.checkpoint()
            db.push("s", [(4 + checkpoint, 4)])
            place = crash.with_name(f"crash-{checkpoint}")
            shutil.copytree(home, place)
            with ms.connect(place) as again:
                found = again.query("q")
                assert found.fetch()["v"].to_pylist() == [4, 5][: 1 + checkpoint]
                successor = found.subscribe(name="dash")
                assert successor.position == 2
                assert read(successor) == [2, 3, 4, 5][: 3 + checkpoint]
                successor.ack()
            with ms.connect(place) as again:
                assert again.query("q").subscribe(name="dash").position == 5 + checkpoint
                again.query("q").unsubscribe("dash")
                with pytest.raises(ms.DataError, match="no reader"):
                    again.query("q").unsubscribe("dash")
        with pytest.raises(ms.DataError, match="has no name"):
            query.subscribe().ack()
