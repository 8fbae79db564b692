"""The source of a handful of loops, as it was when somebody last read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kernels import difference, source_for

FILES = sorted((Path(__file__).parent / "golden").glob("*.kernel"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_source_is_as_it_was_read(path: Path) -> None:
    found = difference(path)
    assert not found, f"{found}\nif that is meant: python -m tests.support.kernels --complete {path}"


MARKED = """\
CREATE AGGREGATE marked(chosen_x DOUBLE, chosen_k VARCHAR) : VARCHAR {
  TABLE chosen_rows(chosen_column VARCHAR);
  INITIALIZE: { INSERT INTO chosen_rows VALUES (chosen_k); }
  ITERATE: { UPDATE chosen_rows SET chosen_column = chosen_column || 'x"chosen' WHERE chosen_k LIKE 'x"chosen%'; }
  TERMINATE: { INSERT INTO RETURN SELECT chosen_column FROM chosen_rows; } };

"""

QUERIES = {
    "program": f"{MARKED}SELECT k, marked(v, k) OVER (PARTITION BY k ROWS 2 PRECEDING) AS chosen FROM s",
    "window": "SELECT k, sum(v) FILTER (WHERE k <> 'chosen') OVER (PARTITION BY k ROWS 2 PRECEDING) AS chosen FROM s",
    "groups": "SELECT k AS chosen_k, max(v) AS chosen_v FROM s [RANGE 5] GROUP BY k HAVING max(v) > 1",
    "chain": """SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES sum(chosen_a.v) AS chosen_m
        PATTERN (chosen_a chosen_b) DEFINE chosen_a AS chosen_a.k <> 'chosen', chosen_b AS chosen_b.v > 3) AS m""",
    "threads": """SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES sum(chosen_a.v) AS chosen_m
        PATTERN ((chosen_a | chosen_b)+ chosen_a)
        DEFINE chosen_a AS chosen_a.k <> 'chosen',
               chosen_b AS sum(chosen_b.v) > 3 AND last(chosen_b.k) LIKE 'chosen%') AS m""",
}


@pytest.mark.parametrize("name", QUERIES)
def test_no_text_of_a_statement_is_in_source(name: str) -> None:
    source = source_for(QUERIES[name])
    assert source.strip()
    assert not [line for line in source.splitlines() if "chosen" in line or "marked" in line]
