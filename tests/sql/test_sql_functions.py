"""Known functions become nodes that mean the same in DuckDB, and print as they were read."""

import itertools

import duckdb
import pytest
from sqlglot import exp

from millstream.sql import parse, to_sql
from millstream.sql.functions import FUNCTIONS, PLAIN_CALLS

ARGUMENTS = ["a", "'day'", "1", "NULL", "DATE '2020-01-01'", "a::varchar", "a + 1", "NOT a", "lower(a)", "(SELECT 1)"]


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_calls_round_trip_whatever_their_arguments(name: str) -> None:
    for count in range(5):
        for arguments in itertools.islice(itertools.product(ARGUMENTS, repeat=count), 0, None, 7 ** max(0, count - 1)):
            [statement] = parse(f"SELECT {name}({', '.join(arguments)}) FROM s")
            text = to_sql(statement.ast)
            assert parse(text)[0].ast == statement.ast, text


def test_every_name_is_a_function_of_duckdb() -> None:
    rows = duckdb.sql("SELECT DISTINCT upper(function_name) FROM duckdb_functions()").fetchall()
    names = {name for (name,) in rows} | {"COALESCE", "IFNULL"}
    assert set(FUNCTIONS) <= names
    assert {name for name, _ in PLAIN_CALLS.values()} <= names


@pytest.mark.parametrize(
    "call",
    [
        "length('abc')",
        "strpos('abc', 'c')",
        "position('c' IN 'abc')",
        "date_diff('day', DATE '2020-01-01', DATE '2020-02-01')",
        "date_trunc('month', TIMESTAMP '2020-02-03 04:05:06')",
        "round(2.567, 1)",
        "mod(7 + 2, 4)",
        "log(100)",
        "log10(1000)",
        "trim(BOTH 'x' FROM 'xax')",
        "trim(LEADING 'x' FROM 'xax')",
        "substring('abcdef' FROM 2 FOR 3)",
        "left('abc', 2)",
        "lpad('7', 3, '0')",
        "regexp_replace('aXbX', 'X', '-', 'g')",
        "regexp_extract('ab12', '([0-9]+)', 1)",
        "if(1 > 2, 3, 4)",
        "regexp_matches('abc', 'b')",
        "greatest(1, NULL, 3)",
        "concat('a', NULL, 'b')",
        "concat_ws('-', 'a', 'b')",
        "epoch(TIMESTAMP '2020-01-01')",
        "strftime(DATE '2020-03-01', '%d.%m.%Y')",
        "strptime('01.03.2020', '%d.%m.%Y')",
        "extract(hour FROM TIMESTAMP '2020-01-01 05:00:00')",
        "dayofweek(DATE '2020-01-01')",
        "split_part('a,b', ',', 2)",
        "ifnull(NULL, 5)",
        "7 // 2",
        "7 / 2",
        "2 ** 3 ** 2",
        "1 << 3 | 1",
        "time_bucket(INTERVAL '5' MINUTE, TIMESTAMP '2020-01-01 00:07:00')",
        "make_date(2020, 1, 2)",
        "starts_with('abc', 'a')",
    ],
)
def test_our_text_and_duckdbs_text_give_what_duckdb_gives(call: str) -> None:
    [statement] = parse(f"SELECT {call}")
    expected = duckdb.sql(f"SELECT {call}").fetchall()
    assert duckdb.sql(to_sql(statement.ast)).fetchall() == expected
    assert duckdb.sql(statement.ast.sql(dialect="duckdb")).fetchall() == expected


def test_unknown_functions_keep_their_spelling() -> None:
    [statement] = parse('SELECT myFunc(a), "My Func"(b), VAR_MAP(c) FROM s')
    assert to_sql(statement.ast) == 'SELECT myFunc(a), "My Func"(b), VAR_MAP(c) FROM s'
    assert len(list(statement.ast.find_all(exp.Anonymous))) == 3
