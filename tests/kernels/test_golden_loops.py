"""The source of a handful of loops, as it was when somebody last read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.testing.kernels import difference, source_for

FILES = sorted((Path(__file__).parent / "golden").glob("*.kernel"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_source_is_as_it_was_read(path: Path) -> None:
    found = difference(path)
    assert not found, f"{found}\nif that is meant: python -m millstream.testing.kernels --complete {path}"


@pytest.mark.parametrize(
    "call", ["marked(v, k) OVER (PARTITION BY k ROWS 2 PRECEDING)", 'sum(v) FILTER (WHERE k <> \'x"""y\')']
)
def test_no_text_of_a_statement_is_in_source(call: str) -> None:
    marked = """\
CREATE AGGREGATE marked(chosen_x DOUBLE, chosen_k VARCHAR) : VARCHAR {
  TABLE kept_rows(chosen_column VARCHAR);
  INITIALIZE: { INSERT INTO kept_rows VALUES (chosen_k); }
  ITERATE: { UPDATE kept_rows SET chosen_column = chosen_column || 'x\"""y' WHERE chosen_k LIKE 'x\"""y%'; }
  TERMINATE: { INSERT INTO RETURN SELECT chosen_column FROM kept_rows; } }"""
    over = call if "OVER" in call else f"{call} OVER (PARTITION BY k ROWS 2 PRECEDING)"
    source = source_for(f"{marked};\n\nSELECT k, {over} AS chosen_name FROM s")
    assert source.strip() and not [word for word in ('x"""y', "chosen", "kept_rows", "marked") if word in source]
