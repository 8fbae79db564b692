"""CREATE AGGREGATE: the papers' aggregates as printed, what they become, and what is said about mistakes."""

import pytest
from sql_texts import check_mistake
from sqlglot import exp

from millstream.errors import ParseError
from millstream.sql import parse, span_of, to_sql
from millstream.sql.nodes import CreateAggregate, LocalTableClause, Oldest, Show

PAPERS = {
    "E7 avg": """
        CREATE AGGREGATE avg(Next Real) : Real
        {
        TABLE state(tsum Real, cnt Int);
        INITIALIZE : { INSERT INTO state VALUES (Next, 1); }
        ITERATE : { UPDATE state SET tsum=tsum+Next, cnt=cnt+1; }
        TERMINATE : { INSERT INTO RETURN
        SELECT tsum/cnt FROM state; }
        }""",
    "E8 decay_online_avg": """
        CREATE AGGREGATE decay_online_avg(Next Real) : Real
        {
        TABLE state(tsum Real, cnt Int);
        INITIALIZE : {
        INSERT INTO state VALUES (Next, 1);
        INSERT INTO RETURN VALUES (Next); }
        ITERATE: {
        UPDATE state SET tsum= 0.9*tsum + 1.1*Next, cnt=cnt+1;
        INSERT INTO RETURN SELECT tsum/cnt FROM state; }
        }""",
    "E10 cum_avg": """
        CREATE AGGREGATE cum_avg(Next Real) : Real
        {
          TABLE state(tsum Real, cnt Int);
          INITIALIZE : {
            INSERT INTO state VALUES (Next, 1);
            INSERT INTO RETURN SELECT tsum/cnt FROM state;
          }
          ITERATE : {
            UPDATE state SET tsum=tsum+Next, cnt=cnt+1;
            INSERT INTO RETURN SELECT tsum/cnt FROM state;
          }
          TERMINATE : { }
        }""",
    "E11 naive window avg": """
        CREATE WINDOW AGGREGATE avg(Next Real) : Real
        {
          TABLE inwindow(wnext Real);
          INITIALIZE: ITERATE: {
            INSERT INTO RETURN
              SELECT avg(wnext) FROM inwindow;
          }
        }""",
    "E12 window myavg": """
        CREATE WINDOW AGGREGATE myavg(Next Real) : Real
        {
          TABLE state(tsum Int, cnt Real);
          TABLE inwindow(wnext Real);
          INITIALIZE : {
            INSERT INTO state VALUES (Next, 1);
            INSERT INTO RETURN VALUES (Next);
          }
          ITERATE : {
            UPDATE state SET tsum=tsum+Next, cnt=cnt+1;
            INSERT INTO RETURN SELECT tsum/cnt FROM state;
          }
          EXPIRE: { /* when there are expired tuples take the oldest */
            UPDATE state SET cnt= cnt-1, tsum = tsum - oldest().wnext;
          }
        }""",
    "E12 with active expiration": """
        CREATE WINDOW AGGREGATE myavg(Next Real) : Real
        { TABLE state(tsum Int, cnt Real), TABLE inwindow(wnext Real);
          INITIALIZE : { INSERT INTO state VALUES (Next, 1); INSERT INTO RETURN VALUES (Next); }
          ITERATE : { UPDATE state SET tsum=tsum+Next, cnt=cnt+1; INSERT INTO RETURN SELECT tsum/cnt FROM state; }
          EXPIRE: { /*when there are expired tuples take the oldest*/
            UPDATE state
              SET cnt= cnt-1, tsum = tsum - oldest().wnext;
            INSERT INTO RETURN
              SELECT tsum/cnt FROM state; }
        }""",
    "E13 window max": """
        CREATE WINDOW AGGREGATE max (Next Real) : Real
        {
          TABLE inwindow(wnext real);
          INITIALIZE : {
            INSERT INTO RETURN VALUES (Next);
          } /* new tuples are added to inwindow automatically */
          ITERATE : {
            DELETE FROM inwindow WHERE wnext ≤ Next;
            INSERT INTO RETURN VALUES (oldest());
          }
          EXPIRE: { } /* expired tuples are removed automatically */
        }""",
    "E16 algebraic window max": """
        CREATE ALGEBRAIC WINDOW AGGREGATE
          max (Next Real): Real
        { TABLE inwindow(wnext real);
          INITIALIZE : {
            INSERT INTO RETURN VALUES (Next);
          } /* new tuples added to inwindow automatically */
          ITERATE : {
            DELETE FROM inwindow WHERE wnext ≤ Next;
          }
          EXPIRE: { /*expired tuples removed automatically*/
            INSERT INTO RETURN VALUES (oldest()) }
        }""",
    "E18 item_alarm": """
        AGGREGATE item_alarm(tagid, tagtype, tagtime):char
        {
        TABLE inwindow(tid, ttype, ttime);
        INITIALIZE: ITERATE: {
        DELETE FROM inwindow
        WHERE tagtype = 'ap' AND ttype = 'item';
        DELETE FROM inwindow
        WHERE tagtype = 'item' AND ttype = 'item' AND EXISTS
        (SELECT tid FROM inwindow WHERE ttype = 'ap'); }
        EXPIRE: {
        INSERT INTO RETURN VALUES ('larceny alarm')
        WHERE tagtype = 'item' AND NOT EXISTS
        (SELECT tid FROM inwindow WHERE ttype='ap'); }
        }""",
    "T8 myavg": """
        AGGREGATE myavg(Next Int) : Real
        {  TABLE state(tsum Int, cnt Int);
        INITIALIZE : {
        INSERT INTO state VALUES (Next, 1);
        }
        ITERATE : {
        UPDATE state
        SET tsum=tsum+Next, cnt=cnt+1;
        }
        TERMINATE : {
        INSERT INTO RETURN
        SELECT tsum/cnt FROM state;
        }
        }""",
    "T9 tumble_avg": """
        AGGREGATE tumble_avg(Next Int) : Real
        {  TABLE state(tsum Int, cnt Int);
        INITIALIZE : {
        INSERT INTO state VALUES (Next, 1);
        }
        ITERATE : {
        UPDATE state
        SET tsum=tsum+Next, cnt=cnt+1;
        INSERT INTO RETURN
        SELECT tsum/cnt FROM state
        WHERE cnt % 200=0;
        UPDATE state SET tsum=0, cnt=0;
        WHERE cnt % 200=0
        }
        TERMINATE: { }
        }""",
    "T11 bidder_wcount": """
        AGGREGATE bidder_wcount(bidder_id, bid_time, num_min):(bcount)
        {  TABLE bidders(b_id, btime);
        INITIALIZE :{
        INSERT INTO bidders VALUES(bidder_id, bid_time);
        }
        ITERATE:{
        INSERT INTO bidders VALUES(bidder_id, bid_time)
        WHERE bidder_id NOT IN (SELECT b_id FROM bidders);
        UPDATE bidders SET btime = bid_time
        WHERE bidder_id = b_id;
        DELETE FROM bidders
        WHERE bid_time > (btime + num_min minutes);
        INSERT INTO RETURN
        SELECT count(b_id) FROM bidders
        }
        TERMINATE : {}
        }""",
    "T12 find_pattern": """
        Aggregate find_pattern(PageNoIn int, ClickTimeIn char(16),
        PageTypeIn char(1)): (PageNo int, ClickTime char(16))
        { TABLE CurrentState(curState int);
        TABLE Memo(PageNo int, ClickTime char(16), State int);
        INITIALIZE: {
        INSERT INTO CurrentState VALUES(0);
        INSERT INTO Memo VALUES ((0,'', 1),(0,'', 2),(0,'', 3));
        UPDATE Memo SET PageNo = PageNoIn, ClickTime = ClickTime
        WHERE PageTypeIn = 'a' AND State = 1;
        UPDATE CurrentState SET curState = 1 WHERE sqlcode = 0}
        ITERATE: {
        UPDATE CurrentState set curState = 0
        WHERE (curState = 0 AND pageType <> 'a')
        OR (curState = 1 AND pageType <> 'd')
        OR (curState = 2 AND pageType <> 'p');
        UPDATE CurrentState SET curState = curState + 1
        WHERE sqlcode > 0 AND ((curState = 0 and pageType = 'a')
        OR (curState = 1 and pageType = 'd')
        OR (curState = 2 and pageType = 'p'));
        UPDATE Memo SET PageNo = PageNoIn, ClickTime = ClickTimeIn
        WHERE Memo.State = (SELECT curState FROM CurrentState)
        and sqlcode = 0;
        INSERT INTO return SELECT Y.PageNo, Z.ClickTime
        FROM CurrentState AS C, Memo AS X, Memo AS Y, Memo AS Z
        WHERE C.curState = 3 and Y.st = 2 AND Z.st = 3;
        UPDATE CurrentState SET curState = 0 WHERE sqlcode = 0}
        }""",
}
STATES = ("initialize", "iterate", "expire", "terminate")


def aggregate(text: str) -> CreateAggregate:
    [statement] = parse(text)
    assert isinstance(statement.ast, CreateAggregate)
    return statement.ast


def body(statements: str) -> list[exp.Expr]:
    """The statements of one state."""
    read = aggregate(f"AGGREGATE f(x) : int {{ TABLE t(a, b); ITERATE: {{ {statements} }} }}").state("iterate")
    assert read is not None
    return read


def lengths(node: CreateAggregate) -> list[int | None]:
    """How many statements each state has; None if it is not given."""
    return [None if node.state(name) is None else len(node.state(name) or []) for name in STATES]


@pytest.mark.parametrize("text", PAPERS.values(), ids=PAPERS.keys())
def test_the_papers_aggregates_round_trip(text: str) -> None:
    node = aggregate(text)
    printed = to_sql(node)
    again = aggregate(printed)
    assert again == node and to_sql(again) == printed
    assert lengths(again) == lengths(node)
    assert not node.find(exp.Command)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("E7 avg", [1, 1, None, 1]),
        ("E10 cum_avg", [2, 2, None, 0]),
        ("E11 naive window avg", [1, 1, None, None]),
        ("E13 window max", [1, 2, 0, None]),
        ("E18 item_alarm", [2, 2, 1, None]),
        ("T9 tumble_avg", [1, 3, None, 0]),
        ("T11 bidder_wcount", [1, 4, None, 0]),
        ("T12 find_pattern", [4, 5, None, None]),
    ],
)
def test_states(name: str, expected: list[int | None]) -> None:
    assert lengths(aggregate(PAPERS[name])) == expected


def test_several_aggregates_and_queries_in_one_text() -> None:
    statements = parse(";\n".join([*PAPERS.values(), "SELECT 1", "SHOW AGGREGATES", "DROP AGGREGATE IF EXISTS avg"]))
    assert [type(statement.ast) for statement in statements] == [CreateAggregate] * len(PAPERS) + [
        exp.Select,
        Show,
        exp.Drop,
    ]
    assert statements[-2].ast.args["kind"] == "AGGREGATES" and statements[-1].ast.args["kind"] == "AGGREGATE"


def test_parts_of_a_definition() -> None:
    node = aggregate(PAPERS["T12 find_pattern"])
    assert node.name == "find_pattern"
    assert [column.name for column in node.parameters] == ["PageNoIn", "ClickTimeIn", "PageTypeIn"]
    assert [(column.name, to_sql(column.args["kind"])) for column in node.returns] == [
        ("PageNo", "INT"),
        ("ClickTime", "TEXT"),
    ]
    assert all(isinstance(table, LocalTableClause) for table in node.tables)
    assert [table.name for table in node.tables] == ["CurrentState", "Memo"]
    assert [column.name for column in node.tables[1].columns] == ["PageNo", "ClickTime", "State"]
    assert (node.window, node.algebraic) == (False, False)


def test_an_unnamed_result_has_the_aggregates_name() -> None:
    [column] = aggregate("AGGREGATE f(x int) : double { }").returns
    assert column.name == "f" and to_sql(column.args["kind"]) == "DOUBLE"
    assert aggregate("AGGREGATE f(x int) : double { }") == aggregate("AGGREGATE f(x int) RETURNS double { }")
    assert aggregate("AGGREGATE f(x) : (f double) { }") == aggregate("AGGREGATE f(x) : double { }")
    assert aggregate("AGGREGATE f(x) : (f) { }") != aggregate("AGGREGATE f(x) : double { }")


def test_types_may_be_left_out() -> None:
    node = aggregate(PAPERS["E18 item_alarm"])
    untyped = [*node.parameters, *node.tables[0].columns, *aggregate(PAPERS["T11 bidder_wcount"]).returns]
    assert len(untyped) == 7 and all(column.args.get("kind") is None for column in untyped)


@pytest.mark.parametrize(
    ("head", "flags"),
    [
        ("AGGREGATE", (False, False, False, False)),
        ("create aggregate", (False, False, False, False)),
        ("WINDOW AGGREGATE", (True, False, False, False)),
        ("ALGEBRAIC AGGREGATE", (False, True, False, False)),
        ("ALGEBRAIC WINDOW AGGREGATE", (True, True, False, False)),
        ("CREATE OR REPLACE ALGEBRAIC WINDOW AGGREGATE IF NOT EXISTS", (True, True, True, True)),
    ],
)
def test_flags(head: str, flags: tuple[bool, ...]) -> None:
    node = aggregate(f"{head} f(x int) : int {{ INITIALIZE: ITERATE: {{ }} }}")
    assert tuple(bool(node.args[key]) for key in ("window", "algebraic", "or_replace", "if_not_exists")) == flags
    assert aggregate(to_sql(node)) == node


def test_states_come_in_any_order_and_may_share_a_body() -> None:
    together = aggregate("AGGREGATE f(x) : int { expire: Iterate : INITIALIZE: { DELETE FROM t; } ; TERMINATE:{} }")
    apart = (
        "AGGREGATE f(x) : int { INITIALIZE: { DELETE FROM t } ITERATE: { DELETE FROM t; } EXPIRE: {;DELETE FROM t} }"
    )
    assert lengths(together) == [1, 1, 1, 0]
    assert together == aggregate(apart)
    first, second, third = ((together.state(name) or [])[0] for name in STATES[:3])
    assert first is not second and second is not third and span_of(first) == span_of(second) == span_of(third)


def test_tables_are_separated_by_semicolons_or_commas() -> None:
    expected = aggregate("AGGREGATE f(x) : int { TABLE a(x int); TABLE b(y); }")
    for tables in ("TABLE a(x int), TABLE b(y);", "TABLE a(x int), b(y);", "table a(x int);; TABLE b(y)"):
        assert aggregate(f"AGGREGATE f(x) : int {{ {tables} }}") == expected
    assert [table.name for table in aggregate("AGGREGATE f(x) : int { TABLE a(x), table(y); }").tables] == [
        "a",
        "table",
    ]


def test_the_papers_slips() -> None:
    assert body("INSERT INTO t VALUES ((1, 2), (3, 4))") == body("INSERT INTO t VALUES (1, 2), (3, 4);")
    assert body("INSERT INTO t VALUES ((1), (2))") != body("INSERT INTO t VALUES (1), (2)")
    assert body("UPDATE t SET a = 1, b = 2; WHERE a > b; DELETE FROM t") == body(
        "UPDATE t SET a = 1, b = 2 WHERE a > b; DELETE FROM t"
    )
    with pytest.raises(ParseError):
        parse("UPDATE t SET a = 1; WHERE a > b")


def test_the_condition_of_values_belongs_to_the_insert() -> None:
    [insert] = body("INSERT INTO RETURN VALUES (1), (2) WHERE a > 1")
    assert isinstance(insert, exp.Insert) and insert.this.name == "RETURN"
    assert to_sql(insert.args["where"].this) == "a > 1" and len(insert.expression.expressions) == 2
    assert insert.expression.args.get("where") is None
    [plain] = body("INSERT INTO t (b, a) VALUES (1, 2)")
    assert plain.args.get("where") is None and isinstance(plain.this, exp.Schema)


def test_oldest() -> None:
    [update] = body("UPDATE t SET a = a - oldest().b, b = OLDEST ( ) + 1")
    with_column, alone = sorted(update.find_all(Oldest), key=lambda node: node.this is None)
    assert isinstance(with_column.this, exp.Identifier) and with_column.name == "b" and alone.this is None
    [statement] = parse("SELECT oldest() FROM s")
    assert not statement.ast.find(Oldest)


@pytest.mark.parametrize(
    ("condition", "printed"),
    [
        ("t > (b + num_min minutes)", "t > (b + INTERVAL num_min MINUTE)"),
        ("t - b > m.n SECOND", "t - b > INTERVAL m.n SECOND"),
        ("t - b > 90 seconds AND a", "t - b > INTERVAL '90' SECOND AND a"),
        ("f(n hours) IN (SELECT a + n days FROM t)", "f(INTERVAL n HOUR) IN (SELECT a + INTERVAL n DAY FROM t)"),
        ("b BETWEEN t - n weeks AND t", "b BETWEEN t - INTERVAL n WEEK AND t"),
    ],
)
def test_spans_without_interval(condition: str, printed: str) -> None:
    [delete] = body(f"DELETE FROM t WHERE {condition}")
    assert to_sql(delete.args["where"].this) == printed
    assert body(to_sql(delete)) == [delete]


def test_units_are_aliases_behind_items_and_outside_of_bodies() -> None:
    [insert] = body("INSERT INTO t SELECT a minutes, 5 seconds, b + c days FROM t")
    assert [item.alias for item in insert.expression.selects] == ["minutes", "seconds", ""]
    [query] = parse("SELECT a + b days FROM s")
    assert isinstance(query.ast, exp.Select) and query.ast.selects[0].alias == "days"


def test_mathematical_signs() -> None:
    assert body("DELETE FROM t WHERE a≤b AND a ≥ 1 OR b≠2") == body("DELETE FROM t WHERE a<=b AND a >= 1 OR b<>2")
    assert parse("SELECT a≤1 FROM s")[0].ast == parse("SELECT a <= 1 FROM s")[0].ast


def test_spans() -> None:
    text = "SHOW STREAMS;\n" + PAPERS["E12 window myavg"]
    node = parse(text)[1].ast
    assert isinstance(node, CreateAggregate)

    def written(part: exp.Expr) -> str:
        span = span_of(part)
        assert span is not None
        return text[span.start : span.end]

    assert written(node) == text[text.index("CREATE") :]
    assert [written(part) for part in (*node.parameters, *node.returns)] == ["Next Real", "Real"]
    assert [written(part) for part in node.tables] == ["state(tsum Int, cnt Real)", "inwindow(wnext Real)"]
    [update] = node.state("expire") or []
    assert written(update) == "UPDATE state SET cnt= cnt-1, tsum = tsum - oldest().wnext"
    assert [written(part) for part in node.find_all(Oldest)] == ["oldest().wnext"]
    assert written((node.state("initialize") or [])[1]) == "INSERT INTO RETURN VALUES (Next)"


# (text with the culprit between ⟨ and ⟩, message, hint where one matters)
MISTAKES = [
    ("AGGREGATE f(x int) ⟨int⟩ { }", "expected ':' or RETURNS, found 'int'", "f(…) : type, or f(…) : (column type, …)"),
    ("AGGREGATE f(x int) : ⟨{⟩ }", "expected a type or '(', found '{'", None),
    ("AGGREGATE f(x int) : (⟨)⟩ { }", "expected the name of a column, found ')'", None),
    ("AGGREGATE f⟨:⟩ int { }", "expected '(', found ':'", None),
    ("AGGREGATE f(x int) : int⟨⟩", "expected '{', found the end of the statement", None),
    ("CREATE WINDOW ⟨STREAM⟩ s (a int)", "expected AGGREGATE, found 'STREAM'", None),
    ("⟨AGREGATE⟩ f(x int) : int { }", "expected a statement, found 'AGREGATE'", "did you mean AGGREGATE?"),
    ("AGGREGATE f(x) : int ⟨{⟩ ITERATE: { DELETE FROM t; }", "this '{' is never closed", None),
    ("AGGREGATE f(x) : int { ITERATE: { DELETE FROM t; } } ⟨}⟩", "unexpected '}'", None),
    ("AGGREGATE f(x) : int { ITERATE ⟨{⟩ } }", "expected ':' after ITERATE, found '{'", None),
    ("AGGREGATE f(x) : int { ITERATE: ⟨DELETE⟩ FROM t; }", "expected '{', found 'DELETE'", None),
    (
        "AGGREGATE f(x) : int { ⟨INITALIZE⟩: { } }",
        "expected INITIALIZE, ITERATE, EXPIRE, TERMINATE or '}', found 'INITALIZE'",
        "did you mean INITIALIZE?",
    ),
    (
        "AGGREGATE f(x) : int { INITIALIZE: ⟨ITERTE⟩: { } }",
        "expected INITIALIZE, ITERATE, EXPIRE, TERMINATE or '}', found 'ITERTE'",
        "did you mean ITERATE?",
    ),
    ("AGGREGATE f(x) : int { EXPIRE: { } ⟨EXPIRE⟩: { } }", "EXPIRE is given twice", None),
    ("AGGREGATE f(x) : int { EXPIRE: ⟨expire⟩: { } }", "EXPIRE is given twice", None),
    (
        "AGGREGATE f(x) : int { ITERATE: { } ⟨TABLE⟩ t(a); }",
        "the tables of an aggregate are declared before its states",
        None,
    ),
    ("AGGREGATE f(x) : int { TABLE t(a) ⟨ITERATE⟩: { } }", "expected ';', found 'ITERATE'", None),
    ("AGGREGATE f(x) : int { TABLE t⟨;⟩ ITERATE: { } }", "expected '(', found ';'", None),
    (
        "AGGREGATE f(x) : int { ITERATE: { ⟨SELECT⟩ a FROM t; } }",
        "expected INSERT, UPDATE or DELETE, found 'SELECT'",
        "to return rows, write INSERT INTO RETURN SELECT …",
    ),
    (
        "AGGREGATE f(x) : int { ITERATE: { ⟨DELTE⟩ FROM t; } }",
        "expected INSERT, UPDATE or DELETE, found 'DELTE'",
        "did you mean DELETE?",
    ),
    (
        "AGGREGATE f(x) : int { ITERATE: { ⟨DROP⟩ TABLE t; } }",
        "expected INSERT, UPDATE or DELETE, found 'DROP'",
        None,
    ),
    (
        "AGGREGATE f(x) : int { ITERATE: { DELETE FROM t ⟨INSERT⟩ INTO t VALUES (1) } }",
        "expected ';' or '}', found 'INSERT'",
        None,
    ),
    (
        "AGGREGATE f(x) : int { ITERATE: { INSERT INTO t VALUES (1) ⟨LIMIT⟩ 1 } }",
        "expected ';' or '}', found 'LIMIT'",
        None,
    ),
    (
        "AGGREGATE f(x) : int { ITERATE: { UPDATE t SET a = oldest().⟨5⟩ } }",
        "expected a name after '.', found '5'",
        None,
    ),
]


@pytest.mark.parametrize(("marked", "message", "hint"), MISTAKES, ids=[case[0] for case in MISTAKES])
def test_mistakes(marked: str, message: str, hint: str | None) -> None:
    check_mistake(marked, message, hint)
