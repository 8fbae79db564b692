"""The event algebra: the papers' examples with their printed results (corrected where they err), its laws, and random
expressions against the definition."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

import millstream as ms
from millstream.errors import BindError
from tests.support.event_queries import OPERATORS, check
from tiers import examples

Row = tuple[Any, ...]
T33 = [
    ("IBM", 90, 15000, 550), ("IBM", 85, 7000, 555), ("Dell", 40, 11000, 557), ("IBM", 81, 8000, 561),
    ("MSFT", 25, 6000, 563), ("IBM", 91, 9000, 564),
]  # fmt: skip
STOCK = "CREATE STREAM Stock (Name VARCHAR, Price DOUBLE, Volume INT, t BIGINT) ORDER BY t"
INTERVALS = "CREATE STREAM {0} (n INT, s BIGINT, e BIGINT) ORDER BY e SINCE s"
FALLING = """SELECT Name, Price_1 AS MaxPrice, Price AS MinPrice
             FROM FILTER{Volume > 10000}(Stock) FOLD{$2.Name = $.Name, $2.Price < $.Price, } Stock"""
EXAMPLE_10 = f"""SELECT Name, MaxPrice, MinPrice, Price AS FinalPrice
    FROM FILTER{{Price > 1.05 * MinPrice_1}} (FILTER{{DUR >= 10}} ({FALLING}) NEXT{{$2.Name = $1.Name}} Stock)"""


def answer(query: str, rows: list[Row] | None = None, rules: str = "on", **streams: list[Row]) -> list[Row]:
    """What a query finds in the stream Stock, or in streams of intervals."""
    with ms.connect() as db:
        db.execute(f"SET rules = {rules}")
        db.execute(STOCK)
        for name in streams:
            db.execute(INTERVALS.format(name))
        asked = db.sql(query)
        for name, events in streams.items():
            db.push(name, sorted(events, key=lambda event: event[-1]))
        if rows is not None:
            db.push("Stock", rows)
        db.finish()
        table = asked.fetch()
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True)) if table.num_rows else []


def quotes(*given: tuple[str, float, int]) -> list[Row]:
    return [(name, price, 1, time) for name, price, time in given]


# -- sequence ----------------------------------------------------------------------------------------------------------


def test_points_in_time_cannot_tell_what_came_first() -> None:  # TV-001
    """As a join of points that is stamped with its last one, S1;(S2;S3) and S2;(S1;S3) are the same."""
    points = {"A": [(1, 2)], "B": [(2, 1)], "C": [(3, 3)]}

    def followed(first: str, second: str, third: str) -> list[Row]:
        with ms.connect() as db:
            for name in points:
                db.execute(f"CREATE STREAM {name} (n INT, t BIGINT) ORDER BY t")
            db.execute(
                f"""CREATE STREAM pair AS ISTREAM (SELECT x.n AS m, y.n AS n, y.t AS at
                    FROM {second} [RANGE UNBOUNDED] AS x, {third} [RANGE UNBOUNDED] AS y WHERE y.t > x.t)"""
            )
            asked = db.sql(
                f"""ISTREAM (SELECT x.n AS {first}, y.m AS {second}, y.n AS {third}, y.at AS at
                    FROM {first} [RANGE UNBOUNDED] AS x, pair [RANGE UNBOUNDED] AS y WHERE y.at > x.t)"""
            )
            for name, rows in points.items():
                db.push(name, rows)
            db.finish()
            return [(row["A"], row["B"], row["C"], row["at"]) for row in asked.fetch().to_pylist()]

    assert followed("A", "B", "C") == followed("B", "A", "C") == [(1, 2, 3, 3)]


def test_the_interval_model_has_no_anomaly() -> None:  # TV-002
    data: dict[str, list[Row]] = {"A": [(1, 2, 2)], "B": [(2, 1, 1)], "C": [(3, 3, 3)]}
    a, b, c = (f"(SELECT n AS {name.lower()} FROM {name})" for name in "ABC")
    assert answer(f"SELECT a, b, c FROM {a} NEXT ({b} NEXT {c})", **data) == []
    assert answer(f"SELECT b, a, c FROM {b} NEXT ({a} NEXT {c})", **data) == [(2, 1, 3, 1, 3)]


def test_what_ends_first_is_next_of_what_does_not_overlap() -> None:  # TV-003
    data: dict[str, list[Row]] = {"A": [(1, 1, 3)], "B": [(2, 2, 4), (3, 4, 8), (4, 5, 6), (5, 7, 9)]}
    assert answer("SELECT a, n FROM (SELECT n AS a FROM A) NEXT B", **data) == [(1, 4, 1, 6)]


def test_touching_events_do_not_follow_each_other() -> None:  # TV-007
    query = "SELECT a, n FROM (SELECT n AS a FROM A) NEXT B"
    assert answer(query, A=[(1, 1, 3)], B=[(2, 3, 5)]) == []
    assert answer(query, A=[(1, 1, 3)], B=[(2, 4, 5)]) == [(1, 2, 1, 5)]


def test_all_that_end_first_are_next() -> None:  # TV-025
    assert Counter(
        answer("SELECT a, n FROM (SELECT n AS a FROM A) NEXT B", A=[(1, 1, 1)], B=[(2, 2, 2), (3, 2, 2)])
    ) == {
        (1, 2, 1, 2): 1,
        (1, 3, 1, 2): 1,
    }


def test_prices_that_cross_a_limit() -> None:  # TV-009, Example 2
    rows = quotes(
        ("IBM", 95, 1), ("IBM", 100, 2), ("IBM", 101, 3), ("IBM", 105, 4), ("Dell", 200, 5), ("IBM", 99, 6),
        ("Dell", 10, 7), ("IBM", 102, 8),
    )  # fmt: skip
    query = """SELECT Price_1, Price FROM FILTER{Price_1 <= 100 AND Price > 100} (
               FILTER{Name = 'IBM'}(Stock) NEXT FILTER{Name = 'IBM'}(Stock))"""
    assert answer(query, rows) == [(100, 101, 2, 3), (99, 102, 6, 8)]


def test_a_condition_inside_is_not_one_around() -> None:  # TV-010, TV-011, Example 3
    inside = "FILTER{1.05 * Price_1 <= Price}(Stock NEXT{$1.Name = $2.Name} Stock)"
    around = "FILTER{1.05 * Price_1 <= Price AND Name_1 = Name}(Stock NEXT Stock)"
    assert answer(f"SELECT Name, Price_1, Price FROM {inside}", T33) == [("IBM", 81, 91, 561, 564)]
    assert answer(f"SELECT Name FROM {around}", T33) == []
    assert answer("SELECT Price_1, Price FROM FILTER{Name_1 = Name}(Stock NEXT Stock)", T33) == [(90, 85, 550, 555)]


def test_consecutive_pairs() -> None:  # TV-026
    found = answer("SELECT t_1, t FROM Stock NEXT Stock", T33)
    times = [row[-1] for row in T33]
    assert found == [(one, two, one, two) for one, two in itertools.pairwise(times)]


def test_a_filter_of_the_right_side_is_a_condition() -> None:  # TV-012, TV-013
    whole = answer("SELECT t_1, t FROM Stock NEXT Stock", T33)
    assert answer("SELECT t_1, t FROM Stock NEXT{TRUE} Stock", T33) == whole
    inside = answer("SELECT t_1, t FROM Stock NEXT{$2.Price > 84} Stock", T33)
    assert answer("SELECT t_1, t FROM Stock NEXT (FILTER{Price > 84}(Stock))", T33) == inside != whole


def test_next_is_not_associative() -> None:  # TV-020
    rows = quotes(("IBM", 80, 1), ("MSFT", 50, 2), ("MSFT", 49, 3), ("Dell", 24, 4))
    one, two, three = (
        f"(SELECT Price AS {column} FROM FILTER{{Name = '{name}'}}(Stock))"
        for column, name in (("a", "IBM"), ("b", "MSFT"), ("c", "Dell"))
    )
    assert answer(f"SELECT b, c FROM {two} NEXT {three}", rows) == [(50, 24, 2, 4), (49, 24, 3, 4)]
    right = answer(f"SELECT a, b, c FROM {one} NEXT ({two} NEXT {three})", rows)
    assert Counter(right) == {(80, 50, 24, 1, 4): 1, (80, 49, 24, 1, 4): 1}
    assert answer(f"SELECT a, b, c FROM ({one} NEXT {two}) NEXT {three}", rows) == [(80, 50, 24, 1, 4)]


@pytest.mark.parametrize(("m", "n"), [(3, 2), (5, 1), (1, 4)])
def test_no_chain_says_what_a_right_side_does(m: int, n: int) -> None:  # TV-021, the separation theorem
    data: dict[str, list[Row]] = {
        "A": [(0, 0, 0)],
        "B": [(0, time, time) for time in range(m + n + 4)],
        "C": [(0, m + 1, m + 1), (0, m + n + 2, m + n + 2)],
    }
    a, b, c = (f"(SELECT n AS {name.lower()} FROM {name})" for name in "ABC")
    assert answer(f"SELECT a FROM {a} NEXT ({b} NEXT {c})", **data) == [(0, 0, m + 1)] * m
    assert answer(f"SELECT a FROM {a} NEXT {b} NEXT {c}", **data) == [(0, 0, m + 1)]


# -- iteration ---------------------------------------------------------------------------------------------------------


def test_rising_prices() -> None:  # TV-014, TV-015, Example 4
    rows = quotes(("IBM", 80, 1), ("Dell", 22, 2), ("IBM", 82, 3), ("Dell", 24, 4), ("IBM", 84, 5), ("Dell", 22, 6))
    rising = "Stock FOLD{$2.Name = $.Name, $2.Price > $.Price, } Stock"
    found = answer(f"SELECT Name_1, Price_1, Name, Price FROM {rising}", rows)
    assert Counter(found) == {
        ("IBM", 80, "IBM", 82, 1, 3): 1,
        ("Dell", 22, "Dell", 24, 2, 4): 1,
        ("IBM", 82, "IBM", 84, 3, 5): 1,
        ("IBM", 80, "IBM", 84, 1, 5): 1,
    }
    assert answer(f"SELECT Price_1, Price FROM FILTER{{DUR >= 4}}({rising})", rows) == [(80, 84, 1, 5)]


def test_a_running_average() -> None:  # TV-016, TV-017
    rows = quotes(("IBM", 80, 1), ("IBM", 82, 2), ("IBM", 84, 3), ("IBM", 90, 4))
    query = """SELECT Price_1, Price, n, av FROM (SELECT *, 1 AS n, Price AS av FROM Stock)
               FOLD{, , $.n + 1 AS n, ($.n * $.av + $2.Price) / ($.n + 1) AS av} Stock"""
    found = [(*row[:3], round(row[3], 6), *row[4:]) for row in answer(query, rows)]
    assert Counter(found) == Counter(
        [
            (80, 82, 2, 81, 1, 2), (82, 84, 2, 83, 2, 3), (84, 90, 2, 87, 3, 4), (80, 84, 3, 82, 1, 3),
            (82, 90, 3, 85.333333, 2, 4), (80, 90, 4, 84, 1, 4),
        ]
    )  # fmt: skip


def test_runs_that_are_counted() -> None:  # TV-037, TV-038, Example 17
    rows = [("IBM", 10.0 + i, 20_000 if i == 0 else 1, 1 + i) for i in range(13)] + [("IBM", 5.0, 1, 20)]
    query = """SELECT * FROM FILTER{cnt > 10} ((SELECT *, 1 AS cnt FROM FILTER{Volume > 10000}(Stock))
               FOLD{$2.Name = $.Name, $2.Price > $.Price, $.cnt+1 AS cnt} Stock)"""
    with ms.connect() as db:
        db.execute(STOCK)
        asked = db.sql(query)
        db.push("Stock", rows)
        db.finish()
        found = asked.fetch()
    assert found.column_names == [
        "Name_1", "Price_1", "Volume_1", "t_1", "cnt_1", "Name", "Price", "Volume", "t", "cnt", "event_start",
        "event_end",
    ]  # fmt: skip
    told = [(row["Price"], row["cnt_1"], row["cnt"], row["event_start"], row["event_end"]) for row in found.to_pylist()]
    assert told == [(20, 1, 11, 1, 11), (21, 1, 12, 1, 12), (22, 1, 13, 1, 13)]


def test_a_fold_finds_what_a_next_finds() -> None:  # TV-023
    found = Counter(answer("SELECT t_1, t FROM Stock FOLD{$2.Price > $1.Price, , } Stock", T33))
    assert found >= Counter(answer("SELECT t_1, t FROM Stock NEXT{$2.Price > $1.Price} Stock", T33))


# -- automata ----------------------------------------------------------------------------------------------------------


def test_falling_prices_then_up() -> None:  # TV-045, TV-046, TV-049, Examples 10 and 19
    found = [("IBM", 90, 81, 91, 550, 564)]
    printed = f"""SELECT Name, MaxPrice, MinPrice, Price AS FinalPrice FROM FILTER{{DUR ≥ 10}} ({FALLING})
                  NEXT{{$2.Name = $1.Name AND $2.Price > 1.05*$1.MinPrice}} Stock"""
    assert answer(EXAMPLE_10, T33) == answer(printed, T33) == found
    more = sorted([*T33, ("IBM", 82, 100, 562)], key=lambda row: row[-1])
    assert answer(EXAMPLE_10, more) == []
    assert answer(printed, more) == found


@pytest.mark.parametrize("first", [True, False])
def test_ties_in_either_order(first: bool) -> None:  # TV-024, TV-050, TV-051
    def tied(row: Row) -> list[Row]:
        return sorted([row, *T33] if first else [*T33, row], key=lambda each: each[-1])

    assert ("IBM", 90, 81, 91, 550, 564) in answer(EXAMPLE_10, tied(("IBM", 80, 8000, 564)))
    assert answer(EXAMPLE_10, tied(("IBM", 99, 8000, 557))) == []


def test_what_overlaps_an_instance_is_passed_over() -> None:  # TV-052
    data: dict[str, list[Row]] = {"A": [(1, 1, 5)], "B": [(2, 5, 6), (3, 6, 7)]}
    assert answer("SELECT a, n FROM (SELECT n AS a FROM A) NEXT B", **data) == [(1, 3, 1, 7)]


def test_durations_of_inputs_and_of_the_whole() -> None:  # TV-019, TV-027
    data: dict[str, list[Row]] = {"A": [(1, 1, 1), (2, 3, 6), (3, 9, 10)]}
    query = "SELECT n_1, n FROM FILTER{DUR >= 5}(A NEXT (FILTER{DUR <= 1}(A)))"
    assert Counter(answer(query, **data)) == {(1, 3, 1, 10): 1, (2, 3, 3, 10): 1}
    assert answer("SELECT n FROM FILTER{DUR = 3}(A)", **data) == [(2, 3, 6)]


def test_instants_are_not_seen_within() -> None:  # TV-061
    data: dict[str, list[Row]] = {"A": [(1, 5, 5), (2, 5, 5), (3, 6, 6)]}
    assert Counter(answer("SELECT n_1, n FROM A NEXT A", **data)) == {(1, 3, 5, 6): 1, (2, 3, 5, 6): 1}


def test_one_event_for_each_instant() -> None:  # TV-018, TV-029
    data: dict[str, list[Row]] = {"A": [(80, 1, 5), (90, 3, 5), (70, 6, 6)]}
    assert answer("SELECT best FROM AGGREGATE{max(n) AS best}(A)", **data) == [(90,), (70,)]
    # averages that ended at different times end together with the event that follows both
    data = {"A": [(80, 1, 2), (90, 1, 4)], "B": [(1, 7, 7)]}
    query = "SELECT best FROM AGGREGATE{max(a) AS best}((SELECT n AS a FROM A) NEXT B)"
    assert answer(query, **data) == [(90,)]


TURN = """SELECT n_2 AS n, {0} AS low FROM FILTER{{n_2 {1} n AND n_2 {1} n_3}}
          ((SELECT n_1 AS n_3, n AS n_2 FROM A NEXT A) NEXT A)"""
TURNS = f"(SELECT n, low FROM ({TURN.format('TRUE', '<')}) UNION ALL SELECT n, low FROM ({TURN.format('FALSE', '>')}))"
"""turning points, each from the quote before to the one after"""

POINTS = f"(SELECT n, low FROM (SELECT n, low, count(*) OVER (ROWS UNBOUNDED PRECEDING) AS seq FROM {TURNS}))"
"""the same as points in time, when they are known"""


def double_top(turns: str) -> str:
    found = f"(SELECT n AS a FROM FILTER{{low}} {turns})"
    bounds = ["b >= 1.2 * a", "c >= 0.9 * a AND c <= 1.1 * a", "d >= 0.9 * b AND d <= 1.1 * b", "e <= a"]
    for name, condition in zip("bcde", bounds, strict=True):
        found = f"(FILTER{{{condition}}} ({found} NEXT (SELECT n AS {name} FROM {turns})))"
    return f"SELECT a, b, c, d, e FROM {found}"


@pytest.mark.parametrize("rules", ["on", "off"])
def test_extremes_that_overlap(rules: str) -> None:  # TV-058
    narrow = [11, 10, 13, 10.5, 12.5, 9, 9.5]
    wide = [12, 11, 10.5, 10, 11, 12, 13, 12, 11, 10.5, 11, 12, 12.5, 11, 10, 9, 9.5, 10]
    found = (100, 130, 105, 125, 90)
    wanted = {
        (7, TURNS): [],
        (7, POINTS): [(*found, 3, 7)],
        (18, TURNS): [(*found, 3, 17)],
        (18, POINTS): [(*found, 5, 17)],
    }
    for prices, turns in itertools.product((narrow, wide), (TURNS, POINTS)):
        data: dict[str, list[Row]] = {"A": [(int(10 * price), time, time) for time, price in enumerate(prices, 1)]}
        assert answer(double_top(turns), rules=rules, **data) == wanted[len(prices), turns]


def test_slack_holds_events_back() -> None:  # TV-059, TV-060
    with ms.connect() as db:
        db.execute(
            "CREATE STREAM S (n BIGINT, t BIGINT) ORDER BY t SLACK 5; CREATE STREAM F (n BIGINT, t BIGINT) ORDER BY t"
        )
        query, late = db.sql("SELECT n FROM FILTER{n > 0}(S)"), db.sql("SELECT n FROM LATE(S)")
        first_in = db.sql("SELECT n FROM FILTER{n > 0}(F)")
        pairs = db.sql("SELECT n_1, n FROM S NEXT S")

        def after(*times: int) -> list[int]:
            db.push("S", [(time, time) for time in times])
            return query.fetch()["n"].to_pylist()

        # the paper waits one tick longer: an event leaves once no earlier one is in time, not only none of its time
        assert [after(12, 10), after(15), after(16), after(17)] == [[], [10], [], [12]]
        assert after(12) == [12] and late.fetch().num_rows == 0
        # ... and one of its time that comes then is of the same instant
        assert [(row["n_1"], row["n"]) for row in pairs.fetch().to_pylist()] == [(10, 12), (10, 12)]
        assert after(11) == [] and late.fetch()["n"].to_pylist() == [11]
        # without slack, events come as they are pushed
        db.push("F", [(3, 1), (1, 1), (2, 2)])
        assert first_in.fetch()["n"].to_pylist() == [3, 1, 2]


@pytest.mark.parametrize("many", [3, 16])
def test_branches_over_the_same_events(many: int) -> None:
    """A few become edges of one automaton; more are found by an index over what one automaton makes."""
    followed = "(SELECT Name AS n, Price AS p FROM Stock) NEXT{$2.Name = $1.n} Stock"
    branches = (
        f"SELECT p, Volume, {number} AS b FROM FILTER{{Price > {number % 5} AND Volume = {number}}}({followed})"
        for number in range(many)
    )
    rows = [("ab"[i % 3 == 0], float(i * 7 % 11), i * 5 % (many + 2), i // 2) for i in range(600)]
    query = " UNION ALL ".join(branches)
    found = answer(query, rows)
    assert len(found) > 50
    assert Counter(found) == Counter(answer(query, rows, rules="off"))


def test_an_edge_with_alternatives_is_taken_once() -> None:  # TV-063
    query = "SELECT Name_1, Name FROM Stock NEXT{$2.Price > $1.Price OR $2.Name <> $1.Name} Stock"
    assert answer(query, quotes(("IBM", 1, 1), ("Dell", 2, 2))) == [("IBM", "Dell", 1, 2)]


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "names"),
    [
        ("(SELECT Name AS a, Price AS b FROM Stock) NEXT (SELECT Price AS b, t AS c FROM Stock)", "a_1 b_1 b c"),
        ("(SELECT Name AS a FROM Stock) NEXT (SELECT Price AS b FROM Stock)", "a b"),
        (
            "(SELECT Name AS a, Price AS b, t AS c FROM Stock) FOLD{, , } (SELECT Name AS a, Price AS b FROM Stock)",
            "a_1 b_1 c a b",
        ),
        ("(SELECT Price FROM Stock) NEXT{$1.Price = $2.Price} (Stock)", "Price_1 Name Price Volume t"),
    ],
)
def test_columns_get_names_of_their_own(item: str, names: str) -> None:  # TV-036, TV-041, TV-042
    with ms.connect() as db:
        db.execute(STOCK)
        assert list(db.sql(f"SELECT * FROM {item}").schema.names) == [*names.split(), "event_start", "event_end"]


def test_prices_that_come_again() -> None:  # TV-035, Example 16
    rows = quotes(("IBM", 90, 1), ("Dell", 40, 2), ("MSFT", 90, 3), ("Dell", 40, 4), ("IBM", 40, 5), ("MSFT", 90, 6))
    query = "SELECT Name FROM (SELECT Price FROM Stock) NEXT{$1.Price = $2.Price} (Stock)"
    assert answer(query, T33) == []
    assert Counter(answer(query, rows)) == {("MSFT", 1, 3): 1, ("Dell", 2, 4): 1, ("MSFT", 3, 6): 1, ("IBM", 4, 5): 1}


def test_one_text_may_publish_several_streams() -> None:  # TV-047, TV-048, TV-057
    with ms.connect() as db:
        db.execute(STOCK)
        db.execute(
            """SELECT Low, Price FROM (SELECT Price AS Low FROM FILTER{Name = 'IBM'}(Stock) PUBLISH Ibm)
               NEXT{Price > Low} Stock PUBLISH Higher"""
        )
        low, higher = db.sql("SELECT Low FROM Ibm"), db.sql("SELECT count(*) OVER (ROWS 9 PRECEDING) FROM Higher")
        db.push("Stock", T33)
        db.finish()
        assert low.fetch()["Low"].to_pylist() == [90, 85, 81, 91]
        assert higher.fetch().num_rows == 3
        with pytest.raises(BindError, match="no stream or table Later"):
            db.execute("SELECT Price FROM Later PUBLISH Earlier")


# -- random expressions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", OPERATORS)
def test_random_expressions(operator: str) -> None:  # TV-053
    assert check(operator, examples(200), seed=11) == []
