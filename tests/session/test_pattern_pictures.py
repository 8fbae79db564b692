"""Pictures of row patterns: what may follow what, and the conditions of each variable."""

from __future__ import annotations

import re
from itertools import product
from xml.dom import minidom

import pytest

import millstream as ms
from millstream.plan.patterns.search import Search
from millstream.session.pattern_drawing import START, PatternGraph

STREAM = "CREATE STREAM ticks (sym VARCHAR, price INT, t INT) ORDER BY t"


def graph_of(pattern: str, define: str = "") -> PatternGraph:
    with ms.connect() as db:
        db.execute(STREAM)
        query = db.sql(asked(pattern, define))
        assert isinstance(query, ms.Query)
        return PatternGraph(search_of(query))


def asked(pattern: str, define: str = "") -> str:
    variables = sorted(set(re.findall("[A-F]", pattern)))
    define = define or ", ".join(f"{name} AS price = {number}" for number, name in enumerate(variables))
    return (
        "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY sym ORDER BY t MEASURES match_number() AS n "
        f"PATTERN ({pattern}) DEFINE {define})"
    )


def search_of(query: ms.Query) -> Search:
    from millstream.kernels.patterns.spec import MatchSpec
    from millstream.physical.nodes import Apply, walk

    applied = (node.spec for node in walk(query._program.plan) if isinstance(node, Apply))
    return next(spec.search for spec in applied if isinstance(spec, MatchSpec))


def accepts(graph: PatternGraph, word: str) -> bool:
    """Whether a walk from the start to the end takes rows with these variables."""
    places = {START}
    for letter in word:
        follow = {end for begin, end in graph.arrows if begin in places and end < len(graph.states)}
        places = {place for place in follow if graph.states[place].name == letter}
    return any((place, len(graph.states)) in graph.arrows for place in places)


@pytest.mark.parametrize(
    "pattern", ["A B* C", "A? (B | C D?)+ A", "(A B?)* C", "A (B* | C)", "(A | B)+? C*", "(A? B?)+ C? D"]
)
def test_walks_are_the_words_of_the_pattern(pattern: str) -> None:
    graph = graph_of(pattern)
    expression = re.compile(pattern.replace(" ", "").replace("+?", "+"))
    for word in ("".join(letters) for count in range(5) for letters in product("ABCD", repeat=count)):
        assert accepts(graph, word) == bool(expression.fullmatch(word)), word


def test_permutations_exclusions_and_counts() -> None:
    graph = graph_of("PERMUTE(A, B) {- C{2,3} -} (D E){4}")
    assert [accepts(graph, word) for word in ("ABCDE", "BACDE", "CDE")] == [True, True, False]
    assert graph.arrows[0, 1] == graph.arrows[1, 0] == "PERMUTE"
    # a count is on the arrow, not in the states
    assert accepts(graph, "ABCCCCDEDE") and len(graph.states) == 5
    assert graph.arrows[2, 2] == "{2,3}" and graph.arrows[4, 3] == "{4}"
    assert [state.is_excluded for state in graph.states] == [False, False, True, False, False]


def test_conditions_are_in_the_words_of_the_query() -> None:
    graph = graph_of("^ A B+", "A AS price > 10 AND price < 20, B AS price > PREV(price) AND price > avg(B.price)")
    assert [(state.name, state.conditions) for state in graph.states] == [
        ("^", ()),
        ("A", ("(price > 10)", "(price < 20)")),
        ("B", ("(price > PREV(price))", "(CAST(price AS DOUBLE) > avg(B: price))")),
    ]


def test_a_picture_of_a_query_that_runs_or_would() -> None:
    text = asked('A "<B>"+ C', """"<B>" AS price > 2""")
    with ms.connect() as db:
        db.execute(STREAM)
        query = db.sql(text)
        assert isinstance(query, ms.Query)
        assert query.explain(format="svg") == db.explain(text, format="svg")
        picture = minidom.parseString(query.explain(format="svg"))
        assert len(picture.getElementsByTagName("circle")) == 6
        told = [node.firstChild.data for node in picture.getElementsByTagName("text")]  # type: ignore[union-attr]
        assert {"start", "A", "<B>", "(price > 2)", "+", "C", "end"} == set(told)
        dot = query.explain(format="dot")
        assert '"0.1" -> "0.1" [label="+"];' in dot and '[label="<B>\\n(price > 2)", shape=circle];' in dot
