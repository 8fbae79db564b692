"""What resolve makes of functions and operators: types, conversions, and errors that help."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal

import pytest

from millstream.errors import BindError, UnsupportedError
from millstream.expressions.functions import (
    can_fail,
    case,
    cast,
    coerce,
    interval,
    known_names,
    literal,
    lookup,
    resolve,
)
from millstream.expressions.nodes import Call, Case, Cast, Column, Expr, Literal
from millstream.expressions.object_functions import GrowingArray
from millstream.types import (
    ARRAY,
    BIGINT,
    BLOB,
    BOOLEAN,
    DATE,
    DECIMAL,
    DOUBLE,
    INTEGER,
    INTERVAL,
    NULL,
    SMALLINT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    TINYINT,
    VARCHAR,
    SqlType,
)  # fmt: skip

I4, I8, F, S, B = (
    Column(t, n) for t, n in ((INTEGER, "i"), (BIGINT, "j"), (DOUBLE, "f"), (VARCHAR, "s"), (BOOLEAN, "b"))
)
TS, TZ, D, IV, M = (
    Column(t, n)
    for t, n in ((TIMESTAMP, "ts"), (TIMESTAMPTZ, "tz"), (DATE, "d"), (INTERVAL, "iv"), (DECIMAL(10, 2), "m"))
)
ONE, NOTHING = Literal(INTEGER, 1), Literal(NULL, None)


def text(value: str) -> Literal:
    return Literal(VARCHAR, value)


@pytest.mark.parametrize(
    "fn,args,printed,type_",
    [
        ("+", (I4, I4), "(CAST(i AS BIGINT) + CAST(i AS BIGINT))", BIGINT),
        ("+", (I4, ONE), "(CAST(i AS BIGINT) + 1)", BIGINT),
        ("*", (I8, F), "(CAST(j AS DOUBLE) * f)", DOUBLE),
        ("/", (I4, I4), "(CAST(i AS DOUBLE) / CAST(i AS DOUBLE))", DOUBLE),
        ("//", (I8, I8), "(j // j)", BIGINT),
        ("%", (I8, F), "(CAST(j AS DOUBLE) % f)", DOUBLE),
        ("+", (M, M), "(m + m)", DECIMAL(11, 2)),
        ("*", (M, M), "(m * m)", DECIMAL(18, 4)),
        ("*", (M, I4), "(m * CAST(i AS DECIMAL(10, 0)))", DECIMAL(18, 2)),
        ("/", (M, I4), "(CAST(m AS DOUBLE) / CAST(i AS DOUBLE))", DOUBLE),
        ("+", (I4, NOTHING), "(CAST(i AS BIGINT) + NULL)", BIGINT),
        ("=", (TS, text("2024-01-07 10:00")), "(ts = TIMESTAMP '2024-01-07 10:00:00')", BOOLEAN),
        ("<", (text("2024-01-07"), D), "(DATE '2024-01-07' < d)", BOOLEAN),
        ("=", (TS, D), "(ts = CAST(d AS TIMESTAMP))", BOOLEAN),
        ("=", (TS, TZ), "(CAST(ts AS TIMESTAMPTZ) = tz)", BOOLEAN),
        ("=", (I4, text("5")), "(i = 5)", BOOLEAN),
        ("=", (NOTHING, NOTHING), "(NULL = NULL)", BOOLEAN),
        ("in", (I4, ONE, Literal(DOUBLE, 2.5)), "(CAST(i AS DOUBLE) IN (1.0, 2.5))", BOOLEAN),
        ("+", (TS, IV), "(ts + iv)", TIMESTAMP),
        ("+", (IV, TS), "(ts + iv)", TIMESTAMP),
        ("+", (D, IV), "(CAST(d AS TIMESTAMP) + iv)", TIMESTAMP),
        ("-", (TS, D), "(ts - CAST(d AS TIMESTAMP))", INTERVAL),
        ("-", (D, D), "(d - d)", BIGINT),
        ("+", (D, ONE), "(d + 1)", DATE),
        ("+", (ONE, D), "(d + 1)", DATE),
        ("-", (TS, text("2024-01-01")), "(ts - TIMESTAMP '2024-01-01 00:00:00')", INTERVAL),
        ("*", (ONE, IV), "(iv * 1)", INTERVAL),
        ("-", (IV, IV), "(iv - iv)", INTERVAL),
        ("neg", (I4,), "(-CAST(i AS BIGINT))", BIGINT),
        ("neg", (Literal(DOUBLE, 1.5),), "-1.5", DOUBLE),
        ("neg", (Literal(DECIMAL(19, 0), Decimal(2**63)),), str(-(2**63)), BIGINT),
        ("||", (S, I4), "(s || CAST(i AS VARCHAR))", VARCHAR),
        ("ceil", (I4,), "i", INTEGER),
        ("CEILING", (F,), "ceil(f)", DOUBLE),
        ("round", (M, ONE), "round(m, 1)", DECIMAL(10, 1)),
        ("sqrt", (I4,), "sqrt(CAST(i AS DOUBLE))", DOUBLE),
        ("pi", (), "3.141592653589793", DOUBLE),
        ("ifnull", (I4, F), "coalesce(CAST(i AS DOUBLE), f)", DOUBLE),
        ("coalesce", (NOTHING, S), "s", VARCHAR),
        ("if", (B, I4, NOTHING), "CASE WHEN b THEN i ELSE NULL END", INTEGER),
        ("substr", (S, ONE), "substring(s, 1)", VARCHAR),
        ("position", (text("a"), S), "strpos(s, 'a')", BIGINT),
        ("extract", (text("year"), TS), "year(ts)", BIGINT),
        ("date_part", (text("epoch"), TS), "epoch(ts)", DOUBLE),
        ("date_trunc", (text("DAYS"), D), "date_trunc('day', CAST(d AS TIMESTAMP))", TIMESTAMP),
        ("year", (text("2024-01-07"),), "year(TIMESTAMP '2024-01-07 00:00:00')", BIGINT),
        ("to_seconds", (I4,), "(INTERVAL '0:00:01' * CAST(i AS BIGINT))", INTERVAL),
        ("to_timestamp", (I8,), "to_timestamp(CAST(j AS DOUBLE))", TIMESTAMPTZ),
    ],
)
def test_resolves(fn: str, args: tuple[Expr, ...], printed: str, type_: SqlType) -> None:
    expr = resolve(fn, args)
    assert (str(expr), expr.type) == (printed, type_)


@pytest.mark.parametrize(
    "fn,args,message,hint",
    [
        ("foo", (S,), "no function foo(VARCHAR)", "floor"),
        ("lenght", (S,), "no function lenght(VARCHAR)", "length"),
        ("lower", (I4,), "no function lower(INTEGER)", "lower(text)"),
        ("=", (S, I4), "no operator = between VARCHAR and INTEGER", "cast"),
        ("+", (S, S), "no operator + between VARCHAR and VARCHAR", None),
        ("neg", (S,), "no operator neg for VARCHAR", None),
        ("and", (I4, B), "AND needs a condition, not INTEGER", "compare"),
        ("substring", (S,), "substring does not take 1 argument", "start"),
        ("=", (TS, text("noon")), "'noon' is not a valid TIMESTAMP", "YYYY"),
        ("=", (TS, text("2024-01-01 10:00+02")), "'2024-01-01 10:00+02' is not a valid TIMESTAMP", "TIMESTAMPTZ"),
        ("=", (I4, text("x")), "'x' is not a valid INTEGER", None),
        ("sum", (I4,), "sum is an aggregate and cannot be used here as a function of one row", None),
        ("regexp_matches", (S, S), "the pattern of regexp_matches must be constant text", None),
        ("regexp_matches", (S, text("(")), "'(' is not a regular expression", None),
        ("regexp_extract", (S, text("a"), ONE), "'a' has groups 0 to 0, and the group must be a constant", None),
        ("date_trunc", (text("eon"), TS), "cannot truncate a time to eon", "week"),
        ("extract", (text("eon"), TS), "unknown part of a time eon", "year"),
        ("strftime", (TS, text("%Q")), "unknown code %Q in the format '%Q'", "%Y"),
        ("round", (F, I4), "the digits of round must be a constant integer", None),
        ("like", (S, text("a!"), text("!")), "the escape character in 'a!' must precede %, _ or itself", None),
        (
            "+",
            (Column(DECIMAL(38, 10), "x"), Column(DECIMAL(38, 10), "x")),
            "DECIMAL(38, 10) + DECIMAL(38, 10) needs 39 digits, and a DECIMAL has at most 38",
            "cast",
        ),
    ],
)
def test_refuses(fn: str, args: tuple[Expr, ...], message: str, hint: str | None) -> None:
    with pytest.raises(BindError) as caught:
        resolve(fn, args)
    assert caught.value.message == message
    assert caught.value.span is None
    assert hint is None or hint in (caught.value.hint or "")


@pytest.mark.parametrize("fn", ["now", "current_timestamp", "today"])
def test_clocks_are_refused_with_a_way_out(fn: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        resolve(fn, ())
    assert "never reads a clock" in (caught.value.detail or "")
    assert "ORDER BY current_time" in (caught.value.hint or "")


@pytest.mark.parametrize("fn", ["random", "uuid", "gen_random_uuid"])
def test_chance_is_refused(fn: str) -> None:
    with pytest.raises(UnsupportedError, match="not allowed in a continuous query"):
        resolve(fn, ())


def test_the_long_tail_is_typed_by_duckdb() -> None:
    assert resolve("sin", (I4,)) == Call(DOUBLE, "sin", (I4,))
    assert resolve("levenshtein", (S, S)).type == BIGINT
    assert resolve("json_extract_string", (S, text("$.a"))).type == VARCHAR
    assert resolve("bit_count", (I8,)).type in (TINYINT, SMALLINT)
    assert resolve("string_split", (S, S)).type == ARRAY(VARCHAR)
    with pytest.raises(UnsupportedError, match=r"parse_formatted_bytes|bitstring.*BIT"):
        resolve("bitstring", (S, I4))
    with pytest.raises(BindError, match="no function sin\\(VARCHAR\\)"):
        resolve("sin", (S,))
    with pytest.raises(UnsupportedError, match="not allowed in a continuous query"):
        resolve("error", (S,))
    with pytest.raises(BindError, match="no function txid_current"):
        resolve("txid_current", ())


def test_common_functions_do_not_start_duckdb() -> None:
    code = (
        "import sys; import millstream.expressions.functions as f; from millstream.expressions.nodes import Column; "
        "from millstream.types import VARCHAR; f.resolve('lower', (Column(VARCHAR, 's'),)); "
        "assert not {'duckdb', 'numba', 'pyspark', 'sqlglot', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "written,type_,value",
    [
        ("1970-01-02", TIMESTAMP, 86_400_000_000),
        ("1970-01-01T00:00:00.5Z", TIMESTAMP, 500_000),
        ("1969-12-31", DATE, -1),
        ("1970-01-01 02:00+02:00", TIMESTAMPTZ, 0),
        ("1970-01-01", TIMESTAMPTZ, 0),
        ("01:00:00.000001", TIME, 3_600_000_001),
        (" 12 ", INTEGER, 12),
        ("1e3", DOUBLE, 1000.0),
        ("-inf", DOUBLE, float("-inf")),
        ("yes", BOOLEAN, True),
        ("1.005", DECIMAL(10, 2), Decimal("1.01")),
        ("10 seconds", INTERVAL, 10_000_000),
        ("é", BLOB, "é".encode()),
        ("1 day 02:00:00", INTERVAL, 93_600_000_000),
        ("-00:00:01", INTERVAL, -1_000_000),
        ("2 weeks", INTERVAL, 14 * 86_400_000_000),
    ],
)
def test_text_becomes_a_constant(written: str, type_: SqlType, value: object) -> None:
    assert literal(written, type_) == Literal(type_, value)


@pytest.mark.parametrize(
    "written,type_",
    [
        ("300", TINYINT),
        ("0x10", INTEGER),
        ("1_0", INTEGER),
        ("2024-02-30", DATE),
        ("25:00", TIME),
        ("on", BOOLEAN),
        ("12345678901.00", DECIMAL(10, 2)),
        ("1 month", INTERVAL),
        ("soon", INTERVAL),
        ("2024", DATE),
    ],
)
def test_other_text_does_not(written: str, type_: SqlType) -> None:
    with pytest.raises(BindError):
        literal(written, type_)
    if type_ != INTERVAL:
        assert cast(text(written), type_, safe=True) == Literal(type_, None)


def test_intervals() -> None:
    assert interval(10, "MINUTES") == Literal(INTERVAL, 600_000_000)
    assert interval("0.5", "s") == Literal(INTERVAL, 500_000)
    with pytest.raises(BindError, match="months"):
        interval(1, "months")
    with pytest.raises(BindError, match="whole number of microseconds"):
        interval("0.1", "microseconds")


def test_constants_are_cast_at_once() -> None:
    assert cast(Literal(INTEGER, 5), DOUBLE) == Literal(DOUBLE, 5.0)
    assert cast(Literal(DOUBLE, 2.5), INTEGER) == Literal(INTEGER, 2)
    assert cast(Literal(DATE, 1), TIMESTAMP) == Literal(TIMESTAMP, 86_400_000_000)
    assert cast(NOTHING, VARCHAR) == Literal(VARCHAR, None)
    with pytest.raises(BindError, match="does not fit"):
        cast(Literal(INTEGER, 300), TINYINT)
    assert cast(I4, INTEGER) is I4
    assert cast(I4, VARCHAR) == Cast(VARCHAR, I4)


@pytest.mark.parametrize(
    "source,target,hint", [(I8, TIMESTAMP, "make_timestamp"), (TS, BIGINT, "epoch_us"), (IV, VARCHAR, "epoch")]
)
def test_casts_that_do_not_exist(source: Expr, target: SqlType, hint: str) -> None:
    with pytest.raises(BindError) as caught:
        cast(source, target)
    assert hint in (caught.value.hint or "")


def test_implicit_conversions_lose_nothing() -> None:
    assert coerce(I4, BIGINT) == Cast(BIGINT, I4)
    assert coerce(I8, INTEGER) is None
    assert coerce(F, BIGINT) is None
    assert coerce(S, TIMESTAMP) is None
    assert coerce(text("2024-01-01"), TIMESTAMP) is not None
    assert coerce(TS, DATE) is None


def test_case_finds_the_common_type() -> None:
    made = case(((B, I4),), F)
    assert made == Case(DOUBLE, ((B, Cast(DOUBLE, I4)),), F)
    with pytest.raises(BindError, match="no common type: INTEGER, VARCHAR"):
        case(((B, I4),), S)
    with pytest.raises(BindError, match="WHEN needs a condition"):
        case(((I4, I4),), I4)


def test_what_can_fail() -> None:
    assert can_fail(resolve("+", (I8, ONE)))
    assert can_fail(cast(S, INTEGER))
    assert can_fail(resolve("=", (cast(S, INTEGER), ONE)))
    assert not can_fail(cast(S, INTEGER, safe=True))
    assert not can_fail(resolve("+", (F, ONE)))
    assert not can_fail(resolve("/", (I8, I8)))
    assert not can_fail(resolve("like", (S, text("a%"))))


def test_every_name_is_found() -> None:
    wanted = """
        abs ceil ceiling floor round sqrt exp ln log10 log2 power pow sign greatest least coalesce nullif ifnull
        if iff lower upper length char_length substring substr trim ltrim rtrim replace concat concat_ws
        contains starts_with ends_with left right lpad rpad reverse repeat strpos position split_part
        regexp_matches regexp_replace regexp_extract md5 year month day hour minute second dayofweek extract
        date_trunc epoch epoch_ms epoch_us to_timestamp make_timestamp strftime isnan isfinite pi
    """
    assert set(wanted.split()) <= set(known_names())
    operators = "= <> < <= > >= + - * / // % || and or not neg is_null in like ilike is_distinct"
    assert all(lookup(name) for name in operators.split())


def test_arrays_that_grow_from_one_are_apart() -> None:
    one = GrowingArray.of([1])
    two, other = one.with_last(2), one.with_last(None)
    three = two.with_last(3)
    assert [list(array) for array in (one, two, other, three)] == [[1], [1, 2], [1, None], [1, 2, 3]]
    assert list(map(len, (one, two, other, three))) == [1, 2, 2, 3]
