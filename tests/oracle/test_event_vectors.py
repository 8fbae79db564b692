"""The papers' test vectors of the event language as printed: queries, schemas, automata and what is refused."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from test_event_algebra import STOCK, T33, Row, answer, quotes

import millstream as ms
from millstream.errors import MillstreamError
from millstream.expressions.nodes import Column
from millstream.kernels.events.spec import AutomatonSpec
from millstream.physical.nodes import Apply, walk
from millstream.plan.events.automata import START

IBM = "SELECT Price AS IBMPrice FROM FILTER{Name= 'IBM' AND Price > 83}(Stock)"


def names(query: str) -> list[str]:
    with ms.connect() as db:
        db.execute(STOCK)
        return [name for name in db.sql(query).schema.names if not name.startswith("event_")]


def automaton(query: str) -> AutomatonSpec:
    with ms.connect() as db:
        db.execute(STOCK)
        plan = db.prepare(query).plan
    return next(node.spec for node in walk(plan) if isinstance(node, Apply) and isinstance(node.spec, AutomatonSpec))


# -- algebra -----------------------------------------------------------------------------------------------------------


def test_values_that_are_missing_make_conditions_false() -> None:  # TV-004
    """A column that no event has is an error; a value that an event lacks is NULL, which no comparison holds for."""
    color = "(SELECT *, CAST(NULL AS VARCHAR) AS color FROM Stock)"
    assert answer(f"SELECT t FROM FILTER{{Name = 'IBM' AND color > 'blue'}}{color}", T33) == []
    found = answer(f"SELECT t FROM FILTER{{Name = 'IBM' OR color > 'blue'}}{color}", T33)
    assert found == [(550,), (555,), (561,), (564,)]
    assert answer(f"SELECT t FROM FILTER{{NOT color > 'blue'}}{color}", T33) == []
    with pytest.raises(MillstreamError, match="color"):
        names("SELECT t FROM FILTER{Name = 'IBM' OR color > 'blue'}(Stock)")


def test_a_column_is_renamed() -> None:  # TV-005
    assert names("SELECT Name, Price AS oldPrice, Volume FROM Stock") == ["Name", "oldPrice", "Volume"]


def test_what_follows_overwrites_columns_of_the_same_name() -> None:  # TV-006
    data: dict[str, list[Row]] = {"A": [(85, 1, 1)], "B": [(27, 2, 3)]}
    assert answer("SELECT n_1, n FROM A NEXT B", **data) == [(85, 27, 1, 3)]


@pytest.mark.parametrize(("bound", "times"), [(100, []), (83, [550, 555, 564])])
def test_a_selection(bound: int, times: list[int]) -> None:  # TV-008, Example 1
    assert answer(f"SELECT t FROM FILTER{{Name = 'IBM' AND Price > {bound}}}(Stock)", T33) == [(t,) for t in times]


def test_selections_come_before_what_they_read_is_computed() -> None:  # TV-022
    computed = "SELECT p FROM FILTER{p > 3000}(SELECT (Price + Volume) / 2 AS p FROM Stock)"
    selected = "SELECT (Price + Volume) / 2 AS p FROM FILTER{(Price + Volume) / 2 > 3000}(Stock)"
    assert answer(computed, T33) == answer(selected, T33) != []


def test_unions_need_columns_that_agree() -> None:  # TV-028
    with pytest.raises(MillstreamError, match="column"):
        names("SELECT Name FROM Stock UNION ALL SELECT Name, Price FROM Stock")
    assert names("SELECT Name AS n FROM Stock UNION ALL SELECT Name AS n FROM Stock") == ["n"]


# -- the language ------------------------------------------------------------------------------------------------------


def test_every_event() -> None:  # TV-030, Example 11
    query = "SELECT * FROM Stock PUBLISH MyStock"
    assert names(query) == ["Name", "Price", "Volume", "t"]
    assert answer(query, T33) == T33


def test_filters_inside_of_filters() -> None:  # TV-031, TV-032, Examples 12 and 13
    nested = """SELECT Price AS IBMPrice FROM FILTER{Name='IBM'} (SELECT * FROM FILTER{Price > 83}(Stock))"""
    assert answer(IBM, T33) == answer(nested, T33) == [(90,), (85,), (91,)]


def test_pairs() -> None:  # TV-033, TV-034, TV-039, TV-040, Examples 14, 15 and 18
    assert names(f"SELECT * FROM ({IBM}) NEXT{{Name='MSFT'}} (Stock)") == ["IBMPrice", "Name", "Price", "Volume", "t"]
    found = answer(f"SELECT IBMPrice, Price AS MSFTPrice FROM ({IBM}) NEXT{{Name='MSFT'}} (Stock)", T33)
    assert Counter(found) == {(90, 25, 550, 563): 1, (85, 25, 555, 563): 1}
    found = answer(f"SELECT IBMPrice, Price, Name FROM ({IBM}) NEXT{{IBMPrice < Price}} (Stock)", T33)
    assert Counter(found) == {(90, 91, "IBM", 550, 564): 1, (85, 91, "IBM", 555, 564): 1}
    query = """SELECT Price_1 AS IBMPrice1, Price AS IBMPrice2 FROM (FILTER{Name='IBM' AND Price > 83}(Stock))
               NEXT{$2.Price > $1.Price} (FILTER{Name='IBM'}(Stock))"""
    assert Counter(answer(query, T33)) == {(90, 91, 550, 564): 1, (85, 91, 555, 564): 1}
    query = "SELECT Name FROM (SELECT Name AS N FROM Stock) NEXT{$1.N = $2.Name} Stock"
    assert answer(query, T33) == [("IBM", 550, 555), ("IBM", 555, 561), ("IBM", 561, 564)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT Name FROM (SELECT Name FROM Stock) FOLD{, , } (SELECT Name, Price FROM Stock)",  # TV-043
        "SELECT $1.Name FROM Stock NEXT Stock",  # TV-044, and all below
        "SELECT Name FROM Stock NEXT{$1.$1.Name = $2.Name} Stock",
        "SELECT Name FROM Stock NEXT{Name = 'IBM'} Stock",
        "SELECT Name FROM Stock NEXT{$.Name = $2.Name} Stock",
        "SELECT Name FROM FILTER{event_start > 5}(Stock)",
    ],
)
def test_refused(query: str) -> None:
    with pytest.raises(MillstreamError):
        names(query)


# -- automata ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operators", [1, 2, 5])
def test_each_operator_is_a_state(operators: int) -> None:  # TV-054
    """`;θ` adds a state; μ one with an edge to itself that asks for the same as the one that goes on; ∪ none."""
    chain = "(SELECT Name AS n FROM Stock)"
    for _ in range(operators):
        chain = f"(SELECT n FROM {chain} NEXT{{$1.n = $2.Name}} Stock)"
    made = automaton(f"SELECT n FROM {chain}")
    assert len(made.states) == operators and len(made.edges) == operators + 1
    fold = automaton("SELECT Name FROM Stock FOLD{$2.Name = $.Name, $2.Price > $.Price, } Stock")
    again, on = (next(edge for edge in fold.edges if edge.source == 0 and edge.target == target) for target in (0, 1))
    assert len(fold.states) == 1 and again.conditions == on.conditions
    other = chain.replace("FROM Stock)", "FROM FILTER{Price > 1}(Stock))", 1)
    both = automaton(f"SELECT n FROM (SELECT n FROM {chain} UNION ALL SELECT n FROM {other})")
    assert len(both.states) == 2 * operators
    same = automaton(f"SELECT n FROM (SELECT n FROM {chain} UNION ALL SELECT n FROM {chain})")
    assert len(same.states) == operators, "branches over the same events share their states"
    assert len([edge for edge in both.edges if edge.target == both.end]) == 2
    assert len([edge for edge in both.edges if edge.source == START]) == 2


def test_the_first_automaton_that_is_drawn() -> None:  # TV-055
    made = automaton("SELECT Name FROM (SELECT Name AS N FROM Stock) NEXT{$1.N = $2.Name} Stock")
    assert [state.columns.names for state in made.states] == [("N",)]
    assert made.output.names == ("Name",)
    assert [str(condition) for condition in made.states[0].conditions] == ["(q.N = e.Name)"]
    forward = next(edge for edge in made.edges if edge.source == 0)
    assert forward.conditions == () and isinstance(forward.values[0][1], Column)


def test_what_goes_on_meets_what_a_state_waits_for() -> None:  # TV-056
    """Edges are taken by events that meet the state's conditions: what each of the three asks for is found less often
    than what it implies."""
    rows = quotes(*((name, price, time) for time, (name, price) in enumerate(itertools.product("AB", (3, 1, 2, 5)))))
    passes, stays = "$2.Name = $.Name", "$2.Price > $.Price"
    affected = Counter(answer(f"SELECT t_1, t FROM Stock FOLD{{{passes}, , }} Stock", rows))
    rebound = Counter(answer(f"SELECT t_1, t FROM Stock FOLD{{{passes}, {stays}, }} Stock", rows))
    forward = Counter(answer(f"SELECT t_1, t FROM FILTER{{DUR > 1}}(Stock FOLD{{{passes}, {stays}, }} Stock)", rows))
    assert forward < rebound < affected


def test_what_an_automaton_finds_feeds_another_at_the_same_instant() -> None:  # TV-062
    rows = quotes(("IBM", 80, 1), ("MSFT", 50, 2), ("MSFT", 49, 3), ("Dell", 24, 4))
    with ms.connect() as db:
        db.execute(STOCK)
        one, two, three = (f"FILTER{{Name = '{name}'}}(Stock)" for name in ("IBM", "MSFT", "Dell"))
        db.execute(f"SELECT Price_1 AS b, Price AS c FROM {two} NEXT {three} PUBLISH Pairs")
        query = db.sql(f"SELECT a, b, c FROM (SELECT Price AS a FROM {one}) NEXT Pairs")
        db.push("Stock", rows)
        db.finish()
        found = [tuple(row.values()) for row in query.fetch().to_pylist()]
    assert Counter(found) == {(80, 50, 24, 1, 4): 1, (80, 49, 24, 1, 4): 1}
