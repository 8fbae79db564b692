"""The loops that searches for row patterns are compiled to: what of a query makes them differ, and their size."""

from __future__ import annotations

import re
import tracemalloc

import pytest
from bound_plans import perform, plan_of

import millstream as ms
from millstream.catalog import Catalog
from millstream.kernels.patterns.chain import ChainMachine
from millstream.kernels.patterns.kernel import machine_for
from millstream.kernels.patterns.threads import ThreadMachine
from millstream.plan import nodes as P
from millstream.plan.patterns import search as M

DECLARATIONS = "CREATE STREAM t (sym VARCHAR, price DOUBLE, qty INT, big BIGINT, ts TIMESTAMP) ORDER BY ts"
OTHER_NAMES = "CREATE STREAM zoo (yak VARCHAR, cow DOUBLE, ape INT, gnu BIGINT, bee TIMESTAMP) ORDER BY bee"

CHAIN = "PATTERN (A B+ C{{1,{n}}}) WITHIN INTERVAL '{n}' SECOND"
"""A row can go to one place only."""
THREADS = "PATTERN ((A | B)* C) WITHIN INTERVAL '{n}' SECOND"
DEFINE = """DEFINE B AS B.price > PREV(B.price) * 1.{n} AND sum(B.big) < {n} AND B.sym IN (PREV(B.sym), '{n}'),
                  C AS C.price <= PREV(C.price) * 1.{n} AND abs(C.qty - LAST(B.qty)) % {n} < {n} - 3"""


def machine_of(text: str, declarations: str = DECLARATIONS) -> ChainMachine | ThreadMachine:
    catalog = Catalog()
    perform(declarations, catalog)
    [match] = [node for node in P.walk(plan_of(text, catalog)) if isinstance(node, M.Match)]
    machine = machine_for(match.search)
    assert isinstance(machine, ChainMachine | ThreadMachine)
    return machine


def sources(machine: ChainMachine | ThreadMachine) -> list[str]:
    if isinstance(machine, ThreadMachine):
        return [machine.generated.source]
    return [text for generated in machine.generated for text in (generated.step, generated.settle)]


def recognize(clauses: str, measures: str = "FIRST(ts) AS since, LAST(C.price) AS low, sum(B.big) AS all_of_b") -> str:
    return f"SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY sym ORDER BY ts MEASURES {measures} {clauses}) AS m"


@pytest.mark.parametrize(("pattern", "kind"), [(CHAIN, ChainMachine), (THREADS, ThreadMachine)])
def test_constants_are_arguments(pattern: str, kind: type) -> None:
    some, others = (machine_of(recognize(f"{pattern} {DEFINE}".format(n=n))) for n in (10, 77))
    assert isinstance(some, kind)
    assert sources(some) == sources(others)
    assert some.search != others.search


@pytest.mark.parametrize("pattern", [CHAIN, THREADS])
def test_equal_constants_are_two_arguments(pattern: str) -> None:
    define = "DEFINE B AS B.big > PREV(B.big) + {} AND B.sym <> PREV(B.sym), C AS C.big <= PREV(C.big) - {}"
    same, different = (recognize(f"{pattern.format(n=5)} {define.format(*ns)}") for ns in ((5, 5), (6, 7)))
    assert sources(machine_of(same)) == sources(machine_of(different))


@pytest.mark.parametrize("pattern", [CHAIN, THREADS])
def test_names_do_not_matter(pattern: str) -> None:
    text = recognize(f"{pattern} {DEFINE}".format(n=10))
    renamed = text
    for old, new in {
        "sym": "yak", "price": "cow", "qty": "ape", "big": "gnu", "ts": "bee", " t ": " zoo ", "A": "Z1", "B": "Cat",
        "C": "Ox", "since": "a1", "low": "a2", "all_of_b": "a0",
    }.items():  # fmt: skip
        renamed = _replaced(renamed, old.strip(), new.strip())
    assert sources(machine_of(text)) == sources(machine_of(renamed, OTHER_NAMES))


def _replaced(text: str, word: str, by: str) -> str:
    return re.sub(rf"\b{word}\b", by, text)


@pytest.mark.parametrize("pattern", [CHAIN, THREADS])
def test_no_words_of_the_query_stand_in_the_source(pattern: str) -> None:
    text = recognize(
        f"{pattern.format(n=9)} DEFINE A AS A.sym LIKE 'wombat%', "
        "B AS B.sym <> PREV(B.sym) AND B.sym <> 'badger' AND 424242 < B.big - PREV(B.big) /* lynx */, "
        "C AS C.price < PREV(C.price)",
        "FIRST(ts) AS ocelot, LAST(C.sym) || 'marmot' AS x, count(DISTINCT B.sym) AS stoat",
    )
    text = _replaced(_replaced(text, "C", "Ferret"), "B", "Vole")
    for source in sources(machine_of(text)):
        for word in ("wombat", "badger", "lynx", "ocelot", "marmot", "stoat", "ferret", "vole", "424242", "sym"):
            assert word not in source.lower()


NAVIGATION = [
    "PREV(B.big, {n})",
    "LAST(B.big, {n})",
    "FIRST(B.big, {n})",
    "NEXT(B.big, {n})",
    "PREV(FIRST(B.big, {n}), {n})",
]
"""What looks at rows some way off."""


@pytest.mark.parametrize("pattern", ["A B+ C", "(A | B)* C"])
@pytest.mark.parametrize("reach", NAVIGATION)
@pytest.mark.parametrize("clause", ["MEASURES", "DEFINE"])
def test_offsets_are_arguments(pattern: str, reach: str, clause: str) -> None:
    """Nothing is written, kept or copied for each of the rows between."""

    def made(n: int) -> ChainMachine | ThreadMachine:
        value = reach.format(n=n)
        condition = f"AND B.big > coalesce({value}, 3)" if clause == "DEFINE" else ""
        define = f"DEFINE B AS B.price > PREV(B.price) {condition}, C AS C.price <= PREV(C.price)"
        return machine_of(recognize(f"PATTERN ({pattern}) {define}", f"{value if not condition else 'ts'} AS x"))

    far, further = made(1_000), made(2_000_000_000)
    assert sources(far) == sources(further)
    assert _lanes(further) == _lanes(far) <= 24
    assert sum(map(len, sources(further))) < 40_000


def _lanes(machine: ChainMachine | ThreadMachine) -> int:
    return machine.layout.width if isinstance(machine, ChainMachine) else machine.generated.lanes


@pytest.mark.parametrize("reach", NAVIGATION)
def test_memory_is_that_of_the_rows_there_are(reach: str) -> None:
    db = ms.connect()
    db.execute("CREATE STREAM s (t INT, big BIGINT) ORDER BY t")
    value = reach.format(n=1_000_000)
    tracemalloc.start()
    try:
        q = db.sql(f"""SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES {value} AS far, count(*) AS n
            PATTERN (A B+) DEFINE B AS {value} IS NULL)""")
        db.push("s", [(i, i) for i in range(3)])
        db.finish()
        assert q.fetch().to_pylist() == [{"far": None, "n": 3}]
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()
