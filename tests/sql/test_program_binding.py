"""Aggregates written in SQL: what their definitions become for the types of a call, and what is said about mistakes."""

from pathlib import Path

import pytest
from test_aggregate_definitions import PAPERS

import millstream as ms
from millstream.bind.context import Context
from millstream.bind.programs import bind_program
from millstream.bind.statements import Define, bind
from millstream.catalog import AggregateDef, Catalog
from millstream.errors import BindError, CatalogError, MillstreamError
from millstream.expressions.nodes import Column, walk
from millstream.plan.programs.nodes import AggregateValue, Insert, Program, Range, Rows, Update, expressions_of
from millstream.sql import parse
from millstream.types import BIGINT, DECIMAL, DOUBLE, INTEGER, NULL, TIMESTAMP, VARCHAR, SqlType

# as printed it names a parameter and a column wrongly, and returns a row for each of the three that X may be
T12_CORRECTED = (
    PAPERS["T12 find_pattern"]
    .replace("pageType", "PageTypeIn")
    .replace("Y.st = 2 AND Z.st = 3", "X.State = 1 AND Y.State = 2 AND Z.State = 3")
)

# "compares the timestamp of the newly arrived tuple with that of the last tuple stored in a local table"
E17 = """
    CREATE AGGREGATE product_group(tagid, tagtime) : (tag, seen, number) {
        TABLE last(ltime, lnumber);
        INITIALIZE: {
            INSERT INTO last VALUES (tagtime, 1);
            INSERT INTO RETURN VALUES (tagid, tagtime, 1); }
        ITERATE: {
            UPDATE last SET lnumber = lnumber + 1 WHERE tagtime > ltime + 2 seconds;
            UPDATE last SET ltime = tagtime;
            INSERT INTO RETURN SELECT tagid, tagtime, lnumber FROM last; } }"""

CALLS: dict[str, tuple[SqlType, ...]] = {
    "E17": (VARCHAR, TIMESTAMP),
    "E18": (VARCHAR, VARCHAR, TIMESTAMP),
    "T8": (INTEGER,),
    "T9": (INTEGER,),
    "T11": (VARCHAR, TIMESTAMP, INTEGER),
    "T12": (INTEGER, VARCHAR, VARCHAR),
}


def define(text: str, catalog: Catalog | None = None) -> AggregateDef:
    """Bind a definition and put it into the catalog, as the session does."""
    catalog = catalog or Catalog()
    action = bind(parse(text)[0].ast, catalog, text)
    assert isinstance(action, Define)
    assert isinstance(action.entry, AggregateDef)
    catalog.add(action.entry, replace=action.replace, uses=action.uses)
    return action.entry


def program_of(text: str, *types: SqlType, catalog: Catalog | None = None) -> Program:
    catalog = catalog or Catalog()
    return bind_program(define(text, catalog), types, Context(catalog, ""))


def aggregate(body: str, tables: str = "TABLE t(a Int, b Int);", head: str = "f(x Int) : Int") -> str:
    return f"CREATE AGGREGATE {head} {{ {tables} INITIALIZE: ITERATE: {{ {body} }} }}"


def printed(program: Program) -> list[str]:
    return [str(statement) for statement in program.statements]


# -- the papers' aggregates ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*PAPERS, "E17"])
def test_the_papers_aggregates_bind(name: str) -> None:
    text = {**PAPERS, "T12 find_pattern": T12_CORRECTED, "E17": E17}[name]
    program = program_of(text, *CALLS.get(name.split()[0], (DOUBLE,)))
    tables = {table.name: table.schema for table in (*program.tables, *([program.window] if program.window else []))}
    ranges: list[Range] = []
    for statement in program.statements:
        if not isinstance(statement, Insert):
            ranges.append(statement.range)
        for expr in expressions_of(statement):
            for part in walk(expr):
                if hasattr(part, "query"):
                    ranges += part.query.ranges
        ranges += [range_ for source in getattr(statement, "sources", ()) for range_ in source.ranges]
    aliases = {range_.alias: range_.table for range_ in ranges}
    assert len(aliases) == len(ranges), "every range has an alias of its own"
    for statement in program.statements:
        if isinstance(statement, Insert):
            target = program.result if statement.table is None else tables[statement.table]
            for source in statement.sources:
                assert [expr.type for expr in source.columns] == [field.type for field in target]
        if isinstance(statement, Update):
            for column, expr in statement.assignments:
                assert expr.type == tables[statement.range.table][column].type
        for expr in expressions_of(statement):
            for column in (part for part in walk(expr) if isinstance(part, Column)):
                _check_known(column, program, aliases, tables)
    assert program.is_blocking == (name.split()[0] in ("E7", "T8"))


def _check_known(column: Column, program: Program, aliases: dict[str, str], tables: dict[str, object]) -> None:
    alias, _, name = column.name.partition(".")
    if column.name.startswith(":"):
        assert column.type == program.parameters[column.name[1:]].type
    elif alias == "oldest":
        assert program.window is not None
        assert column.type == program.window.schema[name].type
    elif column.name != "sqlcode":
        assert column.type == tables[aliases[alias]][name].type  # type: ignore[index]


def test_avg_in_full() -> None:
    assert printed(program_of(PAPERS["E7 avg"], DOUBLE)) == [
        "INSERT INTO state SELECT :Next, 1",
        "UPDATE state SET tsum = (state.tsum + :Next), cnt = CAST((CAST(state.cnt AS BIGINT) + 1) AS INTEGER)",
        "INSERT INTO RETURN SELECT (state#2.tsum / CAST(state#2.cnt AS DOUBLE)) FROM state AS state#2",
    ]


def test_bidder_wcount_takes_its_types_from_the_call() -> None:
    program = program_of(PAPERS["T11 bidder_wcount"], VARCHAR, TIMESTAMP, INTEGER)
    assert str(program.tables[0].schema) == "(b_id VARCHAR, btime TIMESTAMP)"
    assert str(program.result) == "(bcount BIGINT)"
    assert any("(INTERVAL '0:01:00' * CAST(:num_min AS BIGINT))" in line for line in printed(program))
    program = program_of(PAPERS["T11 bidder_wcount"], BIGINT, TIMESTAMP, BIGINT)
    assert str(program.tables[0].schema) == "(b_id BIGINT, btime TIMESTAMP)"


def test_find_pattern_as_printed_names_no_parameter() -> None:
    with pytest.raises(BindError, match="no column or parameter pageType") as caught:
        define(PAPERS["T12 find_pattern"])
    assert caught.value.hint == "did you mean PageTypeIn?"


def test_item_alarm_is_a_window_aggregate_without_the_word() -> None:
    definition = define(PAPERS["E18 item_alarm"])
    assert definition.window
    program = bind_program(definition, (VARCHAR, VARCHAR, TIMESTAMP), Context(Catalog(), ""))
    assert program.window is not None
    assert str(program.window.schema) == "(tid VARCHAR, ttype VARCHAR, ttime TIMESTAMP)"
    assert printed(program)[-1] == (
        "INSERT INTO RETURN SELECT 'larceny alarm' WHERE ((:tagtype = 'item') AND (NOT EXISTS "
        "(SELECT inwindow#7.tid FROM inwindow AS inwindow#7 WHERE (inwindow#7.ttype = 'ap'))))"
    )


# -- types -----------------------------------------------------------------------------------------------------------


def test_columns_without_types_hold_all_values_given_to_them() -> None:
    text = """CREATE AGGREGATE f(x) : (y, z) { TABLE t(a, b), TABLE u(c);
        INITIALIZE: { INSERT INTO u SELECT a FROM t; INSERT INTO t VALUES (x, NULL), (0.5, 'text'); }
        ITERATE: { UPDATE t SET a = a + 1; INSERT INTO RETURN SELECT c, b FROM t, u; } }"""
    program = program_of(text, INTEGER)
    assert [str(table) for table in program.tables] == ["t((a DOUBLE, b VARCHAR))", "u((c DOUBLE))"]
    assert str(program.result) == "(y DOUBLE, z VARCHAR)"


def test_a_sum_without_type_is_wide_enough() -> None:
    text = """CREATE AGGREGATE f(x) : (total) { TABLE t(s); INITIALIZE: { INSERT INTO t VALUES (x); }
        ITERATE: { UPDATE t SET s = s + x; INSERT INTO RETURN SELECT s FROM t; } }"""
    assert program_of(text, INTEGER).result["total"].type == BIGINT
    assert program_of(text, DECIMAL(9, 2)).result["total"].type == DECIMAL(18, 2)
    assert program_of(text, DOUBLE).result["total"].type == DOUBLE


def test_declared_types_are_kept_and_values_cast() -> None:
    text = """CREATE AGGREGATE f(x Int) : Real { TABLE t(a Int);
        INITIALIZE: ITERATE: { INSERT INTO t VALUES (x / 2); UPDATE t SET a = '7'; INSERT INTO RETURN VALUES (x); } }"""
    program = program_of(text, INTEGER)
    assert printed(program)[:3] == [
        "INSERT INTO t SELECT CAST((CAST(:x AS DOUBLE) / 2.0) AS INTEGER)",
        "UPDATE t SET a = 7",
        "INSERT INTO RETURN SELECT CAST(:x AS DOUBLE)",
    ]
    assert program_of(text, DOUBLE).parameters["x"].type == INTEGER, "the caller casts"


def test_values_of_types_that_have_nothing_in_common() -> None:
    text = """CREATE AGGREGATE f(x) : (y) { TABLE t(a); INITIALIZE: ITERATE: {
        INSERT INTO t VALUES (x), ('none'); INSERT INTO RETURN SELECT a FROM t; } }"""
    with pytest.raises(BindError, match="column a of table t is given INTEGER and VARCHAR") as caught:
        program_of(text, INTEGER)
    assert _underlined(caught.value) == "'none'"


def test_a_column_that_nothing_is_known_of() -> None:
    text = "CREATE AGGREGATE f(x) : (y) { TABLE t(a); INITIALIZE: ITERATE: { INSERT INTO RETURN SELECT a FROM t; } }"
    with pytest.raises(BindError, match="has no type"):
        program_of(text, INTEGER)


def test_a_mistake_is_not_hidden_by_the_search_for_types() -> None:
    text = "CREATE AGGREGATE f(x) : (y) { TABLE t(a); INITIALIZE: ITERATE: { INSERT INTO RETURN VALUES (z); } }"
    with pytest.raises(BindError, match="no column or parameter z"):
        program_of(text, INTEGER)


@pytest.mark.parametrize("declared", ["Real", "Int", "Decimal(9, 2)"])
def test_inwindow_has_the_types_of_the_arguments(declared: str) -> None:
    text = PAPERS["E13 window max"].replace("wnext real", f"wnext {declared}")
    program = program_of(text, DOUBLE)
    assert program.window is not None
    assert str(program.window.schema) == "(wnext DOUBLE)"


def test_inwindow_of_another_kind_of_type() -> None:
    with pytest.raises(BindError, match="inwindow holds the arguments, and Next is DOUBLE") as caught:
        define(PAPERS["E13 window max"].replace("wnext real", "wnext char"))
    assert _underlined(caught.value) == "wnext char"


def test_wrong_number_of_arguments() -> None:
    with pytest.raises(BindError, match="bidder_wcount takes 3 arguments, got 1") as caught:
        program_of(PAPERS["T11 bidder_wcount"], VARCHAR)
    assert caught.value.hint == "it is bidder_wcount(bidder_id, bid_time, num_min) : (bcount)"


def test_an_argument_without_type() -> None:
    with pytest.raises(BindError, match="argument bidder_id of bidder_wcount has no type"):
        program_of(PAPERS["T11 bidder_wcount"], NULL, TIMESTAMP, INTEGER)


# -- names -----------------------------------------------------------------------------------------------------------


def test_columns_hide_parameters_and_inner_queries_outer_ones() -> None:
    program = program_of(
        aggregate(
            "INSERT INTO t VALUES (a, b);"
            "UPDATE t SET a = b WHERE EXISTS (SELECT 1 FROM t AS s WHERE a = t.a AND s.b = B);"
            "INSERT INTO RETURN SELECT a FROM t WHERE sqlcode = 0",
            head="f(a Int, b Int) : Int",
        ),
        INTEGER,
        INTEGER,
    )
    assert printed(program)[:3] == [
        "INSERT INTO t SELECT :a, :b",
        "UPDATE t SET a = t.b WHERE EXISTS (SELECT 1 FROM t AS s WHERE ((s.a = t.a) AND (s.b = s.b)))",
        "INSERT INTO RETURN SELECT t#2.a FROM t AS t#2 WHERE (sqlcode = 0)",
    ]


def test_an_outer_table_goes_before_the_name_behind_an_inner_alias() -> None:
    body = "DELETE FROM t WHERE EXISTS (SELECT 1 FROM t AS s WHERE t.a > s.a); INSERT INTO RETURN VALUES (x)"
    assert printed(program_of(aggregate(body), INTEGER))[0] == (
        "DELETE FROM t WHERE EXISTS (SELECT 1 FROM t AS s WHERE (t.a > s.a))"
    )


def test_names_are_found_in_any_case_and_keep_their_spelling() -> None:
    body = (
        "INSERT INTO STATE VALUES (X); UPDATE State SET CNT = state.cnt + x; INSERT INTO Return SELECT CNT FROM STATE"
    )
    program = program_of(aggregate(body, "TABLE state(Cnt Int);"), INTEGER)
    assert printed(program)[:2] == [
        "INSERT INTO state SELECT :x",
        "UPDATE state SET Cnt = CAST((CAST(state.Cnt AS BIGINT) + CAST(:x AS BIGINT)) AS INTEGER)",
    ]


# -- queries ---------------------------------------------------------------------------------------------------------


def rows_of(query: str) -> Rows:
    program = program_of(aggregate(f"INSERT INTO RETURN {query}", head="f(x Int) : BigInt"), INTEGER)
    statement = program.initialize[0]
    assert isinstance(statement, Insert)
    return statement.sources[0]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT count(*) FROM t", "SELECT count(*) FROM t"),
        ("SELECT count(DISTINCT a) FROM t", "SELECT count(DISTINCT t.a) FROM t"),
        ("SELECT max(DISTINCT b + x) FROM t", "SELECT max((CAST(t.b AS BIGINT) + CAST(:x AS BIGINT))) FROM t"),
        ("SELECT sum(a) FROM t GROUP BY b", "SELECT sum(t.a) FROM t GROUP BY t.b"),
        ("SELECT b + 0 AS g FROM t GROUP BY g", " GROUP BY (CAST(t.b AS BIGINT) + 0)"),
        ("SELECT count(*) FROM t GROUP BY b HAVING min(a) > 1 ORDER BY sum(a) DESC, b LIMIT 3",
         "SELECT count(*) FROM t GROUP BY t.b HAVING (min(t.a) > 1) ORDER BY sum(t.a) DESC, t.b LIMIT 3"),
        ("SELECT DISTINCT a FROM t ORDER BY 1 DESC NULLS FIRST",
         "SELECT DISTINCT CAST(t.a AS BIGINT) FROM t ORDER BY t.a DESC NULLS FIRST"),
        ("SELECT p.a FROM t AS p, t q WHERE p.a = q.b", "FROM t AS p, t AS q WHERE (p.a = q.b)"),
        ("SELECT p.a FROM t p JOIN t q ON p.a = q.b WHERE q.a > 0",
         "FROM t AS p, t AS q WHERE ((p.a = q.b) AND (q.a > 0))"),
        ("SELECT (SELECT max(a) FROM t AS s WHERE s.b = t.b) FROM t",
         "SELECT CAST((SELECT max(s.a) FROM t AS s WHERE (s.b = t.b)) AS BIGINT) FROM t"),
        ("SELECT a FROM t WHERE b IN (SELECT a * 1.5 FROM t)",
         "WHERE (CAST(t.b AS DOUBLE) IN (SELECT (CAST(t#2.a AS DOUBLE) * 1.5) FROM t AS t#2))"),
        ("SELECT 1 WHERE x IN (1, 2)", "SELECT 1 WHERE (:x IN (1, 2))"),
    ],
)  # fmt: skip
def test_queries(query: str, expected: str) -> None:
    assert expected in str(rows_of(query))


def test_every_row_of_values_has_the_condition() -> None:
    program = program_of(
        aggregate("INSERT INTO t VALUES (1, x), (2, x) WHERE x > 0; INSERT INTO t(b) VALUES (x); "
                  "INSERT INTO t SELECT * FROM t UNION ALL SELECT b, a FROM t; INSERT INTO RETURN VALUES (x)"),
        INTEGER,
    )  # fmt: skip
    assert printed(program)[:3] == [
        "INSERT INTO t SELECT 1, :x WHERE (:x > 0) UNION ALL SELECT 2, :x WHERE (:x > 0)",
        "INSERT INTO t SELECT NULL, :x",
        "INSERT INTO t SELECT t.a, t.b FROM t UNION ALL SELECT t#2.b, t#2.a FROM t AS t#2",
    ]


# -- aggregates in aggregates ----------------------------------------------------------------------------------------


def test_the_window_version_calls_the_base_version() -> None:
    catalog = Catalog()
    naive = PAPERS["E11 naive window avg"]
    program = program_of(naive, DOUBLE, catalog=catalog)
    assert _calls(program) == [("avg", None)] * 2, "without a base version of its own, the built-in one"
    base = define(PAPERS["E7 avg"], catalog)
    context = Context(catalog, "")
    window = catalog.aggregate("AVG", window=True)
    assert window is not None
    calls = _calls(bind_program(window, (DOUBLE,), context))
    assert [(name, program.name) for name, program in calls if program] == [("avg", "avg")] * 2
    assert calls[0][1] == bind_program(base, (DOUBLE,), context)
    assert context.uses == {"aggregate avg"}


def _calls(program: Program) -> list[tuple[str, Program | None]]:
    parts = (part for statement in program.statements for expr in expressions_of(statement) for part in walk(expr))
    return [(part.fn, part.program) for part in parts if isinstance(part, AggregateValue)]


def test_arguments_and_results_of_a_called_aggregate_are_converted() -> None:
    catalog = Catalog()
    define(aggregate("INSERT INTO RETURN VALUES (x, 1)", "", "pair(x Real) : (v Real, n Int)"), catalog)
    body = "INSERT INTO RETURN SELECT pair(a) FROM t; INSERT INTO t SELECT b, pair(a) FROM t GROUP BY b"
    program = program_of(aggregate(body, head="f(x Int) : (p Int, q BigInt)"), INTEGER, catalog=catalog)
    all_rows, values = program.initialize
    assert isinstance(all_rows, Insert)
    assert isinstance(values, Insert)
    (call,) = all_rows.sources[0].columns
    assert isinstance(call, AggregateValue)
    assert call.program is not None
    assert str(call.args[0]) == "CAST(t.a AS DOUBLE)"
    assert str(call.program.result) == "(v INTEGER, n BIGINT)"
    assert printed(call.program)[0] == "INSERT INTO RETURN SELECT CAST(:x AS INTEGER), 1"
    assert str(values.sources[0].columns[1]) == "CAST(pair(CAST(t#2.a AS DOUBLE)) AS INTEGER)"


def test_an_aggregate_calls_itself_but_not_by_way_of_another() -> None:
    catalog = Catalog()
    define(aggregate("INSERT INTO RETURN SELECT h(a) FROM t", head="h(x Int) : Int"), catalog)
    define(aggregate("INSERT INTO RETURN VALUES (x)"), catalog)
    define(aggregate("INSERT INTO RETURN SELECT f(a) FROM t", head="g(x Int) : Int"), catalog)
    with pytest.raises(BindError, match="f calls itself: f → g → f") as caught:
        text = aggregate("INSERT INTO RETURN SELECT g(a) FROM t").replace("CREATE", "CREATE OR REPLACE")
        define(text, catalog)
    assert caught.value.sql is not None
    assert _underlined(caught.value) == "f(a)", "in the text of g, where the call stands"


def test_mistakes_in_a_call_are_underlined_where_the_call_stands() -> None:
    catalog = Catalog()
    define(aggregate("INSERT INTO RETURN VALUES (x)"), catalog)
    with pytest.raises(BindError, match="f takes 1 argument, got 2") as caught:
        define(aggregate("INSERT INTO RETURN SELECT f(a, b) FROM t", head="g(x Int) : Int"), catalog)
    assert _underlined(caught.value) == "f(a, b)"


# -- mistakes --------------------------------------------------------------------------------------------------------


def _underlined(error: MillstreamError) -> str:
    assert error.sql is not None
    assert error.span is not None
    return error.sql[error.span.start : error.span.end]


RETURNS = "; INSERT INTO RETURN VALUES (x)"
MISTAKES = [
    # statement, underlined, message, hint
    ("INSERT INTO RETURN SELECT a FROM return", "return", "RETURN can only be used in INSERT", "keep the rows"),
    ("DELETE FROM return" + RETURNS, "return", "RETURN can only be used in INSERT", None),
    ("INSERT INTO u VALUES (x)" + RETURNS, "u", "no table u in aggregate f", "available: t"),
    ("INSERT INTO tt VALUES (x)" + RETURNS, "tt", "no table tt in aggregate f", "did you mean t?"),
    ("DELETE FROM bids" + RETURNS, "bids", "an aggregate cannot use bids yet", "as arguments"),
    ("INSERT INTO RETURN SELECT a FROM stored", "stored", "an aggregate cannot use stored yet", "as arguments"),
    ("INSERT INTO RETURN SELECT a FROM inwindow", "inwindow", "the window's table is not declared",
     "TABLE inwindow(w_x)"),
    ("INSERT INTO RETURN VALUES (oldest())", "oldest()", "oldest() needs the window's table", "TABLE inwindow(w_x)"),
    ("INSERT INTO t VALUES (x)" + RETURNS, "x", "t has 2 columns, got 1 values", None),
    ("INSERT INTO t(a) VALUES (x, 1)" + RETURNS, "1", "1 columns are named, got 2 values", None),
    ("INSERT INTO t(a, c) VALUES (x, 1)" + RETURNS, "c", "t has no column c", "available: a, b"),
    ("INSERT INTO RETURN SELECT a, b FROM t", "b", "the aggregate returns 1 columns, got 2 values", None),
    ("UPDATE t SET c = 1" + RETURNS, "c", "t has no column c", "available: a, b"),
    ("UPDATE t SET a = 1, A = 2" + RETURNS, "A = 2", "column a is given twice", None),
    ("UPDATE t SET a = INTERVAL '1' DAY" + RETURNS, "a = INTERVAL '1' DAY", "cannot cast INTERVAL to INTEGER", "epoch"),
    ("UPDATE t SET a = xx" + RETURNS, "xx", "no column or parameter xx", "did you mean x?"),
    ("UPDATE t SET a = u.a" + RETURNS, "u.a", "no column or parameter u.a", None),
    ("UPDATE t SET a = count(b)" + RETURNS, "count(b)", "aggregate count is not allowed in SET", "(SELECT count(…)"),
    ("DELETE FROM t WHERE a = max(a)" + RETURNS, "max(a)", "aggregate max is not allowed in WHERE", "is a value"),
    ("INSERT INTO RETURN VALUES (count(*))", "count(*)", "aggregate count is not allowed in VALUES", None),
    ("INSERT INTO RETURN SELECT sum(count(a)) FROM t", "count(a)",
     "aggregate count is not allowed inside another", None),
    ("INSERT INTO RETURN SELECT a FROM t GROUP BY max(b)", "max(b)", "aggregate max is not allowed in GROUP BY", None),
    ("INSERT INTO RETURN SELECT max(a) FROM t GROUP BY 1", "1", "GROUP BY cannot use an aggregate", None),
    ("INSERT INTO RETURN SELECT a + max(b) FROM t", "a + max(b)", "a is neither in GROUP BY nor inside", "GROUP BY"),
    ("INSERT INTO RETURN SELECT max(b) FROM t GROUP BY b ORDER BY a", "a", "a is neither in GROUP BY", None),
    ("INSERT INTO RETURN SELECT count(*) FROM t HAVING EXISTS (SELECT 1 FROM t s WHERE s.a = t.a)",
     None, "a is neither in GROUP BY nor inside an aggregate", None),
    ("INSERT INTO RETURN SELECT a FROM t HAVING a > 1", "a > 1", "HAVING needs GROUP BY", "use WHERE"),
    ("INSERT INTO RETURN SELECT bool_and(a) FROM t", "a", "bool_and takes a condition, not INTEGER", "(… > 0)"),
    ("INSERT INTO RETURN SELECT first(a ORDER BY b) FROM t", None, "ORDER BY with first is not allowed", "LIMIT 1"),
    ("INSERT INTO RETURN SELECT sum(DISTINCT a, b) FROM t", None, "sum takes one argument, got 2", None),
    ("INSERT INTO RETURN SELECT sum(c) FROM u", "sum(c)", "sum does not apply to VARCHAR", None),
    ("INSERT INTO RETURN SELECT sum(a) OVER (ROWS 3 PRECEDING) FROM t", None, "OVER is not allowed inside", "itself"),
    ("INSERT INTO RETURN SELECT a FROM t LEFT JOIN t AS s ON t.a = s.a", None, "LEFT JOIN is not allowed inside", None),
    ("INSERT INTO RETURN SELECT t.a FROM t JOIN t AS s USING (a)", None, "USING is not allowed inside", "ON"),
    ("INSERT INTO RETURN SELECT a FROM (SELECT a FROM t) AS s", None, "FROM inside an aggregate takes tables", None),
    ("INSERT INTO RETURN SELECT a FROM t UNION SELECT b FROM t", None, "UNION is not allowed inside", "plain SELECT"),
    ("INSERT INTO RETURN SELECT a FROM t OFFSET 2", "2", "OFFSET is not allowed inside an aggregate", None),
    ("INSERT INTO RETURN SELECT (SELECT sum(t.a) FROM t AS s) FROM t", "sum(t.a)", "sum of an outer query's", None),
    ("INSERT INTO RETURN WITH q AS (SELECT a FROM t) SELECT a FROM q", None, "WITH is not allowed inside", "keep the"),
    ("INSERT INTO RETURN SELECT a FROM s.t", "s.t", "name a table of the body", None),
    ("INSERT INTO RETURN SELECT c FROM t AS s(c, d)", None, "name a table of the body", None),
    ("INSERT INTO RETURN SELECT a FROM t GROUP BY ALL", None, "GROUP BY takes a list of expressions", None),
    ("INSERT INTO RETURN SELECT a FROM t LIMIT x", None, "LIMIT takes a whole number here", None),
    ("INSERT INTO RETURN SELECT a FROM t, t", "t", "t appears twice in FROM", "alias"),
    ("INSERT INTO RETURN SELECT a FROM t AS p, t AS q", "a", "column a is ambiguous", "p.a or q.a"),
    ("INSERT INTO RETURN SELECT DISTINCT a FROM t ORDER BY b", "b", "with DISTINCT, ORDER BY takes", None),
    ("INSERT INTO RETURN SELECT DISTINCT a * 0.5 FROM t", "a * 0.5", "DISTINCT values of DOUBLE may be", "CAST"),
    ("INSERT INTO RETURN SELECT a FROM t ORDER BY 2", "2", "there is no column 2 in the SELECT list", None),
    ("INSERT INTO RETURN VALUES ((SELECT a, b FROM t))", None, "this subquery has 2 columns, but one is needed", None),
    ("INSERT INTO RETURN SELECT a FROM t WHERE a IN (SELECT c FROM u)", None, "cannot be compared with VARCHAR", None),
    ("INSERT INTO RETURN SELECT a FROM t WHERE a", "a", "a condition is needed here, not INTEGER", None),
    ("INSERT INTO RETURN SELECT windowed(a) FROM t", "windowed(a)", "windowed is defined for windows only", "base"),
    ("INSERT INTO RETURN SELECT based(a) FILTER (WHERE a > 0) FROM t", None,
     "FILTER with based is not allowed", "into WHERE"),
    ("DELETE FROM v WHERE d > d + r minutes" + RETURNS, "r minutes",
     "the number of an interval must be an integer", "CAST"),
    ("INSERT INTO t VALUES (x, x)", "f", "aggregate f never returns a row", "INSERT INTO RETURN"),
]  # fmt: skip


@pytest.fixture(scope="module")
def surroundings() -> Catalog:
    catalog = Catalog()
    for text in ("CREATE STREAM bids (a Int)", "CREATE TABLE stored (a Int)"):
        action = bind(parse(text)[0].ast, catalog, text)
        assert isinstance(action, Define)
        catalog.add(action.entry)
    define(PAPERS["E12 window myavg"].replace("myavg", "windowed"), catalog)
    define(aggregate("INSERT INTO RETURN VALUES (x)", head="based(x Int) : Int"), catalog)
    return catalog


@pytest.mark.parametrize(("body", "underlined", "message", "hint"), MISTAKES)
def test_mistakes(body: str, underlined: str | None, message: str, hint: str | None, surroundings: Catalog) -> None:
    tables = "TABLE t(a Int, b Int);"
    if "FROM u" in body:
        tables += "TABLE u(c Char);"
    if "FROM v" in body:
        tables += "TABLE v(d Timestamp, r Real);"
    with pytest.raises(BindError) as caught:
        define(aggregate(body, tables), surroundings)
    assert message in caught.value.message
    if underlined is not None:
        assert _underlined(caught.value) == underlined
    assert caught.value.span is not None
    assert hint is None or hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "underlined", "message"),
    [
        ("AGGREGATE f(x Int) : Int { ITERATE: { INSERT INTO RETURN VALUES (x) } }", "f", "f has no INITIALIZE"),
        ("AGGREGATE f(x Int) : Int { INITIALIZE: { INSERT INTO RETURN VALUES (x) } }", "f", "f has no ITERATE"),
        ("AGGREGATE f(x, X) : Int { INITIALIZE: ITERATE: { INSERT INTO RETURN VALUES (x) } }", "X",
         "X is declared twice"),
        (aggregate("INSERT INTO RETURN VALUES (x)", "TABLE t(a Int, A Int);"), "A Int", "A is declared twice"),
        (aggregate("INSERT INTO RETURN VALUES (x)", "TABLE t(a); TABLE T(b);"), "T(b)", "table T is declared twice"),
        (aggregate("INSERT INTO RETURN VALUES (x)", "TABLE return(a);"), "return(a)",
         "RETURN is the aggregate's result"),
        (aggregate("INSERT INTO RETURN VALUES (x)", "TABLE inwindow(a, b);"), "inwindow(a, b)",
         "inwindow has 2 columns, the aggregate 1 arguments"),
        (aggregate("INSERT INTO inwindow VALUES (x); INSERT INTO RETURN VALUES (x)", "TABLE inwindow(a);"), "inwindow",
         "statements cannot insert into inwindow"),
        (aggregate("UPDATE inwindow SET a = 1; INSERT INTO RETURN VALUES (x)", "TABLE inwindow(a);"), "inwindow",
         "statements cannot insert into inwindow"),
        (aggregate("INSERT INTO RETURN VALUES (oldest())", "TABLE inwindow(a, b);", "f(x Int, y Int) : Int"),
         "oldest()", "oldest() is a row of several columns"),
        (aggregate("INSERT INTO RETURN VALUES (oldest().c)", "TABLE inwindow(a);"), "oldest().c",
         "inwindow has no column c"),
        (aggregate("INSERT INTO RETURN VALUES (x)", "TABLE t(a geometry);"), None, "no type geometry"),
    ],
)  # fmt: skip
def test_mistakes_in_definitions(text: str, underlined: str | None, message: str) -> None:
    with pytest.raises(MillstreamError) as caught:
        define(text)
    assert message.lower() in caught.value.message.lower()
    if underlined is not None:
        assert _underlined(caught.value) == underlined


# -- the catalog -----------------------------------------------------------------------------------------------------


def test_versions_live_side_by_side_and_are_dropped_together() -> None:
    db = ms.connect()
    db.execute(";".join((PAPERS["E7 avg"], PAPERS["E11 naive window avg"], PAPERS["E16 algebraic window max"])))
    shown = db.sql("SHOW AGGREGATES").arrow()  # type: ignore[union-attr]
    assert list(zip(*(shown.column(name).to_pylist() for name in shown.column_names), strict=True)) == [
        ("avg", "avg(Next DOUBLE) : DOUBLE", "base"),
        ("avg", "avg(Next DOUBLE) : DOUBLE", "window"),
        ("max", "max(Next DOUBLE) : DOUBLE", "algebraic window"),
    ]
    with pytest.raises(CatalogError, match="window aggregate avg already exists"):
        db.execute(PAPERS["E11 naive window avg"])
    db.execute(PAPERS["E11 naive window avg"].replace("CREATE", "CREATE OR REPLACE"))
    db.execute(PAPERS["E11 naive window avg"].replace("AGGREGATE", "AGGREGATE IF NOT EXISTS"))
    db.execute("DROP AGGREGATE AVG")
    assert db.catalog.aggregate("avg", window=False) is db.catalog.aggregate("avg", window=True) is None
    db.execute("DROP AGGREGATE IF EXISTS avg")
    with pytest.raises(CatalogError, match="no aggregate maxx") as caught:
        db.execute("DROP AGGREGATE maxx")
    assert caught.value.hint == "did you mean max?"


def test_functions_and_aggregates_share_their_names_with_each_other_only() -> None:
    db = ms.connect()
    db.execute("CREATE FUNCTION f(x DOUBLE) AS x * 2; CREATE STREAM avg (x DOUBLE)")
    with pytest.raises(CatalogError, match="function f already exists"):
        db.execute(aggregate("INSERT INTO RETURN VALUES (x)"))
    db.execute(PAPERS["E7 avg"])
    with pytest.raises(CatalogError, match="aggregate avg already exists"):
        db.execute("CREATE FUNCTION avg(x DOUBLE) AS x")
    db.execute("DROP AGGREGATE avg")
    db.push("avg", [(1.0,)])


def test_an_aggregate_that_another_one_calls_stays() -> None:
    db = ms.connect()
    db.execute(aggregate("INSERT INTO RETURN VALUES (x)"))
    db.execute(aggregate("INSERT INTO RETURN SELECT f(a) FROM t", head="g(x Int) : Int"))
    for statement in (
        "DROP AGGREGATE f",
        aggregate("INSERT INTO RETURN VALUES (1)").replace("CREATE", "CREATE OR REPLACE"),
    ):
        with pytest.raises(CatalogError, match="aggregate f is used by aggregate g"):
            db.execute(statement)
    db.execute("DROP AGGREGATE g; DROP AGGREGATE f")


def test_a_persistent_session_keeps_aggregates(tmp_path: Path) -> None:
    with ms.connect(tmp_path) as db:
        db.execute("CREATE STREAM avg (x DOUBLE)")
        db.execute(f"{PAPERS['E7 avg']}; {PAPERS['E11 naive window avg']}; {PAPERS['E13 window max']}")
        db.execute("DROP AGGREGATE max")
    with ms.connect(tmp_path) as db:
        assert [entry.version for entry in db.catalog.entries() if isinstance(entry, AggregateDef)] == [
            "base",
            "window",
        ]
        definition = db.catalog.aggregate("avg", window=True)
        assert definition is not None
        assert _calls(bind_program(definition, (DOUBLE,), Context(db.catalog, "")))[0][1] is not None
        db.execute("DROP AGGREGATE avg")
        db.push("avg", [(1.0,)])
    with ms.connect(tmp_path) as db:
        assert not [entry for entry in db.catalog.entries() if isinstance(entry, AggregateDef)]
        assert db.catalog.find("avg") is not None
