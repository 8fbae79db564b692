"""A few random messages and requests, the same in every run; `fuzz_server.py` sends as many as you like."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.server.postgres import statements as pg
from millstream.server.postgres.spelling import bare, unqualified
from millstream.sql.complete import is_blank
from tests.security.fuzz_server import fuzz


def test_a_server_survives_random_messages(tmp_path: Path) -> None:
    told = fuzz(tmp_path, messages=600, requests=150)
    assert told["requests"][200] > 10 and told["requests"][400] > 10
    assert told["connections"].total() >= 5


@pytest.mark.timeout(20)
def test_long_texts_take_time_in_proportion_to_their_length() -> None:
    many = 20_000
    assert pg.first_word("/**/" * many + "1") == ""
    assert not is_blank("/*" * many)
    for text in ("/* " * many, "'" * (2 * many + 1), '"' * (2 * many + 1), "COLLATE " * many, "public.x " * many):
        assert bare(unqualified(text)) == text.strip().replace("public.", " " * 7).strip()
    assert pg.copy_options(f"(FORMAT csv, DELIMITER ','{',a' * many})") == {
        "format": "csv",
        "delimiter": ",",
        "a": "true",
    }
    for pattern, text in (
        (pg._COPY, f"COPY x{' ' * many}z"),
        (pg._DECLARE, f"DECLARE c CURSOR {'CURSOR ' * many}z"),
        (pg._SET, f"SET x{' ' * many}"),
        (pg._FETCH, f"FETCH{' ' * many}'"),
        (pg._SUBSCRIBE, f"SUBSCRIBE TO ({') ' * many}z"),
    ):
        assert pattern.match(text) is None
