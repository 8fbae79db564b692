"""What a user may do with a query that he holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import millstream as ms


@pytest.mark.parametrize("ask", [ms.Query.fetch, ms.Query.arrow, list], ids=["fetch", "arrow", "iterate"])
def test_a_stopped_query_says_so(ask: Callable[[Any], object]) -> None:
    with ms.connect() as db:
        db.execute("CREATE STREAM s (x INT, ts TIMESTAMP) ORDER BY ts")
        query = db.sql("SELECT x FROM s")
        query.stop()
        with pytest.raises(ms.MillstreamError, match="q1 does not run any more") as caught:
            ask(query)
        assert "start it again" in str(caught.value)
