"""Running a case of row patterns, and comparing its answer with the expected one."""

from __future__ import annotations

from functools import cache
from typing import Any

from conformance_cases import Case, cases
from conformance_runs import plain, rows_of
from match_translation import Translation, translation

import millstream as ms
from millstream.errors import MillstreamError


@cache
def outcome(case_id: str) -> str | None:
    """What is wrong with our answer to a case, be it a refusal; None if nothing is."""
    case = next(case for case in cases("match_recognize.jsonl") if case.id == case_id)
    if not case.inputs:
        return "its input is not in the case"
    with ms.connect() as db:
        asked = translation(case)
        for statement in asked.definitions():
            db.execute(statement)
        try:
            found = _answer(db, case, asked)
        except MillstreamError as error:
            return None if case.expects_error else str(error)
    if case.expects_error:
        return f"an error is expected, not {found}"
    own = sorted(([plain(value) for value in row] for row in found), key=str)
    theirs = sorted(
        (
            [plain(_text(asked.numbers.get(value, value) if isinstance(value, str) else value)) for value in row]
            for row in case.expected_rows
        ),
        key=str,
    )
    return None if own == theirs else f"{own}, not {theirs}"


def _answer(db: ms.Database, case: Case, asked: Translation) -> list[tuple[Any, ...]]:
    """Our answer to a case: what was certain when the last row had come, if the rows have a watermark, or else all."""
    query = db.sql(asked.text)
    for stream in asked.streams:
        db.push(stream.name, stream.rows)
    if case.dialect != "risingwave":
        db.finish()
    table = query.fetch()
    if asked.after is None:
        return rows_of(table)
    name, text = asked.after
    db.register(name, table)
    return rows_of(db.sql(text).fetch())


def _text(value: Any) -> Any:
    """A list as our aggregate writes it."""
    if not isinstance(value, list):
        return value
    return ",".join(str(part).lower() if isinstance(part, bool) else str(part) for part in value)
