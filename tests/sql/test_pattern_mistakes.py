"""Mistakes in row patterns: what is said, where, and with which hint."""

import pytest
from sql_texts import check_mistake

ORDER = "the order is PARTITION BY, ORDER BY, MEASURES, … PER MATCH, AFTER MATCH SKIP, PATTERN, WITHIN, SUBSET, DEFINE"
MEASURE = "expected a measure such as LAST(a.price) AS price"
A_LENGTH = "expected a number or a time span such as 5 MINUTES"
A_VARIABLE = "expected a variable of the pattern"
NO_ROW = "() means no row at all"
SKIP = "expected PAST LAST ROW, TO NEXT ROW, TO FIRST … or TO LAST …"
BEFORE = "is only allowed before FIRST, LAST and aggregates"
IN_PARENTHESES = "put the repeated part into parentheses"
CLAUSES = [
    ("PATTERN (A ⟨||⟩ B)", "unexpected '||'", "alternatives are separated by a single |"),
    ("PATTERN (A | ⟨)⟩", f"{A_VARIABLE}, found ')'", NO_ROW),
    ("PATTERN (⟨|⟩ A)", f"{A_VARIABLE}, found '|'", NO_ROW),
    ("PATTERN (⟨)⟩", f"{A_VARIABLE}, found ')'", NO_ROW),
    ("PATTERN (⟨*⟩)", f"{A_VARIABLE}, found '*'", NO_ROW),
    ("PATTERN (A⟨**⟩)", "unexpected '**'", IN_PARENTHESES),
    ("PATTERN (A*⟨+⟩)", "unexpected '+' after a quantifier", IN_PARENTHESES),
    ("PATTERN (A{2}?⟨?⟩)", "unexpected '?' after a quantifier", IN_PARENTHESES),
    ("PATTERN (A+⟨{⟩2})", "unexpected '{' after a quantifier", IN_PARENTHESES),
    ("PATTERN (A⟨{3,2}⟩)", "a pattern cannot repeat at least 3 and at most 2 times", "did you mean {2,3}?"),
    ("PATTERN (A⟨{0}⟩)", "a pattern cannot repeat at most 0 times", "leave it out"),
    ("PATTERN (A⟨{,0}⟩)", "a pattern cannot repeat at most 0 times", "leave it out"),
    ("PATTERN (A{⟨}⟩)", "expected a number or ',', found '}'", None),
    ("PATTERN (A{⟨x⟩})", "expected a number or ',', found 'x'", None),
    ("PATTERN (A{⟨2.5⟩})", "expected a whole number of at most 9 digits", None),
    ("PATTERN (A{⟨4294967296⟩})", "expected a whole number of at most 9 digits", None),
    ("PATTERN (A{2,3⟨,⟩4})", "expected '}', found ','", None),
    ("PATTERN ({- A ⟨}⟩)", "expected '-}', found '}'", None),
    ("PATTERN (A⟨,⟩ B)", "unexpected ','", "separate variables with spaces, not commas"),
    ("PATTERN (A ⟨1⟩)", "expected ')', found '1'", None),
    ("PATTERN (A⟨.⟩x)", "expected ')', found '.'", None),
    ("PATTERN (PERMUTE(⟨)⟩)", f"{A_VARIABLE}, found ')'", NO_ROW),
    ("PATTERN (A ⟨`⟩b`)", "unexpected character '`'", None),
    ("MEASURES ⟨PATTERN⟩ (A)", f"{MEASURE}, found 'PATTERN'", None),
    ("MEASURES ⟨ONE⟩ ROW PER MATCH PATTERN (A)", f"{MEASURE}, found 'ONE'", None),
    ("MEASURES A.x AS y, ⟨PATTERN⟩ (A)", f"{MEASURE}, found 'PATTERN'", None),
    ("MEASURES A.x ⟨PATTERN⟩ (A)", "expected AS and the name of the measure, found 'PATTERN'", None),
    ("⟨DEFINE⟩ A AS true PATTERN (A)", "expected PATTERN (…), found 'DEFINE'", ORDER),
    ("⟨PATERN⟩ (A)", "expected PATTERN (…), found 'PATERN'", "did you mean PATTERN?"),
    ("PATTERN (A) DEFINE A ⟨x⟩ > 1", "expected AS and a condition, found 'x'", None),
    ("PATTERN (A) DEFINE A AS true ⟨SUBSET⟩ u = (A)", "unexpected 'SUBSET'", ORDER),
    ("PATTERN (A) WITHIN 3 DEFINE A AS true ⟨WITHIN⟩ 4", "WITHIN is given twice", ORDER),
    ("PATTERN (A) ⟨MEASURES⟩ A.x AS y", "unexpected 'MEASURES'", ORDER),
    ("PATTERN (A) DEFINE A AS true ⟨AFTER⟩ MATCH SKIP PAST LAST ROW", "unexpected 'AFTER'", ORDER),
    ("PATTERN (A) ⟨WITH⟩ TIMEOUTS", "unexpected 'WITH'", "WITH TIMEOUTS comes after WITHIN …"),
    ("MEASURES A.x ⟨PATERN⟩ (A)", "expected AS and the name of the measure, found 'PATERN'", None),
    ("MEASURES FINAL ⟨x⟩ AS z PATTERN (A)", f"FINAL {BEFORE}", "write FINAL LAST(…)"),
    ("MEASURES RUNNING ⟨A⟩.x AS z PATTERN (A)", f"RUNNING {BEFORE}", "write RUNNING LAST(…)"),
    ("MEASURES A.x ⟨1⟩, A.x AS z PATTERN (A)", "expected AS and the name of the measure, found '1'", None),
    ("PATTERN (A) WITHIN ⟨DEFINE⟩ A AS true", f"{A_LENGTH}, found 'DEFINE'", None),
    ("PATTERN (A) WITHIN 3 ⟨SECNDS⟩", "expected a unit of time, found 'SECNDS'", "did you mean SECONDS?"),
    ("PATTERN (A) WITHIN ⟨'soon'⟩", "cannot read 'soon' as a time span", None),
    ("PATTERN (A) WITHIN 3 WITH ⟨TIMEOUT⟩", "expected TIMEOUTS, found 'TIMEOUT'", None),
    ("PATTERN (A) SUBSET u = (⟨)⟩", f"{A_VARIABLE}, found ')'", None),
    ("PATTERN (A) SUBSET u ⟨(⟩A)", "expected '=', found '('", None),
    ("AFTER MATCH SKIP ⟨PAST⟩ FIRST ROW PATTERN (A)", f"{SKIP}, found 'PAST'", None),
    ("AFTER MATCH SKIP ⟨NEXT⟩ ROW PATTERN (A)", f"{SKIP}, found 'NEXT'", None),
    ("AFTER MATCH SKIP TO LAST ⟨PATTERN⟩ (A)", f"{A_VARIABLE}, found 'PATTERN'", None),
    ("AFTER MATCH ⟨TO⟩ A PATTERN (A)", "expected SKIP, found 'TO'", None),
    ("ALL ROWS PER MATCH SHOW ⟨MATCHES⟩ PATTERN (A)", "expected EMPTY, found 'MATCHES'", None),
    ("ONE ROW PER ⟨PATTERN⟩ (A)", "expected MATCH, found 'PATTERN'", None),
]  # fmt: skip
WINDOW = "SELECT m OVER (ORDER BY id MEASURES "
FRAME = "ROWS BETWEEN CURRENT ROW AND 3 FOLLOWING"
MISSPELT = "did you mean MATCH_RECOGNIZE?"
A_SEQUENCE = "a pattern is a list of variables, such as AS (X, *Y)"
STATEMENTS = [
    ("SELECT * FROM s MATCH_RECOGNIZE (ORDER BY x⟨)⟩", "expected PATTERN (…), found ')'", None),
    ("SELECT * FROM s MATCH_RECOGNIZE (PATTERN (A) DEFINE⟨)⟩", f"{A_VARIABLE}, found ')'", None),
    ("SELECT * FROM s MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS true, ⟨)⟩", f"{A_VARIABLE}, found ')'", None),
    ("SELECT * FROM s PARTITION BY k⟨⟩", "expected AS (…), found the end of the statement", A_SEQUENCE),
    ("SELECT * FROM s PARTITION BY k AS q⟨⟩", "expected AS (…), found the end of the statement", A_SEQUENCE),
    ("SELECT * FROM s SEQUENCE BY a ⟨PARTITION BY⟩ b AS (X)", "expected AS (…), found 'PARTITION BY'", A_SEQUENCE),
    ("SELECT * FROM s AS (⟨)⟩", "expected a variable, optionally with a star before it, found ')'", None),
    ("SELECT * FROM s AS (X, *⟨)⟩", "expected a variable, optionally with a star before it, found ')'", None),
    ("SELECT * FROM s AS (X ⟨Y⟩)", "expected ')', found 'Y'", None),
    ("SELECT count(*⟨A⟩ + 1) FROM s", "expected ')', found 'A'", None),
    ("SELECT t.val ⟨OVER⟩ w FROM s", "unexpected 'OVER'", None),
    ("SELECT * FROM s MATCH_RECOGNIZE ⟨PATTERN⟩ (A)", "unexpected 'PATTERN'", None),
    ("SELECT * FROM s ⟨MATCH_RECOGNISE⟩ (ORDER BY x PATTERN (A))", "unexpected 'MATCH_RECOGNISE'", MISSPELT),
    ("SELECT * FROM (SELECT * FROM s ⟨match_recogniz⟩ (PATTERN (A)))", "unexpected 'match_recogniz'", MISSPELT),
    ("SELECT * FROM s AS q ⟨MATCHRECOGNIZE⟩ (MEASURES x AS y PATTERN (A))", "unexpected 'MATCHRECOGNIZE'", MISSPELT),
    ("SELECT * FROM s ⟨MATCH RECOGNIZE⟩ (PARTITION BY x PATTERN (A))", "unexpected 'MATCH RECOGNIZE'", MISSPELT),
    ("SELECT * FROM s AS ⟨MATCH_RECOGNIZE⟩ (PATTERN (A))", "MATCH_RECOGNIZE cannot be an alias", "leave AS out"),
    ("SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY ⟨ORDER BY⟩ x PATTERN (A))",
     "expected an expression, found 'ORDER BY'", None),
    ("SELECT * FROM s PARTITION BY ⟨AS⟩ (X)", "expected an expression, found 'AS'", None),
    ("SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY lower(x) AS ⟨PATTERN⟩ (A))",
     "expected the name of the key, found 'PATTERN'", None),
    (f"{WINDOW}⟨ROWS⟩ BETWEEN CURRENT ROW AND 3 FOLLOWING PATTERN (A)) FROM s", f"{MEASURE}, found 'ROWS'", None),
    (f"{WINDOW}x AS m ⟨PATTERN⟩ (A)) FROM s", "expected ROWS BETWEEN CURRENT ROW AND …, found 'PATTERN'", None),
    (f"{WINDOW}x AS m {FRAME} SEEK⟨)⟩ FROM s", "expected PATTERN (…), found ')'", None),
    (f"{WINDOW}x AS m {FRAME}⟨)⟩ FROM s", "expected PATTERN (…), found ')'", None),
]  # fmt: skip


@pytest.mark.parametrize(("marked", "message", "hint"), CLAUSES, ids=[case[0] for case in CLAUSES])
def test_mistakes_in_clauses(marked: str, message: str, hint: str | None) -> None:
    check_mistake(f"SELECT * FROM s MATCH_RECOGNIZE ({marked}) AS m", message, hint)


@pytest.mark.parametrize(("marked", "message", "hint"), STATEMENTS, ids=[case[0] for case in STATEMENTS])
def test_mistakes_around_them(marked: str, message: str, hint: str | None) -> None:
    check_mistake(marked, message, hint)
