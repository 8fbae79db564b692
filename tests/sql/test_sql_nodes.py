"""What the statements of our own become."""

import pytest
from sqlglot import exp

from millstream.sql import duration_us, options_of, parse, to_sql
from millstream.sql.functions import function_name
from millstream.sql.nodes import (
    CreateSink,
    CreateStream,
    Explain,
    ResetOption,
    SetOption,
    Show,
    SideStream,
    Stop,
    literal_value,
)


def one(text: str) -> exp.Expression:
    [statement] = parse(text)
    return statement.ast


def stream(text: str) -> CreateStream:
    node = one(text)
    assert isinstance(node, CreateStream)
    return node


def test_create_stream_with_all_clauses() -> None:
    node = stream(
        "CREATE OR REPLACE STREAM IF NOT EXISTS s (a int, b, c char(10) NOT NULL) ORDERED BY c SLACK 5 SECONDS "
        "SOURCE f('x', 2) WITH (connector='file', \"max.rows\"=100, header=true, Rate=-0.5, a.B='c', n=NULL)"
    )
    assert node.name == "s"
    assert [column.name for column in node.columns] == ["a", "b", "c"]
    assert [to_sql(column.kind) if column.kind else None for column in node.columns] == ["INT", None, "TEXT"]
    assert node.order_by is not None and node.order_by.name == "c"
    assert node.slack is not None and duration_us(node.slack) == 5_000_000
    assert isinstance(node.source, exp.Anonymous) and node.source.name == "f"
    assert [literal_value(argument) for argument in node.source.expressions] == ["x", 2]
    assert options_of(node) == {
        "connector": "file",
        "max.rows": 100,
        "header": True,
        "rate": -0.5,
        "a.B": "c",
        "n": None,
    }
    assert list(options_of(node)) == ["connector", "max.rows", "header", "rate", "a.B", "n"]
    assert node.args["or_replace"] and node.args["if_not_exists"] and node.query is None


def test_clauses_come_in_any_order() -> None:
    clauses = ["ORDER BY ts", "SLACK INTERVAL '1' MINUTE", "SOURCE 'port1'", "WITH (a = 1)"]
    head = "CREATE STREAM s (ts timestamp) "
    assert stream(head + " ".join(clauses)) == stream(head + " ".join(reversed(clauses)))


def test_a_bare_stream_has_no_clauses() -> None:
    node = stream("STREAM s(a, b)")
    assert node == stream("CREATE STREAM s (a, b)")
    assert (node.order_by, node.slack, node.source, node.query, options_of(node)) == (None, None, None, None, {})


def test_the_papers_stray_semicolon_before_source() -> None:
    printed = "CREATE STREAM s (a int, t timestamp) ORDER BY t; SOURCE 'port4445'; SELECT 1"
    first, second = parse(printed)
    assert isinstance(first.ast, CreateStream) and literal_value(first.ast.args["source"]) == "port4445"
    assert first.text == "CREATE STREAM s (a int, t timestamp) ORDER BY t; SOURCE 'port4445'"
    assert isinstance(second.ast, exp.Select)


def test_current_time_is_a_column() -> None:
    assert stream("CREATE STREAM s (current_time timestamp) ORDER BY current_time").order_by == exp.to_identifier(
        "current_time"
    )
    query = one("SELECT current_time, s.current_time FROM s WHERE current_time > x")
    columns = [column for column in query.find_all(exp.Column) if column.name == "current_time"]
    assert len(columns) == 3 and not query.find(exp.CurrentTime)


def test_derived_streams_and_sinks() -> None:
    derived = stream("CREATE STREAM d AS SELECT a FROM s")
    assert isinstance(derived.query, exp.Select) and derived.columns == []
    sink = one("CREATE SINK o WITH (connector='file', format='parquet') AS SELECT a FROM s")
    assert isinstance(sink, CreateSink) and isinstance(sink.query, exp.Select)
    assert options_of(sink) == {"connector": "file", "format": "parquet"}


def test_tables() -> None:
    table = one("TABLE t(a, b int)")
    assert table == one("CREATE TABLE t (a, b int)")
    assert isinstance(table, exp.Create) and table.args["kind"] == "TABLE"
    assert table.this.this.name == "t" and [column.name for column in table.this.expressions] == ["a", "b"]
    assert options_of(one("CREATE TABLE t (a int) WITH (path = 'x')")) == {"path": "x"}
    assert isinstance(one("CREATE TABLE t AS SELECT 1").args["expression"], exp.Select)


@pytest.mark.parametrize("body", ["AS x * 2", "RETURN x * 2"])
def test_functions(body: str) -> None:
    node = one(f"CREATE FUNCTION f(x DOUBLE, y int) RETURNS DOUBLE {body}")
    assert isinstance(node, exp.Create) and node.args["kind"] == "FUNCTION"
    assert node.this.this.name == "f" and [p.name for p in node.this.expressions] == ["x", "y"]
    assert to_sql(node.args["expression"]) == "x * 2"
    [returns] = node.args["properties"].expressions
    assert to_sql(returns.this) == "DOUBLE"


def test_control_statements() -> None:
    explain = one("EXPLAIN RULES SELECT 1")
    assert isinstance(explain, Explain) and explain.mode == "RULES" and isinstance(explain.this, exp.Select)
    plain = one("explain INSERT INTO t SELECT 1")
    assert isinstance(plain, Explain) and plain.mode is None and isinstance(plain.this, exp.Insert)
    show = one("show queries")
    assert isinstance(show, Show) and show.kind == "QUERIES"
    stop = one("STOP dips")
    assert isinstance(stop, Stop) and stop.name == "dips"
    setting = one("SET spark.sql.Key TO 'v'")
    assert isinstance(setting, SetOption) and (setting.name, setting.value) == ("spark.sql.Key", "v")
    word = one("SET mode = fast")
    assert isinstance(word, SetOption) and word.value == "fast"
    reset = one("RESET batch_rows")
    assert isinstance(reset, ResetOption) and reset.name == "batch_rows"
    drop = one("DROP QUERY IF EXISTS q CASCADE")
    assert isinstance(drop, exp.Drop) and drop.kind == "QUERY" and drop.args["cascade"] and drop.args["exists"]
    assert one("DESCRIBE s").this.name == "s"


def test_side_streams() -> None:
    query = one('SELECT x FROM late(s) AS l, ERRORS("t u")')
    late, errors = query.find_all(SideStream)
    assert (late.kind, late.name, late.parent.alias) == ("LATE", "s", "l")
    assert (errors.kind, errors.name) == ("ERRORS", "t u")
    assert not one("SELECT late(x), errors FROM s").find(SideStream)


@pytest.mark.parametrize(
    "frame",
    [
        "RANGE 10 SECONDS PRECEDING",
        "range between 10 seconds preceding and current row",
        "RANGE INTERVAL '10' SECOND PRECEDING",
        "RANGE INTERVAL 10 SECONDS PRECEDING",
        "RANGE INTERVAL '10 seconds' PRECEDING",
    ],
)
def test_one_form_of_a_frame(frame: str) -> None:
    window = one(f"SELECT sum(x) OVER (PARTITION BY k {frame}) FROM s").find(exp.Window)
    assert window is not None
    spec = window.args["spec"]
    assert (spec.args["kind"], spec.args["start_side"], spec.args["end"]) == ("RANGE", "PRECEDING", "CURRENT ROW")
    assert duration_us(spec.args["start"]) == 10_000_000
    assert [column.name for column in window.args["partition_by"]] == ["k"] and window.args.get("order") is None


def test_frames_of_rows() -> None:
    specs = one(
        "SELECT sum(x) OVER (ROWS 49 PRECEDING), sum(x) OVER (ROWS UNBOUNDED PRECEDING), "
        "sum(x) OVER (RANGE 7 PRECEDING)"
    ).find_all(exp.WindowSpec)
    assert [(s.args["kind"], s.text("start") or s.args["start"].name) for s in specs] == [
        ("ROWS", "49"),
        ("ROWS", "UNBOUNDED"),
        ("RANGE", "7"),
    ]


def test_named_windows() -> None:
    query = one("SELECT sum(x) OVER w, avg(x) OVER (w ROWS 3 PRECEDING) FROM s WINDOW w AS (PARTITION BY k)")
    assert isinstance(query, exp.Select)
    assert [select.args["alias"].name for select in query.selects] == ["w", "w"]
    [definition] = query.args["windows"]
    assert definition.name == "w" and len(definition.args["partition_by"]) == 1


def test_trailing_commas_of_the_papers() -> None:
    assert one("SELECT a, b, FROM s, t, WHERE a > 1 GROUP BY a, b,") == one(
        "SELECT a, b FROM s, t WHERE a > 1 GROUP BY a, b"
    )


def test_words_that_stay_free_as_names() -> None:
    words = """
        timestamp time date price type name source slack current_time next window slide stream rows
        range interval value start end first last query row key user sink table view function set
        show stop describe explain partition group order by year month day hour minute second
        unbounded preceding current late errors text double filter replace
    """.split()  # noqa: SIM905
    columns = ", ".join(words)
    assert [column.name for column in stream(f"CREATE STREAM s ({columns})").columns] == words
    assert [
        column.name for column in stream(f"CREATE STREAM s ({', '.join(f'{w} int' for w in words)})").columns
    ] == words
    query = one(f"SELECT {columns} FROM s")
    assert isinstance(query, exp.Select) and [select.name for select in query.selects] == words
    qualified = one(f"SELECT {', '.join(f's.{w} AS {w}' for w in words)} FROM s")
    assert isinstance(qualified, exp.Select) and [select.alias for select in qualified.selects] == words
    for word in words:
        one(f"SELECT {word} + 1, f({word}) FROM s WHERE {word} > 1 AND s.{word} = {word}")
        one(f"SELECT max(x) OVER (PARTITION BY {word} ORDER BY {word}) FROM s GROUP BY {word} ORDER BY {word}")


def test_functions_keep_the_name_they_were_called_by() -> None:
    query = one("SELECT myFunc(a), AvG(a), IFNULL(a, b), sum(x) OVER () FROM s")
    calls = [call for call in query.find_all(exp.Func) if not isinstance(call, exp.And)]
    assert sorted(map(function_name, calls)) == ["AvG", "IFNULL", "myFunc", "sum"]
    assert isinstance(query, exp.Select)
    assert to_sql(query.selects[0]) == "myFunc(a)"
    assert function_name(exp.Sum(this=exp.column("x"))) == "SUM"
    # Too many arguments for the function of that name: left for the binder to judge.
    assert isinstance(one("SELECT length(a, b)").find(exp.Func), exp.Anonymous)
