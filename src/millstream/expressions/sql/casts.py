"""Casts as SQL text, with the meaning that `millstream.expressions.functions.casts` gives them."""

from __future__ import annotations

from millstream.expressions.functions.literals import TEXT_FORMS
from millstream.expressions.functions.text import spark_text
from millstream.types import DOUBLE, SqlType, integer_bounds

_INF = "double('Infinity')"


def duckdb(text: str, source: SqlType, target: SqlType, safe: bool) -> str:
    """CAST(text AS target) in DuckDB's SQL."""
    function = "TRY_CAST" if safe else "CAST"
    if target.domain:
        if target.domain in TEXT_FORMS:
            text = _guarded(text, f"regexp_full_match({text}, '{TEXT_FORMS[target.domain]}')", safe)
        return f"CAST({function}({text} AS {target.stored}) AS {target.duckdb})"
    if source.is_text and target.name == "BLOB":
        return f"encode({text})"
    if source.name == "BLOB" and target.is_text:
        return f"{'TRY' if safe else ''}(decode({text}))"
    if source.is_text and target.name in TEXT_FORMS:
        text = _guarded(text, f"regexp_full_match({text}, '{TEXT_FORMS[target.name]}')", safe)
    return f"{function}({text} AS {target.duckdb})"


def spark(text: str, source: SqlType, target: SqlType, safe: bool) -> str:
    """CAST(text AS target) in Spark's SQL."""
    function = "TRY_CAST" if safe else "CAST"
    if target.domain:
        return _spark_to_domain(text, target, safe)
    if target.is_text:
        return _spark_to_text(text, source)
    if source.is_text and target.name in TEXT_FORMS:
        pattern = spark_text(f"^(?:{TEXT_FORMS[target.name]})\\z")
        text = _guarded(text, f"{text} RLIKE {pattern}", safe)
    elif target.is_integer and source == DOUBLE:
        text = f"rint({text})"
        if target.name == "BIGINT":
            # Spark takes 2^63, one too many, for the greatest BIGINT; NaN it refuses.
            text = f"CASE WHEN {text} = 9223372036854775808D THEN double('NaN') ELSE {text} END"
    elif target.is_integer and source.name == "DECIMAL":
        text = f"round({text}, 0)"
    elif target.name == "DECIMAL" and source == DOUBLE:
        return _spark_double_to_decimal(text, target, function)
    return f"{function}({text} AS {target.spark})"


def _spark_to_domain(text: str, target: SqlType, safe: bool) -> str:
    """A value of the type that carries a domain, if it is one of the domain."""
    value, bounds = text, integer_bounds(target)
    if bounds is not None:
        condition = f"{text} BETWEEN {bounds[0]} AND {bounds[1]}"
    elif target.domain == "JSON":
        condition = f"try_parse_json({text}) IS NOT NULL"
    else:
        pattern = spark_text(f"^(?:{TEXT_FORMS[target.domain]})\\z")
        condition, value = f"{text} RLIKE {pattern}", f"lower({text})"
    failure = f"CAST(raise_error(concat({text}, ' is not a valid {target}')) AS {target.spark})"
    refused = "" if safe else f" WHEN {text} IS NOT NULL THEN {failure}"
    return f"CASE WHEN {condition} THEN {value}{refused} END"


def _guarded(text: str, condition: str, safe: bool) -> str:
    """Text of another form is NULL, or is quoted once more so that the cast refuses it and shows it."""
    refused = "" if safe else f""" ELSE ('"' || {text} || '"')"""
    return f"CASE WHEN {condition} THEN {text}{refused} END"


def _spark_double_to_decimal(text: str, target: SqlType, function: str) -> str:
    """Spark converts the decimal text of a DOUBLE, everyone else its binary value."""
    if target.scale == 0:
        return f"{function}(round({text}) AS {target})"
    whole = f"CAST({function}(round({text} * 1e{target.scale}D) AS DECIMAL(38, 0)) AS STRING)"
    return f"{function}(concat({whole}, 'E-{target.scale}') AS {target})"


def _spark_to_text(text: str, source: SqlType) -> str:
    if source.name == "TIMESTAMPTZ":
        return f"concat(CAST({text} AS STRING), '+00')"
    if source == DOUBLE:
        return _spark_double_to_text(text)
    if source.name == "BLOB":
        return f"decode({text}, 'UTF-8')"
    return f"CAST({text} AS STRING)"


def _spark_double_to_text(text: str) -> str:
    """The shortest form: digits from 1e-4 up to 1e16, beyond that with an exponent of two digits or more."""
    plain = f"CAST({text} AS STRING)"
    digits = f"regexp_replace(regexp_replace(CAST(CAST({text} AS DECIMAL(38, 21)) AS STRING), '0+$', ''), '[.]$', '.0')"
    signed = f"regexp_replace(replace({plain}, '.0E', 'E'), 'E([0-9])', 'e+$1')"
    exponent = f"regexp_replace(replace({signed}, 'E-', 'e-'), '([+-])([0-9])$', '$10$2')"
    return (
        f"CASE WHEN {text} = double('NaN') THEN 'nan' WHEN {text} = {_INF} THEN 'inf' "
        f"WHEN {text} = -{_INF} THEN '-inf' "
        f"WHEN {text} = 0D OR (abs({text}) >= 1e-3D AND abs({text}) < 1e7D) THEN {plain} "
        f"WHEN abs({text}) >= 1e-4D AND abs({text}) < 1e16D THEN {digits} ELSE {exponent} END"
    )
